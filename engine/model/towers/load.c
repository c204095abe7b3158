/* load.c: plan and safetensors files -> a tower on a device.
 *
 * The files are those of the whole model. Every tensor behind the prefix of the tower must be one
 * of the family, of the shape that the plan asks for, and finite. Engine thread; the back end may
 * call next_row from many.
 */
#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/towers/internal.h"
#include "engine/model/towers/mmproj.h"
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
  const char *prefix, *merge_prefix, *line_prefix;
  bool mmproj; /* the files are one of mmproj.h */
  bool turned; /* what it calls the first matrix of an MLP is the second */
  dtype_t dtype;
  size_t taken; /* tensors */
  inferd_error_t *error;
  int code; /* 0 or the first error */
} tower_reading_t;

/* Where the elements of a row are in the file. */
typedef enum rows_order {
  ROWS_PLAIN,
  ROWS_BY_CHANNEL, /* columns (value, part) in the file, (part, value) in the tower */
  ROWS_TURNED,     /* the file has them as columns */
  ROWS_OF_FRAMES,  /* columns (channel, frame, pixel): a tensor of the file for each frame */
  ROWS_OF_HEADS    /* of each head (pair, half) in the file, (half, pair) in the tower */
} rows_order_t;

typedef struct stored_rows {
  const stored_tensor_t *stored;
  const uint8_t *data, *second; /* of the tensor; of that of the other frame, or NULL */
  float *decoded;               /* what `data` is then: the values of blocks; owned */
  dtype_t type, as;             /* of the file; what rows become */
  int64_t num_rows, cols;
  rows_order_t order;
  int64_t parts;             /* of a row by channel; channels of frames; heads */
  const float *factors;      /* [num_rows] each row is multiplied by, or NULL */
  atomic_bool bad;           /* some element is not finite */
  struct stored_rows *below; /* the rows behind these, or NULL */
} stored_rows_t;

static const uint8_t *element(const stored_rows_t *rows, int64_t row, int64_t column) {
  const int64_t parts = MAX(rows->parts, 1), values = rows->cols / parts;
  const uint8_t *data = rows->data;
  int64_t at = row * rows->cols + column;
  if (rows->order == ROWS_BY_CHANNEL)
    at = row * rows->cols + column % values * rows->parts + column / values;
  if (rows->order == ROWS_TURNED) at = column * rows->num_rows + row;
  if (rows->order == ROWS_OF_FRAMES) {
    const int64_t pixels = values / 2, channel = column / values;
    if (column % values >= pixels) data = rows->second;
    at = row * (rows->cols / 2) + channel * pixels + column % pixels;
  }
  if (rows->order == ROWS_OF_HEADS) {
    const int64_t head = rows->num_rows / parts, own = row % head;
    at = (row - own + own % (head / 2) * 2 + own / (head / 2)) * rows->cols + column;
  }
  return data + (size_t)at * dtype_size(rows->type);
}

/* The row as the tower has it, in the place of that of the file. */
static void change_row(const stored_rows_t *rows, int64_t row, uint8_t *out) {
  for (int64_t i = 0; i < rows->cols; i++) {
    float value;
    convert_row(&value, DTYPE_F32, element(rows, row, i), rows->type, 1);
    if (rows->factors != NULL) value *= rows->factors[row];
    convert_row(out + (size_t)i * dtype_size(rows->as), rows->as, &value, DTYPE_F32, 1);
  }
}

static const void *next_row(void *context, int64_t row, void *scratch) {
  stored_rows_t *rows = context;
  if (row >= rows->num_rows) return next_row(rows->below, row - rows->num_rows, scratch);
  if (rows->order == ROWS_PLAIN && rows->factors == NULL)
    convert_row(scratch, rows->as, element(rows, row, 0), rows->type, rows->cols);
  else
    change_row(rows, row, scratch);
  if (!convert_finite(scratch, rows->as, rows->cols)) atomic_store(&rows->bad, true);
  return scratch;
}

