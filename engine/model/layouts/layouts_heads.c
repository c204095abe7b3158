/* layouts_heads.c: the tensor names of heads that draft for another model (eagle.h).
 *
 * As layouts.c says. Embeddings in the files are a copy of the target's; t2d follows from d2t,
 * which is no weight. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

#define MIDDLE(role, name, rows, cols, bias)                                                       \
  ROW(role, "midlayer." name, rows, cols, WHEN_ALWAYS, bias)

static const tensor_pattern_t eagle3_patterns[] = {
    ROW(ROLE_FINAL_NORM, "norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_MTP_JOIN, "fc", DIM_HIDDEN, DIM_TARGET_3, WHEN_ALWAYS, WHEN_NEVER),
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

const layout_t layout_eagle3 = {PATTERNS(eagle3_patterns), .prefixes = {"", "model."},
                                .ignored = {"embed_tokens.weight", "d2t", "t2d", ROTARY_BUFFERS}};
