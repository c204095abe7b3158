/* ops.h: the interface between the model and a back end.
 *
 * A back end (engine/cpu, cuda, the simulator's fake device) is one table of functions. Set-up
 * functions allocate and may fail: 0 or an ERR_. Step functions only launch work: they return
 * nothing, allocate nothing, and `end` reports every fault. All are called on the engine thread.
 * Symbols: T tokens of the step, S selected rows, h hidden size, D head_dim, Hq/Hk query/KV heads.
 * Every operation keeps this promise: an output row depends on its own inputs only, bit for bit,
 * never on other rows, their number, the chunking or the number of threads.
 * Activations are [rows, width] row-major in device memory, of a type that the back end chooses
 * (fp32 on the CPU). The model refers to them by act_t pointers, which `buffer` returns. */
#ifndef INFERD_ENGINE_DEVICE_OPS_H
#define INFERD_ENGINE_DEVICE_OPS_H

#include "engine/base/error.h"
#include "engine/device/altup_ops.h"
#include "engine/device/batch.h"
#include "engine/device/cross_ops.h"
#include "engine/device/host_ops.h"
#include "engine/device/latent_ops.h"
#include "engine/device/lora_ops.h"
#include "engine/device/per_layer_ops.h"
#include "engine/device/rank_ops.h"
#include "engine/device/sample.h"
#include "engine/device/sleep_ops.h"
#include "engine/device/state_ops.h"
#include "engine/device/step_limits.h"
#include "engine/device/swap_ops.h"
#include "engine/device/tower_ops.h"
#include "engine/device/value_ops.h"

typedef struct device device_t; /* one opened back end */

typedef struct device_options {
  int num_threads; /* CPU workers; 0 = all that affinity and cgroup quota allow */
  const char *isa; /* CPU: "auto", "avx512bf16", "avx512", "avx2", "portable", "neon", ... */
  int32_t device_index;
  bool batch_invariant;   /* GPU: a row's bits never depend on its batch, at some cost in speed */
  bool sleeps;            /* `sleep` will be called */
  comm_t *comm;           /* the ranks that run the model together; NULL = this one alone */
  const device_t *lender; /* whose weights, all made, are used here; NULL = none */
} device_options_t;

/* In-flight steps. The calls begin ... sample launch a step; `end` waits for the oldest step that
 * was launched and not ended. With pipeline_depth 2 the engine launches step N + 1 before it ends
 * step N. The engine does not change the batch, sample rows and results of a step before its `end`;
 * what these point to (ids, parameters, rows of block tables) is read during the launch only. An id
 * batch->input_ids[t] < 0 is that which step N draws for its selected row -1 - id. */