static int64_t count_elements(const stored_tensor_t *stored) {
  int64_t count = 1;
  for (int32_t i = 0; i < stored->rank; i++) count *= stored->shape[i]; /* fits: bytes are there */
  return count;
}

static bool is_of(uint64_t roles, tower_role_t role) {
  return roles >> role & 1U;
}

static void print_name(const tower_reading_t *reading, tower_role_t role, int32_t index,
                       const char *part, char *name, size_t size) {
  if (reading->mmproj) {
    name[0] = '\0';
    if (reading->turned && (role == TOWER_UP || role == TOWER_DOWN))
      role = role == TOWER_UP ? TOWER_DOWN : TOWER_UP;
    (void)mmproj_name(&reading->tower->plan, role, index, part, name, size);
    return;
  }
  const tower_family_t *family = reading->tower->plan.family;
  const bool merges = role >= TOWER_FIRST_OF_MERGE && role < TOWER_END_OF_MERGE;
  const char *pattern = family->names[role], *number = strstr(pattern, "%d");
  const char *prefix = merges ? reading->merge_prefix : reading->prefix;
  if (role == TOWER_LINE) prefix = reading->line_prefix;
  const bool wraps = is_of(family->clippable, role) && strcmp(part, "weight") == 0;
  char stem[96];
  if (number == NULL)
    snprintf(stem, sizeof stem, "%s", pattern);
  else
    snprintf(stem, sizeof stem, "%.*s%d%s", (int)(number - pattern), pattern, index, number + 2);
  if (is_of(family->bare, role))
    snprintf(name, size, "%s%s", prefix, stem);
  else
    snprintf(name, size, "%s%s.%s%s", prefix, stem, wraps ? "linear." : "", part);
}

static int refuse_memory(tower_reading_t *reading) {
  return error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for a tower");
}

/* The values of a tensor that a GGUF file has in blocks. */
static void decode(tower_reading_t *reading, stored_rows_t *rows) {
  const stored_tensor_t *stored = rows->stored;
  const int64_t cols = stored->shape[stored->rank - 1], count = rows->num_rows * rows->cols / cols;
  const size_t bytes = stored->bytes / (size_t)count;
  rows->decoded = calloc((size_t)count, (size_t)cols * sizeof *rows->decoded);
  if (rows->decoded == NULL) {
    reading->code = refuse_memory(reading);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    quant_decode(stored->quant, 0, stored->data + (size_t)i * bytes, cols,
                 rows->decoded + i * cols);
  rows->data = (const uint8_t *)rows->decoded;
}

/* How a mmproj file has a tensor that the files of the whole model have otherwise. */
static void find_order(tower_reading_t *reading, tower_role_t role, const char *name,
                       stored_rows_t *rows) {
  const tower_plan_t *plan = &reading->tower->plan;
  char second[176];
  if (mmproj_turns_heads(plan, role)) {
    rows->order = ROWS_OF_HEADS;
    rows->parts = plan->num_heads;
  }
  snprintf(second, sizeof second, "%s.1", name);
  const stored_tensor_t *other =
      role == TOWER_PATCH ? weight_files_find(reading->files, second) : NULL;
  if (other == NULL || rows->cols == 1) return;
  if (other->bytes != rows->stored->bytes || other->quant != NULL || rows->stored->quant != NULL ||
      strcmp(other->type, rows->stored->type) != 0) {
    reading->code =
        error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                  "tensors %s and %s are not of one shape and a plain type", name, second);
    return;
  }
  rows->order = ROWS_OF_FRAMES;
  rows->parts = 3;
  rows->second = other->data;
  reading->taken++;
}

/* The tensor of a role, [num_rows, cols] or of more dimensions behind the first (a convolution over
 * patches that do not overlap is a product); a vector has `cols` 1, a single number any shape. A
 * bare one may have dimensions of 1 before it. */
