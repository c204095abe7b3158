/* bart.c: BART, mBART, Marian, M2M100 (NLLB) and Pegasus: an encoder and a decoder each, whose
 * layers differ in where norms stand, in their positions and in their activation.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define PART(role, name, rows, cols)                                                               \
  ROW(role, "layers.#." name, NULL, rows, cols, WHEN_ALWAYS, WHEN_ALWAYS)
#define ATTENDS(role, at, rows, cols) PART(role, at, rows, cols)
#define PART_NORM(role, name) PART(role, name, DIM_HIDDEN, DIM_NONE)
#define OUTER_NORM(role, name) ROW(role, name, NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS)

/* What both stacks have; the embedding comes first. */
#define STACK_ROWS                                                                                 \
  ROW(ROLE_EMBED, "/model.shared", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),          \
      PART_NORM(ROLE_ATTN_NORM, "self_attn_layer_norm"),                                           \
      ATTENDS(ROLE_Q, "self_attn.q_proj", DIM_Q, DIM_HIDDEN),                                      \
      ATTENDS(ROLE_K, "self_attn.k_proj", DIM_KV, DIM_HIDDEN),                                     \
      ATTENDS(ROLE_V, "self_attn.v_proj", DIM_KV, DIM_HIDDEN),                                     \
      ATTENDS(ROLE_O, "self_attn.out_proj", DIM_HIDDEN, DIM_Q),                                    \
      PART_NORM(ROLE_MLP_NORM, "final_layer_norm"), PART(ROLE_UP, "fc1", DIM_MLP, DIM_HIDDEN),     \
      PART(ROLE_DOWN, "fc2", DIM_HIDDEN, DIM_MLP)
#define CROSS_ROWS                                                                                 \
  PART_NORM(ROLE_CROSS_NORM, "encoder_attn_layer_norm"),                                           \
      ATTENDS(ROLE_CROSS_Q, "encoder_attn.q_proj", DIM_Q, DIM_HIDDEN),                             \
      ATTENDS(ROLE_CROSS_K, "encoder_attn.k_proj", DIM_KV, DIM_HIDDEN),                            \
      ATTENDS(ROLE_CROSS_V, "encoder_attn.v_proj", DIM_KV, DIM_HIDDEN),                            \
      ATTENDS(ROLE_CROSS_O, "encoder_attn.out_proj", DIM_HIDDEN, DIM_Q),                           \
      ROW(ROLE_HEAD, "/lm_head", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_UNTIED, WHEN_NEVER), {          \
    ROLE_HEAD_BIAS, "/final_logits_bias!", NULL, DIM_VOCAB, DIM_NONE, WHEN_LOGITS_BIAS,            \
        WHEN_NEVER, FORM_ROW                                                                       \
  }
#define LEARNED_ROWS                                                                               \
  ROW(ROLE_POSITIONS, "embed_positions", NULL, DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER)
#define FIRST_NORM OUTER_NORM(ROLE_EMBED_NORM, "layernorm_embedding")
#define LAST_NORM OUTER_NORM(ROLE_FINAL_NORM, "layer_norm")

/* Sinusoids are made, and need no tensor; some files have them, too. Where positions are learned
 * their table is a row of the layout, which goes before what is ignored. */
#define ENCODER_LAYOUT(name)                                                                       \
  static const layout_t name##_encoder_layout = {                                                  \
      PATTERNS(name##_encoder), .prefixes = {"model.encoder."},                                    \
      .ignored = {"embed_tokens.", "model.decoder.", "lm_head.", "final_logits_bias",              \
                  "embed_positions."}}
#define DECODER_LAYOUT(name)                                                                       \
  static const layout_t name##_decoder_layout = {                                                  \
      PATTERNS(name##_decoder), .prefixes = {"model.decoder."},                                    \
      .ignored = {"embed_tokens.", "model.encoder.", "embed_positions."}}
