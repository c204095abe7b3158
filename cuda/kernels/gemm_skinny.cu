/* gemm_skinny.cu: linear layers of few rows, M <= 32: the weights are streamed once.
 *
 * out (M, N) = act(norm(in) (M, K) . W (N, K)^T (+ bias)) (+ residual); N * K * 2 bytes, which
 * bounds it. A block owns 16 or 32 rows of W, the rows of mma's A; tokens are its columns, 8 an
 * instruction. Eight warps take spans of K (linear_parts.h) in turn; a lane loads 16 bytes of W
 * straight to registers. When there are fewer blocks than multiprocessors, 2 or 4 blocks share a
 * tile: each leaves the sums of its spans in memory and the last one to arrive adds all of them, in
 * order. The first weights are on their way before the kernel waits for its predecessor. Measured:
 * not yet.
 */
#include "cuda/kernels/split_parts.h"

template <class T, int TOKENS, int TILES, bool NORM>
__global__ void __launch_bounds__(SKINNY_THREADS, TOKENS == 1 ? 3 : 1)
    skinny_kernel(const gpu_skinny_t args) {
  typedef skinny_shared_t<TOKENS, TILES> shared_t;
  DYN_SMEM(shared_t, memory);
  shared_t &shared = *memory;
  stream_spans<T, TOKENS, TILES, NORM>(args, shared);
  if (gridDim.y == 1)
    write_spans<T>(args, shared);
  else if (meet_blocks(args, shared))
    write_partials<T, TOKENS, TILES>(args);
}

template <class T, int TOKENS, int TILES, bool NORM>
static cudaError_t launch(const gpu_skinny_t &args, gpu_stream_t stream) {
  const size_t bytes = sizeof(skinny_shared_t<TOKENS, TILES>);
  const unsigned blocks = (unsigned)((weight_tiles(args) + TILES - 1) / TILES);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)skinny_kernel<T, TOKENS, TILES, NORM>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED((skinny_kernel<T, TOKENS, TILES, NORM>),
                           (blocks, split_of(args, blocks)), (SKINNY_THREADS), bytes, stream, args);
}

/* With more tokens a block takes more weight rows, or it would read more inputs than weights. It
 * would norm them once for every 32 weight rows, too: then a kernel of its own is faster. */
template <class T> static cudaError_t skinny(const gpu_skinny_t &args, gpu_stream_t stream) {
  if (args.norm) return launch<T, 1, 1, true>(args, stream);
  if (args.rows <= 8) return launch<T, 1, 1, false>(args, stream);
  if (args.rows <= 16) return launch<T, 2, 2, false>(args, stream);
  return launch<T, 4, 2, false>(args, stream);
}

size_t gpu_skinny_partial_bytes(int32_t rows, int32_t n) {
  const size_t tiles = ((size_t)n + 7) / 8; /* gated, the larger */
  return SPANS * tiles * 16 * (size_t)rows * sizeof(float);
}

int gpu_skinny(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream) {
  if (!linear_supported(*args)) return cudaErrorInvalidValue;
  if (args->rows > (args->norm ? (int32_t)GPU_NORM_ROWS_MAX : (int32_t)GPU_SKINNY_ROWS_MAX))
    return cudaErrorInvalidValue;
  if (args->packed.codes != GPU_CODES_PLAIN) return gpu_packed_linear(dtype, args, stream);
  if (args->rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, skinny, *args, stream);
}
