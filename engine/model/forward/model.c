/* model.c: one decoder forward for every family, stage 6 of 9: batch -> hidden rows -> logits.
 * Next: engine/sample/sampling.c.
 *
 * Straight-line op calls on the engine thread; what differs between families is in the blueprint.
 * No function allocates after model_prepare, and none depends on the back end.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/forward/internal.h"
#include "engine/model/sizes.h"

#include <math.h>

/* Columns of the widest fused projection. */
static int32_t qkv_width(const blueprint_t *bp) {
  int32_t width = 0;
  if (bp->kv_rank > 0) return bp->num_heads * bp->head_dim;
  for (int32_t i = 0; i < bp->num_layers; i++) width = MAX(width, layer_qkv_width(bp, i));
  return width;
}

static int32_t widest_head(const blueprint_t *bp) {
  return MAX(bp->head_dim, bp->full_head_dim);
}

/* No layer has a dense MLP. */
static bool none_dense(const blueprint_t *bp) {
  for (int32_t i = 0; i < bp->num_layers; i++) {
    if (!(bp->layer_flags[i] & (LAYER_EXPERTS | LAYER_NO_MLP))) return false;
  }
  return true;
}

/* Width of the widest dense MLP; at least 1. */
static int32_t mlp_width(const blueprint_t *bp) {
  bool none = none_dense(bp) && !bp->experts_beside;
  return MAX(bp->shared_size, none ? 1 : layer_mlp_width(bp, bp->num_layers - 1));
}

static int32_t up_width(const blueprint_t *bp) {
  return mlp_width(bp) * (bp->gated_mlp ? 2 : 1);
}

/* A norm behind the experts comes before the sum, and their input must last until they are done. */
static bool experts_normed(const blueprint_t *bp) {
  return bp->num_experts > 0 && bp->block == BLOCK_SANDWICH;
}

void model_limits(const blueprint_t *bp, step_limits_t *limits) {
  int32_t width = MAX(MAX(bp->hidden_size, bp->embed_size), bp->expert_in);
  width = MAX(MAX(width, bp->encoder.table_size), qkv_width(bp));
  width = MAX(width, bp->num_heads * widest_head(bp));
  width = MAX(MAX(width, bp->num_layers * bp->per_layer_size), bp->laurel_rank);
  if (bp->mixer.kind != MIXER_NONE) width = MAX(width, mixer_width(&bp->mixer, bp->hidden_size));
  width = MAX(width, bp->num_heads * (bp->kv_rank + bp->rope_dim));
  width = MAX(width, bp->index_heads * bp->index_dim);
  if (bp->mtp > 0 || bp->eagle.target_size > 0) width = MAX(width, 2 * bp->hidden_size);
  width = MAX(width, EAGLE_LAYERS * bp->eagle.target_size);
  limits->hidden_max = MAX(MAX(width, up_width(bp)), bp->encoder.post_width);
  limits->vocab_size = MAX(bp->vocab_size, bp->eagle.target_vocab);
  limits->heads_max = MAX(bp->num_heads, bp->index_heads);
  limits->head_dim_max = MAX(widest_head(bp), bp->kv_rank + bp->rope_dim + bp->index_dim);
  limits->experts_max = bp->num_experts;
  limits->conv_values_max =
      bp->mixer.kind == MIXER_NONE ? 0 : mixer_conv_values(&bp->mixer, bp->hidden_size);
  limits->experts_top_max = bp->experts_top;
  limits->expert_width_max = bp->expert_size;
}

/* Layers with K and V of their own; those that see everything, or (slides) have a window. */
static int32_t count_layers(const blueprint_t *bp, bool slides) {
  int32_t count = 0;
  for (int32_t i = 0; i < bp->num_layers; i++) {
    bool stores = !(bp->layer_flags[i] & LAYER_NO_ATTENTION) && !layer_reads_only(bp, i);
    count += stores && slides == ((bp->layer_flags[i] & LAYER_SLIDES) != 0);
  }
  return count;
}

/* Where layers that see everything have sizes of their own: the heads of the other layers that take
 * the place of `full` of them. */
static int32_t window_heads(const blueprint_t *bp, int32_t full) {
  return (int32_t)((int64_t)full * bp->full_kv_heads * bp->full_head_dim / bp->head_dim);
}

int32_t model_window_groups(const blueprint_t *bp) {
  int32_t full = count_layers(bp, false), windowed = count_layers(bp, true);
  if (bp->mixer.kind != MIXER_NONE || bp->kv_rank > 0 || bp->encoder.bidirectional) return 0;
  if (full == 0 || windowed == 0) return 0;
  const bool by_heads = bp->full_head_dim > 0;
  int32_t block = by_heads ? window_heads(bp, full) : full;
  int32_t parts = by_heads ? windowed * bp->num_kv_heads : windowed;
  if (block == 0) return 0;
  int32_t groups = DIV_UP(parts, block);
  /* a fifth of the blocks is empty at most */
  return 4 * (1 + groups) * (int64_t)block <= 5 * ((int64_t)block + parts) ? groups : 0;
}

kv_cache_desc_t model_kv(const blueprint_t *bp) {
  const bool latent = bp->kv_rank > 0;
  kv_cache_desc_t made = {
      .num_kv_heads = latent ? 1 : shard_kv_heads(bp, bp->num_kv_heads),
      .head_dim = latent ? bp->kv_rank + bp->rope_dim + bp->index_dim : bp->head_dim,
      .other_kv_heads = bp->full_kv_heads,
      .other_head_dim = bp->full_head_dim,
      .window_heads = bp->window_groups > 0 ? window_heads(bp, count_layers(bp, false)) : 0,
      .latent = latent,
      .dtype = bp->dtype};
  for (int32_t i = 0; i < bp->num_layers + bp->mtp; i++) {
    if (bp->layer_flags[i] & LAYER_NO_ATTENTION || layer_reads_only(bp, i)) continue;
    if (i < bp->num_layers && !stage_has(bp, i)) continue;
    if (bp->window_groups > 0 && bp->layer_flags[i] & LAYER_SLIDES) continue;
    int32_t layer = made.num_layers++;
    made.others[layer / 64] |= (uint64_t)layer_is_full(bp, i) << layer % 64;
  }
  if (bp->encoder.bidirectional)
    made.num_layers = 1; /* K and V live as long as a layer: each writes anew */
  return made;
}

