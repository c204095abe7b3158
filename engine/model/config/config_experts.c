/* config_experts.c: how many experts a model has, how wide, how many a token takes, in which
 * layers.
 *
 * Any thread, no state.
 */
#include "engine/model/config/config.h"

enum {
  EXPERTS_MAX = 1024,
  EXPERTS_TOP_MAX = 64,
  EXPERT_MATRICES_MAX = 131072, /* experts x layers: bounds the list of tensors */
  EXPERT_SIZE_MAX = 1 << 20
};

/* Layer i has experts iff it is not in mlp_only_layers and (i + 1) mod decoder_sparse_step is 0. */
static void read_sparse_layers(config_reader_t *reader, blueprint_t *bp) {
  int64_t step = config_int(reader, KEYS("decoder_sparse_step"), 1, 1, MODEL_LAYERS_MAX);
  const json_t *dense = config_get(reader, "mlp_only_layers");
  for (int32_t i = 0; i < bp->num_layers; i++) {
    if ((i + 1) % step == 0) bp->layer_flags[i] |= LAYER_EXPERTS;
  }
  if (!json_is_given(dense)) return;
  if (dense->type != JSON_ARRAY) {
    config_refuse(reader, "mlp_only_layers", dense, "a list of layers");
    return;
  }
  JSON_EACH(layer, dense) {
    int64_t i;
    if (!json_int64(layer, &i) || i < 0 || i >= bp->num_layers) {
      config_refuse(reader, "mlp_only_layers", layer, "layers of 0..%d", bp->num_layers - 1);
      return;
    }
    bp->layer_flags[i] &= (uint8_t)~LAYER_EXPERTS;
  }
}

/* Every few layers have experts. One expert is a dense MLP. */
static void read_jamba(config_reader_t *reader, blueprint_t *bp) {
  const int64_t period = config_int(reader, KEYS("expert_layer_period"), 2, 1, MODEL_LAYERS_MAX);
  const int64_t offset = config_int(reader, KEYS("expert_layer_offset"), 1, 0, period - 1);
  if (bp->num_experts == 1) bp->num_experts = bp->experts_top = bp->expert_size = 0;
  for (int32_t i = 0; i < bp->num_layers && bp->num_experts > 0; i++)
    bp->layer_flags[i] |= i % period == offset ? LAYER_EXPERTS : 0;
}

/* Every layer has experts, and a shared one, all as wide as intermediate_size. */
static void read_hunyuan(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->num_experts = config_uniform_int(reader, "num_experts", family->num_experts, EXPERTS_MAX);
  bp->experts_top = config_uniform_int(reader, "moe_topk", family->experts_top, EXPERTS_TOP_MAX);
  if (config_uniform_int(reader, "num_shared_expert", 1, EXPERTS_MAX) != 1)
    config_refuse(reader, "num_shared_expert", config_get(reader, "num_shared_expert"), "1");
  if (config_int(reader, KEYS("moe_layer_num_skipped"), 0, 0, MODEL_LAYERS_MAX) != 0)
    config_refuse(reader, "moe_layer_num_skipped", config_get(reader, "moe_layer_num_skipped"),
                  "0");
  if (config_bool(reader, KEYS("use_cla"), false))
    config_refuse(reader, "use_cla", config_get(reader, "use_cla"), "false");
  bp->shared_size = bp->expert_size;
}

