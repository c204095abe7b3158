/* packed.h: weights that are quantised in device memory, unpacked in registers (kernel_types.h).
 *
 * Device functions. A weight is scale * level - min, each step rounded to fp32, and then rounded to
 * the type of the activations: the value that a loader makes which unpacks the matrix. Bytes become
 * numbers without conversions: byte b in the low bits of 2^23 is the float 2^23 + b.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_PACKED_H
#define INFERD_CUDA_DEVICE_CODE_PACKED_H

#include "cuda/device_code/kernel_types.h"
#include "cuda/device_code/lanes.h"

enum { STEP_COLS = 32, LANE_BYTES = 16, ROW_LANES = 4 };

/* Columns of a unit, and the steps of 32 columns in it. */
template <int CODES> struct unit_of {
  enum { COLS = CODES == GPU_CODES_4 ? 128 : 64, STEPS = COLS / STEP_COLS };
};

/* Row `row` of the matrix: its lane bytes are at + unit * GPU_UNIT_BYTES + lane * LANE_BYTES. */
GPU_FN const uint8_t *packed_row(const gpu_packed_t &packed, const void *base, int row) {
  const int64_t at = packed.first_row + row;
  return (const uint8_t *)base + (uint64_t)(at / GPU_PANEL_ROWS) * packed.panel_bytes +
         at % GPU_PANEL_ROWS * (ROW_LANES * LANE_BYTES);
}

/* The bytes of a scale and a min as they lie in memory; y has the super values. */
typedef uint2 raw_scale_t;

/* Which scales a matrix has: known to the compiler where weights stream, since each look at it
 * costs all lanes an instruction for every eight weights; else the matrix says. */
enum { ANY_SCALES = -1 };
template <int SCALES> GPU_FN int scales_of(const gpu_packed_t &packed) {
  return SCALES == ANY_SCALES ? (int)packed.scales : SCALES;
}

/* `row`: as packed_row returns it. */
template <int SCALES>
GPU_FN raw_scale_t load_scale(const gpu_packed_t &packed, const void *base, int row, int column) {
  const int64_t at = packed.first_row + row;
  const uint8_t *panel =
      (const uint8_t *)base + (uint64_t)(at / GPU_PANEL_ROWS) * packed.panel_bytes;
  const size_t lane = (size_t)(at % GPU_PANEL_ROWS);
  const size_t i = (size_t)(column >> packed.group_shift) * GPU_PANEL_ROWS + lane;
  const uint8_t *scales = panel + packed.scales_at;
  raw_scale_t raw = make_uint2(0, 0);
  if (scales_of<SCALES>(packed) == GPU_SCALES_F32) {
    if (packed.has_min) return ((const uint2 *)scales)[i];
    raw.x = ((const uint32_t *)scales)[i];
  } else if (scales_of<SCALES>(packed) == GPU_SCALES_F16) {
    raw.x = packed.has_min ? ((const uint32_t *)scales)[i] : ((const uint16_t *)scales)[i];
  } else if (scales_of<SCALES>(packed) == GPU_SCALES_TWO_LEVEL) {
    const size_t s = (size_t)(column / GPU_SUPER_COLS) * GPU_PANEL_ROWS + lane;
    const uint8_t *supers = panel + packed.supers_at;
    raw.x = packed.has_min ? ((const uint16_t *)scales)[i] : scales[i];
    raw.y = packed.has_min ? ((const uint32_t *)supers)[s] : ((const uint16_t *)supers)[s];
  } else {
    raw.x = scales[i];
  }
  return raw;
}

/* Scale and min. */
template <int SCALES> GPU_FN float2 read_scale(const gpu_packed_t &packed, raw_scale_t raw) {
  if (scales_of<SCALES>(packed) == GPU_SCALES_F32)
    return make_float2(__uint_as_float(raw.x), __uint_as_float(raw.y));
  if (scales_of<SCALES>(packed) == GPU_SCALES_F16) return unpack<f16_t>(raw.x);
  if (scales_of<SCALES>(packed) == GPU_SCALES_TWO_LEVEL) {
    const float2 super = unpack<f16_t>(raw.y);
    return make_float2(mul_rn(super.x, (float)(int8_t)(raw.x & 0xff)),
                       mul_rn(super.y, (float)(raw.x >> 8)));
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

/* The levels of four bytes, plus those of the minus: 2^23 + offset. */
GPU_FN void byte_levels(uint32_t bytes, float minus, float *levels) {
  UNROLL
  for (int i = 0; i < 4; i++)
    levels[i] = add_rn(__uint_as_float(byte_perm(bytes, 0x4b000000u, 0x7440u + i)), -minus);
}

/* e4m3 numbers: their bits, moved, are the half that is 256 times smaller. NaN is read as 480: a
 * loader refuses it. */
GPU_FN void e4m3_levels(uint32_t bytes, float *levels) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    const uint32_t spread = byte_perm(bytes, 0, i == 0 ? 0x1404u : 0x3424u);
    const float2 pair = unpack<f16_t>((spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1);
    levels[2 * i] = mul_rn(pair.x, 256.0f);
    levels[2 * i + 1] = mul_rn(pair.y, 256.0f);
  }
}

/* Eight neighbouring weights of a row. `codes`: their bytes (4 bits: x alone). */
template <class T, int CODES, int SCALES>
GPU_FN uint4 unpack_8(const gpu_packed_t &packed, uint2 codes, raw_scale_t raw) {
  const float2 scale = read_scale<SCALES>(packed, raw);
  float w[VECTOR];
  if (CODES == GPU_CODES_E4M3) {
    e4m3_levels(codes.x, w);
    e4m3_levels(codes.y, w + 4);
  } else {
    const float minus = 8388608.0f + (float)packed.offset;
    const bool nibbles = CODES == GPU_CODES_4;
    byte_levels(nibbles ? look_up(packed.table, codes.x) : codes.x, minus, w);
    byte_levels(nibbles ? look_up(packed.table, codes.x >> 16) : codes.y, minus, w + 4);
  }
  UNROLL
  for (int i = 0; i < VECTOR; i++) w[i] = mul_rn(w[i], scale.x);
  if (packed.has_min) {
    UNROLL
    for (int i = 0; i < VECTOR; i++) w[i] = add_rn(w[i], -scale.y);
  }
  return make_uint4(pack<T>(w[0], w[1]), pack<T>(w[2], w[3]), pack<T>(w[4], w[5]),
                    pack<T>(w[6], w[7]));
}

/* The part of a lane's 16 bytes that belongs to step `step` of the unit. */
template <int CODES> GPU_FN uint2 codes_of_step(const uint4 &bytes, int step) {
  if (CODES != GPU_CODES_4)
    return step == 0 ? make_uint2(bytes.x, bytes.y) : make_uint2(bytes.z, bytes.w);
  return make_uint2(step == 0 ? bytes.x : step == 1 ? bytes.y : step == 2 ? bytes.z : bytes.w, 0);
}

/* The codes of eight columns from `column` on, a multiple of 8. */
template <int CODES>
GPU_FN uint2 load_codes(const gpu_packed_t &packed, const void *base, int row, int column) {
  const int unit = column / unit_of<CODES>::COLS, in_unit = column % unit_of<CODES>::COLS;
  const uint8_t *from = packed_row(packed, base, row) + (size_t)unit * GPU_UNIT_BYTES +
                        in_unit % STEP_COLS / VECTOR * LANE_BYTES;
  if (CODES == GPU_CODES_4) return make_uint2(((const uint32_t *)from)[in_unit / STEP_COLS], 0);
  return ((const uint2 *)from)[in_unit / STEP_COLS];
}

#endif
