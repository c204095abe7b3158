/* cohere.c: Command R, Command A and A+: one norm a layer, without biases.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define HEADS_NORM(role, name, gguf, rows)                                                         \
  {                                                                                                \
    role, "layers.#.self_attn." name, "blk.#." gguf, rows, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER,     \
        FORM_HEADS                                                                                 \
  }
static const tensor_pattern_t cohere_patterns[] = {
    DECODER_ROWS,
    NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),
    PROJECTION_ROWS,
    HEADS_NORM(ROLE_Q_NORM, "q_norm", "attn_q_norm", DIM_Q_NORM),
    HEADS_NORM(ROLE_K_NORM, "k_norm", "attn_k_norm", DIM_K_NORM),
    DENSE_ROWS,
};

static const tensor_pattern_t cohere_moe_patterns[] = {
    DECODER_ROWS,
    NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),
    PROJECTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    EXPERTS("mlp.experts.*.", "gate_proj", "up_proj", "down_proj"),
    SHARED_ROWS("mlp.shared_experts."),
};

static const layout_t layout_cohere_moe = {LLAMA_LIKE(cohere_moe_patterns)};
static const layout_t layout_cohere = {LLAMA_LIKE(cohere_patterns)};

#define COHERE                                                                                     \
  LLAMA_PARTS, .layout = &layout_cohere, SIZES(256000, 8192, 22528, 40, 64, 0, 0, 8192),           \
               IDS(255001, 5), .norm_eps = 1e-5, .rope_theta = 5e5, .tied = true,                  \
               .norm = NORM_LAYER, .attention_bias_key = "attention_bias",                         \
               .qk_norm_key = "use_qk_norm", .block = BLOCK_PARALLEL, .qk_norm_each = true,        \
               .rope_pairs = true, .shared_norm = true, .logit_scale = 0.0625

static const family_t rows[] = {
    {COHERE, NAMES("cohere", "CohereForCausalLM")},
    /* The layers that see the whole context have no rotation. */
    {COHERE, NAMES("cohere2", "Cohere2ForCausalLM"), .window = 4096, .rope_theta = 1e4,
     .qk_norm_key = NULL, .window_rule = WINDOW_PATTERN, .window_pattern = 4,
     .full_rule = FULL_UNROTATED, .qk_norm_each = false},
    {COHERE, NAMES("cohere2_moe", "Cohere2MoeForCausalLM"), .layout = &layout_cohere_moe,
     .head_dim = 128, .window = 4096, .rope_theta = 1e4, .qk_norm_key = NULL,
     .window_rule = WINDOW_PATTERN, .window_pattern = 4, .full_rule = FULL_UNROTATED,
     .qk_norm_each = false, .rms_by_key = true, .expert_keys = EXPERTS_COHERE, .num_experts = 8,
     .experts_top = 2, .routing = ROUTING_SOFTMAX, .dense_rule = DENSE_EITHER},
};

static const gguf_name_t gguf[] = {
    {"command-r", "CohereForCausalLM", LAYER_NORMS | LOGIT_SCALE, 0},
    {"cohere2", "Cohere2ForCausalLM", LAYER_NORMS | LOGIT_SCALE | WINDOWED, 0},
};

const family_table_t lineage_cohere = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
