/* eagle.c: a head of EAGLE-3; the contract is in eagle.h.
 *
 * Engine thread. Rows are joined on the host, because only a CPU runs this yet.
 */
#include "engine/model/forward/eagle.h"

#include "engine/device/draft_ops.h"
#include "engine/model/forward/internal.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/weights/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

static const json_limits_t limits = {.depth_max = 32,
                                     .values_max = 1000000,
                                     .key_bytes_max = 1024,
                                     .allow_nul = true,
                                     .allow_infinity = true};

/* ---- set-up ---- */

bool eagle_is_head(const char *dir) {
  inferd_error_t error;
  model_file_t file;
  if (model_file_read(dir, "config.json", CONFIG_BYTES_MAX, &limits, &file, &error) != 0)
    return false;
  const json_t *list = file.doc != NULL ? json_get(json_root(file.doc), "architectures") : NULL;
  const json_t *name = list != NULL && list->type == JSON_ARRAY ? json_first(list) : NULL;
  const family_t *family = NULL;
  if (name != NULL && name->type == JSON_STRING)
    family = family_by_architecture(name->text, name->length);
  const bool is_head = family != NULL && family->eagle;
  model_file_free(&file);
  return is_head;
}

/* Checks and reads d2t. The tokens ascend: `spread_logits` relies on it. */
static int read_ids(const stored_tensor_t *stored, const blueprint_t *head, const char *dir,
                    int32_t *ids, inferd_error_t *error) {
  const int32_t count = head->vocab_size, most = head->eagle.target_vocab;
  if (strcmp(stored->type, "I64") != 0 || stored->rank != 1 || stored->shape[0] != count)
    return error_set(error, ERR_MODEL_MALFORMED, "draft_vocab_size",
                     "%.200s: tensor d2t is not I64 [%d] (draft_vocab_size)", dir, count);
  for (int32_t i = 0; i < count; i++) {
    int64_t shift;
    memcpy(&shift, stored->data + (size_t)i * sizeof shift, sizeof shift);
    const int64_t least = i > 0 ? (int64_t)ids[i - 1] + 1 : 0;
    if (shift < least - i || shift > (int64_t)most - 1 - i)
      return error_set(error, ERR_MODEL_MALFORMED, "d2t",
                       "%.200s: d2t[%d] is %lld; the tokens of the drafts ascend and are below %d",
                       dir, i, (long long)shift, most);
    ids[i] = (int32_t)(i + shift);
  }
  return 0;
}

/* Makes *out, which the caller owns; NULL if the head has all tokens of the target. */
static int find_ids(const blueprint_t *bp, const char *dir, int32_t **out, inferd_error_t *error) {
  weight_files_t *files = NULL;
  *out = NULL;
  if (bp->vocab_size == bp->eagle.target_vocab) return 0; /* d2t is 0 */
  int code = weight_files_open(dir, &files, error);
  if (code != 0) return code;
  const stored_tensor_t *stored = weight_files_find(files, "d2t");
  *out = calloc((size_t)bp->vocab_size, sizeof **out);
  if (stored == NULL)
    code = error_set(error, ERR_MODEL_MALFORMED, "d2t",
                     "%.200s: tensor d2t is missing; its %d tokens are not those of the model", dir,
                     bp->vocab_size);
  else if (*out == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tokens of drafts");
  else
    code = read_ids(stored, bp, dir, *out, error);
  weight_files_close(files);
  return code;
}

int eagle_check(const ops_t *ops, const blueprint_t *head, const blueprint_t *target,
                const char *dir, inferd_error_t *error) {
  const eagle_config_t *eagle = &head->eagle;
  const char *key = "vocab_size", *why = NULL;
  int32_t its = eagle->target_vocab, targets = target->vocab_size;
  if (ops->drafts == NULL || ops->write_rows == NULL || ops->pipeline_depth > 1)
    why = "heads of EAGLE-3 run with --device cpu only";
  else if (!shard_is_whole(target) || target->shard.num_stages > 1)
    why = "heads of EAGLE-3 do not run on several ranks yet";
  else if (target->gguf || target->block == BLOCK_POST_NORM || target->residual_scale != 1 ||
           target->embed_scale != 1 || target->embed_size != target->hidden_size)
    why = "the model has no rows, or no embeddings, that heads of EAGLE-3 are made for";
  if (why != NULL)
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "speculative_model %.200s does not draft for %s: %s", dir,
                     target->architecture, why);
  if (its == targets) {
    key = "target_hidden_size";
    its = eagle->target_size;
    targets = target->hidden_size;
  }
  if (its == targets) {
    key = "hidden_size"; /* of the embeddings, which are the model's */
    its = head->hidden_size;
  }
  if (its != targets)
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "%s of %.200s is %d, the model's is %d; they must be equal", key, dir, its,
                     targets);
  for (int i = 0; i < EAGLE_LAYERS; i++) {
    const int32_t layer = eagle->layers[i], count = target->num_layers;
    if (eagle->has_layers ? layer <= count : count > EAGLE_LAYERS) continue;
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "%.200s reads rows of the model before layer %d, and it has %d layers", dir,
                     eagle->has_layers ? layer : EAGLE_LAYERS + 1, count);
  }
  int32_t *ids;
  int code = find_ids(head, dir, &ids, error);
  free(ids);
  return code;
}