static bool find(tower_reading_t *reading, tower_role_t role, int32_t index, const char *part,
                 int64_t num_rows, int64_t cols, stored_rows_t *out) {
  char name[160], shape[96];
  const bool is_bare = is_of(reading->tower->plan.family->bare, role) || num_rows * cols == 1;
  if (reading->code != 0) return false;
  print_name(reading, role, index, part, name, sizeof name);
  const stored_tensor_t *stored = weight_files_find(reading->files, name);
  if (stored == NULL) {
    reading->code =
        error_set(reading->error, ERR_MODEL_MALFORMED, NULL, "tensor %s is missing", name);
    return false;
  }
  const bool in_blocks = reading->mmproj && stored->quant != NULL;
  if (!in_blocks) reading->code = weights_check_type(stored, FORM_PLAIN, reading->error);
  if (reading->code != 0) return false;
  *out = (stored_rows_t){.stored = stored,
                         .data = stored->data,
                         .type = in_blocks ? DTYPE_F32 : weights_stored_dtype(stored),
                         .as = DTYPE_F32,
                         .num_rows = num_rows,
                         .cols = cols};
  if (reading->mmproj) find_order(reading, role, name, out);
  if (reading->code != 0) return false;
  const int64_t frames = out->order == ROWS_OF_FRAMES ? 2 : 1;
  if ((!is_bare && (stored->rank < 1 || stored->shape[0] != num_rows)) ||
      frames * count_elements(stored) != num_rows * cols) {
    weights_shape_text(shape, sizeof shape, stored->shape, stored->rank);
    reading->code = error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                              "tensor %s has shape %s; %s for [%lld, %lld]", name, shape,
                              reading->mmproj ? "the keys of the file ask" : "config.json asks",
                              (long long)num_rows, (long long)cols);
    return false;
  }
  if (in_blocks) decode(reading, out);
  if (reading->code != 0) return false;
  reading->taken++;
  uint64_t *hash = &reading->tower->hash;
  *hash = fnv_64(*hash, name, strlen(name));
  *hash = fnv_64(*hash, stored->shape, (size_t)stored->rank * sizeof *stored->shape);
  *hash = weights_sample_hash(*hash, stored);
  return true;
}

uint64_t tower_hash(const tower_t *tower) {
  return tower->hash;
}

const float *tower_line(const tower_t *tower) {
  return tower->line;
}

static void check_finite(tower_reading_t *reading, stored_rows_t *rows) {
  if (reading->code == 0 && atomic_load(&rows->bad))
    reading->code = error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                              "tensor %s has a NaN or an infinity", rows->stored->name);
  weight_files_done(reading->files, rows->stored);
  free(rows->decoded);
  rows->decoded = NULL;
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

static const vector_t *make_vector(tower_reading_t *reading, const float *values, int64_t count) {
  const tower_t *tower = reading->tower;
  vector_t *made = NULL;
  if (reading->code == 0)
    reading->code = tower->ops->vector(tower->device, values, count, &made, reading->error);
  return made;
}

static const vector_t *read_vector(tower_reading_t *reading, tower_role_t role, int32_t index,
                                   const char *part, int64_t count) {
  float *values = read_values(reading, role, index, part, count, 1);
  const vector_t *made = make_vector(reading, values, count);
  free(values);
  return made;
}

static bool has(const tower_reading_t *reading, tower_role_t role) {
  const tower_family_t *family = reading->tower->plan.family;
  return family->names[role] != NULL && !is_of(family->unread, role);
}

/* Counts what the files have of a role that is not bare, and leaves it. */
static void leave(tower_reading_t *reading, tower_role_t role, int32_t index) {
  static const char *const parts[] = {"weight", "bias"};
  char name[160];
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    print_name(reading, role, index, parts[i], name, sizeof name);
    reading->taken += weight_files_find(reading->files, name) != NULL;
  }
}

/* What the files have and the reference leaves out. */
static void leave_unread(tower_reading_t *reading) {
  const tower_plan_t *plan = &reading->tower->plan;
  for (tower_role_t role = 0; role < TOWER_NUM_ROLES; role++) {
    if (is_of(plan->family->unread, role)) leave(reading, role, 0);
    const bool of_layer = role >= TOWER_FIRST_OF_LAYER && role < TOWER_FIRST_OF_DEEP;
    for (int32_t i = 0; of_layer && i < plan->spare_layers && has(reading, role); i++)
      leave(reading, role, plan->num_layers + i);
  }
}

