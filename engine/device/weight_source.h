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

/* How the elements of a matrix are stored. A back end lists in ops_t.weight_formats the formats
 * that it takes besides WEIGHT_PLAIN; the loader converts the other formats to plain elements.
 * WEIGHT_MXFP4 (OCP microscaling formats 1.0): cols is a multiple of 32; a row is cols / 32 blocks
 * of 17 bytes. A block is 16 bytes of nibbles, low nibble first (a sign bit, then 0 .5 1 1.5 2 3 4
 * 6 by the low three bits), and the exponent byte e, 0..254: each value is multiplied by 2^(e -
 * 127). Every such product is a bf16 number. */
typedef enum weight_format { WEIGHT_PLAIN, WEIGHT_MXFP4 } weight_format_t;
enum { MXFP4_COLS = 32, MXFP4_BYTES = 17 };

/* A matrix [rows, cols] as the loader offers it. `row` returns the `cols` elements (or the blocks)
 * of one row: a pointer into the mapped file, or into `scratch` (cols * 4 bytes, 64-byte aligned),
 * where it has gathered them. `row` is thread-safe, so a back end may pack with many threads. */
typedef struct weight_source {
  const char *name; /* for messages */
  int64_t rows, cols;
  int32_t stack; /* number of stacked matrices (experts), of rows / stack rows each; 0 means 1 */
  weight_format_t format;
  dtype_t dtype; /* of the elements if WEIGHT_PLAIN, else the type that products run in */
  const void *(*row)(void *context, int64_t row, void *scratch);
  void *context;
} weight_source_t;

#endif
