/* kernels.h: the launchers of the CUDA kernels, callable from C without a CUDA header.
 *
 * Each launcher checks its shapes, launches on `stream` and returns: 0, or a cudaError_t (1,
 * cudaErrorInvalidValue, for a shape that the kernel does not take). None allocates, none waits.
 * All pointers are device memory unless said otherwise, rows are row-major and aligned to 16 bytes,
 * widths are in elements and multiples of 8. Engine thread. `dtype` is the type of activations and
 * KV cache, DTYPE_BF16 or DTYPE_F16; sums are in fp32. T tokens of the step, R requests, S selected
 * rows, D head_dim, Hq and Hk query and KV heads. Under graph replay T, R and S are those of the
 * bucket: padding rows have id, index and slot -1, a length and a query length of 0.
 */
#ifndef INFERD_CUDA_KERNELS_KERNELS_H
#define INFERD_CUDA_KERNELS_KERNELS_H

#include "cuda/device_code/kernel_types.h"

#include "engine/device/batch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one block in one layer, K and V; 0 when the shape is not supported. Host only. */
size_t gpu_kv_block_bytes(const gpu_kv_t *kv);
/* Copies the first `rows` slots of blocks, in every layer; `copies` [num_copies]. */
int gpu_page_copy(const gpu_kv_t *kv, const block_copy_t *copies, int32_t num_copies,
                  gpu_stream_t stream);

/* An embedding table, [rows, width], or rows from `first` on of a larger one. */
typedef struct gpu_table {
  const void *values;
  int32_t rows, width;
  gpu_packed_t packed;
  int32_t first;
} gpu_table_t;
/* out[T, width] = table[ids] * scale; an id outside [first, first + rows) gives a row of zeros. */
int gpu_embed(dtype_t dtype, void *out, const gpu_table_t *table, const int32_t *ids, float scale,
              int32_t tokens, gpu_stream_t stream);
/* out[T, width] += table[positions + offset], first = 0; a row outside the table adds nothing. */
int gpu_embed_positions(dtype_t dtype, void *out, const gpu_table_t *table,
                        const int32_t *positions, int32_t offset, int32_t tokens,
                        gpu_stream_t stream);
/* out[S, width] = in[indices]; index -1 gives a row of zeros. */
int gpu_gather(dtype_t dtype, void *out, const void *in, const int32_t *indices, int32_t width,
               int32_t rows, gpu_stream_t stream);

typedef struct gpu_norm {
  const float *weight, *bias; /* [width] or NULL */
  float eps;
  int centred; /* 1 = LayerNorm, 0 = RMSNorm */
  int32_t width;
} gpu_norm_t;
/* out = norm(in) * weight + bias (+ residual). residual: NULL, or rows that may alias out. out may
 * alias in. */
int gpu_norm(dtype_t dtype, void *out, const void *in, const void *residual, const gpu_norm_t *args,
             int32_t rows, gpu_stream_t stream);

/* RMSNorm in place of `width` columns from columns on, of rows that are `stride` elements apart. */
int gpu_norm_columns(dtype_t dtype, void *columns, int64_t stride, const float *weight, float eps,
                     int32_t width, int32_t rows, gpu_stream_t stream);

/* out[rows, width] = act(in); the MUL kinds read 2 * width columns, gate then up. */
int gpu_activate(dtype_t dtype, void *out, const void *in, gpu_activation_t kind, int32_t width,
                 int32_t rows, gpu_stream_t stream);

/* table[T, dims / 2] of (cos, sin) * scale at angle float(position) * inv_freq[i], in fp32. */
int gpu_rope_table(float *table, const int32_t *positions, const float *inv_freq, float scale,
                   int32_t dims, int32_t tokens, gpu_stream_t stream);