/* The buffers of latent attention. */
static int latent_prepare(model_t *model, int64_t rows, int32_t longest, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
  struct {
    act_t **buffer;
    int32_t width;
  } buffers[] = {
      {&model->q_down, MAX(bp->q_rank, 1)},
      {&model->latent_rows, bp->kv_rank + bp->rope_dim},
      {&model->latent_q, bp->num_heads * (bp->kv_rank + bp->rope_dim)},
      {&model->latent_sums, bp->num_heads * bp->kv_rank},
      {&model->index_q, bp->index_heads * bp->index_dim},
      {&model->index_keys, bp->index_dim},
      {&model->index_weights, bp->index_heads},
      {&model->chosen, bp->index_top < longest ? INDEX_WIDTH(bp->index_top) : 1},
  };
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) {
    if (buffers[i].width == 0) continue;
    *buffers[i].buffer = model->ops->buffer(model->device, rows, buffers[i].width);
    if (*buffers[i].buffer != NULL) continue;
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "no memory for latent attention of %lld tokens x %d values", (long long)rows,
                     buffers[i].width);
  }
  return 0;
}

/* Rows of the largest step that are pooled, and what the layers behind the pooling make of them. */
static bool take_post_buffers(model_t *model, int32_t num_reqs) {
  int32_t width = MAX(model->blueprint.encoder.post_width, model->blueprint.embed_size);
  if (model->num_post_layers == 0) return true;
  model->post_rows = model->ops->buffer(model->device, num_reqs, width);
  model->post_sums = model->ops->buffer(model->device, num_reqs, width);
  return model->post_rows != NULL && model->post_sums != NULL;
}

static bool take_streams(model_t *model, int64_t rows) {
  const blueprint_t *bp = &model->blueprint;
  if (bp->num_streams > 0) model->streams[0] = model->x;
  for (int32_t n = 1; n < bp->num_streams; n++) {
    model->streams[n] = model->ops->buffer(model->device, rows, bp->hidden_size);
    if (model->streams[n] == NULL) return false;
  }
  return true;
}

/* Of the outputs that adapters with factors change; 0 = there are none. */
static int32_t adapter_width(const model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  if (model->lora.slots == 0 || !model->ops->lora->has_vectors) return 0;
  return MAX(MAX(qkv_width(bp), up_width(bp)), bp->hidden_size);
}

int model_prepare(model_t *model, const step_limits_t *limits, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
  int64_t rows = limits->tokens_max;
  int32_t width = MAX(MAX(bp->hidden_size, bp->embed_size), bp->encoder.table_size);
  const bool has_mixer = bp->mixer.kind != MIXER_NONE;
  const bool selects = bp->mixer.kind == MIXER_MAMBA;
  const bool has_factors = has_mixer && !selects && model->ops->state->recur_has_scratch;
  struct {
    act_t **buffer;
    int32_t width;
  } buffers[] = {
      {&model->x, width},
      {&model->y, width},
      {&model->qkv, qkv_width(bp)},
      {&model->attn, bp->num_heads * (bp->kv_rank > 0 ? bp->value_dim : widest_head(bp))},
      {&model->up, up_width(bp)},
      {&model->act, mlp_width(bp)},
      {&model->own, shard_own_width(bp, &model->cuts)},
      {&model->shared, bp->shared_size > 0 || bp->experts_beside ? bp->hidden_size : 0},
      {&model->router_in, bp->experts_beside ? bp->hidden_size : 0},
      {&model->expert_out, experts_normed(bp) ? bp->hidden_size : 0},
      {&model->inputs, bp->num_layers * bp->per_layer_size},
      {&model->input_sums, bp->num_layers * bp->per_layer_size},
      {&model->input, bp->per_layer_size},
      {&model->laurel_rank, bp->laurel_rank},
      {&model->laurel, bp->num_streams > 0 ? bp->hidden_size : 0},
      {&model->computed, bp->num_streams > 0 ? bp->hidden_size : 0},
      {&model->experts_in, bp->expert_in},
      {&model->experts_out, bp->expert_in},
      {&model->gate, bp->shared_size > 0 ? 1 : 0},
      {&model->attn_gate, bp->attn_gate ? bp->num_heads * bp->head_dim : 0},
      {&model->mix_in, has_mixer ? mixer_width(&bp->mixer, bp->hidden_size) : 0},
      {&model->mix_out, has_mixer ? mixer_inner(&bp->mixer, bp->hidden_size) : 0},
      {&model->mix_factors, has_factors ? 2 * bp->mixer.num_heads : 0},
      {&model->mix_rank, selects ? bp->mixer.step_rank : 0},
      {&model->mix_steps, selects ? mixer_inner(&bp->mixer, 0) : 0},
      {&model->mix_keys, selects ? bp->mixer.key_dim : 0},
      {&model->mix_queries, selects ? bp->mixer.key_dim : 0},
      {&model->lora.plain, adapter_width(model)},
  };
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) {
    if (buffers[i].width == 0) continue;
    *buffers[i].buffer = model->ops->buffer(model->device, rows, buffers[i].width);
    if (*buffers[i].buffer != NULL) continue;
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "no memory for activations of %lld tokens x %d values", (long long)rows,
                     buffers[i].width);
  }
  if (!take_streams(model, rows))
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the streams of the model");
  if (!take_post_buffers(model, limits->reqs_max))
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the layers behind the pooling");
  if ((bp->mtp > 0 || bp->eagle.target_size > 0) && mtp_prepare(model, rows) != 0)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the layer that predicts");
  return bp->kv_rank > 0 ? latent_prepare(model, rows, limits->max_model_len, error) : 0;
}

/* out[T, E] = embeddings of the batch. */
static void look_up(model_t *model, act_t *out) {
  const lora_t *lora = model->lora.embed.lora;
  if (model->is_cut)
    model->ops->ranks->embed(model->device, out, model->embed, model->embed_scale,
                             model->cuts.vocab);
  else
    model->ops->embed(model->device, out, model->embed, model->embed_scale);
  if (model->lora.num_tokens > 0 && lora != NULL)
    model->ops->lora->embed(model->device, out, lora, model->embed_scale);
}

