/* gate.cu: what follows a recurrence: the gated norm, gates of attention, factors of columns.
 *
 * out = norm(in) act(gate), or norm(in act(gate)), in fp32 and rounded once; act is silu or a
 * sigmoid. A warp takes a group of columns that share a mean square, of more than 1,024 columns a
 * block. Without a norm a block takes a row. Moves 6 bytes a column, and the row again from L1 for
 * its squares; bound by bandwidth from some hundred rows on. Measured: not yet.
 */
#include "cuda/device_code/act.h"
#include "cuda/device_code/row_square.h"
#include "cuda/kernels/state/state.h"

enum { GATE_THREADS = 256, WARP_GROUP_MAX = 1024, SCALE_THREADS = 256 };

/* Columns [at, at + N) of a row: the values, gated first where the norm is behind the gate, and the
 * factors of the gate. */
template <class T, int N>
GPU_FN void load_gated(float (&x)[N], float (&gate)[N], const gpu_gate_t &args, int64_t row,
                       int32_t at) {
  load_some(x, (const T *)args.in + row * args.width + at);
  const T *from = (const T *)args.gate + row * args.gate_width + args.gate_column;
  if (args.gate_repeats == 1)
    load_some(gate, from + at);
  else
    for (int j = 0; j < N; j++) gate[j] = to_float(from[(at + j) / args.gate_repeats]);
  for (int j = 0; j < N; j++) {
    gate[j] = args.sigmoid ? 1.0f / (1.0f + expf(-gate[j])) : act<GPU_SILU_MUL>(gate[j]);
    if (args.gate_first) x[j] = mul_rn(x[j], gate[j]);
  }
}

/* `lanes`: threads of a group, WARP or all. */
template <class T, int N>
__global__ void __launch_bounds__(GATE_THREADS)
    gate_kernel(const gpu_gate_t args, int lanes, int64_t units) {
  const int64_t unit = (int64_t)blockIdx.x * (GATE_THREADS / lanes) + threadIdx.x / lanes;
  if (unit >= units) return; /* a warp as a whole */
  const int32_t group = args.group > 0 ? args.group : args.width, groups = args.width / group;
  const int64_t row = unit / groups;
  const int32_t at = (int32_t)(unit % groups) * group, first = threadIdx.x % lanes * N;
  const float *weight = args.weight + (args.weight_repeats ? 0 : at);
  float inverse = 0.0f;
  if (args.group > 0) {
    float sum = 0.0f;
    for (int32_t i = first; i < group; i += lanes * N) {
      float x[N], gate[N];
      load_gated<T>(x, gate, args, row, at + i);
      for (int j = 0; j < N; j++) sum = fma_rn(x[j], x[j], sum);
    }
    inverse = inverse_rms(lanes == WARP ? warp_sum(sum) : block_sum(sum), group, args.eps);
  }
  for (int32_t i = first; i < group; i += lanes * N) {
    float x[N], gate[N];
    load_gated<T>(x, gate, args, row, at + i);
    for (int j = 0; j < N; j++) {
      if (args.group > 0) x[j] = mul_rn(mul_rn(x[j], inverse), weight[i + j]);
      if (!args.gate_first) x[j] = mul_rn(x[j], gate[j]);
    }
    store_some((T *)args.out + row * args.width + at + i, x);
  }
}

template <class T, int N>
static cudaError_t gate(const gpu_gate_t &args, int32_t rows, gpu_stream_t stream) {
  const bool narrow = args.group > 0 && args.group <= WARP_GROUP_MAX;
  const int lanes = narrow ? (int)WARP : (int)GATE_THREADS;
  const int64_t units = (int64_t)rows * (args.group > 0 ? args.width / args.group : 1);
  const int64_t in_block = GATE_THREADS / lanes, blocks = (units + in_block - 1) / in_block;
  return LAUNCH((gate_kernel<T, N>), ((unsigned)blocks), (GATE_THREADS), 0, stream, args, lanes,
                units);
}

template <class T>
static cudaError_t gate_any(const gpu_gate_t &args, int32_t rows, gpu_stream_t stream) {
  const int32_t loaded = args.gate_repeats == 1 ? args.gate_width | args.gate_column : 0;
  const int32_t all = args.width | loaded | args.group;
  return all % VECTOR == 0 ? gate<T, VECTOR>(args, rows, stream) : gate<T, 1>(args, rows, stream);
}

int gpu_gate(dtype_t dtype, const gpu_gate_t *args, int32_t rows, gpu_stream_t stream) {
  if (args->width <= 0 || args->group < 0 || rows < 0 || args->gate_repeats < 1 ||
      (args->gate_repeats > 1 && (args->group > 0 || args->width % args->gate_repeats != 0)) ||
      (args->group > 0 && (args->width % args->group != 0 || args->weight == nullptr)))
    return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, gate_any, *args, rows, stream);
}

template <class T>
__global__ void __launch_bounds__(SCALE_THREADS)
    scale_columns_kernel(T *values, const float *__restrict__ factors, int32_t width,
                         int64_t count) {
  const int64_t i = (int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x;
  if (i < count) values[i] = from_float<T>(mul_rn(to_float(values[i]), factors[i % width]));
}

template <class T>
static cudaError_t scale_columns(void *values, const float *factors, int32_t width, int64_t count,
                                 gpu_stream_t stream) {
  const unsigned blocks = (unsigned)((count + SCALE_THREADS - 1) / SCALE_THREADS);
  return LAUNCH(scale_columns_kernel<T>, (blocks), (SCALE_THREADS), 0, stream, (T *)values, factors,
                width, count);
}

int gpu_scale_columns(dtype_t dtype, void *values, const float *factors, int32_t width,
                      int32_t rows, gpu_stream_t stream) {
  if (width <= 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, scale_columns, values, factors, width, (int64_t)width * rows, stream);
}
