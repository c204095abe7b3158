/* adapter_read.c: reads the files of an adapter; see adapter.h. Any thread, no state.
 *
 * PEFT puts what an adapter adds to a module beside it, and loads every other tensor into the model
 * itself: biases that were trained (`bias`), modules of `modules_to_save`, and the embedding beside
 * its adapter, which is the model's own as a rule. Every tensor of the file is one that is
 * understood here, or equal to the model's, or the adapter is refused.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/adapter/adapter_config.h"
#include "engine/model/adapter/adapter_part.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/shard.h"
#include "engine/model/weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_AT_ONCE = 1 << 24, PIECE = 256 };

#define LORA_NAME(letter) ".lora_" letter ".weight"

/* A file that is read. */
typedef struct adapter_reading {
  const adapter_base_t *base;
  adapter_config_t *config;
  const weight_files_t *files;
  const char *prefix;     /* one of the layout's, which the names in the file have */
  model_options_t quiet;  /* of the loader */
  weight_loader_t loader; /* the model's own weights; opened when they are needed */
  bool is_open;
  uint8_t *taken; /* by tensor of the file: an expected one */
  inferd_error_t *error;
} adapter_reading_t;

/* ---- tensors of the file ---- */

static const char *prefix_of(const adapter_reading_t *reading, const expected_tensor_t *tensor) {
  return tensor->absolute ? "" : reading->prefix;
}

/* ".weight" or ".bias", or "" of a name without either. */
static const char *suffix_of(const expected_tensor_t *tensor) {
  const char *dot = strrchr(tensor->name, '.');
  return dot != NULL ? dot : tensor->name + strlen(tensor->name);
}

/* Writes the name of a tensor's module, without what PEFT puts before and behind it. */
static void module_name(char *out, size_t size, const adapter_reading_t *reading,
                        const expected_tensor_t *tensor) {
  snprintf(out, size, "%s%.*s", prefix_of(reading, tensor), (int)(suffix_of(tensor) - tensor->name),
           tensor->name);
}

/* "base_model.model." + module + end. NULL = the file has none. */
static const stored_tensor_t *find(const adapter_reading_t *reading,
                                   const expected_tensor_t *tensor, const char *end) {
  char name[TENSOR_NAME_MAX], module[TENSOR_NAME_MAX];
  module_name(module, sizeof module, reading, tensor);
  if (snprintf(name, sizeof(name), "base_model.model.%s%s", module, end) >= (int)sizeof name)
    return NULL;
  return weight_files_find(reading->files, name);
}

static void take(const adapter_reading_t *reading, const stored_tensor_t *tensor) {
  reading->taken[tensor - weight_files_at(reading->files, 0)] = 1;
}

/* `cols` 0: a vector. */
static int check(const stored_tensor_t *tensor, int64_t rows, int64_t cols, inferd_error_t *error) {
  const bool known = strcmp(tensor->type, "F32") == 0 || strcmp(tensor->type, "F16") == 0 ||
                     strcmp(tensor->type, "BF16") == 0;
  const int rank = cols > 0 ? 2 : 1;
  char shape[40] = "", wanted[40] = "";
  if (known && tensor->rank == rank && tensor->shape[0] == rows &&
      (cols == 0 || tensor->shape[1] == cols))
    return 0;
  const int64_t right[2] = {rows, cols};
  return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                   "tensor %s: %s of rank %d %s, expected F32, F16 or BF16 %s", tensor->name,
                   tensor->type, tensor->rank,
                   weights_shape_text(shape, sizeof shape, tensor->shape, MIN(tensor->rank, 2)),
                   weights_shape_text(wanted, sizeof wanted, right, rank));
}

/* Elements times `scale`, which the caller frees. NULL: *error says why. */
static float *numbers(const adapter_reading_t *reading, const stored_tensor_t *tensor,
                      double scale) {
  size_t count = (size_t)tensor->shape[0] * (size_t)(tensor->rank > 1 ? tensor->shape[1] : 1);
  float *out = calloc(count, sizeof(float));
  if (out == NULL) {
    error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for %s", tensor->name);
    return NULL;
  }
  convert_row(out, DTYPE_F32, tensor->data, weights_stored_dtype(tensor), (int64_t)count);
  for (size_t i = 0; i < count; i++) out[i] = (float)(out[i] * scale);
  if (convert_finite(out, DTYPE_F32, (int64_t)count)) return out;
  error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s: holds NaN or infinity",
            tensor->name);
  free(out);
  return NULL;
}

