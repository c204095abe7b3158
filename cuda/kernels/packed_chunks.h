/* packed_chunks.h: layers of packed weights for few rows, and for more in chunks of 32 of them.
 *
 * A file for each width of codes has the kernels, since nvcc takes minutes for all. They move
 * N * K / 2 or N * K bytes of codes, and scales: 2 to 8 bytes for 16 columns or more; few rows are
 * bound by that, or by the 20 to 40 instructions that unpack eight weights. Chunks stream the
 * weights again, from the cache if they fit. A tile of 128 rows unpacks them once, but a layer of
 * few columns has too few tiles for a GPU. Which is faster where is an estimate: measured, not yet.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_CHUNKS_H
#define INFERD_CUDA_KERNELS_PACKED_CHUNKS_H

#include "cuda/kernels/packed_kinds.h"
#include "cuda/kernels/packed_skinny_parts.h"
#include "cuda/kernels/split_parts.h"

enum { PACKED_CHUNKED_ROWS_MAX = 128 };

/* Codes of 4 bits; of 8 bits and e4m3. Any number of rows; what gpu_packed_linear checks holds. */
int packed_chunks_4(dtype_t dtype, const gpu_skinny_t &args, gpu_stream_t stream);
int packed_chunks_8(dtype_t dtype, const gpu_skinny_t &args, gpu_stream_t stream);

/* Where the normed inputs begin in shared memory. */
template <int TOKENS, int TILES> GPU_BOTH_FN size_t normed_at() {
  return (sizeof(skinny_shared_t<TOKENS, TILES>) + LANE_BYTES - 1) / LANE_BYTES * LANE_BYTES;
}

template <class T, int CODES, int SCALES, int UNPACK, int TOKENS, int TILES, bool NORM>
__global__ void __launch_bounds__(SKINNY_THREADS, TOKENS == 1 ? 2 : 1)
    packed_skinny_kernel(const gpu_skinny_t args) {
  typedef skinny_shared_t<TOKENS, TILES> shared_t;
  DYN_SMEM(shared_t, memory);
  shared_t &shared = *memory;
  stream_packed<T, CODES, SCALES, UNPACK, TOKENS, TILES, NORM>(
      args, shared, (T *)((uint8_t *)memory + normed_at<TOKENS, TILES>()));
  if (gridDim.y == 1)
    write_spans<T>(args, shared);
  else if (meet_blocks(args, shared))
    write_partials<T, TOKENS, TILES>(args);
}

template <class T, int CODES, int SCALES, int UNPACK, int TOKENS, int TILES, bool NORM>
static cudaError_t launch(const gpu_skinny_t &args, gpu_stream_t stream) {
  const size_t normed = NORM ? (size_t)args.rows * normed_stride(args.k) * sizeof(T) : 0;
  const size_t bytes = normed_at<TOKENS, TILES>() + normed;
  const unsigned blocks = (unsigned)((weight_tiles(args) + TILES - 1) / TILES);
  const cudaError_t status = cudaFuncSetAttribute(
      (const void *)packed_skinny_kernel<T, CODES, SCALES, UNPACK, TOKENS, TILES, NORM>,
      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED((packed_skinny_kernel<T, CODES, SCALES, UNPACK, TOKENS, TILES, NORM>),
                           (blocks, split_of(args, blocks)), (SKINNY_THREADS), bytes, stream, args);
}

template <class T, int CODES, int SCALES, int UNPACK>
static cudaError_t skinny(const gpu_skinny_t &args, gpu_stream_t stream) {
  if (args.norm) return launch<T, CODES, SCALES, UNPACK, 1, 1, true>(args, stream);
  if (args.rows <= 8) return launch<T, CODES, SCALES, UNPACK, 1, 1, false>(args, stream);
  if (args.rows <= 16) return launch<T, CODES, SCALES, UNPACK, 2, 2, false>(args, stream);
  return launch<T, CODES, SCALES, UNPACK, 4, 2, false>(args, stream);
}

/* GPU_SKINNY_ROWS_MAX rows after the other: all stream the weights, from the cache if they fit. */
template <class T, class KIND>
static cudaError_t in_chunks(KIND, const gpu_skinny_t &args, gpu_stream_t stream) {
  const size_t size = args.logits ? sizeof(float) : sizeof(T);
  cudaError_t status = cudaSuccess;
  for (int first = 0; first < args.rows && status == cudaSuccess; first += GPU_SKINNY_ROWS_MAX) {
    const size_t outputs = (size_t)first * row_stride(args);
    gpu_skinny_t chunk = args;
    chunk.rows = args.rows - first < GPU_SKINNY_ROWS_MAX ? args.rows - first : GPU_SKINNY_ROWS_MAX;
    if (args.row_map != nullptr)
      chunk.row_map = args.row_map + first;
    else
      chunk.in = (const T *)args.in + (size_t)first * args.k;
    if (args.residual != nullptr) chunk.residual = (const T *)args.residual + outputs;
    chunk.out = (uint8_t *)args.out + outputs * size;
    status = skinny<T, KIND::CODES, KIND::SCALES, KIND::UNPACK>(chunk, stream);
  }
  return status;
}

#endif
