/* deepseek.c: DeepSeek V2, V3 and V3.2, GLM-5, Youtu and Mistral 4: attention by way of a latent
 * row.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* GGUF files of 2024 have K and V of all heads in one tensor, attn_kv_b. */
#define LATENT(role, name, gguf, rows, cols, when, bias)                                           \
  LAYER(role, "self_attn." name, gguf, rows, cols, when, bias)
#define DEEPSEEK_ROWS                                                                              \
  DECODER_ROWS, PRE_NORMS,                                                                         \
      LATENT(ROLE_Q, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_Q_WHOLE, WHEN_NEVER),             \
      LATENT(ROLE_Q_DOWN, "q_a_proj", "attn_q_a", DIM_Q_RANK, DIM_HIDDEN, WHEN_Q_RANK,             \
             WHEN_Q_RANK_BIAS),                                                                    \
      LATENT(ROLE_Q_DOWN_NORM, "q_a_layernorm", "attn_q_a_norm", DIM_Q_RANK, DIM_NONE,             \
             WHEN_Q_RANK, WHEN_NEVER),                                                             \
      LATENT(ROLE_Q_UP, "q_b_proj", "attn_q_b", DIM_Q, DIM_Q_RANK, WHEN_Q_RANK, WHEN_NEVER),       \
      LATENT(ROLE_LATENT, "kv_a_proj_with_mqa", "attn_kv_a_mqa", DIM_LATENT_ROW, DIM_HIDDEN,       \
             WHEN_ALWAYS, WHEN_QKV_BIAS),                                                          \
      LATENT(ROLE_LATENT_NORM, "kv_a_layernorm", "attn_kv_a_norm", DIM_LATENT, DIM_NONE,           \
             WHEN_ALWAYS, WHEN_NEVER),                                                             \
      LATENT(ROLE_LATENT_UP, "kv_b_proj", "attn_kv_b", DIM_LATENT_UP, DIM_LATENT,                  \
             WHEN_LATENT_WHOLE, WHEN_NEVER),                                                       \
      GGUF(ROLE_LATENT_KEY, "attn_k_b", DIM_LATENT_KEY, DIM_NOPE, WHEN_LATENT_SPLIT, WHEN_NEVER,   \
           FORM_BY_HEAD),                                                                          \
      GGUF(ROLE_LATENT_VALUE, "attn_v_b", DIM_LATENT_OUT, DIM_LATENT, WHEN_LATENT_SPLIT,           \
           WHEN_NEVER, FORM_BY_HEAD),                                                              \
      LATENT(ROLE_O, "o_proj", "attn_output", DIM_HIDDEN, DIM_LATENT_OUT, WHEN_ALWAYS,             \
             WHEN_O_BIAS),                                                                         \
      DENSE_ROWS, ROUTER("mlp.gate", WHEN_NEVER)

