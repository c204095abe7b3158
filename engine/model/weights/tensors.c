/* tensors.c: a family's layout and a blueprint's sizes become the expected tensor list. */
#include "engine/model/weights/tensors.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of ROLE_MIX_IN: DeltaNet has its other columns in tensors of their own. */
static int64_t mix_rows(const blueprint_t *bp) {
  const mixer_config_t *mixer = &bp->mixer;
  if (mixer->kind != MIXER_DELTA) return mixer_width(mixer, bp->hidden_size);
  const bool has_z = mixer->by_group && !mixer->z_apart;
  return mixer_channels(mixer, bp->hidden_size) + (has_z ? mixer_inner(mixer, 0) : 0);
}

static int64_t resolve(dim_t dim, const blueprint_t *bp, int32_t layer) {
  const int64_t head = layer_head_dim(bp, layer), kv_heads = layer_kv_heads(bp, layer);
  switch (dim) {
  case DIM_NONE: return 0;
  case DIM_VOCAB: return bp->vocab_size;
  case DIM_EMBED: return bp->embed_size;
  case DIM_TABLE: return bp->encoder.table_size > 0 ? bp->encoder.table_size : bp->hidden_size;
  case DIM_HIDDEN: return bp->hidden_size;
  case DIM_HIDDEN_3: return 3 * (int64_t)bp->hidden_size;
  case DIM_BANDS_3: return 3 * (int64_t)bp->num_bands;
  case DIM_HIDDEN_2: return 2 * (int64_t)bp->hidden_size;
  case DIM_TARGET_3: return EAGLE_LAYERS * (int64_t)bp->eagle.target_size;
  case DIM_MLP: return layer_mlp_width(bp, layer);
  case DIM_Q: return bp->num_heads * head;
  case DIM_KV: return kv_heads * head;
  case DIM_QKV: return (bp->num_heads + 2 * kv_heads) * head;
  case DIM_HEAD: return head;
  case DIM_Q_NORM: return bp->qk_norm_whole || bp->qk_norm_each ? bp->num_heads * head : head;
  case DIM_K_NORM: return bp->qk_norm_whole || bp->qk_norm_each ? kv_heads * head : head;
  case DIM_HEADS: return bp->num_heads;
  case DIM_GATE_UP: return 2 * (int64_t)bp->intermediate_size;
  case DIM_BUCKETS: return bp->distance_buckets;
  case DIM_DISTANCES: return 2 * (int64_t)bp->encoder.distance_span;
  case DIM_EXPERTS: return bp->num_experts;
  case DIM_EXPERT: return bp->expert_size;
  case DIM_EXPERT_UP: return 2 * (int64_t)bp->expert_size;
  case DIM_EXPERT_IN: return bp->expert_in > 0 ? bp->expert_in : bp->hidden_size;
  case DIM_SHARED: return bp->shared_size;
  case DIM_SHARED_UP: return 2 * (int64_t)bp->shared_size;
  case DIM_MIX_IN: return mix_rows(bp);
  case DIM_MIX_HEADS: return bp->mixer.num_heads;
  case DIM_MIX_HEADS_2: return 2 * (int64_t)bp->mixer.num_heads;
  case DIM_MIX_CONV: return (int64_t)mixer_channels(&bp->mixer, bp->hidden_size) * bp->mixer.taps;
  case DIM_MIX_NORM:
    return bp->mixer.kind == MIXER_DELTA ? bp->mixer.value_dim
                                         : mixer_inner(&bp->mixer, bp->hidden_size);
  case DIM_MIX_INNER: return mixer_inner(&bp->mixer, bp->hidden_size);
  case DIM_MIX_KEYS: return mixer_keys(&bp->mixer);
  case DIM_MIX_KEY_TAPS: return (int64_t)mixer_part(&bp->mixer, 0) * bp->mixer.taps;
  case DIM_MIX_VALUE_TAPS: return (int64_t)mixer_part(&bp->mixer, 2) * bp->mixer.taps;
  case DIM_MIX_PARTS: return bp->mixer.step_rank + 2 * (int64_t)bp->mixer.key_dim;
  case DIM_MIX_STEPS: return bp->mixer.step_rank;
  case DIM_MIX_STATE: return bp->mixer.key_dim;
  case DIM_MIX_STATES: return mixer_inner(&bp->mixer, 0) * (int64_t)bp->mixer.key_dim;
  case DIM_TYPES: return bp->encoder.token_types;
  case DIM_TASKS: return bp->encoder.task_types;
  case DIM_LABELS: return bp->encoder.num_labels;
  case DIM_Q_RANK: return bp->q_rank;
  case DIM_LATENT: return bp->kv_rank;
  case DIM_LATENT_ROW: return bp->kv_rank + bp->rope_dim;
  case DIM_LATENT_UP: return bp->num_heads * (head - bp->rope_dim + bp->value_dim);
  case DIM_LATENT_OUT: return (int64_t)bp->num_heads * bp->value_dim;
  case DIM_LATENT_KEY: return (int64_t)bp->num_heads * bp->kv_rank;
  case DIM_NOPE: return head - bp->rope_dim;
  case DIM_INDEX_Q: return (int64_t)bp->index_heads * bp->index_dim;
  case DIM_INDEX_KEY: return bp->index_dim;
  case DIM_INDEX_HEADS: return bp->index_heads;
  case DIM_PER_LAYER: return bp->per_layer_size;
  case DIM_PER_LAYERS: return (int64_t)bp->num_layers * bp->per_layer_size;
  case DIM_LAYER_VOCAB: return bp->layer_vocab;
  case DIM_STREAMS: return bp->num_streams;
  case DIM_STREAMS_2: return (int64_t)bp->num_streams * bp->num_streams;
  case DIM_LAUREL: return bp->laurel_rank;
  case DIM_ONE: return 1;
  case DIM_ANSWERS: return 2;
  case DIM_POSITIONS: return (int64_t)bp->num_positions + bp->position_offset;
  }
  return 0;
}

