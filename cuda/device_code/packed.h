/* packed.h: weights that are quantised in device memory, unpacked in registers (kernel_types.h).
 *
 * Device functions. A weight is scale * level - min, each step rounded to fp32, and then rounded to
 * the type of the activations: the value that a loader makes which unpacks the matrix. Codes become
 * numbers without conversions: a byte b among the bits of 2^15 is the float 2^15 + b. What a matrix
 * allows to leave out without another bit is left out (gpu_unpack_t).
 */
#ifndef INFERD_CUDA_DEVICE_CODE_PACKED_H
#define INFERD_CUDA_DEVICE_CODE_PACKED_H

#include "cuda/device_code/kernel_types.h"
#include "cuda/device_code/lanes.h"

enum { STEP_COLS = 32, UNIT_STEPS = GPU_UNIT_COLS / STEP_COLS, LANE_BYTES = 16, ROW_LANES = 4 };

/* Blocks of codes in a unit, the steps of 32 columns in each, and the bytes of all. */
template <int CODES> struct unit_of {
  enum { IS_E2M1 = CODES == GPU_CODES_E2M1 };
  enum { IS_NIBBLES = CODES == GPU_CODES_4 || CODES == GPU_CODES_TABLE || IS_E2M1 };
  enum { BLOCKS = IS_NIBBLES ? 1 : 2, STEPS = UNIT_STEPS / BLOCKS };
  enum { CODE_BYTES = BLOCKS * GPU_BLOCK_BYTES };
};

/* The scales are known to the compiler where weights stream, since each look at them costs all
 * lanes an instruction for every eight weights. Or the matrix says. */
enum { ANY_SCALES = -1 };
template <int SCALES> GPU_FN int scales_of(const gpu_packed_t &packed) {
  return SCALES == ANY_SCALES ? (int)packed.scales : SCALES;
}
template <int SCALES> GPU_FN bool is_f32(const gpu_packed_t &packed) {
  const int scales = scales_of<SCALES>(packed);
  return scales == GPU_SCALES_F32 || scales == GPU_SCALES_F32_WIDE;
}

/* Where a lane of a row finds its codes and scales: in unit 0, the others are unit_bytes apart. */
struct packed_place_t {
  const uint8_t *codes;
  int32_t scales, supers; /* bytes from codes */
};

/* Scales of a row in a unit, and the bytes of one. */
GPU_FN int scale_slots(const gpu_packed_t &packed) {
  return packed.group_shift == 4   ? 8
         : packed.group_shift == 5 ? 4
         : packed.group_shift == 6 ? 2
                                   : 1;
}
template <int SCALES> GPU_FN int scale_bytes(const gpu_packed_t &packed) {
  const int scales = scales_of<SCALES>(packed);
  const bool is_f16 = scales == GPU_SCALES_F16 || scales == GPU_SCALES_F16_ZERO;
  const int one = is_f32<SCALES>(packed) ? 4 : is_f16 ? 2 : 1;
  return packed.has_min ? 2 * one : one;
}

/* `lane`: 0 .. 3, which eight columns of a step. */
template <int CODES, int SCALES>
GPU_FN packed_place_t packed_place(const gpu_packed_t &packed, const void *base, int row,
                                   int lane) {
  const int64_t at = packed.first_row + row;
  const int in_panel = (int)(at % GPU_PANEL_ROWS), slots = scale_slots(packed);
  const int code = in_panel * (ROW_LANES * LANE_BYTES) + lane * LANE_BYTES;
  const int scale = in_panel * slots + (packed.group_shift == 4 ? lane / 2 * UNIT_STEPS : 0);
  packed_place_t place;
  place.codes = (const uint8_t *)base + (uint64_t)(at / GPU_PANEL_ROWS) * packed.panel_bytes + code;
  place.scales = unit_of<CODES>::CODE_BYTES + scale * scale_bytes<SCALES>(packed) - code;
  place.supers = (int32_t)packed.supers_at + in_panel * (packed.has_min ? 4 : 2) - code;
  return place;
}

/* The bytes of a scale and a min as they lie in memory, in x; y has the min of F32 or the super
 * values. */
typedef uint2 raw_scale_t;

