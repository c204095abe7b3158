/* gemma4.c: the tower of Gemma 4: places are added up of a column and a row, q, k and v are normed,
 * and what a layer adds. In the small models what matrices read and make has bounds. Reference:
 * gemma4 of transformers. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

static void read_rope(config_reader_t *reader, tower_plan_t *plan) {
  const json_t *rope = json_get(reader->root, "rope_parameters");
  config_reader_t inner = *reader;
  if (json_is_given(rope)) {
    const json_t *type = json_get(rope, "rope_type");
    if (json_is_given(type) && !json_equals(type, "axial") && !json_equals(type, "default"))
      config_refuse(&inner, "rope_type", type, "axial"); /* of older files: default */
    inner.root = rope;
  }
  plan->theta = config_double(&inner, KEYS("rope_theta"), 100, 1, 1e9, false);
  plan->rope_halves = true;
  reader->code = inner.code;
}

static void expect_number(config_reader_t *reader, const char *key, int32_t absent,
                          int32_t served) {
  if (config_int(reader, KEYS(key), absent, 1, TOWER_WIDTH_MAX) != served)
    config_refuse(reader, key, json_get(reader->root, key), "%d", served);
}

static void read_gemma4(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {.num_layers = 16, .hidden = 768, .mlp_width = 3072, .num_heads = 12};
  tower_read_vit(reader, plan, &absent, 16);
  expect_number(reader, "num_key_value_heads", 12, plan->num_heads);
  expect_number(reader, "head_dim", 64, plan->hidden / plan->num_heads);
  tower_expect_bool(reader, reader->root, "attention_bias", false);
  plan->activation = tower_read_activation(reader, plan, "hidden_activation", "gelu_pytorch_tanh");
  plan->norm_eps = plan->merge_eps =
      (float)config_double(reader, KEYS("rms_norm_eps"), 1e-6, 0, 1, true);
  plan->by_pixel = true;
  plan->merge = (int32_t)config_int(reader, KEYS("pooling_kernel_size"), 3, 1, 8);
  plan->table = TABLE_OF_AXES;
  plan->table_side =
      (int32_t)config_int(reader, KEYS("position_embedding_size"), 10240, 1, TOWER_SIDE_MAX);
  plan->clips = config_bool(reader, KEYS("use_clipped_linears"), false);
  plan->standardizes = config_bool(reader, KEYS("standardize"), false);
  read_rope(reader, plan);
  tower_read_text(reader, around, plan);
}

#define MATRICES                                                                                   \
  (1U << TOWER_Q | 1U << TOWER_K | 1U << TOWER_V | 1U << TOWER_O | 1U << TOWER_GATE |              \
   1U << TOWER_UP | 1U << TOWER_DOWN)

const tower_family_t tower_gemma4 = {
    .around = "gemma4",
    .model_type = "gemma4_vision",
    .prefixes = {{"model.vision_tower.", "model.embed_vision."},
                 {"vision_tower.", "embed_vision."}},
    .names = {[TOWER_PATCH] = "patch_embedder.input_proj",
              [TOWER_POSITIONS] = "patch_embedder.position_embedding_table",
              [TOWER_MEAN_BIAS] = "std_bias",
              [TOWER_MEAN_SCALE] = "std_scale",
              [TOWER_MERGE_DOWN] = "embedding_projection",
              [TOWER_NORM_1] = "encoder.layers.%d.input_layernorm",
              [TOWER_Q] = "encoder.layers.%d.self_attn.q_proj",
              [TOWER_K] = "encoder.layers.%d.self_attn.k_proj",
              [TOWER_V] = "encoder.layers.%d.self_attn.v_proj",
              [TOWER_Q_NORM] = "encoder.layers.%d.self_attn.q_norm",
              [TOWER_K_NORM] = "encoder.layers.%d.self_attn.k_norm",
              [TOWER_O] = "encoder.layers.%d.self_attn.o_proj",
              [TOWER_OUT_NORM_1] = "encoder.layers.%d.post_attention_layernorm",
              [TOWER_NORM_2] = "encoder.layers.%d.pre_feedforward_layernorm",
              [TOWER_GATE] = "encoder.layers.%d.mlp.gate_proj",
              [TOWER_UP] = "encoder.layers.%d.mlp.up_proj",
              [TOWER_DOWN] = "encoder.layers.%d.mlp.down_proj",
              [TOWER_OUT_NORM_2] = "encoder.layers.%d.post_feedforward_layernorm"},
    .unbiased = 1U << TOWER_PATCH | 1U << TOWER_MERGE_DOWN | MATRICES,
    .bare = 1U << TOWER_POSITIONS | 1U << TOWER_MEAN_BIAS | 1U << TOWER_MEAN_SCALE,
    .clippable = MATRICES,
    .norm = NORM_RMS,
    .merge_norm = NORM_RMS,
    .merge_plain = true,
    .centres = true,
    .unscaled = true,
    .mean_grows = true,
    .merge = MERGE_MEAN,
    .read = read_gemma4};
