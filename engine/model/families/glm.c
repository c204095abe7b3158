/* glm.c: GLM-4 to GLM-4.7, and dots.llm1 and Solar Open, which have its experts.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t glm_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    GGUF_FUSED,
    LAYER(ROLE_Q, "self_attn.q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_APART,
          WHEN_QKV_BIAS_APART),
    LAYER(ROLE_K, "self_attn.k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART,
          WHEN_QKV_BIAS_APART),
    LAYER(ROLE_V, "self_attn.v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART,
          WHEN_QKV_BIAS_APART),
    OUT_PROJECTION,
    FUSED_MLP_ROWS,
};

static const tensor_pattern_t glm4_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    NORM(ROLE_ATTN_OUT_NORM, "post_self_attn_layernorm", "post_attention_norm"),
    NORM(ROLE_MLP_OUT_NORM, "post_mlp_layernorm", "post_ffw_norm"),
    ATTENTION_ROWS,
    FUSED_MLP_ROWS,
};

#define ROUTED_ROWS                                                                                \
  ATTENTION_ROWS, DENSE_ROWS, ROUTER("mlp.gate", WHEN_NEVER),                                      \
      CHOICE_BIAS("mlp.gate.e_score_correction_bias"), NUMBERED_EXPERTS,                           \
      SHARED_ROWS("mlp.shared_experts.")

/* GLM-4.5 and Solar Open. */
static const tensor_pattern_t glm4_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS_AS("post_attention_norm"),
    ROUTED_ROWS,
};

static const tensor_pattern_t dots_patterns[] = {DECODER_ROWS, PRE_NORMS, ROUTED_ROWS};

static const layout_t layout_glm = {LLAMA_LIKE(glm_patterns)};
static const layout_t layout_glm4 = {LLAMA_LIKE(glm4_patterns)};
static const layout_t layout_glm4_moe = {LLAMA_LIKE(glm4_moe_patterns)};
static const layout_t layout_dots = {LLAMA_LIKE(dots_patterns)};

#define GLM                                                                                        \
  LLAMA_PARTS, .layout = &layout_glm, SIZES(151552, 4096, 13696, 40, 32, 2, 128, 131072),          \
               IDS(151329, -1), .norm_eps = 1.5625e-7, .qkv_bias = true,                           \
               .qkv_bias_key = "attention_bias", .rotary_factor = 0.5, .rope_pairs = true
#define GLM4_MOE                                                                                   \
  LLAMA_PARTS, .layout = &layout_glm4_moe, SIZES(151552, 4096, 10944, 46, 96, 8, 0, 131072),       \
               IDS(-1, -1), .norm_eps = 1e-5, .qkv_bias_key = "attention_bias",                    \
               .qk_norm_key = "use_qk_norm", .rotary_factor = 0.5, .mtp = MTP_BEHIND,              \
               .expert_keys = EXPERTS_DEEPSEEK, .num_experts = 128, .experts_top = 8,              \
               .expert_size = 1408, .routing = ROUTING_SIGMOID, .num_shared = 1, .dense_first = 1, \
               .num_groups = 1, .groups_top = 1, .shares_sum = true, .share_factor = 1.0

static const family_t rows[] = {
    {GLM, NAMES("glm", "GlmForCausalLM")},
    {GLM, NAMES("glm4", "Glm4ForCausalLM"), .layout = &layout_glm4, .block = BLOCK_SANDWICH},
    /* The text of GLM-4.1V: all dimensions of a head are rotated. */
    {LLAMA_PARTS, NAMES("glm4v", "Glm4vForConditionalGeneration"), TEXT_OF("glm4v_text"),
     .layout = &layout_glm4, SIZES(151552, 4096, 13696, 40, 32, 2, 0, 32768), IDS(-1, -1),
     .norm_eps = 1e-5, .qkv_bias = true, .block = BLOCK_SANDWICH, .rotary_factor = 1.0,
     .rope_pairs = true, .text_ties = true},
    {LLAMA_PARTS, NAMES("glm_ocr", "GlmOcrForConditionalGeneration"), TEXT_OF("glm_ocr_text"),
     .layout = &layout_glm4, SIZES(59392, 1024, 4096, 16, 16, 8, 0, 131072), IDS(-1, -1),
     .norm_eps = 1e-5, .block = BLOCK_SANDWICH, .rotary_factor = 1.0, .rope_pairs = true,
     .text_ties = true},
    {GLM4_MOE, NAMES("glm4_moe", "Glm4MoeForCausalLM")},
    {GLM4_MOE, NAMES("solar_open", "SolarOpenForCausalLM"),
     SIZES(196608, 4096, 10944, 48, 64, 8, 128, 131072), .rope_theta = 1e6, .qk_norm_key = NULL,
     .rotary_factor = 1.0, .mtp = MTP_NONE, .expert_size = 1280, .dense_rule = DENSE_LISTED,
     .dense_first = 0},
    {GLM4_MOE, NAMES("glm4v_moe", "Glm4vMoeForConditionalGeneration"), TEXT_OF("glm4v_moe_text"),
     SIZES(151424, 4096, 10944, 46, 96, 8, 0, 65536), .qkv_bias = true, .qk_norm_key = NULL,
     .mtp = MTP_NONE, .text_ties = true},
    {LLAMA_PARTS, NAMES("dots1", "Dots1ForCausalLM"), .layout = &layout_dots,
     SIZES(152064, 4608, 10944, 62, 32, 32, 0, 2048), IDS(-1, -1), .window = 4096,
     .attention_bias_key = "attention_bias", .qk_norm = true, .window_rule = WINDOW_FROM,
     .expert_keys = EXPERTS_DEEPSEEK, .expert_size = 1408, .routing = ROUTING_SIGMOID,
     .num_groups = 1, .groups_top = 1, .share_factor = 1.0},
    {GLM4_MOE,
     NAMES("glm4_moe_lite", "Glm4MoeLiteForCausalLM"),
     .layout = &layout_deepseek3,
     SIZES(154880, 2048, 10240, 47, 20, 0, 0, 202752),
     IDS(1, 0),
     .grouped = false,
     .qkv_bias_key = NULL,
     .attention_bias_key = "attention_bias",
     .qk_norm_key = NULL,
     .rotary_factor = 1.0,
     .rope_pairs = true,
     .num_experts = 64,
     .experts_top = 4,
     .expert_size = 1536,
     .latent = true,
     .kv_rank = 512,
     .q_rank = 768,
     .nope_dim = 192,
     .rope_dim = 64,
     .value_dim = 256,
     .rope_interleave_key = true,
     .dense_rule = DENSE_LISTED,
     .share_factor = 1.8},
};

static const gguf_name_t gguf[] = {
    {"chatglm", "GlmForCausalLM", NEEDS_NOTHING, 0},
    {"glm4", "Glm4ForCausalLM", NEEDS_NOTHING, 0},
    {"glm4moe", "Glm4MoeForCausalLM", SCORED_EXPERTS, 0},
    {"dots1", "Dots1ForCausalLM", SCORED_EXPERTS, 0},
};

const family_table_t lineage_glm = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