const char *tensor_dim_name(dim_t dim) {
  static const char *const names[] = {
      [DIM_NONE] = "",
      [DIM_VOCAB] = "vocab_size",
      [DIM_EMBED] = "hidden_size (word_embed_proj_dim)",
      [DIM_TABLE] = "embedding_size (or hidden_size)",
      [DIM_HIDDEN] = "hidden_size",
      [DIM_HIDDEN_2] = "2 x hidden_size",
      [DIM_HIDDEN_3] = "3 x d_model",
      [DIM_BANDS_3] = "3 x num_mel_bins",
      [DIM_TARGET_3] = "3 x target_hidden_size",
      [DIM_MLP] = "intermediate_size",
      [DIM_Q] = "num_attention_heads x head_dim",
      [DIM_KV] = "num_key_value_heads x head_dim",
      [DIM_QKV] = "(num_attention_heads + 2 x num_key_value_heads) x head_dim",
      [DIM_HEAD] = "head_dim",
      [DIM_Q_NORM] = "head_dim (x num_attention_heads)",
      [DIM_K_NORM] = "head_dim (x num_key_value_heads)",
      [DIM_HEADS] = "num_attention_heads",
      [DIM_GATE_UP] = "2 x intermediate_size",
      [DIM_BUCKETS] = "relative_attention_num_buckets",
      [DIM_DISTANCES] = "2 x position_buckets (or max_relative_positions)",
      [DIM_EXPERTS] = "the number of experts",
      [DIM_EXPERT] = "the width of an expert",
      [DIM_EXPERT_UP] = "2 x the width of an expert",
      [DIM_EXPERT_IN] = "moe_latent_size (or hidden_size)",
      [DIM_SHARED] = "shared_expert_intermediate_size",
      [DIM_SHARED_UP] = "2 x shared_intermediate_size",
      [DIM_MIX_IN] = "the heads of the layers with a state",
      [DIM_MIX_HEADS] = "the heads of the layers with a state",
      [DIM_MIX_HEADS_2] = "2 x the heads of the layers with a state",
      [DIM_MIX_CONV] = "the channels and taps of the convolution",
      [DIM_MIX_NORM] = "the norm of the layers with a state",
      [DIM_MIX_INNER] = "the heads of the layers with a state",
      [DIM_MIX_KEYS] = "linear_num_key_heads x linear_key_head_dim",
      [DIM_MIX_KEY_TAPS] = "the channels and taps of the convolution",
      [DIM_MIX_VALUE_TAPS] = "the channels and taps of the convolution",
      [DIM_MIX_PARTS] = "time_step_rank + 2 x state_size (mamba_dt_rank, mamba_d_state)",
      [DIM_MIX_STEPS] = "time_step_rank (mamba_dt_rank)",
      [DIM_MIX_STATE] = "state_size (mamba_d_state)",
      [DIM_MIX_STATES] = "expand x hidden_size x state_size",
      [DIM_TYPES] = "type_vocab_size",
      [DIM_TASKS] = "task_type_vocab_size",
      [DIM_LABELS] = "the number of labels (id2label)",
      [DIM_Q_RANK] = "q_lora_rank",
      [DIM_LATENT] = "kv_lora_rank",
      [DIM_LATENT_ROW] = "kv_lora_rank + qk_rope_head_dim",
      [DIM_LATENT_UP] = "num_attention_heads x (qk_nope_head_dim + v_head_dim)",
      [DIM_LATENT_OUT] = "num_attention_heads x v_head_dim",
      [DIM_LATENT_KEY] = "num_attention_heads x kv_lora_rank",
      [DIM_NOPE] = "qk_nope_head_dim",
      [DIM_INDEX_Q] = "index_n_heads x index_head_dim",
      [DIM_INDEX_KEY] = "index_head_dim",
      [DIM_INDEX_HEADS] = "index_n_heads",
      [DIM_PER_LAYER] = "hidden_size_per_layer_input",
      [DIM_PER_LAYERS] = "num_hidden_layers x hidden_size_per_layer_input",
      [DIM_LAYER_VOCAB] = "vocab_size_per_layer_input",
      [DIM_STREAMS] = "altup_num_inputs",
      [DIM_STREAMS_2] = "altup_num_inputs x altup_num_inputs",
      [DIM_LAUREL] = "laurel_rank",
      [DIM_ONE] = "1",
      [DIM_ANSWERS] = "yes and no",
      [DIM_POSITIONS] = "max_position_embeddings",
  };
  return names[dim];
}