/* True when the ranks add up sums: a rank goes on with the heads and inner values that it has. */
static bool adds_up(const model_t *model) {
  return model->blueprint.shard.sums;
}

/* out[rows, h] = own of every rank (+ residual). */
static void add_up(model_t *model, act_t *out, const act_t *residual, int32_t rows) {
  model->ops->ranks->reduce(model->device, out, model->own, residual, model->blueprint.hidden_size,
                            rows);
}

/* The bias of a layer of whose sums each rank has a part: one of them adds it. */
static const vector_t *bias_once(const model_t *model, const vector_t *bias) {
  return model->blueprint.shard.rank == 0 ? bias : NULL;
}

/* x[T, h] = embeddings of the batch, or rows of pictures, with learned positions and types of
 * tokens, and normed, where the family has these. A family with project_in has no norm. */
static void embed_tokens(model_t *model, int32_t num_embedded, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const bool apart = model->embed_project != NULL;
  act_t *sum = model->embed_norm.width > 0 && !apart ? model->y : model->x;
  if (model->project_in != NULL) {
    look_up(model, model->y);
    ops->linear(device, model->x, model->y, model->project_in, NULL, NULL, rows);
  } else {
    look_up(model, sum);
  }
  if (num_embedded > 0) ops->embed_pictures(device, sum, 0, model->blueprint.hidden_size);
  if (model->positions != NULL)
    ops->embed_positions(device, sum, model->positions, model->blueprint.position_offset);
  if (model->types != NULL) ops->embed_types(device, sum, model->types);
  if (apart) {
    ops->norm(device, model->y, sum, NULL, &model->embed_norm, rows);
    ops->linear(device, model->x, model->y, model->embed_project, model->embed_project_bias, NULL,
                rows);
  } else if (sum != model->x) {
    ops->norm(device, model->x, sum, NULL, &model->embed_norm, rows);
  }
}

/* inputs[T, layers x P] = the embeddings of every layer, of the ids and of x. */
static void embed_layers(model_t *model, int32_t num_embedded, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const blueprint_t *bp = &model->blueprint;
  if (model->layer_embed == NULL) return;
  if (bp->layer_vocab < bp->vocab_size)
    ops->altup->embed(device, model->inputs, model->layer_embed, model->layer_embed_scale);
  else
    ops->embed(device, model->inputs, model->layer_embed, model->layer_embed_scale);
  if (num_embedded > 0)
    ops->per_layer->embed_pictures(device, model->inputs, model->layer_embed, bp->picture_id,
                                   model->layer_embed_scale);
  ops->linear(device, model->input_sums, model->x, model->layer_project, NULL, NULL, rows);
  ops->norm(device, model->inputs, model->input_sums, model->inputs, &model->layer_norm,
            rows * bp->num_layers);
}

/* out[T, width] gets what the adapters of the tokens add, for the parts [first, last] of a layer;
 * `plain`: its sums without a bias, or NULL without factors. */
static void adapt(model_t *model, const layer_t *layer, int first, int last, act_t *out,
                  const act_t *in, const act_t *plain) {
  for (int i = first; model->lora.num_tokens > 0 && i <= last; i++) {
    const lora_target_t *target = &layer->lora[i];
    if (target->lora != NULL)
      model->ops->lora->add(model->device, out, in, plain, target->lora, target->column,
                            target->width);
  }
}

/* What adapters with factors multiply: the sums of the layer on this rank. NULL = there are none
 * in this step, or the layer has no place for adapters. */
static act_t *plain_sums(model_t *model, const layer_t *layer, int first, int last, const act_t *in,
                         const weight_t *weight, int32_t rows) {
  bool has_place = false;
  for (int i = first; i <= last; i++) has_place |= layer->lora[i].lora != NULL;
  if (!model->lora.with_factors || !has_place) return NULL;
  model->ops->linear(model->device, model->lora.plain, in, weight, NULL, NULL, rows);
  return model->lora.plain;
}

/* out[rows, h] = a linear layer of rows that every rank has, of which each computes some columns.
 */
static void whole_linear(model_t *model, act_t *out, const act_t *in, const weight_t *weight,
                         const vector_t *bias, const act_t *residual, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  if (model->is_cut && residual != NULL && ops->ranks->take != NULL) {
    ops->ranks->take(device, model->own, residual, model->cuts.hidden, rows);
    ops->linear(device, model->own, in, weight, bias, model->own, rows);
    ops->ranks->gather(device, out, model->own, NULL, model->cuts.hidden, rows);
  } else if (model->is_cut) {
    ops->linear(device, model->own, in, weight, bias, NULL, rows);
    ops->ranks->gather(device, out, model->own, residual, model->cuts.hidden, rows);
  } else {
    ops->linear(device, out, in, weight, bias, residual, rows);
  }
}

/* out[rows, h] = a linear layer with the adapters of the tokens, of which each rank computes some
 * columns, or a part of the sums. */
static void cut_linear(model_t *model, const layer_t *layer, int target, act_t *out,
                       const act_t *in, const act_t *residual, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const weight_t *weight = target == LORA_O ? layer->o : layer->down;
  const vector_t *bias = target == LORA_O ? layer->o_bias : layer->down_bias;
  const bool has_all = target == LORA_O && layer->latent.q != NULL; /* of what it reads */
  const act_t *plain = NULL;
  if (adds_up(model) && !has_all) {
    ops->linear(device, model->own, in, weight, bias_once(model, bias), NULL, rows);
    plain = plain_sums(model, layer, target, target, in, weight, rows);
    adapt(model, layer, target, target, model->own, in, plain);
    add_up(model, out, residual, rows);
    return;
  }
  whole_linear(model, out, in, weight, bias, residual, rows);
  if (model->lora.with_factors && layer->lora[target].lora != NULL) {
    whole_linear(model, model->lora.plain, in, weight, NULL, NULL, rows);
    plain = model->lora.plain;
  }
  adapt(model, layer, target, target, out, in, plain);
}

