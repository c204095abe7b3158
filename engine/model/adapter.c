/* adapter.c: reads low-rank adapters; see adapter.h. Any thread, no state. */
#include "engine/model/adapter.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/config/config.h"
#include "engine/model/convert.h"
#include "engine/model/internal.h"
#include "engine/model/model_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/sizes.h"
#include "engine/model/tensors.h"
#include "engine/model/weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

typedef struct adapter_pair {
  int32_t rank; /* 0 = the adapter leaves this layer alone */
  float *a, *b; /* [rank, cols], [rows, rank]; owned */
} adapter_pair_t;

struct adapter {
  atomic_int others; /* that hold it, too */
  int32_t num_layers;
  adapter_pair_t *pairs; /* [num_layers, LORA_TARGETS] */
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
  free(adapter);
}

/* Refuses keys that change the computation, unless their value changes nothing. */
static void refuse_keys(config_reader_t *reader) {
  static const char *const off[] = {"use_dora",         "lora_bias",     "modules_to_save",
                                    "rank_pattern",     "alpha_pattern", "layer_replication",
                                    "megatron_config",  "use_qalora",    "trainable_token_indices",
                                    "target_parameters"};
  for (size_t i = 0; i < ARRAY_LEN(off); i++) {
    const json_t *value = json_get(reader->root, off[i]);
    if (!json_is_given(value) || value->type == JSON_FALSE) continue;
    if ((value->type == JSON_ARRAY || value->type == JSON_OBJECT) && value->count == 0) continue;
    config_refuse(reader, off[i], value, "absent, null, false or empty");
  }
  const json_t *type = json_get(reader->root, "peft_type");
  if (type != NULL && !json_equals(type, "LORA")) config_refuse(reader, "peft_type", type, "LORA");
  const json_t *bias = json_get(reader->root, "bias");
  if (bias != NULL && !json_equals(bias, "none")) config_refuse(reader, "bias", bias, "none");
}

/* Reads the scale of B . A. Returns the configured rank, or an error. */
static int read_config(const char *dir, double *scale, inferd_error_t *error) {
  static const json_limits_t limits = {
      .depth_max = 32, .values_max = 100000, .key_bytes_max = 1024, .allow_nul = true};
  model_file_t file;
  int code = model_file_read(dir, "adapter_config.json", CONFIG_BYTES_MAX, &limits, &file, error);
  if (code != 0) return code;
  if (file.doc == NULL) {
    return error_set(error, ERR_MODEL_MISSING, "lora_path",
                     "%s: no adapter_config.json; an adapter as PEFT saves it is needed", dir);
  }
  config_reader_t reader = {
      .file = "adapter_config.json", .root = json_root(file.doc), .error = error};
  refuse_keys(&reader);
  double rank = (double)config_int(&reader, KEYS("r"), 8, 1, 1 << 20);
  double alpha = config_double(&reader, KEYS("lora_alpha"), 8, -1e6, 1e6, false);
  bool stable = config_bool(&reader, KEYS("use_rslora"), false);
  *scale = alpha / (stable ? sqrt(rank) : rank);
  model_file_free(&file);
  return reader.code;
}

/* "base_model.model." + prefix + name without ".weight" + ".lora_A.weight", under every prefix. */
static const stored_tensor_t *find(const weight_files_t *files, const layout_t *layout,
                                   const expected_tensor_t *tensor, char letter) {
  size_t length = strlen(tensor->name) - strlen(".weight");
  for (int i = 0; i < LAYOUT_PREFIXES_MAX && layout->prefixes[i] != NULL; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "base_model.model.%s%.*s.lora_%c.weight", layout->prefixes[i],
             (int)length, tensor->name, letter);
    const stored_tensor_t *found = weight_files_find(files, name);
    if (found != NULL) return found;
  }
  return NULL;
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

static int read_pair(const weight_files_t *files, const layout_t *layout,
                     const expected_tensor_t *tensor, int32_t rank_max, double scale,
                     adapter_pair_t *out, uint8_t *taken, inferd_error_t *error) {
  const stored_tensor_t *left = find(files, layout, tensor, 'A');
  const stored_tensor_t *right = find(files, layout, tensor, 'B');
  if (left == NULL && right == NULL) return 0;
  if (left == NULL || right == NULL) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path", "tensor %s has no lora_%c beside it",
                     left != NULL ? left->name : right->name, left != NULL ? 'B' : 'A');
  }
  int64_t rank = left->rank == 2 ? left->shape[0] : 0;
  if (rank < 1 || rank > rank_max) {
    return error_set(error, ERR_MODEL_MALFORMED, "lora_path",
                     "tensor %s: rank %lld, supported: 1..%d (--max-lora-rank)", left->name,
                     (long long)rank, rank_max);
  }
  int code = check(left, rank, tensor->cols, error);
  if (code == 0) code = check(right, tensor->rows, rank, error);
  if (code != 0) return code;
  taken[left - weight_files_at(files, 0)] = taken[right - weight_files_at(files, 0)] = 1;
  out->a = numbers(left, 1.0, error);
  out->b = out->a != NULL ? numbers(right, scale, error) : NULL;
  if (out->b == NULL) return error->code;
  out->rank = (int32_t)rank;
  return reorder(tensor, rank, &out->b, error);
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

int adapter_read(const blueprint_t *bp, const char *dir, int32_t rank_max, adapter_t **out,
                 inferd_error_t *error) {
  const family_t *family = family_by_name(bp->family, strlen(bp->family));
  CHECK(family != NULL);
  double scale = 0;
  weight_files_t *files = NULL;
  tensor_list_t list = {0};
  uint8_t *taken = NULL;
  *out = NULL;
  int code = read_config(dir, &scale, error);
  if (code != 0) return error_within(error, code, dir);
  adapter_t *adapter = calloc(1, sizeof(*adapter));
  if (adapter == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for an adapter");
  adapter->num_layers = bp->num_layers;
  adapter->pairs = calloc((size_t)bp->num_layers * LORA_TARGETS, sizeof(adapter_pair_t));
  if (adapter->pairs == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for an adapter of %d layers",
                     bp->num_layers);
  }
  blueprint_t named = *bp;
  named.gguf = false; /* adapters name the layers as transformers does, whatever the model's file */
  if (code == 0) code = tensors_expect(&named, &list, error);
  if (code == 0) code = weight_files_open_file(dir, "adapter_model.safetensors", &files, error);
  if (code == 0) taken = calloc(weight_files_count(files) + 1, 1);
  if (code == 0 && taken == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  }
  for (int32_t i = 0; code == 0 && i < bp->num_layers * LORA_TARGETS; i++) {
    tensor_role_t role = roles[i % LORA_TARGETS];
    const expected_tensor_t *tensor = tensors_get(&list, role, i / LORA_TARGETS, false);
    if (tensor == NULL) continue;
    code =
        read_pair(files, family->layout, tensor, rank_max, scale, &adapter->pairs[i], taken, error);
  }
  if (code == 0) code = refuse_rest(files, taken, error);
  if (code == 0) code = weight_files_intact(files, error);
  weight_files_close(files);
  tensors_free(&list);
  free(taken);
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