/* A row of `width` for each row of the layer: these go to the places where the layer has them. */
static int reorder(const expected_tensor_t *tensor, int64_t width, float **rows,
                   inferd_error_t *error) {
  if (tensor->order.head_dim == 0) return 0;
  float *out = calloc((size_t)(tensor->rows * width), sizeof(float));
  if (out == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", tensor->name);
  for (int64_t row = 0; row < tensor->rows; row++) {
    memcpy(out + row * width, *rows + tensor_stored_row(tensor, row) * width,
           (size_t)width * sizeof(float));
  }
  free(*rows);
  *rows = out;
  return 0;
}

/* A vector of the file with an element for each row of a matrix. */
static int read_vector(const adapter_reading_t *reading, const expected_tensor_t *tensor,
                       const stored_tensor_t *stored, int64_t count, double scale, float **out) {
  int code = check(stored, count, 0, reading->error);
  if (code != 0) return code;
  take(reading, stored);
  *out = numbers(reading, stored, scale);
  if (*out == NULL) return reading->error->code;
  return count == tensor->rows ? reorder(tensor, 1, out, reading->error) : 0;
}

/* ---- the model's own weights ---- */

static int open_base(adapter_reading_t *reading) {
  const adapter_base_t *base = reading->base;
  if (reading->is_open) return 0;
  reading->quiet = *base->model;
  reading->quiet.log = NULL;
  reading->quiet.progress = NULL;
  int code = weight_loader_open(&reading->loader, base->ops, NULL, base->blueprint, &reading->quiet,
                                reading->error);
  reading->is_open = code == 0;
  return code;
}

/* The role whose tensor the model has: a head may be the embedding. */
static tensor_role_t own_role(const adapter_reading_t *reading, tensor_role_t role) {
  const tensor_list_t *list = &reading->loader.list;
  return role == ROLE_HEAD && tensors_get(list, role, -1, false) == NULL ? ROLE_EMBED : role;
}

/* Called with `count` rows of the model's matrix, in float32, from row `first` on. */
typedef void own_rows_t(void *context, int64_t first, int64_t count, const float *rows);

/* Rounds to the type in which the model runs, and back. */
static void round_to(dtype_t dtype, float *values, int64_t count) {
  uint16_t piece[PIECE];
  for (int64_t at = 0; dtype != DTYPE_F32 && at < count; at += PIECE) {
    const int64_t n = MIN(count - at, PIECE);
    convert_row(piece, dtype, values + at, DTYPE_F32, n);
    convert_row(values + at, DTYPE_F32, piece, dtype, n);
  }
}

/* All rows of the model's matrix, as the model uses them. */
static int each_own_row(adapter_reading_t *reading, const expected_tensor_t *tensor,
                        own_rows_t *call, void *context) {
  int code = open_base(reading);
  const tensor_role_t role = code == 0 ? own_role(reading, tensor->role) : tensor->role;
  int64_t most = MAX(ELEMENTS_AT_ONCE / tensor->cols, 1);
  if (tensor->form == FORM_TRANSPOSED) most = tensor->rows; /* each call turns all */
  for (int64_t first = 0; code == 0 && first < tensor->rows; first += most) {
    const int64_t count = MIN(most, tensor->rows - first);
    void *rows = NULL;
    code = weight_loader_rows(&reading->loader, role, tensor->layer, DTYPE_F32, first, count, &rows,
                              reading->error);
    if (code != 0) break;
    round_to(reading->loader.dtype, rows, count * tensor->cols);
    call(context, first, count, rows);
    free(rows);
  }
  return code;
}

typedef struct comparing {
  const expected_tensor_t *tensor;
  const float *read;
  bool differs;
} comparing_t;

static void compare_rows(void *context, int64_t first, int64_t count, const float *rows) {
  comparing_t *job = context;
  const int64_t cols = MAX(job->tensor->cols, 1);
  for (int64_t row = first; row < first + count; row++) {
    const float *read = job->read + tensor_stored_row(job->tensor, row) * cols;
    for (int64_t k = 0; k < cols; k++) job->differs |= read[k] != rows[(row - first) * cols + k];
  }
}

/* *same = a tensor of the file has the numbers of the model's own. */
static int compare(adapter_reading_t *reading, const expected_tensor_t *tensor,
                   const stored_tensor_t *stored, bool *same) {
  float *own = NULL, *read = NULL;
  comparing_t job = {.tensor = tensor};
  int code = check(stored, tensor->rows, tensor->cols, reading->error);
  if (code == 0 && (read = numbers(reading, stored, 1.0)) == NULL) code = reading->error->code;
  if (code == 0) code = open_base(reading);
  job.read = read;
  if (code == 0) round_to(reading->loader.dtype, read, tensor->rows * MAX(tensor->cols, 1));
  if (code == 0 && tensor->cols > 0) {
    code = each_own_row(reading, tensor, compare_rows, &job);
  } else if (code == 0) {
    code = weight_loader_values(&reading->loader, tensor->role, tensor->layer, tensor->bias, &own,
                                reading->error);
    if (code == 0) compare_rows(&job, 0, tensor->rows, own);
  }
  *same = !job.differs;
  free(own);
  free(read);
  return code;
}

/* ---- DoRA ---- */

typedef struct row_norms {
  const adapter_part_t *part;
  const expected_tensor_t *tensor;
  float *line;   /* [cols] */
  double *norms; /* [rows] squares of norms; of an embedding [cols] */
} row_norms_t;

/* Adds the squares of W + B A, row by row; of an embedding W is [V, E], and rows of B are columns.
 */
static void add_squares(void *context, int64_t first, int64_t count, const float *rows) {
  const row_norms_t *job = context;
  const adapter_part_t *part = job->part;
  const int64_t cols = job->tensor->cols, all = job->tensor->rows, rank = part->rank;
  const bool turned = job->tensor->role == ROLE_EMBED;
  for (int64_t row = first; row < first + count; row++) {
    memcpy(job->line, rows + (row - first) * cols, (size_t)cols * sizeof *job->line);
    for (int64_t r = 0; r < rank; r++) {
      const float factor = turned ? part->a[r * all + row] : part->b[row * rank + r];
      for (int64_t k = 0; k < cols; k++)
        job->line[k] += factor * (turned ? part->b[k * rank + r] : part->a[r * cols + k]);
    }
    for (int64_t k = 0; k < cols; k++)
      job->norms[turned ? k : row] += (double)job->line[k] * job->line[k];
  }
}

/* Factors and B of W' = m (W + B A) / |W + B A|, whose norms are those of rows of W. */
static int weigh(adapter_reading_t *reading, const expected_tensor_t *tensor,
                 const float *magnitudes, adapter_part_t *part) {
  const bool turned = tensor->role == ROLE_EMBED;
  const int64_t count = turned ? tensor->cols : tensor->rows;
  row_norms_t job = {.part = part,
                     .tensor = tensor,
                     .line = calloc((size_t)tensor->cols, sizeof(float)),
                     .norms = calloc((size_t)count, sizeof(double))};
  part->factors = calloc((size_t)count, sizeof(float));
  int code = 0;
  if (job.line == NULL || job.norms == NULL || part->factors == NULL)
    code = error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for %s", tensor->name);
  if (code == 0) code = each_own_row(reading, tensor, add_squares, &job);
  for (int64_t n = 0; code == 0 && n < count; n++) {
    const double factor = magnitudes[n] / sqrt(job.norms[n]);
    part->factors[n] = (float)(factor - 1);
    for (int32_t r = 0; r < part->rank; r++)
      part->b[n * part->rank + r] = (float)(part->b[n * part->rank + r] * factor);
    if (!isfinite(factor))
      code = error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                       "%s: row %lld of the weight with its adapter is 0, and has no direction "
                       "(use_dora)",
                       tensor->name, (long long)n);
  }
  free(job.line);
  free(job.norms);
  return code;
}