static bool applies(when_t when, const blueprint_t *bp, int32_t layer) {
  bool experts = layer >= 0 && bp->layer_flags[layer] & LAYER_EXPERTS;
  switch (when) {
  case WHEN_NEVER: return false;
  case WHEN_ALWAYS: return true;
  case WHEN_UNTIED: return !bp->tied && (!bp->headless || bp->encoder.judges);
  case WHEN_HEAD: return !bp->headless;
  case WHEN_HEAD_BIAS: return !bp->headless && bp->head_bias;
  case WHEN_PROJECTED: return bp->embed_size != bp->hidden_size;
  case WHEN_FINAL_NORM: return bp->final_norm && bp->norm_affine;
  case WHEN_NORM_AFFINE: return bp->norm_affine;
  case WHEN_MLP_NORM: return !bp->shared_norm;
  case WHEN_TWO_INPUTS: return bp->block == BLOCK_PARALLEL && !bp->shared_norm;
  case WHEN_ONE_INPUT: return bp->block != BLOCK_PARALLEL || bp->shared_norm;
  case WHEN_OUT_NORMS:
    return bp->block == BLOCK_SANDWICH || bp->block == BLOCK_OUT_NORM || bp->block == BLOCK_ALTUP;
  case WHEN_SERIAL: return bp->block != BLOCK_PARALLEL;
  case WHEN_QKV_FUSED: return bp->qkv_fused;
  case WHEN_QKV_APART: return !bp->qkv_fused;
  case WHEN_QKV_BIAS_FUSED: return bp->qkv_bias && bp->qkv_fused;
  case WHEN_QKV_BIAS_APART: return bp->qkv_bias && !bp->qkv_fused;
  case WHEN_QKV_BIAS: return bp->qkv_bias;
  case WHEN_O_BIAS: return bp->o_bias;
  case WHEN_MLP_BIAS: return bp->mlp_bias;
  case WHEN_QK_NORM: return bp->qk_norm;
  case WHEN_DENSE: return !experts;
  case WHEN_DENSE_GATED: return !experts && bp->gated_mlp;
  case WHEN_DENSE_PLAIN: return !experts && !bp->gated_mlp;
  case WHEN_DENSE_BIAS: return !experts && bp->mlp_bias;
  case WHEN_EXPERTS: return experts;
  case WHEN_EXPERTS_PLAIN: return experts && !bp->experts_mxfp4;
  case WHEN_EXPERTS_MXFP4: return experts && bp->experts_mxfp4;
  case WHEN_Q_RANK: return bp->q_rank > 0;
  case WHEN_Q_RANK_BIAS: return bp->q_rank > 0 && bp->qkv_bias;
  case WHEN_Q_WHOLE: return bp->q_rank == 0;
  case WHEN_LATENT_WHOLE: return !bp->latent_split;
  case WHEN_LATENT_SPLIT: return bp->latent_split;
  case WHEN_EXPERTS_EACH: return experts && !bp->experts_stacked;
  case WHEN_EXPERTS_STACKED: return experts && bp->experts_stacked;
  case WHEN_SCORED: return experts && bp->routing != ROUTING_LOGITS;
  case WHEN_EXPERTS_IN: return experts && bp->expert_in > 0;
  case WHEN_SHARED: return experts && bp->shared_size > 0;
  case WHEN_CHOOSES:
    return layer >= 0 && bp->index_top > 0 && !(bp->layer_flags[layer] & LAYER_CHOSEN);
  case WHEN_MIXER_BIAS: return bp->mixer.bias;
  case WHEN_CONV_BIAS: return bp->mixer.conv_bias;
  case WHEN_MIXER_NORM: return bp->mixer.norm;
  case WHEN_STATE: return layer >= 0 && bp->layer_flags[layer] & LAYER_MIXER;
  case WHEN_NO_STATE: return layer >= 0 && !(bp->layer_flags[layer] & LAYER_MIXER);
  case WHEN_PARTS_NORM: return bp->mixer.parts_normed && !bp->mixer.parts_free;
  case WHEN_TASKS: return bp->encoder.task_types > 0;
  case WHEN_TYPES: return bp->encoder.token_types > 0;
  case WHEN_POSITIONS: return bp->num_positions > 0;
  case WHEN_DISTANCES: return bp->encoder.distance_span > 0;
  case WHEN_DISTANCE_NORM: return bp->encoder.distance_norm;
  case WHEN_TABLES_APART: return bp->encoder.table_size > 0;
  case WHEN_NORM_BIAS: return !bp->encoder.plain_norms;
  case WHEN_NOT_FIRST: return layer > 0 || !bp->encoder.first_unnormed;
  case WHEN_NOT_FIRST_BIAS:
    return !bp->encoder.plain_norms && (layer > 0 || !bp->encoder.first_unnormed);
  case WHEN_LOGITS_BIAS: return bp->cross.logits_bias;
  case WHEN_PER_LAYER: return bp->per_layer_size > 0;
  case WHEN_ANSWERS: return bp->encoder.answer_rows;
  case WHEN_LABELS: return bp->encoder.num_labels > 0;
  case WHEN_POOLER_BIAS: return bp->encoder.num_labels > 0 && bp->encoder.pooler_bias;
  case WHEN_LABELS_NORM_BIAS: return bp->encoder.num_labels > 0 && !bp->encoder.plain_norms;
  }
  return false;
}