static const tensor_pattern_t deepseek2_patterns[] = {
    DEEPSEEK_ROWS,
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

static const tensor_pattern_t deepseek3_patterns[] = {
    DEEPSEEK_ROWS,
    CHOICE_BIAS("mlp.gate.e_score_correction_bias"),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

/* The indexer of a layer chooses the keys that its tokens attend to. */
#define INDEXER(role, name, rows, cols, bias)                                                      \
  STORED(role, "self_attn.indexer." name, rows, cols, WHEN_CHOOSES, bias, FORM_PLAIN)
static const tensor_pattern_t deepseek32_patterns[] = {
    DEEPSEEK_ROWS,
    INDEXER(ROLE_INDEX_Q, "wq_b", DIM_INDEX_Q, DIM_Q_RANK, WHEN_NEVER),
    INDEXER(ROLE_INDEX_KEY, "wk", DIM_INDEX_KEY, DIM_HIDDEN, WHEN_NEVER),
    INDEXER(ROLE_INDEX_NORM, "k_norm", DIM_INDEX_KEY, DIM_NONE, WHEN_CHOOSES),
    INDEXER(ROLE_INDEX_WEIGHTS, "weights_proj", DIM_INDEX_HEADS, DIM_HIDDEN, WHEN_NEVER),
    CHOICE_BIAS("mlp.gate.e_score_correction_bias"),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

static const tensor_pattern_t mistral4_patterns[] = {
    DEEPSEEK_ROWS,
    EXPERTS_APART,
    STACKS(WHEN_EXPERTS_STACKED, FORM_STACK),
    SHARED_ROWS("mlp.shared_experts."),
};

static const layout_t layout_deepseek2 = {LLAMA_LIKE(deepseek2_patterns)};
const layout_t layout_deepseek3 = {LLAMA_LIKE(deepseek3_patterns)};
static const layout_t layout_deepseek32 = {LLAMA_LIKE(deepseek32_patterns)};
static const layout_t layout_mistral4 = {LLAMA_LIKE(mistral4_patterns), .may_stack = true};

#define DEEPSEEK_V2                                                                                \
  LLAMA_PARTS, .layout = &layout_deepseek2, SIZES(102400, 4096, 11008, 32, 32, 0, 0, 2048),        \
               IDS(2, 1), .grouped = false, .attention_bias_key = "attention_bias",                \
               .rope_pairs = true, .expert_keys = EXPERTS_DEEPSEEK, .num_experts = 64,             \
               .expert_size = 1407, .latent = true, .kv_rank = 512, .q_rank = 1536,                \
               .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .routing = ROUTING_SOFTMAX,      \
               .num_shared = 2, .share_factor = 1.0

/* The groups of DeepSeek V3 with the scores of V2, and queries that grow. */
#define MISTRAL4                                                                                   \
  DEEPSEEK_V2, .layout = &layout_mistral4, SIZES(131072, 4096, 12288, 36, 32, 0, 0, 1048576),      \
               .rope_theta = 0, .query_growth = true, .num_experts = 128, .experts_top = 4,        \
               .expert_size = 2048, .kv_rank = 256, .q_rank = 1024, .nope_dim = 64,                \
               .rope_interleave_key = true, .whole_factor = true, .num_shared = 1,                 \
               .num_groups = 1, .groups_top = 1, .group_pairs = true, .shares_sum = true

#define DEEPSEEK_V3                                                                                \
  DEEPSEEK_V2, .layout = &layout_deepseek3, SIZES(129280, 7168, 18432, 61, 128, 0, 0, 4096),       \
               IDS(1, 0), .mtp = MTP_BEHIND, .num_experts = 256, .experts_top = 8,                 \
               .expert_size = 2048, .rope_interleave_key = true, .routing = ROUTING_SIGMOID,       \
               .num_shared = 1, .dense_first = 3, .num_groups = 8, .groups_top = 4,                \
               .shares_sum = true, .share_factor = 2.5
#define DEEPSEEK_V32                                                                               \
  DEEPSEEK_V3, .layout = &layout_deepseek32, SIZES(129280, 7168, 18432, 61, 128, 0, 0, 163840),    \
               .rope_interleave_key = false, .dense_rule = DENSE_EITHER, .index_heads = 64,        \
               .index_dim = 128, .index_top = 2048

static const family_t rows[] = {
    {DEEPSEEK_V2, NAMES("deepseek_v2", "DeepseekV2ForCausalLM")},
    {DEEPSEEK_V3, NAMES("deepseek_v3", "DeepseekV3ForCausalLM")},
    {DEEPSEEK_V32, NAMES("deepseek_v32", "DeepseekV32ForCausalLM")},
    {DEEPSEEK_V32, NAMES("glm_moe_dsa", "GlmMoeDsaForCausalLM"),
     SIZES(154880, 6144, 12288, 78, 64, 0, 0, 202752), .norm_eps = 1e-5, .q_rank = 2048,
     .nope_dim = 192, .value_dim = 256, .num_groups = 1, .groups_top = 1, .index_heads = 32,
     .index_pairs = true, .index_shared = true},
    /* DeepSeek V3 without experts. */
    {LLAMA_PARTS, NAMES("youtu", "YoutuForCausalLM"), .layout = &layout_deepseek3,
     SIZES(128256, 2048, 6144, 32, 16, 0, 0, 131072), IDS(128001, 128000), .tied = true,
     .grouped = false, .attention_bias_key = "attention_bias", .rope_pairs = true, .latent = true,
     .kv_rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128,
     .rope_interleave_key = true},
    {MISTRAL4, NAMES("mistral4", "Mistral4ForCausalLM")},
    {MISTRAL4, NAMES("mistral3_mistral4", "Mistral3ForConditionalGeneration"), TEXT_OF("mistral4"),
     .tied = true},
};

static const gguf_name_t gguf[] = {
    {"deepseek2", "DeepseekV3ForCausalLM", SCORED_EXPERTS | LATENT, 0},
};

const family_table_t lineage_deepseek = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
