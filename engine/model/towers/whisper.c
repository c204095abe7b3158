/* whisper.c: towers that are the encoder of Whisper: of Qwen2-Audio and Audio Flamingo 3, where the
 * mean of two positions becomes a row, and of Voxtral, where four side by side do; that of GLM-ASR,
 * which turns heads in the place of a table; and that of Qwen3-ASR and Qwen3-Omni, whose layers are
 * the same behind other convolutions (chunks.c). Reference: the classes of transformers, and Qwen's
 * own code for the names of its files. Constant data.
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

static void read_audioflamingo3(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  read_encoder(reader, around, plan, 4096);
  config_reader_t outer = *reader;
  outer.root = around;
  tower_expect(reader, around, "projector_hidden_act", "gelu");
  if (!config_bool(&outer, KEYS("projector_bias"), true))
    plan->unbiased |= 1U << TOWER_MERGE_UP | 1U << TOWER_MERGE_DOWN;
  if (outer.code != 0) reader->code = outer.code;
  plan->merge_width = plan->out_size;
  plan->merge = 2;
}

/* Half of each head turns by the position. */
static void read_rope(config_reader_t *reader, tower_plan_t *plan) {
  config_reader_t rope = *reader;
  const json_t *type;
  rope.root = json_get(reader->root, "rope_parameters");
  type = json_get(rope.root, "rope_type");
  plan->theta = config_double(&rope, KEYS("rope_theta"), 10000, 1, 1e12, false);
  const double part = config_double(&rope, KEYS("partial_rotary_factor"), 0.5, 0, 1, false);
  plan->rope_halves = true;
  if (rope.code == 0 && part != 0.5)
    config_refuse(&rope, "partial_rotary_factor", json_get(rope.root, "partial_rotary_factor"),
                  "0.5");
  if (rope.code == 0 && type != NULL) tower_expect(&rope, rope.root, "rope_type", "default");
  reader->code = rope.code;
}

static void read_glmasr(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  enum { MERGE = 4 }; /* of the code, not of the config */
  read_encoder(reader, around, plan, 2048);
  tower_expect(reader, around, "projector_hidden_act", "gelu");
  config_int(reader, KEYS("num_key_value_heads"), plan->num_heads, plan->num_heads,
             plan->num_heads);
  config_int(reader, KEYS("max_position_embeddings"), POSITIONS, POSITIONS, POSITIONS);
  plan->activation = tower_read_activation(reader, plan, "hidden_act", "gelu");
  plan->table_side = 0;
  plan->merge_width = 2 * plan->out_size;
  plan->merge = MERGE;
  read_rope(reader, plan);
  if (reader->code == 0 && plan->mlp_width != MERGE * plan->hidden)
    config_refuse(reader, "intermediate_size", json_get(reader->root, "intermediate_size"),
                  "%d times hidden_size, %d", MERGE, plan->hidden);
}

/* Chunks of a second: n_window is half of one. Absent keys are those of transformers, or, of Qwen's
 * files of Qwen3-ASR, of Qwen's code. */
