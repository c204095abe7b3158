/* weight_source.h: element types, and a matrix as a loader passes it to a back end.
 *
 * Plain data and one callback. Engine thread while a model loads, and the back end's threads.
 */
#ifndef INFERD_ENGINE_DEVICE_WEIGHT_SOURCE_H
#define INFERD_ENGINE_DEVICE_WEIGHT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

typedef enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16 } dtype_t;

static inline size_t dtype_size(dtype_t dtype) {
  return dtype == DTYPE_F32 ? 4 : 2;
}

/* How the elements of a row are stored. A back end lists in ops_t.weight_formats the formats that
 * it takes besides WEIGHT_PLAIN; the loader converts the other formats to plain elements.
 * WEIGHT_MXFP4 (OCP microscaling formats 1.0): cols is a multiple of 32; a row is cols / 32 blocks
 * of 17 bytes. A block is 16 bytes of nibbles, low nibble first (a sign bit, then 0 .5 1 1.5 2 3 4
 * 6 by the low three bits), and the exponent byte e, 0..254: each value is multiplied by 2^(e -
 * 127). Every such product is a bf16 number.
 * WEIGHT_Q4_0 to WEIGHT_NVFP4: rows of blocks as GGUF files hold them; engine/quant/quant.h.
 * WEIGHT_GROUPED: u8 codes[cols], padded to a multiple of 4 bytes, then float scale[n], then float
 * min[n], n = ceil(cols / group); value = scale * code - min, both of the group of the column.
 * WEIGHT_GROUPED_4: the same, and no code is above 15.
 * WEIGHT_GROUPED_FP4: the same, but a code is a nibble of MXFP4, value = scale * (twice the number
 * of the nibble), and the minima do not count.
 * WEIGHT_GROUPED_FP8: the same, but a code is an e4m3 number, no NaN, and value = scale * it. */
typedef enum weight_format {
  WEIGHT_PLAIN,
  WEIGHT_MXFP4,
  WEIGHT_Q4_0,
  WEIGHT_Q4_1,
  WEIGHT_Q5_0,
  WEIGHT_Q5_1,
  WEIGHT_Q8_0,
  WEIGHT_Q2_K,
  WEIGHT_Q3_K,
  WEIGHT_Q4_K,
  WEIGHT_Q5_K,
  WEIGHT_Q6_K,
  WEIGHT_IQ4_NL,
  WEIGHT_IQ4_XS,
  WEIGHT_GGUF_MXFP4,
  WEIGHT_NVFP4,
  WEIGHT_GROUPED,
  WEIGHT_GROUPED_4,
  WEIGHT_GROUPED_FP4,
  WEIGHT_GROUPED_FP8
} weight_format_t;
enum { MXFP4_COLS = 32, MXFP4_BYTES = 17 };

/* What is known of the scales of all grouped rows of a matrix, so that a back end may keep them in
 * fewer bits. */
typedef enum scale_kind {
  SCALES_ANY,
  SCALES_F16, /* numbers of that type */
  SCALES_BF16,
  SCALES_POWERS, /* powers of two, 2^-128 to 2^126 */
  SCALES_E4M3    /* of WEIGHT_GROUPED_FP4: half of an e4m3 number times the min of the group */
} scale_kind_t;

enum { ZERO_POINT_NONE = 0, ZERO_POINT_EACH = -1 };

typedef struct group_scales {
  scale_kind_t kind;
  /* Unless NONE, a min is its scale times an integer, rounded to fp32: this one, 1..255, or EACH
   * group has its own, 0..255. */
  int32_t zero_point;
} group_scales_t;

/* A matrix [rows, cols] as the loader offers it. `row` returns the `cols` elements (or the blocks)
 * of one row: a pointer into the mapped file, or into `scratch` (max(cols, whole_cols) * 4 bytes,
 * 64-byte aligned), where it has gathered them. `row` is thread-safe, so a back end may pack with
 * many threads. */
typedef struct weight_source {
  const char *name; /* for messages */
  int64_t rows, cols;
  int64_t whole_cols; /* of the stored rows where the matrix is some of their columns, else 0 */
  int32_t stack; /* number of stacked matrices (experts), of rows / stack rows each; 0 means 1 */
  weight_format_t format; /* of every row if row_format is NULL */
  dtype_t dtype;          /* of the elements if WEIGHT_PLAIN, else the type that products run in */
  int32_t group;          /* of grouped rows: columns that share a scale, a multiple of 16 */
  group_scales_t scales;  /* of grouped rows */
  /* NULL, or the format of one row: the rows of fused tensors may differ. WEIGHT_PLAIN and
   * WEIGHT_MXFP4 do not mix with another format. Thread-safe. */
  weight_format_t (*row_format)(void *context, int64_t row);
  const void *(*row)(void *context, int64_t row, void *scratch);
  void *context;
} weight_source_t;

#endif
