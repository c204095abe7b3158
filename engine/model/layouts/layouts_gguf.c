/* layouts_gguf.c: the tensor names of every family in GGUF files.
 *
 * Names are those of the package gguf (MODEL_TENSOR_NAMES), shapes as its converters write them:
 * experts are stacks, gpt-oss's gate and up are apart, GPT-2's layers are not transposed. Constant
 * data; any thread may read it.
 */
#include "engine/model/layouts/layout_gguf_rows.h"

#include <stddef.h>

/* Of Llama, Qwen and others, dense or with experts. */
static const tensor_pattern_t llama_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    {ROLE_HEAD, "cls.output", DIM_ANSWERS, DIM_EMBED, WHEN_ANSWERS, WHEN_NEVER, FORM_PLAIN},
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
    EXPERT_ROWS(WHEN_NEVER),
    SHARED(ROLE_SHARED_GATE, "ffn_gate_shexp", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_UP, "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_DOWN, "ffn_down_shexp", DIM_HIDDEN, DIM_SHARED),
    SHARED(ROLE_SHARED_SWITCH, "ffn_gate_inp_shexp", DIM_ONE, DIM_HIDDEN),
};

/* The norm before the MLP is called post_attention_norm in these files. */
static const tensor_pattern_t seed_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "post_attention_norm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t oss_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "post_attention_norm"),
    ATTENTION_ROWS,
    MATRIX(ROLE_SINKS, "attn_sinks", DIM_HEADS, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    EXPERT_ROWS(WHEN_EXPERTS),
};

static const tensor_pattern_t gemma_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_ATTN_OUT_NORM, "post_attention_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    NORM_ROW(ROLE_MLP_OUT_NORM, "post_ffw_norm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t olmo2_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_OUT_NORM, "post_attention_norm"),
    NORM_ROW(ROLE_MLP_OUT_NORM, "post_ffw_norm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

/* ffn_up holds the rows of the gate and then those of up. */
static const tensor_pattern_t phi3_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    MATRIX(ROLE_QKV, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    OUT_ROW,
    MATRIX(ROLE_GATE_UP, "ffn_up", DIM_GATE_UP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS),
    DOWN_ROW,
};

static const tensor_pattern_t starcoder2_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    LAYER_NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    UP_ROW,
    DOWN_ROW,
};

static const tensor_pattern_t gpt2_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    {ROLE_POSITIONS, "position_embd", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER,
     FORM_PLAIN},
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    LAYER_NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    MATRIX(ROLE_QKV, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    OUT_ROW,
    UP_ROW,
    DOWN_ROW,
};

/* q, k and v fused; a plain MLP. */
#define FUSED_ROWS                                                                                 \
  MATRIX(ROLE_QKV, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS), OUT_ROW, UP_ROW,  \
      DOWN_ROW

static const tensor_pattern_t gpt_neox_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    LAYER_NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    FUSED_ROWS,
};

/* Of two norms the one of the MLP has the plain name. */
#define FALCON_NORM(role, name, when) MATRIX(role, name, DIM_HIDDEN, DIM_NONE, when, when)
static const tensor_pattern_t falcon_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    FALCON_NORM(ROLE_ATTN_NORM, "attn_norm", WHEN_ONE_INPUT),
    FALCON_NORM(ROLE_ATTN_NORM, "attn_norm_2", WHEN_TWO_INPUTS),
    FALCON_NORM(ROLE_MLP_NORM, "attn_norm", WHEN_TWO_INPUTS),
    FUSED_ROWS,
};

static const tensor_pattern_t stablelm_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    MATRIX(ROLE_MLP_NORM, "ffn_norm", DIM_HIDDEN, DIM_NONE, WHEN_MLP_NORM, WHEN_MLP_NORM),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t cohere_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    PROJECTION_ROWS,
    {ROLE_Q_NORM, "blk.#.attn_q_norm", DIM_Q_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_HEADS},
    {ROLE_K_NORM, "blk.#.attn_k_norm", DIM_K_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_HEADS},
    DENSE_ROWS,
};

static const tensor_pattern_t phi2_patterns[] = {
    {ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "output_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN},
    {ROLE_HEAD, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_HEAD, FORM_PLAIN},
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    FUSED_OR_APART,
    UP_ROW,
    DOWN_ROW,
};

static const tensor_pattern_t nemotron_patterns[] = {
    OUTER_ROWS(WHEN_ALWAYS),
    LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    LAYER_NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    UP_ROW,
    DOWN_ROW,
};

static const tensor_pattern_t arcee_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    UP_ROW,
    DOWN_ROW,
};

static const tensor_pattern_t glm_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    FUSED_OR_APART,
    GATE_UP_ROWS,
};

static const tensor_pattern_t glm4_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_ATTN_OUT_NORM, "post_attention_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    NORM_ROW(ROLE_MLP_OUT_NORM, "post_ffw_norm"),
    ATTENTION_ROWS,
    GATE_UP_ROWS,
};

/* LayerNorms without weights. */
static const tensor_pattern_t olmo_patterns[] = {
    {ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_HEAD, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    PROJECTION_ROWS,
    DENSE_ROWS,
};

/* dots.llm1, ERNIE 4.5, MiniMax M2. */
static const tensor_pattern_t routed_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    SCORED_ROWS,
    CHOICE_ROW,
};