/* Whether a layer has the block that a role belongs to. */
static bool has_block(const blueprint_t *bp, int32_t layer, tensor_role_t role) {
  if (layer < 0) return true;
  const uint8_t flags = bp->layer_flags[layer];
  const bool is_value = role == ROLE_V, is_key = role == ROLE_K || role == ROLE_K_NORM;
  if ((is_key || is_value) && layer_reads_only(bp, layer)) return false;
  if (is_value && layer_k_is_v(bp, layer)) return false;
  if (role >= ROLE_QKV && role <= ROLE_SINKS) return !(flags & LAYER_NO_ATTENTION);
  if (role == ROLE_ATTN_NORM) return !(flags & LAYER_NO_ATTENTION) || flags & LAYER_MIXER;
  if (role == ROLE_MLP_NORM || (role >= ROLE_GATE && role <= ROLE_SHARED_SWITCH))
    return !(flags & LAYER_NO_MLP);
  if (role == ROLE_ATTN_GATE) return bp->attn_gate && !(flags & LAYER_NO_ATTENTION);
  if (role >= ROLE_MIX_IN) return flags & LAYER_MIXER;
  return true;
}

/* The pattern with the layer in place of '#', the expert in place of '*', and the suffix. */
static void write_name(expected_tensor_t *tensor, const blueprint_t *bp, const char *pattern,
                       int32_t expert) {
  const bool apart = bp->mtp_kind == MTP_APART && tensor->layer >= bp->num_layers;
  const int32_t layer = apart ? tensor->layer - bp->num_layers : tensor->layer;
  const char *suffix = tensor->bias ? ".bias" : ".weight";
  size_t capacity = sizeof(tensor->name);
  size_t used = (size_t)snprintf(tensor->name, capacity, "%s", apart ? "mtp." : "");
  tensor->absolute = apart || pattern[0] == '/';
  if (pattern[0] == '/') pattern++;
  for (; *pattern != '\0' && *pattern != '|' && used < capacity; pattern++) {
    int n = 1;
    if (*pattern == '#')
      n = snprintf(tensor->name + used, capacity - used, "%d", layer);
    else if (*pattern == '*')
      n = snprintf(tensor->name + used, capacity - used, "%d", expert);
    else if (*pattern == '!')
      suffix = "";
    else
      tensor->name[used] = *pattern;
    if (*pattern != '!') used += n > 0 ? (size_t)n : 0;
  }
  CHECK_LT(used, capacity); /* the patterns are ours, the numbers bounded */
  tensor->other = *pattern == '|' ? pattern + 1 : NULL;
  snprintf(tensor->name + used, capacity - used, "%s", suffix);
}

