/* lora.h: adds the products of low-rank adapters to a linear layer, for batches that mix adapters.
 *
 * out[t, column + n] += sum over r < rank of low[t, r] * B[n, r], where low[t, r] = sum over k of
 * in[t, k] * A[r, k], for the adapter of token t (Hu et al. 2021). Both sums are in fp32 and in an
 * order that nothing but the layer decides, so a token's bits do not depend on the others; a token
 * without an adapter is not touched. Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_LORA_H
#define INFERD_CUDA_KERNELS_LORA_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_LORA_RANK_MAX = 512, GPU_LORA_RANK_ALIGN = 4 };

typedef struct gpu_lora {
  const int32_t *ranks; /* [slots + 1] of adapter 0, which is none, 1, ..; 0 = empty */
  const float *a;       /* [slots, stride, cols] rows beyond the rank are not read */
  const float *b;       /* [slots, rows, stride] columns beyond the rank are finite */
  int32_t rows, cols;   /* N and K: rows even, cols a multiple of GPU_ROW_ALIGN */
  int32_t stride;       /* largest rank, a multiple of GPU_LORA_RANK_ALIGN */
  /* of the step */
  const int32_t *adapters;       /* [tokens] */
  const void *in;                /* [tokens, cols] */
  void *out;                     /* [tokens, width] */
  float *low;                    /* [tokens, stride] scratch */
  int32_t tokens, column, width; /* column and width even */
} gpu_lora_t;
/* Launches two kernels: one computes `low`, the other adds low . B^T to `out`. Returns 0 or a
 * cudaError_t. */
int gpu_lora(dtype_t dtype, const gpu_lora_t *args, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