static int read_magnitudes(adapter_reading_t *reading, const expected_tensor_t *tensor,
                           adapter_part_t *out) {
  const bool turned = tensor->role == ROLE_EMBED;
  const stored_tensor_t *stored = find(reading, tensor, ".lora_magnitude_vector");
  float *magnitudes = NULL;
  if (!reading->config->dora) return 0;
  if (stored == NULL)
    return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                     "%s has no lora_magnitude_vector, but use_dora is true", tensor->name);
  int code =
      read_vector(reading, tensor, stored, turned ? tensor->cols : tensor->rows, 1, &magnitudes);
  if (code == 0) code = weigh(reading, tensor, magnitudes, out);
  free(magnitudes);
  return code;
}

/* ---- pairs ---- */

/* What the file says of a pair, against the configuration. */
static int check_pair(const adapter_reading_t *reading, const stored_tensor_t *left,
                      const stored_tensor_t *right, const expected_tensor_t *tensor,
                      const adapter_module_t *module) {
  inferd_error_t *error = reading->error;
  const int64_t rank = left->shape[0];
  const int32_t rank_max = reading->base->rank_max;
  const bool turned = tensor->role == ROLE_EMBED;
  if (!module->is_target)
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s is of no module that adapter_config.json has as a target "
                     "(target_modules, exclude_modules, modules_to_save, layers_to_transform)",
                     left->name);
  if (left->rank != 2)
    return check(left, module->rank, turned ? tensor->rows : tensor->cols, error);
  if (rank > rank_max) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: rank %lld, supported: 1..%d (--max-lora-rank)", left->name,
                     (long long)rank, rank_max);
  }
  if (rank != module->rank)
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: rank %lld, but adapter_config.json gives it %lld (r, "
                     "rank_pattern)",
                     left->name, (long long)rank, (long long)module->rank);
  int code = check(left, rank, turned ? tensor->rows : tensor->cols, error);
  return code != 0 ? code : check(right, turned ? tensor->cols : tensor->rows, rank, error);
}