typedef struct gpu_rope_store {
  void *qkv;                    /* [T, (Hq + 2 Hk) D], q and k are normed and rotated in place */
  const int64_t *slots;         /* [T] block * block_size + offset, -1 = not stored */
  const float *table;           /* [T, dims / 2, 2] of gpu_rope_table, NULL = no rotation */
  const float *q_norm, *k_norm; /* [D] or NULL */
  float norm_eps;
  int32_t dims; /* rotated dimensions of a head: pairs (i, i + dims / 2) */
  int32_t num_heads, tokens, layer;
  int norm_whole; /* q_norm is [Hq D], k_norm [Hk D]: one norm over all heads of a token */
  int norm_each;  /* q_norm is [Hq D], k_norm [Hk D]: a LayerNorm for each head */
  int norm_late;  /* the norms come behind the rotation */
} gpu_rope_store_t;
int gpu_rope_store(const gpu_kv_t *kv, const gpu_rope_store_t *args, gpu_stream_t stream);

/* A linear layer: out = act(norm(in) . weight^T (+ bias)) (+ residual). */
typedef struct gpu_skinny {
  const void *in;         /* [rows, k] */
  const int32_t *row_map; /* [rows]: row i of the inputs is row row_map[i] of in; NULL = i */
  const void *weight;     /* [n, k] of the same dtype; [2 n, k] for the MUL activations */
  gpu_packed_t packed;    /* how `weight` is packed, if it is */
  const float *bias;      /* [n], or [2 n], or NULL */
  const void *residual;   /* [rows, n] or NULL; may alias out. Not with an activation */
  void *out;              /* [rows, n] of dtype, or fp32 when `logits` */
  int32_t rows, n, k;     /* k a multiple of 8 */
  int32_t stride;         /* elements from a row of out and residual to the next; 0 = n */
  int logits;             /* fp32 output */
  float softcap;          /* logits only: cap * tanh(l / cap), 0 = none */
  int norm;               /* 1 = the inputs are RMS-normed first, as gpu_norm does; rows as below */
  const float *norm_weight; /* [k] or NULL */
  float norm_eps;
  int activate; /* 1 = `activation` of the rounded sums, as gpu_activate does */
  gpu_activation_t activation;
  /* For few blocks: sums of gpu_skinny_partial_bytes, [n / 8 + 1] zeroes that stay zeroes, and the
   * number of multiprocessors; NULL = a block alone has all of k. No bits depend on them. */
  float *partial;
  int32_t *tickets, workers;
} gpu_skinny_t;
/* The layer for rows <= 32 (norm: GPU_NORM_ROWS_MAX), streaming the weights once. Rows do not
 * influence each other's bits. */
int gpu_skinny(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream);
/* The layer for any number of rows (norm: as there), with the bits that gpu_skinny gives each. */
int gpu_linear(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream);
size_t gpu_skinny_partial_bytes(int32_t rows, int32_t n);
/* Both for packed weights, called by them: the bits are those of the weights unpacked. Normed
 * inputs lie in shared memory, so a layer norms no more than gpu_packed_norm_fits. */
int gpu_packed_linear(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream);
static inline int gpu_packed_norm_fits(int32_t rows, int32_t k) {
  return rows <= GPU_NORM_ROWS_MAX && (int64_t)rows * k <= GPU_PACKED_NORM_VALUES;
}
/* out[count, cols] = rows [first, first + count) of a packed matrix, rounded once to dtype. */
typedef struct gpu_unpack_rows {
  int32_t first, count, cols; /* cols a multiple of 8 */
} gpu_unpack_rows_t;
int gpu_unpack(dtype_t dtype, void *out, const gpu_packed_t *packed, const void *base,
               const gpu_unpack_rows_t *rows, gpu_stream_t stream);
/* gpu_embed, and gpu_embed_positions if it adds, for a packed table; called by them. */
typedef struct gpu_packed_rows {
  const int32_t *ids; /* [tokens] */
  int32_t offset, tokens;
  float scale;
  int adds;
} gpu_packed_rows_t;
int gpu_packed_embed(dtype_t dtype, void *out, const gpu_table_t *table,
                     const gpu_packed_rows_t *rows, gpu_stream_t stream);
/* out[rows, width] = residual + sigmoid(gate[rows]) * in; out may alias residual. */
int gpu_gated_add(dtype_t dtype, void *out, const void *in, const void *gate, const void *residual,
                  int32_t width, int32_t rows, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
