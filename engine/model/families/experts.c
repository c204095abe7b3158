/* experts.c: mixtures of experts that stand alone: gpt-oss, ERNIE 4.5, MiniMax M2.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* Published files of gpt-oss have MXFP4 blocks. Files saved again by transformers have plain
 * numbers, transposed in comparison to the blocks. */
#define OSS_EXPERTS(role, name, rows, cols, when, form)                                            \
  STORED(role, "mlp.experts." name "!", rows, cols, when, WHEN_NEVER, form)
#define OSS_BIAS(role, name, rows)                                                                 \
  STORED(role, "mlp.experts." name "!", rows, DIM_NONE, WHEN_NEVER, WHEN_EXPERTS, FORM_STACK)
static const tensor_pattern_t gpt_oss_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS_AS("post_attention_norm"),
    ATTENTION_ROWS,
    LAYER(ROLE_SINKS, "self_attn.sinks!", "attn_sinks", DIM_HEADS, DIM_NONE, WHEN_ALWAYS,
          WHEN_NEVER),
    ROUTER("mlp.router", WHEN_EXPERTS),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP, "gate_up_proj", DIM_EXPERT_UP, DIM_HIDDEN, WHEN_EXPERTS_PLAIN,
                FORM_STACK_TRANSPOSED),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP, "gate_up_proj_blocks", DIM_EXPERT_UP, DIM_HIDDEN,
                WHEN_EXPERTS_MXFP4, FORM_STACK_BLOCKS),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP_SCALES, "gate_up_proj_scales", DIM_EXPERT_UP, DIM_HIDDEN,
                WHEN_EXPERTS_MXFP4, FORM_STACK_SCALES),
    OSS_BIAS(ROLE_EXPERT_GATE_UP, "gate_up_proj_bias", DIM_EXPERT_UP),
    OSS_EXPERTS(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_PLAIN,
                FORM_STACK_TRANSPOSED),
    OSS_EXPERTS(ROLE_EXPERT_DOWN, "down_proj_blocks", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_MXFP4,
                FORM_STACK_BLOCKS),
    OSS_EXPERTS(ROLE_EXPERT_DOWN_SCALES, "down_proj_scales", DIM_HIDDEN, DIM_EXPERT,
                WHEN_EXPERTS_MXFP4, FORM_STACK_SCALES),
    OSS_BIAS(ROLE_EXPERT_DOWN, "down_proj_bias", DIM_HIDDEN),
    GGUF_EXPERTS(WHEN_EXPERTS),
};

/* The bias of the choice is a row of a matrix in safetensors. */
static const tensor_pattern_t ernie_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    STORED(ROLE_CHOICE_BIAS, "mlp.moe_statics.e_score_correction_bias!", DIM_EXPERTS, DIM_NONE,
           WHEN_SCORED, WHEN_NEVER, FORM_ROW),
    GGUF(ROLE_CHOICE_BIAS, "exp_probs_b.bias!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED, WHEN_NEVER,
         FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

static const tensor_pattern_t minimax_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    ROUTER("block_sparse_moe.gate", WHEN_NEVER),
    CHOICE_BIAS("block_sparse_moe.e_score_correction_bias"),
    EXPERTS("block_sparse_moe.experts.*.", "w1", "w3", "w2"),
    GGUF_EXPERTS(WHEN_NEVER),
};

static const layout_t layout_gpt_oss = {LLAMA_LIKE(gpt_oss_patterns), .experts_interleaved = true};
static const layout_t layout_ernie_moe = {LLAMA_LIKE(ernie_patterns)};
static const layout_t layout_minimax = {LLAMA_LIKE(minimax_patterns)};

static const family_t rows[] = {
    {LLAMA_PARTS, NAMES("gpt_oss", "GptOssForCausalLM"), .layout = &layout_gpt_oss,
     SIZES(201088, 2880, 2880, 36, 64, 8, 64, 131072), IDS(-1, -1), .window = 128, .norm_eps = 1e-5,
     .rope_theta = 150000, .attention_bias_key = "attention_bias", .bias_default = true,
     .window_rule = WINDOW_EVEN, .sinks = true, .expert_keys = EXPERTS_GPT_OSS, .num_experts = 128,
     .experts_top = 4},
    {LLAMA_PARTS, NAMES("ernie4_5", "Ernie4_5ForCausalLM"),
     SIZES(103424, 1024, 3072, 18, 16, 2, 128, 131072), IDS(2, 1), .norm_eps = 1e-5,
     .rope_theta = 5e5, .tied = true, .attention_bias_key = "use_bias", .mlp_bias_key = "use_bias",
     .rope_pairs = true},
    /* The same with rotated pairs in halves. */
    {LLAMA_PARTS, NAMES("paddleocr_vl", "PaddleOCRVLForConditionalGeneration"),
     TEXT_OF("paddleocr_vl_text"), .flat_too = true, .text_ties = true,
     SIZES(103424, 1024, 3072, 18, 16, 2, 128, 131072), IDS(2, 1), .norm_eps = 1e-5,
     .rope_theta = 5e5, .tied = true, .attention_bias_key = "use_bias", .mlp_bias_key = "use_bias"},
    {LLAMA_PARTS, NAMES("ernie4_5_moe", "Ernie4_5_MoeForCausalLM"), .layout = &layout_ernie_moe,
     SIZES(103424, 2560, 12288, 28, 20, 4, 0, 131072), IDS(2, 1), .norm_eps = 1e-5,
     .rope_theta = 5e5, .tied = true, .rope_pairs = true, .expert_keys = EXPERTS_ERNIE,
     .num_experts = 64, .experts_top = 6, .expert_size = 1536, .routing = ROUTING_SOFTMAX,
     .num_shared = 2},
    {LLAMA_PARTS, NAMES("minimax_m2", "MiniMaxM2ForCausalLM"), .layout = &layout_minimax,
     SIZES(200064, 3072, 1536, 62, 48, 8, 128, 196608), IDS(200020, 200034), .rope_theta = 5e6,
     .qk_norm = true, .qk_norm_whole = true, .rotary_factor = 1.0, .expert_keys = EXPERTS_MINIMAX,
     .num_experts = 256, .experts_top = 8, .routing = ROUTING_SIGMOID, .rotary_dim_key = true},
};

static const gguf_name_t gguf[] = {
    {"gpt-oss", "GptOssForCausalLM", WINDOWED | YARN_IS_EXACT, 0},
    {"ernie4_5", "Ernie4_5ForCausalLM", NEEDS_NOTHING, 0},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", SCORED_EXPERTS, 0},
    {"minimax-m2", "MiniMaxM2ForCausalLM", SCORED_EXPERTS, 0},
};

const family_table_t lineage_experts = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
