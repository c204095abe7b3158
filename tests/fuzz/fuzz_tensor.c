/* fuzz_tensor.c: the file of a prompt of embeddings. What is read lies in the file, of safetensors
 * to its last byte; every row is read. */
#include "server/completion/tensor.h"
#include "tests/fuzz/targets.h"

#include <math.h>
#include <stdlib.h>

void fuzz_tensor(const uint8_t *data, size_t size) {
  inferd_error_t error = {0};
  tensor_t tensor;
  const int code = tensor_read(data, size, &tensor, &error);
  if ((code != 0) != (error.message[0] != '\0')) abort();
  if (code != 0) return;
  const size_t each = tensor.type == TENSOR_F32 ? 4 : 2;
  if (tensor.rows < 1 || tensor.columns < 1) abort();
  const size_t bytes = (size_t)tensor.rows * (size_t)tensor.columns * each;
  const size_t rest = (size_t)(data + size - tensor.data);
  if (tensor.data < data || bytes > rest || (data[0] != 'P' && bytes != rest)) abort();
  float *row = malloc((size_t)tensor.columns * sizeof *row);
  if (row == NULL) abort();
  for (int64_t i = 0; i < tensor.rows; i++) {
    const int64_t wrong = tensor_row(&tensor, i, 1, row);
    for (int64_t c = 0; c < tensor.columns; c++) {
      if (wrong < 0 && !isfinite(row[c])) abort();
      if (c == wrong && isfinite(row[c])) abort();
    }
  }
  free(row);
}
