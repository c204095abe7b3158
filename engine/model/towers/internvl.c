/* internvl.c: the tower of InternVL 2.5 to 3.5: positions that are learned, a class beside the
 * patches, and factors of what a layer adds; by the names of transformers, and by those of the
 * files of OpenGVLab, which are code of their own on the hub. Reference: internvl of transformers,
 * and its script that converts the latter to the former. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

#include <math.h>

static void read_merge(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  config_reader_t outer = *reader;
  outer.root = around;
  const double ratio = config_double(&outer, KEYS("downsample_ratio"), 0.5, 0.125, 1, false);
  plan->merge = (int32_t)(1 / ratio);
  if (plan->merge * ratio != 1)
    config_refuse(&outer, "downsample_ratio", json_get(around, "downsample_ratio"),
                  "1 / N of a whole N");
  reader->code = outer.code;
}

static void read_internvl(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 24, .hidden = 1024, .mlp_width = 4096, .num_heads = 16};
  const int64_t patch = tower_read_vit(reader, plan, &absent, 14);
  const json_t *layer = json_get(around, "vision_feature_layer");
  int64_t last;
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu");
  plan->norm_eps = (float)config_double(reader, KEYS("layer_norm_eps"), 1e-6, 0, 1, true);
  plan->merge_eps = 1e-5f;
  tower_read_table(reader, plan, 448, patch);
  plan->table = TABLE_OF_IMAGE;
  if (!config_bool(reader, KEYS("attention_bias"), false))
    plan->unbiased |= 1U << TOWER_Q | 1U << TOWER_K | 1U << TOWER_V;
  tower_expect(reader, reader->root, "norm_type", "layer_norm");
  tower_expect_bool(reader, reader->root, "use_qk_norm", false);
  tower_expect_bool(reader, reader->root, "use_mean_pooling", true);
  tower_expect_bool(reader, reader->root, "use_absolute_position_embeddings", true);
  read_merge(reader, around, plan);
  tower_read_text(reader, around, plan);
  tower_expect(reader, around, "projector_hidden_act", "gelu");
  tower_expect(reader, around, "vision_feature_select_strategy", "default");
  if (layer != NULL && (!json_int64(layer, &last) || last != -1))
    config_refuse(reader, "vision_feature_layer", layer, "-1");
  plan->merge_width = plan->out_size;
}

static void read_chat(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 24, .hidden = 1024, .mlp_width = 4096, .num_heads = 16};
  const int64_t patch = tower_read_vit(reader, plan, &absent, 14);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu");
  plan->norm_eps = (float)config_double(reader, KEYS("layer_norm_eps"), 1e-6, 0, 1, true);
  plan->merge_eps = 1e-5f;
  tower_read_table(reader, plan, 448, patch);
  plan->table = TABLE_OF_IMAGE;
  if (!config_bool(reader, KEYS("qkv_bias"), false)) plan->unbiased |= 1U << TOWER_QKV;
  tower_expect(reader, reader->root, "norm_type", "layer_norm");
  tower_expect_bool(reader, reader->root, "qk_normalization", false);
  config_reader_t outer = *reader;
  outer.root = around;
  if (json_is_given(json_get(around, "ps_version"))) /* v1 has rows and columns the other way */
    tower_expect(&outer, around, "ps_version", "v2");
  else
    config_refuse(&outer, "ps_version", NULL, "v2");
  if (config_int(&outer, KEYS("select_layer"), -1, -256, 256) != -1)
    config_refuse(&outer, "select_layer", json_get(around, "select_layer"), "-1");
  if (outer.code != 0) reader->code = outer.code;
  read_merge(reader, around, plan);
  config_reader_t text = *reader;
  text.root = json_get(around, "llm_config");
  plan->out_size = (int32_t)config_int(&text, KEYS("hidden_size"), 1, 1, TOWER_WIDTH_MAX);
  if (text.code == 0 && json_get(text.root, "hidden_size") == NULL)
    config_refuse(&text, "hidden_size", NULL, "the width of llm_config");
  if (text.code != 0) reader->code = text.code;
  plan->merge_width = plan->out_size;
}

const tower_family_t tower_internvl_chat = {
    .around = "internvl_chat",
    .model_type = "intern_vit_6b",
    .prefixes = {{"vision_model.", "mlp1."}},
    .names = {[TOWER_PATCH] = "embeddings.patch_embedding",
              [TOWER_POSITIONS] = "embeddings.position_embedding",
              [TOWER_CLASS] = "embeddings.class_embedding",
              [TOWER_MERGE_NORM] = "0",
              [TOWER_MERGE_UP] = "1",
              [TOWER_MERGE_DOWN] = "3",
              [TOWER_NORM_1] = "encoder.layers.%d.norm1",
              [TOWER_QKV] = "encoder.layers.%d.attn.qkv",
              [TOWER_O] = "encoder.layers.%d.attn.proj",
              [TOWER_SCALE_1] = "encoder.layers.%d.ls1",
              [TOWER_NORM_2] = "encoder.layers.%d.norm2",
              [TOWER_UP] = "encoder.layers.%d.mlp.fc1",
              [TOWER_DOWN] = "encoder.layers.%d.mlp.fc2",
              [TOWER_SCALE_2] = "encoder.layers.%d.ls2"},
    .bare = 1U << TOWER_POSITIONS | 1U << TOWER_CLASS | 1U << TOWER_SCALE_1 | 1U << TOWER_SCALE_2,
    .norm = NORM_LAYER,
    .merge_norm = NORM_LAYER,
    .merge = MERGE_NORM_ALL,
    .read = read_chat};

const tower_family_t tower_internvl = {
    .around = "internvl",
    .model_type = "internvl_vision",
    .prefixes = {{"vision_tower.", "multi_modal_projector."},
                 {"model.vision_tower.", "model.multi_modal_projector."}},
    .names = {[TOWER_PATCH] = "embeddings.patch_embeddings.projection",
              [TOWER_POSITIONS] = "embeddings.position_embeddings",
              [TOWER_CLASS] = "embeddings.cls_token",
              [TOWER_MERGE_NORM] = "layer_norm",
              [TOWER_MERGE_UP] = "linear_1",
              [TOWER_MERGE_DOWN] = "linear_2",
              [TOWER_NORM_1] = "encoder.layer.%d.layernorm_before",
              [TOWER_Q] = "encoder.layer.%d.attention.q_proj",
              [TOWER_K] = "encoder.layer.%d.attention.k_proj",
              [TOWER_V] = "encoder.layer.%d.attention.v_proj",
              [TOWER_O] = "encoder.layer.%d.attention.projection_layer",
              [TOWER_SCALE_1] = "encoder.layer.%d.lambda_1",
              [TOWER_NORM_2] = "encoder.layer.%d.layernorm_after",
              [TOWER_UP] = "encoder.layer.%d.mlp.fc1",
              [TOWER_DOWN] = "encoder.layer.%d.mlp.fc2",
              [TOWER_SCALE_2] = "encoder.layer.%d.lambda_2"},
    .bare = 1U << TOWER_POSITIONS | 1U << TOWER_CLASS | 1U << TOWER_SCALE_1 | 1U << TOWER_SCALE_2,
    .norm = NORM_LAYER,
    .merge_norm = NORM_LAYER,
    .merge = MERGE_NORM_ALL,
    .read = read_internvl};
