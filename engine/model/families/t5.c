/* t5.c: T5, FLAN-T5 and mT5, and their encoders alone (Sentence-T5).
 *
 * Scores are not scaled, and each head has a number by distance, of layer 0 for all. Rows of
 * tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define T5(role, name, rows, cols, when)                                                           \
  ROW(role, "block.#.layer." name, NULL, rows, cols, when, WHEN_NEVER)
#define SELF(role, name, rows, cols) T5(role, "0.SelfAttention." name, rows, cols, WHEN_ALWAYS)
#define CROSS(role, name, rows, cols) T5(role, "1.EncDecAttention." name, rows, cols, WHEN_ALWAYS)
#define MLP(role, name, rows, cols, when) T5(role, name, rows, cols, when)
/* The MLP stands behind one attention, or behind two. */
#define T5_MLP_ROWS(n)                                                                             \
  T5(ROLE_MLP_NORM, n ".layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS),                           \
      MLP(ROLE_UP, n ".DenseReluDense.wi", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_PLAIN),                 \
      MLP(ROLE_GATE, n ".DenseReluDense.wi_0", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_GATED),             \
      MLP(ROLE_UP, n ".DenseReluDense.wi_1", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_GATED),               \
      MLP(ROLE_DOWN, n ".DenseReluDense.wo", DIM_HIDDEN, DIM_MLP, WHEN_DENSE)
#define T5_ROWS                                                                                    \
  ROW(ROLE_EMBED, "/shared", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),                \
      ROW(ROLE_DISTANCES, "block.0.layer.0.SelfAttention.relative_attention_bias", NULL,           \
          DIM_BUCKETS, DIM_HEADS, WHEN_ALWAYS, WHEN_NEVER),                                        \
      ROW(ROLE_FINAL_NORM, "final_layer_norm", NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS,            \
          WHEN_NEVER),                                                                             \
      T5(ROLE_ATTN_NORM, "0.layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS),                       \
      SELF(ROLE_Q, "q", DIM_Q, DIM_HIDDEN), SELF(ROLE_K, "k", DIM_KV, DIM_HIDDEN),                 \
      SELF(ROLE_V, "v", DIM_KV, DIM_HIDDEN), SELF(ROLE_O, "o", DIM_HIDDEN, DIM_Q)

static const tensor_pattern_t patterns[] = {T5_ROWS, T5_MLP_ROWS("1")};
static const tensor_pattern_t decoder_patterns[] = {
    T5_ROWS,
    ROW(ROLE_HEAD, "/lm_head", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_UNTIED, WHEN_NEVER),
    T5(ROLE_CROSS_NORM, "1.layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS),
    CROSS(ROLE_CROSS_Q, "q", DIM_Q, DIM_HIDDEN),
    CROSS(ROLE_CROSS_K, "k", DIM_KV, DIM_HIDDEN),
    CROSS(ROLE_CROSS_V, "v", DIM_KV, DIM_HIDDEN),
    CROSS(ROLE_CROSS_O, "o", DIM_HIDDEN, DIM_Q),
    T5_MLP_ROWS("2")};

/* The embedding a second time; the decoder and the head, which files of the whole model have. */
static const layout_t layout = {PATTERNS(patterns), .prefixes = {"encoder."},
                                .ignored = {"encoder.embed_tokens.", "decoder.", "lm_head."}};
/* Old files have numbers of distances to the encoder's rows, which the reference does not read. */
static const layout_t decoder_layout = {
    PATTERNS(decoder_patterns), .prefixes = {"decoder."},
    .ignored = {"decoder.embed_tokens.", "encoder.", "EncDecAttention.relative_attention_bias."}};

#define BOTH                                                                                       \
  IDS(1, -1), .norm_eps = 1e-6, .norm_eps_key = "layer_norm_epsilon", .norm = NORM_RMS,            \
              .grouped = true, .attn_scale = 1, .distances = true, .t5_keys = true, .tied = true
#define ENCODER .layout = &layout, BOTH, .encoder = true, .side = SIDE_ENCODER
#define DECODER .layout = &decoder_layout, BOTH, .side = SIDE_DECODER
#define T5_SIZES SIZES(32128, 512, 2048, 6, 8, 0, 64, 512)
#define MT5_SIZES SIZES(250112, 512, 1024, 8, 6, 0, 64, 512)

static const family_t rows[] = {
    {ENCODER, NAMES("t5", "T5EncoderModel"), T5_SIZES, .activation = "relu"},
    {ENCODER, NAMES("mt5", "MT5EncoderModel"), MT5_SIZES, .activation = "gated-gelu"},
    {DECODER, NAMES("t5-decoder", "T5ForConditionalGeneration"), T5_SIZES, .activation = "relu",
     .encoder_name = "t5"},
    {DECODER, NAMES("mt5-decoder", "MT5ForConditionalGeneration"), MT5_SIZES,
     .activation = "gated-gelu", .encoder_name = "mt5"},
};

const family_table_t lineage_t5 = {rows, ARRAY_LEN(rows), NULL, 0};