/* What a block reads: `rows`, or their norm, for which `normed` has room. */
typedef struct block_input {
  const act_t *rows;  /* [T, h] */
  const norm_t *norm; /* NULL = none */
  act_t *normed;      /* [T, h]; NULL without a norm */
} block_input_t;

/* out = the fused linear layer of in, one operation if the back end has it. The products of
 * adapters, for the parts [first, last], come between the norm, the linear layer and the
 * activation, so a step with adapters runs these one by one. */
static void fused_linear(model_t *model, const layer_t *layer, int first, int last, act_t *out,
                         const act_t *in, const fused_linear_t *linear, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  if (ops->fused_linear != NULL && model->lora.num_tokens == 0) {
    ops->fused_linear(device, out, in, linear, rows);
    return;
  }
  act_t *sums = linear->has_activation ? linear->sums : out;
  if (linear->norm != NULL) {
    ops->norm(device, linear->normed, in, NULL, linear->norm, rows);
    in = linear->normed;
  }
  ops->linear(device, sums, in, linear->weight, linear->bias, NULL, rows);
  adapt(model, layer, first, last, sums, in,
        plain_sums(model, layer, first, last, in, linear->weight, rows));
  if (linear->has_activation)
    ops->activation(device, out, sums, linear->activation, linear->width, rows);
  if (linear->attention != NULL) ops->rope_store(device, out, linear->attention);
}

/* values[T, width] *= factors of the columns; NULL = none. */
static void multiply(model_t *model, act_t *values, const vector_t *factors, int64_t width,
                     int32_t rows) {
  if (factors != NULL)
    model->ops->state->scale(model->device, values, factors, (int32_t)width, rows);
}

/* q[T, stride], whose first `width` columns are queries, grows with the position. */
static void grow(model_t *model, act_t *q, int32_t width, int32_t stride) {
  const rope_config_t *rope = &model->blueprint.rope;
  const growth_t growth = {(float)rope->query_growth, rope->original_max, width, stride};
  if (rope->query_growth > 0 && model->ops->values != NULL)
    model->ops->values->grow(model->device, q, &growth);
}

/* Keys of the indexer are stored, and each token chooses those that it attends to; q_in[T, q rank]
 * is what queries are made of. */
static void choose_keys(model_t *model, const latent_layer_t *latent, const act_t *normed,
                        const act_t *q_in, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  ops->linear(device, model->index_keys, normed, latent->index_key, NULL, NULL, rows);
  ops->latent->store_keys(device, model->index_keys, &latent->attention, &latent->indexer);
  ops->linear(device, model->index_q, q_in, latent->index_q, NULL, NULL, rows);
  ops->linear(device, model->index_weights, normed, latent->index_weights, NULL, NULL, rows);
  ops->latent->choose(device, model->chosen, model->index_q, model->index_weights,
                      &latent->attention, &latent->indexer);
}

/* attn[T, Hq v] = latent attention of normed rows. */
static void latent_attend(model_t *model, const layer_t *layer, const act_t *normed, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const latent_layer_t *latent = &layer->latent;
  const int32_t width = model->blueprint.num_heads * model->blueprint.head_dim;
  const act_t *q_in = normed;
  if (latent->q_down != NULL) {
    ops->linear(device, model->q_down, normed, latent->q_down, latent->q_down_bias, NULL, rows);
    ops->norm(device, model->q_down, model->q_down, NULL, &latent->q_norm, rows);
    q_in = model->q_down;
  }
  ops->linear(device, model->qkv, q_in, latent->q, NULL, NULL, rows);
  grow(model, model->qkv, width, width);
  ops->linear(device, model->latent_rows, normed, latent->row, latent->row_bias, NULL, rows);
  ops->latent->store(device, model->latent_rows, &latent->attention);
  if (latent->index_key != NULL) choose_keys(model, latent, normed, q_in, rows);
  if (latent->attention.top > 0)
    ops->latent->attend_chosen(device, model->attn, model->qkv, model->latent_q, model->latent_sums,
                               model->chosen, &latent->attention);
  else
    ops->latent->attend(device, model->attn, model->qkv, model->latent_q, model->latent_sums,
                        &latent->attention);
}

/* attn[T, Hq D] = attention of the input; where ranks add up sums, of the heads of this rank. */
static void attend(model_t *model, const layer_t *layer, const block_input_t *in, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  if (layer->latent.q != NULL) {
    if (in->norm != NULL) ops->norm(device, in->normed, in->rows, NULL, in->norm, rows);
    latent_attend(model, layer, in->norm != NULL ? in->normed : in->rows, rows);
    return;
  }
  block_input_t input = *in;
  if (layer->attn_gate != NULL && in->norm != NULL) { /* two products read the norm */
    ops->norm(device, in->normed, in->rows, NULL, in->norm, rows);
    input = (block_input_t){.rows = in->normed};
  }
  const int32_t width = (int32_t)attention_width(&layer->attention);
  const float limit = (float)model->blueprint.qkv_limit;
  const bool apart = layer->qkv_factors != NULL || limit > 0; /* they come before the rotation */
  const fused_linear_t qkv = {.norm = input.norm,
                              .normed = input.normed,
                              .weight = layer->qkv,
                              .bias = layer->qkv_bias,
                              .attention = apart ? NULL : &layer->attention};
  fused_linear(model, layer, LORA_Q, LORA_QKV, model->qkv, input.rows, &qkv, rows);
  multiply(model, model->qkv, layer->qkv_factors, width, rows);
  if (limit > 0) ops->values->clamp(device, model->qkv, limit, width, rows);
  if (apart) ops->rope_store(device, model->qkv, &layer->attention);
  grow(model, model->qkv, layer->attention.num_heads * layer->attention.head_dim, width);
  const bool gathers = model->is_cut && !adds_up(model);
  act_t *out = gathers ? model->own : model->attn;
  ops->attention(device, out, model->qkv, &layer->attention);
  if (layer->attn_gate != NULL) {
    const int32_t heads = layer->attention.num_heads, size = layer->attention.head_dim;
    const bool by_head = model->blueprint.attn_gate_by_head;
    const gating_t gating = {.width = heads * size,
                             .gate_width = by_head ? heads : heads * size,
                             .gate_repeats = by_head ? size : 1,
                             .sigmoid = true};
    ops->linear(device, model->attn_gate, input.rows, layer->attn_gate, NULL, NULL, rows);
    ops->state->gate(device, out, out, model->attn_gate, &gating, rows);
  }
  if (gathers) ops->ranks->gather(device, model->attn, out, NULL, model->cuts.heads, rows);
}

