/* arcee.c: AFM and Trinity of Arcee.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t arcee_patterns[] = {
    DECODER_ROWS, PRE_NORMS, ATTENTION_ROWS, UP("up_proj"), DOWN("down_proj"),
};

static const tensor_pattern_t afmoe_patterns[] = {
    DECODER_ROWS,
    NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),
    NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm", "post_attention_norm"),
    NORM(ROLE_MLP_NORM, "pre_mlp_layernorm", "ffn_norm"),
    NORM(ROLE_MLP_OUT_NORM, "post_mlp_layernorm", "post_ffw_norm"),
    ATTENTION_ROWS,
    ATTENTION(ROLE_ATTN_GATE, "gate_proj", "attn_gate", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    DENSE_ROWS,
    ROUTER("mlp.router.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.expert_bias"),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_experts."),
};

static const layout_t layout_arcee = {LLAMA_LIKE(arcee_patterns)};
static const layout_t layout_afmoe = {LLAMA_LIKE(afmoe_patterns)};

static const family_t rows[] = {
    {LLAMA_PARTS, NAMES("arcee", "ArceeForCausalLM"), .layout = &layout_arcee,
     SIZES(32000, 2560, 18432, 32, 32, 0, 0, 4096), IDS(128001, 128000), .norm_eps = 1e-5,
     .activation = "relu2", .gated_mlp = false, .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias", .gguf_zipped = true},
    /* Trinity of Arcee: norms around both blocks, and a gate behind attention. */
    {LLAMA_PARTS,
     NAMES("afmoe", "AfmoeForCausalLM"),
     .layout = &layout_afmoe,
     SIZES(200192, 2048, 6144, 32, 16, 0, 128, 16384),
     IDS(-1, -1),
     .window = 1024,
     .norm_eps = 1e-5,
     .attention_bias_key = "attention_bias",
     .qk_norm = true,
     .window_rule = WINDOW_PATTERN,
     .window_pattern = 4,
     .full_rule = FULL_UNROTATED,
     .block = BLOCK_SANDWICH,
     .attn_gate = true,
     .attn_gate_apart = true,
     .embed_root_key = "mup_enabled",
     .expert_keys = EXPERTS_DEEPSEEK,
     .num_experts = 64,
     .experts_top = 6,
     .expert_size = 1408,
     .routing = ROUTING_SIGMOID,
     .num_shared = 2,
     .dense_first = 1,
     .num_groups = 1,
     .groups_top = 1,
     .shares_sum = true,
     .share_factor = 1.0},
};

static const gguf_name_t gguf[] = {
    {"arcee", "ArceeForCausalLM", NEEDS_NOTHING, 0},
};

const family_table_t lineage_arcee = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
