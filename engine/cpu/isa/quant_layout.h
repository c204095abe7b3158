/* quant_layout.h: quantised weights as the CPU kernels read them, and the activations beside them.
 *
 * A panel of 64 output columns is a sequence of chunks of 256 rows of depth (the last may be
 * shorter). A chunk is a head, which only some kinds of scales have, then spans: one group, or the
 * two groups of 32 rows. A span is its scales, then its codes, so that a kernel which takes a few
 * rows of activations reads one stream:
 *
 *   scales of numbers   f16, bf16 or f32 scale[groups][64], then min[groups][64]; or instead of
 *                       these uint8 [groups][64] zero points: min = scale * zero point, unless
 *                       one zero point serves for all
 *   scales two-level    head f16 d[64], dmin[64]; int8 scale[groups][64], uint8 min[groups][64]
 *   scales nibbles      the same, but uint8 [groups][64]: scale in the low, min in the high nibble
 *   scales e8m0         byte e [groups][64]: 2^(e - 128), because the levels are doubled
 *   scales e4m3         byte [groups][64]: half of the number, without NaN
 *   scales factor       head f32 factor[64]; byte [groups][64]: half of e4m3 number * factor
 *   codes               for each 32 rows of depth a plane of low bits, then one of the high bits
 *   plane of n bits     [n][64][4]: byte i of line l has row l * 32 / n + i in its lowest n bits,
 *                       row 4 + i of the line in the next n, and so on
 *
 * Codes of 8 and 4 bits have one plane, those of 5 and 6 bits planes of 4 and of 1 or 2, those of 2
 * and 3 bits planes of 2 and of 0 or 1. A table may give the code of a number of 4 bits. Minima are
 * stored only if the layout has them. weight = scale * (code - offset) - min.
 *
 * A row of activations is quantised by itself: 32 columns share scale = max |x| / 127, and q =
 * round(x / scale). Columns of very small numbers (max |x| < 2^-100) become zeros; if one of the
 * 32 is NaN or infinite, their scale is NaN. A product of a group is an exact integer; groups are
 * added in the order of depth, so that every kernel of a tier gives the same bits.
 * Plain data and pure functions, any thread.
 */
#ifndef INFERD_ENGINE_CPU_ISA_QUANT_LAYOUT_H
#define INFERD_ENGINE_CPU_ISA_QUANT_LAYOUT_H

#include "engine/quant/quant.h"

enum {
  QUANT_DEPTH_ALIGN = 32, /* columns of activations that share a scale; depth is padded to it */
  PANEL_COLS = 64,        /* output columns of a weight panel */
  QUANT_LINE = 4 * PANEL_COLS, /* bytes of a line of a plane */
  QUANT_GROUPS = QUANT_CHUNK / QUANT_GROUP_MIN,
  QUANT_X_EIGHTHS = 11,     /* eighths of a byte, times depth: q, scales and sums of a row */
  QUANT_X_WIDE_EIGHTHS = 27 /* the same with pairs of 16-bit numbers */
};

typedef enum quant_scales {
  QUANT_SCALES_F16,
  QUANT_SCALES_BF16,
  QUANT_SCALES_F32,
  QUANT_SCALES_TWO_LEVEL,
  QUANT_SCALES_NIBBLES, /* of two levels, too */
  QUANT_SCALES_E8M0,
  QUANT_SCALES_E4M3,
  QUANT_SCALES_FACTOR
} quant_scales_t;

typedef struct quant_layout {
  quant_scales_t scales;
  int32_t bits;   /* of a code in memory: 2, 3, 4, 5, 6 or 8 */
  int32_t group;  /* rows of depth that share a scale: 16, 32, 64, 128 or 256 */
  int32_t offset; /* subtracted from codes, after the look-up in the table */
  bool has_min, has_table;
  int32_t zero_point; /* in place of minima, see group_scales_t; has_min, too */
  uint8_t table[16];  /* the code of each number of 4 bits; the number itself without has_table */
} quant_layout_t;

