/* pixtral.c: the tower of Pixtral, whose patches are rotated by row and column: within LLaVA's
 * projector as it is, within that of Mistral 3 (Mistral Small 3.1 and later, Ministral 3) 2 x 2
 * patches first become one. Reference: pixtral, llava and mistral3 of transformers. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

/* The only layer that is served is the last one. */
static void expect_last_layer(config_reader_t *reader, const json_t *around, bool by_default) {
  const json_t *value = json_get(around, "vision_feature_layer");
  int64_t layer;
  if (value == NULL ? !by_default : !json_int64(value, &layer) || layer != -1)
    config_refuse(reader, "vision_feature_layer", value, "-1");
}

static void read_rope(config_reader_t *reader, tower_plan_t *plan) {
  const json_t *rope = json_get(reader->root, "rope_parameters");
  config_reader_t inner = *reader;
  if (json_is_given(rope)) {
    tower_expect(&inner, rope, "rope_type", "axial");
    inner.root = rope;
  }
  plan->theta = config_double(&inner, KEYS("rope_theta"), 10000, 1, 1e9, false);
  plan->rope_turns = true;
  reader->code = inner.code;
}

static void read_tower(config_reader_t *reader, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 24, .hidden = 1024, .mlp_width = 4096, .num_heads = 16};
  tower_read_vit(reader, plan, &absent, 16);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu");
  plan->norm_eps = 1e-5f;
  read_rope(reader, plan);
}

static void read_llava(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const json_t *strategy = json_get(around, "vision_feature_select_strategy");
  read_tower(reader, plan);
  expect_last_layer(reader, around, false);
  if (!json_equals(strategy, "full"))
    config_refuse(reader, "vision_feature_select_strategy", strategy, "full");
  tower_read_projector(reader, around, true, plan);
}

static void read_mistral3(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  read_tower(reader, plan);
  expect_last_layer(reader, around, true);
  tower_read_projector(reader, around, false, plan);
  config_reader_t other = *reader;
  other.root = around;
  plan->merge = (int32_t)config_int(&other, KEYS("spatial_merge_size"), 2, 1, 8);
  other.root = json_get(around, "text_config");
  plan->merge_eps = (float)config_double(&other, KEYS("rms_norm_eps"), 0, 0, 1, true);
  if (other.code == 0 && plan->merge_eps == 0)
    config_refuse(&other, "rms_norm_eps", NULL, "that of the text model");
  reader->code = other.code;
}

#define PIXTRAL                                                                                    \
  .model_type = "pixtral", .norm = NORM_RMS, .merge_norm = NORM_RMS,                               \
  .prefixes = {{"vision_tower.", "multi_modal_projector."},                                        \
               {"model.vision_tower.", "model.multi_modal_projector."}},                           \
  .unbiased = 1U << TOWER_PATCH | 1U << TOWER_Q | 1U << TOWER_K | 1U << TOWER_V | 1U << TOWER_O |  \
              1U << TOWER_GATE | 1U << TOWER_UP | 1U << TOWER_DOWN | 1U << TOWER_MERGE_MIX
#define PIXTRAL_NAMES                                                                              \
  [TOWER_PATCH] = "patch_conv", [TOWER_PRE_NORM] = "ln_pre", [TOWER_MERGE_UP] = "linear_1",        \
  [TOWER_MERGE_DOWN] = "linear_2", [TOWER_NORM_1] = "transformer.layers.%d.attention_norm",        \
  [TOWER_Q] = "transformer.layers.%d.attention.q_proj",                                            \
  [TOWER_K] = "transformer.layers.%d.attention.k_proj",                                            \
  [TOWER_V] = "transformer.layers.%d.attention.v_proj",                                            \
  [TOWER_O] = "transformer.layers.%d.attention.o_proj",                                            \
  [TOWER_NORM_2] = "transformer.layers.%d.ffn_norm",                                               \
  [TOWER_GATE] = "transformer.layers.%d.feed_forward.gate_proj",                                   \
  [TOWER_UP] = "transformer.layers.%d.feed_forward.up_proj",                                       \
  [TOWER_DOWN] = "transformer.layers.%d.feed_forward.down_proj"

const tower_family_t tower_pixtral = {
    .around = "llava", PIXTRAL, .names = {PIXTRAL_NAMES}, .read = read_llava};
const tower_family_t tower_mistral3 = {.around = "mistral3",
                                       PIXTRAL,
                                       .names = {PIXTRAL_NAMES, [TOWER_MERGE_NORM] = "norm",
                                                 [TOWER_MERGE_MIX] = "patch_merger.merging_layer"},
                                       .mix_by_channel = true,
                                       .read = read_mistral3};
