/* weight_source.h: element types, and a matrix as a loader hands it to a back end. */
#ifndef INFERD_ENGINE_DEVICE_WEIGHT_SOURCE_H
#define INFERD_ENGINE_DEVICE_WEIGHT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

typedef enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16 } dtype_t;

static inline size_t dtype_size(dtype_t dtype) {
  return dtype == DTYPE_F32 ? 4 : 2;
}

/* How the elements of a matrix are stored. A back end names the formats that it takes beside
 * WEIGHT_PLAIN in ops_t.weight_formats; the loader turns every other one into plain elements.
 * WEIGHT_MXFP4 (OCP microscaling formats 1.0): cols is a multiple of 32; a row is cols / 32 blocks
 * of 17 bytes: 16 bytes of nibbles, low nibble first (sign, then 0 .5 1 1.5 2 3 4 6 by the low
 * three bits), then the exponent byte e, 0..254: every value times 2^(e - 127). All products fit
 * bf16. */
typedef enum weight_format { WEIGHT_PLAIN, WEIGHT_MXFP4 } weight_format_t;
enum { MXFP4_COLS = 32, MXFP4_BYTES = 17 };

/* A matrix [rows, cols] as the loader sees it. `row` returns `cols` elements of `dtype` of one row,
 * or its blocks, either inside the mapped file or gathered into `scratch` (cols * 4 bytes, 64-byte
 * aligned). It is thread-safe: a back end may pack with many threads. */
typedef struct weight_source {
  const char *name; /* for messages */
  int64_t rows, cols;
  int32_t stack; /* matrices of rows / stack rows one behind the other (experts); 0 stands for 1 */
  weight_format_t format;
  dtype_t dtype; /* of the elements; for other formats the type that products run in */
  const void *(*row)(void *context, int64_t row, void *scratch);
  void *context;
} weight_source_t;

#endif
