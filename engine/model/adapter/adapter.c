/* adapter.c: reads low-rank adapters; see adapter.h. Any thread, no state. */
#include "engine/model/adapter/adapter.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/adapter/adapter_config.h"
#include "engine/model/config/config.h"
#include "engine/model/forward/internal.h"
#include "engine/model/sizes.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/tensors.h"
#include "engine/model/weights/weights.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct adapter_pair {
  int32_t rank; /* 0 = the adapter leaves this layer alone */
  float *a, *b; /* [rank, cols], [rows, rank]; owned */
} adapter_pair_t;

struct adapter {
  atomic_int others; /* that hold it, too */
  int32_t num_layers;
  adapter_pair_t *pairs; /* [num_layers, LORA_TARGETS] */
  invocation_t invocation;
};

static const tensor_role_t roles[LORA_TARGETS] = {
    [LORA_Q] = ROLE_Q,       [LORA_K] = ROLE_K,
    [LORA_V] = ROLE_V,       [LORA_QKV] = ROLE_QKV,
    [LORA_O] = ROLE_O,       [LORA_GATE] = ROLE_GATE,
    [LORA_UP] = ROLE_UP,     [LORA_GATE_UP] = ROLE_GATE_UP,
    [LORA_DOWN] = ROLE_DOWN,
};

void adapter_hold(adapter_t *adapter, int times) {
  atomic_fetch_add(&adapter->others, times);
}

void adapter_free(adapter_t *adapter) {
  if (adapter == NULL || atomic_fetch_sub(&adapter->others, 1) > 0) return;
  for (int64_t i = 0; adapter->pairs != NULL && i < (int64_t)adapter->num_layers * LORA_TARGETS;
       i++) {
    free(adapter->pairs[i].a);
    free(adapter->pairs[i].b);
  }
  free(adapter->pairs);
  free(adapter->invocation.ids);
  free(adapter);
}

void adapter_take_invocation(adapter_t *adapter, invocation_t *out) {
  free(out->ids);
  *out = adapter->invocation;
  adapter->invocation = (invocation_t){0};
}

int32_t invocation_find(const invocation_t *invocation, const int32_t *ids, int32_t count) {
  const size_t bytes = (size_t)invocation->count * sizeof *ids;
  if (invocation->count == 0) return 0;
  for (int32_t i = count - invocation->count; i >= 0; i--)
    if (ids[i] == invocation->ids[0] && memcmp(ids + i, invocation->ids, bytes) == 0) return i;
  return INT32_MAX;
}

/* A file that is read. */
typedef struct adapter_reading {
  adapter_config_t *config;
  const weight_files_t *files;
  const layout_t *layout;
  const char *prefix; /* one of the layout's, which the names in the file have */
  int32_t rank_max;
  uint8_t *taken; /* by tensor of the file: an expected one */
  inferd_error_t *error;
} adapter_reading_t;

/* "base_model.model." + prefix + name without ".weight" + ".lora_A.weight". */
static const stored_tensor_t *find(const adapter_reading_t *reading,
                                   const expected_tensor_t *tensor, char letter) {
  char name[TENSOR_NAME_MAX];
  snprintf(name, sizeof(name), "base_model.model.%s%.*s.lora_%c.weight", reading->prefix,
           (int)(strlen(tensor->name) - strlen(".weight")), tensor->name, letter);
  return weight_files_find(reading->files, name);
}

static int check(const stored_tensor_t *tensor, int64_t rows, int64_t cols, inferd_error_t *error) {
  bool known = strcmp(tensor->type, "F32") == 0 || strcmp(tensor->type, "F16") == 0 ||
               strcmp(tensor->type, "BF16") == 0;
  if (known && tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols) return 0;
  return error_set(
      error, ERR_MODEL_MALFORMED, "lora_path",
      "tensor %s: %s of rank %d [%lld, %lld], expected F32, F16 or BF16 [%lld, %lld]", tensor->name,
      tensor->type, tensor->rank, (long long)(tensor->rank > 0 ? tensor->shape[0] : 0),
      (long long)(tensor->rank > 1 ? tensor->shape[1] : 0), (long long)rows, (long long)cols);
}