static void read_chunks(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  enum { HALF = TOWER_CHUNK_ROWS / 2, CHUNKS_MAX = 4096, CHANNELS_MAX = 4096 };
  const bool own = plan->family == &tower_qwen3_asr_thinker,
             wide = plan->family != &tower_qwen3_asr;
  plan->num_layers =
      (int32_t)config_int(reader, KEYS("encoder_layers"), wide ? 32 : 24, 1, TOWER_LAYERS_MAX);
  plan->hidden =
      (int32_t)config_int(reader, KEYS("d_model"), wide ? 1280 : 1024, 4, TOWER_WIDTH_MAX);
  plan->mlp_width =
      (int32_t)config_int(reader, KEYS("encoder_ffn_dim"), wide ? 5120 : 4096, 1, TOWER_WIDTH_MAX);
  plan->num_heads = (int32_t)config_int(reader, KEYS("encoder_attention_heads"), wide ? 20 : 16, 1,
                                        plan->hidden / 4);
  plan->bands = (int32_t)config_int(reader, KEYS("num_mel_bins"), 128, 1, 128);
  plan->channels =
      (int32_t)config_int(reader, KEYS("downsample_hidden_size"), 480, 1, CHANNELS_MAX);
  config_int(reader, KEYS("n_window"), own ? 2 * HALF : HALF, HALF, HALF);
  const int64_t seen = config_int(reader, KEYS("n_window_infer"), own ? 400 : 800, TOWER_CHUNK_ROWS,
                                  CHUNKS_MAX * TOWER_CHUNK_ROWS);
  plan->chunk = tower_chunk_positions(TOWER_CHUNK_ROWS);
  plan->stretch = (int32_t)(seen / TOWER_CHUNK_ROWS) * plan->chunk;
  config_int(reader, KEYS("max_position_embeddings", "max_source_positions"), plan->chunk,
             plan->chunk, TOWER_WIDTH_MAX);
  plan->table = TABLE_OF_LINE;
  plan->patch_columns = TOWER_CHUNK_STRIDE * plan->bands;
  tower_expect(reader, reader->root, "activation_function", "gelu");
  plan->activation = ACTIVATION_GELU;
  plan->norm_eps = plan->merge_eps = 1e-5f;
  plan->raster = true;
  plan->merge = 1;
  plan->merge_width = plan->hidden;
  tower_read_text(reader, around, plan);
  config_int(reader, KEYS("output_dim"), 3584, plan->out_size, plan->out_size);
  if (reader->code == 0 && plan->hidden % 2 != 0)
    config_refuse(reader, "d_model", json_get(reader->root, "d_model"), "an even number");
  if (reader->code == 0 && seen % TOWER_CHUNK_ROWS != 0)
    config_refuse(reader, "n_window_infer", json_get(reader->root, "n_window_infer"),
                  "whole chunks of %d rows", TOWER_CHUNK_ROWS);
}

#define WHISPER                                                                                    \
  .hears = true,                                                                                   \
  .prefixes = {{"audio_tower.", "multi_modal_projector."},                                         \
               {"model.audio_tower.", "model.multi_modal_projector."}},                            \
  .norm = NORM_LAYER, .merge_norm = NORM_LAYER
#define WHISPER_NAMES                                                                              \
  [TOWER_PATCH] = "conv1", [TOWER_CONV] = "conv2", [TOWER_POSITIONS] = "embed_positions",          \
  LAYER_NAMES
#define LAYER_NAMES                                                                                \
  [TOWER_NORM_1] = "layers.%d.self_attn_layer_norm",                                               \
  ATTENTION_NAMES("out_proj"), [TOWER_NORM_2] = "layers.%d.final_layer_norm",                      \
  [TOWER_UP] = "layers.%d.fc1", [TOWER_DOWN] = "layers.%d.fc2"
#define ATTENTION_NAMES(out)                                                                       \
  [TOWER_Q] = "layers.%d.self_attn.q_proj", [TOWER_K] = "layers.%d.self_attn.k_proj",              \
  [TOWER_V] = "layers.%d.self_attn.v_proj", [TOWER_O] = "layers.%d.self_attn." out
#define CHUNK_NAMES                                                                                \
  LAYER_NAMES, [TOWER_PATCH] = "conv2d1", [TOWER_CONV] = "conv2d2", [TOWER_CONV_3] = "conv2d3",    \
               [TOWER_CONV_OUT] = "conv_out", [TOWER_POST_NORM] = "ln_post"

const tower_family_t tower_qwen2_audio = {
    .around = "qwen2_audio",
    .model_type = "qwen2_audio_encoder",
    WHISPER,
    .windows_max = 1,
    .names = {WHISPER_NAMES, [TOWER_MEAN_NORM] = "layer_norm", [TOWER_MERGE_DOWN] = "linear"},
    .unbiased = 1U << TOWER_K,
    .merge = MERGE_MEAN,
    .read = read_qwen2_audio};
