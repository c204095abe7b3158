/* layouts_gemma4.c: the tensor names of Gemma 4.
 *
 * Names and shapes are those of the published checkpoints. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

#define OUTSIDE(role, name, rows, cols)                                                            \
  { role, name, rows, cols, WHEN_PER_LAYER, WHEN_NEVER, FORM_PLAIN }
#define INPUT(role, name, rows, cols)                                                              \
  { role, "layers.#." name, rows, cols, WHEN_PER_LAYER, WHEN_NEVER, FORM_PLAIN }
#define MLP(role, name, rows, cols)                                                                \
  { role, "layers.#.mlp." name, rows, cols, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }
#define BESIDE(role, name, rows, cols, form)                                                       \
  { role, "layers.#." name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, form }

static const tensor_pattern_t gemma4_patterns[] = {
    DECODER_ROWS,
    OUTSIDE(ROLE_LAYER_EMBED, "embed_tokens_per_layer", DIM_VOCAB, DIM_PER_LAYERS),
    OUTSIDE(ROLE_LAYER_PROJECT, "per_layer_model_projection", DIM_PER_LAYERS, DIM_HIDDEN),
    OUTSIDE(ROLE_LAYER_NORM, "per_layer_projection_norm", DIM_PER_LAYER, DIM_NONE),
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm"),
    LAYER_NORM(ROLE_MLP_NORM, "pre_feedforward_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm"),
    ATTENTION_ROWS,
    MLP(ROLE_GATE, "gate_proj", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_UP, "up_proj", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP),
    {ROLE_LAYER_SCALAR, "layers.#.layer_scalar!", DIM_ONE, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER,
     FORM_PLAIN},
    INPUT(ROLE_INPUT_GATE, "per_layer_input_gate", DIM_PER_LAYER, DIM_HIDDEN),
    INPUT(ROLE_INPUT_PROJECT, "per_layer_projection", DIM_HIDDEN, DIM_PER_LAYER),
    INPUT(ROLE_INPUT_NORM, "post_per_layer_input_norm", DIM_HIDDEN, DIM_NONE),
    ROUTER("router.proj", WHEN_NEVER),
    BESIDE(ROLE_ROUTER_SCALE, "router.scale!", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_SHARE_FACTORS, "router.per_expert_scale!", DIM_EXPERTS, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_GATE_UP, "experts.gate_up_proj!", DIM_EXPERT_UP, DIM_HIDDEN, FORM_STACK),
    BESIDE(ROLE_EXPERT_DOWN, "experts.down_proj!", DIM_HIDDEN, DIM_EXPERT, FORM_STACK),
    BESIDE(ROLE_DENSE_OUT_NORM, "post_feedforward_layernorm_1", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_NORM, "pre_feedforward_layernorm_2", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_OUT_NORM, "post_feedforward_layernorm_2", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
};

const layout_t layout_gemma4 = LLAMA_LIKE(gemma4_patterns);
