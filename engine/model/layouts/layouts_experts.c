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
#define CHOICE_BIAS(name, form)                                                                    \
  { ROLE_CHOICE_BIAS, "layers.#." name "!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED, WHEN_NEVER, form }

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

const layout_t layout_routed = LLAMA_LIKE(routed_patterns);
const layout_t layout_minimax = LLAMA_LIKE(minimax_patterns);
const layout_t layout_ernie_moe = LLAMA_LIKE(ernie_patterns);
