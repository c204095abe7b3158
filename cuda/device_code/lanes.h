/* lanes.h: shared parts of the row kernels: eight elements at a time, sums over a warp and a block.
 *
 * Device functions only. Every sum runs in an order that the block's size alone decides, so a row's
 * bits never depend on other rows.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_LANES_H
#define INFERD_CUDA_DEVICE_CODE_LANES_H

#include "cuda/device_code/gpu.h"

enum { WARP = 32, VECTOR = 8 };
#define FULL_WARP 0xffffffffu

/* Before a loop whose indices must become register names. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

/* The first statement of a small kernel that may overlap the one before it: the next one may come
 * to the multiprocessors and load its weights meanwhile. */
GPU_FN void grid_dependency_begin() {
  grid_dependency_wait();
  grid_launch_dependents();
}

/* Eight elements of a 16-bit type, one 16-byte access. */
template <class T> GPU_FN void load_8(float (&values)[VECTOR], const T *from) {
  const uint4 bits = load_16(from);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  for (int i = 0; i < 4; i++) {
    const float2 pair = unpack<T>(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

/* Eight floats, two 16-byte accesses. */
GPU_FN void load_8_floats(float (&values)[VECTOR], const float *from) {
  for (int i = 0; i < VECTOR; i += 4) {
    const uint4 bits = load_16(from + i);
    values[i] = __uint_as_float(bits.x);
    values[i + 1] = __uint_as_float(bits.y);
    values[i + 2] = __uint_as_float(bits.z);
    values[i + 3] = __uint_as_float(bits.w);
  }
}

template <class T> GPU_FN void store_8(T *to, const float (&values)[VECTOR]) {
  store_16(to, make_uint4(pack<T>(values[0], values[1]), pack<T>(values[2], values[3]),
                          pack<T>(values[4], values[5]), pack<T>(values[6], values[7])));
}

/* Eight elements, or one where a column does not allow 16-byte accesses. */
template <class T> GPU_FN void load_some(float (&x)[VECTOR], const T *from) {
  load_8(x, from);
}
template <class T> GPU_FN void load_some(float (&x)[1], const T *from) {
  x[0] = to_float(*from);
}
template <class T> GPU_FN void store_some(T *to, const float (&x)[VECTOR]) {
  store_8(to, x);
}
template <class T> GPU_FN void store_some(T *to, const float (&x)[1]) {
  *to = from_float<T>(x[0]);
}

GPU_FN float warp_sum(float value) {
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(FULL_WARP, value, offset);
  return value;
}

/* Every thread gets the sum of the block; all threads must call it. */
GPU_FN float block_sum(float value) {
  SHARED(sums, float[WARP]);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  value = warp_sum(value);
  if (lane == 0) sums[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? sums[lane] : 0.0f);
  __syncthreads(); /* the next call writes sums */
  return value;
}

/* Threads for a row of `width` elements: one vector each, at most 256, whole warps. */
inline unsigned row_threads(int32_t width) {
  const int32_t vectors = width / VECTOR;
  const int32_t warps = (vectors + WARP - 1) / WARP;
  return (unsigned)(warps < 1 ? WARP : warps > 8 ? 8 * WARP : warps * WARP);
}

/* Calls LAUNCHER<T>(arguments) with the type that `dtype` names. */
#define FOR_DTYPE(dtype, launcher, ...)                                                            \
  ((dtype) == DTYPE_BF16  ? (int)launcher<bf16_t>(__VA_ARGS__)                                     \
   : (dtype) == DTYPE_F16 ? (int)launcher<f16_t>(__VA_ARGS__)                                      \
                          : (int)cudaErrorInvalidValue)

#endif
