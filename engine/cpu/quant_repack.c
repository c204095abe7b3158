/* quant_repack.c: blocks of GGUF files into four columns of a panel, bit field by bit field.
 *
 * Called by pool workers while a model loads, about as fast as memory gives the file. A block holds
 * its codes in an order of its own; quant_blocks.c has it. Here the words of four blocks are
 * transposed: then a vector has the same word of four neighbouring columns, and vectors become
 * lines of quant_layout.h, 16 bytes of each. Line l of a plane is at out + l * QUANT_LINE, and what
 * belongs to the next 32 rows of depth `stride` bytes further. Scales keep the bits they have.
 */
#include "engine/cpu/weight.h"
#include "engine/quant/quant_blocks.h"

#include <string.h>

/* A byte four times. */
#define EACH(byte) (0x01010101u * (byte))

enum { HALF_SIGN = 0x8000, E4M3_NAN = 0x7f, BLOCK_BYTES_MAX = 210 };

/* A word of each of four columns; the compiler makes vector instructions of any machine of it. */
typedef uint32_t words_t __attribute__((vector_size(4 * REPACK_COLUMNS)));

/* Words [at / 4, at / 4 + 4) of the four blocks. */
static void load_four(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, words_t out[4]) {
  words_t row[4];
  for (int i = 0; i < 4; i++) memcpy(&row[i], blocks[i] + at, sizeof row[i]);
  const words_t a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const words_t b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const words_t c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const words_t d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

static uint32_t word_at(const uint8_t *from) {
  uint32_t word;
  memcpy(&word, from, sizeof word);
  return word;
}

static void put_line(uint8_t *out, int32_t line, words_t words) {
  memcpy(out + line * QUANT_LINE, &words, sizeof words);
}

/* A line of the low nibbles of eight bytes of each column, and one of the high ones: the nibbles of
 * the last four bytes stand above those of the first four. */
static void nibble_line(words_t first, words_t last, uint8_t *low, uint8_t *high) {
  put_line(low, 0, (first & EACH(15)) | (last & EACH(15)) << 4);
  put_line(high, 0, (first >> 4 & EACH(15)) | (last & EACH(240u)));
}

/* Lines of 16 * count bytes. */
static void nibble_lines(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, int32_t count,
                         uint8_t *low, uint8_t *high) {
  for (int32_t i = 0; i < count; i++, low += 2 * QUANT_LINE, high += 2 * QUANT_LINE) {
    words_t words[4];
    load_four(blocks, at + 16 * (size_t)i, words);
    nibble_line(words[0], words[1], low, high);
    nibble_line(words[2], words[3], low + QUANT_LINE, high + QUANT_LINE);
  }
}

/* Two lines of the fields of 2 bits that begin at bit `shift` of 32 bytes. */
static void pair_lines(const words_t words[8], int32_t shift, uint8_t *out) {
  for (int32_t i = 0; i < 2; i++, words += 4) {
    words_t line = words[0] >> shift & EACH(3);
    for (int32_t k = 1; k < 4; k++) line |= (words[k] >> shift & EACH(3)) << 2 * k;
    put_line(out, i, line);
  }
}

/* One line of bit `bit` of 32 bytes. */
static void bit_line(const words_t words[8], int32_t bit, uint8_t *out) {
  words_t line = words[0] >> bit & EACH(1);
  for (int32_t k = 1; k < 8; k++) line |= (words[k] >> bit & EACH(1)) << k;
  put_line(out, 0, line);
}

static void load_eight(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, words_t out[8]) {
  load_four(blocks, at, out);
  load_four(blocks, at + 16, out + 4);
}

/* One line of 32 bits of each column that stand one after the other. */
static void bits_line(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, uint8_t *out) {
  words_t bits, line = {0};
  for (int i = 0; i < REPACK_COLUMNS; i++) bits[i] = word_at(blocks[i] + at);
  for (int i = 0; i < 8; i++) /* the product has bit j of the four at bit 8 j, among others */
    line |= ((bits >> 4 * i & 15) * 0x00204081u & EACH(1)) << i;
  put_line(out, 0, line);
}

static void byte_lines(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, uint8_t *out) {
  words_t words[8];
  load_eight(blocks, at, words);
  for (int32_t i = 0; i < 8; i++) put_line(out, i, words[i] ^ EACH(0x80));
}

/* The 256 weights of Q6_K: nibbles and pairs of bits, see read_q6_k in quant_blocks.c. */
static void lines_q6_k(const uint8_t *const blocks[REPACK_COLUMNS], size_t stride, uint8_t *out) {
  for (size_t half = 0; half < 2; half++, out += 4 * stride) {
    words_t words[8];
    for (size_t i = 0; i < 2; i++)
      nibble_lines(blocks, 64 * half + 32 * i, 2, out + i * stride, out + (i + 2) * stride);
    load_eight(blocks, 128 + 32 * half, words);
    for (int32_t i = 0; i < 4; i++)
      pair_lines(words, 2 * i, out + (size_t)i * stride + 4 * QUANT_LINE);
  }
}

/* The bits of Q5_K above the nibbles. */
static void lines_q5_k(const uint8_t *const blocks[REPACK_COLUMNS], size_t stride, uint8_t *out) {
  words_t words[8];
  load_eight(blocks, 16, words);
  for (int32_t i = 0; i < 8; i++) bit_line(words, i, out + (size_t)i * stride + 4 * QUANT_LINE);
  for (size_t i = 0; i < 4; i++, out += 2 * stride)
    nibble_lines(blocks, 48 + 32 * i, 2, out, out + stride);
}

/* Pairs of bits from byte `at` on, and of Q3_K the bits above them, in the first bytes. */
static void lines_of_pairs(const uint8_t *const blocks[REPACK_COLUMNS], size_t at, bool has_bits,
                           size_t stride, uint8_t *out) {
  words_t bits[8] = {{0}}, words[8];
  if (has_bits) load_eight(blocks, 0, bits);
  for (int32_t half = 0; half < 2; half++) {
    load_eight(blocks, at + 32 * (size_t)half, words);
    for (int32_t i = 0; i < 4; i++, out += stride) {
      pair_lines(words, 2 * i, out);
      if (has_bits) bit_line(bits, 4 * half + i, out + 2 * QUANT_LINE);
    }
  }
}

static void lines_nvfp4(const uint8_t *const blocks[REPACK_COLUMNS], size_t stride, uint8_t *out) {
  words_t words[8];
  load_eight(blocks, 4, words);
  for (size_t i = 0; i < 4; i++) {
    uint8_t *half = out + i / 2 * stride + i % 2 * 2 * QUANT_LINE;
    nibble_line(words[2 * i], words[2 * i + 1], half, half + QUANT_LINE);
  }
}

/* The codes of four blocks. */
static void repack_codes(weight_format_t format, const uint8_t *const blocks[REPACK_COLUMNS],
                         size_t stride, uint8_t *out) {
  switch (format) {
  case WEIGHT_Q8_0: byte_lines(blocks, 2, out); return;
  case WEIGHT_Q4_1: nibble_lines(blocks, 4, 1, out, out + 2 * QUANT_LINE); return;
  case WEIGHT_GGUF_MXFP4: nibble_lines(blocks, 1, 1, out, out + 2 * QUANT_LINE); return;
  case WEIGHT_Q5_0:
    nibble_lines(blocks, 6, 1, out, out + 2 * QUANT_LINE);
    bits_line(blocks, 2, out + 4 * QUANT_LINE);
    return;
  case WEIGHT_Q5_1:
    nibble_lines(blocks, 8, 1, out, out + 2 * QUANT_LINE);
    bits_line(blocks, 4, out + 4 * QUANT_LINE);
    return;
  case WEIGHT_NVFP4: lines_nvfp4(blocks, stride, out); return;
  case WEIGHT_IQ4_XS:
    for (size_t i = 0; i < 8; i++, out += stride)
      nibble_lines(blocks, 8 + 16 * i, 1, out, out + 2 * QUANT_LINE);
    return;
  case WEIGHT_Q4_K:
    for (size_t i = 0; i < 4; i++, out += 2 * stride)
      nibble_lines(blocks, 16 + 32 * i, 2, out, out + stride);
    return;
  case WEIGHT_Q5_K: lines_q5_k(blocks, stride, out); return;
  case WEIGHT_Q6_K: lines_q6_k(blocks, stride, out); return;
  case WEIGHT_Q2_K: lines_of_pairs(blocks, 16, false, stride, out); return;
  case WEIGHT_Q3_K: lines_of_pairs(blocks, 32, true, stride, out); return;
  default: nibble_lines(blocks, 2, 1, out, out + 2 * QUANT_LINE); return; /* Q4_0, IQ4_NL */
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

/* Writes a byte for each group of each column, from bytes[4][QUANT_GROUPS]. */
static void put_groups(const panel_column_t *first, int32_t kind, int32_t groups,
                       const uint8_t *bytes) {
  typedef uint8_t bytes_t __attribute__((vector_size(sizeof(words_t))));
  for (int32_t g = 0; g < groups; g += 4, bytes += 4) {
    words_t words = {word_at(bytes), word_at(bytes + QUANT_GROUPS),
                     word_at(bytes + 2 * QUANT_GROUPS), word_at(bytes + 3 * QUANT_GROUPS)};
    bytes_t four = (bytes_t)words;
    /* Two such turns transpose 4 x 4 bytes; other ways to write them are made of single bytes. */
    for (int turn = 0; turn < 2; turn++) {
      words = (words_t)four;
      bytes_t high = (bytes_t)__builtin_shufflevector(words, words, 2, 3, 0, 1);
      four = __builtin_shufflevector(four, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                     23);
    }
    words = (words_t)four;
    for (int32_t i = 0; i < 4; i++) {
      const uint32_t word = words[i];
      memcpy(scale_place(first, g + i, kind, 1), &word, sizeof word);
    }
  }
}

/* The scales of blocks of a two-level format, which are a whole chunk. */
static void repack_two_level(const quant_format_t *format, const uint8_t *const *blocks,
                             int32_t count, const panel_column_t *first) {
  uint8_t scale[REPACK_COLUMNS][QUANT_GROUPS] = {{0}}, min[REPACK_COLUMNS][QUANT_GROUPS] = {{0}};
  int32_t halves[2], num_halves = quant_block_halves(format->format, halves);
  const int32_t groups = format->group == QUANT_GROUP_MIN ? QUANT_GROUPS : QUANT_GROUPS / 2;
  const bool both = format->format == WEIGHT_Q2_K; /* in one byte */
  for (int32_t r = 0; r < count; r++) {
    for (int32_t i = 0; i < num_halves; i++)
      memcpy(first->chunk + 2 * (i * PANEL_COLS + first->lane + r), blocks[r] + halves[i], 2);
    if (both)
      memcpy(scale[r], blocks[r], QUANT_GROUPS);
    else
      quant_block_subs(format->format, blocks[r], (int8_t *)scale[r], min[r]);
  }
  put_groups(first, 0, groups, scale[0]);
  if (num_halves == 2 && !both) put_groups(first, 1, groups, min[0]);
}

/* The scales of one block of another format; `col`: of its first column, in the chunk. */
static void repack_scales(const quant_format_t *format, const uint8_t *block, int32_t col,
                          const panel_column_t *column) {
  const int32_t pairs = format->group < QUANT_DEPTH_ALIGN;
  const int32_t group = col / QUANT_DEPTH_ALIGN << pairs;
  uint16_t half;
  if (format->format == WEIGHT_GGUF_MXFP4) {
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

void quant_repack(const quant_format_t *format, const uint8_t *const *given, int32_t count,
                  int32_t col, const panel_column_t *first) {
  static const uint8_t zeros[BLOCK_BYTES_MAX];
  const uint8_t *padded[REPACK_COLUMNS] = {zeros, zeros, zeros, zeros}, *const *blocks = given;
  uint8_t *span = first->spans + (size_t)(col / QUANT_DEPTH_ALIGN) * first->span_bytes;
  if (count < REPACK_COLUMNS) {
    memcpy(padded, given, (size_t)count * sizeof *padded);
    blocks = padded;
  }
  repack_codes(format->format, blocks, first->span_bytes,
               span + first->scale_bytes + 4 * first->lane);
  if (format->is_two_level) {
    repack_two_level(format, given, count, first);
    return;
  }
  for (int32_t i = 0; i < count; i++) {
    panel_column_t column = *first;
    column.lane += i;
    repack_scales(format, blocks[i], col, &column);
  }
}
