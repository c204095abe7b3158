/* eagle.c: heads of EAGLE-3, which draft for a target.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define MIDDLE(role, name, rows, cols, bias)                                                       \
  ROW(role, "midlayer." name, NULL, rows, cols, WHEN_ALWAYS, bias)

static const tensor_pattern_t eagle3_patterns[] = {
    ROW(ROLE_FINAL_NORM, "norm", NULL, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/lm_head", NULL, DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_MTP_JOIN, "fc", NULL, DIM_HIDDEN, DIM_TARGET_3, WHEN_ALWAYS, WHEN_NEVER),
    MIDDLE(ROLE_ATTN_NORM, "input_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_NEVER),
    MIDDLE(ROLE_MTP_HIDDEN_NORM, "hidden_norm", DIM_HIDDEN, DIM_NONE, WHEN_NEVER),
    MIDDLE(ROLE_Q, "self_attn.q_proj", DIM_Q, DIM_HIDDEN_2, WHEN_QKV_BIAS),
    MIDDLE(ROLE_K, "self_attn.k_proj", DIM_KV, DIM_HIDDEN_2, WHEN_QKV_BIAS),
    MIDDLE(ROLE_V, "self_attn.v_proj", DIM_KV, DIM_HIDDEN_2, WHEN_QKV_BIAS),
    MIDDLE(ROLE_O, "self_attn.o_proj", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    MIDDLE(ROLE_MLP_NORM, "post_attention_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_NEVER),
    MIDDLE(ROLE_GATE, "mlp.gate_proj", DIM_MLP, DIM_HIDDEN, WHEN_MLP_BIAS),
    MIDDLE(ROLE_UP, "mlp.up_proj", DIM_MLP, DIM_HIDDEN, WHEN_MLP_BIAS),
    MIDDLE(ROLE_DOWN, "mlp.down_proj", DIM_HIDDEN, DIM_MLP, WHEN_MLP_BIAS),
};

static const layout_t layout_eagle3 = {
    PATTERNS(eagle3_patterns), .prefixes = {"", "model."},
    .ignored = {"embed_tokens.weight", "d2t", "t2d", ROTARY_BUFFERS}};

#define LLAMA_EAGLE3                                                                               \
  LLAMA_PARTS, .layout = &layout_eagle3, SIZES(32000, 4096, 11008, 1, 32, 0, 0, 2048),             \
               IDS(-1, -1), .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",    \
               .eagle = true

static const family_t rows[] = {
    {LLAMA_EAGLE3, NAMES("llama_eagle3", "LlamaForCausalLMEagle3")},
    {LLAMA_EAGLE3, NAMES("eagle3_llama", "Eagle3LlamaForCausalLM")},
};

const family_table_t lineage_eagle = {rows, ARRAY_LEN(rows), NULL, 0};