/* A panel of fp8 with its scales; codes [depth / 2][64][2] of e4m3, no NaN, follow the scales. */
typedef struct fp8_panel {
  const float *scale;           /* [groups][64] */
  int64_t groups, group, depth; /* scales of a column; rows of depth of each, even */
} fp8_panel_t;

/* Bits of the plane of low bits; the others of a code are in the plane of high bits. */
static inline int32_t quant_low_bits(int32_t bits) {
  return bits == 8 ? 8 : bits < 4 ? 2 : 4;
}

/* Rows of depth of a span, and its groups. */
static inline int32_t quant_span(const quant_layout_t *layout) {
  return layout->group < QUANT_DEPTH_ALIGN ? QUANT_DEPTH_ALIGN : layout->group;
}
static inline int32_t quant_span_groups(const quant_layout_t *layout) {
  return layout->group < QUANT_DEPTH_ALIGN ? 2 : 1;
}

/* Bytes of the head of a chunk, of one scale or minimum, and of the scales of a span. */
static inline size_t quant_head_bytes(const quant_layout_t *layout) {
  switch (layout->scales) {
  case QUANT_SCALES_TWO_LEVEL:
  case QUANT_SCALES_NIBBLES: return sizeof(uint16_t) * PANEL_COLS * (size_t)(layout->has_min + 1);
  case QUANT_SCALES_FACTOR: return sizeof(float) * PANEL_COLS;
  default: return 0;
  }
}
static inline size_t quant_scale_size(const quant_layout_t *layout) {
  switch (layout->scales) {
  case QUANT_SCALES_F32: return sizeof(float);
  case QUANT_SCALES_F16:
  case QUANT_SCALES_BF16: return sizeof(uint16_t);
  default: return 1;
  }
}
static inline size_t quant_scale_bytes(const quant_layout_t *layout) {
  size_t size = quant_scale_size(layout);
  if (layout->zero_point == ZERO_POINT_EACH)
    size += 1;
  else if (layout->zero_point == ZERO_POINT_NONE && layout->scales != QUANT_SCALES_NIBBLES)
    size *= (size_t)(layout->has_min + 1);
  return size * (size_t)quant_span_groups(layout) * PANEL_COLS;
}

/* Where the span of row `k` of a chunk begins, and the codes of its 32 rows; bytes of a chunk of
 * `cols` rows. */
static inline size_t quant_span_at(const quant_layout_t *layout, int32_t k) {
  const int32_t span = quant_span(layout), codes = span * PANEL_COLS / 8 * layout->bits;
  return quant_head_bytes(layout) +
         (size_t)(k / span) * (quant_scale_bytes(layout) + (size_t)codes);
}
static inline size_t quant_codes_at(const quant_layout_t *layout, int32_t k) {
  const int32_t block = k % quant_span(layout) / QUANT_DEPTH_ALIGN;
  return quant_span_at(layout, k) + quant_scale_bytes(layout) +
         (size_t)(block * layout->bits * QUANT_LINE);
}
static inline size_t quant_chunk_bytes(const quant_layout_t *layout, int32_t cols) {
  const size_t spans = (size_t)((cols + quant_span(layout) - 1) / quant_span(layout));
  return quant_head_bytes(layout) + spans * quant_scale_bytes(layout) +
         (size_t)(cols * PANEL_COLS * layout->bits / 8);
}

/* Where the parts of a staged row begin: int8 q[depth], then these. */
static inline float *quant_x_scales(const uint8_t *row, int64_t depth) {
  return (float *)(void *)(uintptr_t)(row + depth); /* [depth / 32] */
}
static inline int32_t *quant_x_sums(const uint8_t *row, int64_t depth) {
  return (int32_t *)(void *)(uintptr_t)(row + depth + depth / 8); /* [depth / 16] sums of q */
}
/* Tiers that multiply 16-bit numbers: [depth / 4] times q0 q2 q1 q3. */
static inline int16_t *quant_x_pairs(const uint8_t *row, int64_t depth) {
  return (int16_t *)(void *)(uintptr_t)(row + depth + depth / 8 + depth / 4);
}

#endif
