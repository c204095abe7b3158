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
#ifndef INFERD_ENGINE_OPS_H
#define INFERD_ENGINE_OPS_H

#include "engine/batch.h"
#include "engine/error.h"
#include "engine/sample.h"
#include "engine/weight_source.h"

#include <stddef.h>
#include <stdint.h>

typedef struct device device_t; /* one opened back end */
typedef struct weight weight_t; /* a matrix in the back end's own layout */
typedef struct vector vector_t; /* a vector (norm weight, bias) on the device */
typedef void act_t;             /* activation buffer on the device */

typedef struct device_options {
  int num_threads; /* CPU workers; 0 = all that affinity and cgroup quota allow */
  const char *isa; /* CPU: "auto", "avx512bf16", "avx512", "avx2", "portable", "neon", ... */
  int32_t device_index;
} device_options_t;

typedef struct kv_cache_desc {
  int32_t num_layers, num_kv_heads, head_dim;
  int32_t num_blocks; /* block 0 is the null block: zeroed, never written */
  int32_t block_size;
  dtype_t dtype;
} kv_cache_desc_t;

/* Upper bounds of every step; workspaces are sized from them in `prepare`. */
typedef struct step_limits {
  int32_t tokens_max, reqs_max, logits_rows_max;
  int32_t hidden_max; /* widest activation row that any op of this model sees */
  int32_t vocab_size;
  int32_t max_model_len;
  int32_t heads_max, head_dim_max;
} step_limits_t;

typedef enum norm_kind { NORM_RMS, NORM_LAYER } norm_kind_t;
typedef struct norm {
  norm_kind_t kind;
  int32_t width;
  float eps;
  const vector_t *weight; /* [width] or NULL = ones */
  const vector_t *bias;   /* [width] or NULL; LayerNorm only */
} norm_t;

/* Rotary embedding on halves (i, i + dims/2); models.md 5. angle = float(position) * inv_freq[i] in
 * fp32; cos and sin are multiplied by `scale`. */
typedef struct rope {
  int32_t dims;          /* rotated dimensions of a head, even; the rest pass unchanged */
  const float *inv_freq; /* [dims / 2], host memory, lives as long as the model */
  float scale;           /* 1 unless yarn or longrope */
} rope_t;

typedef struct attention {
  int32_t layer;
  int32_t num_heads, num_kv_heads, head_dim;
  float scale;            /* of q.k before the softmax */
  float softcap;          /* 0 = none: s = cap * tanh(s / cap) after scale, before mask */
  int32_t window;         /* 0 = none; key j visible to p iff p - window < j <= p */
  const vector_t *q_norm; /* [D] RMSNorm over each head before rope, or NULL */
  const vector_t *k_norm; /* [D] or NULL */
  float norm_eps;
  const rope_t *rope;    /* NULL = learned or no positions */
  const vector_t *sinks; /* [Hq] extra logit in the denominator, or NULL */
} attention_t;

typedef enum activation {
  ACTIVATION_RELU,      /* out[f] = act(in[f]) */
  ACTIVATION_GELU,      /* erf form */
  ACTIVATION_GELU_TANH, /* gelu_new, gelu_pytorch_tanh */
  ACTIVATION_SILU_MUL,  /* out[f] = silu(in[i]) * in[f + i], in has 2f columns: gate then up */
  ACTIVATION_GELU_TANH_MUL
} activation_t;

typedef struct ops {
  const char *name; /* "cpu", "cuda", "fake" */

  /* set-up */
  int (*open)(const device_options_t *options, device_t **out, error_t *error);
  void (*close)(device_t *device);                 /* frees everything made from it */
  const char *(*describe)(const device_t *device); /* "2 threads, avx512bf16" */
  size_t (*memory_free)(const device_t *device);   /* bytes that may be planned for */
  int (*weight)(device_t *device, const weight_source_t *source, weight_t **out, error_t *error);
  int (*vector)(device_t *device, const float *values, int64_t count, vector_t **out,
                error_t *error);
  size_t (*kv_bytes)(const kv_cache_desc_t *desc, int32_t num_blocks); /* size of a pool */
  int (*kv_cache)(device_t *device, const kv_cache_desc_t *desc, error_t *error);
  int (*prepare)(device_t *device, const step_limits_t *limits, error_t *error);
  act_t *(*buffer)(device_t *device, int64_t rows, int64_t width); /* NULL = no memory */

  /* step */
  void (*begin)(device_t *device, const batch_t *batch); /* runs the batch's page copies too */
  /* x[T, width] = table[input_ids] (* scale) */
  void (*embed)(device_t *device, act_t *x, const weight_t *table, float scale);
  /* x[T, width] += table[positions + offset] */
  void (*embed_positions)(device_t *device, act_t *x, const weight_t *table, int32_t offset);
  /* out[rows, w] = norm(in) (+ residual when not NULL; may alias out) */
  void (*norm)(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows);
  /* out[rows, N] = in[rows, K] . W[N, K]^T (+ bias[N]) (+ residual[rows, N]; may alias out) */
  void (*linear)(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows);
  /* qkv[T, (Hq + 2 Hk) D], rows q|k|v: q,k norm, rope on q and k in place, K and V to their slots
   */
  void (*rope_store)(device_t *device, act_t *qkv, const attention_t *attention);
  /* out[T, Hq D] = paged attention of q (first Hq D columns of qkv) */
  void (*attention)(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention);
  void (*activation)(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows);
  /* out[S, width] = in[selected_token_indices] */
  void (*gather)(device_t *device, act_t *out, const act_t *in, int32_t width);
  /* logits of hidden rows [first, first + rows) in fp32 (cap != 0: cap * tanh(l / cap)), then one
   * sample_row each. May be called several times in a step; rows <= logits_rows_max. */
  void (*logits)(device_t *device, const act_t *hidden, const weight_t *head, float softcap,
                 int32_t first, int32_t rows);
  void (*sample)(device_t *device, const sample_row_t *rows, int32_t num_rows);
  /* Waits for the step. 0, or ERR_DEVICE_FAILED: the device is lost. */
  int (*end)(device_t *device, error_t *error);
  /* Copies fp32 logits of the last `logits` call to host memory; tests and `check` only. */
  void (*read_logits)(device_t *device, float *out, int32_t rows);
} ops_t;

extern const ops_t ops_cpu;
extern const ops_t ops_cuda; /* cuda/none.c when built without CUDA: `open` says why not */

#endif
