/* t5.c: the encoders of T5, FLAN-T5, Sentence-T5 and mT5 alone.
 *
 * Scores are not scaled, and each head has a number by distance, of layer 0 for all. Rows of
 * tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define T5(role, name, rows, cols, when)                                                           \
  ROW(role, "block.#.layer." name, NULL, rows, cols, when, WHEN_NEVER)
#define SELF(role, name, rows, cols) T5(role, "0.SelfAttention." name, rows, cols, WHEN_ALWAYS)
#define MLP(role, name, rows, cols, when) T5(role, "1.DenseReluDense." name, rows, cols, when)

static const tensor_pattern_t patterns[] = {
    ROW(ROLE_EMBED, "/shared", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_DISTANCES, "block.0.layer.0.SelfAttention.relative_attention_bias", NULL, DIM_BUCKETS,
        DIM_HEADS, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_FINAL_NORM, "final_layer_norm", NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    T5(ROLE_ATTN_NORM, "0.layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS),
    SELF(ROLE_Q, "q", DIM_Q, DIM_HIDDEN),
    SELF(ROLE_K, "k", DIM_KV, DIM_HIDDEN),
    SELF(ROLE_V, "v", DIM_KV, DIM_HIDDEN),
    SELF(ROLE_O, "o", DIM_HIDDEN, DIM_Q),
    T5(ROLE_MLP_NORM, "1.layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS),
    MLP(ROLE_UP, "wi", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_PLAIN),
    MLP(ROLE_GATE, "wi_0", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_GATED),
    MLP(ROLE_UP, "wi_1", DIM_MLP, DIM_HIDDEN, WHEN_DENSE_GATED),
    MLP(ROLE_DOWN, "wo", DIM_HIDDEN, DIM_MLP, WHEN_DENSE),
};

/* The embedding a second time; the decoder and the head, which files of the whole model have. */
static const layout_t layout = {PATTERNS(patterns), .prefixes = {"encoder."},
                                .ignored = {"encoder.embed_tokens.", "decoder.", "lm_head."}};

#define ENCODER                                                                                    \
  .layout = &layout, IDS(1, -1), .norm_eps = 1e-6, .norm_eps_key = "layer_norm_epsilon",           \
  .norm = NORM_RMS, .grouped = true, .attn_scale = 1, .distances = true, .encoder = true,          \
  .t5_keys = true

static const family_t rows[] = {
    {ENCODER, NAMES("t5", "T5EncoderModel"), SIZES(32128, 512, 2048, 6, 8, 0, 64, 512),
     .activation = "relu"},
    {ENCODER, NAMES("mt5", "MT5EncoderModel"), SIZES(250112, 512, 1024, 8, 6, 0, 64, 512),
     .activation = "gated-gelu"},
};

const family_table_t lineage_t5 = {rows, ARRAY_LEN(rows), NULL, 0};
