/* layouts_experts.c: the tensor names of mixtures of experts whose routers score.
 *
 * Names and shapes are those of the published checkpoints. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

#define NUMBERED_EXPERTS                                                                           \
  EXPERT(ROLE_EXPERT_GATE, "mlp.experts.*.gate_proj", DIM_EXPERT, DIM_HIDDEN),                     \
      EXPERT(ROLE_EXPERT_UP, "mlp.experts.*.up_proj", DIM_EXPERT, DIM_HIDDEN),                     \
      EXPERT(ROLE_EXPERT_DOWN, "mlp.experts.*.down_proj", DIM_HIDDEN, DIM_EXPERT)
#define SHARED_ROWS                                                                                \
  SHARED(ROLE_SHARED_GATE, "shared_experts.gate_proj", DIM_SHARED, DIM_HIDDEN),                    \
      SHARED(ROLE_SHARED_UP, "shared_experts.up_proj", DIM_SHARED, DIM_HIDDEN),                    \
      SHARED(ROLE_SHARED_DOWN, "shared_experts.down_proj", DIM_HIDDEN, DIM_SHARED)
#define SHARED_MLP_ROWS                                                                            \
  SHARED(ROLE_SHARED_GATE, "shared_mlp.gate_proj", DIM_SHARED, DIM_HIDDEN),                        \
      SHARED(ROLE_SHARED_UP, "shared_mlp.up_proj", DIM_SHARED, DIM_HIDDEN),                        \
      SHARED(ROLE_SHARED_DOWN, "shared_mlp.down_proj", DIM_HIDDEN, DIM_SHARED)
#define CHOICE_BIAS(name, form)                                                                    \
  { ROLE_CHOICE_BIAS, "layers.#." name "!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED, WHEN_NEVER, form }

/* The experts of Qwen3-VL stand in stacks: turned as published, in rows as transformers saves them.
 */
#define STACK(role, name, rows, cols, when, form)                                                  \
  { role, "layers.#.mlp.experts." name "!", rows, cols, when, WHEN_NEVER, form }
static const tensor_pattern_t qwen3_vl_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    STACK(ROLE_EXPERT_GATE_UP, "gate_up_proj", DIM_EXPERT_UP, DIM_HIDDEN, WHEN_EXPERTS_EACH,
          FORM_STACK_TRANSPOSED),
    STACK(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_EACH,
          FORM_STACK_TRANSPOSED),
    STACK(ROLE_EXPERT_GATE_UP, "gate_up_proj", DIM_EXPERT_UP, DIM_HIDDEN, WHEN_EXPERTS_STACKED,
          FORM_STACK),
    STACK(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_STACKED, FORM_STACK),
};

/* GLM-4.5, dots.llm1, Solar Open. */
static const tensor_pattern_t routed_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.gate.e_score_correction_bias", FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_ROWS,
};

static const tensor_pattern_t exaone_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.e_score_correction_bias", FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_ROWS,
};

static const tensor_pattern_t hy3_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.router.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.expert_bias", FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_MLP_ROWS,
};

static const tensor_pattern_t afmoe_patterns[] = {
    DECODER_ROWS,
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm"),
    LAYER_NORM(ROLE_MLP_NORM, "pre_mlp_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_mlp_layernorm"),
    ATTENTION_ROWS,
    ATTENTION(ROLE_ATTN_GATE, "gate_proj", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    DENSE_ROWS,
    ROUTER("mlp.router.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.expert_bias", FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_ROWS,
};

static const tensor_pattern_t ernie_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.moe_statics.e_score_correction_bias", FORM_ROW),
    NUMBERED_EXPERTS,
    SHARED_ROWS,
};

static const tensor_pattern_t minimax_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    ROUTER("block_sparse_moe.gate", WHEN_NEVER),
    CHOICE_BIAS("block_sparse_moe.e_score_correction_bias", FORM_PLAIN),
    EXPERT(ROLE_EXPERT_GATE, "block_sparse_moe.experts.*.w1", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_UP, "block_sparse_moe.experts.*.w3", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_DOWN, "block_sparse_moe.experts.*.w2", DIM_HIDDEN, DIM_EXPERT),
};

