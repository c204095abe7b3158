/* activation.cu: ReLU, GELU and the gated products of the feed-forward layers.
 *
 * out (rows, width) = act(in), or act(gate) * up with in (rows, 2 width) = gate | up. One vector of
 * eight a thread. Moves 2 (3 gated) * rows * width * 2 bytes; bound by bandwidth from some hundred
 * rows on. GELU: Hendrycks and Gimpel 2016, erf and tanh forms; SiLU gate: Shazeer 2020. fp32
 * inside, rounded once. Measured: not yet.
 */
#include "cuda/device_code/act.h"
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/kernels.h"

enum { ACTIVATION_THREADS = 256 };

template <class T, gpu_activation_t KIND>
__global__ void activation_kernel(T *out, const T *in, int32_t width, int64_t elements) {
  grid_dependency_begin();
  const bool gated = activation_gated(KIND);
  const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (at >= elements) return;
  const int64_t row = at / width, column = at % width;
  const T *from = in + row * width * (gated ? 2 : 1) + column;
  float x[VECTOR], up[VECTOR];
  load_8(x, from);
  if (gated) load_8(up, from + width);
  for (int j = 0; j < VECTOR; j++) x[j] = activate_one(KIND, x[j], gated ? up[j] : 0.0f);
  store_8(out + at, x);
}

template <class T, gpu_activation_t KIND>
static cudaError_t launch(void *out, const void *in, int32_t width, int64_t elements,
                          gpu_stream_t stream) {
  const int64_t per_block = ACTIVATION_THREADS * VECTOR;
  const unsigned blocks = (unsigned)((elements + per_block - 1) / per_block);
  return LAUNCH_OVERLAPPED((activation_kernel<T, KIND>), (blocks), (ACTIVATION_THREADS), 0, stream,
                           (T *)out, (const T *)in, width, elements);
}

template <class T>
static cudaError_t activate(void *out, const void *in, gpu_activation_t kind, int32_t width,
                            int64_t elements, gpu_stream_t stream) {
  switch (kind) {
  case GPU_RELU: return launch<T, GPU_RELU>(out, in, width, elements, stream);
  case GPU_RELU2: return launch<T, GPU_RELU2>(out, in, width, elements, stream);
  case GPU_GELU: return launch<T, GPU_GELU>(out, in, width, elements, stream);
  case GPU_GELU_TANH: return launch<T, GPU_GELU_TANH>(out, in, width, elements, stream);
  case GPU_SILU_MUL: return launch<T, GPU_SILU_MUL>(out, in, width, elements, stream);
  case GPU_GELU_TANH_MUL: return launch<T, GPU_GELU_TANH_MUL>(out, in, width, elements, stream);
  case GPU_CLAMPED_SWIGLU: return launch<T, GPU_CLAMPED_SWIGLU>(out, in, width, elements, stream);
  }
  return cudaErrorInvalidValue;
}

int gpu_activate(dtype_t dtype, void *out, const void *in, gpu_activation_t kind, int32_t width,
                 int32_t rows, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, activate, out, in, kind, width, (int64_t)rows * width, stream);
}

/* Each block computes one row. */
template <class T>
__global__ void gated_add_kernel(T *out, const T *in, const T *gate, const T *residual,
                                 int32_t width) {
  grid_dependency_begin();
  const size_t at = (size_t)blockIdx.x * width;
  const float share = 1.0f / (1.0f + expf(-to_float(gate[blockIdx.x])));
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR) {
    float x[VECTOR], r[VECTOR];
    load_8(x, in + at + i);
    load_8(r, residual + at + i);
    for (int j = 0; j < VECTOR; j++) r[j] = fma_rn(share, x[j], r[j]);
    store_8(out + at + i, r);
  }
}

template <class T>
static cudaError_t gated_add(void *out, const void *in, const void *gate, const void *residual,
                             int32_t width, int32_t rows, gpu_stream_t stream) {
  return LAUNCH_OVERLAPPED(gated_add_kernel<T>, ((unsigned)rows), (row_threads(width)), 0, stream,
                           (T *)out, (const T *)in, (const T *)gate, (const T *)residual, width);
}

int gpu_gated_add(dtype_t dtype, void *out, const void *in, const void *gate, const void *residual,
                  int32_t width, int32_t rows, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, gated_add, out, in, gate, residual, width, rows, stream);
}
