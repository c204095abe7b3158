/* olmo.c: OLMo to OLMo 3, OLMo hybrid, OLMoE and FlexOlmo.
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

/* OLMo hybrid: norms stand behind the blocks of layers with attention, and before those of the
 * others. */
#define HYBRID(role, name, rows, cols, form)                                                       \
  STORED(role, "linear_attn." name, rows, cols, WHEN_ALWAYS, WHEN_NEVER, form)
#define HYBRID_IN(role, name, rows) HYBRID(role, name "_proj", rows, DIM_HIDDEN, FORM_PLAIN)
#define HYBRID_TAPS(role, name, rows) HYBRID(role, name "_conv1d", rows, DIM_NONE, FORM_CONV)
#define HYBRID_VECTOR(role, name, rows) HYBRID(role, name, rows, DIM_NONE, FORM_PLAIN)
#define HYBRID_NORM(role, name, when)                                                              \
  STORED(role, name, DIM_HIDDEN, DIM_NONE, when, WHEN_NEVER, FORM_PLAIN)
static const tensor_pattern_t olmo_hybrid_patterns[] = {
    DECODER_ROWS,
    HYBRID_NORM(ROLE_ATTN_NORM, "attention_layer_norm", WHEN_STATE),
    HYBRID_NORM(ROLE_MLP_NORM, "feedforward_layer_norm", WHEN_STATE),
    HYBRID_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm|feedforward_layer_norm",
                WHEN_NO_STATE), /* the second: as transformers 5.23 saves it */
    HYBRID_NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm", WHEN_NO_STATE),
    ATTENTION_ROWS,
    HYBRID_IN(ROLE_MIX_Q, "q", DIM_MIX_KEYS),
    HYBRID_IN(ROLE_MIX_K, "k", DIM_MIX_KEYS),
    HYBRID_IN(ROLE_MIX_V, "v", DIM_MIX_INNER),
    HYBRID_IN(ROLE_MIX_Z, "g", DIM_MIX_INNER),
    HYBRID_IN(ROLE_MIX_RATE, "b", DIM_MIX_HEADS),
    HYBRID_IN(ROLE_MIX_STEP, "a", DIM_MIX_HEADS),
    HYBRID_TAPS(ROLE_MIX_CONV_Q, "q", DIM_MIX_KEY_TAPS),
    HYBRID_TAPS(ROLE_MIX_CONV_K, "k", DIM_MIX_KEY_TAPS),
    HYBRID_TAPS(ROLE_MIX_CONV_V, "v", DIM_MIX_VALUE_TAPS),
    HYBRID_VECTOR(ROLE_MIX_DECAY, "A_log!", DIM_MIX_HEADS),
    HYBRID_VECTOR(ROLE_MIX_BIAS, "dt_bias!", DIM_MIX_HEADS),
    HYBRID_VECTOR(ROLE_MIX_NORM, "o_norm", DIM_MIX_NORM),
    HYBRID(ROLE_MIX_OUT, "o_proj", DIM_HIDDEN, DIM_MIX_INNER, FORM_PLAIN),
    DENSE_ROWS,
};

static const layout_t layout_olmo_hybrid = {LLAMA_LIKE(olmo_hybrid_patterns)};
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
    {OLMO2, NAMES("olmo_hybrid", "OlmoHybridForCausalLM"), .layout = &layout_olmo_hybrid,
     SIZES(100352, 3840, 11008, 32, 30, 0, 0, 65536), IDS(100257, -1), .norm_eps = 1e-6,
     .mixer_keys = MIXERS_OLMO},
};

static const gguf_name_t gguf[] = {
    {"olmo2", "Olmo2ForCausalLM", NEEDS_NOTHING, 0},
    {"olmoe", "OlmoeForCausalLM", NEEDS_NOTHING, 0},
    {"olmo", "OlmoForCausalLM", LAYER_NORMS, 0},
};

const family_table_t lineage_olmo = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