/* Of step `step` of the unit that begins unit_bytes * unit behind the place. */
template <int SCALES>
GPU_FN raw_scale_t load_scale(const gpu_packed_t &packed, const packed_place_t &place, int unit,
                              int step) {
  const uint8_t *from = place.codes + (size_t)unit * packed.unit_bytes;
  const int shared = packed.group_shift < 6 ? 0 : packed.group_shift == 6 ? 1 : 2;
  const uint8_t *scale = from + place.scales + (step >> shared) * scale_bytes<SCALES>(packed);
  raw_scale_t raw = make_uint2(0, 0);
  if (is_f32<SCALES>(packed)) {
    if (packed.has_min) return *(const uint2 *)scale;
    raw.x = *(const uint32_t *)scale;
  } else if (scales_of<SCALES>(packed) == GPU_SCALES_F16_ZERO) {
    raw.x = *(const uint32_t *)scale;
  } else if (scales_of<SCALES>(packed) == GPU_SCALES_F16) {
    raw.x = packed.has_min ? *(const uint32_t *)scale : *(const uint16_t *)scale;
  } else if (scales_of<SCALES>(packed) == GPU_SCALES_TWO_LEVEL) {
    raw.x = packed.has_min ? *(const uint16_t *)scale : *scale;
    raw.y = packed.has_min ? *(const uint32_t *)(from + place.supers)
                           : *(const uint16_t *)(from + place.supers);
  } else {
    raw.x = *scale;
  }
  return raw;
}

/* Scale and min. */
template <int SCALES> GPU_FN float2 read_scale(const gpu_packed_t &packed, raw_scale_t raw) {
  if (is_f32<SCALES>(packed)) return make_float2(__uint_as_float(raw.x), __uint_as_float(raw.y));
  if (scales_of<SCALES>(packed) == GPU_SCALES_F16) return unpack<f16_t>(raw.x);
  if (scales_of<SCALES>(packed) == GPU_SCALES_F16_ZERO) {
    const float2 pair = unpack<f16_t>(raw.x);
    return make_float2(pair.x, mul_rn(pair.x, add_rn(pair.y, -packed.zero)));
  }
  if (scales_of<SCALES>(packed) == GPU_SCALES_TWO_LEVEL) {
    const float2 super = unpack<f16_t>(raw.y);
    return make_float2(mul_rn(super.x, (float)(int8_t)(raw.x & 0xff)),
                       mul_rn(super.y, (float)(raw.x >> 8 & 0xff)));
  }
  /* 2^(e - 128); the two smallest are below the normal numbers */
  return make_float2(__uint_as_float(raw.x > 1 ? (raw.x - 1) << 23 : 0x00200000u << raw.x), 0.0f);
}

/* Bytes of the table for the four nibbles in the low half of `nibbles`. */
GPU_FN uint32_t look_up(const uint32_t (&table)[4], uint32_t nibbles) {
  const uint32_t below = nibbles & 0x7777u;
  const uint32_t low = byte_perm(table[0], table[1], below);
  const uint32_t high = byte_perm(table[2], table[3], below);
  return byte_perm(low, high, 0x3210u + ((nibbles & 0x8888u) >> 1));
}

/* 2^15 + each of four bytes. */
GPU_FN void byte_numbers(uint32_t bytes, float *numbers) {
  UNROLL
  for (int i = 0; i < 4; i++)
    numbers[i] = __uint_as_float(byte_perm(bytes, 0x47000000u, 0x7404u + (i << 4)));
}

/* 2^7 + each of eight nibbles, low ones first. */
GPU_FN void nibble_numbers(uint32_t nibbles, float *numbers) {
  const uint32_t low = nibbles & 0x0f0f0f0fu, high = nibbles >> 4 & 0x0f0f0f0fu;
  UNROLL
  for (int i = 0; i < 4; i++) {
    numbers[2 * i] = __uint_as_float(byte_perm(low, 0x43000000u, 0x7044u + (i << 8)));
    numbers[2 * i + 1] = __uint_as_float(byte_perm(high, 0x43000000u, 0x7044u + (i << 8)));
  }
}

/* e4m3 numbers, all of which are halves. A loader refuses NaN. */
GPU_FN void e4m3_levels(uint32_t bytes, float *levels) {
  const float2 low = unpack<f16_t>(e4m3_halves<0>(bytes));
  const float2 high = unpack<f16_t>(e4m3_halves<1>(bytes));
  levels[0] = low.x, levels[1] = low.y, levels[2] = high.x, levels[3] = high.y;
}

/* Two neighbouring e2m1 numbers of a word, in bf16 and exact: their bits, moved, are the number
 * that is 2^126 times smaller. */
template <int PAIR> GPU_FN uint32_t e2m1_pair(uint32_t word) {
  const uint32_t high = word << (12 - 4 * PAIR);
  return multiply_bf16x2((high & 0x80008000u) | (high & 0x70007000u) >> 6, 0x7e807e80u);
}

/* 2^(e - 127) as a bf16. */
GPU_FN uint32_t bf16_power(uint32_t exponent) {
  return exponent > 0 ? exponent << 7 : 0x40;
}