/* The last dimensions of heads, and of the latent row, are the rotated ones; of an indexer the
 * first. */
static head_order_t latent_order(const blueprint_t *bp, tensor_role_t role) {
  head_order_t order = {.zipped = bp->rope.dims};
  if (role == ROLE_INDEX_Q || role == ROLE_INDEX_KEY || role == ROLE_INDEX_NORM) {
    order.head_dim = bp->index_dim;
    order.zipped_heads = role == ROLE_INDEX_Q ? bp->index_heads : 1;
    return bp->index_pairs ? order : (head_order_t){0};
  }
  if (role == ROLE_Q || role == ROLE_Q_UP) {
    order.head_dim = bp->head_dim;
    order.zipped_heads = bp->num_heads;
  } else if (role == ROLE_LATENT) {
    order.head_dim = bp->kv_rank + bp->rope_dim;
    order.zipped_heads = 1;
  }
  order.first = order.head_dim - order.zipped;
  return bp->rope_pairs ? order : (head_order_t){0};
}

/* Rotated heads are used with dimensions i and i + n / 2 as a pair: where a file has the pair side
 * by side, its halves are zipped. */
static head_order_t find_order(const blueprint_t *bp, const family_t *family, tensor_role_t role) {
  if (bp->kv_rank > 0) return latent_order(bp, role);
  const int32_t heads = bp->num_heads, kv_heads = bp->num_kv_heads;
  head_order_t order = {.head_dim = bp->head_dim, .num_heads = heads};
  if (bp->rope_pairs) order.zipped = bp->rope.dims;
  if (bp->gguf && family->gguf_zipped) order.zipped = bp->head_dim;
  if (role == ROLE_Q || role == ROLE_Q_NORM) order.zipped_heads = heads;
  if (role == ROLE_K || role == ROLE_K_NORM) order.zipped_heads = kv_heads;
  if (role == ROLE_QKV) {
    order.zipped_heads = heads + kv_heads;
    order.group = family->layout->qkv_grouped && !bp->gguf ? heads / kv_heads : 0;
  }
  bool moved = order.group > 0 || (order.zipped > 0 && order.zipped_heads > 0);
  return moved ? order : (head_order_t){0};
}

/* Row `row` of the used segments. */
static int64_t segment_row(const segment_order_t *order, int64_t row) {
  int64_t total = 0, before = 0;
  for (int32_t i = 0; i < order->num_segments; i++) {
    total += order->segments[i];
    if (i < order->first) before += order->segments[i];
  }
  int32_t i = order->first;
  for (; row >= order->groups * order->segments[i]; i++) {
    row -= order->groups * order->segments[i];
    before += order->segments[i];
  }
  return row / order->segments[i] * total + before + row % order->segments[i];
}

/* Row `row` of the used heads. */
static int64_t ordered_row(const head_order_t *order, int64_t row) {
  if (order->head_dim == 0) return row;
  int64_t head = row / order->head_dim, at = row % order->head_dim, half = order->zipped / 2;
  int64_t in = at - order->first;
  if (head < order->zipped_heads && in >= 0 && in < order->zipped)
    at = order->first + (in < half ? 2 * in : 2 * (in - half) + 1);
  if (order->group > 0) {
    int64_t group = order->group, keys = head - order->num_heads;
    int64_t values = keys - order->num_heads / group;
    if (keys < 0)
      head = head / group * (group + 2) + head % group;
    else
      head = values < 0 ? keys * (group + 2) + group : values * (group + 2) + group + 1;
  }
  return head * order->head_dim + at;
}

int64_t tensor_stored_row(const expected_tensor_t *tensor, int64_t row) {
  row = ordered_row(&tensor->order, row);
  return tensor->segments.groups > 0 ? segment_row(&tensor->segments, row) : row;
}