/* The biases of stacked matrices, [count * num_rows]; NULL after an error. The caller frees it. */
static float *read_biases(tower_reading_t *reading, const tower_role_t *roles, int32_t count,
                          int32_t index, int64_t num_rows) {
  float *all = calloc((size_t)(count * num_rows), sizeof *all);
  if (all == NULL && reading->code == 0)
    reading->code = error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  for (int32_t i = 0; i < count; i++) {
    if (is_of(reading->tower->plan.unbiased, roles[i])) continue;
    float *values = read_values(reading, roles[i], index, "bias", num_rows, 1);
    if (values != NULL && all != NULL)
      memcpy(all + i * num_rows, values, (size_t)num_rows * sizeof *values);
    free(values);
  }
  return all;
}

enum { STACK_MAX = 3 };

/* A number, which may be infinite. */
static float read_bound(tower_reading_t *reading, tower_role_t role, int32_t index,
                        const char *part) {
  stored_rows_t rows;
  float bound = 0;
  if (!find(reading, role, index, part, 1, 1, &rows)) return 0;
  convert_row(&bound, DTYPE_F32, element(&rows, 0, 0), rows.type, 1);
  if (isnan(bound))
    reading->code = error_set(reading->error, ERR_MODEL_MALFORMED, NULL, "tensor %s is a NaN",
                              rows.stored->name);
  weight_files_done(reading->files, rows.stored);
  return bound;
}

/* Matrices of a shape as one, the first one's rows first. `rows` says how each is read. */
static tower_linear_t make_linear(tower_reading_t *reading, const tower_role_t *roles,
                                  int32_t count, int32_t index, stored_rows_t *rows) {
  const tower_t *tower = reading->tower;
  weight_t *weight = NULL;
  tower_linear_t made = {0};
  for (int32_t i = 0; i < count; i++) {
    rows[i].as = reading->dtype;
    rows[i].below = i + 1 < count ? &rows[i + 1] : NULL;
  }
  const weight_source_t source = {.name = rows[0].stored->name,
                                  .rows = count * rows[0].num_rows,
                                  .cols = rows[0].cols,
                                  .dtype = reading->dtype,
                                  .row = next_row,
                                  .context = rows};
  reading->code = tower->ops->weight(tower->device, &source, &weight, reading->error);
  for (int32_t i = 0; i < count; i++) check_finite(reading, &rows[i]);
  made.weight = weight;
  if (tower->plan.clips && is_of(tower->plan.family->clippable, roles[0])) {
    made.in_least = read_bound(reading, roles[0], index, "input_min");
    made.in_most = read_bound(reading, roles[0], index, "input_max");
    made.out_least = read_bound(reading, roles[0], index, "output_min");
    made.out_most = read_bound(reading, roles[0], index, "output_max");
  }
  if (is_of(tower->plan.unbiased, roles[0])) return made;
  float *biases = read_biases(reading, roles, count, index, rows[0].num_rows);
  for (int64_t i = 0; biases != NULL && rows[0].factors != NULL && i < rows[0].num_rows; i++)
    biases[i] *= rows[0].factors[i];
  made.bias = make_vector(reading, biases, count * rows[0].num_rows);
  free(biases);
  return made;
}

/* Stacks the matrices of `count` roles, at most STACK_MAX. */
static tower_linear_t read_stack(tower_reading_t *reading, const tower_role_t *roles, int32_t count,
                                 int32_t index, int64_t num_rows, int64_t cols) {
  stored_rows_t rows[STACK_MAX];
  for (int32_t i = 0; i < count; i++) {
    if (!find(reading, roles[i], index, "weight", num_rows, cols, &rows[i]))
      return (tower_linear_t){0};
  }
  return make_linear(reading, roles, count, index, rows);
}

