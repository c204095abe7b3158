/* config_router.c: experts that are scored by a router with a rule of its own: DeepSeek and its
 * kin, ERNIE 4.5, MiniMax M2, LFM2-MoE, Nemotron-H.
 *
 * Any thread, no state.
 */
#include "engine/model/config/config.h"

#include <string.h>

enum {
  EXPERTS_MAX = 1024,
  EXPERTS_TOP_MAX = 64,
  GROUPS_MAX = 32,
  SHARED_MAX = 64,
  EXPERT_MATRICES_MAX = 131072, /* experts x layers: bounds the list of tensors */
  EXPERT_SIZE_MAX = 1 << 20
};

/* A key whose value names what the family does anyway. */
static void need_word(config_reader_t *reader, const char *key, const char *const *words) {
  const json_t *value = config_get(reader, key);
  if (!json_is_given(value)) return;
  for (const char *const *word = words; *word != NULL; word++)
    if (json_equals(value, *word)) return;
  config_refuse(reader, key, value, "\"%s\"", words[0]);
}

static void need_number(config_reader_t *reader, const char *key, int64_t number) {
  const json_t *value = config_get(reader, key);
  int64_t found;
  if (!json_is_given(value) || (json_int64(value, &found) && found == number)) return;
  config_refuse(reader, key, value, "%lld", (long long)number);
}

/* Groups of experts, of which a row takes the best. */
static void read_groups(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const bool pairs = bp->group_pairs;
  bool grouped = pairs;
  if (!pairs) { /* DeepSeek V2 says by topk_method whether it has groups */
    const json_t *method = config_get(reader, "topk_method");
    grouped = method != NULL && json_equals(method, "group_limited_greedy");
    need_word(reader, "topk_method", KEYS("greedy", "group_limited_greedy"));
  } else {
    need_word(reader, "topk_method", KEYS("noaux_tc"));
  }
  bp->num_groups = bp->groups_top = 1;
  if (!grouped) return;
  bp->num_groups = (int32_t)config_int(reader, KEYS("n_group"), family->num_groups, 1, GROUPS_MAX);
  if (bp->num_groups == 0) { /* DeepSeek V2 has no default */
    config_refuse(reader, "n_group", NULL, "is missing beside topk_method group_limited_greedy");
    return;
  }
  bp->groups_top =
      (int32_t)config_int(reader, KEYS("topk_group"), family->groups_top, 1, bp->num_groups);
  if (reader->code != 0) return; /* what was refused is 0 */
  if (bp->num_experts % bp->num_groups != 0 || (pairs && bp->num_experts < 2 * bp->num_groups)) {
    config_refuse(reader, "n_group", NULL, "is %d, which must divide the %d experts%s",
                  bp->num_groups, bp->num_experts, pairs ? " into groups of 2 or more" : "");
  } else if (bp->groups_top < bp->num_groups &&
             bp->experts_top > bp->num_experts / bp->num_groups * bp->groups_top) {
    config_refuse(reader, "topk_group", NULL,
                  "is %d: its groups have less than the %d experts of a token", bp->groups_top,
                  bp->experts_top);
  }
}

/* Marks layers [first, last] with (i + 1) mod step = 0. */
static void mark_layers(blueprint_t *bp, int64_t first, int64_t last, int64_t step) {
  for (int32_t i = 0; i < bp->num_layers; i++) {
    if (i >= first && i <= last && (i + 1) % step == 0) bp->layer_flags[i] |= LAYER_EXPERTS;
  }
}

void config_read_dense_layers(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const json_t *types = config_get(reader, "mlp_layer_types");
  if (family->dense_rule == DENSE_FIRST || !json_is_given(types)) {
    int64_t first = family->dense_first;
    if (family->dense_rule != DENSE_LISTED)
      first = config_int(reader, KEYS("first_k_dense_replace", "num_dense_layers"), first, 0,
                         MODEL_LAYERS_MAX);
    mark_layers(bp, first, bp->num_layers, 1);
    return;
  }
  if (types->type != JSON_ARRAY || types->count != (uint32_t)bp->num_layers) {
    config_refuse(reader, "mlp_layer_types", NULL, "must be a list of %d names, found %s of %u",
                  bp->num_layers, json_type_name(types), types->count);
    return;
  }
  int32_t layer = 0;
  JSON_EACH(type, types) {
    bool sparse = json_equals(type, "sparse");
    if (!sparse && !json_equals(type, "dense"))
      config_refuse(reader, "mlp_layer_types", type, "dense, sparse");
    bp->layer_flags[layer++] |= sparse ? LAYER_EXPERTS : 0;
  }
}

