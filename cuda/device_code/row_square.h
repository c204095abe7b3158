/* row_square.h: the sum of squares of a row, in one order for every kernel that norms.
 *
 * Device functions. The order is that of a block of 256 threads, 8 elements each: every thread adds
 * its own, then the lanes of a warp, then the warps. norm.cu has such a block for a row; a kernel
 * that norms on the way has one warp walk through it.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_ROW_SQUARE_H
#define INFERD_CUDA_DEVICE_CODE_ROW_SQUARE_H

#include "cuda/device_code/lanes.h"

enum { ROW_WARPS = 8, ROW_THREADS = ROW_WARPS * WARP };

/* Returns the part of thread `thread` in the sum of (x - shift)^2. */
template <class T>
GPU_FN float thread_row_squares(const T *row, int32_t width, int thread, float shift) {
  float sum = 0.0f;
  for (int i = thread * VECTOR; i < width; i += ROW_THREADS * VECTOR) {
    float x[VECTOR];
    load_8(x, row + i);
    for (int j = 0; j < VECTOR; j++) sum = fma_rn(x[j] - shift, x[j] - shift, sum);
  }
  return sum;
}

/* The whole sum, by one warp; every lane gets it. */
template <class T> GPU_FN float warp_row_squares(const T *row, int32_t width) {
  const int lane = threadIdx.x % WARP;
  float sums = 0.0f; /* lane w: of warp w */
  for (int warp = 0; warp < ROW_WARPS; warp++) {
    const float sum = warp_sum(thread_row_squares(row, width, warp * WARP + lane, 0.0f));
    if (lane == warp) sums = sum;
  }
  return warp_sum(sums);
}

GPU_FN float inverse_rms(float squares, int32_t width, float eps) {
  return 1.0f / sqrtf(squares / (float)width + eps);
}

#endif
