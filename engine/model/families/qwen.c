/* qwen.c: Qwen 2 to 3.5, the text of those that see images, and Mellum.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define QWEN_ROWS                                                                                  \
  DECODER_ROWS, PRE_NORMS, ATTENTION_ROWS, DENSE_ROWS, ROUTER("mlp.gate", WHEN_NEVER)

static const tensor_pattern_t qwen_moe_patterns[] = {
    QWEN_ROWS,
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_expert."),
    SHARED_SWITCH,
};

/* Turned as published, in rows as transformers saves them. */
static const tensor_pattern_t qwen3_vl_moe_patterns[] = {
    QWEN_ROWS,
    STACKS(WHEN_EXPERTS_EACH, FORM_STACK_TRANSPOSED),
    STACKS(WHEN_EXPERTS_STACKED, FORM_STACK),
};

/* Qwen3-Next and Qwen3.5: gated DeltaNet. The gate of attention's output stands in q_proj, head by
 * head. */
#define DELTA_ROWS                                                                                 \
  DECODER_ROWS, PRE_NORMS_AS("post_attention_norm"), ATTENTION_ROWS,                               \
      ATTENTION(ROLE_ATTN_GATE, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_NEVER),                \
      MIX_CONV("linear_attn.conv1d", "ssm_conv1d", WHEN_NEVER),                                    \
      MIX_VECTOR(ROLE_MIX_DECAY, "linear_attn.A_log!", "ssm_a!", DIM_MIX_HEADS),                   \
      MIX_VECTOR(ROLE_MIX_BIAS, "linear_attn.dt_bias!", "ssm_dt.bias!", DIM_MIX_HEADS),            \
      MIX_VECTOR(ROLE_MIX_NORM, "linear_attn.norm", "ssm_norm", DIM_MIX_NORM),                     \
      MIX_OUT("linear_attn.out_proj", "ssm_out", WHEN_NEVER), DENSE_ROWS,                          \
      ROUTER("mlp.gate", WHEN_NEVER), SHARED_ROWS("mlp.shared_expert."), SHARED_SWITCH,            \
      EXPERTS_APART, GGUF_EXPERTS(WHEN_NEVER)
#define DELTA_RATE(role, name, gguf, rows)                                                         \
  LAYER(role, "linear_attn." name, gguf, rows, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER)

static const tensor_pattern_t qwen3_next_patterns[] = {
    DELTA_ROWS,
    MIX_IN("linear_attn.in_proj_qkvz", "attn_qkv", WHEN_NEVER),
    GGUF(ROLE_MIX_Z, "attn_gate", DIM_MIX_INNER, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN),
    DELTA_RATE(ROLE_MIX_RATE, "in_proj_ba", "ssm_ba", DIM_MIX_HEADS_2),
};

static const tensor_pattern_t qwen3_5_patterns[] = {
    DELTA_ROWS,
    MIX_IN("linear_attn.in_proj_qkv", "attn_qkv", WHEN_NEVER),
    DELTA_RATE(ROLE_MIX_Z, "in_proj_z", "attn_gate", DIM_MIX_INNER),
    DELTA_RATE(ROLE_MIX_RATE, "in_proj_b", "ssm_beta", DIM_MIX_HEADS),
    DELTA_RATE(ROLE_MIX_STEP, "in_proj_a", "ssm_alpha", DIM_MIX_HEADS),
    STACKS(WHEN_EXPERTS_STACKED, FORM_STACK),
};

const layout_t layout_qwen_moe = {LLAMA_LIKE(qwen_moe_patterns)};
static const layout_t layout_qwen3_vl_moe = {LLAMA_LIKE(qwen3_vl_moe_patterns), .may_stack = true};
static const layout_t layout_qwen3_next = {LLAMA_LIKE(qwen3_next_patterns)};
static const layout_t layout_qwen3_5 = {LLAMA_LIKE(qwen3_5_patterns), .may_stack = true};

