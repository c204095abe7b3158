/* kv_layout.h: where an element of the paged KV cache lies; the layout itself is in kernels.h.
 *
 * Pure functions for kernels and launchers. Offsets are in elements and 64 bits wide: a pool passes
 * 2^31 elements early.
 */
#ifndef INFERD_CUDA_KV_LAYOUT_H
#define INFERD_CUDA_KV_LAYOUT_H

#include "cuda/gpu.h"
#include "cuda/kernels.h"

/* Head size as the cache stores it; 0 when it does not fit. */
GPU_BOTH_FN int kv_padded(int head_dim) {
  if (head_dim <= 0 || head_dim > GPU_HEAD_DIM_MAX || head_dim % 8 != 0) return 0;
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/* Elements of all slots of one head, K or V, in one block. */
GPU_BOTH_FN size_t kv_head_elements(const gpu_kv_t &kv) {
  return (size_t)kv_padded(kv.head_dim) * kv.block_size;
}

GPU_BOTH_FN size_t kv_block_elements(const gpu_kv_t &kv) {
  return 2 * (size_t)kv.num_kv_heads * kv_head_elements(kv);
}

/* First element of a head of a block; `value` 0 for K, 1 for V. */
GPU_BOTH_FN size_t kv_head_at(const gpu_kv_t &kv, int layer, int block, int value, int kv_head) {
  const size_t index = (size_t)layer * kv.num_blocks + block;
  const size_t head = (size_t)value * kv.num_kv_heads + kv_head;
  return index * kv_block_elements(kv) + head * kv_head_elements(kv);
}

/* Offset of a 16-byte chunk of one row, in a tile of `rows` rows of a head: [part][row][64]. */
GPU_BOTH_FN int kv_chunk_at(int rows, int row, int chunk) {
  return ((chunk >> 3) * rows + row) * GPU_KV_LANE + (((chunk & 7) ^ (row & 7)) << 3);
}

inline bool kv_supported(const gpu_kv_t &kv) {
  const bool paged = kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64;
  const bool typed = kv.dtype == DTYPE_BF16 || kv.dtype == DTYPE_F16;
  return paged && typed && kv_padded(kv.head_dim) > 0 && kv.num_kv_heads > 0 && kv.num_blocks > 0;
}

#endif
