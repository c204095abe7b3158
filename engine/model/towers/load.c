/* load.c: plan and safetensors files -> a tower on a device.
 *
 * The files are those of the whole model. Every tensor behind the prefix of the tower must be one
 * of the family, of the shape that the plan asks for, and finite. Engine thread; the back end may
 * call next_row from many.
 */
#include "engine/base/util.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/towers/internal.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
  tower_t *tower;
  weight_files_t *files;
  const char *prefix;
  dtype_t dtype;
  size_t taken; /* tensors */
  inferd_error_t *error;
  int code; /* 0 or the first error */
} tower_reading_t;

typedef struct stored_rows {
  const stored_tensor_t *stored;
  dtype_t type, as; /* of the file; what rows become */
  int64_t cols;
  atomic_bool bad;           /* some element is not finite */
  struct stored_rows *below; /* the rows behind these, or NULL */
} stored_rows_t;

static const void *next_row(void *context, int64_t row, void *scratch) {
  stored_rows_t *rows = context;
  if (row >= rows->stored->shape[0])
    return next_row(rows->below, row - rows->stored->shape[0], scratch);
  const uint8_t *data = rows->stored->data + (size_t)(row * rows->cols) * dtype_size(rows->type);
  convert_row(scratch, rows->as, data, rows->type, rows->cols);
  if (!convert_finite(scratch, rows->as, rows->cols)) atomic_store(&rows->bad, true);
  return scratch;
}

static int64_t count_elements(const stored_tensor_t *stored) {
  int64_t count = 1;
  for (int32_t i = 0; i < stored->rank; i++) count *= stored->shape[i]; /* fits: bytes are there */
  return count;
}

/* The tensor of a role, [num_rows, cols] or of more dimensions behind the first (a convolution over
 * patches that do not overlap is a product); a vector has `cols` 1. */
static bool find(tower_reading_t *reading, tower_role_t role, int32_t index, const char *part,
                 int64_t num_rows, int64_t cols, stored_rows_t *out) {
  char stem[96], name[160], shape[96];
  if (reading->code != 0) return false;
  const char *pattern = reading->tower->plan.family->names[role];
  const char *number = strstr(pattern, "%d");
  if (number == NULL)
    snprintf(stem, sizeof stem, "%s", pattern);
  else
    snprintf(stem, sizeof stem, "%.*s%d%s", (int)(number - pattern), pattern, index, number + 2);
  snprintf(name, sizeof name, "%s%s.%s", reading->prefix, stem, part);
  const stored_tensor_t *stored = weight_files_find(reading->files, name);
  if (stored == NULL) {
    reading->code =
        error_set(reading->error, ERR_MODEL_MALFORMED, NULL, "tensor %s is missing", name);
    return false;
  }
  reading->code = weights_check_type(stored, FORM_PLAIN, reading->error);
  if (reading->code != 0) return false;
  if (stored->rank < 1 || stored->shape[0] != num_rows ||
      count_elements(stored) != num_rows * cols) {
    weights_shape_text(shape, sizeof shape, stored->shape, stored->rank);
    reading->code = error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                              "tensor %s has shape %s; config.json asks for [%lld, %lld]", name,
                              shape, (long long)num_rows, (long long)cols);
    return false;
  }
  *out = (stored_rows_t){
      .stored = stored, .type = weights_stored_dtype(stored), .as = DTYPE_F32, .cols = cols};
  reading->taken++;
  return true;
}

static void check_finite(tower_reading_t *reading, stored_rows_t *rows) {
  if (reading->code == 0 && atomic_load(&rows->bad))
    reading->code = error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                              "tensor %s has a NaN or an infinity", rows->stored->name);
  weight_files_done(reading->files, rows->stored);
}

/* All of a tensor as fp32; NULL after an error. The caller frees it. */
static float *read_values(tower_reading_t *reading, tower_role_t role, int32_t index,
                          const char *part, int64_t num_rows, int64_t cols) {
  stored_rows_t rows;
  if (!find(reading, role, index, part, num_rows, cols, &rows)) return NULL;
  float *values = calloc((size_t)num_rows, (size_t)cols * sizeof *values);
  if (values == NULL) {
    reading->code = error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for a tower");
    return NULL;
  }
  for (int64_t row = 0; row < num_rows; row++) next_row(&rows, row, values + row * cols);
  check_finite(reading, &rows);
  return values;
}

