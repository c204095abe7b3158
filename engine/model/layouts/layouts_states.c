/* layouts_states.c: the tensor names of families with layers that keep a state.
 *
 * As layouts.c says. Roles of attention are expected in layers that have it, those of ROLE_MIX_ in
 * layers with a state. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

#define MIX(role, name, rows, cols, bias)                                                          \
  { role, "layers.#." name, rows, cols, WHEN_ALWAYS, bias, FORM_PLAIN }
#define MIX_CONV(name, bias)                                                                       \
  { ROLE_MIX_CONV, "layers.#." name, DIM_MIX_CONV, DIM_NONE, WHEN_ALWAYS, bias, FORM_CONV }
#define LFM2_MLP(role, name, rows, cols)                                                           \
  { role, "layers.#.feed_forward." name, rows, cols, WHEN_DENSE, WHEN_NEVER, FORM_PLAIN }

static const tensor_pattern_t lfm2_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "embedding_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    LAYER_NORM(ROLE_ATTN_NORM, "operator_norm"),
    LAYER_NORM(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION(ROLE_Q, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    ATTENTION(ROLE_K, "k_proj", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    ATTENTION(ROLE_V, "v_proj", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    HEAD_NORM(ROLE_Q_NORM, "q_layernorm", DIM_HEAD),
    HEAD_NORM(ROLE_K_NORM, "k_layernorm", DIM_HEAD),
    ATTENTION(ROLE_O, "out_proj", DIM_HIDDEN, DIM_Q, WHEN_NEVER),
    MIX(ROLE_MIX_IN, "conv.in_proj", DIM_MIX_IN, DIM_HIDDEN, WHEN_MIXER_BIAS),
    MIX_CONV("conv.conv", WHEN_CONV_BIAS),
    MIX(ROLE_MIX_OUT, "conv.out_proj", DIM_HIDDEN, DIM_MIX_INNER, WHEN_MIXER_BIAS),
    LFM2_MLP(ROLE_GATE, "w1", DIM_MLP, DIM_HIDDEN),
    LFM2_MLP(ROLE_UP, "w3", DIM_MLP, DIM_HIDDEN),
    LFM2_MLP(ROLE_DOWN, "w2", DIM_HIDDEN, DIM_MLP),
};

const layout_t layout_lfm2 = LLAMA_LIKE(lfm2_patterns);
