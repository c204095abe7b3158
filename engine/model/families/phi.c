/* phi.c: Phi-1 to Phi-4.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t phi3_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION(ROLE_QKV, "qkv_proj", "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_QKV_BIAS),
    OUT_PROJECTION,
    FUSED_MLP_ROWS,
};

#define PROJECTION(role, name, gguf, rows)                                                         \
  LAYER(role, "self_attn." name, gguf, rows, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART)
static const tensor_pattern_t phi_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("final_layernorm", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_HEAD),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", "blk.#.attn_norm", WHEN_ALWAYS),
    GGUF_FUSED,
    PROJECTION(ROLE_Q, "q_proj", "attn_q", DIM_Q),
    PROJECTION(ROLE_K, "k_proj", "attn_k", DIM_KV),
    PROJECTION(ROLE_V, "v_proj", "attn_v", DIM_KV),
    ATTENTION(ROLE_O, "dense", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    UP("fc1"),
    DOWN("fc2"),
};

static const layout_t layout_phi3 = {LLAMA_LIKE(phi3_patterns)};
static const layout_t layout_phi = {LLAMA_LIKE(phi_patterns)};

static const family_t rows[] = {
    {NAMES("phi", "PhiForCausalLM"), .layout = &layout_phi,
     SIZES(51200, 2048, 8192, 24, 32, 0, 0, 2048), IDS(2, 1), .norm_eps = 1e-5, .rope_theta = 1e4,
     .activation = "gelu_new", .norm = NORM_LAYER, .rotary = true, .grouped = true,
     .qkv_bias = true, .o_bias = true, .mlp_bias = true, .block = BLOCK_PARALLEL,
     .rotary_factor = 0.5, .shared_norm = true},
    {LLAMA_PARTS, NAMES("phi3", "Phi3ForCausalLM"), .layout = &layout_phi3,
     SIZES(32064, 3072, 8192, 32, 32, 0, 0, 4096), IDS(32000, 1), .norm_eps = 1e-5,
     .window_rule = WINDOW_ALL, .longrope = true},
};

static const gguf_name_t gguf[] = {
    {"phi3", "Phi3ForCausalLM", WINDOWED, 0},
    {"phi2", "PhiForCausalLM", LAYER_NORMS, 0},
};

const family_table_t lineage_phi = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