/* Number and size of the experts that a router chooses from. */
static void read_routed(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->num_experts =
      (int32_t)config_int(reader, KEYS("n_routed_experts", "num_local_experts", "num_experts"),
                          family->num_experts, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("num_experts_per_tok"), family->experts_top, 1,
                                        EXPERTS_TOP_MAX);
  bp->expert_size = (int32_t)config_int(reader, KEYS("moe_intermediate_size"), family->expert_size,
                                        1, EXPERT_SIZE_MAX);
}

static void read_deepseek(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  read_routed(reader, family, bp);
  int64_t shared = config_int(reader, KEYS("n_shared_experts", "num_shared_experts"),
                              family->num_shared, 0, SHARED_MAX);
  bp->shared_size = (int32_t)(shared * bp->expert_size);
  bp->share_factor =
      config_double(reader, KEYS("routed_scaling_factor", "router_scaling_factor", "route_scale"),
                    family->share_factor, 0, 1e4, true);
  bp->experts_normalise = config_bool(reader, KEYS("norm_topk_prob"), family->shares_sum);
  if (!bp->group_pairs && bp->experts_normalise) {
    config_refuse(reader, "norm_topk_prob", config_get(reader, "norm_topk_prob"), "false for %s",
                  family->architecture);
  }
  need_word(reader, "scoring_func",
            bp->routing == ROUTING_SIGMOID ? KEYS("sigmoid", "noaux_tc") : KEYS("softmax"));
  need_number(reader, "moe_layer_freq", 1);
  config_read_dense_layers(reader, family, bp);
  if (bp->num_experts > 0) read_groups(reader, family, bp);
}

static void read_ernie(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->num_experts = (int32_t)config_int(reader, KEYS("moe_num_experts", "num_experts"),
                                        family->num_experts, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("moe_k", "num_experts_per_tok"),
                                        family->experts_top, 1, EXPERTS_TOP_MAX);
  bp->expert_size = (int32_t)config_int(reader, KEYS("moe_intermediate_size"), family->expert_size,
                                        1, EXPERT_SIZE_MAX);
  int64_t shared =
      config_int(reader, KEYS("moe_num_shared_experts"), family->num_shared, 0, SHARED_MAX);
  bp->shared_size = (int32_t)(shared * bp->expert_size);
  bp->share_floor = config_double(reader, KEYS("moe_norm_min"), 1e-12, 0, 1, false);
  int64_t first = config_int(reader, KEYS("moe_layer_start_index"), 1, 0, MODEL_LAYERS_MAX);
  int64_t last = config_int(reader, KEYS("moe_layer_end_index"), -1, -1, MODEL_LAYERS_MAX);
  int64_t step = config_int(reader, KEYS("moe_layer_interval"), 1, 1, MODEL_LAYERS_MAX);
  if (config_bool(reader, KEYS("use_bias"), false))
    config_refuse(reader, "use_bias", config_get(reader, "use_bias"), "false for %s",
                  family->architecture);
  mark_layers(bp, first, last < 0 ? bp->num_layers : last, step);
}

static void read_minimax(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->num_experts = (int32_t)config_int(reader, KEYS("num_local_experts", "num_experts"),
                                        family->num_experts, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("num_experts_per_tok"), family->experts_top, 1,
                                        EXPERTS_TOP_MAX);
  bp->expert_size = bp->intermediate_size;
  need_word(reader, "scoring_func", KEYS("sigmoid"));
  need_number(reader, "shared_intermediate_size", 0);
  mark_layers(bp, 0, bp->num_layers, 1);
}

static void read_lfm2(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->num_experts =
      (int32_t)config_int(reader, KEYS("num_experts"), family->num_experts, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("num_experts_per_tok"), family->experts_top, 1,
                                        EXPERTS_TOP_MAX);
  bp->expert_size = (int32_t)config_int(reader, KEYS("moe_intermediate_size"), family->expert_size,
                                        1, EXPERT_SIZE_MAX);
  bp->share_factor =
      config_double(reader, KEYS("routed_scaling_factor"), family->share_factor, 0, 1e4, true);
  bp->share_more = 1e-6; /* modeling_lfm2_moe.py of transformers */
  bp->experts_normalise = config_bool(reader, KEYS("norm_topk_prob"), family->shares_sum);
  if (!config_bool(reader, KEYS("use_expert_bias"), true))
    config_refuse(reader, "use_expert_bias", config_get(reader, "use_expert_bias"), "true");
  int64_t first =
      config_int(reader, KEYS("num_dense_layers"), family->dense_first, 0, MODEL_LAYERS_MAX);
  mark_layers(bp, first, bp->num_layers, 1);
}

/* Command A+: the shares of the k largest logits; shared experts are added, or their mean with the
 * others is taken. Dense layers turn, though they see everything, unless they have windows. */
