/* ops.h: the seam between the model and a back end.
 *
 * A back end (engine/cpu, cuda, the simulator's fake device) is one table of functions. Set-up
 * functions allocate and may fail; step functions only launch: they return nothing, allocate
 * nothing, and every fault surfaces in `end`. All are called on the engine thread. Symbols:
 * T tokens of the step, S selected rows, h hidden size, D head_dim, Hq/Hk query and KV heads.
 *
 * The promise behind every operation: an output row depends on its own inputs only, bit for bit,
 * never on the other rows, their number, the chunking or the number of threads.
 *
 * Activations are [rows, width] row-major in device memory, of a type that the back end chooses
 * (fp32 on the CPU); the model passes them around as act_t pointers from `buffer`.
 */
#ifndef INFERD_ENGINE_DEVICE_OPS_H
#define INFERD_ENGINE_DEVICE_OPS_H

#include "engine/base/error.h"
#include "engine/device/batch.h"
#include "engine/device/op_types.h"
#include "engine/device/sample.h"
#include "engine/device/swap_ops.h"
#include "engine/device/weight_source.h"

#include <stddef.h>
#include <stdint.h>

typedef struct device device_t; /* one opened back end */
typedef struct act act_t;       /* activation buffer on the device: each back end casts it */

typedef struct device_options {
  int num_threads; /* CPU workers; 0 = all that affinity and cgroup quota allow */
  const char *isa; /* CPU: "auto", "avx512bf16", "avx512", "avx2", "portable", "neon", ... */
  int32_t device_index;
  bool batch_invariant; /* GPU: a row's bits never depend on its batch, at some cost in speed */
} device_options_t;

/* Upper bounds of every step; workspaces are sized from them in `prepare`. */
typedef struct step_limits {
  int32_t tokens_max, reqs_max, logits_rows_max;
  int32_t hidden_max; /* widest activation row that any op of this model sees */
  int32_t vocab_size, max_model_len, heads_max, head_dim_max;
  int32_t experts_max, experts_top_max, expert_width_max; /* experts: E, k, I; 0 = none */
  int32_t adapter_rank_max;                               /* 0 = no low-rank adapters */
} step_limits_t;

/* Steps in flight. A step is launched by begin ... sample and ended by `end`; `end` waits for the
 * oldest step that was launched and not ended. With pipeline_depth 2 the engine launches step N + 1
 * before it ends step N: the batch, the sample rows and their results of a step stay untouched by
 * the engine until its own `end` (what they point to elsewhere, such as ids, parameters and rows of
 * block tables, is read during the launch only), and batch->input_ids[t] < 0 stands for the id that
 * the step before draws for its selected row -1 - input_ids[t], which only the device knows yet. */