static float *numbers(const stored_tensor_t *tensor, double scale, inferd_error_t *error) {
  size_t count = (size_t)(tensor->shape[0] * tensor->shape[1]);
  float *out = calloc(count, sizeof(float));
  if (out == NULL) {
    error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", tensor->name);
    return NULL;
  }
  convert_row(out, DTYPE_F32, tensor->data, weights_stored_dtype(tensor), (int64_t)count);
  for (size_t i = 0; i < count; i++) out[i] = (float)(out[i] * scale);
  if (convert_finite(out, DTYPE_F32, (int64_t)count)) return out;
  error_set(error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s: holds NaN or infinity",
            tensor->name);
  free(out);
  return NULL;
}

/* B has a row for each row of the layer: these go to the places where the layer has them. */
static int reorder(const expected_tensor_t *tensor, int64_t rank, float **rows,
                   inferd_error_t *error) {
  if (tensor->order.head_dim == 0) return 0;
  float *out = calloc((size_t)(tensor->rows * rank), sizeof(float));
  if (out == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", tensor->name);
  for (int64_t row = 0; row < tensor->rows; row++) {
    memcpy(out + row * rank, *rows + tensor_stored_row(tensor, row) * rank,
           (size_t)rank * sizeof(float));
  }
  free(*rows);
  *rows = out;
  return 0;
}

/* Writes the name of a tensor's module, without what PEFT puts before and behind it. */
static void module_name(char *out, size_t size, const char *prefix,
                        const expected_tensor_t *tensor) {
  snprintf(out, size, "%s%.*s", prefix, (int)(strlen(tensor->name) - strlen(".weight")),
           tensor->name);
}

/* What the file says of a pair, against the configuration. */
static int check_pair(const adapter_reading_t *reading, const stored_tensor_t *left,
                      const stored_tensor_t *right, const expected_tensor_t *tensor,
                      const adapter_module_t *module) {
  inferd_error_t *error = reading->error;
  const int64_t rank = left->rank == 2 ? left->shape[0] : 0;
  if (!module->is_target)
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s is of no module that adapter_config.json has as a target "
                     "(target_modules, exclude_modules, layers_to_transform)",
                     left->name);
  if (rank < 1 || rank > reading->rank_max) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: rank %lld, supported: 1..%d (--max-lora-rank)", left->name,
                     (long long)rank, reading->rank_max);
  }
  if (rank != module->rank)
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: rank %lld, but adapter_config.json gives it %lld (r, "
                     "rank_pattern)",
                     left->name, (long long)rank, (long long)module->rank);
  int code = check(left, rank, tensor->cols, error);
  return code != 0 ? code : check(right, tensor->rows, rank, error);
}

/* No pair: PEFT leaves the module alone, unless it begins with random numbers. */
static int check_absent(const adapter_reading_t *reading, const expected_tensor_t *tensor) {
  char name[TENSOR_NAME_MAX];
  adapter_module_t module;
  if (!reading->config->needs_tensors) return 0;
  module_name(name, sizeof name, reading->prefix, tensor);
  int code = adapter_config_module(reading->config, name, &module);
  if (code != 0 || !module.is_target) return code;
  return error_set(reading->error, ERR_MODEL_MALFORMED, "lora_path",
                   "%s is a target, but the file has no matrices of it, and PEFT would draw them "
                   "(init_lora_weights)",
                   name);
}

static int read_pair(adapter_reading_t *reading, const expected_tensor_t *tensor,
                     adapter_pair_t *out) {
  const weight_files_t *files = reading->files;
  inferd_error_t *error = reading->error;
  char name[TENSOR_NAME_MAX];
  adapter_module_t module;
  const stored_tensor_t *left = find(reading, tensor, 'A');
  const stored_tensor_t *right = find(reading, tensor, 'B');
  if (left == NULL && right == NULL) return check_absent(reading, tensor);
  if (left == NULL || right == NULL) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s has no lora_%c beside it",
                     left != NULL ? left->name : right->name, left != NULL ? 'B' : 'A');
  }
  module_name(name, sizeof name, reading->prefix, tensor);
  int code = adapter_config_module(reading->config, name, &module);
  if (code == 0) code = check_pair(reading, left, right, tensor, &module);
  if (code != 0) return code;
  uint8_t *taken = reading->taken;
  taken[left - weight_files_at(files, 0)] = taken[right - weight_files_at(files, 0)] = 1;
  out->a = numbers(left, 1.0, error);
  out->b = out->a != NULL ? numbers(right, module.scale, error) : NULL;
  if (out->b == NULL) return error->code;
  out->rank = (int32_t)module.rank;
  return reorder(tensor, module.rank, &out->b, error);
}

