/* whisper.c: towers that are the encoder of Whisper: of Qwen2-Audio, where the mean of two
 * positions becomes a row, and of Voxtral, where four side by side do. Reference: qwen2_audio and
 * voxtral of transformers. Constant data.
 */
#include "engine/base/util.h"
#include "engine/model/towers/family.h"

/* Positions of 30 s, of which the reference makes all spectrograms. */
enum { POSITIONS = 1500 };

static void read_encoder(config_reader_t *reader, const json_t *around, tower_plan_t *plan,
                         int64_t text_width) {
  config_reader_t text = *reader;
  plan->num_layers = (int32_t)config_int(reader, KEYS("encoder_layers", "num_hidden_layers"), 32, 1,
                                         TOWER_LAYERS_MAX);
  plan->hidden =
      (int32_t)config_int(reader, KEYS("d_model", "hidden_size"), 1280, 4, TOWER_WIDTH_MAX);
  plan->mlp_width = (int32_t)config_int(reader, KEYS("encoder_ffn_dim", "intermediate_size"), 5120,
                                        1, TOWER_WIDTH_MAX);
  plan->num_heads = (int32_t)config_int(
      reader, KEYS("encoder_attention_heads", "num_attention_heads"), 20, 1, plan->hidden / 4);
  plan->bands = (int32_t)config_int(reader, KEYS("num_mel_bins"), 128, 1, 128);
  plan->patch_columns = TOWER_SPAN * plan->bands;
  plan->table_side =
      (int32_t)config_int(reader, KEYS("max_source_positions"), POSITIONS, 2, TOWER_SIDE_MAX);
  plan->table = TABLE_OF_LINE;
  plan->activation = tower_read_activation(reader, plan, "activation_function", "gelu");
  plan->norm_eps = plan->merge_eps = 1e-5f;
  plan->raster = true;
  text.code = reader->code;
  text.root = json_get(around, "text_config");
  plan->out_size = (int32_t)config_int(&text, KEYS("hidden_size"), text_width, 1, TOWER_WIDTH_MAX);
  reader->code = text.code;
}

static void read_qwen2_audio(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  read_encoder(reader, around, plan, 4096);
  plan->merge = 2;
}

static void read_voxtral(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  read_encoder(reader, around, plan, 3072);
  tower_expect(reader, around, "projector_hidden_act", "gelu");
  plan->merge_width = plan->out_size;
  plan->merge = MAX(plan->mlp_width / plan->hidden, 1);
  if (plan->merge > 8 || plan->merge * plan->hidden != plan->mlp_width ||
      plan->table_side % plan->merge != 0)
    config_refuse(reader, "intermediate_size", json_get(reader->root, "intermediate_size"),
                  "a multiple of hidden_size, %d, by a part of %d positions", plan->hidden,
                  plan->table_side);
}

#define WHISPER                                                                                    \
  .hears = true,                                                                                   \
  .prefixes = {{"audio_tower.", "multi_modal_projector."},                                         \
               {"model.audio_tower.", "model.multi_modal_projector."}},                            \
  .norm = NORM_LAYER, .merge_norm = NORM_LAYER
#define WHISPER_NAMES                                                                              \
  [TOWER_PATCH] = "conv1", [TOWER_CONV] = "conv2", [TOWER_POSITIONS] = "embed_positions",          \
  [TOWER_NORM_1] = "layers.%d.self_attn_layer_norm", [TOWER_Q] = "layers.%d.self_attn.q_proj",     \
  [TOWER_K] = "layers.%d.self_attn.k_proj", [TOWER_V] = "layers.%d.self_attn.v_proj",              \
  [TOWER_O] = "layers.%d.self_attn.out_proj", [TOWER_NORM_2] = "layers.%d.final_layer_norm",       \
  [TOWER_UP] = "layers.%d.fc1", [TOWER_DOWN] = "layers.%d.fc2"

const tower_family_t tower_qwen2_audio = {
    .around = "qwen2_audio",
    .model_type = "qwen2_audio_encoder",
    WHISPER,
    .names = {WHISPER_NAMES, [TOWER_MEAN_NORM] = "layer_norm", [TOWER_MERGE_DOWN] = "linear"},
    .unbiased = 1U << TOWER_K,
    .merge = MERGE_MEAN,
    .read = read_qwen2_audio};
const tower_family_t tower_voxtral = {
    .around = "voxtral",
    .model_type = "voxtral_encoder",
    WHISPER,
    .hears_silence = true,
    .names = {WHISPER_NAMES, [TOWER_POST_NORM] = "layer_norm", [TOWER_MERGE_UP] = "linear_1",
              [TOWER_MERGE_DOWN] = "linear_2"},
    .unbiased = 1U << TOWER_K | 1U << TOWER_MERGE_UP | 1U << TOWER_MERGE_DOWN,
    .merge = MERGE_NORM_EACH,
    .read = read_voxtral};