/* Frequencies behind the last convolution of a chunk. */
static int64_t last_bands(const tower_plan_t *plan) {
  return tower_chunk_positions(plan->bands);
}

/* Empty where the family has no such matrix. */
static tower_linear_t read_linear(tower_reading_t *reading, tower_role_t role, int32_t index,
                                  int64_t num_rows, int64_t cols) {
  const tower_plan_t *plan = &reading->tower->plan;
  stored_rows_t rows;
  if (!has(reading, role) || !find(reading, role, index, "weight", num_rows, cols, &rows))
    return (tower_linear_t){0};
  if (role == TOWER_MERGE_MIX && plan->family->mix_by_channel) rows.order = ROWS_BY_CHANNEL;
  if (role == TOWER_MERGE_DOWN && plan->family->down_is_turned) rows.order = ROWS_TURNED;
  if (rows.order == ROWS_BY_CHANNEL) rows.parts = tower_block(plan);
  const bool convolves =
      plan->bands > 0 && (role == TOWER_PATCH || role == TOWER_CONV || role == TOWER_CONV_3);
  if (convolves || role == TOWER_CONV_OUT) {
    rows.order = ROWS_BY_CHANNEL;
    rows.parts = !tower_has_chunks(plan) ? TAPS : convolves ? TAPS * TAPS : last_bands(plan);
  }
  return make_linear(reading, &role, 1, index, &rows);
}

/* One whose rows are multiplied by the factors of `scale`, if the family has such. */
static tower_linear_t read_scaled(tower_reading_t *reading, tower_role_t role, tower_role_t scale,
                                  int32_t index, int64_t num_rows, int64_t cols) {
  stored_rows_t rows;
  tower_linear_t made = {0};
  if (!has(reading, scale)) return read_linear(reading, role, index, num_rows, cols);
  float *factors = read_values(reading, scale, index, "", num_rows, 1);
  if (find(reading, role, index, "weight", num_rows, cols, &rows)) {
    rows.factors = factors;
    made = make_linear(reading, &role, 1, index, &rows);
  }
  free(factors);
  return made;
}

static tower_linear_t read_qkv(tower_reading_t *reading, int32_t index, int64_t width) {
  static const tower_role_t roles[] = {TOWER_Q, TOWER_K, TOWER_V};
  if (reading->tower->plan.clips) return (tower_linear_t){0};
  bool together = has(reading, TOWER_QKV);
  if (together && reading->mmproj) { /* most files of llama.cpp have them apart */
    char name[160];
    print_name(reading, TOWER_QKV, index, "weight", name, sizeof name);
    together = weight_files_find(reading->files, name) != NULL;
  }
  if (together) return read_linear(reading, TOWER_QKV, index, 3 * width, width);
  return read_stack(reading, roles, ARRAY_LEN(roles), index, width, width);
}

/* Gate and up of a gated MLP as one matrix, or up. */
static tower_linear_t read_up(tower_reading_t *reading, int32_t index, int64_t width,
                              int64_t cols) {
  static const tower_role_t roles[] = {TOWER_GATE, TOWER_UP};
  if (reading->tower->plan.clips) return (tower_linear_t){0};
  if (!has(reading, TOWER_GATE)) return read_linear(reading, TOWER_UP, index, width, cols);
  return read_stack(reading, roles, ARRAY_LEN(roles), index, width, cols);
}

/* Width 0 where the family has no such norm. */
static norm_t read_norm(tower_reading_t *reading, tower_role_t role, int32_t index, int32_t width) {
  const tower_plan_t *plan = &reading->tower->plan;
  const tower_family_t *family = plan->family;
  const bool merges = role == TOWER_MERGE_NORM || role == TOWER_DEEP_NORM;
  norm_t norm = {.kind = merges ? family->merge_norm : family->norm,
                 .width = width,
                 .eps = merges ? plan->merge_eps : plan->norm_eps};
  if (!has(reading, role)) return (norm_t){0};
  float *values = read_values(reading, role, index, "weight", width, 1);
  const bool plus_one = merges && family->merge_plus_one && !reading->mmproj; /* it is done there */
  for (int32_t i = 0; values != NULL && plus_one && i < width; i++) values[i] += 1;
  norm.weight = make_vector(reading, values, width);
  free(values);
  if (norm.kind == NORM_LAYER) norm.bias = read_vector(reading, role, index, "bias", width);
  return norm;
}