/* out[T, h] = residual[T, h] + projection of attn; NULL = no residual. */
static void project_attention(model_t *model, const layer_t *layer, act_t *out,
                              const act_t *residual, int32_t rows) {
  cut_linear(model, layer, LORA_O, out, model->attn, residual, rows);
}

static void attention_block(model_t *model, const layer_t *layer, act_t *out,
                            const block_input_t *in, const act_t *residual, int32_t rows) {
  attend(model, layer, in, rows);
  project_attention(model, layer, out, residual, rows);
}

/* out[rows, width] = a part of what Mamba-1 makes of its columns, normed where the family does. */
static void select_part(model_t *model, act_t *out, const act_t *in, const weight_t *weight,
                        const norm_t *norm, int32_t rows) {
  model->ops->linear(model->device, out, in, weight, NULL, NULL, rows);
  if (norm->width > 0) model->ops->norm(model->device, out, out, NULL, norm, rows);
}

/* mix_out[T, I] = the selection of mix_out, the columns behind the convolution. */
static void select_tokens(model_t *model, const selective_t *of, int32_t rows) {
  const act_t *x = model->mix_out;
  select_part(model, model->mix_rank, x, of->rank, &of->rank_norm, rows);
  select_part(model, model->mix_keys, x, of->keys, &of->key_norm, rows);
  select_part(model, model->mix_queries, x, of->queries, &of->query_norm, rows);
  model->ops->linear(model->device, model->mix_steps, model->mix_rank, of->steps, NULL, NULL, rows);
  model->ops->state->select(model->device, model->mix_out, x, model->mix_steps, model->mix_keys,
                            model->mix_queries, &of->selection);
}

/* The same for a layer with a state. */
static void mixer_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                        const act_t *residual, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const mixer_t *mixer = &layer->mixer;
  const fused_linear_t project = {
      .norm = in->norm, .normed = in->normed, .weight = mixer->in, .bias = mixer->in_bias};
  act_t *projected = model->is_cut ? model->own : model->mix_in;
  fused_linear(model, layer, 0, -1, projected, in->rows, &project, rows);
  if (model->is_cut)
    ops->ranks->gather(device, model->mix_in, model->own, NULL, model->cuts.mixer, rows);
  multiply(model, model->mix_in, mixer->in_factors, mixer->recurrence.width, rows);
  if (mixer->selective.selection.channels > 0) {
    ops->state->conv(device, model->mix_out, model->mix_in, &mixer->conv);
    select_tokens(model, &mixer->selective, rows);
    ops->state->gate(device, model->mix_out, model->mix_out, model->mix_in, &mixer->gating, rows);
  } else if (mixer->recurrence.num_heads == 0) {
    ops->state->conv(device, model->mix_out, model->mix_in, &mixer->conv);
  } else {
    ops->state->conv(device, model->mix_in, model->mix_in, &mixer->conv);
    ops->state->recur(device, model->mix_out, model->mix_in, model->mix_factors,
                      &mixer->recurrence);
    ops->state->gate(device, model->mix_out, model->mix_out, model->mix_in, &mixer->gating, rows);
  }
  multiply(model, model->mix_out, mixer->out_factors, mixer->gating.width, rows);
  whole_linear(model, out, model->mix_out, mixer->out, mixer->out_bias, residual, rows);
}

/* out[T, h] = residual[T, h] + what the layer takes from other tokens. Of Falcon-H1 that is both
 * attention and a state, which read one norm. */
static void token_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                        const act_t *residual, int32_t rows) {
  const block_input_t normed = {.rows = in->norm != NULL ? in->normed : in->rows};
  if (layer->mixer.in != NULL && layer->o != NULL) {
    CHECK(out != in->normed && in->norm != NULL);
    model->ops->norm(model->device, in->normed, in->rows, NULL, in->norm, rows);
    attention_block(model, layer, out, &normed, residual, rows);
    mixer_block(model, layer, out, &normed, out, rows);
  } else if (layer->mixer.in != NULL)
    mixer_block(model, layer, out, in, residual, rows);
  else if (layer->o != NULL)
    attention_block(model, layer, out, in, residual, rows);
}

/* The same for a gate of which the largest values are kept. */
static void widen_sparsely(model_t *model, const layer_t *layer, const block_input_t *in,
                           int32_t width, int32_t rows) {
  const ops_t *ops = model->ops;
  const fused_linear_t plain = {
      .norm = in->norm, .normed = in->normed, .weight = layer->up, .bias = layer->up_bias};
  fused_linear(model, layer, LORA_GATE, LORA_GATE_UP, model->up, in->rows, &plain, rows);
  ops->altup->keep_largest(model->device, model->up, layer->deviations, width, 2 * width, rows);
  ops->activation(model->device, model->act, model->up, model->blueprint.activation, width, rows);
}

