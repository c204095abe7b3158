/* packed_skinny_parts.h: skinny_parts.h for weights that are packed (device_code/kernel_types.h).
 *
 * Device functions of gemm_packed.cu and moe.cu. A lane loads 16 bytes of codes, which are its
 * columns of two or four steps, and unpacks them in registers in front of mma. The sums are those
 * of the plain kernel.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_SKINNY_PARTS_H
#define INFERD_CUDA_KERNELS_PACKED_SKINNY_PARTS_H

#include "cuda/device_code/packed.h"
#include "cuda/kernels/skinny_parts.h"

/* Columns that a warp has in flight, and their codes and scales: rows lane / 4 and + 8 of each
 * tile. */
template <int CODES, int TOKENS, int TILES> struct packed_weights_t {
  enum {
    COLS = TOKENS == 1 ? 256 : 128,
    UNITS = COLS / unit_of<CODES>::COLS,
    STEPS = COLS / STEP_K
  };
  uint4 codes[UNITS][TILES][2];
  raw_scale_t scales[STEPS][TILES][2];
};

/* From `column` on, the begin of a unit; only what lies in [begin, end). */
template <int CODES, int SCALES, int TOKENS, int TILES>
GPU_FN void load_packed(const gpu_skinny_t &args, int column, int begin, int end,
                        packed_weights_t<CODES, TOKENS, TILES> &weights) {
  typedef packed_weights_t<CODES, TOKENS, TILES> weights_of;
  const int lane = threadIdx.x % WARP, columns = unit_of<CODES>::COLS;
  UNROLL
  for (int r = 0; r < TILES; r++) {
    UNROLL
    for (int h = 0; h < 2; h++) {
      const int row = weight_row(args, blockIdx.x * TILES + r, lane / 4 + 8 * h);
      const uint8_t *from = packed_row(args.packed, args.weight, row < 0 ? 0 : row) +
                            (size_t)(column / columns) * GPU_UNIT_BYTES + lane % 4 * LANE_BYTES;
      UNROLL
      for (int u = 0; u < weights_of::UNITS; u++) {
        const bool is_there = row >= 0 && column + u * columns < end;
        weights.codes[u][r][h] = make_uint4(0, 0, 0, 0);
        if (is_there) weights.codes[u][r][h] = load_16_stream(from + u * GPU_UNIT_BYTES);
      }
      UNROLL
      for (int i = 0; i < weights_of::STEPS; i++) {
        const int step = column + i * STEP_K, at = step + lane % 4 * VECTOR;
        weights.scales[i][r][h] = make_uint2(0, 0);
        if (row >= 0 && step >= begin && at < end)
          weights.scales[i][r][h] = load_scale<SCALES>(args.packed, args.weight, row, at);
      }
    }
  }
}

template <class T, int CODES, int SCALES, int TOKENS, int TILES, bool NORM, class W>
GPU_FN void multiply_packed(const gpu_skinny_t &args, int column, int begin, int end,
                            const W &weights, const float *inverse,
                            float (&acc)[TILES][TOKENS][4]) {
  const int lane = threadIdx.x % WARP, unit_steps = unit_of<CODES>::STEPS;
  UNROLL
  for (int i = 0; i < W::STEPS; i++) {
    const int step = column + i * STEP_K, at = step + lane % 4 * VECTOR;
    if (step < begin || step >= end) continue; /* of another span: all lanes agree */
    uint4 w[TILES][2];
    UNROLL
    for (int r = 0; r < TILES; r++) {
      UNROLL
      for (int h = 0; h < 2; h++)
        w[r][h] = unpack_8<T, CODES, SCALES>(
            args.packed, codes_of_step<CODES>(weights.codes[i / unit_steps][r][h], i % unit_steps),
            weights.scales[i][r][h]);
    }
    UNROLL
    for (int m = 0; m < TOKENS; m++) {
      const int token = m * 8 + lane / 4;
      const uint4 x = load_input<T, NORM>(args, token, at, end, NORM ? inverse[token] : 0.0f);
      UNROLL
      for (int r = 0; r < TILES; r++) multiply<T>(acc[r][m], w[r][0], w[r][1], x);
    }
  }
}

/* stream_spans for packed weights. */
template <class T, int CODES, int SCALES, int TOKENS, int TILES, bool NORM>
GPU_FN void stream_packed(const gpu_skinny_t &args, skinny_shared_t<TOKENS, TILES> &shared) {
  typedef packed_weights_t<CODES, TOKENS, TILES> weights_of;
  const int warp = threadIdx.x / WARP, columns = span_columns(args.k), unit = unit_of<CODES>::COLS;
  const int mine = SPANS / gridDim.y, first = blockIdx.y * mine;
  float acc[TILES][TOKENS][4] = {};
  weights_of weights;
  const int begin = (first + warp) * columns,
            stop = begin + columns < args.k ? begin + columns : args.k;
  if (warp < mine)
    load_packed<CODES, SCALES, TOKENS, TILES>(args, begin / unit * unit, begin, stop, weights);
  grid_dependency_begin();
  if (NORM) norm_rows<T, TOKENS>(args, shared.inverse);
  for (int span = first + warp; span < first + mine; span += SKINNY_WARPS) {
    const int low = span * columns, high = low + columns < args.k ? low + columns : args.k;
    const int from = low / unit * unit;
    for (int column = from; column < high; column += weights_of::COLS) {
      if (span != first + warp || column != from)
        load_packed<CODES, SCALES, TOKENS, TILES>(args, column, low, high, weights);
      multiply_packed<T, CODES, SCALES, TOKENS, TILES, NORM>(args, column, low, high, weights,
                                                             shared.inverse, acc);
    }
    leave_sums<TOKENS, TILES>(acc, shared.sums[span]);
  }
  __syncthreads();
}

#endif