int eagle_attach(model_t *head, model_t *target, const char *dir, int64_t rows,
                 inferd_error_t *error) {
  const eagle_config_t *config = &head->blueprint.eagle;
  const int32_t count = target->blueprint.num_layers;
  const int32_t usual[EAGLE_LAYERS] = {2, count / 2, count - 3};
  const size_t values = (size_t)(rows * target->blueprint.hidden_size);
  eagle_t *eagle = &target->eagle;
  memcpy(eagle->layers, config->has_layers ? config->layers : usual, sizeof usual);
  head->embed = target->embed;
  eagle->rows = calloc(values, EAGLE_LAYERS * sizeof *eagle->rows);
  eagle->read = calloc(values, sizeof *eagle->read);
  if (eagle->rows == NULL || eagle->read == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for rows of a head that drafts");
  return find_ids(&head->blueprint, dir, &head->eagle.ids, error);
}

void eagle_free(eagle_t *eagle) {
  free(eagle->rows);
  free(eagle->read);
  free(eagle->ids);
}

/* ---- steps ---- */

void eagle_keep(model_t *target, int32_t layer, const act_t *hidden, int32_t rows) {
  eagle_t *eagle = &target->eagle;
  const int32_t width = target->blueprint.hidden_size;
  for (int32_t i = 0; i < EAGLE_LAYERS && eagle->rows != NULL; i++) {
    if (eagle->layers[i] != layer) continue;
    target->ops->read_rows(target->device, eagle->read, hidden, width, rows);
    for (size_t t = 0; t < (size_t)rows; t++)
      memcpy(eagle->rows + (t * EAGLE_LAYERS + (size_t)i) * (size_t)width,
             eagle->read + t * (size_t)width, (size_t)width * sizeof *eagle->rows);
  }
}

const float *eagle_rows(const model_t *target) {
  return target->eagle.rows;
}

/* inputs[T, 2 h] = norms of the embeddings and of what `residual` holds, side by side. */
static void join_rows(model_t *head, const layer_t *layer, act_t *residual, int32_t count) {
  const ops_t *ops = head->ops;
  device_t *device = head->device;
  const mtp_t *mtp = &head->mtp;
  const size_t width = (size_t)head->blueprint.hidden_size;
  act_t *scratch = head->y;
  ops->norm(device, scratch, residual, NULL, &mtp->hidden_norm, count);
  ops->read_rows(device, mtp->rows, scratch, (int32_t)width, count);
  if (head->blueprint.eagle.norm_residual)
    ops->write_rows(device, residual, mtp->rows, (int32_t)width, count);
  ops->embed(device, head->attn, head->embed, 1.0f);
  ops->norm(device, scratch, head->attn, NULL, &layer->attn_norm, count);
  ops->read_rows(device, mtp->embedded, scratch, (int32_t)width, count);
  for (size_t t = 0; t < (size_t)count; t++) {
    float *to = mtp->inputs + 2 * width * t;
    memcpy(to, mtp->embedded + width * t, width * sizeof *to);
    memcpy(to + width, mtp->rows + width * t, width * sizeof *to);
  }
  ops->write_rows(device, mtp->joined, mtp->inputs, 2 * (int32_t)width, count);
}

void eagle_forward(model_t *head, const batch_t *batch, const float *rows, bool of_target,
                   float *out) {
  const ops_t *ops = head->ops;
  device_t *device = head->device;
  const blueprint_t *bp = &head->blueprint;
  const layer_t *layer = &head->layers[0];
  const mtp_t *mtp = &head->mtp;
  const int32_t hidden = bp->hidden_size, count = batch->num_tokens;
  act_t *x = head->x, *y = head->y;
  if (of_target) {
    ops->write_rows(device, mtp->joined, rows, EAGLE_LAYERS * bp->eagle.target_size, count);
    ops->linear(device, x, mtp->joined, mtp->join, NULL, NULL, count);
  } else {
    ops->write_rows(device, x, rows, hidden, count);
  }
  join_rows(head, layer, x, count);
  ops->linear(device, head->qkv, mtp->joined, layer->qkv, layer->qkv_bias, NULL, count);
  ops->rope_store(device, head->qkv, &layer->attention);
  ops->attention(device, head->attn, head->qkv, &layer->attention);
  ops->linear(device, x, head->attn, layer->o, layer->o_bias, x, count);
  ops->norm(device, y, x, NULL, &layer->mlp_norm, count);
  ops->linear(device, head->up, y, layer->up, layer->up_bias, NULL, count);
  ops->activation(device, head->act, head->up, bp->activation, layer->mlp_width, count);
  ops->linear(device, x, head->act, layer->down, layer->down_bias, x, count);
  ops->gather(device, y, x, hidden); /* y[S, h] */
  ops->read_rows(device, out, y, hidden, batch->num_selected);
}

void eagle_head(model_t *head, const float *rows, int32_t count) {
  const ops_t *ops = head->ops;
  ops->write_rows(head->device, head->y, rows, head->blueprint.hidden_size, count);
  ops->norm(head->device, head->x, head->y, NULL, &head->final_norm, count);
  head->head_in = head->x;
}

void eagle_spread(model_t *head, int32_t rows) {
  const blueprint_t *bp = &head->blueprint;
  if (head->eagle.ids == NULL) return;
  head->ops->drafts->spread_logits(head->device, head->eagle.ids, bp->vocab_size,
                                   bp->eagle.target_vocab, rows);
}
