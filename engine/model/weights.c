/* weights.c: matrices and vectors of a model, row by row, onto a device.
 *
 * A matrix may be stacked from several stored tensors (q, k, v; gate, up) and its rows may need
 * another element type; both happen in row(), which the back end calls from its packing threads.
 * GPT-2 stores its linear layers transposed: those are turned over in blocks, one tensor at a time.
 * Every element is looked at once: a NaN or an infinity fails the load by name.
 */
#include "engine/model/weights.h"

#include "engine/checked.h"
#include "engine/model/convert.h"
#include "engine/model/dummy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 3, TURN_BLOCK = 32 };

/* One stored tensor as rows of a matrix. */
typedef struct part {
  const expected_tensor_t *tensor;
  const stored_tensor_t *stored; /* NULL for dummy weights */
  const uint8_t *data;           /* row-major rows of `type`; NULL = made by `dummy` */
  dtype_t type;
  dummy_t dummy;
  void *turned;    /* owned copy of a transposed tensor, or NULL */
  atomic_bool bad; /* some element is not finite */
} part_t;

typedef struct matrix {
  part_t parts[PARTS_MAX];
  int num_parts;
  int64_t rows, cols;
  dtype_t dtype;
} matrix_t;

static void open_part(const weight_loader_t *loader, const expected_tensor_t *tensor,
                      part_t *part) {
  *part = (part_t){.tensor = tensor, .type = loader->dtype};
  if (loader->stored == NULL) {
    part->dummy = dummy_tensor(tensor, loader->options->dummy_seed);
    return;
  }
  part->stored = loader->stored[tensor - loader->list.tensors];
  part->data = part->stored->data;
  part->type = weights_stored_dtype(part->stored);
}

/* Row `row` of a part in the run type: in place when it can be, else in `scratch`. */
static const void *part_row(part_t *part, dtype_t dtype, int64_t row, int64_t cols, void *scratch) {
  if (part->data == NULL) {
    dummy_fill(&part->dummy, scratch, dtype, row * cols, cols);
    return scratch;
  }
  size_t size = dtype_size(part->type);
  const uint8_t *data = part->data + (size_t)row * (size_t)cols * size;
  const void *out = data;
  if (part->type != dtype || ((uintptr_t)data & (size - 1)) != 0) {
    convert_row(scratch, dtype, data, part->type, cols);
    out = scratch;
  }
  if (!convert_finite(out, dtype, cols)) atomic_store(&part->bad, true);
  return out;
}

static const void *matrix_row(void *context, int64_t row, void *scratch) {
  matrix_t *matrix = context;
  int i = 0;
  while (row >= matrix->parts[i].tensor->rows) row -= matrix->parts[i++].tensor->rows;
  return part_row(&matrix->parts[i], matrix->dtype, row, matrix->cols, scratch);
}

/* [cols, rows] as stored becomes [rows, cols], a block of stored rows at a time. */
static void turn_rows(part_t *part, uint8_t *out, uint8_t *made, dtype_t type) {
  const int64_t rows = part->tensor->rows, cols = part->tensor->cols;
  const size_t size = dtype_size(type);
  for (int64_t first = 0; first < cols; first += TURN_BLOCK) {
    int64_t count = cols - first < TURN_BLOCK ? cols - first : TURN_BLOCK;
    const uint8_t *in = made;
    if (part->data != NULL)
      in = part->data + (size_t)(first * rows) * size;
    else
      dummy_fill(&part->dummy, made, type, first * rows, count * rows);
    for (int64_t row = 0; row < rows; row++) {
      uint8_t *to = out + (size_t)(row * cols + first) * size;
      for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * size, in + (size_t)(i * rows + row) * size, size);
      }
    }
  }
}

static int turn(part_t *part, error_t *error) {
  size_t bytes = (size_t)tensor_elements(part->tensor) * dtype_size(part->type);
  size_t block = (size_t)part->tensor->rows * TURN_BLOCK * dtype_size(part->type);
  uint8_t *made = part->data == NULL ? malloc(block) : NULL;
  part->turned = malloc(bytes);
  if (part->turned == NULL || (part->data == NULL && made == NULL)) {
    free(made);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory to transpose %s", part->tensor->name);
  }
  turn_rows(part, part->turned, made, part->type);
  part->data = part->turned;
  free(made);
  return 0;
}

/* Names, shapes, types, and eight bytes at each of up to 16 places of a tensor. */
static void add_hash(weight_loader_t *loader, const part_t *part) {
  const expected_tensor_t *tensor = part->tensor;
  int64_t numbers[3] = {tensor->rows, tensor->cols, (int64_t)part->type};
  uint64_t hash = dummy_hash_bytes(loader->hash, tensor->name, strlen(tensor->name));
  hash = dummy_hash_bytes(hash, numbers, sizeof(numbers));
  if (part->stored == NULL) {
    hash = dummy_hash_bytes(hash, &part->dummy.key, sizeof(part->dummy.key));
  } else {
    size_t bytes = part->stored->bytes, step = bytes / 16 + 1;
    for (size_t at = 0; at < bytes; at += step) {
      hash = dummy_hash_bytes(hash, part->stored->data + at, bytes - at < 8 ? bytes - at : 8);
    }
  }
  loader->hash = dummy_mix(hash);
}