/* act[T, width] = the inner values of the MLP of the input; or those of this rank. */
static void widen(model_t *model, const layer_t *layer, const block_input_t *in, int32_t width,
                  int32_t rows) {
  const shard_cuts_t *all = &model->cuts;
  const int32_t *cuts = layer->moe.num_experts > 0 ? all->shared : all->mlp;
  const int32_t rank = model->blueprint.shard.rank;
  const bool gathers = model->is_cut && !adds_up(model);
  act_t *out = gathers ? model->own : model->act;
  if (model->is_cut) width = cuts[rank + 1] - cuts[rank];
  if (layer->up_factors != NULL) { /* between the projection and the activation */
    const fused_linear_t plain = {
        .norm = in->norm, .normed = in->normed, .weight = layer->up, .bias = layer->up_bias};
    fused_linear(model, layer, 0, -1, model->up, in->rows, &plain, rows);
    multiply(model, model->up, layer->up_factors, 2 * (int64_t)width, rows);
    model->ops->activation(model->device, out, model->up, model->blueprint.activation, width, rows);
    if (gathers) model->ops->ranks->gather(model->device, model->act, out, NULL, cuts, rows);
    return;
  }
  if (model->blueprint.xielu) {
    const fused_linear_t plain = {
        .norm = in->norm, .normed = in->normed, .weight = layer->up, .bias = layer->up_bias};
    fused_linear(model, layer, LORA_GATE, LORA_GATE_UP, out, in->rows, &plain, rows);
    model->ops->values->xielu(model->device, out, &layer->xielu, width, rows);
    if (gathers) model->ops->ranks->gather(model->device, model->act, out, NULL, cuts, rows);
    return;
  }
  const fused_linear_t up = {.norm = in->norm,
                             .normed = in->normed,
                             .weight = layer->up,
                             .bias = layer->up_bias,
                             .has_activation = true,
                             .activation = model->blueprint.activation,
                             .width = width,
                             .sums = model->up};
  fused_linear(model, layer, LORA_GATE, LORA_GATE_UP, out, in->rows, &up, rows);
  multiply(model, out, layer->shared_factors, width, rows);
  if (gathers) model->ops->ranks->gather(model->device, model->act, out, NULL, cuts, rows);
}

/* out[T, h] = residual[T, h] + projection of act; NULL = no residual. */
static void narrow(model_t *model, const layer_t *layer, act_t *out, const act_t *residual,
                   int32_t rows) {
  cut_linear(model, layer, LORA_DOWN, out, model->act, residual, rows);
}

static void dense_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                        const act_t *residual, int32_t width, int32_t rows) {
  if (layer->is_sparse)
    widen_sparsely(model, layer, in, width, rows);
  else
    widen(model, layer, in, width, rows);
  narrow(model, layer, out, residual, rows);
}

/* own[T, h] = what this rank has of the sums of its experts and of the shared ones. */
static void expert_sums(model_t *model, const layer_t *layer, const act_t *in, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const block_input_t input = {.rows = in};
  const vector_t *bias = bias_once(model, layer->down_bias);
  moe_t moe = layer->moe;
  moe.sums_own = true;
  ops->moe(device, model->own, in, NULL, &moe, rows);
  if (layer->up == NULL) return;
  widen(model, layer, &input, model->blueprint.shared_size, rows);
  if (layer->shared == NULL) {
    ops->linear(device, model->own, model->act, layer->down, bias, model->own, rows);
    return;
  }
  ops->linear(device, model->shared, model->act, layer->down, bias, NULL, rows);
  ops->linear(device, model->gate, in, layer->shared, NULL, NULL, rows);
  ops->gated_add(device, model->own, model->shared, model->gate, model->own,
                 model->blueprint.hidden_size, rows);
}

/* The same for a mixture of experts; the output of shared experts, which may be gated, is added
 * first. Several operations read the norm of the input, so the norm is an operation of its own. */
static void expert_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                         const act_t *residual, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const blueprint_t *bp = &model->blueprint;
  const block_input_t normed = {.rows = in->norm != NULL ? in->normed : in->rows};
  if (in->norm != NULL) ops->norm(device, in->normed, in->rows, NULL, in->norm, rows);
  if (adds_up(model)) {
    expert_sums(model, layer, normed.rows, rows);
    add_up(model, out, residual, rows);
    return;
  }
  if (layer->shared != NULL) {
    dense_block(model, layer, model->shared, &normed, NULL, bp->shared_size, rows);
    ops->linear(device, model->gate, normed.rows, layer->shared, NULL, NULL, rows);
    ops->gated_add(device, out, model->shared, model->gate, residual, bp->hidden_size, rows);
    residual = out;
  } else if (layer->up != NULL) {
    dense_block(model, layer, out, &normed, residual, bp->shared_size, rows);
    residual = out;
  }
  if (layer->experts_in == NULL) {
    ops->moe(device, out, normed.rows, residual, &layer->moe, rows);
    return;
  }
  moe_t moe = layer->moe;
  moe.router_in = normed.rows;
  ops->linear(device, model->experts_in, normed.rows, layer->experts_in, NULL, NULL, rows);
  ops->moe(device, model->experts_out, model->experts_in, NULL, &moe, rows);
  ops->linear(device, out, model->experts_out, layer->experts_out, NULL, residual, rows);
}

static void mlp_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                      const act_t *residual, int32_t rows) {
  if (layer->moe.num_experts > 0)
    expert_block(model, layer, out, in, residual, rows);
  else if (layer->down != NULL)
    dense_block(model, layer, out, in, residual, layer->mlp_width, rows);
}

/* out[T, h] = norm(mlp(norm(x))) + norm(experts(norm(x))), where the router reads a third norm. */
static void beside_block(model_t *model, const layer_t *layer, act_t *out, const block_input_t *in,
                         int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  moe_t moe = layer->moe;
  moe.router_in = model->router_in;
  dense_block(model, layer, model->shared, in, NULL, layer->mlp_width, rows);
  ops->norm(device, model->shared, model->shared, NULL, &layer->dense_out_norm, rows);
  ops->norm(device, model->router_in, in->rows, NULL, &layer->router_norm, rows);
  ops->norm(device, in->normed, in->rows, NULL, &layer->expert_norm, rows);
  ops->moe(device, model->expert_out, in->normed, NULL, &moe, rows);
  ops->norm(device, out, model->expert_out, model->shared, &layer->expert_out_norm, rows);
}

/* out[T, h] = what the embeddings of the layer and the input make, before their norm. */
static void layer_input(model_t *model, const layer_t *layer, act_t *out, const act_t *in,
                        int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const blueprint_t *bp = &model->blueprint;
  const int32_t size = bp->per_layer_size;
  const input_gate_t gate = {.activation = bp->activation,
                             .width = size,
                             .factors_width = bp->num_layers * size,
                             .column = (int32_t)(layer - model->layers) * size};
  ops->linear(device, model->input, in, layer->input_gate, NULL, NULL, rows);
  ops->per_layer->gate(device, model->input, model->input, model->inputs, &gate, rows);
  ops->linear(device, out, model->input, layer->input_project, NULL, NULL, rows);
}