static const vector_t *read_vector(tower_reading_t *reading, tower_role_t role, int32_t index,
                                   const char *part, int64_t count) {
  const tower_t *tower = reading->tower;
  vector_t *made = NULL;
  float *values = read_values(reading, role, index, part, count, 1);
  if (reading->code == 0)
    reading->code = tower->ops->vector(tower->device, values, count, &made, reading->error);
  free(values);
  return made;
}

static bool has_bias(const tower_reading_t *reading, tower_role_t role) {
  return !(reading->tower->plan.family->unbiased & 1U << role);
}

static tower_linear_t read_linear(tower_reading_t *reading, tower_role_t role, int32_t index,
                                  int64_t num_rows, int64_t cols) {
  const tower_t *tower = reading->tower;
  weight_t *weight = NULL;
  stored_rows_t rows;
  tower_linear_t made = {0};
  if (!find(reading, role, index, "weight", num_rows, cols, &rows)) return made;
  rows.as = reading->dtype;
  const weight_source_t source = {.name = rows.stored->name,
                                  .rows = num_rows,
                                  .cols = cols,
                                  .dtype = reading->dtype,
                                  .row = next_row,
                                  .context = &rows};
  reading->code = tower->ops->weight(tower->device, &source, &weight, reading->error);
  check_finite(reading, &rows);
  made.weight = weight;
  if (has_bias(reading, role)) made.bias = read_vector(reading, role, index, "bias", num_rows);
  return made;
}

/* Gate and up of a gated MLP as one matrix, or up. */
static tower_linear_t read_up(tower_reading_t *reading, int32_t index, int32_t width,
                              int32_t cols) {
  const tower_t *tower = reading->tower;
  stored_rows_t gate, up;
  weight_t *weight = NULL;
  vector_t *bias = NULL;
  if (tower->plan.family->names[TOWER_GATE] == NULL)
    return read_linear(reading, TOWER_UP, index, width, cols);
  if (!find(reading, TOWER_GATE, index, "weight", width, cols, &gate) ||
      !find(reading, TOWER_UP, index, "weight", width, cols, &up))
    return (tower_linear_t){0};
  gate.as = up.as = reading->dtype;
  gate.below = &up;
  const weight_source_t source = {.name = gate.stored->name,
                                  .rows = 2 * (int64_t)width,
                                  .cols = cols,
                                  .dtype = reading->dtype,
                                  .row = next_row,
                                  .context = &gate};
  reading->code = tower->ops->weight(tower->device, &source, &weight, reading->error);
  check_finite(reading, &gate);
  check_finite(reading, &up);
  float *of_gate = read_values(reading, TOWER_GATE, index, "bias", width, 1);
  float *of_up = read_values(reading, TOWER_UP, index, "bias", width, 1);
  float *both = calloc((size_t)width, 2 * sizeof *both);
  if (reading->code == 0 && both == NULL)
    reading->code = error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  if (reading->code == 0) {
    memcpy(both, of_gate, (size_t)width * sizeof *both);
    memcpy(both + width, of_up, (size_t)width * sizeof *both);
    reading->code =
        tower->ops->vector(tower->device, both, 2 * (int64_t)width, &bias, reading->error);
  }
  free(of_gate), free(of_up), free(both);
  return (tower_linear_t){weight, bias};
}

static norm_t read_norm(tower_reading_t *reading, tower_role_t role, int32_t index, int32_t width) {
  const tower_family_t *family = reading->tower->plan.family;
  norm_t norm = {.kind = family->norm, .width = width, .eps = family->norm_eps};
  norm.weight = read_vector(reading, role, index, "weight", width);
  if (family->norm == NORM_LAYER) norm.bias = read_vector(reading, role, index, "bias", width);
  return norm;
}