static void read_counts(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const bool is_jamba = family->expert_keys == EXPERTS_JAMBA;
  bp->expert_size = bp->intermediate_size;
  if (family->expert_keys != EXPERTS_HUNYUAN) {
    bp->num_experts = (int32_t)config_int(reader, KEYS("num_experts", "num_local_experts"),
                                          family->num_experts, 0, EXPERTS_MAX);
    bp->experts_top = (int32_t)config_int(reader, KEYS("num_experts_per_tok", "experts_per_token"),
                                          family->experts_top, 1, EXPERTS_TOP_MAX);
  }
  if (family->expert_keys == EXPERTS_QWEN) {
    bp->expert_size = (int32_t)config_int(reader, KEYS("moe_intermediate_size"),
                                          family->expert_size, 1, EXPERT_SIZE_MAX);
    bp->shared_size = (int32_t)config_int_or_null(reader, KEYS("shared_expert_intermediate_size"),
                                                  family->shared_size, 0, 0, EXPERT_SIZE_MAX);
  }
  if (family->expert_keys == EXPERTS_GRANITE)
    bp->shared_size =
        (int32_t)config_int(reader, KEYS("shared_intermediate_size"), 0, 0, EXPERT_SIZE_MAX);
  if (family->expert_keys == EXPERTS_HUNYUAN) read_hunyuan(reader, family, bp);
  if (bp->num_experts == 0) return;
  if (bp->experts_top > bp->num_experts && !(bp->num_experts == 1 && is_jamba)) {
    config_refuse(reader, "num_experts_per_tok", NULL, "is %d, more than the %d experts",
                  bp->experts_top, bp->num_experts);
  }
  if ((int64_t)bp->num_experts * bp->num_layers > EXPERT_MATRICES_MAX) {
    config_refuse(reader, "num_experts", NULL, "is %d in %d layers, supported: %d in all",
                  bp->num_experts, bp->num_layers, EXPERT_MATRICES_MAX);
  }
  if (bp->experts_mxfp4 && (bp->hidden_size % MXFP4_COLS || bp->expert_size % MXFP4_COLS)) {
    config_refuse(reader, "intermediate_size", NULL,
                  "is %d and hidden_size %d; blocks of MXFP4 need multiples of %d", bp->expert_size,
                  bp->hidden_size, MXFP4_COLS);
  }
}

/* SparseMixer takes two experts, whatever their number says: others are refused. */
static void read_mixer(config_reader_t *reader, blueprint_t *bp) {
  bp->routing = ROUTING_MIXER;
  bp->nearness = 2 * config_double(reader, KEYS("router_jitter_noise"), 0.01, 0, 1e3, false);
  if (bp->experts_top != 2)
    config_refuse(reader, "num_experts_per_tok", NULL, "is %d, supported: 2", bp->experts_top);
}

void config_read_experts(config_reader_t *reader, const family_t *family, blueprint_t *blueprint) {
  if (family->expert_keys == EXPERTS_NONE) return;
  if (family->expert_keys == EXPERTS_GEMMA4) {
    config_read_beside(reader, blueprint);
    return;
  }
  if (family->routing != ROUTING_LOGITS && family->routing != ROUTING_MIXER) {
    config_read_router(reader, family, blueprint);
    return;
  }
  read_counts(reader, family, blueprint);
  blueprint->experts_normalise = family->expert_keys != EXPERTS_JAMBA;
  if (family->routing == ROUTING_MIXER) read_mixer(reader, blueprint);
  if (family->expert_keys == EXPERTS_QWEN || family->expert_keys == EXPERTS_OLMOE)
    blueprint->experts_normalise = config_bool(reader, KEYS("norm_topk_prob"), family->shares_sum);
  if (reader->code != 0) return;
  if (blueprint->num_experts == 0) {
    blueprint->experts_top = blueprint->expert_size = blueprint->shared_size = 0;
    /* Qwen without experts is dense; in other families such a layer would have no MLP. */
    if (family->expert_keys != EXPERTS_QWEN && family->mixer_keys != MIXERS_GRANITE) {
      config_refuse(reader, "num_experts", NULL, "is 0, %s needs some", family->architecture);
    }
  } else if (family->expert_keys == EXPERTS_JAMBA) {
    read_jamba(reader, blueprint);
  } else if (family->dense_rule == DENSE_LISTED) {
    config_read_dense_layers(reader, family, blueprint);
  } else if (family->expert_keys == EXPERTS_QWEN) {
    read_sparse_layers(reader, blueprint);
  } else {
    for (int32_t i = 0; i < blueprint->num_layers; i++) blueprint->layer_flags[i] |= LAYER_EXPERTS;
  }
}
