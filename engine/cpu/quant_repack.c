/* quant_repack.c: blocks of GGUF files into one column of a panel, bit field by bit field.
 *
 * Called by pool workers while a model loads, about as fast as memory gives the file. A block holds
 * its codes in an order of its own; quant_blocks.c has it. Here eight bytes at a time become lines
 * of quant_layout.h: line l of a plane is at out + l * QUANT_LINE, and what belongs to the next 32
 * rows of depth `stride` bytes further. Scales keep the bits they have.
 */
#include "engine/cpu/weight.h"
#include "engine/quant/quant_blocks.h"

#include <string.h>

/* A byte eight times. */
#define EACH(byte) (0x0101010101010101u * (byte))

enum { HALF_SIGN = 0x8000, E4M3_NAN = 0x7f };

static uint64_t load_eight(const uint8_t *from) {
  uint64_t eight;
  memcpy(&eight, from, sizeof eight);
  return eight;
}

static void put_line(uint8_t *out, int32_t line, uint32_t word) {
  memcpy(out + line * QUANT_LINE, &word, sizeof word);
}

/* Eight bytes with one field each, of 4, 2 or 1 bits: the fields of the last four bytes move above
 * those of the first four. */
static uint32_t join_4(uint64_t fields) {
  return (uint32_t)(fields | fields >> 28);
}
static uint32_t join_2(uint64_t fields) {
  return (uint32_t)(fields | fields >> 30);
}
static uint32_t join_1(uint64_t fields) {
  return (uint32_t)(fields | fields >> 31);
}

/* `count` lines of the low nibbles of 8 * count bytes, and as many of the high ones. */
static void nibble_lines(const uint8_t *from, int32_t count, uint8_t *low, uint8_t *high) {
  for (int32_t i = 0; i < count; i++) {
    uint64_t eight = load_eight(from + 8 * i);
    put_line(low, i, join_4(eight & EACH(15)));
    put_line(high, i, join_4(eight >> 4 & EACH(15)));
  }
}

/* Two lines of the fields of 2 bits that begin at bit `shift` of 32 bytes. */
static void pair_lines(const uint8_t *from, int32_t shift, uint8_t *out) {
  for (int32_t i = 0; i < 2; i++) {
    uint64_t first = load_eight(from + 16 * i) >> shift & EACH(3);
    uint64_t second = load_eight(from + 16 * i + 8) >> shift & EACH(3);
    put_line(out, i, join_2(first) | join_2(second) << 4);
  }
}

/* One line of bit `bit` of 32 bytes. */
static void bit_line(const uint8_t *from, int32_t bit, uint8_t *out) {
  uint32_t line = 0;
  for (int32_t i = 0; i < 4; i++)
    line |= join_1(load_eight(from + 8 * i) >> bit & EACH(1)) << 2 * i;
  put_line(out, 0, line);
}

/* One line of 32 bits that stand one after the other. */
static void bits_line(const uint8_t *from, uint8_t *out) {
  uint32_t bits, line = 0;
  memcpy(&bits, from, sizeof bits);
  for (int32_t i = 0; i < 8; i++) /* the product has bit j of the four at bit 8 j, among others */
    line |= ((bits >> 4 * i & 15) * 0x00204081u & 0x01010101u) << i;
  put_line(out, 0, line);
}

static void byte_lines(const uint8_t *from, uint8_t *out) {
  for (int32_t i = 0; i < 4; i++) {
    uint64_t eight = load_eight(from + 8 * i) ^ EACH(0x80);
    put_line(out, 2 * i, (uint32_t)eight);
    put_line(out, 2 * i + 1, (uint32_t)(eight >> 32));
  }
}

/* The 256 weights of Q6_K: nibbles and pairs of bits, see read_q6_k in quant_blocks.c. */
static void lines_q6_k(const uint8_t *block, size_t stride, uint8_t *out) {
  for (int32_t half = 0; half < 2; half++, out += 4 * stride) {
    for (size_t i = 0; i < 2; i++)
      nibble_lines(block + 64 * half + 32 * i, 4, out + i * stride, out + (i + 2) * stride);
    for (int32_t i = 0; i < 4; i++)
      pair_lines(block + 128 + 32 * half, 2 * i, out + (size_t)i * stride + 4 * QUANT_LINE);
  }
}