static norm_t read_merge_norm(tower_reading_t *reading, int32_t width) {
  const tower_plan_t *plan = &reading->tower->plan;
  if (has(reading, TOWER_MEAN_NORM)) return read_norm(reading, TOWER_MEAN_NORM, 0, width);
  if (!plan->family->merge_plain) return read_norm(reading, TOWER_MERGE_NORM, 0, width);
  return (norm_t){.kind = plan->family->merge_norm, .width = width, .eps = plan->merge_eps};
}

static void read_merger(tower_reading_t *reading) {
  tower_t *tower = reading->tower;
  const tower_plan_t *plan = &tower->plan;
  const int32_t d = plan->hidden, block = tower_block(plan) * d;
  const tower_merge_t rule = plan->family->merge;
  const int32_t in = rule == MERGE_MEAN || has(reading, TOWER_MERGE_MIX) ? d : block;
  const int32_t up = plan->merge_width > 0 ? plan->merge_width : in;
  const int32_t normed = rule == MERGE_NORM_ALL ? block : d;
  tower->merger =
      (tower_merger_t){.norm = read_merge_norm(reading, normed),
                       .mix = read_linear(reading, TOWER_MERGE_MIX, 0, d, block),
                       .up = read_linear(reading, TOWER_MERGE_UP, 0, up, in),
                       .down = read_linear(reading, TOWER_MERGE_DOWN, 0, plan->out_size, up)};
  for (int32_t i = 0; i < plan->num_deep && reading->code == 0; i++)
    tower->deep[i] =
        (tower_merger_t){.norm = read_norm(reading, TOWER_DEEP_NORM, i, block),
                         .up = read_linear(reading, TOWER_DEEP_UP, i, block, block),
                         .down = read_linear(reading, TOWER_DEEP_DOWN, i, plan->out_size, block)};
}

static void read_splits(tower_reading_t *reading, int32_t index, tower_linear_t *split) {
  static const tower_role_t roles[NUM_SPLITS] = {TOWER_Q, TOWER_K, TOWER_V, TOWER_GATE, TOWER_UP};
  const tower_plan_t *plan = &reading->tower->plan;
  for (int i = 0; plan->clips && i < NUM_SPLITS; i++)
    split[i] = read_linear(reading, roles[i], index,
                           i < SPLIT_GATE ? plan->hidden : plan->mlp_width, plan->hidden);
}

/* NULL where the family has none. */
static const vector_t *read_head_norm(tower_reading_t *reading, tower_role_t role, int32_t index) {
  const tower_plan_t *plan = &reading->tower->plan;
  if (!has(reading, role)) return NULL;
  return read_vector(reading, role, index, "weight", plan->hidden / plan->num_heads);
}

static void read_layer(tower_reading_t *reading, int32_t i) {
  tower_layer_t *layer = &reading->tower->layers[i];
  const int32_t d = reading->tower->plan.hidden, f = reading->tower->plan.mlp_width;
  *layer = (tower_layer_t){.norm_1 = read_norm(reading, TOWER_NORM_1, i, d),
                           .norm_2 = read_norm(reading, TOWER_NORM_2, i, d),
                           .out_norm_1 = read_norm(reading, TOWER_OUT_NORM_1, i, d),
                           .out_norm_2 = read_norm(reading, TOWER_OUT_NORM_2, i, d),
                           .q_norm = read_head_norm(reading, TOWER_Q_NORM, i),
                           .k_norm = read_head_norm(reading, TOWER_K_NORM, i),
                           .qkv = read_qkv(reading, i, d),
                           .o = read_scaled(reading, TOWER_O, TOWER_SCALE_1, i, d, d),
                           .up = read_up(reading, i, f, d),
                           .down = read_scaled(reading, TOWER_DOWN, TOWER_SCALE_2, i, d, f)};
  read_splits(reading, i, layer->split);
}

