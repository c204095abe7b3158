/* siglip.c: the towers of Gemma 3, of Idefics 3 and SmolVLM, and of LLaVA: SigLIP, whose positions
 * are learned, and CLIP, which has a class and a norm before the first layer. Gemma 3 makes rows of
 * means of patches, Idefics 3 of patches side by side, LLaVA of each. Reference: siglip, clip,
 * gemma3, idefics3, smolvlm, llava, llava_next and llava_onevision of transformers. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

#include <string.h>

/* Returns the side of a patch. */
static int64_t read_siglip(config_reader_t *reader, const json_t *around, tower_plan_t *plan,
                           const tower_plan_t *absent, int64_t patch, int64_t image) {
  patch = tower_read_vit(reader, plan, absent, patch);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu_pytorch_tanh");
  plan->norm_eps = (float)config_double(reader, KEYS("layer_norm_eps"), 1e-6, 0, 1, true);
  tower_read_table(reader, plan, image, patch);
  tower_read_text(reader, around, plan);
  return patch;
}

static void read_gemma3(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {.num_layers = 12, .hidden = 768, .mlp_width = 3072, .num_heads = 12};
  read_siglip(reader, around, plan, &absent, 16, 224);
  tower_expect_bool(reader, reader->root, "vision_use_head", false);
  config_reader_t outer = *reader;
  plan->merge_eps = plan->norm_eps;
  plan->table = TABLE_OF_IMAGE;
  outer.root = around;
  const int64_t tokens = config_int(&outer, KEYS("mm_tokens_per_image"), 256, 1, 65536);
  int32_t side = 1;
  while ((int64_t)(side + 1) * (side + 1) <= tokens) side++;
  plan->merge = MAX(plan->table_side / side, 1);
  if ((int64_t)side * side != tokens || plan->merge * side != plan->table_side)
    config_refuse(&outer, "mm_tokens_per_image", json_get(around, "mm_tokens_per_image"),
                  "the square of a part of %d patches", plan->table_side);
  reader->code = outer.code;
}

static void read_idefics3(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 12, .hidden = 1152, .mlp_width = 3072, .num_heads = 16};
  read_siglip(reader, around, plan, &absent, 32, 224);
  plan->table = TABLE_OF_PARTS;
  config_reader_t outer = *reader;
  outer.root = around;
  plan->merge = (int32_t)config_int(&outer, KEYS("scale_factor"), 2, 1, 8);
  reader->code = outer.code;
}

/* num_layers, and those behind it: vision_feature_layer is how many a patch goes through, or counts
 * from the end: -1 is behind all of them. */
static void read_last(config_reader_t *reader, const json_t *around, int64_t absent,
                      tower_plan_t *plan) {
  const char *const key = "vision_feature_layer";
  const json_t *value = json_get(around, key);
  int64_t last = absent;
  if (json_is_given(value) && !json_int64(value, &last)) last = 0;
  if (last < 0) last += plan->num_layers + 1;
  if (last < 1 || last > plan->num_layers) {
    config_refuse(reader, key, value, "one of %d layers, from 1 or from -1", plan->num_layers);
    return;
  }
  plan->spare_layers = plan->num_layers - (int32_t)last;
  plan->num_layers = (int32_t)last;
}

static void read_strategy(config_reader_t *reader, const json_t *around, const char *absent,
                          const char *served) {
  const char *const key = "vision_feature_select_strategy";
  const json_t *value = json_get(around, key);
  if (json_is_given(value) ? !json_equals(value, served) : strcmp(absent, served) != 0)
    config_refuse(reader, key, value, "%s", served);
}

static void read_onevision(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 26, .hidden = 1152, .mlp_width = 4304, .num_heads = 16};
  read_siglip(reader, around, plan, &absent, 14, 384);
  tower_expect_bool(reader, reader->root, "vision_use_head", false);
  plan->table = TABLE_OF_IMAGE;
  read_last(reader, around, -1, plan);
  read_strategy(reader, around, "full", "full");
  tower_read_projector(reader, around, true, plan);
}

/* The class, which stands first there, is left out. */
static void read_clip(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  const tower_plan_t absent = {
      .num_layers = 24, .hidden = 1024, .mlp_width = 4096, .num_heads = 16};
  const int64_t patch = tower_read_vit(reader, plan, &absent, 14);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "quick_gelu");
  plan->norm_eps = (float)config_double(reader, KEYS("layer_norm_eps"), 1e-5, 0, 1, true);
  tower_read_table(reader, plan, 336, patch);
  plan->table = TABLE_OF_IMAGE;
  read_last(reader, around, -2, plan);
  read_strategy(reader, around, "default", "default");
  tower_read_projector(reader, around, true, plan);
}

