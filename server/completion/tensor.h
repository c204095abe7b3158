/* tensor.h: a file with one matrix, as a client sends it: of safetensors, or of torch.save.
 *
 * Of safetensors every byte is accounted for: a header of JSON that names one tensor, and its
 * numbers, which are the rest. What torch.save writes is a program for Python's unpickler; that of
 * one dense tensor is compared, and no program is run. Pure functions; any thread.
 */
#ifndef INFERD_SERVER_COMPLETION_TENSOR_H
#define INFERD_SERVER_COMPLETION_TENSOR_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { TENSOR_HEADER_MAX = 16384 }; /* bytes */

typedef enum tensor_type { TENSOR_F32, TENSOR_F16, TENSOR_BF16 } tensor_type_t;

typedef struct tensor {
  tensor_type_t type;
  int64_t rows, columns; /* each at least 1 */
  const uint8_t *data;   /* [rows, columns] of `type`, little-endian, in the file */
} tensor_t;

/* Returns 0, ERR_INVALID_VALUE with what is wrong as the end of a sentence that begins with the
 * file, or ERR_INTERNAL without memory. */
int tensor_read(const uint8_t *bytes, size_t length, tensor_t *out, inferd_error_t *error);
/* tensor_torch.c: the same of a file that begins as a zip archive. */
int tensor_read_torch(const uint8_t *bytes, size_t length, tensor_t *out, inferd_error_t *error);
/* Row `row` as out[columns], each times `scale`. Returns the first column that is not finite, or
 * -1. */
int64_t tensor_row(const tensor_t *tensor, int64_t row, float scale, float *out);

#endif
