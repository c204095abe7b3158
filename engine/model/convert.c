/* convert.c: float32, float16 and bfloat16 into each other, and the search for NaN and infinity.
 *
 * The search runs over every weight of a model while it is packed, so it works in fixed pieces that
 * the compiler turns into vector code. Pure functions, any thread.
 */
#include "engine/model/convert.h"

#include <string.h>

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float convert_from_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  /* Exponent bias 127 against 15: scaling by 2^112 also makes subnormals right. */
  float scaled = from_bits(magnitude << 13) * from_bits((uint32_t)(127 + 112) << 23);
  return from_bits(sign | to_bits(scaled));
}

uint16_t convert_to_f16(float value) {
  uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
  if (magnitude < 0x38800000) {
    /* Subnormal half: adding 0.5 puts the bits where rounding to nearest even happens. */
    float shifted = from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (to_bits(shifted) - 0x3f000000));
  }
  uint32_t odd = magnitude >> 13 & 1;
  return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float convert_from_bf16(uint16_t bits) {
  return from_bits((uint32_t)bits << 16);
}

uint16_t convert_to_bf16(float value) {
  uint32_t bits = to_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float load(const void *in, dtype_t from, int64_t i) {
  if (from == DTYPE_F32) {
    float value;
    memcpy(&value, (const uint8_t *)in + 4 * i, 4);
    return value;
  }
  uint16_t half;
  memcpy(&half, (const uint8_t *)in + 2 * i, 2);
  return from == DTYPE_F16 ? convert_from_f16(half) : convert_from_bf16(half);
}

static void to_float(float *out, const void *in, dtype_t from, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = load(in, from, i);
}

static void to_half(uint16_t *out, dtype_t to, const void *in, dtype_t from, int64_t count) {
  if (to == DTYPE_BF16) {
    for (int64_t i = 0; i < count; i++) out[i] = convert_to_bf16(load(in, from, i));
  } else {
    for (int64_t i = 0; i < count; i++) out[i] = convert_to_f16(load(in, from, i));
  }
}

void convert_row(void *out, dtype_t to, const void *in, dtype_t from, int64_t count) {
  if (to == from)
    memcpy(out, in, (size_t)count * dtype_size(to));
  else if (to == DTYPE_F32)
    to_float(out, in, from, count);
  else
    to_half(out, to, in, from, count);
}

enum { PIECE_BYTES = 512 };

/* True when no 16-bit lane has all bits of `exponent` set. */
static bool finite_halves(const uint8_t *row, size_t bytes, uint16_t exponent) {
  uint16_t piece[PIECE_BYTES / 2];
  for (; bytes > 0; row += sizeof(piece)) {
    size_t n = bytes < sizeof(piece) ? bytes : sizeof(piece);
    if (n < sizeof(piece)) memset(piece, 0, sizeof(piece));
    memcpy(piece, row, n);
    uint16_t bad = 0;
    for (int i = 0; i < PIECE_BYTES / 2; i++) {
      bad |= (uint16_t)((piece[i] & exponent) == exponent ? 1 : 0);
    }
    if (bad) return false;
    bytes -= n;
  }
  return true;
}

static bool finite_words(const uint8_t *row, size_t bytes) {
  uint32_t piece[PIECE_BYTES / 4];
  for (; bytes > 0; row += sizeof(piece)) {
    size_t n = bytes < sizeof(piece) ? bytes : sizeof(piece);
    if (n < sizeof(piece)) memset(piece, 0, sizeof(piece));
    memcpy(piece, row, n);
    uint32_t bad = 0;
    for (int i = 0; i < PIECE_BYTES / 4; i++) {
      bad |= (piece[i] & 0x7f800000) == 0x7f800000 ? 1U : 0U;
    }
    if (bad) return false;
    bytes -= n;
  }
  return true;
}

bool convert_finite(const void *row, dtype_t dtype, int64_t count) {
  size_t bytes = (size_t)count * dtype_size(dtype);
  if (dtype == DTYPE_F32) return finite_words(row, bytes);
  return finite_halves(row, bytes, dtype == DTYPE_F16 ? 0x7c00 : 0x7f80);
}