/* What PEFT has no adapter for, or a device. */
static int check_kind(const adapter_reading_t *reading, const expected_tensor_t *tensor,
                      const stored_tensor_t *stored) {
  const ops_t *ops = reading->base->ops;
  const bool is_embedding = tensor->role == ROLE_EMBED, is_head = tensor->role == ROLE_HEAD;
  const char *key = NULL;
  if (is_embedding && reading->config->invocation != NULL) key = "alora_invocation_tokens";
  if (is_embedding && reading->config->lora_bias) key = "lora_bias";
  if (key != NULL)
    return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: PEFT takes no %s for an embedding", stored->name, key);
  if ((is_embedding && !adapter_embeds(ops)) ||
      (is_head && !adapter_heads(ops, reading->base->blueprint)))
    return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: device %s has no adapter of this %s; use --device cpu",
                     stored->name, ops->name,
                     is_embedding ? "embedding" : "head, whose logits have a softcap");
  return 0;
}

/* No pair: PEFT leaves the module alone, unless it begins with random numbers. */
static int check_absent(const adapter_reading_t *reading, const expected_tensor_t *tensor) {
  char name[TENSOR_NAME_MAX];
  adapter_module_t module;
  if (!reading->config->needs_tensors) return 0;
  module_name(name, sizeof name, reading, tensor);
  int code = adapter_config_module(reading->config, name, &module);
  if (code != 0 || !module.is_target) return code;
  return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                   "%s is a target, but the file has no matrices of it, and PEFT would draw them "
                   "(init_lora_weights)",
                   name);
}

/* The bias of B, which PEFT scales as it does B. */
static int read_pair_bias(const adapter_reading_t *reading, const expected_tensor_t *tensor,
                          const adapter_module_t *module, adapter_part_t *out) {
  const stored_tensor_t *stored = find(reading, tensor, ".lora_B.bias");
  if (!reading->config->lora_bias) return 0;
  if (stored == NULL)
    return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                     "%s has no lora_B.bias, but lora_bias is true", tensor->name);
  return read_vector(reading, tensor, stored, tensor->rows, module->scale, &out->offsets);
}

