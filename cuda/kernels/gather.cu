/* gather.cu: the rows of the hidden state whose logits are wanted.
 *
 * out (S, width) = in (T, width)[indices], one block a row, 16 bytes a thread and access. Moves
 * 2 * S * width * 2 bytes; bound by latency. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/kernels.h"

template <class T>
__global__ void gather_kernel(T *out, const T *in, const int32_t *indices, int32_t width) {
  grid_dependency_begin();
  const int32_t index = indices[blockIdx.x];
  const T *from = in + (size_t)(index < 0 ? 0 : index) * width;
  T *to = out + (size_t)blockIdx.x * width;
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR)
    store_16(to + i, index < 0 ? make_uint4(0, 0, 0, 0) : load_16(from + i));
}

template <class T>
static cudaError_t gather(void *out, const void *in, const int32_t *indices, int32_t width,
                          int32_t rows, gpu_stream_t stream) {
  return LAUNCH_OVERLAPPED(gather_kernel<T>, ((unsigned)rows), (row_threads(width)), 0, stream,
                           (T *)out, (const T *)in, indices, width);
}

int gpu_gather(dtype_t dtype, void *out, const void *in, const int32_t *indices, int32_t width,
               int32_t rows, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, gather, out, in, indices, width, rows, stream);
}