/* The convolutions of a chunk, and what is added behind them. */
static void read_chunk(tower_reading_t *reading) {
  tower_t *tower = reading->tower;
  const tower_plan_t *plan = &tower->plan;
  const int64_t channels = plan->channels, read = TAPS * TAPS;
  tower->patch = read_linear(reading, TOWER_PATCH, 0, channels, read);
  tower->conv = read_linear(reading, TOWER_CONV, 0, channels, read * channels);
  tower->conv_3 = read_linear(reading, TOWER_CONV_3, 0, channels, read * channels);
  tower->conv_out =
      read_linear(reading, TOWER_CONV_OUT, 0, plan->hidden, channels * last_bands(plan));
  tower->table = calloc((size_t)plan->chunk, (size_t)plan->hidden * sizeof *tower->table);
  if (tower->table != NULL)
    chunk_table(plan, tower->table);
  else if (reading->code == 0)
    reading->code = refuse_memory(reading);
}

static void read_tensors(tower_reading_t *reading) {
  tower_t *tower = reading->tower;
  const tower_plan_t *plan = &tower->plan;
  const int32_t d = plan->hidden;
  const bool has_class = has(reading, TOWER_CLASS);
  const int32_t first = plan->bands > 0 ? TAPS * plan->bands : plan->patch_columns;
  if (tower_has_chunks(plan)) {
    read_chunk(reading);
  } else {
    tower->patch = read_linear(reading, TOWER_PATCH, 0, d, first);
    tower->conv = read_linear(reading, TOWER_CONV, 0, d, TAPS * d);
  }
  if (plan->table_side > 0)
    tower->table =
        read_values(reading, TOWER_POSITIONS, 0, "weight", has_class + tower_places(plan), d);
  if (has_class) tower->own = read_values(reading, TOWER_CLASS, 0, "", d, 1);
  for (int32_t i = 0; has_class && reading->code == 0 && i < d; i++)
    tower->own[i] += tower->table[i];
  tower->pre_norm = read_norm(reading, TOWER_PRE_NORM, 0, d);
  tower->post_norm = read_norm(reading, TOWER_POST_NORM, 0, d);
  if (plan->standardizes) {
    tower->mean_bias = read_values(reading, TOWER_MEAN_BIAS, 0, "", d, 1);
    tower->mean_scale = read_values(reading, TOWER_MEAN_SCALE, 0, "", d, 1);
  }
  for (int32_t i = 0; i < plan->num_layers && reading->code == 0; i++) read_layer(reading, i);
  read_merger(reading);
  if (has(reading, TOWER_LINE)) {
    tower->line = read_values(reading, TOWER_LINE, 0, "", plan->out_size, 1);
    reading->taken--; /* it stands outside of the prefixes whose tensors are counted */
  }
  leave_unread(reading);
}

/* Old files of llama.cpp, and so all with CLIP, have the names of the matrices of an MLP the wrong
 * way round, which the columns of what is called the second one tell. */
static bool is_turned(tower_reading_t *reading) {
  const tower_plan_t *plan = &reading->tower->plan;
  const bool tells =
      plan->mlp_width != plan->hidden || strcmp(plan->family->model_type, "clip_vision_model") == 0;
  char name[160];
  print_name(reading, TOWER_DOWN, 0, "weight", name, sizeof name);
  const stored_tensor_t *down = weight_files_find(reading->files, name);
  return tells && !has(reading, TOWER_GATE) && down != NULL && down->rank == 2 &&
         down->shape[1] == plan->hidden;
}