static int read_pair(adapter_reading_t *reading, const expected_tensor_t *tensor,
                     adapter_part_t *out) {
  const bool turned = tensor->role == ROLE_EMBED;
  inferd_error_t *error = reading->error;
  char name[TENSOR_NAME_MAX];
  adapter_module_t module;
  const stored_tensor_t *left =
      find(reading, tensor, turned ? ".lora_embedding_A" : LORA_NAME("A"));
  const stored_tensor_t *right =
      find(reading, tensor, turned ? ".lora_embedding_B" : LORA_NAME("B"));
  if (left == NULL && right == NULL) return check_absent(reading, tensor);
  if (left == NULL || right == NULL) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s has no lora_%c beside it",
                     left != NULL ? left->name : right->name, left != NULL ? 'B' : 'A');
  }
  module_name(name, sizeof name, reading, tensor);
  int code = adapter_config_module(reading->config, name, &module);
  if (code == 0) code = check_pair(reading, left, right, tensor, &module);
  if (code == 0) code = check_kind(reading, tensor, left);
  if (code != 0) return code;
  take(reading, left);
  take(reading, right);
  out->a = numbers(reading, left, 1.0);
  out->b = out->a != NULL ? numbers(reading, right, module.scale) : NULL;
  if (out->b == NULL) return error->code;
  out->rank = (int32_t)module.rank;
  if (!turned) code = reorder(tensor, module.rank, &out->b, error);
  if (code == 0) code = read_pair_bias(reading, tensor, &module, out);
  return code != 0 ? code : read_magnitudes(reading, tensor, out);
}

/* ---- what PEFT loads into the model itself ---- */

/* A table in the place of the model's, in the type of the file. */
static int read_whole(adapter_reading_t *reading, const expected_tensor_t *tensor,
                      const stored_tensor_t *stored, adapter_part_t *out) {
  const blueprint_t *bp = reading->base->blueprint;
  const ops_t *ops = reading->base->ops;
  inferd_error_t *error = reading->error;
  int code = check(stored, tensor->rows, tensor->cols, error);
  if (code != 0) return code;
  if (reading->config->invocation != NULL)
    return error_set(
        error, ERR_MODEL_MALFORMED, "modules_to_save",
        "modules_to_save has %s, which PEFT replaces before the invocation tokens, too "
        "(alora_invocation_tokens)",
        tensor->name);
  if (!ops->lora->has_wholes || !shard_is_whole(bp) || bp->shard.num_stages > 1)
    return error_set(error, ERR_MODEL_MALFORMED, "modules_to_save",
                     "modules_to_save has %s: %s replaces no whole modules; use --device cpu and "
                     "one rank",
                     tensor->name, ops->lora->has_wholes ? "a model on several ranks" : ops->name);
  out->whole_type = weights_stored_dtype(stored);
  if (!convert_finite(stored->data, out->whole_type, tensor->rows * tensor->cols))
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s: holds NaN or infinity",
                     stored->name);
  out->whole = malloc(stored->bytes);
  if (out->whole == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", stored->name);
  memcpy(out->whole, stored->data, stored->bytes);
  take(reading, stored);
  return 0;
}

/* Offsets become those between two biases, too. */
static int read_bias(adapter_reading_t *reading, const expected_tensor_t *tensor,
                     const stored_tensor_t *stored, adapter_part_t *out) {
  float *bias = NULL, *own = NULL;
  int code = open_base(reading);
  if (code == 0) code = read_vector(reading, tensor, stored, tensor->rows, 1, &bias);
  if (code == 0)
    code = weight_loader_values(&reading->loader, tensor->role, tensor->layer, true, &own,
                                reading->error);
  if (code == 0 && out->offsets == NULL) out->offsets = calloc((size_t)tensor->rows, sizeof(float));
  if (code == 0 && out->offsets == NULL)
    code = error_set(reading->error, ERR_NO_MEMORY, NULL, "no memory for %s", stored->name);
  for (int64_t n = 0; code == 0 && n < tensor->rows; n++) out->offsets[n] += bias[n] - own[n];
  free(bias);
  free(own);
  return code;
}

/* The part that changes the tensor; NULL = none does. */
static adapter_part_t *part_of(adapter_t *adapter, const expected_tensor_t *tensor) {
  for (int32_t i = 0; i < adapter_part_count(adapter->num_layers); i++) {
    int32_t layer;
    const tensor_role_t role = adapter_part_role(adapter->num_layers, i, &layer);
    if (role == tensor->role && layer == tensor->layer) return &adapter->parts[i];
  }
  return NULL;
}