static const tensor_pattern_t flex_olmo_patterns[] = {
    DECODER_ROWS,
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm"),
    ATTENTION_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    NUMBERED_EXPERTS,
};

static const tensor_pattern_t hunyuan_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    PROJECTION_ROWS,
    HEAD_NORM(ROLE_Q_NORM, "query_layernorm", DIM_Q_NORM),
    HEAD_NORM(ROLE_K_NORM, "key_layernorm", DIM_K_NORM),
    ROUTER("mlp.gate.wg", WHEN_NEVER),
    NUMBERED_EXPERTS,
    SHARED_MLP_ROWS,
};

/* DeepSeek and its kin: attention by way of a latent row. */
#define LATENT(role, name, rows, cols, when, bias)                                                 \
  { role, "layers.#.self_attn." name, rows, cols, when, bias, FORM_PLAIN }
#define LATENT_ROWS                                                                                \
  LATENT(ROLE_Q, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_Q_WHOLE, WHEN_NEVER),                           \
      LATENT(ROLE_Q_DOWN, "q_a_proj", DIM_Q_RANK, DIM_HIDDEN, WHEN_Q_RANK, WHEN_Q_RANK_BIAS),      \
      LATENT(ROLE_Q_DOWN_NORM, "q_a_layernorm", DIM_Q_RANK, DIM_NONE, WHEN_Q_RANK, WHEN_NEVER),    \
      LATENT(ROLE_Q_UP, "q_b_proj", DIM_Q, DIM_Q_RANK, WHEN_Q_RANK, WHEN_NEVER),                   \
      LATENT(ROLE_LATENT, "kv_a_proj_with_mqa", DIM_LATENT_ROW, DIM_HIDDEN, WHEN_ALWAYS,           \
             WHEN_QKV_BIAS),                                                                       \
      LATENT(ROLE_LATENT_NORM, "kv_a_layernorm", DIM_LATENT, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),   \
      LATENT(ROLE_LATENT_UP, "kv_b_proj", DIM_LATENT_UP, DIM_LATENT, WHEN_ALWAYS, WHEN_NEVER),     \
      LATENT(ROLE_O, "o_proj", DIM_HIDDEN, DIM_LATENT_OUT, WHEN_ALWAYS, WHEN_O_BIAS)

static const tensor_pattern_t deepseek2_patterns[] = {
    DECODER_ROWS,     PRE_NORMS,   LATENT_ROWS, DENSE_ROWS, ROUTER("mlp.gate", WHEN_NEVER),
    NUMBERED_EXPERTS, SHARED_ROWS,
};

static const tensor_pattern_t deepseek3_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    LATENT_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    CHOICE_BIAS("mlp.gate.e_score_correction_bias", FORM_PLAIN),
    NUMBERED_EXPERTS,
    SHARED_ROWS,
};

const layout_t layout_deepseek2 = LLAMA_LIKE(deepseek2_patterns);
const layout_t layout_deepseek3 = LLAMA_LIKE(deepseek3_patterns);
const layout_t layout_flex_olmo = LLAMA_LIKE(flex_olmo_patterns);
const layout_t layout_hunyuan_moe = LLAMA_LIKE(hunyuan_moe_patterns);
const layout_t layout_qwen3_vl_moe = LLAMA_LIKE(qwen3_vl_moe_patterns);
const layout_t layout_routed = LLAMA_LIKE(routed_patterns);
const layout_t layout_exaone_moe = LLAMA_LIKE(exaone_moe_patterns);
const layout_t layout_hy3 = LLAMA_LIKE(hy3_patterns);
const layout_t layout_afmoe = LLAMA_LIKE(afmoe_patterns);
const layout_t layout_minimax = LLAMA_LIKE(minimax_patterns);
const layout_t layout_ernie_moe = LLAMA_LIKE(ernie_patterns);