#define QWEN3                                                                                      \
  LLAMA_PARTS, SIZES(151936, 4096, 22016, 32, 32, 32, 128, 32768), IDS(-1, -1),                    \
      .window = 4096, .rope_theta = 0, .attention_bias_key = "attention_bias", .qk_norm = true,    \
      .window_rule = WINDOW_UPPER
#define QWEN2_VL                                                                                   \
  LLAMA_PARTS, SIZES(152064, 8192, 29568, 80, 64, 8, 0, 32768), IDS(151645, 151643),               \
      .window = 4096, .norm_eps = 1e-5, .rope_theta = 1e6, .qkv_bias = true,                       \
      .window_rule = WINDOW_UPPER, .flat_too = true, .text_ties = true, .mrope = MROPE_PARTS,      \
      .mrope_sections = {16, 24, 24}
#define QWEN3_VL                                                                                   \
  LLAMA_PARTS, SIZES(151936, 4096, 22016, 32, 32, 32, 128, 128000), IDS(-1, -1),                   \
      .rope_theta = 5e5, .attention_bias_key = "attention_bias", .qk_norm = true,                  \
      .mrope = MROPE_INTERLEAVED, .mrope_sections = {24, 20, 20}
#define QWEN3_MOE                                                                                  \
  QWEN3, .layout = &layout_qwen_moe, SIZES(151936, 2048, 6144, 24, 32, 4, 0, 32768), .window = 0,  \
         .window_rule = WINDOW_REFUSED, .expert_keys = EXPERTS_QWEN, .num_experts = 128,           \
         .experts_top = 8, .expert_size = 768
#define QWEN3_NEXT                                                                                 \
  LLAMA_PARTS, .layout = &layout_qwen3_next, SIZES(151936, 2048, 5632, 48, 16, 2, 256, 32768),     \
               IDS(-1, -1), .qk_norm = true, .norm_plus_one = true, .rotary_factor = 0.25,         \
               .attn_gate = true, .mixer_keys = MIXERS_DELTA_BY_GROUP, .mtp = MTP_APART,           \
               .expert_keys = EXPERTS_QWEN, .num_experts = 512, .experts_top = 10,                 \
               .expert_size = 512, .shared_size = 512, .shares_sum = true
#define QWEN3_5_MROPE .mrope = MROPE_INTERLEAVED, .mrope_sections = {11, 11, 10}
#define QWEN3_5_TEXT                                                                               \
  LLAMA_PARTS, QWEN3_5_MROPE,                                                                      \
      .layout = &layout_qwen3_5, SIZES(248320, 4096, 12288, 32, 16, 4, 256, 32768), IDS(-1, -1),   \
      .qk_norm = true, .norm_plus_one = true, .rotary_factor = 0.25, .attn_gate = true,            \
      .mixer_keys = MIXERS_DELTA, .mtp = MTP_APART
#define QWEN3_5_MOE_TEXT                                                                           \
  QWEN3_NEXT, QWEN3_5_MROPE, .layout = &layout_qwen3_5,                                            \
                             SIZES(248320, 2048, 5632, 40, 16, 2, 256, 32768),                     \
                             .mixer_keys = MIXERS_DELTA, .num_experts = 256, .experts_top = 8

