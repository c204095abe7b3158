/* bloom.c: BLOOM and MPT: no positions but in the scores, which fall with the distance (ALiBi).
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define NORM_OF(role, name) BIASED_NORM(role, name, NULL, WHEN_ALWAYS)
#define MATRIX(role, name, rows, cols, bias) ROW(role, name, NULL, rows, cols, WHEN_ALWAYS, bias)

static const tensor_pattern_t bloom_patterns[] = {
    EMBED("word_embeddings"),
    NORM_OF(ROLE_EMBED_NORM, "word_embeddings_layernorm"),
    NORM_OF(ROLE_FINAL_NORM, "ln_f"),
    HEAD("/lm_head", WHEN_NEVER),
    NORM_OF(ROLE_ATTN_NORM, "h.#.input_layernorm"),
    NORM_OF(ROLE_MLP_NORM, "h.#.post_attention_layernorm"),
    MATRIX(ROLE_QKV, "h.#.self_attention.query_key_value", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS),
    MATRIX(ROLE_O, "h.#.self_attention.dense", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS),
    MATRIX(ROLE_UP, "h.#.mlp.dense_h_to_4h", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS),
    MATRIX(ROLE_DOWN, "h.#.mlp.dense_4h_to_h", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS),
};

#define PLAIN_NORM(role, name) ROW(role, name, NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER)
static const tensor_pattern_t mpt_patterns[] = {
    EMBED("wte"),
    PLAIN_NORM(ROLE_FINAL_NORM, "norm_f"),
    HEAD("/lm_head", WHEN_NEVER),
    PLAIN_NORM(ROLE_ATTN_NORM, "blocks.#.norm_1"),
    PLAIN_NORM(ROLE_MLP_NORM, "blocks.#.norm_2"),
    MATRIX(ROLE_QKV, "blocks.#.attn.Wqkv", DIM_QKV, DIM_HIDDEN, WHEN_NEVER),
    MATRIX(ROLE_O, "blocks.#.attn.out_proj", DIM_HIDDEN, DIM_Q, WHEN_NEVER),
    MATRIX(ROLE_UP, "blocks.#.ffn.up_proj", DIM_MLP, DIM_HIDDEN, WHEN_NEVER),
    MATRIX(ROLE_DOWN, "blocks.#.ffn.down_proj", DIM_HIDDEN, DIM_MLP, WHEN_NEVER),
};

#define IN_TRANSFORMER(array) PATTERNS(array), .prefixes = {"transformer.", ""}
static const layout_t layout_bloom = {IN_TRANSFORMER(bloom_patterns), .qkv_grouped = true};
static const layout_t layout_mpt = {IN_TRANSFORMER(mpt_patterns)};

#define ALIBI                                                                                      \
  .norm_eps = 1e-5, .rope_theta = 1e4, .tied = true, .norm = NORM_LAYER, .rotary = true,           \
  .alibi = true

static const family_t rows[] = {
    {ALIBI, NAMES("bloom", "BloomForCausalLM"), .tags_by_classifier = true, .layout = &layout_bloom,
     SIZES(250880, 64, 0, 2, 8, 0, 0, 2048), IDS(2, 1), .activation = "gelu_pytorch_tanh",
     .qkv_bias = true, .o_bias = true, .mlp_bias = true, .embed_norm = true},
    {ALIBI, NAMES("mpt", "MptForCausalLM"), .tags_by_classifier = true, .layout = &layout_mpt,
     SIZES(50368, 2048, 0, 24, 16, 0, 0, 2048), IDS(-1, -1), .activation = "gelu",
     .mpt_keys = true},
};

const family_table_t lineage_bloom = {rows, ARRAY_LEN(rows), NULL, 0};
