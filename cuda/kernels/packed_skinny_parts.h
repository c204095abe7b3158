/* packed_skinny_parts.h: skinny_parts.h for weights that are packed (device_code/kernel_types.h).
 *
 * Device functions of packed_chunks.h and moe.cu. Of a unit of 128 columns a lane loads its codes,
 * 16 bytes a block, and the scales of its row, in one or two wide loads, and unpacks them in
 * registers in front of mma. The sums are those of the plain kernel.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_SKINNY_PARTS_H
#define INFERD_CUDA_KERNELS_PACKED_SKINNY_PARTS_H

#include "cuda/device_code/packed.h"
#include "cuda/kernels/skinny_parts.h"

/* The scales of a row in a unit as they were loaded. F32: scale and min of each step, or of all if
 * they are wide; F16: as many words, or halves without minima; two-level: halves, and the super
 * values; exponents: bytes. */
template <int SCALES> struct unit_scales_t {
  uint32_t words[SCALES == GPU_SCALES_F32         ? 2 * UNIT_STEPS
                 : SCALES == GPU_SCALES_F32_WIDE  ? 2
                 : SCALES == GPU_SCALES_F16_ZERO  ? 2
                 : SCALES == GPU_SCALES_F16       ? UNIT_STEPS
                 : SCALES == GPU_SCALES_TWO_LEVEL ? 3
                                                  : 1];
};

/* A scale and its min, or a scale alone and 0. */
GPU_FN raw_scale_t load_pair(const gpu_packed_t &packed, const uint8_t *from) {
  if (packed.has_min) return *(const uint2 *)from;
  return make_uint2(*(const uint32_t *)from, 0);
}

/* F32 scales: groups of 16 or 32 columns have one for each step, of 64 one for two. */
GPU_FN void load_floats(const gpu_packed_t &packed, const uint8_t *from,
                        uint32_t (&words)[2 * UNIT_STEPS]) {
  uint4 first, second;
  if (packed.group_shift == 6 && packed.has_min) {
    const uint4 pairs = load_16(from);
    first = make_uint4(pairs.x, pairs.y, pairs.x, pairs.y);
    second = make_uint4(pairs.z, pairs.w, pairs.z, pairs.w);
  } else if (packed.group_shift == 6) {
    const uint2 scales = *(const uint2 *)from;
    first = make_uint4(scales.x, 0, scales.x, 0), second = make_uint4(scales.y, 0, scales.y, 0);
  } else if (packed.has_min) {
    first = load_16(from), second = load_16(from + LANE_BYTES);
  } else {
    const uint4 scales = load_16(from);
    first = make_uint4(scales.x, 0, scales.y, 0), second = make_uint4(scales.z, 0, scales.w, 0);
  }
  words[0] = first.x, words[1] = first.y, words[2] = first.z, words[3] = first.w;
  words[4] = second.x, words[5] = second.y, words[6] = second.z, words[7] = second.w;
}

/* `unit`: what the place names, of this unit. */
template <int SCALES, int UNPACK>
GPU_FN void load_scales(const gpu_packed_t &packed, const packed_place_t &place,
                        const uint8_t *unit, unit_scales_t<SCALES> &out) {
  const uint8_t *from = unit + place.scales;
  if constexpr (SCALES == GPU_SCALES_F32_WIDE) {
    const raw_scale_t pair = load_pair(packed, from);
    out.words[0] = pair.x, out.words[1] = pair.y;
  } else if constexpr (SCALES == GPU_SCALES_F32) {
    load_floats(packed, from, out.words);
  } else if constexpr (SCALES == GPU_SCALES_F16 && UNPACK != GPU_UNPACK_FUSED) {
    store_16(out.words, load_16(from));
  } else if constexpr (SCALES == GPU_SCALES_EXPONENT || SCALES == GPU_SCALES_F16_ZERO) {
    out.words[0] = *(const uint32_t *)from;
  } else if (SCALES == GPU_SCALES_F16 || packed.has_min) {
    const uint2 two = *(const uint2 *)from;
    out.words[0] = two.x, out.words[1] = two.y;
  } else {
    const uint32_t bytes = *(const uint32_t *)from;
    out.words[0] = byte_perm(bytes, 0, 0x4140u), out.words[1] = byte_perm(bytes, 0, 0x4342u);
  }
  if constexpr (SCALES == GPU_SCALES_TWO_LEVEL)
    out.words[2] = packed.has_min ? *(const uint32_t *)(unit + place.supers)
                                  : *(const uint16_t *)(unit + place.supers);
}