const tower_family_t tower_audioflamingo3 = {
    .around = "audioflamingo3",
    .model_type = "audioflamingo3_encoder",
    WHISPER,
    .windows_max = 20,
    .names = {WHISPER_NAMES, [TOWER_MEAN_NORM] = "layer_norm", [TOWER_MERGE_UP] = "linear_1",
              [TOWER_MERGE_DOWN] = "linear_2"},
    .unbiased = 1U << TOWER_K,
    .merge = MERGE_MEAN,
    .read = read_audioflamingo3};
const tower_family_t tower_glmasr = {
    .around = "glmasr",
    .model_type = "glmasr_encoder",
    WHISPER,
    .writes = true,
    .windows_max = 21, /* whole ones in the 655 s of its processor */
    .hears_silence = true,
    .names = {[TOWER_PATCH] = "conv1",
              [TOWER_CONV] = "conv2",
              [TOWER_POST_NORM] = "norm",
              [TOWER_NORM_1] = "layers.%d.input_layernorm",
              ATTENTION_NAMES("o_proj"),
              [TOWER_NORM_2] = "layers.%d.post_attention_layernorm",
              [TOWER_UP] = "layers.%d.mlp.fc1",
              [TOWER_DOWN] = "layers.%d.mlp.fc2",
              [TOWER_MERGE_UP] = "linear_1",
              [TOWER_MERGE_DOWN] = "linear_2"},
    .unbiased = 1U << TOWER_K,
    .merge = MERGE_NORM_EACH,
    .read = read_glmasr};
const tower_family_t tower_voxtral = {
    .around = "voxtral",
    .model_type = "voxtral_encoder",
    WHISPER,
    .windows_max = 60,
    .hears_silence = true,
    .rows_of_silence = true,
    .joins_windows = true,
    .names = {WHISPER_NAMES, [TOWER_POST_NORM] = "layer_norm", [TOWER_MERGE_UP] = "linear_1",
              [TOWER_MERGE_DOWN] = "linear_2"},
    .unbiased = 1U << TOWER_K | 1U << TOWER_MERGE_UP | 1U << TOWER_MERGE_DOWN,
    .merge = MERGE_NORM_EACH,
    .read = read_voxtral};
const tower_family_t tower_qwen3_asr = {
    .around = "qwen3_asr",
    .model_type = "qwen3_asr_encoder",
    WHISPER,
    .writes = true,
    .samples_min = 8000,
    .names = {CHUNK_NAMES, [TOWER_MERGE_UP] = "linear_1", [TOWER_MERGE_DOWN] = "linear_2"},
    .unbiased = 1U << TOWER_CONV_OUT,
    .merge = MERGE_NORM_EACH,
    .read = read_chunks};
#define OMNI                                                                                       \
  .hears = true, .norm = NORM_LAYER, .merge_norm = NORM_LAYER,                                     \
  .names = {CHUNK_NAMES, [TOWER_MERGE_UP] = "proj1", [TOWER_MERGE_DOWN] = "proj2"},                \
  .unbiased = 1U << TOWER_CONV_OUT, .merge = MERGE_NORM_EACH, .read = read_chunks
const tower_family_t tower_qwen3_asr_thinker = {.around = "qwen3_asr",
                                                .model_type = "qwen3_asr_audio_encoder",
                                                OMNI,
                                                .writes = true,
                                                .samples_min = 8000,
                                                .prefixes = {{"thinker.audio_tower.", NULL}}};
/* Of these the part that sees goes unread. */
const tower_family_t tower_qwen3_omni = {.around = "qwen3_omni_moe",
                                         .model_type = "qwen3_omni_moe_audio_encoder",
                                         OMNI,
                                         .prefixes = {{"thinker.audio_tower.", NULL}}};
const tower_family_t tower_qwen3_omni_thinker = {.around = "qwen3_omni_moe_thinker",
                                                 .model_type = "qwen3_omni_moe_audio_encoder",
                                                 OMNI,
                                                 .prefixes = {{"audio_tower.", NULL}}};