static void read_tensors(tower_reading_t *reading) {
  tower_t *tower = reading->tower;
  const tower_plan_t *plan = &tower->plan;
  const int32_t d = plan->hidden, f = plan->mlp_width, block = plan->merge * plan->merge * d;
  tower->patch = read_linear(reading, TOWER_PATCH, 0, d, plan->patch_columns);
  if (plan->table_side > 0)
    tower->table = read_values(reading, TOWER_POSITIONS, 0, "weight",
                               (int64_t)plan->table_side * plan->table_side, d);
  for (int32_t i = 0; i < plan->num_layers && reading->code == 0; i++)
    tower->layers[i] = (tower_layer_t){.norm_1 = read_norm(reading, TOWER_NORM_1, i, d),
                                       .norm_2 = read_norm(reading, TOWER_NORM_2, i, d),
                                       .qkv = read_linear(reading, TOWER_QKV, i, 3 * d, d),
                                       .o = read_linear(reading, TOWER_O, i, d, d),
                                       .up = read_up(reading, i, f, d),
                                       .down = read_linear(reading, TOWER_DOWN, i, d, f)};
  tower->merger =
      (tower_merger_t){.norm = read_norm(reading, TOWER_MERGE_NORM, 0, d),
                       .up = read_linear(reading, TOWER_MERGE_UP, 0, block, block),
                       .down = read_linear(reading, TOWER_MERGE_DOWN, 0, plan->out_size, block)};
  for (int32_t i = 0; i < plan->num_deep && reading->code == 0; i++)
    tower->deep[i] =
        (tower_merger_t){.norm = read_norm(reading, TOWER_DEEP_NORM, i, block),
                         .up = read_linear(reading, TOWER_DEEP_UP, i, block, block),
                         .down = read_linear(reading, TOWER_DEEP_DOWN, i, plan->out_size, block)};
}

/* The prefix that the files have. */
static const char *find_prefix(const weight_files_t *files, const tower_family_t *family) {
  char name[160];
  for (const char *const *prefix = family->prefixes; *prefix != NULL; prefix++) {
    snprintf(name, sizeof name, "%s%s.weight", *prefix, family->names[TOWER_PATCH]);
    if (weight_files_find(files, name) != NULL) return *prefix;
  }
  return family->prefixes[0]; /* whose tensor is missing then */
}

/* A tensor that nothing reads would change the rows if the reference reads it. */
static void check_all_taken(tower_reading_t *reading) {
  size_t count = 0, length = strlen(reading->prefix);
  for (size_t i = 0; i < weight_files_count(reading->files); i++)
    count += strncmp(weight_files_at(reading->files, i)->name, reading->prefix, length) == 0;
  if (reading->code == 0 && count != reading->taken)
    reading->code =
        error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                  "%zu tensors begin with %s; a tower of %s has %zu", count, reading->prefix,
                  reading->tower->plan.family->model_type, reading->taken);
}

static bool take_constants(tower_t *tower) {
  const tower_plan_t *plan = &tower->plan;
  const int32_t half = plan->hidden / plan->num_heads / 2;
  tower->layers = calloc((size_t)plan->num_layers, sizeof *tower->layers);
  tower->inv_freq = calloc((size_t)half / 2, sizeof *tower->inv_freq);
  if (tower->layers == NULL || tower->inv_freq == NULL) return false;
  for (int32_t i = 0; i < half / 2; i++) /* in fp32, as the reference */
    tower->inv_freq[i] = 1.0f / powf((float)plan->theta, (float)(2 * i) / (float)half);
  return true;
}

int tower_load(const ops_t *ops, device_t *device, const char *dir, const tower_plan_t *plan,
               dtype_t dtype, tower_t **out, inferd_error_t *error) {
  *out = NULL;
  if (ops->tower == NULL)
    return error_set(error, ERR_CONFIGURATION, NULL, "the %s back end does not run towers",
                     ops->name);
  tower_t *tower = calloc(1, sizeof *tower);
  if (tower == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  *tower = (tower_t){.ops = ops, .device = device, .plan = *plan};
  tower_reading_t reading = {.tower = tower, .dtype = dtype, .error = error};
  if (!take_constants(tower))
    reading.code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  if (reading.code == 0) reading.code = weight_files_open(dir, &reading.files, error);
  if (reading.code == 0) {
    reading.prefix = find_prefix(reading.files, plan->family);
    read_tensors(&reading);
    check_all_taken(&reading);
    if (reading.code == 0) reading.code = weight_files_intact(reading.files, error);
    weight_files_close(reading.files);
  }
  if (reading.code != 0) {
    tower_free(tower);
    return reading.code;
  }
  *out = tower;
  return 0;
}

void tower_free(tower_t *tower) {
  if (tower == NULL) return;
  free(tower->table);
  free(tower->layers);
  free(tower->inv_freq);
  free(tower->places);
  free(tower->cosine);
  free(tower->sine);
  free(tower->image_starts);
  free(tower->window_starts);
  free(tower->order);
  free(tower->host_pixels);
  free(tower->merged);
  free(tower);
}