/* Shape in the file. */
static void write_shape(expected_tensor_t *tensor, const blueprint_t *bp) {
  const int32_t taps = bp->mixer.taps;
  const int32_t head_dim = tensor->role == ROLE_MIX_NORM    ? bp->mixer.norm_group
                           : tensor->role == ROLE_MIX_DECAY ? bp->mixer.key_dim
                                                            : bp->head_dim;
  const int64_t heads = MAX(bp->num_heads, 1);
  const int64_t shapes[][EXPECTED_RANK_MAX] = {
      [FORM_PLAIN] = {tensor->rows, tensor->cols},
      [FORM_TRANSPOSED] = {tensor->cols, tensor->rows},
      [FORM_ROW] = {1, tensor->rows},
      [FORM_SCALAR] = {1},
      [FORM_HEADS] = {tensor->rows / MAX(head_dim, 1), head_dim},
      [FORM_BY_HEAD] = {heads, tensor->rows / heads, tensor->cols},
      [FORM_TAPS] = {tensor->rows, tensor->cols / 3, 3},
      [FORM_CONV] = {tensor->rows / MAX(taps, 1), 1, taps},
      [FORM_EACH] = {tensor->rows, tensor->cols},
      [FORM_EACH_HEAD] = {tensor->rows},
      [FORM_STACK] = {tensor->stack, tensor->rows, tensor->cols},
      [FORM_STACK_TRANSPOSED] = {tensor->stack, tensor->cols, tensor->rows},
      [FORM_STACK_BLOCKS] = {tensor->stack, tensor->rows, tensor->cols / MXFP4_COLS,
                             MXFP4_COLS / 2},
      [FORM_STACK_SCALES] = {tensor->stack, tensor->rows, tensor->cols / MXFP4_COLS},
  };
  static const int ranks[] = {
      [FORM_PLAIN] = 2,        [FORM_ROW] = 3,         [FORM_SCALAR] = 1,
      [FORM_HEADS] = 3,        [FORM_TRANSPOSED] = 2,  [FORM_TAPS] = 3,
      [FORM_CONV] = 4,         [FORM_EACH] = 2,        [FORM_EACH_HEAD] = 2,
      [FORM_BY_HEAD] = 3,      [FORM_STACK] = 3,       [FORM_STACK_TRANSPOSED] = 3,
      [FORM_STACK_BLOCKS] = 4, [FORM_STACK_SCALES] = 3};
  tensor->rank = ranks[tensor->form] - (tensor->cols == 0 ? 1 : 0);
  memcpy(tensor->shape, shapes[tensor->form], sizeof(tensor->shape));
}

/* Tensors whose rows are used in another order than they are stored. */
static void write_segments(expected_tensor_t *tensor, const blueprint_t *bp,
                           const layout_t *layout) {
  const mixer_config_t *mixer = &bp->mixer;
  const bool is_q = tensor->role == ROLE_Q, is_v = tensor->role == ROLE_V;
  const bool quartered =
      layout->qvk_groups > 0 && !bp->gguf && (is_q || is_v || tensor->role == ROLE_K);
  segment_order_t *order = &tensor->segments;
  bool has_gate = tensor->role == ROLE_Q || tensor->role == ROLE_ATTN_GATE;
  if (tensor->form == FORM_CONV) { /* taps of a channel: one row each */
    *order = (segment_order_t){
        .groups = tensor->shape[0], .num_segments = mixer->taps, .count = mixer->taps};
    for (int32_t i = 0; i < mixer->taps; i++) order->segments[i] = 1;
  } else if (quartered) { /* CodeGen */
    const int64_t rows = tensor->rows / layout->qvk_groups;
    *order = (segment_order_t){.groups = layout->qvk_groups,
                               .segments = {rows, rows, rows},
                               .num_segments = 3,
                               .first = is_q   ? 0
                                        : is_v ? 1
                                               : 2,
                               .count = 1};
    tensor->shape[0] = 3 * tensor->rows;
  } else if (has_gate && bp->attn_gate &&
             !bp->attn_gate_apart) { /* q and gate of a head stand together */
    *order = (segment_order_t){.groups = bp->num_heads,
                               .segments = {bp->head_dim, bp->head_dim},
                               .num_segments = 2,
                               .first = tensor->role == ROLE_ATTN_GATE,
                               .count = 1};
    tensor->shape[0] = 2 * tensor->rows;
  } else if (mixer->by_group && !mixer->z_apart && tensor->role == ROLE_MIX_IN) {
    const int64_t key = mixer->key_dim,
                  value = mixer->num_heads / mixer->num_groups * (int64_t)mixer->value_dim;
    *order = (segment_order_t){.groups = mixer->num_groups,
                               .segments = {key, key, value, value},
                               .num_segments = 4,
                               .count = 4};
  } else if (mixer->by_group && tensor->role == ROLE_MIX_RATE) {
    const int64_t heads = mixer->num_heads / mixer->num_groups;
    *order = (segment_order_t){
        .groups = mixer->num_groups, .segments = {heads, heads}, .num_segments = 2, .count = 2};
  }
}

