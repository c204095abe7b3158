/* kernel_types.h: the types that launchers and the code of kernels share: streams, the KV cache.
 *
 * Plain data, callable from C without a CUDA header.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_KERNEL_TYPES_H
#define INFERD_CUDA_DEVICE_CODE_KERNEL_TYPES_H

#include "engine/device/weight_source.h"

#include <stdint.h>

typedef struct CUstream_st *gpu_stream_t; /* a cudaStream_t */

enum { GPU_HEAD_DIM_MAX = 256, GPU_ROW_ALIGN = 8, GPU_SKINNY_ROWS_MAX = 32 };

/* The paged KV cache: [layer][block][K|V][kv_head][part][slot][row of 128 bytes]. A head of D is
 * padded to 64, 128 or 256 elements; a row holds 64 of them, or 128 when they are stored as e4m3
 * (D <= 64: rows of 64 bytes). A row's 16-byte chunks stand in the order chunk ^ (slot & 7), in
 * rows of 64 bytes chunk ^ (slot >> 1 & 3), so that a copy to shared memory has no bank conflicts.
 * Padding elements are zero in every slot that was written. */
typedef struct gpu_kv {
  void *base;
  int32_t num_layers, num_blocks;
  int32_t block_size; /* 16, 32 or 64 slots */
  int32_t num_kv_heads, head_dim;
  dtype_t dtype;       /* of activations, and of the cache unless fp8 */
  int32_t fp8;         /* 1 = stored as e4m3, value / scale; computed in dtype */
  const float *scales; /* [num_layers][K|V][num_kv_heads] of the stored values; NULL = ones */
} gpu_kv_t;

/* Values and order as activation_t of engine/device/ops.h. */
typedef enum gpu_activation {
  GPU_RELU,
  GPU_RELU2,
  GPU_GELU,
  GPU_GELU_TANH,
  GPU_SILU_MUL,
  GPU_GELU_TANH_MUL,
  GPU_CLAMPED_SWIGLU
} gpu_activation_t;

#endif