/* A tensor that PEFT would load into the model: it is served, equal to the model's, or refused. */
static int read_own(adapter_reading_t *reading, const expected_tensor_t *tensor,
                    adapter_t *adapter) {
  char name[TENSOR_NAME_MAX], end[32];
  adapter_module_t module;
  const bool is_table = tensor->role == ROLE_EMBED || tensor->role == ROLE_HEAD;
  module_name(name, sizeof name, reading, tensor);
  int code = adapter_config_module(reading->config, name, &module);
  if (code != 0) return code;
  snprintf(end, sizeof end, "%s%s", module.is_target ? ".base_layer" : "", suffix_of(tensor));
  const stored_tensor_t *stored = find(reading, tensor, end);
  if (module.is_saved && (module.is_target || stored == NULL))
    return error_set(reading->error, ERR_MODEL_MALFORMED, "modules_to_save",
                     module.is_target ? "modules_to_save has %s, which is a target, too"
                                      : "modules_to_save has %s, but the file has no tensor of it",
                     tensor->name);
  if (stored == NULL) return 0;
  adapter_part_t *part = part_of(adapter, tensor);
  if (module.is_saved && is_table && !tensor->bias)
    return read_whole(reading, tensor, stored, part);
  bool same;
  code = compare(reading, tensor, stored, &same);
  if (code != 0) return code;
  if (same) {
    take(reading, stored);
    return 0;
  }
  const lora_ops_t *ops = reading->base->ops->lora;
  const bool has_place =
      part != NULL &&
      (tensor->role != ROLE_HEAD || adapter_heads(reading->base->ops, reading->base->blueprint));
  if (tensor->bias && has_place && ops->has_vectors && reading->config->invocation == NULL)
    return read_bias(reading, tensor, stored, part);
  return error_set(
      reading->error, ERR_MODEL_MALFORMED, module.is_saved ? "modules_to_save" : "lora_path",
      "tensor %s is not the model's own, which PEFT would replace by it: served so are "
      "the embedding and the head in modules_to_save and, without "
      "alora_invocation_tokens and on a CPU, biases of linear layers",
      stored->name);
}

/* Refuses tensors that no layer uses: the message has their number and the first name. */
static int refuse_rest(const adapter_reading_t *reading) {
  const weight_files_t *files = reading->files;
  size_t count = weight_files_count(files), rest = 0;
  char name[120] = "";
  for (size_t i = 0; i < count; i++) {
    if (reading->taken[i]) continue;
    const char *text = weight_files_at(files, i)->name;
    if (rest++ == 0) error_quote(name, sizeof(name), text, strlen(text));
  }
  if (rest == 0 && count > 0) return 0;
  if (count == 0)
    return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                     "the adapter has no tensors");
  return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                   "%zu tensors belong to nothing that an adapter may change here (the linear "
                   "layers of attention and dense MLPs, the embedding, the head), first: %s",
                   rest, name);
}

/* ---- the whole ---- */

static adapter_t *new_adapter(const blueprint_t *bp, inferd_error_t *error) {
  adapter_t *adapter = calloc(1, sizeof *adapter);
  if (adapter != NULL) {
    adapter->num_layers = bp->num_layers;
    adapter->parts = calloc((size_t)adapter_part_count(bp->num_layers), sizeof(adapter_part_t));
    if (adapter->parts != NULL) return adapter;
  }
  adapter_free(adapter);
  error_set(error, ERR_NO_MEMORY, NULL, "no memory for an adapter of %d layers", bp->num_layers);
  return NULL;
}

/* True if the file has a tensor whose name begins as that of the module. */
static bool names_module(const adapter_reading_t *reading, const expected_tensor_t *tensor) {
  char module[TENSOR_NAME_MAX], begin[TENSOR_NAME_MAX + 32];
  module_name(module, sizeof module, reading, tensor);
  const int length = snprintf(begin, sizeof begin, "base_model.model.%s.", module);
  for (size_t i = 0; i < weight_files_count(reading->files); i++)
    if (strncmp(weight_files_at(reading->files, i)->name, begin, (size_t)length) == 0) return true;
  return false;
}

/* True if PEFT finds modules of this prefix in the model: those of the model without its head it
 * does not find in one that generates, nor those of a larger model in the text model alone. */
static bool may_have(const blueprint_t *bp, const char *prefix) {
  return prefix[0] == '\0' ? bp->headless : bp->within || strcmp(prefix, "model.") == 0;
}

