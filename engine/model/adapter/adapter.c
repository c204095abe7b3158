/* adapter.c: adapters in host memory, and their way into a model; see adapter.h. No state. */
#include "engine/model/adapter/adapter.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/adapter/adapter_part.h"
#include "engine/model/forward/internal.h"
#include "engine/model/sizes.h"
#include "engine/model/weights/tensors.h"

#include <stdlib.h>
#include <string.h>

static const tensor_role_t roles[LORA_TARGETS] = {
    [LORA_Q] = ROLE_Q,       [LORA_K] = ROLE_K,
    [LORA_V] = ROLE_V,       [LORA_QKV] = ROLE_QKV,
    [LORA_O] = ROLE_O,       [LORA_GATE] = ROLE_GATE,
    [LORA_UP] = ROLE_UP,     [LORA_GATE_UP] = ROLE_GATE_UP,
    [LORA_DOWN] = ROLE_DOWN,
};

int32_t adapter_part_count(int32_t num_layers) {
  return num_layers * LORA_TARGETS + 2;
}

tensor_role_t adapter_part_role(int32_t num_layers, int32_t i, int32_t *layer) {
  const int32_t in_layers = num_layers * LORA_TARGETS;
  *layer = i < in_layers ? i / LORA_TARGETS : -1;
  if (i < in_layers) return roles[i % LORA_TARGETS];
  return i == in_layers ? ROLE_EMBED : ROLE_HEAD;
}

bool adapter_embeds(const ops_t *ops) {
  return ops->lora->embed != NULL;
}

bool adapter_heads(const ops_t *ops, const blueprint_t *bp) {
  const bool has_softcap = bp->final_softcap == 0 || ops->lora->has_softcap;
  return ops->lora->logits != NULL && !bp->headless && has_softcap;
}

void adapter_hold(adapter_t *adapter, int times) {
  atomic_fetch_add(&adapter->others, times);
}

void adapter_free(adapter_t *adapter) {
  if (adapter == NULL || atomic_fetch_sub(&adapter->others, 1) > 0) return;
  const int32_t count = adapter->parts != NULL ? adapter_part_count(adapter->num_layers) : 0;
  for (int32_t i = 0; i < count; i++) {
    free(adapter->parts[i].a);
    free(adapter->parts[i].b);
    free(adapter->parts[i].factors);
    free(adapter->parts[i].offsets);
    free(adapter->parts[i].whole);
  }
  free(adapter->parts);
  free(adapter->invocation.ids);
  free(adapter);
}

