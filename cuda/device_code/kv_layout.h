/* kv_layout.h: where an element of the paged KV cache lies; the layout itself is in kernel_types.h.
 *
 * Pure functions for kernels and launchers. Offsets are in bytes and 64 bits wide, because a pool
 * of 4 GiB already has 2^31 elements of 16 bits.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_KV_LAYOUT_H
#define INFERD_CUDA_DEVICE_CODE_KV_LAYOUT_H

#include "cuda/device_code/gpu.h"
#include "cuda/device_code/kernel_types.h"

enum { KV_CHUNK = 16, KV_ROW_MAX = 128 }; /* bytes */

/* Returns the padded head size that the cache stores, or 0 if no kernel has this head size. */
GPU_BOTH_FN int kv_padded(int head_dim) {
  if (head_dim <= 0 || head_dim > GPU_HEAD_DIM_MAX || head_dim % 8 != 0) return 0;
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

GPU_BOTH_FN int kv_element_bytes(const gpu_kv_t &kv) {
  return kv.fp8 ? 1 : 2;
}

/* Bytes of one slot of one head. */
GPU_BOTH_FN int kv_slot_bytes(const gpu_kv_t &kv) {
  return kv_padded(kv.head_dim) * kv_element_bytes(kv);
}

/* Bytes of all slots of one head, K or V, in one block. */
GPU_BOTH_FN size_t kv_head_bytes(const gpu_kv_t &kv) {
  return (size_t)kv_slot_bytes(kv) * kv.block_size;
}

GPU_BOTH_FN size_t kv_block_bytes(const gpu_kv_t &kv) {
  return 2 * (size_t)kv.num_kv_heads * kv_head_bytes(kv);
}

/* Returns the address of a head's slots in a block; `value` 0 for K, 1 for V. */
GPU_BOTH_FN uint8_t *kv_head_at(const gpu_kv_t &kv, int layer, int block, int value, int kv_head) {
  const size_t index = (size_t)layer * kv.num_blocks + block;
  const size_t head = (size_t)value * kv.num_kv_heads + kv_head;
  return (uint8_t *)kv.base + index * kv_block_bytes(kv) + head * kv_head_bytes(kv);
}

/* Offset of a 16-byte chunk of a slot, in a tile of `rows` rows of a head whose slots have
 * SLOT_BYTES: [part][row][128 bytes], or [row][64 bytes]. Eight rows and one chunk number are eight
 * different sixteenths of 128 bytes, which ldmatrix reads without a conflict. */
template <int SLOT_BYTES> GPU_BOTH_FN int kv_chunk_at(int rows, int row, int chunk) {
  constexpr int ROW = SLOT_BYTES < KV_ROW_MAX ? SLOT_BYTES : KV_ROW_MAX, CHUNKS = ROW / KV_CHUNK;
  const int mixed = CHUNKS == 8 ? row & 7 : row >> 1 & 3;
  return (chunk / CHUNKS * rows + row) * ROW + ((chunk % CHUNKS) ^ mixed) * KV_CHUNK;
}

/* Scale of a head's stored values; `value` 0 for K, 1 for V. */
GPU_FN float kv_scale(const gpu_kv_t &kv, int layer, int value, int kv_head) {
  if (!kv.fp8 || kv.scales == nullptr) return 1.0f;
  return kv.scales[((size_t)layer * 2 + value) * kv.num_kv_heads + kv_head];
}

inline bool kv_supported(const gpu_kv_t &kv) {
  const bool paged = kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64;
  const bool typed = kv.dtype == DTYPE_BF16 || kv.dtype == DTYPE_F16;
  return paged && typed && kv_padded(kv.head_dim) > 0 && kv.num_kv_heads > 0 && kv.num_blocks > 0;
}

/* Calls LAUNCHER<T, S, D>(arguments): activation type, stored type, padded head size. */
#define FOR_KV(kv, launcher, ...)                                                                  \
  ((kv).dtype == DTYPE_BF16 ? ((kv).fp8 ? FOR_KV_SIZE(kv, launcher, bf16_t, uint8_t, __VA_ARGS__)  \
                                        : FOR_KV_SIZE(kv, launcher, bf16_t, bf16_t, __VA_ARGS__))  \
                            : ((kv).fp8 ? FOR_KV_SIZE(kv, launcher, f16_t, uint8_t, __VA_ARGS__)   \
                                        : FOR_KV_SIZE(kv, launcher, f16_t, f16_t, __VA_ARGS__)))
#define FOR_KV_SIZE(kv, launcher, T, S, ...)                                                       \
  (kv_padded((kv).head_dim) == 64    ? (int)launcher<T, S, 64>(__VA_ARGS__)                        \
   : kv_padded((kv).head_dim) == 128 ? (int)launcher<T, S, 128>(__VA_ARGS__)                       \
                                     : (int)launcher<T, S, 256>(__VA_ARGS__))

#endif
