/* quant_blocks.c: how each block format is laid out; see ggml-common.h of llama.cpp.
 *
 * Owns nothing. Pure functions, any thread. In the formats of 32 weights the low nibble of byte j
 * is weight j and the high nibble weight j + 16. The K formats hold 256 weights in groups of 16 or
 * 32, with small integer scales beside one or two f16 numbers.
 */
#include "engine/quant/quant_blocks.h"

#include "engine/base/check.h"
#include "engine/base/half.h"

#include <string.h>

/* A byte eight times. */
#define EACH(byte) (0x0101010101010101u * (byte))

static uint16_t load_u16(const uint8_t *from) {
  return (uint16_t)(from[0] | from[1] << 8);
}

static float load_f16(const uint8_t *from) {
  return float_from_f16(load_u16(from));
}

/* Eight codes at a time, one in each byte. */
static uint64_t load_eight(const uint8_t *from) {
  uint64_t eight;
  memcpy(&eight, from, sizeof eight);
  return eight;
}

/* 2 * count nibbles: the low ones of `count` bytes, a multiple of 8, then the high ones. */
static void nibbles(const uint8_t *from, int32_t count, uint8_t *codes) {
  for (int32_t i = 0; i < count; i += 8) {
    uint64_t eight = load_eight(from + i), low = eight & EACH(15), high = eight >> 4 & EACH(15);
    memcpy(codes + i, &low, sizeof low);
    memcpy(codes + count + i, &high, sizeof high);
  }
}