static void read_cohere(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const json_t *mean = config_get(reader, "shared_expert_combination_strategy");
  const json_t *rule = config_get(reader, "expert_selection_fn");
  bp->num_experts =
      (int32_t)config_int(reader, KEYS("num_experts"), family->num_experts, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("num_experts_per_tok"), family->experts_top, 1,
                                        EXPERTS_TOP_MAX);
  bp->expert_size = bp->intermediate_size;
  bp->intermediate_size =
      (int32_t)config_int_or_null(reader, KEYS("prefix_dense_intermediate_size"), bp->expert_size,
                                  bp->expert_size, 1, EXPERT_SIZE_MAX);
  bp->shared_size =
      bp->expert_size * (int32_t)config_int(reader, KEYS("num_shared_experts"), 0, 0, SHARED_MAX);
  need_word(reader, "shared_expert_combination_strategy", KEYS("average", "sum"));
  need_word(reader, "expert_selection_fn", KEYS("softmax", "sigmoid"));
  if (json_is_given(rule) && json_equals(rule, "sigmoid")) {
    bp->routing = ROUTING_SIGMOID;
    bp->experts_normalise = config_bool(reader, KEYS("norm_topk_prob"), true);
  }
  bp->shared_mean = bp->shared_size > 0 && !(json_is_given(mean) && json_equals(mean, "sum"));
  if (bp->shared_mean) bp->share_factor = 0.5;
  bp->group_pairs = false;
  config_read_dense_layers(reader, family, bp);
  if (config_int(reader, KEYS("prefix_dense_sliding_window_pattern"), 1, 1, MODEL_LAYERS_MAX) != 1)
    return;
  for (int32_t i = 0; i < bp->num_layers; i++)
    if (!(bp->layer_flags[i] & LAYER_EXPERTS)) bp->layer_flags[i] &= (uint8_t)~LAYER_NO_ROPE;
}

/* The layers with experts are marked; a model may have none. */
static void read_nemotron(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bool any = false;
  for (int32_t i = 0; i < bp->num_layers; i++) any |= (bp->layer_flags[i] & LAYER_EXPERTS) != 0;
  if (!any) return;
  read_routed(reader, family, bp);
  bp->shared_size = (int32_t)config_int(reader, KEYS("moe_shared_expert_intermediate_size"),
                                        family->shared_size, 1, EXPERT_SIZE_MAX);
  bp->share_factor =
      config_double(reader, KEYS("routed_scaling_factor"), family->share_factor, 0, 1e4, true);
  bp->experts_normalise = config_bool(reader, KEYS("norm_topk_prob"), family->shares_sum);
  bp->expert_in =
      (int32_t)config_int_or_null(reader, KEYS("moe_latent_size"), 0, 0, 1, EXPERT_SIZE_MAX);
  if (bp->mlp_bias)
    config_refuse(reader, "mlp_bias", config_get(reader, "mlp_bias"), "false beside experts");
  read_groups(reader, family, bp);
}

void config_read_router(config_reader_t *reader, const family_t *family, blueprint_t *blueprint) {
  blueprint->routing = family->routing;
  blueprint->group_pairs = family->group_pairs || family->routing == ROUTING_SIGMOID;
  blueprint->num_groups = blueprint->groups_top = 1;
  blueprint->share_factor = 1.0;
  blueprint->experts_normalise = true;
  switch (family->expert_keys) {
  case EXPERTS_ERNIE: read_ernie(reader, family, blueprint); break;
  case EXPERTS_MINIMAX: read_minimax(reader, family, blueprint); break;
  case EXPERTS_LFM2: read_lfm2(reader, family, blueprint); break;
  case EXPERTS_COHERE: read_cohere(reader, family, blueprint); break;
  case EXPERTS_NEMOTRON: read_nemotron(reader, family, blueprint); break;
  default: read_deepseek(reader, family, blueprint); break;
  }
  if (reader->code != 0) return;
  if (blueprint->num_experts == 0 && family->expert_keys == EXPERTS_NEMOTRON) return;
  if (blueprint->num_experts < 1 || blueprint->experts_top < 1) {
    config_refuse(reader, blueprint->num_experts < 1 ? "n_routed_experts" : "num_experts_per_tok",
                  NULL, "is missing and %s has no default", family->architecture);
  } else if (blueprint->experts_top > blueprint->num_experts) {
    config_refuse(reader, "num_experts_per_tok", NULL, "is %d, more than the %d experts",
                  blueprint->experts_top, blueprint->num_experts);
  }
  if ((int64_t)blueprint->num_experts * blueprint->num_layers > EXPERT_MATRICES_MAX) {
    config_refuse(reader, "n_routed_experts", NULL, "is %d in %d layers, supported: %d in all",
                  blueprint->num_experts, blueprint->num_layers, EXPERT_MATRICES_MAX);
  }
}
