/* phi.c: Phi-1 to Phi-4, and Phi-3.5-MoE.
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

#define LAYER_NORM(role, name) BIASED_NORM(role, "layers.#." name, NULL, WHEN_ALWAYS)
static const tensor_pattern_t phimoe_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("norm", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_HEAD_BIAS),
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    LAYER_NORM(ROLE_MLP_NORM, "post_attention_layernorm"),
    PROJECTION_ROWS,
    ROUTER("block_sparse_moe.gate", WHEN_NEVER),
    EXPERTS("block_sparse_moe.experts.*.", "w1", "w3", "w2"),
};

static const layout_t layout_phi3 = {LLAMA_LIKE(phi3_patterns)};
static const layout_t layout_phi = {LLAMA_LIKE(phi_patterns)};
static const layout_t layout_phimoe = {LLAMA_LIKE(phimoe_patterns)};

#define PHIMOE                                                                                     \
  LLAMA_PARTS, .layout = &layout_phimoe, SIZES(32064, 4096, 6400, 32, 32, 8, 0, 131072),           \
               IDS(2, 1), .norm_eps = 1e-5, .norm_eps_key = "rms_norm_eps", .rope_theta = 1e6,     \
               .norm = NORM_LAYER, .attention_bias_key = "attention_bias",                         \
               .head_bias_key = "lm_head_bias", .window_rule = WINDOW_ALL,                         \
               .expert_keys = EXPERTS_MIXTRAL, .num_experts = 16, .experts_top = 2,                \
               .routing = ROUTING_MIXER

static const family_t rows[] = {
    {NAMES("phi", "PhiForCausalLM"), .layout = &layout_phi,
     SIZES(51200, 2048, 8192, 24, 32, 0, 0, 2048), IDS(2, 1), .norm_eps = 1e-5, .rope_theta = 1e4,
     .activation = "gelu_new", .norm = NORM_LAYER, .rotary = true, .grouped = true,
     .qkv_bias = true, .o_bias = true, .mlp_bias = true, .block = BLOCK_PARALLEL,
     .rotary_factor = 0.5, .shared_norm = true},
    {LLAMA_PARTS, NAMES("phi3", "Phi3ForCausalLM"), .layout = &layout_phi3,
     SIZES(32064, 3072, 8192, 32, 32, 0, 0, 4096), IDS(32000, 1), .norm_eps = 1e-5,
     .window_rule = WINDOW_ALL, .longrope = true},
    {PHIMOE, NAMES("phimoe", "PhimoeForCausalLM")},
    /* As published, with remote code. */
    {PHIMOE, NAMES("phimoe", "PhiMoEForCausalLM")},
};

static const gguf_name_t gguf[] = {
    {"phi3", "Phi3ForCausalLM", WINDOWED, 0},
    {"phi2", "PhiForCausalLM", LAYER_NORMS, 0},
};

const family_table_t lineage_phi = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
