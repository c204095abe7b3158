/* lfm2.c: LFM2 and LFM3: layers with a short convolution between those with attention.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define LFM2_MLP(role, name, gguf, rows, cols)                                                     \
  LAYER(role, "feed_forward." name, gguf, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS)
#define LFM2_NORM(role, name, gguf, gguf_rows)                                                     \
  STORED(role, "self_attn." name, DIM_HEAD, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_PLAIN),       \
      GGUF(role, gguf, gguf_rows, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_PLAIN)

/* The last norm has the name of one behind the embeddings. */
#define LFM2_ROWS                                                                                  \
  EMBED("embed_tokens"),                                                                           \
      ROW(ROLE_FINAL_NORM, "embedding_norm", "token_embd_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, \
          WHEN_NEVER),                                                                             \
      HEAD("/lm_head", WHEN_NEVER), NORM(ROLE_ATTN_NORM, "operator_norm", "attn_norm"),            \
      NORM(ROLE_MLP_NORM, "ffn_norm", "ffn_norm"),                                                 \
      MIX_IN("conv.in_proj", "shortconv.in_proj", WHEN_MIXER_BIAS),                                \
      MIX_CONV("conv.conv", "shortconv.conv", WHEN_CONV_BIAS),                                     \
      MIX_OUT("conv.out_proj", "shortconv.out_proj", WHEN_MIXER_BIAS),                             \
      LFM2_MLP(ROLE_GATE, "w1", "ffn_gate", DIM_MLP, DIM_HIDDEN),                                  \
      LFM2_MLP(ROLE_UP, "w3", "ffn_up", DIM_MLP, DIM_HIDDEN),                                      \
      LFM2_MLP(ROLE_DOWN, "w2", "ffn_down", DIM_HIDDEN, DIM_MLP)
static const tensor_pattern_t lfm2_patterns[] = {
    LFM2_ROWS,
    ATTENTION(ROLE_Q, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_K, "k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_V, "v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_O, "out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    LFM2_NORM(ROLE_Q_NORM, "q_layernorm", "attn_q_norm", DIM_Q_NORM),
    LFM2_NORM(ROLE_K_NORM, "k_layernorm", "attn_k_norm", DIM_K_NORM),
    ROUTER("feed_forward.gate", WHEN_NEVER),
    CHOICE_BIAS("feed_forward.expert_bias"),
    EXPERTS("feed_forward.experts.*.", "w1", "w3", "w2"),
    GGUF_EXPERTS(WHEN_NEVER),
};

#define LFM3_NORM(role, name)                                                                      \
  STORED(role, name, DIM_HIDDEN, DIM_NONE, WHEN_OUT_NORMS, WHEN_NEVER, FORM_PLAIN)
static const tensor_pattern_t lfm3_patterns[] = {
    LFM2_ROWS,
    LFM3_NORM(ROLE_ATTN_OUT_NORM, "post_operator_norm"),
    LFM3_NORM(ROLE_MLP_OUT_NORM, "post_ffn_norm"),
    ATTENTION_ROWS,
    STORED(ROLE_ATTN_GATE, "self_attn.gate_proj", DIM_HEADS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER,
           FORM_PLAIN),
};

static const layout_t layout_lfm3 = {LLAMA_LIKE(lfm3_patterns)};
static const layout_t layout_lfm2 = {LLAMA_LIKE(lfm2_patterns)};

#define LFM2                                                                                       \
  LLAMA_PARTS, .layout = &layout_lfm2, SIZES(65536, 2560, 12288, 32, 32, 8, 0, 128000), IDS(2, 1), \
               .norm_eps = 1e-5, .rope_theta = 1e6, .tied = true, .qk_norm = true,                 \
               .mixer_keys = MIXERS_LFM2

static const family_t rows[] = {
    {LFM2, NAMES("lfm2", "Lfm2ForCausalLM")},
    {LFM2, NAMES("lfm2_moe", "Lfm2MoeForCausalLM"), SIZES(65536, 2048, 7168, 32, 32, 8, 0, 128000),
     .expert_keys = EXPERTS_LFM2, .num_experts = 32, .experts_top = 4, .expert_size = 1792,
     .routing = ROUTING_SIGMOID, .dense_first = 2, .shares_sum = true, .share_factor = 1.0},
    {LFM2, NAMES("lfm3", "Lfm3ForCausalLM"), .layout = &layout_lfm3,
     SIZES(128000, 2048, 7680, 24, 16, 4, 128, 128000), IDS(124900, 124894),
     .block = BLOCK_SANDWICH, .attention_bias_key = "attention_bias", .window = 256,
     .local_theta = 1e4, .proportional = 0.5, .attn_gate = true, .attn_gate_apart = true,
     .attn_gate_by_head = true},
};

static const gguf_name_t gguf[] = {
    {"lfm2", "Lfm2ForCausalLM", STATES, 0},
    {"lfm2moe", "Lfm2MoeForCausalLM", STATES | SCORED_EXPERTS, 0},
};

const family_table_t lineage_lfm2 = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