template <class T> GPU_FN uint32_t scale_pair(uint32_t levels, uint32_t exponent);
template <> GPU_FN uint32_t scale_pair<bf16_t>(uint32_t levels, uint32_t exponent) {
  return multiply_bf16x2(levels, bf16_power(exponent) * 0x10001u);
}
template <> GPU_FN uint32_t scale_pair<f16_t>(uint32_t levels, uint32_t exponent) {
  const float2 pair = unpack<bf16_t>(levels);
  const float scale = __uint_as_float(bf16_power(exponent) << 16);
  return pack<f16_t>(mul_rn(pair.x, scale), mul_rn(pair.y, scale));
}

/* The weights of the numbers in w. A level of 0 may get another sign than by STEPS: in a sum of
 * products it has none. */
template <int SCALES, int UNPACK>
GPU_FN void weigh(const gpu_packed_t &packed, raw_scale_t raw, float (&w)[VECTOR]) {
  const bool fused = UNPACK == GPU_UNPACK_FUSED;
  const bool wide = fused && SCALES == GPU_SCALES_F16_ZERO; /* widened, with its min */
  const float2 scale = wide ? make_float2(__uint_as_float(raw.x), __uint_as_float(raw.y))
                            : read_scale<SCALES>(packed, raw);
  const float moved =
      fused ? fma_rn(-packed.zero, scale.x, -scale.y) : mul_rn(-packed.zero, scale.x);
  UNROLL
  for (int i = 0; i < VECTOR; i++)
    w[i] = UNPACK == GPU_UNPACK_STEPS ? mul_rn(add_rn(w[i], -packed.zero), scale.x)
                                      : fma_rn(w[i], scale.x, moved);
  if (!fused && packed.has_min) {
    UNROLL
    for (int i = 0; i < VECTOR; i++) w[i] = add_rn(w[i], -scale.y);
  }
}

/* Eight neighbouring weights of a row. `codes`: their bytes (4 bits: x alone). */
template <class T, int CODES, int SCALES, int UNPACK>
GPU_FN uint4 unpack_8(const gpu_packed_t &packed, uint2 codes, raw_scale_t raw) {
  if constexpr (unit_of<CODES>::IS_E2M1) {
    return make_uint4(
        scale_pair<T>(e2m1_pair<0>(codes.x), raw.x), scale_pair<T>(e2m1_pair<1>(codes.x), raw.x),
        scale_pair<T>(e2m1_pair<2>(codes.x), raw.x), scale_pair<T>(e2m1_pair<3>(codes.x), raw.x));
  } else {
    float w[VECTOR];
    if (CODES == GPU_CODES_E4M3) {
      const float scale = read_scale<SCALES>(packed, raw).x;
      e4m3_levels(codes.x, w);
      e4m3_levels(codes.y, w + 4);
      UNROLL
      for (int i = 0; i < VECTOR; i++) w[i] = mul_rn(w[i], scale);
    } else {
      const bool looks = CODES == GPU_CODES_TABLE;
      if (CODES == GPU_CODES_4) {
        nibble_numbers(codes.x, w);
      } else {
        byte_numbers(looks ? look_up(packed.table, codes.x) : codes.x, w);
        byte_numbers(looks ? look_up(packed.table, codes.x >> 16) : codes.y, w + 4);
      }
      weigh<SCALES, UNPACK>(packed, raw, w);
    }
    return make_uint4(pack<T>(w[0], w[1]), pack<T>(w[2], w[3]), pack<T>(w[4], w[5]),
                      pack<T>(w[6], w[7]));
  }
}

/* The part of a lane's 16 bytes that belongs to step `step` of the block. */
template <int CODES> GPU_FN uint2 codes_of_step(const uint4 &bytes, int step) {
  if (!unit_of<CODES>::IS_NIBBLES)
    return step == 0 ? make_uint2(bytes.x, bytes.y) : make_uint2(bytes.z, bytes.w);
  return make_uint2(step == 0 ? bytes.x : step == 1 ? bytes.y : step == 2 ? bytes.z : bytes.w, 0);
}

/* Eight weights of row `row` from `column` on, a multiple of 8: their codes and their scale. */
template <int CODES>
GPU_FN void load_packed_8(const gpu_packed_t &packed, const void *base, int row, int column,
                          uint2 *codes, raw_scale_t *scale) {
  const int unit = column / GPU_UNIT_COLS, step = column % GPU_UNIT_COLS / STEP_COLS;
  const packed_place_t place =
      packed_place<CODES, ANY_SCALES>(packed, base, row, column % STEP_COLS / VECTOR);
  const uint8_t *from = place.codes + (size_t)unit * packed.unit_bytes +
                        step / unit_of<CODES>::STEPS * GPU_BLOCK_BYTES;
  const int in_block = step % unit_of<CODES>::STEPS;
  *codes = unit_of<CODES>::IS_NIBBLES ? make_uint2(((const uint32_t *)from)[in_block], 0)
                                      : ((const uint2 *)from)[in_block];
  *scale = load_scale<ANY_SCALES>(packed, place, unit, step);
}

#endif
