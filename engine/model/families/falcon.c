/* falcon.c: Falcon of both generations, and Falcon-H1.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* Blocks of the second generation with two norms call them ln_attn and ln_mlp; in GGUF files the
 * one of the MLP has the plain name. */
static const tensor_pattern_t falcon_patterns[] = {
    EMBED("word_embeddings"),
    FINAL_NORM("ln_f", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.input_layernorm", "blk.#.attn_norm", WHEN_ONE_INPUT),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.ln_attn", "blk.#.attn_norm_2", WHEN_TWO_INPUTS),
    BIASED_NORM(ROLE_MLP_NORM, "h.#.ln_mlp", "blk.#.attn_norm", WHEN_TWO_INPUTS),
    BIASED_NORM(ROLE_MLP_NORM, "h.#.post_attention_layernorm", NULL, WHEN_SERIAL),
    ROW(ROLE_QKV, "h.#.self_attention.query_key_value", "blk.#.attn_qkv", DIM_QKV, DIM_HIDDEN,
        WHEN_ALWAYS, WHEN_QKV_BIAS),
    ROW(ROLE_O, "h.#.self_attention.dense", "blk.#.attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS,
        WHEN_O_BIAS),
    ROW(ROLE_UP, "h.#.mlp.dense_h_to_4h", "blk.#.ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_DENSE,
        WHEN_DENSE_BIAS),
    ROW(ROLE_DOWN, "h.#.mlp.dense_4h_to_h", "blk.#.ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_DENSE,
        WHEN_DENSE_BIAS),
};

static const layout_t layout_falcon = {
    PATTERNS(falcon_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {ROTARY_BUFFERS},
    .qkv_grouped = true,
};

static const family_t rows[] = {
    {NAMES("falcon", "FalconForCausalLM"), .tags_by_classifier = true, .layout = &layout_falcon,
     SIZES(65024, 4544, 0, 32, 71, 0, 0, 2048), IDS(11, 11), .norm_eps = 1e-5, .rope_theta = 1e4,
     .activation = "gelu", .tied = true, .norm = NORM_LAYER, .rotary = true, .grouped = true,
     .attention_bias_key = "bias", .mlp_bias_key = "bias", .block = BLOCK_PARALLEL,
     .parallel_key = "parallel_attn", .shared_norm = true, .falcon_keys = true,
     .multi_query = true},
    {LLAMA_PARTS, NAMES("falcon_h1", "FalconH1ForCausalLM"), .layout = &layout_bamba,
     SIZES(128000, 4096, 14336, 32, 32, 8, 0, 8192), IDS(2, 1), .norm_eps = 1e-5,
     .mixer_keys = MIXERS_FALCON},
};

static const gguf_name_t gguf[] = {
    {"falcon", "FalconForCausalLM", LAYER_NORMS | PARALLEL, 0},
    {"falcon-h1", "FalconH1ForCausalLM", STATES, 0},
};

const family_table_t lineage_falcon = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