/* The codes of a block. */
static void repack_codes(weight_format_t format, const uint8_t *block, size_t stride,
                         uint8_t *out) {
  switch (format) {
  case WEIGHT_Q8_0: byte_lines(block + 2, out); return;
  case WEIGHT_Q4_1: nibble_lines(block + 4, 2, out, out + 2 * QUANT_LINE); return;
  case WEIGHT_GGUF_MXFP4: nibble_lines(block + 1, 2, out, out + 2 * QUANT_LINE); return;
  case WEIGHT_Q5_0:
  case WEIGHT_Q5_1:
    block += format == WEIGHT_Q5_1 ? 4 : 2;
    nibble_lines(block + 4, 2, out, out + 2 * QUANT_LINE);
    bits_line(block, out + 4 * QUANT_LINE);
    return;
  case WEIGHT_NVFP4:
    for (int32_t i = 0; i < 4; i++) {
      uint8_t *half = out + (size_t)(i / 2) * stride + i % 2 * 2 * QUANT_LINE;
      nibble_lines(block + 4 + 8 * i, 1, half, half + QUANT_LINE);
    }
    return;
  case WEIGHT_IQ4_XS:
    for (int32_t i = 0; i < 8; i++, out += stride)
      nibble_lines(block + 8 + 16 * i, 2, out, out + 2 * QUANT_LINE);
    return;
  case WEIGHT_Q4_K:
    for (int32_t i = 0; i < 4; i++, out += 2 * stride)
      nibble_lines(block + 16 + 32 * i, 4, out, out + stride);
    return;
  case WEIGHT_Q5_K:
    for (int32_t i = 0; i < 8; i++)
      bit_line(block + 16, i, out + (size_t)i * stride + 4 * QUANT_LINE);
    for (int32_t i = 0; i < 4; i++, out += 2 * stride)
      nibble_lines(block + 48 + 32 * i, 4, out, out + stride);
    return;
  case WEIGHT_Q6_K: lines_q6_k(block, stride, out); return;
  case WEIGHT_Q2_K:
    for (int32_t i = 0; i < 8; i++, out += stride)
      pair_lines(block + 16 + 32 * (i / 4), i % 4 * 2, out);
    return;
  case WEIGHT_Q3_K:
    for (int32_t i = 0; i < 8; i++, out += stride) {
      pair_lines(block + 32 + 32 * (i / 4), i % 4 * 2, out);
      bit_line(block, i, out + 2 * QUANT_LINE);
    }
    return;
  default: nibble_lines(block + 2, 2, out, out + 2 * QUANT_LINE); return; /* Q4_0, IQ4_NL */
  }
}

/* Where the scale, kind 0, or minimum, kind 1, of a group of 16 or 32 stands: `size` bytes. */
static uint8_t *scale_place(const panel_column_t *column, int32_t group, int32_t kind,
                            const size_t size) {
  const int32_t pairs = column->layout->group < QUANT_DEPTH_ALIGN; /* of groups, in a span */
  const int32_t at = (kind << pairs) + (group & pairs);
  return column->spans + (size_t)(group >> pairs) * column->span_bytes +
         size * (size_t)(at * PANEL_COLS + column->lane);
}

/* The scales of a block of a two-level format, which is a whole chunk. */
static void repack_two_level(const quant_format_t *format, const uint8_t *block,
                             const panel_column_t *column) {
  int8_t scale[QUANT_GROUPS];
  uint8_t min[QUANT_GROUPS];
  int32_t halves[2], count = quant_block_halves(format->format, halves);
  const int32_t groups = format->group == QUANT_GROUP_MIN ? QUANT_GROUPS : QUANT_GROUPS / 2;
  for (int32_t i = 0; i < count; i++)
    memcpy(column->chunk + 2 * (i * PANEL_COLS + column->lane), block + halves[i], 2);
  if (format->format == WEIGHT_Q2_K) { /* a byte has both */
    for (int32_t g = 0; g < groups; g++) *scale_place(column, g, 0, 1) = block[g];
    return;
  }
  quant_block_subs(format->format, block, scale, min);
  for (int32_t g = 0; g < groups; g++) {
    *scale_place(column, g, 0, 1) = (uint8_t)scale[g];
    if (count == 2) *scale_place(column, g, 1, 1) = min[g];
  }
}

void quant_repack(const quant_format_t *format, const uint8_t *block, int32_t col,
                  const panel_column_t *column) {
  const int32_t pairs = format->group < QUANT_DEPTH_ALIGN, row = col / QUANT_DEPTH_ALIGN;
  const int32_t group = row << pairs;
  uint8_t *span = column->spans + (size_t)row * column->span_bytes;
  uint16_t half;
  repack_codes(format->format, block, column->span_bytes,
               span + column->scale_bytes + 4 * column->lane);
  if (format->is_two_level) {
    repack_two_level(format, block, column);
  } else if (format->format == WEIGHT_GGUF_MXFP4) {
    *scale_place(column, group, 0, 1) = *block;
  } else if (format->format == WEIGHT_NVFP4) {
    for (int i = 0; i < 4; i++)
      *scale_place(column, group + i, 0, 1) = block[i] == E4M3_NAN ? 0 : block[i] & E4M3_NAN;
  } else {
    memcpy(scale_place(column, group, 0, 2), block, 2);
    if (!format->has_min) return;
    memcpy(&half, block + 2, 2);
    half ^= HALF_SIGN; /* what is added in the file is subtracted here */
    memcpy(scale_place(column, group, 1, 2), &half, 2);
  }
}
