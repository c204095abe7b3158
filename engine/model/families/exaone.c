/* exaone.c: EXAONE 3 and 4, and K-EXAONE.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* Llama with names of its own. */
#define EXAONE(role, name, gguf, rows, cols, bias)                                                 \
  ROW(role, "h.#." name, "blk.#." gguf, rows, cols, WHEN_ALWAYS, bias)
static const tensor_pattern_t exaone_patterns[] = {
    EMBED("wte"),
    FINAL_NORM("ln_f", WHEN_NEVER),
    HEAD("/lm_head", WHEN_NEVER),
    EXAONE(ROLE_ATTN_NORM, "ln_1", "attn_norm", DIM_HIDDEN, DIM_NONE, WHEN_NEVER),
    EXAONE(ROLE_MLP_NORM, "ln_2", "ffn_norm", DIM_HIDDEN, DIM_NONE, WHEN_NEVER),
    EXAONE(ROLE_Q, "attn.attention.q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),
    EXAONE(ROLE_K, "attn.attention.k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    EXAONE(ROLE_V, "attn.attention.v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    EXAONE(ROLE_O, "attn.attention.out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    EXAONE(ROLE_GATE, "mlp.c_fc_0", "ffn_gate", DIM_MLP, DIM_HIDDEN, WHEN_MLP_BIAS),
    EXAONE(ROLE_UP, "mlp.c_fc_1", "ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_MLP_BIAS),
    EXAONE(ROLE_DOWN, "mlp.c_proj", "ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_MLP_BIAS),
};

static const tensor_pattern_t exaone_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.e_score_correction_bias"),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

static const layout_t layout_exaone = {
    PATTERNS(exaone_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {ROTARY_BUFFERS, "$rotary.inv_freq"},
};
static const layout_t layout_exaone_moe = {LLAMA_LIKE(exaone_moe_patterns)};

#define EXAONE4                                                                                    \
  LLAMA_PARTS, .layout = &layout_olmo2, SIZES(102400, 4096, 16384, 32, 32, 32, 0, 2048),           \
               IDS(2, 0), .window = 4096, .norm_eps = 1e-5, .qk_norm = true,                       \
               .window_rule = WINDOW_PATTERN, .window_pattern = 4,                                 \
               .full_rule = FULL_UNROTATED_BESIDE_WINDOWS, .block = BLOCK_OUT_NORM

static const family_t rows[] = {
    /* Llama with names of its own; published with remote code alone. */
    {LLAMA_PARTS, NAMES("exaone", "ExaoneForCausalLM"), .layout = &layout_exaone,
     SIZES(102400, 2048, 0, 32, 32, 0, 0, 2048), IDS(2, 0), .norm_eps = 1e-5,
     .norm_eps_key = "layer_norm_epsilon", .tied = true},
    {EXAONE4, NAMES("exaone4", "Exaone4ForCausalLM")},
    /* K-EXAONE. */
    {EXAONE4, NAMES("exaone_moe", "ExaoneMoeForCausalLM"), .layout = &layout_exaone_moe, IDS(53, 1),
     .block = BLOCK_PRE_NORM, .expert_keys = EXPERTS_DEEPSEEK, .num_experts = 64, .experts_top = 8,
     .expert_size = 1024, .routing = ROUTING_SIGMOID, .dense_rule = DENSE_EITHER, .num_shared = 1,
     .dense_first = 1, .num_groups = 1, .groups_top = 1, .shares_sum = true, .share_factor = 2.5},
};

static const gguf_name_t gguf[] = {
    {"exaone", "ExaoneForCausalLM", NEEDS_NOTHING, 0},
    {"exaone4", "Exaone4ForCausalLM", WINDOWED | WINDOW_OR_NONE, 0},
};

const family_table_t lineage_exaone = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