bool adapter_stays(const adapter_t *adapter) {
  for (int32_t i = 0; i < adapter_part_count(adapter->num_layers); i++)
    if (adapter->parts[i].whole != NULL) return true;
  return false;
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

/* Of the embedding and of the head, of which this rank has some rows. */
static void find_tables(model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  const shard_rows_t own = shard_adapter_part(bp, ROLE_HEAD);
  const int32_t width = bp->embed_size, vocab = bp->vocab_size;
  const int32_t rows = own.num_pieces > 0 ? (int32_t)own.count[0] : vocab;
  if (adapter_embeds(model->ops))
    model->lora.embed = (lora_target_t){NULL, width, vocab, 0, width, width, vocab};
  if (adapter_heads(model->ops, bp))
    model->lora.head = (lora_target_t){NULL, rows, width, 0, vocab, vocab, width};
}

static lora_target_t *target_at(model_t *model, int32_t i, int32_t *layer, tensor_role_t *role) {
  *role = adapter_part_role(model->blueprint.num_layers, i, layer);
  if (*layer >= 0) return &model->layers[*layer].lora[i % LORA_TARGETS];
  return *role == ROLE_EMBED ? &model->lora.embed : &model->lora.head;
}

/* Refuses by name models that take no adapters. */
static int check_model(const model_t *model, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
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
  if (bp->encoder.one_layer || bp->encoder.table_size > 0 || bp->encoder.distance_span > 0)
    return error_set(error, ERR_CONFIGURATION, "enable_lora",
                     "enable_lora is true, but %s has %s, which take no adapters", bp->architecture,
                     bp->encoder.distance_span > 0 ? "keys of distances"
                     : bp->encoder.one_layer       ? "layers that share their weights"
                                                   : "embeddings that are projected");
  if (bp->full_k_is_v) {
    return error_set(
        error, ERR_CONFIGURATION, "enable_lora",
        "enable_lora is true, but %s has layers whose V is K (attention_k_eq_v), which "
        "take no adapters",
        bp->architecture);
  }
  return 0;
}

static int make_target(model_t *model, const tensor_list_t *list, int32_t i, int32_t slots,
                       int32_t rank_max, inferd_error_t *error) {
  int32_t layer;
  tensor_role_t role;
  lora_target_t *target = target_at(model, i, &layer, &role);
  const lora_kind_t kinds[] = {[ROLE_EMBED] = LORA_EMBED, [ROLE_HEAD] = LORA_HEAD};
  if (layer >= 0) {
    const expected_tensor_t *tensor = tensors_get(list, role, layer, false);
    if (target->width == 0 || tensor == NULL) return 0;
    target->all_rows = (int32_t)tensor->rows;
    target->all_cols = (int32_t)tensor->cols;
  }
  if (target->rows == 0) return 0; /* this rank has none of them */
  return model->ops->lora->make(model->device, layer >= 0 ? LORA_LINEAR : kinds[role], target->rows,
                                target->cols, slots, rank_max, &target->lora, error);
}

/* On several ranks a part arrives whole, and is cut. */
static int make_room(model_t *model, int32_t slots, int32_t rank_max, inferd_error_t *error) {
  size_t most = 0;
  model->lora.slots = slots;
  model->lora.has_factors = calloc((size_t)slots + 1, sizeof *model->lora.has_factors);
  for (int32_t i = 0; i < adapter_part_count(model->blueprint.num_layers); i++) {
    int32_t layer;
    tensor_role_t role;
    const lora_target_t *target = target_at(model, i, &layer, &role);
    const size_t rows = (size_t)target->all_rows, cols = (size_t)target->all_cols;
    if (target->all_rows > 0) most = MAX(most, (rows + cols) * (size_t)rank_max + 2 * rows);
  }
  const bool is_alone = shard_is_whole(&model->blueprint) && model->blueprint.shard.num_stages <= 1;
  if (!is_alone) model->lora.pair = calloc(most + 1, sizeof *model->lora.pair);
  if (model->lora.has_factors != NULL && (is_alone || model->lora.pair != NULL)) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a part of an adapter");
}

int model_adapters(model_t *model, int32_t slots, int32_t rank_max, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
  tensor_list_t list;
  int code = check_model(model, error);
  if (code == 0) code = tensors_expect(bp, &list, error);
  if (code != 0) return code;
  for (int32_t i = 0; i < bp->num_layers; i++) {
    layer_t *layer = &model->layers[i];
    find_targets(bp, i, layer, layer->moe.num_experts == 0 || bp->experts_beside);
  }
  find_tables(model);
  for (int32_t i = 0; i < adapter_part_count(bp->num_layers) && code == 0; i++)
    code = make_target(model, &list, i, slots, rank_max, error);
  tensors_free(&list);
  return code != 0 ? code : make_room(model, slots, rank_max, error);
}

size_t model_adapter_bytes(const ops_t *ops, const blueprint_t *bp, int32_t slots,
                           int32_t rank_max) {
  tensor_list_t list;
  size_t bytes = 0;
  if (slots == 0 || ops->lora == NULL || tensors_expect(bp, &list, NULL) != 0) return 0;
  for (int32_t i = 0; i < adapter_part_count(bp->num_layers); i++) {
    int32_t layer;
    const tensor_role_t role = adapter_part_role(bp->num_layers, i, &layer);
    const expected_tensor_t *tensor = tensors_get(&list, role, layer, false);
    const bool has_table = role == ROLE_EMBED ? adapter_embeds(ops) : adapter_heads(ops, bp);
    const shard_rows_t part = shard_adapter_part(bp, role);
    int64_t rows = bp->vocab_size, cols = bp->embed_size; /* of a head that is the embedding, too */
    if (layer >= 0 ? tensor == NULL : !has_table) continue;
    if (layer >= 0) rows = tensor->rows, cols = tensor->cols;
    if (part.num_pieces > 0) rows = shard_rows_count(&part);
    if (part.num_cols > 0) cols = part.num_cols;
    bytes += (size_t)((rows + cols) * rank_max + 2 * rows) * sizeof(float);
  }
  tensors_free(&list);
  return bytes * (size_t)slots;
}

/* Moves the elements of this rank to the front; `width` of each row. */
static void cut_rows(const shard_rows_t *part, int64_t width, float *values) {
  int64_t kept = 0;
  for (int32_t i = 0; i < part->num_pieces && values != NULL; i++) {
    memmove(values + kept * width, values + part->first[i] * width,
            (size_t)(part->count[i] * width) * sizeof *values);
    kept += part->count[i];
  }
}

/* Keeps what this rank has of a part: some rows of B, factors and offsets, some columns of A. Where
 * the ranks add up sums, one of them adds the offsets. */
static void cut_part(const blueprint_t *bp, tensor_role_t role, const lora_target_t *target,
                     adapter_part_t *part) {
  const shard_rows_t own = shard_adapter_part(bp, role);
  for (int32_t i = 0; i < own.num_pieces; i++)
    CHECK_LE(own.first[i] + own.count[i], target->all_rows);
  cut_rows(&own, part->rank, part->b);
  cut_rows(&own, 1, part->factors);
  cut_rows(&own, 1, part->offsets);
  for (int64_t r = 0; r < part->rank && own.num_cols > 0; r++)
    memmove(part->a + r * own.num_cols, part->a + r * target->all_cols + own.first_col,
            (size_t)own.num_cols * sizeof *part->a);
  if (own.num_cols > 0 && bp->shard.rank > 0) part->offsets = NULL;
}

/* The next `count` numbers of the room, with what is there on rank 0. */
static float *take_room(float **room, const float *values, size_t count) {
  float *taken = *room;
  if (count == 0) return NULL;
  if (values != NULL) memcpy(taken, values, count * sizeof *taken);
  *room += count;
  return taken;
}

/* What other ranks know of a part before its numbers come. */
typedef struct part_head {
  int32_t rank, has_factors, has_offsets;
} part_head_t;

/* One part. On several ranks it goes through the room: there it arrives from rank 0, and is cut. */
static int set_part(model_t *model, to_ranks_t *to_ranks, void *context, int32_t slot, int32_t i,
                    const part_head_t *head, adapter_part_t part) {
  int32_t layer;
  tensor_role_t role;
  lora_target_t *target = target_at(model, i, &layer, &role);
  float *room = model->lora.pair;
  int code = 0;
  if (room != NULL) {
    const size_t rows = (size_t)target->all_rows, rank = (size_t)head->rank;
    part.rank = head->rank;
    part.a = take_room(&room, part.a, rank * (size_t)target->all_cols);
    part.b = take_room(&room, part.b, rank * rows);
    part.factors = take_room(&room, part.factors, head->has_factors ? rows : 0);
    part.offsets = take_room(&room, part.offsets, head->has_offsets ? rows : 0);
    const size_t bytes = (size_t)(room - model->lora.pair) * sizeof *room;
    if (to_ranks != NULL && bytes > 0) code = to_ranks(context, model->lora.pair, bytes);
    cut_part(&model->blueprint, role, target, &part);
  }
  model->lora.has_factors[slot] |= part.factors != NULL;
  const lora_values_t values = {.rank = part.rank,
                                .a = part.a,
                                .b = part.b,
                                .factors = part.factors,
                                .offsets = part.offsets,
                                .whole = part.whole,
                                .whole_type = part.whole_type};
  if (code == 0 && target->lora != NULL)
    model->ops->lora->set(model->device, target->lora, slot, &values);
  return code;
}

int model_share_adapter(model_t *model, to_ranks_t *to_ranks, void *context, int32_t slot,
                        int32_t rank_max, const adapter_t *adapter) {
  const int32_t count = adapter_part_count(model->blueprint.num_layers);
  part_head_t heads[LORA_TARGETS] = {0};
  int code = 0;
  model->lora.has_factors[slot] = false;
  for (int32_t i = 0; i < count && code == 0; i++) {
    const adapter_part_t *parts = adapter != NULL ? adapter->parts : NULL;
    part_head_t *head = &heads[i % LORA_TARGETS];
    int32_t layer;
    tensor_role_t role;
    for (int32_t n = 0; i % LORA_TARGETS == 0 && n < LORA_TARGETS; n++) {
      const adapter_part_t *part = parts != NULL && i + n < count ? &parts[i + n] : NULL;
      heads[n] = (part_head_t){0};
      if (part != NULL)
        heads[n] = (part_head_t){part->rank, part->factors != NULL, part->offsets != NULL};
    }
    if (i % LORA_TARGETS == 0 && to_ranks != NULL) code = to_ranks(context, heads, sizeof heads);
    if (code != 0 || target_at(model, i, &layer, &role)->all_rows == 0) continue;
    CHECK_RANGE(head->rank, 0, rank_max + 1);
    code = set_part(model, to_ranks, context, slot, i, head,
                    parts != NULL ? parts[i] : (adapter_part_t){0});
  }
  return code;
}

void model_set_adapter(model_t *model, int32_t slot, const adapter_t *adapter) {
  (void)model_share_adapter(model, NULL, NULL, slot, ADAPTER_RANK_MAX, adapter);
}
