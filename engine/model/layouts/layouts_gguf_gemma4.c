/* layouts_gguf_gemma4.c: the tensor names of Gemma 4 in GGUF files.
 *
 * As layouts_gguf.c says. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_gguf_rows.h"

#include <stddef.h>

#define OUTSIDE(role, name, rows, cols)                                                            \
  { role, name, rows, cols, WHEN_PER_LAYER, WHEN_NEVER, FORM_PLAIN }
#define INPUT(role, name, rows, cols) MATRIX(role, name, rows, cols, WHEN_PER_LAYER, WHEN_NEVER)
#define MLP(role, name, rows, cols) MATRIX(role, name, rows, cols, WHEN_ALWAYS, WHEN_NEVER)
#define BESIDE(role, name, rows, cols, form)                                                       \
  { role, "blk.#." name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, form }

static const tensor_pattern_t gemma4_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    OUTSIDE(ROLE_LAYER_EMBED, "per_layer_token_embd", DIM_VOCAB, DIM_PER_LAYERS),
    OUTSIDE(ROLE_LAYER_PROJECT, "per_layer_model_proj", DIM_PER_LAYERS, DIM_HIDDEN),
    OUTSIDE(ROLE_LAYER_NORM, "per_layer_proj_norm", DIM_PER_LAYER, DIM_NONE),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_ATTN_OUT_NORM, "post_attention_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    NORM_ROW(ROLE_MLP_OUT_NORM, "post_ffw_norm"),
    ATTENTION_ROWS,
    MLP(ROLE_GATE, "ffn_gate", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_UP, "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, "ffn_down", DIM_HIDDEN, DIM_MLP),
    MLP(ROLE_LAYER_SCALAR, "layer_output_scale", DIM_ONE, DIM_NONE),
    INPUT(ROLE_INPUT_GATE, "inp_gate", DIM_PER_LAYER, DIM_HIDDEN),
    INPUT(ROLE_INPUT_PROJECT, "proj", DIM_HIDDEN, DIM_PER_LAYER),
    INPUT(ROLE_INPUT_NORM, "post_norm", DIM_HIDDEN, DIM_NONE),
    BESIDE(ROLE_ROUTER, "ffn_gate_inp", DIM_EXPERTS, DIM_HIDDEN, FORM_PLAIN),
    BESIDE(ROLE_ROUTER_SCALE, "ffn_gate_inp.scale!", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_SHARE_FACTORS, "ffn_down_exps.scale!", DIM_EXPERTS, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_GATE_UP, "ffn_gate_up_exps", DIM_EXPERT_UP, DIM_HIDDEN, FORM_STACK),
    BESIDE(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT, FORM_STACK),
    BESIDE(ROLE_DENSE_OUT_NORM, "post_ffw_norm_1", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_NORM, "pre_ffw_norm_2", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_OUT_NORM, "post_ffw_norm_2", DIM_HIDDEN, DIM_NONE, FORM_PLAIN),
};

const layout_t layout_gguf_gemma4 = GGUF_LAYOUT(gemma4_patterns, false);
