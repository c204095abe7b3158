/* whisper.c: Whisper: an encoder that reads spectrograms through two convolutions, and a decoder.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define PART(role, name, rows, cols, bias)                                                         \
  ROW(role, "layers.#." name, NULL, rows, cols, WHEN_ALWAYS, bias)
#define BIASED(role, name, rows, cols) PART(role, name, rows, cols, WHEN_ALWAYS)
#define PART_NORM(role, name) BIASED(role, name, DIM_HIDDEN, DIM_NONE)
/* Keys have no bias. */
#define ATTENTION_OF(at, q, k, v, o)                                                               \
  BIASED(q, at ".q_proj", DIM_Q, DIM_HIDDEN),                                                      \
      PART(k, at ".k_proj", DIM_KV, DIM_HIDDEN, WHEN_NEVER),                                       \
      BIASED(v, at ".v_proj", DIM_KV, DIM_HIDDEN), BIASED(o, at ".out_proj", DIM_HIDDEN, DIM_Q)
/* What both stacks have. */
#define STACK_ROWS                                                                                 \
  ROW(ROLE_POSITIONS, "embed_positions", NULL, DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS,             \
      WHEN_NEVER),                                                                                 \
      ROW(ROLE_FINAL_NORM, "layer_norm", NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS),    \
      PART_NORM(ROLE_ATTN_NORM, "self_attn_layer_norm"),                                           \
      ATTENTION_OF("self_attn", ROLE_Q, ROLE_K, ROLE_V, ROLE_O),                                   \
      PART_NORM(ROLE_MLP_NORM, "final_layer_norm"), BIASED(ROLE_UP, "fc1", DIM_MLP, DIM_HIDDEN),   \
      BIASED(ROLE_DOWN, "fc2", DIM_HIDDEN, DIM_MLP)
#define CONVOLUTION(role, name, cols)                                                              \
  { role, name, NULL, DIM_HIDDEN, cols, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TAPS }

static const tensor_pattern_t encoder_patterns[] = {CONVOLUTION(ROLE_CONV_1, "conv1", DIM_BANDS_3),
                                                    CONVOLUTION(ROLE_CONV_2, "conv2", DIM_HIDDEN_3),
                                                    STACK_ROWS};
static const tensor_pattern_t decoder_patterns[] = {
    ROW(ROLE_EMBED, "embed_tokens", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    STACK_ROWS, PART_NORM(ROLE_CROSS_NORM, "encoder_attn_layer_norm"),
    ATTENTION_OF("encoder_attn", ROLE_CROSS_Q, ROLE_CROSS_K, ROLE_CROSS_V, ROLE_CROSS_O)};
static const layout_t encoder_layout = {PATTERNS(encoder_patterns), .prefixes = {"model.encoder."},
                                        .ignored = {"model.decoder.", "proj_out."}};
static const layout_t decoder_layout = {PATTERNS(decoder_patterns), .prefixes = {"model.decoder."},
                                        .ignored = {"model.encoder.", "proj_out."}};

#define WHISPER                                                                                    \
  SIZES(51865, 384, 1536, 4, 6, 0, 0, 448), IDS(50256, 50256),                                     \
      .activation = "gelu", .norm = NORM_LAYER, .norm_eps = 1e-5, .qkv_bias = true,                \
      .o_bias = true, .mlp_bias = true, .embed_root_key = "scale_embedding", .tied = true,         \
      .block = BLOCK_PRE_NORM, .speech_keys = true

static const family_t rows[] = {
    {NAMES("whisper-encoder", "whisper-encoder"), WHISPER, .layout = &encoder_layout,
     .encoder = true, .side = SIDE_ENCODER, .max_positions = 1500, .num_bands = 80},
    {NAMES("whisper", "WhisperForConditionalGeneration"), WHISPER, .layout = &decoder_layout,
     .side = SIDE_DECODER, .encoder_name = "whisper-encoder"},
};

const family_table_t lineage_whisper = {rows, ARRAY_LEN(rows), NULL, 0};
