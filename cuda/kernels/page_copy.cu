/* page_copy.cu: copies blocks of the KV cache, in all layers with one launch.
 *
 * A block of a layer is 2 * Hk * parts groups of [slot][row of 128 or 64 bytes]; the first r slots
 * of a group are contiguous. Grid (copies, layers, groups in strips), all copies beside each other:
 * no block is the target of one and part of another, as the simulator checks of every step. A copy
 * moves 2 * rows * 128 bytes a group; bound by bandwidth, and rare. Measured: not yet.
 */
#include "cuda/device_code/kv_layout.h"
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/kernels.h"

enum { COPY_THREADS = 128 };

/* 16-byte chunks of a row of the cache. */
GPU_FN int row_chunks(const gpu_kv_t &kv) {
  const int bytes = kv_slot_bytes(kv);
  return (bytes < KV_ROW_MAX ? bytes : KV_ROW_MAX) / KV_CHUNK;
}

GPU_FN uint4 *group_at(const gpu_kv_t &kv, int block, size_t group) {
  return (uint4 *)kv_head_at(kv, blockIdx.y, block, 0, 0) + group * kv.block_size * row_chunks(kv);
}

__global__ void page_copy_kernel(const gpu_kv_t kv, const block_copy_t *__restrict__ copies) {
  const block_copy_t copy = copies[blockIdx.x];
  const int chunks = row_chunks(kv);
  const int groups = 2 * kv.num_kv_heads * (kv_slot_bytes(kv) / (chunks * KV_CHUNK));
  for (int group = blockIdx.z; group < groups; group += gridDim.z) {
    const uint4 *from = group_at(kv, copy.src, group);
    uint4 *to = group_at(kv, copy.dst, group);
    for (int i = threadIdx.x; i < copy.rows * chunks; i += blockDim.x) to[i] = from[i];
  }
}

size_t gpu_kv_block_bytes(const gpu_kv_t *kv) {
  return kv_supported(*kv) ? kv_block_bytes(*kv) : 0;
}

int gpu_page_copy(const gpu_kv_t *kv, const block_copy_t *copies, int32_t num_copies,
                  gpu_stream_t stream) {
  if (!kv_supported(*kv) || num_copies < 0) return cudaErrorInvalidValue;
  if (num_copies == 0) return cudaSuccess;
  return LAUNCH(page_copy_kernel, ((unsigned)num_copies, (unsigned)kv->num_layers, 4),
                (COPY_THREADS), 0, stream, *kv, copies);
}
