/* hunyuan.c: Hunyuan and Hy3 of Tencent.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define HUNYUAN_ROWS                                                                               \
  DECODER_ROWS, PRE_NORMS, PROJECTION_ROWS, HEAD_NORMS("query_layernorm", "key_layernorm")

static const tensor_pattern_t hunyuan_patterns[] = {HUNYUAN_ROWS, DENSE_ROWS};

static const tensor_pattern_t hunyuan_moe_patterns[] = {
    HUNYUAN_ROWS,
    ROUTER("mlp.gate.wg", WHEN_NEVER),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_mlp."),
};

static const tensor_pattern_t hy3_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.router.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.expert_bias"),
    NUMBERED_EXPERTS,
    SHARED_ROWS("mlp.shared_mlp."),
};

static const layout_t layout_hunyuan = {LLAMA_LIKE(hunyuan_patterns)};
static const layout_t layout_hunyuan_moe = {LLAMA_LIKE(hunyuan_moe_patterns)};
static const layout_t layout_hy3 = {LLAMA_LIKE(hy3_patterns)};

#define HUNYUAN_V1_DENSE                                                                           \
  LLAMA_PARTS, .layout = &layout_hunyuan, SIZES(290943, 4096, 11008, 32, 32, 0, 0, 2048),          \
               IDS(2, 1), .norm_eps = 1e-5, .attention_bias_key = "attention_bias",                \
               .qk_norm = true, .qk_norm_key = "use_qk_norm", .qk_norm_late = true,                \
               .rope_alpha = true

static const family_t rows[] = {
    {HUNYUAN_V1_DENSE, NAMES("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM")},
    {HUNYUAN_V1_DENSE, NAMES("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"),
     .layout = &layout_hunyuan_moe, .expert_keys = EXPERTS_HUNYUAN, .num_experts = 1,
     .experts_top = 1},
    /* Hy3 of Tencent. */
    {LLAMA_PARTS,
     NAMES("hy_v3", "HYV3ForCausalLM"),
     .layout = &layout_hy3,
     SIZES(120832, 4096, 13312, 80, 64, 8, 128, 131072),
     IDS(-1, -1),
     .norm_eps = 1e-5,
     .rope_theta = 11158840,
     .attention_bias_key = "attention_bias",
     .qk_norm = true,
     .expert_keys = EXPERTS_DEEPSEEK,
     .num_experts = 192,
     .experts_top = 8,
     .expert_size = 1536,
     .routing = ROUTING_SIGMOID,
     .dense_rule = DENSE_LISTED,
     .num_shared = 1,
     .dense_first = 1,
     .num_groups = 1,
     .groups_top = 1,
     .shares_sum = true,
     .share_factor = 2.826},
};

static const gguf_name_t gguf[] = {
    {"hunyuan-dense", "HunYuanDenseV1ForCausalLM", NEEDS_NOTHING, 0},
};

const family_table_t lineage_hunyuan = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