/* Refuses tensors that no layer uses: the message has their number and the first name. */
static int refuse_rest(const weight_files_t *files, const uint8_t *taken, inferd_error_t *error) {
  size_t count = weight_files_count(files), rest = 0;
  char name[120] = "";
  for (size_t i = 0; i < count; i++) {
    if (taken[i]) continue;
    const char *text = weight_files_at(files, i)->name;
    if (rest++ == 0) error_quote(name, sizeof(name), text, strlen(text));
  }
  if (rest == 0 && count > 0) return 0;
  if (count == 0)
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path", "the adapter has no tensors");
  return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                   "%zu tensors belong to nothing that an adapter may change here (the linear "
                   "layers of attention and dense MLPs), first: %s",
                   rest, name);
}

static adapter_t *new_adapter(const blueprint_t *bp, inferd_error_t *error) {
  adapter_t *adapter = calloc(1, sizeof *adapter);
  if (adapter != NULL) {
    adapter->num_layers = bp->num_layers;
    adapter->pairs = calloc((size_t)bp->num_layers * LORA_TARGETS, sizeof(adapter_pair_t));
    if (adapter->pairs != NULL) return adapter;
  }
  adapter_free(adapter);
  error_set(error, ERR_NO_MEMORY, NULL, "no memory for an adapter of %d layers", bp->num_layers);
  return NULL;
}

/* The first prefix with which the file has a matrix; the names of one file have one. */
static const char *find_prefix(adapter_reading_t *reading, const tensor_list_t *list,
                               int32_t num_layers) {
  const layout_t *layout = reading->layout;
  for (int p = 0; p < LAYOUT_PREFIXES_MAX && layout->prefixes[p] != NULL; p++) {
    reading->prefix = layout->prefixes[p];
    for (int32_t i = 0; i < num_layers * LORA_TARGETS; i++) {
      const expected_tensor_t *tensor =
          tensors_get(list, roles[i % LORA_TARGETS], i / LORA_TARGETS, false);
      if (tensor == NULL) continue;
      if (find(reading, tensor, 'A') != NULL || find(reading, tensor, 'B') != NULL)
        return reading->prefix;
    }
  }
  return layout->prefixes[0];
}

static int read_pairs(adapter_reading_t *reading, const blueprint_t *bp, adapter_t *adapter) {
  tensor_list_t list = {0};
  blueprint_t named = *bp;
  named.gguf = false; /* adapters name the layers as transformers does, whatever the model's file */
  int code = tensors_expect(&named, &list, reading->error);
  if (code == 0) reading->prefix = find_prefix(reading, &list, bp->num_layers);
  for (int32_t i = 0; code == 0 && i < bp->num_layers * LORA_TARGETS; i++) {
    const expected_tensor_t *tensor =
        tensors_get(&list, roles[i % LORA_TARGETS], i / LORA_TARGETS, false);
    if (tensor != NULL) code = read_pair(reading, tensor, &adapter->pairs[i]);
  }
  tensors_free(&list);
  return code;
}

