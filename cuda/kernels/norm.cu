/* norm.cu: RMSNorm and LayerNorm of rows, with a residual added afterwards.
 *
 * out (rows, width) = (in - mean) / sqrt(mean of squares + eps) * weight + bias + residual, where
 * the mean is 0 for RMSNorm (Zhang and Sennrich 2019; LayerNorm: Ba et al. 2016), all in fp32 and
 * rounded once, as the CPU back end does. One block a row; the row is read again from L1 for each
 * pass, so 2 (3 with a residual) rows of width * 2 bytes move. Bound by latency up to some hundred
 * rows, then by bandwidth. Measured: not yet.
 */
#include "cuda/device_code/row_square.h"
#include "cuda/kernels/kernels.h"

/* Returns the sum over the row, to every thread of the block. */
template <class T> GPU_FN float row_sum(const T *row, int32_t width) {
  float sum = 0.0f;
  for (int i = threadIdx.x * VECTOR; i < width; i += ROW_THREADS * VECTOR) {
    float x[VECTOR];
    load_8(x, row + i);
    for (int j = 0; j < VECTOR; j++) sum += x[j];
  }
  return block_sum(sum);
}

/* Each thread writes the elements that it alone read, so out may be in or residual. `stride`:
 * elements from row to row. */
template <class T>
__global__ void __launch_bounds__(256)
    norm_kernel(T *out, const T *in, const T *residual, const gpu_norm_t args, int64_t stride) {
  grid_dependency_begin();
  const int32_t width = args.width;
  const size_t at = (size_t)blockIdx.x * stride;
  const float mean = args.centred ? row_sum(in + at, width) / (float)width : 0.0f;
  const float squares = block_sum(thread_row_squares(in + at, width, threadIdx.x, mean));
  const float inverse = inverse_rms(squares, width, args.eps);
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR) {
    float x[VECTOR], r[VECTOR] = {}, weight[VECTOR], bias[VECTOR];
    load_8(x, in + at + i);
    if (args.weight != nullptr) load_8_floats(weight, args.weight + i);
    if (args.bias != nullptr) load_8_floats(bias, args.bias + i);
    if (residual != nullptr) load_8(r, residual + at + i);
    for (int j = 0; j < VECTOR; j++) {
      float y = mul_rn(x[j] - mean, inverse);
      if (args.weight != nullptr) y = mul_rn(y, weight[j]);
      if (args.bias != nullptr) y = add_rn(y, bias[j]);
      x[j] = add_rn(y, r[j]);
    }
    store_8(out + at + i, x);
  }
}

template <class T>
static cudaError_t norm(void *out, const void *in, const void *residual, const gpu_norm_t &args,
                        int64_t stride, int32_t rows, gpu_stream_t stream) {
  return LAUNCH_OVERLAPPED(norm_kernel<T>, ((unsigned)rows), (row_threads(args.width)), 0, stream,
                           (T *)out, (const T *)in, (const T *)residual, args, stride);
}

int gpu_norm(dtype_t dtype, void *out, const void *in, const void *residual, const gpu_norm_t *args,
             int32_t rows, gpu_stream_t stream) {
  const int32_t width = args->width;
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, norm, out, in, residual, *args, width, rows, stream);
}

int gpu_norm_columns(dtype_t dtype, void *columns, int64_t stride, const float *weight, float eps,
                     int32_t width, int32_t rows, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (stride < width || stride % GPU_ROW_ALIGN != 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const gpu_norm_t args = {weight, nullptr, eps, 0, width};
  return FOR_DTYPE(dtype, norm, columns, columns, nullptr, args, stride, rows, stream);
}
