/* moe.h: the launcher of a mixture of experts; see kernels.h for the rules and engine/device/ops.h
 * for what it computes.
 *
 * Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_MOE_H
#define INFERD_CUDA_KERNELS_MOE_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_EXPERTS_MAX = 1024, GPU_EXPERTS_TOP_MAX = 64, GPU_MOE_ROWS = 2048 };

typedef struct gpu_moe {
  const void *in, *residual;        /* [rows, hidden] */
  void *out;                        /* [rows, hidden], may alias residual */
  const float *router;              /* [experts, hidden], fp32 */
  const float *router_bias;         /* [experts] or NULL */
  const void *up, *down;            /* [experts, 2 width, hidden], [experts, hidden, width] */
  const float *up_bias, *down_bias; /* [experts, 2 width], [experts, hidden], or NULL */
  int32_t rows, hidden, width, num_experts, top_k; /* hidden and width multiples of 8 */
  int normalise;
  gpu_activation_t activation; /* a gated one */
  void *workspace; /* gpu_moe_workspace_bytes of these sizes; contents never matter between calls */
} gpu_moe_t;

/* Bytes for any rows: they are worked off GPU_MOE_ROWS at a time. 0 = sizes out of range. */
size_t gpu_moe_workspace_bytes(int32_t hidden, int32_t width, int32_t num_experts, int32_t top_k);
/* A row's bits depend on its own inputs only: its experts are added in ascending order. */
int gpu_moe(dtype_t dtype, const gpu_moe_t *args, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