int adapter_read(const blueprint_t *bp, const char *dir, int32_t rank_max, adapter_t **out,
                 inferd_error_t *error) {
  const family_t *family = family_by_name(bp->family, strlen(bp->family));
  CHECK(family != NULL);
  adapter_config_t config;
  weight_files_t *files = NULL;
  *out = NULL;
  int code = adapter_config_read(dir, &config, error);
  if (code != 0) return error_within(error, code, dir);
  adapter_reading_t reading = {
      .config = &config, .layout = family->layout, .rank_max = rank_max, .error = error};
  adapter_t *adapter = new_adapter(bp, error);
  code = adapter != NULL ? 0 : error->code;
  if (code == 0) code = weight_files_open_file(dir, "adapter_model.safetensors", &files, error);
  reading.files = files;
  if (code == 0) reading.taken = calloc(weight_files_count(files) + 1, 1);
  if (code == 0 && reading.taken == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  if (code == 0) code = adapter_config_invocation(&config, &adapter->invocation);
  if (code == 0) code = read_pairs(&reading, bp, adapter);
  if (code == 0) code = refuse_rest(files, reading.taken, error);
  if (code == 0) code = weight_files_intact(files, error);
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

/* Finds the columns of each part of the fused products of a layer, of those that this rank has. */
static void find_targets(const blueprint_t *bp, int32_t i, layer_t *layer, bool dense) {
  const int32_t dim = layer_head_dim(bp, i), q_all = bp->num_heads * dim;
  const int32_t q = shard_heads(bp) * dim, kv = shard_kv_heads(bp, layer_kv_heads(bp, i)) * dim;
  const int32_t all = layer_reads_only(bp, i) ? q : q + 2 * kv;
  const int32_t h = bp->hidden_size, f_all = layer_mlp_width(bp, i);
  const shard_rows_t own = shard_adapter_part(bp, ROLE_UP);
  const int32_t f = own.num_pieces > 0 ? (int32_t)own.count[0] : f_all;
  const int32_t up = bp->gated_mlp ? 2 * f : f;
  const int32_t o_cols = bp->shard.sums ? q : q_all, down_cols = bp->shard.sums ? f : f_all;
  const lora_target_t targets[LORA_TARGETS] = {
      [LORA_Q] = {NULL, q, h, 0, all, 0, 0},
      [LORA_K] = {NULL, kv, h, q, all, 0, 0},
      [LORA_V] = {NULL, kv, h, q + kv, all, 0, 0},
      [LORA_QKV] = {NULL, all, h, 0, all, 0, 0},
      [LORA_O] = {NULL, h, o_cols, 0, h, 0, 0},
      [LORA_GATE] = {NULL, f, h, 0, up, 0, 0},
      [LORA_UP] = {NULL, f, h, up - f, up, 0, 0},
      [LORA_GATE_UP] = {NULL, 2 * f, h, 0, up, 0, 0},
      [LORA_DOWN] = {NULL, h, down_cols, 0, h, 0, 0},
  };
  for (int t = 0; t < LORA_TARGETS; t++) {
    layer->lora[t] = t < LORA_GATE || dense ? targets[t] : (lora_target_t){0};
  }
}

int model_adapters(model_t *model, int32_t slots, int32_t rank_max, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
  int64_t widest = 0;
  tensor_list_t list;
  if (model->ops->lora == NULL) {
    return error_set(error, ERR_CONFIGURATION, "enable_lora",
                     "enable_lora is true, but device %s has no adapters; use --device cpu",
                     model->ops->name);
  }
  if (bp->kv_rank > 0) {
    return error_set(error, ERR_CONFIGURATION, "enable_lora",
                     "enable_lora is true, but %s has latent attention, which takes no adapters",
                     bp->architecture);
  }
  if (bp->full_k_is_v) {
    return error_set(
        error, ERR_CONFIGURATION, "enable_lora",
        "enable_lora is true, but %s has layers whose V is K (attention_k_eq_v), which "
        "take no adapters",
        bp->architecture);
  }
  int code = tensors_expect(bp, &list, error);
  if (code != 0) return code;
  for (int32_t i = 0; i < bp->num_layers && code == 0; i++) {
    layer_t *layer = &model->layers[i];
    find_targets(bp, i, layer, layer->moe.num_experts == 0 || bp->experts_beside);
    for (int t = 0; t < LORA_TARGETS && code == 0; t++) {
      lora_target_t *target = &layer->lora[t];
      const expected_tensor_t *tensor = tensors_get(&list, roles[t], i, false);
      if (target->rows == 0 || tensor == NULL) continue;
      target->all_rows = (int32_t)tensor->rows;
      target->all_cols = (int32_t)tensor->cols;
      widest = MAX(widest, tensor->rows + tensor->cols);
      code = model->ops->lora(model->device, target->rows, target->cols, slots, rank_max,
                              &target->lora, error);
    }
  }
  tensors_free(&list);
  if (code != 0 || (shard_is_whole(bp) && bp->shard.num_stages <= 1)) return code;
  model->pair = calloc((size_t)(widest * rank_max) + 1, sizeof *model->pair);
  if (model->pair != NULL) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a part of an adapter");
}

size_t model_adapter_bytes(const blueprint_t *bp, int32_t slots, int32_t rank_max) {
  tensor_list_t list;
  size_t bytes = 0;
  if (slots == 0 || tensors_expect(bp, &list, NULL) != 0) return 0;
  for (int32_t i = 0; i < bp->num_layers * LORA_TARGETS; i++) {
    const expected_tensor_t *tensor =
        tensors_get(&list, roles[i % LORA_TARGETS], i / LORA_TARGETS, false);
    if (tensor == NULL) continue;
    const shard_rows_t part = shard_adapter_part(bp, tensor->role);
    const int64_t rows = part.num_pieces > 0 ? shard_rows_count(&part) : tensor->rows;
    const int64_t cols = part.num_cols > 0 ? part.num_cols : tensor->cols;
    bytes += (size_t)(rows + cols) * sizeof(float);
  }
  tensors_free(&list);
  return bytes * (size_t)slots * (size_t)rank_max;
}

/* Keeps what this rank has of a pair: some rows of B, some columns of A. */
static void cut_pair(const blueprint_t *bp, tensor_role_t role, const lora_target_t *target,
                     adapter_pair_t *pair) {
  const shard_rows_t part = shard_adapter_part(bp, role);
  const int64_t rank = pair->rank;
  int64_t kept = 0;
  for (int32_t i = 0; i < part.num_pieces; i++) {
    CHECK_LE(part.first[i] + part.count[i], target->all_rows);
    memmove(pair->b + kept * rank, pair->b + part.first[i] * rank,
            (size_t)(part.count[i] * rank) * sizeof *pair->b);
    kept += part.count[i];
  }
  for (int64_t r = 0; r < rank && part.num_cols > 0; r++)
    memmove(pair->a + r * part.num_cols, pair->a + r * target->all_cols + part.first_col,
            (size_t)part.num_cols * sizeof *pair->a);
}

/* One part of a layer. On several ranks the pair goes through model->pair: there it arrives from
 * rank 0, and is cut. */
static int set_pair(model_t *model, to_ranks_t *to_ranks, void *context, int32_t slot,
                    lora_target_t *target, tensor_role_t role, adapter_pair_t pair) {
  int code = 0;
  if (model->pair != NULL && pair.rank > 0) {
    const size_t cols = (size_t)pair.rank * (size_t)target->all_cols;
    const size_t all = cols + (size_t)pair.rank * (size_t)target->all_rows;
    if (pair.a != NULL) {
      memcpy(model->pair, pair.a, cols * sizeof *pair.a);
      memcpy(model->pair + cols, pair.b, (all - cols) * sizeof *pair.b);
    }
    pair.a = model->pair;
    pair.b = model->pair + cols;
    if (to_ranks != NULL) code = to_ranks(context, model->pair, all * sizeof *model->pair);
    cut_pair(&model->blueprint, role, target, &pair);
  }
  if (code == 0) model->ops->lora_set(model->device, target->lora, slot, pair.rank, pair.a, pair.b);
  return code;
}

int model_share_adapter(model_t *model, to_ranks_t *to_ranks, void *context, int32_t slot,
                        int32_t rank_max, const adapter_t *adapter) {
  int code = 0;
  for (int32_t i = 0; i < model->blueprint.num_layers && code == 0; i++) {
    lora_target_t *targets = model->layers[i].lora;
    const adapter_pair_t *pairs = adapter != NULL ? &adapter->pairs[i * LORA_TARGETS] : NULL;
    int32_t ranks[LORA_TARGETS] = {0};
    for (int t = 0; t < LORA_TARGETS && pairs != NULL; t++) ranks[t] = pairs[t].rank;
    if (to_ranks != NULL) code = to_ranks(context, ranks, sizeof ranks);
    for (int t = 0; t < LORA_TARGETS && code == 0; t++) {
      adapter_pair_t pair = pairs != NULL ? pairs[t] : (adapter_pair_t){.rank = ranks[t]};
      if (targets[t].lora == NULL) continue;
      CHECK_RANGE(pair.rank, 0, rank_max + 1);
      code = set_pair(model, to_ranks, context, slot, &targets[t], roles[t], pair);
    }
  }
  return code;
}

void model_set_adapter(model_t *model, int32_t slot, const adapter_t *adapter) {
  (void)model_share_adapter(model, NULL, NULL, slot, ADAPTER_RANK_MAX, adapter);
}