#define SIGLIP .norm = NORM_LAYER
#define SIGLIP_NAMES                                                                               \
  [TOWER_PATCH] = "embeddings.patch_embedding",                                                    \
  [TOWER_POSITIONS] = "embeddings.position_embedding", [TOWER_POST_NORM] = "post_layernorm",       \
  [TOWER_NORM_1] = "encoder.layers.%d.layer_norm1",                                                \
  [TOWER_Q] = "encoder.layers.%d.self_attn.q_proj",                                                \
  [TOWER_K] = "encoder.layers.%d.self_attn.k_proj",                                                \
  [TOWER_V] = "encoder.layers.%d.self_attn.v_proj",                                                \
  [TOWER_O] = "encoder.layers.%d.self_attn.out_proj",                                              \
  [TOWER_NORM_2] = "encoder.layers.%d.layer_norm2", [TOWER_UP] = "encoder.layers.%d.mlp.fc1",      \
  [TOWER_DOWN] = "encoder.layers.%d.mlp.fc2"
#define IDEFICS3                                                                                   \
  SIGLIP,                                                                                          \
      .prefixes = {{"model.vision_model.", "model.connector."}, {"vision_model.", "connector."}},  \
      .names = {SIGLIP_NAMES, [TOWER_MERGE_DOWN] = "modality_projection.proj"},                    \
      .unbiased = 1U << TOWER_MERGE_DOWN, .read = read_idefics3

const tower_family_t tower_gemma3 = {
    .around = "gemma3",
    .model_type = "siglip_vision_model",
    SIGLIP,
    .prefixes = {{"vision_tower.vision_model.", "multi_modal_projector."},
                 {"vision_tower.", "multi_modal_projector."},
                 {"model.vision_tower.vision_model.", "model.multi_modal_projector."},
                 {"model.vision_tower.", "model.multi_modal_projector."}},
    .names = {SIGLIP_NAMES, [TOWER_MERGE_NORM] = "mm_soft_emb_norm",
              [TOWER_MERGE_DOWN] = "mm_input_projection_weight"},
    .unbiased = 1U << TOWER_MERGE_DOWN,
    .bare = 1U << TOWER_MERGE_DOWN,
    .merge_norm = NORM_RMS,
    .merge_plus_one = true,
    .down_is_turned = true,
    .merge = MERGE_MEAN,
    .read = read_gemma3};
const tower_family_t tower_idefics3 = {
    .around = "idefics3", .model_type = "idefics3_vision", IDEFICS3};
const tower_family_t tower_smolvlm = {
    .around = "smolvlm", .model_type = "smolvlm_vision", IDEFICS3};

/* Files of transformers 5 have the names of the last two, older ones those of the first. */
#define LLAVA_PREFIXES                                                                             \
  .prefixes = {{"vision_tower.vision_model.", "multi_modal_projector.", ""},                       \
               {"vision_tower.", "multi_modal_projector.", ""},                                    \
               {"model.vision_tower.vision_model.", "model.multi_modal_projector.", "model."},     \
               {"model.vision_tower.", "model.multi_modal_projector.", "model."}}
#define LLAVA_NAMES [TOWER_MERGE_UP] = "linear_1", [TOWER_MERGE_DOWN] = "linear_2"
#define CLIP_NAMES                                                                                 \
  SIGLIP_NAMES,                                                                                    \
      LLAVA_NAMES, [TOWER_CLASS] = "embeddings.class_embedding", [TOWER_PRE_NORM] = "pre_layrnorm"
#define CLIP                                                                                       \
  .model_type = "clip_vision_model", SIGLIP, LLAVA_PREFIXES, .unbiased = 1U << TOWER_PATCH,        \
  .bare = 1U << TOWER_CLASS | 1U << TOWER_LINE, .unread = 1U << TOWER_POST_NORM, .read = read_clip

const tower_family_t tower_llava = {.around = "llava", CLIP, .names = {CLIP_NAMES}};
const tower_family_t tower_llava_next = {
    .around = "llava_next", CLIP, .names = {CLIP_NAMES, [TOWER_LINE] = "image_newline"}};
const tower_family_t tower_llava_onevision = {
    .around = "llava_onevision",
    .model_type = "siglip_vision_model",
    SIGLIP,
    LLAVA_PREFIXES,
    .names = {SIGLIP_NAMES, LLAVA_NAMES, [TOWER_LINE] = "image_newline"},
    .bare = 1U << TOWER_LINE,
    .unread = 1U << TOWER_POST_NORM,
    .read = read_onevision};
