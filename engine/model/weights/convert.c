/* convert.c: rows of float32, float16 and bfloat16 into each other, and the search for NaN and
 * infinity.
 *
 * The search runs over every weight of a model while it is packed, so it works in fixed pieces that
 * the compiler turns into vector code. Pure functions, any thread.
 */
#include "engine/model/weights/convert.h"

#include "engine/base/half.h"

#include <string.h>

static float load(const void *in, dtype_t from, int64_t i) {
  if (from == DTYPE_F32) {
    float value;
    memcpy(&value, (const uint8_t *)in + 4 * i, 4);
    return value;
  }
  uint16_t half;
  memcpy(&half, (const uint8_t *)in + 2 * i, 2);
  return from == DTYPE_F16 ? float_from_f16(half) : float_from_bf16(half);
}

static void to_float(float *out, const void *in, dtype_t from, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = load(in, from, i);
}

static void to_half(uint16_t *out, dtype_t to, const void *in, dtype_t from, int64_t count) {
  if (to == DTYPE_BF16) {
    for (int64_t i = 0; i < count; i++) out[i] = bf16_from_float(load(in, from, i));
  } else {
    for (int64_t i = 0; i < count; i++) out[i] = f16_from_float(load(in, from, i));
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