/* GLM-4.5 and Solar Open: the norm before the MLP is called post_attention_norm. */
static const tensor_pattern_t glm4_moe_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "post_attention_norm"),
    ATTENTION_ROWS,
    SCORED_ROWS,
    CHOICE_ROW,
};

/* Latent attention. Files of 2024 have K and V of all heads in one tensor, attn_kv_b. */
#define DEEPSEEK_ROWS                                                                              \
  OUTER_ROWS(WHEN_NEVER), NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),                                   \
      NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),                                                         \
      MATRIX(ROLE_Q, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_Q_WHOLE, WHEN_NEVER),                       \
      MATRIX(ROLE_Q_DOWN, "attn_q_a", DIM_Q_RANK, DIM_HIDDEN, WHEN_Q_RANK, WHEN_Q_RANK_BIAS),      \
      MATRIX(ROLE_Q_DOWN_NORM, "attn_q_a_norm", DIM_Q_RANK, DIM_NONE, WHEN_Q_RANK, WHEN_NEVER),    \
      MATRIX(ROLE_Q_UP, "attn_q_b", DIM_Q, DIM_Q_RANK, WHEN_Q_RANK, WHEN_NEVER),                   \
      MATRIX(ROLE_LATENT, "attn_kv_a_mqa", DIM_LATENT_ROW, DIM_HIDDEN, WHEN_ALWAYS,                \
             WHEN_QKV_BIAS),                                                                       \
      MATRIX(ROLE_LATENT_NORM, "attn_kv_a_norm", DIM_LATENT, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),   \
      MATRIX(ROLE_LATENT_UP, "attn_kv_b", DIM_LATENT_UP, DIM_LATENT, WHEN_LATENT_WHOLE,            \
             WHEN_NEVER),                                                                          \
      {ROLE_LATENT_KEY,   "blk.#.attn_k_b", DIM_LATENT_KEY, DIM_NOPE,                              \
       WHEN_LATENT_SPLIT, WHEN_NEVER,       FORM_BY_HEAD},                                         \
      {ROLE_LATENT_VALUE, "blk.#.attn_v_b", DIM_LATENT_OUT, DIM_LATENT,                            \
       WHEN_LATENT_SPLIT, WHEN_NEVER,       FORM_BY_HEAD},                                         \
      MATRIX(ROLE_O, "attn_output", DIM_HIDDEN, DIM_LATENT_OUT, WHEN_ALWAYS, WHEN_O_BIAS)

static const tensor_pattern_t deepseek2_patterns[] = {DEEPSEEK_ROWS, SCORED_ROWS};
static const tensor_pattern_t deepseek3_patterns[] = {DEEPSEEK_ROWS, SCORED_ROWS, CHOICE_ROW};

const layout_t layout_gguf_llama = GGUF_LAYOUT(llama_patterns, true);
const layout_t layout_gguf_qwen = GGUF_LAYOUT(llama_patterns, false);
const layout_t layout_gguf_seed = GGUF_LAYOUT(seed_patterns, false);
const layout_t layout_gguf_oss = GGUF_LAYOUT(oss_patterns, false);
const layout_t layout_gguf_gemma = GGUF_LAYOUT(gemma_patterns, false);
const layout_t layout_gguf_olmo2 = GGUF_LAYOUT(olmo2_patterns, false);
const layout_t layout_gguf_phi3 = GGUF_LAYOUT(phi3_patterns, false);
const layout_t layout_gguf_starcoder2 = GGUF_LAYOUT(starcoder2_patterns, false);
const layout_t layout_gguf_gpt2 = GGUF_LAYOUT(gpt2_patterns, false);
const layout_t layout_gguf_gpt_neox = GGUF_LAYOUT(gpt_neox_patterns, false);
const layout_t layout_gguf_falcon = GGUF_LAYOUT(falcon_patterns, false);
const layout_t layout_gguf_stablelm = GGUF_LAYOUT(stablelm_patterns, false);
const layout_t layout_gguf_cohere = GGUF_LAYOUT(cohere_patterns, false);
const layout_t layout_gguf_glm = GGUF_LAYOUT(glm_patterns, false);
const layout_t layout_gguf_glm4 = GGUF_LAYOUT(glm4_patterns, false);
const layout_t layout_gguf_phi2 = GGUF_LAYOUT(phi2_patterns, false);
const layout_t layout_gguf_nemotron = GGUF_LAYOUT(nemotron_patterns, false);
const layout_t layout_gguf_arcee = GGUF_LAYOUT(arcee_patterns, true);
const layout_t layout_gguf_olmo = GGUF_LAYOUT(olmo_patterns, true);
const layout_t layout_gguf_routed = GGUF_LAYOUT(routed_patterns, false);
const layout_t layout_gguf_glm4_moe = GGUF_LAYOUT(glm4_moe_patterns, false);
const layout_t layout_gguf_deepseek2 = GGUF_LAYOUT(deepseek2_patterns, false);
const layout_t layout_gguf_deepseek3 = GGUF_LAYOUT(deepseek3_patterns, false);