typedef struct ops {
  const char *name;        /* "cpu", "cuda", "fake" */
  int32_t pipeline_depth;  /* in-flight steps at most: 1 or 2; 0 means 1 */
  uint32_t weight_formats; /* bit 1 << weight_format_t: `weight` takes that format as stored */
  uint32_t dtypes;         /* bit 1 << dtype_t for each type that products can run in; 0 = all */
  uint32_t activations;    /* bit 1 << activation_t for each of an MLP that it computes; 0 = all */
  int32_t block_size;      /* default slots of a KV block; 0 means 16 */
  bool history_on_device;  /* `sample` knows all previous ids without output_ids */
  bool kv_fp8, kv_int8;    /* these fields of kv_cache_desc_t are supported */
  bool bidirectional, kv_groups; /* attention_t.bidirectional, batch_t.num_groups above 1 */
  bool separate_memory; /* KV blocks are in memory that only this back end uses, not the host's */
  bool bounds_admission, lends_weights; /* by step_ms: pace_options_t; device_options_t.lender */
  int32_t seqs_default, tokens_default; /* of max_num_seqs, 0: 64; of a step's tokens, 0: 512 */
  int32_t step_ms, client_step_ms; /* default time of a step, of a client in it; 0 = no bound */
  int32_t logprobs_max;            /* alternatives of a row within a step; 0 means SAMPLE_TOP_MAX */
  int32_t act_bytes;               /* bytes of one activation; 0 means 4 */
  const swap_ops_t *swap;     /* copies of KV blocks to host memory and back; NULL = no swapping */
  const sleep_ops_t *sleep;   /* its memory given back for a while; NULL = it never sleeps */
  const host_ops_t *host;     /* experts in host memory; NULL = they lie where the model does */
  const state_ops_t *state;   /* layers with a state per sequence; NULL = they do not run */
  const latent_ops_t *latent; /* NULL = no latent attention */
  const per_layer_ops_t *per_layer; /* NULL = Gemma 4 does not run */
  const altup_ops_t *altup;         /* NULL = Gemma 3n does not run */
  const value_ops_t *values;        /* NULL = none of its operations */
  const struct draft_ops *drafts;   /* draft_ops.h; NULL = no heads in files of their own */
  const rank_ops_t *ranks;          /* NULL = a model runs on one rank only */
  const lora_ops_t *lora;           /* NULL = no adapters */
  const tower_ops_t *tower;         /* NULL = no towers: the model sees no images */
  const cross_ops_t *cross;         /* NULL = no encoders before decoders */
  /* Set-up. `close` frees all that the other functions made for the device. */
  bool (*available)(int32_t device_index); /* a quick check that `open` may work; NULL = never */
  int (*open)(const device_options_t *options, device_t **out, inferd_error_t *error);
  void (*close)(device_t *device);
  const char *(*describe)(const device_t *device); /* "2 threads, avx512bf16" */
  size_t (*memory_free)(const device_t *device);   /* bytes that can be allocated */
  /* Writes which limit leaves no more; NULL = the memory of the device. */
  void (*memory_limit)(const device_t *device, char *out, size_t capacity);
  int (*weight)(device_t *device, const weight_source_t *source, weight_t **out,
                inferd_error_t *error);
  size_t (*weight_bytes)(const weight_source_t *source); /* of `weight`; NULL = those of elements */
  int (*vector)(device_t *device, const float *values, int64_t count, vector_t **out,
                inferd_error_t *error);
  size_t (*kv_bytes)(const kv_cache_desc_t *desc, int32_t num_blocks); /* size of a KV pool */
  int (*kv_cache)(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error);
  int (*prepare)(device_t *device, const step_limits_t *limits, inferd_error_t *error);
  act_t *(*buffer)(device_t *device, int64_t rows, int64_t width); /* NULL = no memory */
  /* Estimated bytes that `prepare` and the warm-up runs take; NULL = the engine estimates them. */
  size_t (*workspace_bytes)(const step_limits_t *limits);
  /* Rows of warm-up run number `index`; 0 = no more; NULL = none. Before READY the engine runs a
   * step of so many tokens that store nothing and are drawn: one-token sequences, or reqs_max with
   * draft tokens; with adapter slots a second time, slot 1. */
  int32_t (*warm_up_rows)(device_t *device, int32_t index);
  /* After the warm-up runs: logs lines about memory and chosen kernels; NULL = nothing to log. */
  void (*report)(const device_t *device, void (*say)(void *context, const char *line),
                 void *context);
  /* Step. `begin` also launches the copies of the batch. */
  void (*begin)(device_t *device, const batch_t *batch);
  /* out[T, width] = table[input_ids] (* scale) */
  void (*embed)(device_t *device, act_t *out, const weight_t *table, float scale);
  /* out[T, width] += table[positions + offset] */
  void (*embed_positions)(device_t *device, act_t *out, const weight_t *table, int32_t offset);
  /* out[T, width] += table[types of the tokens]; NULL = token types are not supported */
  void (*embed_types)(device_t *device, act_t *out, const weight_t *table);
  /* Of the tokens with rows of pictures (batch_t.embedded_rows): x[T, width] = plane 0, or += a
   * later plane. NULL = no step has such tokens, nor rope_positions, nor seen_until. */
  void (*embed_pictures)(device_t *device, act_t *x, int32_t plane, int32_t width);
  /* out[rows, norm->width] = norm(in) (+ residual if not NULL; may alias out) */
  void (*norm)(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows);
  /* out[rows, N] = in[rows, K] . W[N, K]^T (+ bias[N]) (+ residual[rows, N]; may alias out) */
  void (*linear)(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows);
  /* out[rows, N] = norm(in[rows, K]) . W^T (+ bias[N]); with an activation, out[rows, width] is the
   * activation of these sums; with `attention`, rows = T and rope_store(out) follows. The bits are
   * those of the operations one after another; NULL = the model calls these. */
  void (*fused_linear)(device_t *device, act_t *out, const act_t *in, const fused_linear_t *linear,
                       int32_t rows);
  /* qkv[T, attention_width], columns q|k|v: norm and rope of q, k in place; stores K, V in slots */
  void (*rope_store)(device_t *device, act_t *qkv, const attention_t *attention);
  /* out[T, Hq D] = paged attention of q (first Hq D columns of qkv) */
  void (*attention)(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention);
  void (*activation)(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows);
  /* out[rows, width] = residual + sigmoid(gate[rows, 1]) * in; out may alias residual */
  void (*gated_add)(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                    const act_t *residual, int32_t width, int32_t rows);
  /* out[rows, h] = residual (NULL = 0) + sum of weight_e * expert_e(in) over the chosen experts,
   * added in ascending order; out may alias residual, not in. Logits = in . router^T (+ bias) in
   * fp32; the k largest are chosen, on ties the lower index. weight_e is the softmax over the
   * chosen logits if `normalise`, else over all E; moe_t has more. NaN logits choose any k. */
  void (*moe)(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows);
  /* out[S, width] = in[selected_token_indices] */
  void (*gather)(device_t *device, act_t *out, const act_t *in, int32_t width);
  /* Logits l of hidden rows [first, first + rows) in fp32 (+ bias[V], or NULL; then softcap c != 0:
   * c * tanh(l / c)); then `sample`, one row each. Both may be called several times a step; rows <=
   * logits_rows_max. */
  void (*logits)(device_t *device, const act_t *hidden, const weight_t *head, const vector_t *bias,
                 float softcap, int32_t first, int32_t rows);
  void (*sample)(device_t *device, const sample_row_t *rows, int32_t num_rows);
  /* Copies in[rows, width] to host memory, as fp32, by the `end` of the step; instead of `logits`
   * where prompts become vectors. NULL = they cannot. */
  void (*read_rows)(device_t *device, float *out, const act_t *in, int32_t width, int32_t rows);
  /* out[rows, width] = `in`, of host memory: between two steps. NULL = no layers behind pooling */
  void (*write_rows)(device_t *device, act_t *out, const float *in, int32_t width, int32_t rows);
  /* Waits for the oldest in-flight step. Returns 0, or ERR_DEVICE_FAILED: the device is lost. */
  int (*end)(device_t *device, inferd_error_t *error);
  /* For tests: copies the fp32 logits of the last `logits` call to host memory. */
  void (*read_logits)(device_t *device, float *out, int32_t rows);
} ops_t;

extern const ops_t ops_cpu, ops_cuda; /* without CUDA: cuda/none.c, whose `open` says why */

#endif