static const family_t rows[] = {
    /* Qwen 2 has q, k and v biases although no key says so. */
    {LLAMA_PARTS, NAMES("qwen2", "Qwen2ForCausalLM"),
     SIZES(151936, 4096, 22016, 32, 32, 32, 0, 32768), IDS(-1, -1), .window = 4096, .rope_theta = 0,
     .qkv_bias = true, .qk_norm_key = "qk_norm", .window_rule = WINDOW_UPPER},
    {QWEN3, NAMES("qwen3", "Qwen3ForCausalLM")},
    /* The text parts of models that see images; mrope turns text as plain rope does. */
    {QWEN2_VL, NAMES("qwen2_vl", "Qwen2VLForConditionalGeneration"), TEXT_OF("qwen2_vl_text")},
    {QWEN2_VL, NAMES("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
     TEXT_OF("qwen2_5_vl_text")},
    {QWEN2_VL, NAMES("qwen2_5_omni", "Qwen2_5OmniThinkerForConditionalGeneration"),
     TEXT_OF("qwen2_5_omni_text"), SIZES(152064, 3584, 18944, 28, 28, 4, 0, 32768), IDS(-1, -1),
     .window = 32768, .norm_eps = 1e-6, .text_ties = false},
    {QWEN3_VL, NAMES("qwen3_vl", "Qwen3VLForConditionalGeneration"), TEXT_OF("qwen3_vl_text")},
    {LLAMA_PARTS, NAMES("qwen2_moe", "Qwen2MoeForCausalLM"), .layout = &layout_qwen_moe,
     SIZES(151936, 2048, 5632, 24, 16, 0, 0, 32768), IDS(-1, -1), .rope_theta = 0, .qkv_bias = true,
     .qkv_bias_key = "qkv_bias", .window_rule = WINDOW_REFUSED, .expert_keys = EXPERTS_QWEN,
     .num_experts = 60, .experts_top = 4, .expert_size = 1408, .shared_size = 5632},
    {QWEN3_MOE, NAMES("qwen3_moe", "Qwen3MoeForCausalLM")},
    /* The text parts of models that see images. */
    {QWEN3_VL, NAMES("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
     TEXT_OF("qwen3_vl_moe_text"), .layout = &layout_qwen3_vl_moe,
     SIZES(151936, 2048, 5632, 24, 16, 16, 0, 128000), .expert_keys = EXPERTS_QWEN,
     .num_experts = 60, .experts_top = 4, .expert_size = 1408, .shares_sum = true},
    {QWEN3_MOE, NAMES("qwen3_omni_moe", "Qwen3OmniMoeThinkerForConditionalGeneration"),
     TEXT_OF("qwen3_omni_moe_text"), SIZES(3584, 2048, 18944, 28, 28, 4, 0, 32768),
     .rope_theta = 1e6, .shares_sum = true},
    /* Mellum 2 of JetBrains: Qwen3-MoE with windows, which have angles of their own. */
    {QWEN3_MOE, NAMES("mellum", "MellumForCausalLM"),
     SIZES(98304, 2304, 7168, 28, 32, 4, 128, 131072), .window = 1024, .rope_theta = 5e5,
     .window_rule = WINDOW_PATTERN, .window_pattern = 1, .local_theta = 1e4, .num_experts = 64,
     .expert_size = 896, .dense_rule = DENSE_LISTED, .shares_sum = true},
    {QWEN3_NEXT, NAMES("qwen3_next", "Qwen3NextForCausalLM")},
    {QWEN3_5_TEXT, NAMES("qwen3_5_text", "Qwen3_5ForCausalLM")},
    /* The text parts of models that see images. */
    {QWEN3_5_TEXT, NAMES("qwen3_5", "Qwen3_5ForConditionalGeneration"), TEXT_OF("qwen3_5_text")},
    {QWEN3_5_MOE_TEXT, NAMES("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM")},
    {QWEN3_5_MOE_TEXT, NAMES("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
     TEXT_OF("qwen3_5_moe_text")},
};

static const gguf_name_t gguf[] = {
    {"qwen2", "Qwen2ForCausalLM", NEEDS_NOTHING, 0},
    {"qwen2moe", "Qwen2MoeForCausalLM", NEEDS_NOTHING, 0},
    {"qwen3", "Qwen3ForCausalLM", NEEDS_NOTHING, 0},
    {"qwen3moe", "Qwen3MoeForCausalLM", NORMALISES, 0},
    /* The text parts of models that see images. */
    {"qwen2vl", "Qwen2ForCausalLM", SECTIONS, 0},
    {"qwen3vl", "Qwen3ForCausalLM", SECTIONS | BY_TURNS, 0},
    {"qwen3vlmoe", "Qwen3MoeForCausalLM", SECTIONS | BY_TURNS | NORMALISES, 0},
    {"qwen3next", "Qwen3NextForCausalLM", STATES | NORMALISES, 0},
    {"qwen35", "Qwen3_5ForCausalLM", STATES | SECTIONS, 0},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", STATES | SECTIONS | NORMALISES, 0},
};

const family_table_t lineage_qwen = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
