/* quant.h: the block formats of quantised weights, read into one common form.
 *
 * A row of a matrix is a sequence of blocks along its columns. The common form is a chunk: 256
 * columns, or what is left of the row, with one unsigned code per weight and one scale (and one
 * minimum) per group of columns:
 *
 *   value = scale * level(code) - minimum,  level = table[code], or code - offset without a table.
 *
 * fp32 holds every scale of every format exactly, so a value has the bits that the definition of
 * the format gives. Layouts are those of ggml-common.h (llama.cpp) and of `dequantize_blocks` in
 * its Python package gguf. Pure functions, any thread; rows may be unaligned.
 */
#ifndef INFERD_ENGINE_QUANT_QUANT_H
#define INFERD_ENGINE_QUANT_QUANT_H

#include "engine/device/weight_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  QUANT_CHUNK = 256,   /* columns of a chunk; a multiple of every block */
  QUANT_GROUP_MIN = 16 /* columns of the smallest group */
};

typedef struct quant_format {
  const char *name; /* "Q4_K" */
  weight_format_t format;
  int32_t gguf_type;               /* number in a GGUF file, -1 = none */
  int32_t block_cols, block_bytes; /* of a block: 32, 64 or 256 weights; grouped: 16 and 0 */
  int32_t group;                   /* columns of a group: 16 or 32 */
  int32_t num_codes;               /* codes are 0 .. num_codes - 1 */
  int32_t offset;                  /* level = code - offset if there is no table */
  const int8_t *table;             /* [16] levels of the codes, or NULL */
  bool has_min, is_two_level;      /* see quant_chunk_t */
} quant_format_t;

/* 256 columns of a row, or the rest of the row. Each group of columns has one scale and one min. In
 * a two-level format these are products: scale = super_scale * sub_scale, min = super_min *
 * sub_min. The super values are f16 numbers that the whole chunk shares. Other formats leave the
 * super and sub values unset; formats without minima leave the minima unset. */
typedef struct quant_chunk {
  int32_t cols;               /* columns in the chunk, at most 256 */
  uint8_t codes[QUANT_CHUNK]; /* [cols] */
  float scale[QUANT_CHUNK / QUANT_GROUP_MIN], min[QUANT_CHUNK / QUANT_GROUP_MIN];
  float super_scale, super_min;
  int8_t sub_scale[QUANT_CHUNK / QUANT_GROUP_MIN];
  uint8_t sub_min[QUANT_CHUNK / QUANT_GROUP_MIN];
} quant_chunk_t;

/* True for WEIGHT_GROUPED and what follows it: groups have the size that the source says. */
static inline bool quant_is_grouped(const quant_format_t *format) {
  return format->format >= WEIGHT_GROUPED;
}

/* Returns the description of a format, or NULL for WEIGHT_PLAIN and WEIGHT_MXFP4. */
const quant_format_t *quant_format(weight_format_t format);
/* Returns the description of the format that has this type number in GGUF files; NULL if the number
 * is unknown or the type is not quantised. */
const quant_format_t *quant_by_gguf_type(uint32_t type);

/* Bytes of a row of `cols` columns; `group` matters to grouped rows alone. 0 if the format cannot
 * divide such a row: cols is not a multiple of a block, or group is not a multiple of 16. */
size_t quant_row_bytes(const quant_format_t *format, int32_t group, int64_t cols);

/* Reads columns [first, first + 256) of a row of `cols` columns; `first` is a multiple of 256. The
 * group of chunks of grouped rows becomes format->group: scales are repeated. */
void quant_read(const quant_format_t *format, int32_t group, const void *row, int64_t cols,
                int64_t first, quant_chunk_t *out);

/* out[cols] = the values of a row. */
void quant_decode(const quant_format_t *format, int32_t group, const void *row, int64_t cols,
                  float *out);

/* Writes one Q8_0 block of 32 finite numbers, as llama.cpp rounds them: d = max |x| / 127. */
void quant_encode_q8_0(const float *values, uint8_t *out);

/* Returns true if all scales and minima of a row are finite. A loader calls this for every row of
 * an untrusted file, so it reads the scales only, not the codes. */
bool quant_is_finite(const quant_format_t *format, int32_t group, const void *row, int64_t cols);

#endif
