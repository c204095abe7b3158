/* weight_source.h: element types, and a matrix as a loader hands it to a back end. */
#ifndef INFERD_ENGINE_WEIGHT_SOURCE_H
#define INFERD_ENGINE_WEIGHT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

typedef enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16 } dtype_t;

static inline size_t dtype_size(dtype_t dtype) {
  return dtype == DTYPE_F32 ? 4 : 2;
}

/* A matrix [rows, cols] as the loader sees it. `row` returns `cols` elements of `dtype` of one row,
 * either inside the mapped file or gathered into `scratch` (cols * 4 bytes, 64-byte aligned). It is
 * thread-safe: a back end may pack with many threads. */
typedef struct weight_source {
  const char *name; /* for messages */
  int64_t rows, cols;
  dtype_t dtype;
  const void *(*row)(void *context, int64_t row, void *scratch);
  void *context;
} weight_source_t;

#endif