/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4: 32 weights, one group. */
static void read_small(weight_format_t format, const uint8_t *block, uint8_t *codes, float *scale,
                       float *min) {
  if (format == WEIGHT_GGUF_MXFP4) { /* levels are doubled: half of 2^(e - 127) */
    uint32_t e = block[0];
    *scale = float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    nibbles(block + 1, 16, codes);
    return;
  }
  *scale = load_f16(block);
  block += 2;
  if (format == WEIGHT_Q8_0) {
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(block[i] ^ 0x80);
    return;
  }
  if (format == WEIGHT_Q4_1 || format == WEIGHT_Q5_1) {
    *min = -load_f16(block);
    block += 2;
  }
  bool five = format == WEIGHT_Q5_0 || format == WEIGHT_Q5_1;
  uint32_t high = five ? load_u16(block) | (uint32_t)load_u16(block + 2) << 16 : 0;
  nibbles(block + (five ? 4 : 0), 16, codes);
  for (int i = 0; five && i < 32; i++) codes[i] = (uint8_t)(codes[i] | (high >> i & 1) << 4);
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K, from 12 bytes, four at a time. */
static void subs_q45_k(const uint8_t *bytes, int8_t *scale, uint8_t *min) {
  uint32_t scales, mins, tops, four[4];
  memcpy(&scales, bytes, sizeof scales);
  memcpy(&mins, bytes + 4, sizeof mins);
  memcpy(&tops, bytes + 8, sizeof tops);
  four[0] = scales & 0x3f3f3f3f;
  four[1] = (tops & 0x0f0f0f0f) | (scales >> 2 & 0x30303030);
  four[2] = mins & 0x3f3f3f3f;
  four[3] = (tops >> 4 & 0x0f0f0f0f) | (mins >> 2 & 0x30303030);
  memcpy(scale, four, 8);
  memcpy(min, four + 2, 8);
}

/* Q2_K: 16 bytes, the scale in the low nibble. */
static void subs_q2_k(const uint8_t *bytes, int8_t *scale, uint8_t *min) {
  for (int i = 0; i < 16; i++) {
    scale[i] = (int8_t)(bytes[i] & 15);
    min[i] = bytes[i] >> 4;
  }
}

/* Q3_K: 16 scales of 6 bits from 12 bytes. */
static void subs_q3_k(const uint8_t *bytes, int8_t *scale) {
  for (int i = 0; i < 16; i++) {
    int low = i < 8 ? bytes[i] & 15 : bytes[i - 8] >> 4;
    int top = bytes[8 + i % 4] >> 2 * (i / 4) & 3;
    scale[i] = (int8_t)((low | top << 4) - 32);
  }
}

/* IQ4_XS: 8 scales of 6 bits; their high pairs of bits in a u16 stand before the low nibbles. */
static void subs_iq4_xs(const uint8_t *bytes, int8_t *scale) {
  int high = load_u16(bytes);
  for (int i = 0; i < 8; i++) {
    int low = bytes[2 + i / 2] >> (i % 2 * 4) & 15;
    scale[i] = (int8_t)((low | (high >> 2 * i & 3) << 4) - 32);
  }
}

void quant_block_subs(weight_format_t format, const uint8_t *block, int8_t *scale, uint8_t *min) {
  switch (format) {
  case WEIGHT_Q4_K:
  case WEIGHT_Q5_K: subs_q45_k(block + 4, scale, min); return;
  case WEIGHT_Q2_K: subs_q2_k(block, scale, min); return;
  case WEIGHT_Q3_K: subs_q3_k(block + 96, scale); return;
  case WEIGHT_Q6_K: memcpy(scale, block + 192, 16); return;
  default: subs_iq4_xs(block + 2, scale); return;
  }
}

/* Q4_K: d, dmin, 12 scales, 128 nibbles. Q5_K: 32 bytes of fifth bits before the nibbles. */
static void read_q45_k(const uint8_t *block, bool five, quant_chunk_t *out) {
  out->super_scale = load_f16(block);
  out->super_min = load_f16(block + 2);
  const uint8_t *high = block + 16, *qs = high + (five ? 32 : 0);
  for (int i = 0; i < 4; i++) nibbles(qs + 32 * i, 32, out->codes + 64 * i);
  for (int i = 0; five && i < 256; i += 8) {
    uint64_t fifth = load_eight(high + i % 32) >> i / 32 & EACH(1);
    uint64_t eight = load_eight(out->codes + i) | fifth << 4;
    memcpy(out->codes + i, &eight, sizeof eight);
  }
}

/* Q2_K: 16 bytes of scale and minimum, 64 bytes of 2-bit codes, d, dmin. */
static void read_q2_k(const uint8_t *block, quant_chunk_t *out) {
  const uint8_t *qs = block + 16;
  out->super_scale = load_f16(block + 80);
  out->super_min = load_f16(block + 82);
  for (int i = 0; i < 256; i++) {
    int half = i / 128, part = i % 128 / 32;
    out->codes[i] = qs[32 * half + i % 32] >> 2 * part & 3;
  }
}

/* Q3_K: 32 bytes of third bits, 64 bytes of 2-bit codes, 12 bytes of 6-bit scales, d. */
static void read_q3_k(const uint8_t *block, quant_chunk_t *out) {
  const uint8_t *high = block, *qs = block + 32;
  out->super_scale = load_f16(block + 108);
  for (int i = 0; i < 256; i++) {
    int half = i / 128, part = i % 128 / 32, bit = high[i % 32] >> i / 32 & 1;
    out->codes[i] = (uint8_t)((qs[32 * half + i % 32] >> 2 * part & 3) | bit << 2);
  }
}

/* Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 signed scales, d. */
static void read_q6_k(const uint8_t *block, quant_chunk_t *out) {
  out->super_scale = load_f16(block + 208);
  for (int i = 0; i < 256; i++) {
    int half = i / 128, part = i % 128 / 32, l = i % 32;
    int low = block[64 * half + 32 * (part % 2) + l] >> (part / 2 * 4) & 15;
    int high = block[128 + 32 * half + l] >> 2 * part & 3;
    out->codes[i] = (uint8_t)(low | high << 4);
  }
}

/* IQ4_XS: d, u16 of high scale bits, 4 bytes of low scale nibbles, 128 bytes of nibbles. */
static void read_iq4_xs(const uint8_t *block, quant_chunk_t *out) {
  out->super_scale = load_f16(block);
  for (int i = 0; i < 8; i++) nibbles(block + 8 + 16 * i, 16, out->codes + 32 * i);
}

/* Half of an unsigned e4m3 number (bias 7), because the levels of NVFP4 are doubled. 0x7f is NaN
 * and reads as 0, as in llama.cpp. */
static float half_of_e4m3(uint8_t byte) {
  int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (byte == 0x7f) return 0;
  if (exponent == 0) return (float)mantissa * 0x1p-10f;
  return (float)(8 + mantissa) * float_from_bits((uint32_t)(exponent - 11 + 127) << 23);
}

/* NVFP4: 4 scales, then 8 bytes of nibbles for each group of 16. */
static void read_nvfp4(const uint8_t *block, uint8_t *codes, float *scale) {
  for (int i = 0; i < 4; i++) {
    scale[i] = half_of_e4m3(block[i]);
    nibbles(block + 4 + 8 * i, 8, codes + 16 * i);
  }
}

void quant_block_read(weight_format_t format, const uint8_t *block, int32_t col,
                      quant_chunk_t *out) {
  switch (format) {
  case WEIGHT_Q4_K: read_q45_k(block, false, out); break;
  case WEIGHT_Q5_K: read_q45_k(block, true, out); break;
  case WEIGHT_Q2_K: read_q2_k(block, out); break;
  case WEIGHT_Q3_K: read_q3_k(block, out); break;
  case WEIGHT_Q6_K: read_q6_k(block, out); break;
  case WEIGHT_IQ4_XS: read_iq4_xs(block, out); break;
  case WEIGHT_NVFP4: read_nvfp4(block, out->codes + col, out->scale + col / 16); return;
  default:
    read_small(format, block, out->codes + col, out->scale + col / 32, out->min + col / 32);
    return;
  }
  quant_block_subs(format, block, out->sub_scale, out->sub_min);
}

int32_t quant_block_halves(weight_format_t format, int32_t *out) {
  out[0] = 0;
  out[1] = 2;
  switch (format) {
  case WEIGHT_GGUF_MXFP4:
  case WEIGHT_NVFP4: return 0;
  case WEIGHT_Q4_1:
  case WEIGHT_Q5_1:
  case WEIGHT_Q4_K:
  case WEIGHT_Q5_K: return 2;
  case WEIGHT_Q2_K:
    out[0] = 80;
    out[1] = 82;
    return 2;
  case WEIGHT_Q3_K: out[0] = 108; return 1;
  case WEIGHT_Q6_K: out[0] = 208; return 1;
  default: return 1;
  }
}
