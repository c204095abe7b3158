/* lora.h: adds what adapters change to a linear layer, an embedding or logits, for batches that mix
 * adapters.
 *
 * out[t, column + n] += sum over r < rank of low[t, r] * B[n, r] + factors[n] * plain[t, column +
 * n]
 * + offsets[n], where low[t, r] = sum over k of in[t, k] * A[r, k], for the adapter of token t (Hu
 * et al. 2021; Liu et al. 2024). All sums are in fp32 and in an order that nothing but the layer
 * decides, so a token's bits do not depend on the others; a token without an adapter is not
 * touched. Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_LORA_H
#define INFERD_CUDA_KERNELS_LORA_H

#include "cuda/kernels/kernels.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_LORA_RANK_MAX = 512, GPU_LORA_RANK_ALIGN = 4 };

typedef struct gpu_lora {
  const int32_t *ranks;   /* [slots + 1] of adapter 0, which is none, 1, ..; 0 = no pair */
  const int32_t *changes; /* [slots + 1] 0 = the adapter leaves this layer alone */
  const float *a;         /* [slots, stride, cols] rows beyond the rank are not read */
  const float *b;         /* [slots, rows, stride] columns beyond the rank are finite */
  const float *factors;   /* [slots, rows] 0 = none; read where `plain` or `logits` is given */
  const float *offsets;   /* [slots, rows] 0 = none */
  int32_t rows, cols;     /* N and K: rows even, cols a multiple of GPU_ROW_ALIGN; but see below */
  int32_t stride;         /* largest rank, a multiple of GPU_LORA_RANK_ALIGN */
  /* of the step */
  const int32_t *adapters;       /* of tokens */
  const void *in;                /* [tokens, cols] */
  const void *plain;             /* [tokens, width], may be `out`; NULL = nothing has factors */
  void *out;                     /* [tokens, width] */
  float *low;                    /* [tokens, stride] scratch */
  int32_t tokens, column, width; /* column and width even */
  /* An embedding: `in` is not read, x is the one at ids[t], times `scale`; any cols. */
  const int32_t *ids; /* [tokens], below 0 = none; or NULL */
  float scale;
  /* Logits: `out` is fp32 [tokens, rows], plain = out - bias, token t is the one at selected[t],
   * and rows may be odd; then B, factors and offsets have room for one row more. */
  bool logits;
  const float *bias;       /* [rows] or NULL */
  const int32_t *selected; /* [tokens], below 0 = none; or NULL */
} gpu_lora_t;
/* Launches two kernels: one computes `low`, the other adds low . B^T to `out`. Returns 0 or a
 * cudaError_t. */
int gpu_lora(dtype_t dtype, const gpu_lora_t *args, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