/* What Gemma 4 has behind both blocks: hidden = scalar (hidden + the embeddings of the layer). */
static void finish_layer(model_t *model, const layer_t *layer, act_t *hidden, act_t *scratch,
                         int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  if (layer->input_gate != NULL) {
    layer_input(model, layer, scratch, hidden, rows);
    ops->norm(device, hidden, scratch, hidden, &layer->input_norm, rows);
  }
  if (layer->scalar != NULL)
    ops->per_layer->scale(device, hidden, layer->scalar, model->blueprint.hidden_size, rows);
}

/* The streams of Gemma 3n: all are predicted from the first one, which alone passes attention, what
 * stands beside it, and the MLP; by what these make of it all are corrected. The embeddings of the
 * layer go to the others. */
static void altup_layer(model_t *model, const layer_t *layer, act_t *scratch, int32_t rows) {
  const ops_t *ops = model->ops;
  const altup_ops_t *altup = ops->altup;
  device_t *device = model->device;
  act_t *first = model->streams[0], *computed = model->computed, *laurel = model->laurel;
  act_t *const both[2] = {computed, laurel};
  const int32_t width = model->blueprint.hidden_size;
  const block_input_t normed = {.rows = scratch},
                      mlp_normed = {computed, &layer->mlp_norm, scratch};
  altup->predict(device, model->streams, &layer->altup, rows);
  ops->norm(device, scratch, first, NULL, &layer->attn_norm, rows);
  ops->linear(device, model->laurel_rank, scratch, layer->laurel_down, NULL, NULL, rows);
  ops->linear(device, laurel, model->laurel_rank, layer->laurel_up, NULL, NULL, rows);
  ops->norm(device, laurel, laurel, scratch, &layer->laurel_norm, rows);
  attention_block(model, layer, computed, &normed, NULL, rows);
  ops->norm(device, computed, computed, first, &layer->attn_out_norm, rows);
  altup->sum(device, computed, both, 2, sqrtf(0.5f), width, rows);
  mlp_block(model, layer, laurel, &mlp_normed, NULL, rows);
  ops->norm(device, computed, laurel, computed, &layer->mlp_out_norm, rows);
  altup->correct(device, model->streams, scratch, computed, &layer->altup, rows);
  layer_input(model, layer, laurel, scratch, rows);
  for (int32_t n = 1; n < layer->altup.num_streams; n++)
    ops->norm(device, model->streams[n], laurel, model->streams[n], &layer->input_norm, rows);
}

/* The streams of the embeddings. */
static void begin_streams(model_t *model, int32_t rows) {
  const int32_t width = model->blueprint.hidden_size;
  for (int32_t n = 1; n < model->blueprint.num_streams; n++) {
    model->ops->linear(model->device, model->streams[n], model->streams[0], model->stream_in[n - 1],
                       NULL, NULL, rows);
    model->ops->altup->match(model->device, model->streams[n], model->streams[0], width, rows);
  }
}

/* x[T, h] = the mean of all streams. */
static void end_streams(model_t *model, int32_t rows) {
  const altup_ops_t *altup = model->ops->altup;
  const int32_t count = model->blueprint.num_streams, width = model->blueprint.hidden_size;
  for (int32_t n = 1; n < count; n++) {
    model->ops->linear(model->device, model->laurel, model->streams[n], model->stream_out[n - 1],
                       NULL, NULL, rows);
    altup->match(model->device, model->laurel, model->streams[0], width, rows);
    altup->sum(model->device, model->streams[n], &model->laurel, 1, 1, width, rows);
  }
  if (count > 0)
    altup->sum(model->device, model->x, model->streams, count, 1.0f / (float)count, width, rows);
}

/* out[T, h] = residual[T, h] + attention of the input to the rows of the encoder. */
static void cross_block(model_t *model, const layer_t *layer, act_t *out, const act_t *in,
                        const act_t *residual, int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const cross_layer_t *cross = &layer->cross;
  ops->linear(device, model->qkv, in, cross->q, cross->q_bias, NULL, rows);
  if (ops->cross->weigh != NULL)
    ops->cross->weigh(device, model->qkv, &cross->attention, (int32_t)(layer - model->layers));
  ops->attention(device, model->attn, model->qkv, &cross->attention);
  ops->linear(device, out, model->attn, cross->o, cross->o_bias, residual, rows);
}

void model_run_layer(model_t *model, const layer_t *layer, act_t *hidden, act_t *scratch,
                     int32_t rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const block_input_t plain = {.rows = hidden};
  const bool normed = layer->attn_norm.width > 0, crosses = layer->cross.q != NULL;
  const block_input_t attn_normed = {hidden, normed ? &layer->attn_norm : NULL,
                                     normed ? scratch : NULL};
  const block_input_t mlp_normed = {hidden, &layer->mlp_norm, scratch};
  act_t *out;
  block_kind_t block = model->blueprint.block;
  if (block == BLOCK_OUT_NORM && layer->mixer.in != NULL) block = BLOCK_PRE_NORM; /* OLMo hybrid */
  switch (block) {
  case BLOCK_PRE_NORM: /* of Nemotron-H a layer has one of the two */
    token_block(model, layer, hidden, &attn_normed, hidden, rows);
    if (crosses) {
      ops->norm(device, scratch, hidden, NULL, &layer->cross.norm, rows);
      cross_block(model, layer, hidden, scratch, hidden, rows);
    }
    mlp_block(model, layer, hidden, &mlp_normed, hidden, rows);
    break;
  case BLOCK_POST_NORM:
    attention_block(model, layer, scratch, &plain, hidden, rows);
    ops->norm(device, hidden, scratch, NULL, &layer->attn_norm, rows);
    if (crosses) {
      cross_block(model, layer, scratch, hidden, hidden, rows);
      ops->norm(device, hidden, scratch, NULL, &layer->cross.norm, rows);
    }
    mlp_block(model, layer, scratch, &plain, hidden, rows);
    ops->norm(device, hidden, scratch, NULL, &layer->mlp_norm, rows);
    break;
  case BLOCK_SANDWICH:
    token_block(model, layer, scratch, &attn_normed, NULL, rows);
    ops->norm(device, hidden, scratch, hidden, &layer->attn_out_norm, rows);
    out = layer->moe.num_experts > 0 && !model->blueprint.experts_beside ? model->expert_out
                                                                         : scratch;
    if (model->blueprint.experts_beside)
      beside_block(model, layer, out, &mlp_normed, rows);
    else
      mlp_block(model, layer, out, &mlp_normed, NULL, rows);
    ops->norm(device, hidden, out, hidden, &layer->mlp_out_norm, rows);
    finish_layer(model, layer, hidden, scratch, rows);
    break;
  case BLOCK_OUT_NORM:
    attention_block(model, layer, scratch, &plain, NULL, rows);
    ops->norm(device, hidden, scratch, hidden, &layer->attn_out_norm, rows);
    mlp_block(model, layer, scratch, &plain, NULL, rows);
    ops->norm(device, hidden, scratch, hidden, &layer->mlp_out_norm, rows);
    break;
  case BLOCK_PARALLEL: /* both read hidden before either adds to it */
    attend(model, layer, &attn_normed, rows);
    if (layer->moe.num_experts > 0) { /* what attention gives is complete and not added yet */
      expert_block(model, layer, hidden, &mlp_normed, hidden, rows);
      project_attention(model, layer, hidden, hidden, rows);
      break;
    }
    widen(model, layer, &mlp_normed, layer->mlp_width, rows);
    project_attention(model, layer, hidden, hidden, rows);
    narrow(model, layer, hidden, hidden, rows);
    break;
  case BLOCK_ALTUP: altup_layer(model, layer, scratch, rows); break;
  }
}