static int close_parts(weight_loader_t *loader, matrix_t *matrix, int status, error_t *error) {
  for (int i = 0; i < matrix->num_parts; i++) {
    part_t *part = &matrix->parts[i];
    if (status == 0 && atomic_load(&part->bad)) {
      bool narrowed = part->type == DTYPE_F32 && loader->dtype != DTYPE_F32;
      status = error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s: holds NaN or infinity%s",
                         part->stored != NULL ? part->stored->name : part->tensor->name,
                         narrowed ? ", or a number that the chosen dtype cannot hold" : "");
    }
    if (status == 0) add_hash(loader, part);
    if (part->stored != NULL) weight_files_done(loader->files, part->stored);
    free(part->turned);
    loader->elements_done += tensor_elements(part->tensor);
  }
  const model_options_t *options = loader->options;
  if (status == 0 && options->progress != NULL) {
    options->progress(options->progress_context,
                      (double)loader->elements_done / (double)loader->elements_total);
  }
  return status;
}

static int gather_parts(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                        int32_t layer, bool bias, matrix_t *matrix) {
  CHECK(num_roles <= PARTS_MAX);
  for (int i = 0; i < num_roles; i++) {
    const expected_tensor_t *tensor = tensors_get(&loader->list, roles[i], layer, bias);
    if (tensor == NULL) continue;
    open_part(loader, tensor, &matrix->parts[matrix->num_parts++]);
    matrix->rows += tensor->rows;
    matrix->cols = tensor->cols;
  }
  return matrix->num_parts;
}

int weight_loader_matrix(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, weight_t **out, error_t *error) {
  matrix_t matrix = {.dtype = loader->dtype};
  int status = 0;
  *out = NULL;
  if (gather_parts(loader, roles, num_roles, layer, false, &matrix) == 0) return 0;
  for (int i = 0; i < matrix.num_parts && status == 0; i++) {
    if (matrix.parts[i].tensor->conv1d) status = turn(&matrix.parts[i], error);
  }
  if (status == 0) {
    weight_source_t source = {.name = matrix.parts[0].tensor->name,
                              .rows = matrix.rows,
                              .cols = matrix.cols,
                              .dtype = matrix.dtype,
                              .row = matrix_row,
                              .context = &matrix};
    status = loader->ops->weight(loader->device, &source, out, error);
  }
  return close_parts(loader, &matrix, status, error);
}

/* Vectors are rounded to the run type, as the matrices are, and handed over in fp32. */
static int make_vector(weight_loader_t *loader, matrix_t *matrix, vector_t **out, error_t *error) {
  size_t count = (size_t)matrix->rows;
  float *values = calloc(count, sizeof(float)), *scratch = calloc(count, sizeof(float));
  int status = 0;
  if (values == NULL || scratch == NULL) {
    status = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a vector of %zu", count);
  } else {
    float *at = values;
    for (int i = 0; i < matrix->num_parts; i++) {
      int64_t n = matrix->parts[i].tensor->rows;
      const void *row = part_row(&matrix->parts[i], matrix->dtype, 0, n, scratch);
      convert_row(at, DTYPE_F32, row, matrix->dtype, n);
      at += n;
    }
    status = loader->ops->vector(loader->device, values, (int64_t)count, out, error);
  }
  free(values);
  free(scratch);
  return status;
}

int weight_loader_vector(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, bool bias, vector_t **out, error_t *error) {
  matrix_t matrix = {.dtype = loader->dtype};
  *out = NULL;
  if (gather_parts(loader, roles, num_roles, layer, bias, &matrix) == 0) return 0;
  int status = make_vector(loader, &matrix, out, error);
  return close_parts(loader, &matrix, status, error);
}

static int open_files(weight_loader_t *loader, const blueprint_t *blueprint, error_t *error) {
  const family_t *family = family_by_name(blueprint->family, strlen(blueprint->family));
  int status = weight_files_open(loader->options->dir, &loader->files, error);
  if (status != 0) return status;
  loader->stored = calloc((size_t)loader->list.count, sizeof(stored_tensor_t *));
  if (loader->stored == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  return weights_check(loader->files, &loader->list, family->layout, blueprint, loader->stored,
                       error);
}

int weight_loader_open(weight_loader_t *loader, const ops_t *ops, device_t *device,
                       const blueprint_t *blueprint, const model_options_t *options,
                       error_t *error) {
  *loader = (weight_loader_t){.ops = ops, .device = device, .options = options};
  loader->dtype = options->dtype >= 0 ? (dtype_t)options->dtype : blueprint->dtype;
  loader->hash = dummy_mix((uint64_t)loader->dtype);
  loader->elements_total = blueprint->num_parameters;
  int status = tensors_expect(blueprint, &loader->list, error);
  if (status == 0 && !options->dummy) status = open_files(loader, blueprint, error);
  if (status != 0) weight_loader_close(loader);
  return status;
}

int weight_loader_finish(weight_loader_t *loader, error_t *error) {
  return loader->files != NULL ? weight_files_intact(loader->files, error) : 0;
}

void weight_loader_close(weight_loader_t *loader) {
  weight_files_close(loader->files);
  free(loader->stored);
  tensors_free(&loader->list);
  *loader = (weight_loader_t){0};
}