/* Matrices that files have one by one, or in a stack. */
static int32_t count_stack(const blueprint_t *bp, tensor_role_t role) {
  const bool of_streams = role == ROLE_STREAM_IN || role == ROLE_STREAM_OUT;
  return of_streams ? bp->num_streams - 1 : bp->num_experts;
}

/* Tensors that a pattern of a layer stands for. */
static int32_t count_copies(const blueprint_t *bp, const tensor_pattern_t *pattern) {
  if (pattern->form == FORM_EACH) return count_stack(bp, pattern->role);
  if (pattern->form != FORM_EACH_HEAD) return 1;
  return pattern->role == ROLE_Q_NORM ? bp->num_heads : bp->num_kv_heads;
}

static void add(tensor_list_t *list, const blueprint_t *bp, const family_t *family,
                const tensor_pattern_t *pattern, int32_t layer, bool bias) {
  if (!applies(bias ? pattern->bias : pattern->weight, bp, layer)) return;
  if (!has_block(bp, layer, pattern->role)) return;
  const char *name = pattern_name(pattern, bp->gguf);
  if (name == NULL) return;
  const int32_t copies = count_copies(bp, pattern);
  for (int32_t expert = 0; expert < copies; expert++) {
    expected_tensor_t *tensor = &list->tensors[list->count++];
    *tensor = (expected_tensor_t){
        .role = pattern->role,
        .layer = layer,
        .bias = bias,
        .around_zero = bp->norm_plus_one && pattern->role != ROLE_MIX_NORM,
        .rows = resolve(pattern->rows, bp, layer),
        .stack = pattern->form >= FORM_STACK ? count_stack(bp, pattern->role) : 1,
        .copies = copies,
        .interleaved = family->layout->experts_interleaved && pattern->role == ROLE_EXPERT_GATE_UP,
        .row_dim = pattern->rows};
    tensor->order = find_order(bp, family, pattern->role);
    if (!bias) {
      tensor->cols = resolve(pattern->cols, bp, layer);
      tensor->col_dim = pattern->cols;
    }
    /* The bias of a transposed matrix is a plain vector. */
    tensor->form = !bias || pattern->form == FORM_STACK ? pattern->form : FORM_PLAIN;
    if (bias && pattern->form == FORM_CONV) tensor->rows /= bp->mixer.taps; /* one per channel */
    write_name(tensor, bp, name, expert);
    write_shape(tensor, bp);
    write_segments(tensor, bp, family->layout);
  }
}

/* The layers of a classifier of texts, where one of tokens has none. */
static bool reads_whole_text(const blueprint_t *bp, tensor_role_t role) {
  return role == ROLE_CLASSIFIER || (role == ROLE_POOLER && !bp->encoder.has_pooler);
}

static void add_all(tensor_list_t *list, const blueprint_t *bp, const family_t *family,
                    int32_t layer) {
  const layout_t *layout = family->layout;
  for (int i = 0; i < layout->num_patterns; i++) {
    const tensor_pattern_t *pattern = &layout->patterns[i];
    if ((pattern->role >= ROLE_FIRST_OF_LAYER) != (layer >= 0)) continue;
    if (bp->encoder.tags && reads_whole_text(bp, pattern->role)) continue;
    add(list, bp, family, pattern, layer, false);
    add(list, bp, family, pattern, layer, true);
  }
}

/* What a decoder that classifies has on top of its family's tensors. */
static const tensor_pattern_t score_pattern = {ROLE_CLASSIFIER, "/score",  "/score",
                                               DIM_LABELS,      DIM_EMBED, WHEN_LABELS,
                                               WHEN_NEVER,      FORM_PLAIN};

/* What classifies tokens: encoders and older decoders have one name for it, newer ones another. */
#define TAGS(name)                                                                                 \
  { ROLE_CLASSIFIER, name, NULL, DIM_LABELS, DIM_EMBED, WHEN_LABELS, WHEN_LABELS, FORM_PLAIN }