/* The prefixes that the files have; of none the first, whose tensor is missing then. */
static void find_prefixes(tower_reading_t *reading) {
  if (reading->mmproj) {
    reading->prefix = "v.";
    reading->merge_prefix = "mm.";
    reading->turned = is_turned(reading);
    return;
  }
  const tower_family_t *family = reading->tower->plan.family;
  int found = 0;
  for (int i = 0; i < TOWER_PREFIXES_MAX && family->prefixes[i].tower != NULL; i++) {
    char name[160];
    reading->prefix = family->prefixes[i].tower;
    print_name(reading, TOWER_PATCH, 0, "weight", name, sizeof name);
    if (weight_files_find(reading->files, name) == NULL) continue;
    found = i;
    break;
  }
  reading->prefix = family->prefixes[found].tower;
  reading->merge_prefix = family->prefixes[found].merger;
  reading->line_prefix = family->prefixes[found].line;
  if (reading->merge_prefix == NULL) reading->merge_prefix = reading->prefix;
}

static bool begins_with(const char *name, const char *prefix) {
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* A tensor that nothing reads would change the rows if the reference reads it. */
static void check_all_taken(tower_reading_t *reading) {
  size_t count = 0;
  for (size_t i = 0; i < weight_files_count(reading->files); i++) {
    const char *name = weight_files_at(reading->files, i)->name;
    if (reading->mmproj && mmproj_is_copy(name)) continue;
    count += begins_with(name, reading->prefix) || begins_with(name, reading->merge_prefix);
  }
  if (reading->code == 0 && count != reading->taken)
    reading->code =
        error_set(reading->error, ERR_MODEL_MALFORMED, NULL,
                  "%zu tensors begin with %s or %s; a tower of %s has %zu", count, reading->prefix,
                  reading->merge_prefix, reading->tower->plan.family->model_type, reading->taken);
}

static bool take_constants(tower_t *tower) {
  const tower_plan_t *plan = &tower->plan;
  const int32_t half = plan->hidden / plan->num_heads / 2;
  tower->layers = calloc((size_t)plan->num_layers, sizeof *tower->layers);
  tower->inv_freq = calloc((size_t)MAX(half, 1), sizeof *tower->inv_freq);
  if (tower->layers == NULL || tower->inv_freq == NULL) return false;
  for (int32_t i = 0; plan->theta > 0 && i < half; i++) { /* in fp32, as the reference */
    const int32_t own = i % (half / 2), is_column = i >= half / 2;
    const float part = plan->rope_turns ? (float)(2 * (2 * own + is_column)) / (float)(2 * half)
                                        : (float)(2 * own) / (float)half;
    tower->inv_freq[i] = 1.0f / powf((float)plan->theta, part);
  }
  return true;
}

int tower_load(const ops_t *ops, device_t *device, const char *path, const tower_plan_t *plan,
               dtype_t dtype, tower_t **out, inferd_error_t *error) {
  *out = NULL;
  if (ops->tower == NULL)
    return error_set(error, ERR_CONFIGURATION, NULL, "the %s back end does not run towers",
                     ops->name);
  tower_t *tower = calloc(1, sizeof *tower);
  if (tower == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  *tower =
      (tower_t){.ops = ops, .device = device, .plan = *plan, .dtype = dtype, .hash = FNV_64_BASIS};
  tower_reading_t reading = {
      .tower = tower, .mmproj = mmproj_is(path), .dtype = dtype, .error = error};
  if (!take_constants(tower))
    reading.code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  if (reading.code == 0) reading.code = weight_files_open(path, &reading.files, error);
  if (reading.code == 0) {
    find_prefixes(&reading);
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
  free(tower->own);
  free(tower->line);
  free(tower->mean_bias);
  free(tower->mean_scale);
  free(tower->layers);
  free(tower->inv_freq);
  free(tower->places);
  free(tower->host_pixels);
  free(tower->merged);
  chunk_free(tower);
  for (int32_t i = 0; i < TOWER_RUNS_MAX; i++) {
    const tower_run_t *run = &tower->runs[i];
    free(run->cosine);
    free(run->sine);
    free(run->image_starts);
    free(run->window_starts);
    free(run->order);
  }
  free(tower);
}