/* That of a step, as load_scale returns it. */
template <int SCALES, int UNPACK>
GPU_FN raw_scale_t scale_of_step(const unit_scales_t<SCALES> &scales, int step) {
  const uint32_t *words = scales.words;
  if constexpr (SCALES == GPU_SCALES_F32_WIDE || SCALES == GPU_SCALES_F16_ZERO) {
    return make_uint2(words[0], words[1]);
  } else if constexpr (SCALES == GPU_SCALES_F32) {
    return make_uint2(words[2 * step], words[2 * step + 1]);
  } else if constexpr (SCALES == GPU_SCALES_F16 && UNPACK != GPU_UNPACK_FUSED) {
    return make_uint2(words[step], 0);
  } else if constexpr (SCALES == GPU_SCALES_EXPONENT) {
    return make_uint2(words[0] >> 8 * step & 0xff, 0);
  } else {
    const uint32_t half = step % 2 ? words[step / 2] >> 16 : words[step / 2] & 0xffff;
    return make_uint2(half, SCALES == GPU_SCALES_F16 ? 0 : words[2]);
  }
}

/* Columns that a warp has in flight: codes and scales of rows lane / 4 and + 8 of each tile. */
template <int CODES, int SCALES, int TOKENS, int TILES> struct packed_weights_t {
  enum { UNITS = TOKENS == 1 ? 2 : 1, COLS = UNITS * GPU_UNIT_COLS };
  uint4 codes[UNITS][TILES][2][unit_of<CODES>::BLOCKS];
  unit_scales_t<SCALES> scales[UNITS][TILES][2];
};

/* Rows beyond the end are row 0: nobody reads their sums. */
template <int CODES, int SCALES, int TILES>
GPU_FN void find_rows(const gpu_skinny_t &args, packed_place_t (&rows)[TILES][2]) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int r = 0; r < TILES; r++) {
    UNROLL
    for (int h = 0; h < 2; h++) {
      const int row = weight_row(args, blockIdx.x * TILES + r, lane / 4 + 8 * h);
      rows[r][h] = packed_place<CODES, SCALES>(args.packed, args.weight, row < 0 ? 0 : row,
                                               lane % ROW_LANES);
    }
  }
}

/* Units from `unit` on, as far as there are any. */
template <int CODES, int SCALES, int UNPACK, int TOKENS, int TILES>
GPU_FN void load_packed(const gpu_skinny_t &args, const packed_place_t (&rows)[TILES][2], int unit,
                        int end, packed_weights_t<CODES, SCALES, TOKENS, TILES> &weights) {
  UNROLL
  for (int u = 0; u < packed_weights_t<CODES, SCALES, TOKENS, TILES>::UNITS; u++) {
    if (u > 0 && (unit + u) * GPU_UNIT_COLS >= end) break; /* all lanes agree */
    UNROLL
    for (int r = 0; r < TILES; r++) {
      UNROLL
      for (int h = 0; h < 2; h++) {
        const uint8_t *from = rows[r][h].codes + (size_t)(unit + u) * args.packed.unit_bytes;
        UNROLL
        for (int b = 0; b < unit_of<CODES>::BLOCKS; b++)
          weights.codes[u][r][h][b] = load_16_stream(from + b * GPU_BLOCK_BYTES);
        load_scales<SCALES, UNPACK>(args.packed, rows[r][h], from, weights.scales[u][r][h]);
      }
    }
  }
}

/* Halves become a scale and a min in fp32, once a unit: a step may be left out, so what stands in
 * it is done in each. */
template <int SCALES>
GPU_FN void widen_scales(const gpu_packed_t &packed, unit_scales_t<SCALES> &of) {
  if constexpr (SCALES == GPU_SCALES_F16_ZERO) {
    const float2 scale = read_scale<SCALES>(packed, make_uint2(of.words[0], 0));
    of.words[0] = __float_as_uint(scale.x), of.words[1] = __float_as_uint(scale.y);
  }
}

/* Values of a normed row in shared memory: two rows that a load reads at once meet in no bank. */
GPU_BOTH_FN int normed_stride(int k) {
  return k + STEP_K;
}

/* normed[rows][normed_stride] = the inputs, normed: once a block, since every tile needs all. */
template <class T>
GPU_FN void norm_inputs(const gpu_skinny_t &args, const float *inverse, T *normed) {
  const int pieces = args.k / VECTOR;
  for (int i = threadIdx.x; i < args.rows * pieces; i += SKINNY_THREADS) {
    const int token = i / pieces, at = i % pieces * VECTOR;
    store_16(normed + token * normed_stride(args.k) + at,
             load_input<T, true>(args, token, at, args.k, inverse[token]));
  }
  __syncthreads();
}