static const tensor_pattern_t tag_patterns[] = {TAGS("/score"), TAGS("/classifier")};

static void add_label_head(tensor_list_t *list, const blueprint_t *bp, const family_t *family) {
  const tensor_pattern_t *pattern = &score_pattern;
  if (bp->encoder.tags) pattern = &tag_patterns[family->encoder || family->tags_by_classifier];
  if (bp->encoder.has_pooler && !bp->encoder.tags) return; /* the family has its own */
  add(list, bp, family, pattern, -1, false);
  add(list, bp, family, pattern, -1, true);
}

/* What a layer that predicts a further token has beside those of a decoder layer. */
#define MTP(role, name, cols)                                                                      \
  { role, name, name, DIM_HIDDEN, cols, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }
enum { MTP_TENSORS = 4 };
static const tensor_pattern_t mtp_patterns[][MTP_TENSORS] = {
    [MTP_BEHIND] = {MTP(ROLE_MTP_EMBED_NORM, "layers.#.enorm", DIM_NONE),
                    MTP(ROLE_MTP_HIDDEN_NORM, "layers.#.hnorm", DIM_NONE),
                    MTP(ROLE_MTP_JOIN, "layers.#.eh_proj", DIM_HIDDEN_2),
                    MTP(ROLE_MTP_NORM, "layers.#.shared_head.norm", DIM_NONE)},
    [MTP_APART] = {MTP(ROLE_MTP_EMBED_NORM, "pre_fc_norm_embedding", DIM_NONE),
                   MTP(ROLE_MTP_HIDDEN_NORM, "pre_fc_norm_hidden", DIM_NONE),
                   MTP(ROLE_MTP_JOIN, "fc", DIM_HIDDEN_2), MTP(ROLE_MTP_NORM, "norm", DIM_NONE)},
};

/* At least the number of tensors of a layer plus those outside of layers. */
static size_t most_tensors(const layout_t *layout, const blueprint_t *bp) {
  size_t most = 2 + MTP_TENSORS; /* the score of a decoder */
  for (int i = 0; i < layout->num_patterns; i++) {
    int32_t copies = count_copies(bp, &layout->patterns[i]);
    most += MAX((size_t)copies, 2);
  }
  return most;
}

int tensors_expect(const blueprint_t *bp, tensor_list_t *out, inferd_error_t *error) {
  const family_t *family = family_by_name(bp->family, strlen(bp->family));
  CHECK(family != NULL);
  const int32_t num_layers = bp->num_layers + bp->mtp;
  size_t most = most_tensors(family->layout, bp) * (size_t)(num_layers + 1);
  *out = (tensor_list_t){.tensors = calloc(most, sizeof(expected_tensor_t)),
                         .first = calloc((size_t)num_layers + 1, sizeof(int32_t)),
                         .num_layers = num_layers};
  if (out->tensors == NULL || out->first == NULL) {
    tensors_free(out);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensors");
  }
  for (int32_t layer = -1; layer < num_layers; layer++) {
    if (layer <= 0 || !bp->encoder.one_layer) add_all(out, bp, family, layer);
    for (size_t i = 0; layer >= bp->num_layers && i < MTP_TENSORS; i++)
      add(out, bp, family, &mtp_patterns[bp->mtp_kind][i], layer, false);
    if (layer < 0) add_label_head(out, bp, family);
    out->first[layer + 1] = out->count;
  }
  return 0;
}

void tensors_free(tensor_list_t *list) {
  free(list->tensors);
  free(list->first);
  *list = (tensor_list_t){0};
}

const expected_tensor_t *tensors_get(const tensor_list_t *list, tensor_role_t role, int32_t layer,
                                     bool bias) {
  bool outside = role < ROLE_FIRST_OF_LAYER;
  int32_t first = outside ? 0 : list->first[layer];
  int32_t last = list->first[outside ? 0 : layer + 1];
  for (int32_t i = first; i < last; i++) {
    if (list->tensors[i].role == role && list->tensors[i].bias == bias) return &list->tensors[i];
  }
  return NULL;
}

int tensors_count_parameters(const blueprint_t *blueprint, int64_t *out, inferd_error_t *error) {
  tensor_list_t list;
  int code = tensors_expect(blueprint, &list, error);
  if (code != 0) return code;
  *out = 0;
  for (int32_t i = 0; i < list.count; i++) *out += tensor_elements(&list.tensors[i]);
  tensors_free(&list);
  return 0;
}
