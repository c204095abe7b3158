/* qwen.c: the towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, which rotate by row and column.
 * The second has windows, the last two a table of positions, resampled to the image. Reference:
 * qwen2_vl, qwen2_5_vl, qwen3_vl and qwen3_5 of transformers. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

static void read_rope(config_reader_t *reader, tower_plan_t *plan) {
  const json_t *rope = json_get(reader->root, "rope_parameters");
  plan->theta = 10000;
  if (!json_is_given(rope)) return;
  const json_t *type = json_get(rope, "rope_type");
  if (type != NULL && !json_equals(type, "axial"))
    config_refuse(reader, "rope_type", type, "axial");
  config_reader_t inner = *reader;
  inner.root = rope;
  plan->theta = config_double(&inner, KEYS("rope_theta"), 10000, 1, 1e9, false);
  reader->code = inner.code;
}

/* Ascending layers; the default of the reference where the key is absent. */
static void read_deepstack(config_reader_t *reader, tower_plan_t *plan) {
  static const int32_t absent[] = {8, 16, 24};
  const char *const key = "deepstack_visual_indexes";
  const json_t *list = json_get(reader->root, key);
  if (list == NULL) {
    for (int i = 0; i < 3; i++) plan->deep_layers[plan->num_deep++] = absent[i];
  }
  JSON_EACH(value, list) {
    int64_t layer;
    int32_t least = plan->num_deep > 0 ? plan->deep_layers[plan->num_deep - 1] + 1 : 0;
    bool fits = json_int64(value, &layer) && layer >= least && layer < plan->num_layers;
    if (!fits || plan->num_deep == TOWER_DEEP_MAX) {
      config_refuse(reader, key, value, "at most %d layers of depth %d, ascending", TOWER_DEEP_MAX,
                    plan->num_layers);
      return;
    }
    plan->deep_layers[plan->num_deep++] = (int32_t)layer;
  }
  if (plan->num_deep > 0 && plan->deep_layers[plan->num_deep - 1] >= plan->num_layers)
    config_refuse(reader, key, list, "layers below depth, which is %d", plan->num_layers);
}

/* The numbers that all have, beside the width; those of the reference where a key is absent. */
static int64_t read_shape(config_reader_t *reader, tower_plan_t *plan, int32_t num_layers,
                          int64_t patch) {
  plan->num_layers = (int32_t)config_int(reader, KEYS("depth"), num_layers, 1, TOWER_LAYERS_MAX);
  plan->num_heads = (int32_t)config_int(reader, KEYS("num_heads"), 16, 1, plan->hidden / 4);
  plan->merge = (int32_t)config_int(reader, KEYS("spatial_merge_size"), 2, 1, 8);
  patch = config_int(reader, KEYS("patch_size"), patch, 1, 64);
  int64_t frames = config_int(reader, KEYS("temporal_patch_size"), 2, 1, 4);
  int64_t channels = config_int(reader, KEYS("in_channels"), 3, 3, 3);
  plan->patch_columns = (int32_t)(channels * frames * patch * patch);
  plan->merge_width = plan->merge * plan->merge * plan->hidden;
  plan->norm_eps = plan->merge_eps = 1e-6f;
  read_rope(reader, plan);
  return patch;
}

static int64_t read_sizes(config_reader_t *reader, tower_plan_t *plan, const tower_plan_t *absent,
                          int64_t patch) {
  plan->hidden =
      (int32_t)config_int(reader, KEYS("hidden_size"), absent->hidden, 4, TOWER_WIDTH_MAX);
  plan->mlp_width =
      (int32_t)config_int(reader, KEYS("intermediate_size"), absent->mlp_width, 1, TOWER_WIDTH_MAX);
  plan->out_size = (int32_t)config_int(reader, KEYS("out_hidden_size"), 3584, 1, TOWER_WIDTH_MAX);
  return read_shape(reader, plan, absent->num_layers, patch);
}

/* Here hidden_size is the width of the text model. */
static void read_qwen2_vl(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  (void)around;
  plan->hidden = (int32_t)config_int(reader, KEYS("embed_dim"), 1280, 4, TOWER_WIDTH_MAX);
  plan->out_size = (int32_t)config_int(reader, KEYS("hidden_size"), 3584, 1, TOWER_WIDTH_MAX);
  plan->mlp_width = plan->hidden * (int32_t)config_int(reader, KEYS("mlp_ratio"), 4, 1,
                                                       TOWER_WIDTH_MAX / plan->hidden);
  read_shape(reader, plan, 32, 14);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "quick_gelu");
}

static void read_qwen3_5(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {.num_layers = 27, .hidden = 1152, .mlp_width = 4304};
  (void)around;
  read_sizes(reader, plan, &absent, 16);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu_pytorch_tanh");
  int64_t places = config_int(reader, KEYS("num_position_embeddings"), 2304, 1, 1 << 20);
  while ((int64_t)(plan->table_side + 1) * (plan->table_side + 1) <= places) plan->table_side++;
  if ((int64_t)plan->table_side * plan->table_side != places)
    config_refuse(reader, "num_position_embeddings",
                  json_get(reader->root, "num_position_embeddings"), "a square");
}

static void read_qwen3_vl(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  read_qwen3_5(reader, around, plan);
  read_deepstack(reader, plan);
}