/* The first prefix with which the file has a module; the names of one file have one. */
static const char *find_prefix(adapter_reading_t *reading, const layout_t *layout,
                               const tensor_list_t *list, int32_t num_layers) {
  for (int p = 0; p < LAYOUT_PREFIXES_MAX && layout->prefixes[p] != NULL; p++) {
    if (p > 0 && !may_have(reading->base->blueprint, layout->prefixes[p])) continue;
    reading->prefix = layout->prefixes[p];
    for (int32_t i = 0; i < adapter_part_count(num_layers); i++) {
      int32_t layer;
      const tensor_role_t role = adapter_part_role(num_layers, i, &layer);
      const expected_tensor_t *tensor = tensors_get(list, role, layer, false);
      if (tensor != NULL && !tensor->absolute && names_module(reading, tensor))
        return reading->prefix;
    }
  }
  return layout->prefixes[0];
}

static int read_parts(adapter_reading_t *reading, adapter_t *adapter) {
  const family_t *family =
      family_by_name(reading->base->blueprint->family, strlen(reading->base->blueprint->family));
  tensor_list_t list = {0};
  blueprint_t named = *reading->base->blueprint;
  CHECK(family != NULL);
  named.gguf = false; /* adapters name the layers as transformers does, whatever the model's file */
  named.tied = false; /* the head has a name, whether it has a matrix or not */
  int code = tensors_expect(&named, &list, reading->error);
  if (code == 0) reading->prefix = find_prefix(reading, family->layout, &list, named.num_layers);
  for (int32_t i = 0; code == 0 && i < adapter_part_count(named.num_layers); i++) {
    int32_t layer;
    const tensor_role_t role = adapter_part_role(named.num_layers, i, &layer);
    const expected_tensor_t *tensor = tensors_get(&list, role, layer, false);
    if (tensor != NULL) code = read_pair(reading, tensor, &adapter->parts[i]);
  }
  for (int32_t i = 0; code == 0 && i < list.count; i++) {
    const expected_tensor_t *tensor = &list.tensors[i];
    if (tensor->stack == 1 && tensor->copies == 1) code = read_own(reading, tensor, adapter);
  }
  tensors_free(&list);
  return code;
}

static int check_device(const adapter_base_t *base, const adapter_config_t *config,
                        inferd_error_t *error) {
  const char *key = config->dora ? "use_dora" : "lora_bias";
  if (base->ops->lora == NULL)
    return error_set(error, ERR_CONFIGURATION, "enable_lora", "device %s has no adapters",
                     base->ops->name);
  if (base->ops->lora->has_vectors || (!config->dora && !config->lora_bias)) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, key,
                   "adapter_config.json: \"%s\" is true, but device %s has no such adapters; use "
                   "--device cpu",
                   key, base->ops->name);
}

int adapter_read(const adapter_base_t *base, const char *dir, adapter_t **out,
                 inferd_error_t *error) {
  adapter_config_t config;
  weight_files_t *files = NULL;
  *out = NULL;
  int code = adapter_config_read(dir, &config, error);
  if (code != 0) return error_within(error, code, dir);
  adapter_reading_t reading = {.base = base, .config = &config, .error = error};
  adapter_t *adapter = new_adapter(base->blueprint, error);
  code = adapter != NULL ? check_device(base, &config, error) : error->code;
  if (code == 0) code = weight_files_open_file(dir, "adapter_model.safetensors", &files, error);
  reading.files = files;
  if (code == 0) reading.taken = calloc(weight_files_count(files) + 1, 1);
  if (code == 0 && reading.taken == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  if (code == 0) code = adapter_config_invocation(&config, &adapter->invocation);
  if (code == 0) code = read_parts(&reading, adapter);
  if (code == 0) code = refuse_rest(&reading);
  if (code == 0) code = weight_files_intact(files, error);
  if (code == 0 && reading.is_open) code = weight_loader_finish(&reading.loader, error);
  if (reading.is_open) weight_loader_close(&reading.loader);
  weight_files_close(files);
  adapter_config_free(&config);
  free(reading.taken);
  if (code != 0) {
    adapter_free(adapter);
    return error_within(error, code, dir);
  }
  *out = adapter;
  return 0;
}
