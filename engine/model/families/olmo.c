/* olmo.c: OLMo to OLMo 3, OLMoE and FlexOlmo.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* LayerNorms without weights. */
static const tensor_pattern_t olmo_patterns[] = {
    EMBED("embed_tokens"),
    HEAD("/lm_head", WHEN_NEVER),
    PROJECTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t olmo2_patterns[] = {
    DECODER_ROWS,
    OUT_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t flex_olmo_patterns[] = {
    DECODER_ROWS, OUT_NORMS, ATTENTION_ROWS, ROUTER("mlp.gate", WHEN_NEVER), NUMBERED_EXPERTS,
};

static const layout_t layout_olmo = {LLAMA_LIKE(olmo_patterns)};
const layout_t layout_olmo2 = {LLAMA_LIKE(olmo2_patterns)};
static const layout_t layout_flex_olmo = {LLAMA_LIKE(flex_olmo_patterns)};

#define OLMO2                                                                                      \
  LLAMA_PARTS, .layout = &layout_olmo2, SIZES(50304, 4096, 11008, 32, 32, 0, 0, 2048),             \
               IDS(50279, -1), .norm_eps = 1e-5, .attention_bias_key = "attention_bias",           \
               .qk_norm = true, .block = BLOCK_OUT_NORM, .qk_norm_whole = true

static const family_t rows[] = {
    /* LayerNorms without weights. */
    {LLAMA_PARTS, NAMES("olmo", "OlmoForCausalLM"), .layout = &layout_olmo,
     SIZES(50304, 4096, 11008, 32, 32, 0, 0, 2048), IDS(50279, -1), .norm_eps = 1e-5,
     .norm = NORM_LAYER, .attention_bias_key = "attention_bias", .clip_key = true,
     .gguf_zipped = true},
    {OLMO2, NAMES("olmo2", "Olmo2ForCausalLM")},
    {OLMO2, NAMES("olmo3", "Olmo3ForCausalLM"), .window = 4096, .rope_theta = 5e5,
     .window_rule = WINDOW_PATTERN, .window_pattern = 4, .local_theta = -1},
    {OLMO2, NAMES("olmoe", "OlmoeForCausalLM"), .layout = &layout_qwen_moe,
     SIZES(50304, 2048, 2048, 16, 16, 0, 0, 4096), .block = BLOCK_PRE_NORM,
     .expert_keys = EXPERTS_OLMOE, .num_experts = 64, .experts_top = 8},
    {OLMO2, NAMES("flex_olmo", "FlexOlmoForCausalLM"), .layout = &layout_flex_olmo,
     SIZES(100352, 4096, 11008, 32, 32, 0, 0, 4096), IDS(100257, -1), .norm_eps = 1e-6,
     .rope_theta = 5e5, .expert_keys = EXPERTS_OLMOE, .num_experts = 7, .experts_top = 5},
};

static const gguf_name_t gguf[] = {
    {"olmo2", "Olmo2ForCausalLM", NEEDS_NOTHING, 0},
    {"olmoe", "OlmoeForCausalLM", NEEDS_NOTHING, 0},
    {"olmo", "OlmoForCausalLM", LAYER_NORMS, 0},
};

const family_table_t lineage_olmo = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