/* The layouts of a model: those of its encoder and of its decoder. */
#define LAYOUTS(name, ...)                                                                         \
  static const tensor_pattern_t name##_encoder[] = {STACK_ROWS, __VA_ARGS__};                      \
  static const tensor_pattern_t name##_decoder[] = {STACK_ROWS, CROSS_ROWS, __VA_ARGS__};          \
  ENCODER_LAYOUT(name);                                                                            \
  DECODER_LAYOUT(name)

LAYOUTS(bart, FIRST_NORM, LEARNED_ROWS);
LAYOUTS(mbart, FIRST_NORM, LEARNED_ROWS, LAST_NORM);
LAYOUTS(m2m, LAST_NORM);
static const tensor_pattern_t marian_encoder[] = {STACK_ROWS};
static const tensor_pattern_t marian_decoder[] = {STACK_ROWS, CROSS_ROWS};
ENCODER_LAYOUT(marian);
DECODER_LAYOUT(marian);

#define BOTH                                                                                       \
  .norm = NORM_LAYER, .norm_eps = 1e-5, .qkv_bias = true, .o_bias = true, .mlp_bias = true,        \
  .embed_root_key = "scale_embedding", .tied = true
/* An encoder has no architecture that stands in a config.json. */
#define ENCODER(stem, type)                                                                        \
  BOTH, .layout = &stem##_encoder_layout, .encoder = true, .side = SIDE_ENCODER,                   \
        NAMES(type "-encoder", type "-encoder")
#define DECODER(stem, type)                                                                        \
  BOTH, .layout = &stem##_decoder_layout, .side = SIDE_DECODER, .encoder_name = type "-encoder"

#define BART                                                                                       \
  SIZES(50265, 1024, 4096, 12, 16, 0, 0, 1024), IDS(2, 0),                                         \
      .activation = "gelu", .block = BLOCK_POST_NORM, .embed_norm = true, .position_offset = 2
#define MBART                                                                                      \
  SIZES(50265, 1024, 4096, 12, 16, 0, 0, 1024), IDS(2, 0),                                         \
      .activation = "gelu", .block = BLOCK_PRE_NORM, .embed_norm = true, .position_offset = 2
#define MARIAN                                                                                     \
  SIZES(58101, 1024, 4096, 12, 16, 0, 0, 1024), IDS(0, -1),                                        \
      .activation = "gelu", .block = BLOCK_POST_NORM, .sinusoid = SINUSOID_BY_WIDTH
#define M2M                                                                                        \
  SIZES(128112, 1024, 4096, 12, 16, 0, 0, 1024), IDS(2, 0),                                        \
      .activation = "relu", .block = BLOCK_PRE_NORM, .sinusoid = SINUSOID_TO_END,                  \
      .embed_root = true
#define PEGASUS                                                                                    \
  SIZES(50265, 1024, 4096, 12, 16, 0, 0, 1024), IDS(1, -1),                                        \
      .activation = "gelu", .block = BLOCK_PRE_NORM, .sinusoid = SINUSOID_BY_WIDTH
#define BART_DECODER DECODER(bart, "bart"), BART
#define MBART_DECODER DECODER(mbart, "mbart"), MBART
#define MARIAN_DECODER DECODER(marian, "marian"), MARIAN
#define M2M_DECODER DECODER(m2m, "m2m_100"), M2M
#define PEGASUS_DECODER DECODER(m2m, "pegasus"), PEGASUS

static const family_t rows[] = {
    {ENCODER(bart, "bart"), BART},
    {BART_DECODER, NAMES("bart", "BartForConditionalGeneration")},
    {ENCODER(mbart, "mbart"), MBART},
    {MBART_DECODER, NAMES("mbart", "MBartForConditionalGeneration")},
    {ENCODER(marian, "marian"), MARIAN},
    {MARIAN_DECODER, NAMES("marian", "MarianMTModel")},
    {ENCODER(m2m, "m2m_100"), M2M},
    {M2M_DECODER, NAMES("m2m_100", "M2M100ForConditionalGeneration")},
    {ENCODER(m2m, "pegasus"), PEGASUS},
    {PEGASUS_DECODER, NAMES("pegasus", "PegasusForConditionalGeneration")},
};

const family_table_t lineage_bart = {rows, ARRAY_LEN(rows), NULL, 0};