static void find_adapters(model_t *model, const batch_t *batch) {
  model_lora_t *lora = &model->lora;
  lora->num_tokens = batch->num_adapted;
  lora->with_factors = false;
  for (int32_t t = 0; lora->num_tokens > 0 && lora->slots > 0 && t < batch->num_tokens; t++)
    lora->with_factors |= lora->has_factors[batch->adapters[t]];
}

void model_forward(model_t *model, const batch_t *batch) {
  (void)model_forward_until(model, batch, NULL, NULL);
}

bool model_forward_until(model_t *model, const batch_t *batch, bool (*ends)(void *context),
                         void *context) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const blueprint_t *bp = &model->blueprint;
  act_t *hidden = model->x, *scratch = model->y;
  const int32_t rows = batch->num_tokens, selected = batch->num_selected;

  CHECK(ops->embed_pictures != NULL ||
        (batch->num_embedded == 0 && batch->rope_positions == NULL && batch->seen_until == NULL));
  find_adapters(model, batch);
  if (stage_is_first(bp)) {
    embed_tokens(model, batch->num_embedded, rows);
    embed_layers(model, batch->num_embedded, rows);
    begin_streams(model, rows);
  }
  for (int32_t i = stage_begin(bp, bp->shard.stage); i < stage_begin(bp, bp->shard.stage + 1);
       i++) {
    if (ends != NULL && ends(context)) return false;
    eagle_keep(model, i, hidden, rows);
    model_run_layer(model, &model->layers[i], hidden, scratch, rows);
    if (batch->num_embedded > 0 && i < batch->num_deep)
      ops->embed_pictures(device, hidden, i + 1, bp->hidden_size);
  }
  eagle_keep(model, bp->num_layers, hidden, rows);
  if (!stage_is_last(bp)) return true;
  end_streams(model, rows);
  if (bp->mtp > 0) { /* its layer reads every row */
    ops->norm(device, scratch, hidden, NULL, &model->final_norm, rows);
    ops->read_rows(device, model->mtp.rows, scratch, bp->hidden_size, rows);
  }
  ops->gather(device, scratch, hidden, bp->hidden_size); /* scratch[S, h] */
  act_t *from = scratch, *to = hidden;
  if (bp->final_norm) {
    ops->norm(device, to, from, NULL, &model->final_norm, selected);
    from = hidden;
    to = scratch;
  }
  if (model->project_out != NULL) {
    ops->linear(device, to, from, model->project_out, NULL, NULL, selected);
    from = to;
  }
  model->head_in = from; /* [S, E] */
  return true;
}

void model_hidden(const model_t *model, float *out, int32_t rows) {
  model->ops->read_rows(model->device, out, model->head_in, model->blueprint.embed_size, rows);
}

bool model_has_post_layers(const model_t *model) {
  return model->num_post_layers > 0;
}

void model_run_post_layers(const model_t *model, float *rows, int32_t num_rows) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  act_t *from = model->post_rows, *to = model->post_sums;
  ops->write_rows(device, from, rows, model->post_layers[0].in, num_rows);
  for (int32_t i = 0; i < model->num_post_layers; i++) {
    const post_layer_t *layer = &model->post_layers[i];
    ops->linear(device, to, from, layer->weight, layer->bias, NULL, num_rows);
    if (layer->activation >= 0)
      ops->activation(device, to, to, (activation_t)layer->activation, layer->out, num_rows);
    if (layer->norm.width > 0) ops->norm(device, to, to, NULL, &layer->norm, num_rows);
    act_t *swap = from;
    from = to;
    to = swap;
  }
  ops->read_rows(device, rows, from, model->post_layers[model->num_post_layers - 1].out, num_rows);
}

void model_logits(model_t *model, int32_t first, int32_t rows) {
  const blueprint_t *bp = &model->blueprint;
  const float softcap = (float)bp->final_softcap;
  const lora_t *lora = model->lora.num_tokens > 0 ? model->lora.head.lora : NULL;
  if (stage_is_last(bp))
    model->ops->logits(model->device, model->head_in, model->head, model->head_bias,
                       lora != NULL ? 0 : softcap, first, rows);
  if (stage_is_last(bp) && lora != NULL)
    model->ops->lora->logits(model->device, model->head_in, model->head_bias, lora, softcap, first,
                             rows);
  if (bp->shard.num_stages > 1)
    model->ops->ranks->pass_logits(model->device, bp->shard.num_stages - 1, bp->vocab_size, rows);
  if (model->is_cut) model->ops->ranks->logits(model->device, model->cuts.vocab, rows);
  eagle_spread(model, rows);
}
