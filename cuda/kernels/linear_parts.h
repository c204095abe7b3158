/* linear_parts.h: shared parts of the kernels of linear layers: order of sums, rows, epilogue.
 *
 * Device functions. K is cut into 16 spans; the cut depends on the length of K alone. The products
 * of a span are summed one after the other, 32 columns a step, and the spans are added in order.
 * Both kernels, the skinny and the tiled one, use this order, so a row has the same bits whatever
 * the number of rows, the kernel or the way in which blocks divide the work. Within a step a lane
 * loads eight neighbouring columns and uses them as its fragments of two mma instructions. The
 * instructions therefore see the columns of a step in another order, the same for weights and
 * inputs, and each product is still of two numbers of the same column.
 */
#ifndef INFERD_CUDA_KERNELS_LINEAR_PARTS_H
#define INFERD_CUDA_KERNELS_LINEAR_PARTS_H

#include "cuda/device_code/act.h"
#include "cuda/device_code/tiles.h"
#include "cuda/kernels/kernels.h"

enum { SPANS = 16, STEP_K = 32 };

/* Columns of a span, a multiple of STEP_K. */
GPU_BOTH_FN int span_columns(int depth) {
  return (depth + SPANS * STEP_K - 1) / (SPANS * STEP_K) * STEP_K;
}

/* Returns true if the weight has n gate rows and then n up rows. In that case eight gate rows and
 * eight up rows are the 16 rows of an mma, so that a lane has both sums of an output. */
GPU_BOTH_FN bool is_gated(const gpu_skinny_t &args) {
  return args.activate && activation_gated(args.activation);
}

/* Row of the weight that is row `row` (0..15) of tile `tile`; -1 beyond the end. */
GPU_FN int weight_row(const gpu_skinny_t &args, int tile, int row) {
  if (!is_gated(args)) return tile * 16 + row < args.n ? tile * 16 + row : -1;
  const int n = tile * 8 + row % 8;
  return n >= args.n ? -1 : row < 8 ? n : args.n + n;
}

/* Tiles of 16 weight rows. */
GPU_BOTH_FN int weight_tiles(const gpu_skinny_t &args) {
  return is_gated(args) ? (args.n + 7) / 8 : (args.n + 15) / 16;
}

/* Row `token` of the inputs. */
template <class T> GPU_FN const T *input_row(const gpu_skinny_t &args, int token) {
  return (const T *)args.in +
         (size_t)(args.row_map != nullptr ? args.row_map[token] : token) * args.k;
}

/* acc += the products of 16 weight rows and 8 tokens over one step. `low` and `high` are the lane's
 * pieces of the weight rows lane / 4 and lane / 4 + 8, `loaded` its piece of the token lane / 4. */
template <class T>
GPU_FN void multiply(float (&acc)[4], const uint4 &low, const uint4 &high, const uint4 &loaded) {
  const uint32_t first[4] = {low.x, high.x, low.y, high.y};
  const uint32_t second[4] = {low.z, high.z, low.w, high.w};
  mma_16816<T>(acc, first, loaded.x, loaded.y);
  mma_16816<T>(acc, second, loaded.z, loaded.w);
}

/* Elements from a row of the outputs to the next. */
GPU_BOTH_FN int row_stride(const gpu_skinny_t &args) {
  return args.stride != 0 ? args.stride : args.n;
}

/* Writes output n of a token. With an activation, what the plain layer would have written is
 * rounded first, so that fused and separate kernels agree. */
template <class T>
GPU_FN void write_output(const gpu_skinny_t &args, int token, int n, float sum, float up) {
  const size_t at = (size_t)token * row_stride(args) + n;
  if (args.bias != nullptr) sum = add_rn(sum, args.bias[n]);
  if (args.activate) {
    if (is_gated(args) && args.bias != nullptr) up = add_rn(up, args.bias[args.n + n]);
    sum = to_float(from_float<T>(sum));
    up = to_float(from_float<T>(up));
    ((T *)args.out)[at] = from_float<T>(activate_one(args.activation, sum, up));
    return;
  }
  if (args.residual != nullptr) sum = add_rn(sum, to_float(((const T *)args.residual)[at]));
  if (!args.logits) {
    ((T *)args.out)[at] = from_float<T>(sum);
    return;
  }
  ((float *)args.out)[at] =
      args.softcap != 0.0f ? mul_rn(args.softcap, tanhf(sum / args.softcap)) : sum;
}

/* Writes the two sums that a lane has of a tile: rows `row` and row + 8. */
template <class T>
GPU_FN void write_pair(const gpu_skinny_t &args, int token, int tile, int row, float low,
                       float high) {
  if (token >= args.rows) return;
  if (is_gated(args)) {
    if (weight_row(args, tile, row) >= 0) write_output<T>(args, token, tile * 8 + row, low, high);
    return;
  }
  const int first = weight_row(args, tile, row), second = weight_row(args, tile, row + 8);
  if (first >= 0) write_output<T>(args, token, first, low, 0.0f);
  if (second >= 0) write_output<T>(args, token, second, high, 0.0f);
}

inline bool linear_supported(const gpu_skinny_t &args) {
  if (args.rows < 0 || args.n <= 0 || args.k <= 0 || args.k % GPU_ROW_ALIGN != 0) return false;
  if (args.stride != 0 && args.stride < args.n) return false;
  return !(args.activate && (args.logits || args.residual != nullptr));
}

#endif