/* A list of layers below depth. */
static void read_full_layers(config_reader_t *reader, tower_plan_t *plan) {
  const char *const key = "fullatt_block_indexes";
  const json_t *list = json_get(reader->root, key);
  for (int32_t i = 7; list == NULL && i < MIN(plan->num_layers, 32); i += 8) plan->full[i] = true;
  JSON_EACH(value, list) {
    int64_t layer;
    if (!json_int64(value, &layer) || layer < 0 || layer >= plan->num_layers) {
      config_refuse(reader, key, value, "layers below depth, which is %d", plan->num_layers);
      return;
    }
    plan->full[layer] = true;
  }
}

static void read_qwen2_5_vl(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {.num_layers = 32, .hidden = 3584, .mlp_width = 3420};
  (void)around;
  const int64_t patch = read_sizes(reader, plan, &absent, 14);
  const int64_t window = config_int(reader, KEYS("window_size"), 112, 1, 65536);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "silu");
  plan->window = (int32_t)(window / plan->merge / patch);
  if (plan->window == 0)
    config_refuse(reader, "window_size", json_get(reader->root, "window_size"),
                  "at least a block of %d patches of %d pixels", plan->merge, (int)patch);
  read_full_layers(reader, plan);
}

const tower_family_t tower_qwen2_vl = {.model_type = "qwen2_vl_vision",
                                       .prefixes = {{"visual.", NULL}, {"model.visual.", NULL}},
                                       .names = {[TOWER_PATCH] = "patch_embed.proj",
                                                 [TOWER_MERGE_NORM] = "merger.ln_q",
                                                 [TOWER_MERGE_UP] = "merger.mlp.0",
                                                 [TOWER_MERGE_DOWN] = "merger.mlp.2",
                                                 [TOWER_NORM_1] = "blocks.%d.norm1",
                                                 [TOWER_QKV] = "blocks.%d.attn.qkv",
                                                 [TOWER_O] = "blocks.%d.attn.proj",
                                                 [TOWER_NORM_2] = "blocks.%d.norm2",
                                                 [TOWER_UP] = "blocks.%d.mlp.fc1",
                                                 [TOWER_DOWN] = "blocks.%d.mlp.fc2"},
                                       .unbiased = 1U << TOWER_PATCH,
                                       .norm = NORM_LAYER,
                                       .merge_norm = NORM_LAYER,
                                       .read = read_qwen2_vl};
const tower_family_t tower_qwen2_5_vl = {.model_type = "qwen2_5_vl_vision",
                                         .prefixes = {{"model.visual.", NULL}, {"visual.", NULL}},
                                         .names = {[TOWER_PATCH] = "patch_embed.proj",
                                                   [TOWER_MERGE_NORM] = "merger.ln_q",
                                                   [TOWER_MERGE_UP] = "merger.mlp.0",
                                                   [TOWER_MERGE_DOWN] = "merger.mlp.2",
                                                   [TOWER_NORM_1] = "blocks.%d.norm1",
                                                   [TOWER_QKV] = "blocks.%d.attn.qkv",
                                                   [TOWER_O] = "blocks.%d.attn.proj",
                                                   [TOWER_NORM_2] = "blocks.%d.norm2",
                                                   [TOWER_GATE] = "blocks.%d.mlp.gate_proj",
                                                   [TOWER_UP] = "blocks.%d.mlp.up_proj",
                                                   [TOWER_DOWN] = "blocks.%d.mlp.down_proj"},
                                         .unbiased = 1U << TOWER_PATCH,
                                         .norm = NORM_RMS,
                                         .merge_norm = NORM_RMS,
                                         .read = read_qwen2_5_vl};

#define QWEN3                                                                                      \
  .prefixes = {{"model.visual.", NULL}, {"visual.", NULL}}, .norm = NORM_LAYER,                    \
  .merge_norm = NORM_LAYER
#define QWEN3_NAMES                                                                                \
  [TOWER_PATCH] = "patch_embed.proj", [TOWER_POSITIONS] = "pos_embed",                             \
  [TOWER_MERGE_NORM] = "merger.norm", [TOWER_MERGE_UP] = "merger.linear_fc1",                      \
  [TOWER_MERGE_DOWN] = "merger.linear_fc2", [TOWER_NORM_1] = "blocks.%d.norm1",                    \
  [TOWER_QKV] = "blocks.%d.attn.qkv", [TOWER_O] = "blocks.%d.attn.proj",                           \
  [TOWER_NORM_2] = "blocks.%d.norm2", [TOWER_UP] = "blocks.%d.mlp.linear_fc1",                     \
  [TOWER_DOWN] = "blocks.%d.mlp.linear_fc2"
#define DEEPSTACK_NAMES                                                                            \
  [TOWER_DEEP_NORM] = "deepstack_merger_list.%d.norm",                                             \
  [TOWER_DEEP_UP] = "deepstack_merger_list.%d.linear_fc1",                                         \
  [TOWER_DEEP_DOWN] = "deepstack_merger_list.%d.linear_fc2"

const tower_family_t tower_qwen3_vl = {.model_type = "qwen3_vl_vision",
                                       QWEN3,
                                       .names = {QWEN3_NAMES, DEEPSTACK_NAMES},
                                       .read = read_qwen3_vl};
const tower_family_t tower_qwen3_vl_moe = {.model_type = "qwen3_vl_moe_vision",
                                           QWEN3,
                                           .names = {QWEN3_NAMES, DEEPSTACK_NAMES},
                                           .read = read_qwen3_vl};
const tower_family_t tower_qwen3_5 = {
    .model_type = "qwen3_5_vision", QWEN3, .names = {QWEN3_NAMES}, .read = read_qwen3_5};
const tower_family_t tower_qwen3_5_moe = {
    .model_type = "qwen3_5_moe_vision", QWEN3, .names = {QWEN3_NAMES}, .read = read_qwen3_5};
