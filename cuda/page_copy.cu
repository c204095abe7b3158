/* page_copy.cu: copies and zeroes blocks of the KV cache, in all layers with one launch.
 *
 * A block of a layer is 2 * Hk * parts groups of [slot][64 elements]; the first r slots of a group
 * are contiguous. Grid (copies, layers, groups in strips). A copy moves 2 * rows * 128 bytes a
 * group; bound by bandwidth, and rare. Measured: not yet.
 */
#include "cuda/kv_layout.h"
#include "cuda/lanes.h"

enum { COPY_THREADS = 128, ROW_CHUNKS = 8 /* 16-byte pieces of a 128-byte row */ };

GPU_FN uint4 *group_at(const gpu_kv_t &kv, int block, size_t group) {
  const size_t index = (size_t)blockIdx.y * kv.num_blocks + block;
  return (uint4 *)kv.base + index * (kv_block_elements(kv) / VECTOR) +
         group * kv.block_size * ROW_CHUNKS;
}

__global__ void page_copy_kernel(const gpu_kv_t kv, const block_copy_t *__restrict__ copies) {
  const block_copy_t copy = copies[blockIdx.x];
  const int groups = 2 * kv.num_kv_heads * (kv_padded(kv.head_dim) / GPU_KV_LANE);
  for (int group = blockIdx.z; group < groups; group += gridDim.z) {
    const uint4 *from = group_at(kv, copy.src, group);
    uint4 *to = group_at(kv, copy.dst, group);
    for (int i = threadIdx.x; i < copy.rows * ROW_CHUNKS; i += blockDim.x) to[i] = from[i];
  }
}

__global__ void page_zero_kernel(const gpu_kv_t kv, const int32_t *__restrict__ blocks) {
  uint4 *to = group_at(kv, blocks[blockIdx.x], 0);
  const size_t chunks = kv_block_elements(kv) / VECTOR;
  const size_t stride = (size_t)gridDim.z * blockDim.x;
  for (size_t i = (size_t)blockIdx.z * blockDim.x + threadIdx.x; i < chunks; i += stride)
    to[i] = make_uint4(0, 0, 0, 0);
}

size_t gpu_kv_block_bytes(const gpu_kv_t *kv) {
  return kv_supported(*kv) ? kv_block_elements(*kv) * sizeof(uint16_t) : 0;
}

int gpu_page_copy(const gpu_kv_t *kv, const block_copy_t *copies, int32_t num_copies,
                  gpu_stream_t stream) {
  if (!kv_supported(*kv) || num_copies < 0) return cudaErrorInvalidValue;
  if (num_copies == 0) return cudaSuccess;
  return LAUNCH(page_copy_kernel, ((unsigned)num_copies, (unsigned)kv->num_layers, 4),
                (COPY_THREADS), 0, stream, *kv, copies);
}

int gpu_page_zero(const gpu_kv_t *kv, const int32_t *blocks, int32_t num_blocks,
                  gpu_stream_t stream) {
  if (!kv_supported(*kv) || num_blocks < 0) return cudaErrorInvalidValue;
  if (num_blocks == 0) return cudaSuccess;
  return LAUNCH(page_zero_kernel, ((unsigned)num_blocks, (unsigned)kv->num_layers, 4),
                (COPY_THREADS), 0, stream, *kv, blocks);
}
