/* gemm_tiled.cu: linear layers of many rows with the bits of the skinny ones (gemm_skinny.cu).
 *
 * out (M, N) = act(in (M, K) . W (N, K)^T (+ bias)) (+ residual). A block computes 128 weight rows
 * times 128 tokens, a warp 64 times 32 of them, with mma.sync; both operands pass through a ring of
 * cp.async stages of 32 columns. Spans of K are summed and added as linear_parts.h says, which
 * costs a second set of accumulators and buys that a token's bits do not depend on the number of
 * rows. A library's kernels are faster and promise nothing of the kind. Bound by the tensor cores:
 * 2 M N K flop. Measured: not yet.
 */
#include "cuda/kernels/tiled_parts.h"

template <class T>
__global__ void __launch_bounds__(TILED_THREADS) tiled_kernel(const gpu_skinny_t args) {
  DYN_SMEM(tiled_shared_t, shared);
  tiled_block<T>(args, blockIdx.y * SIDE, shared);
}

template <class T> static cudaError_t tiled(const gpu_skinny_t &args, gpu_stream_t stream) {
  const size_t bytes = sizeof(tiled_shared_t);
  const cudaError_t status = cudaFuncSetAttribute(
      (const void *)tiled_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  const unsigned columns = (unsigned)((weight_tiles(args) + SIDE / 16 - 1) / (SIDE / 16));
  return LAUNCH(tiled_kernel<T>, (columns, (unsigned)((args.rows + SIDE - 1) / SIDE)),
                (TILED_THREADS), bytes, stream, args);
}

int gpu_linear(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream) {
  if (!linear_supported(*args)) return cudaErrorInvalidValue;
  if (args->packed.codes != GPU_CODES_PLAIN) return gpu_packed_linear(dtype, args, stream);
  if (args->rows <= GPU_SKINNY_ROWS_MAX) return gpu_skinny(dtype, args, stream);
  if (args->norm) return cudaErrorInvalidValue;
  return FOR_DTYPE(dtype, tiled, *args, stream);
}
