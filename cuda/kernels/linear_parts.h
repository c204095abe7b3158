/* linear_parts.h: what the kernels of linear layers share: the order of sums, rows, the epilogue.
 *
 * Device functions. K is cut into 16 spans by its length alone; a span is one chain of products, 32
 * columns a step, and spans are added in order. Within a step a lane's eight neighbours are its
 * fragments of two instructions, so k is permuted, for weights and inputs alike. Both kernels run
 * this very order, so a row has the same bits whatever the number of rows, the kernel or the split.
 */
#ifndef INFERD_CUDA_KERNELS_LINEAR_PARTS_H
#define INFERD_CUDA_KERNELS_LINEAR_PARTS_H

#include "cuda/device_code/act.h"
#include "cuda/device_code/tiles.h"
#include "cuda/kernels/kernels.h"

enum { SPANS = 16, STEP_K = 32 };

/* Columns of a span, a multiple of STEP_K. */
GPU_BOTH_FN int span_columns(int k) {
  return (k + SPANS * STEP_K - 1) / (SPANS * STEP_K) * STEP_K;
}

/* Whether the weight has n gate rows and then n up rows. Eight of each are then an mma's 16 rows,
 * so that a lane has both sums of an output. */
GPU_BOTH_FN bool is_gated(const gpu_skinny_t &a) {
  return a.activate && activation_gated(a.activation);
}

/* Row of the weight that is row `row` (0..15) of tile `tile`; -1 beyond the end. */
GPU_FN int weight_row(const gpu_skinny_t &a, int tile, int row) {
  if (!is_gated(a)) return tile * 16 + row < a.n ? tile * 16 + row : -1;
  const int n = tile * 8 + row % 8;
  return n >= a.n ? -1 : row < 8 ? n : a.n + n;
}

/* Tiles of 16 weight rows. */
GPU_BOTH_FN int weight_tiles(const gpu_skinny_t &a) {
  return is_gated(a) ? (a.n + 7) / 8 : (a.n + 15) / 16;
}

/* Row `token` of the inputs. */
template <class T> GPU_FN const T *input_row(const gpu_skinny_t &a, int token) {
  return (const T *)a.in + (size_t)(a.row_map != nullptr ? a.row_map[token] : token) * a.k;
}

/* acc += 16 weight rows (a lane's pieces of rows lane / 4 and + 8) . 8 tokens (row lane / 4). */
template <class T>
GPU_FN void multiply(float (&acc)[4], const uint4 &low, const uint4 &high, const uint4 &x) {
  const uint32_t first[4] = {low.x, high.x, low.y, high.y};
  const uint32_t second[4] = {low.z, high.z, low.w, high.w};
  mma_16816<T>(acc, first, x.x, x.y);
  mma_16816<T>(acc, second, x.z, x.w);
}

/* Writes output n of a token. With an activation, what the plain layer would have written is
 * rounded first, so that fused and separate kernels agree. */
template <class T>
GPU_FN void write_output(const gpu_skinny_t &a, int token, int n, float sum, float up) {
  const size_t at = (size_t)token * a.n + n;
  if (a.bias != nullptr) sum = add_rn(sum, a.bias[n]);
  if (a.activate) {
    if (is_gated(a) && a.bias != nullptr) up = add_rn(up, a.bias[a.n + n]);
    sum = to_float(from_float<T>(sum));
    up = to_float(from_float<T>(up));
    ((T *)a.out)[at] = from_float<T>(activate_one(a.activation, sum, up));
    return;
  }
  if (a.residual != nullptr) sum = add_rn(sum, to_float(((const T *)a.residual)[at]));
  if (!a.logits) {
    ((T *)a.out)[at] = from_float<T>(sum);
    return;
  }
  ((float *)a.out)[at] = a.softcap != 0.0f ? mul_rn(a.softcap, tanhf(sum / a.softcap)) : sum;
}

/* Writes the two sums that a lane has of a tile: rows `row` and row + 8. */
template <class T>
GPU_FN void write_pair(const gpu_skinny_t &a, int token, int tile, int row, float low, float high) {
  if (token >= a.rows) return;
  if (is_gated(a)) {
    if (weight_row(a, tile, row) >= 0) write_output<T>(a, token, tile * 8 + row, low, high);
    return;
  }
  const int first = weight_row(a, tile, row), second = weight_row(a, tile, row + 8);
  if (first >= 0) write_output<T>(a, token, first, low, 0.0f);
  if (second >= 0) write_output<T>(a, token, second, high, 0.0f);
}

inline bool linear_supported(const gpu_skinny_t &a) {
  if (a.rows < 0 || a.n <= 0 || a.k <= 0 || a.k % GPU_ROW_ALIGN != 0) return false;
  return !(a.activate && (a.logits || a.residual != nullptr));
}

#endif