typedef struct ops {
  const char *name;        /* "cpu", "cuda", "fake" */
  int32_t pipeline_depth;  /* steps in flight at most: 1 or 2; 0 stands for 1 */
  uint32_t weight_formats; /* bit 1 << WEIGHT_MXFP4: `weight` takes that format as it is stored */
  uint32_t dtypes;         /* bit 1 << dtype_t of every run type that it has; 0 = all */
  int32_t block_size;      /* slots of a KV block unless told otherwise; 0 stands for 16 */
  bool history_on_device;  /* sample knows the ids so far without output_ids, the latest included */
  bool kv_fp8;             /* kv_cache_desc_t.fp8 is taken */
  bool separate_memory;    /* blocks are not in host memory: no other tenants, swapping helps */
  int32_t seqs_default;    /* max_num_seqs unless told otherwise; 0 stands for 64 */
  int32_t tokens_default;  /* max_num_batched_tokens unless told otherwise; 0 stands for 512 */
  int32_t act_bytes;       /* of one activation; 0 stands for 4 */
  const swap_ops_t *swap;  /* KV blocks to host memory and back; NULL = no swapping */

  /* set-up */
  bool (*available)(int32_t device_index); /* a cheap look; NULL = never */
  int (*open)(const device_options_t *options, device_t **out, inferd_error_t *error);
  void (*close)(device_t *device);                 /* frees everything made from it */
  const char *(*describe)(const device_t *device); /* "2 threads, avx512bf16" */
  size_t (*memory_free)(const device_t *device);   /* bytes that may be planned for */
  int (*weight)(device_t *device, const weight_source_t *source, weight_t **out,
                inferd_error_t *error);
  int (*vector)(device_t *device, const float *values, int64_t count, vector_t **out,
                inferd_error_t *error);
  size_t (*kv_bytes)(const kv_cache_desc_t *desc, int32_t num_blocks); /* size of a pool */
  int (*kv_cache)(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error);
  /* Adapters 1..`slots` of a linear layer: A [rank_max, cols], B [rows, rank_max]; NULL = none. */
  int (*lora)(device_t *device, int64_t rows, int64_t cols, int32_t slots, int32_t rank_max,
              lora_t **out, inferd_error_t *error);
  int (*prepare)(device_t *device, const step_limits_t *limits, inferd_error_t *error);
  act_t *(*buffer)(device_t *device, int64_t rows, int64_t width); /* NULL = no memory */
  /* Device memory that `prepare` and the rehearsals will take, about; NULL = the engine guesses. */
  size_t (*workspace_bytes)(const step_limits_t *limits);
  /* Rows of the index-th rehearsal, 0 = no more; NULL = none. Before READY the engine runs, for
   * each index from 0 on, a step of that many one-token sequences that write to no slot, and
   * where there are adapters the same again with the first of them. */
  int32_t (*rehearsal)(device_t *device, int32_t index);
  /* After the rehearsals: what was taken and chosen, a line each; NULL = nothing to say. */
  void (*report)(const device_t *device, void (*say)(void *context, const char *line),
                 void *context);
  /* Copies lora_a [rank, cols], lora_b [rows, rank] (scaled) to an unused slot; rank 0 empties. */
  void (*lora_set)(device_t *device, lora_t *lora, int32_t slot, int32_t rank, const float *lora_a,
                   const float *lora_b);

  /* step */
  void (*begin)(device_t *device, const batch_t *batch); /* runs the batch's page copies too */
  /* out[T, width] = table[input_ids] (* scale) */
  void (*embed)(device_t *device, act_t *out, const weight_t *table, float scale);
  /* out[T, width] += table[positions + offset] */
  void (*embed_positions)(device_t *device, act_t *out, const weight_t *table, int32_t offset);
  /* out[rows, w] = norm(in) (+ residual when not NULL; may alias out) */
  void (*norm)(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows);
  /* out[rows, N] = in[rows, K] . W[N, K]^T (+ bias[N]) (+ residual[rows, N]; may alias out) */
  void (*linear)(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows);
  /* out[t, column + N] += B_s . (A_s . in[t, K]) for the tokens t whose batch->adapters[t] is s >
   * 0; rows of `out` are `width` wide. In fp32; a token's sum does not depend on the others. */
  void (*lora_add)(device_t *device, act_t *out, const act_t *in, const lora_t *lora,
                   int32_t column, int32_t width);
  /* qkv[T, (Hq + 2 Hk) D], rows q|k|v: q,k norm, rope on q, k in place, K and V to their slots */
  void (*rope_store)(device_t *device, act_t *qkv, const attention_t *attention);
  /* out[T, Hq D] = paged attention of q (first Hq D columns of qkv) */
  void (*attention)(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention);
  void (*activation)(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows);
  /* out[rows, width] = residual + sigmoid(gate[rows, 1]) * in; out may alias residual */
  void (*gated_add)(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                    const act_t *residual, int32_t width, int32_t rows);
  /* out[rows, h] = residual + sum over the chosen experts e of weight_e * expert_e(in); out may
   * alias residual, not in. Logits are in . router^T (+ bias) in fp32; chosen are the k largest, of
   * equal ones the lower index. weight_e is the softmax of the chosen logits when `normalise`, else
   * of all E, in fp32. The residual takes in the experts by ascending index, whoever else is in the
   * batch. A row of NaN logits may choose any k experts. */
  void (*moe)(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows);
  /* out[S, width] = in[selected_token_indices] */
  void (*gather)(device_t *device, act_t *out, const act_t *in, int32_t width);
  /* logits of hidden rows [first, first + rows) in fp32 (cap != 0: cap * tanh(l / cap)), then one
   * sample_row each. May be called several times in a step; rows <= logits_rows_max. */
  void (*logits)(device_t *device, const act_t *hidden, const weight_t *head, float softcap,
                 int32_t first, int32_t rows);
  void (*sample)(device_t *device, const sample_row_t *rows, int32_t num_rows);
  /* Waits for the oldest step in flight. 0, or ERR_DEVICE_FAILED: the device is lost. */
  int (*end)(device_t *device, inferd_error_t *error);
  /* Copies fp32 logits of the last `logits` call to host memory; for tests. */
  void (*read_logits)(device_t *device, float *out, int32_t rows);
} ops_t;

extern const ops_t ops_cpu;
extern const ops_t ops_cuda; /* cuda/none.c when built without CUDA: `open` says why not */

#endif