/* The inputs of tokens lane / 4 and + 8, .. at the lane's first columns, `normed` if it is not
 * null. A token beyond the end is the last one: nobody reads its sums. */
template <class T, int TOKENS>
GPU_FN void find_inputs(const gpu_skinny_t &args, const T *normed, const T *(&inputs)[TOKENS]) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int m = 0; m < TOKENS; m++) {
    const int wanted = m * 8 + lane / 4, token = wanted < args.rows ? wanted : args.rows - 1;
    const T *row =
        normed != nullptr ? normed + token * normed_stride(args.k) : input_row<T>(args, token);
    inputs[m] = row + lane % ROW_LANES * VECTOR;
  }
}

template <class T, int CODES, int SCALES, int UNPACK, int TOKENS, int TILES, class W>
GPU_FN void multiply_packed(const gpu_skinny_t &args, int column, int begin, int end, W &weights,
                            const T *const (&inputs)[TOKENS], float (&acc)[TILES][TOKENS][4]) {
  const int lane = threadIdx.x % WARP, block_steps = unit_of<CODES>::STEPS;
  UNROLL
  for (int i = 0; i < W::UNITS * TILES * 2; i++)
    widen_scales<SCALES>(args.packed, weights.scales[i / (TILES * 2)][i / 2 % TILES][i % 2]);
  UNROLL
  for (int i = 0; i < W::UNITS * UNIT_STEPS; i++) {
    const int step = column + i * STEP_K, u = i / UNIT_STEPS, in_unit = i % UNIT_STEPS;
    if (step < begin || step >= end) continue; /* of another span: all lanes agree */
    uint4 w[TILES][2];
    UNROLL
    for (int r = 0; r < TILES; r++) {
      UNROLL
      for (int h = 0; h < 2; h++)
        w[r][h] = unpack_8<T, CODES, SCALES, UNPACK>(
            args.packed,
            codes_of_step<CODES>(weights.codes[u][r][h][in_unit / block_steps],
                                 in_unit % block_steps),
            scale_of_step<SCALES, UNPACK>(weights.scales[u][r][h], in_unit));
    }
    UNROLL
    for (int m = 0; m < TOKENS; m++) {
      uint4 x = make_uint4(0, 0, 0, 0);
      if (step + lane % ROW_LANES * VECTOR < end) x = load_16(inputs[m] + step);
      UNROLL
      for (int r = 0; r < TILES; r++) multiply<T>(acc[r][m], w[r][0], w[r][1], x);
    }
  }
}

/* stream_spans for packed weights. `normed`: shared memory for norm_inputs, if NORM. */
template <class T, int CODES, int SCALES, int UNPACK, int TOKENS, int TILES, bool NORM>
GPU_FN void stream_packed(const gpu_skinny_t &args, skinny_shared_t<TOKENS, TILES> &shared,
                          T *normed) {
  typedef packed_weights_t<CODES, SCALES, TOKENS, TILES> weights_of;
  const int warp = threadIdx.x / WARP, columns = span_columns(args.k);
  const int mine = SPANS / gridDim.y, first = blockIdx.y * mine;
  float acc[TILES][TOKENS][4] = {};
  packed_place_t rows[TILES][2];
  const T *inputs[TOKENS];
  weights_of weights;
  find_rows<CODES, SCALES, TILES>(args, rows);
  const int begin = (first + warp) * columns,
            stop = begin + columns < args.k ? begin + columns : args.k;
  if (warp < mine && begin < stop)
    load_packed<CODES, SCALES, UNPACK, TOKENS, TILES>(args, rows, begin / GPU_UNIT_COLS, stop,
                                                      weights);
  grid_dependency_begin();
  if (NORM) norm_rows<T, TOKENS>(args, shared.inverse);
  if (NORM) norm_inputs<T>(args, shared.inverse, normed);
  find_inputs<T, TOKENS>(args, NORM ? normed : (const T *)nullptr, inputs);
  for (int span = first + warp; span < first + mine; span += SKINNY_WARPS) {
    const int low = span * columns, high = low + columns < args.k ? low + columns : args.k;
    const int from = low / GPU_UNIT_COLS * GPU_UNIT_COLS;
    for (int column = from; column < high; column += weights_of::COLS) {
      if (span != first + warp || column != from)
        load_packed<CODES, SCALES, UNPACK, TOKENS, TILES>(args, rows, column / GPU_UNIT_COLS, high,
                                                          weights);
      multiply_packed<T, CODES, SCALES, UNPACK, TOKENS, TILES>(args, column, low, high, weights,
                                                               inputs, acc);
    }
    leave_sums<TOKENS, TILES>(acc, shared.sums[span]);
  }
  __syncthreads();
}

#endif
