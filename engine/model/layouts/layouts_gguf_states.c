/* layouts_gguf_states.c: the tensor names of families with layers that keep a state, in GGUF files.
 *
 * As layouts_gguf.c says. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_gguf_rows.h"

#include <stddef.h>

/* The last norm has the name of one behind the embeddings. */
static const tensor_pattern_t lfm2_patterns[] = {
    {ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "token_embd_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_HEAD, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    MATRIX(ROLE_MIX_IN, "shortconv.in_proj", DIM_MIX_IN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    {ROLE_MIX_CONV, "blk.#.shortconv.conv", DIM_MIX_CONV, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER,
     FORM_CONV},
    MATRIX(ROLE_MIX_OUT, "shortconv.out_proj", DIM_HIDDEN, DIM_MIX_INNER, WHEN_ALWAYS, WHEN_NEVER),
    SCORED_ROWS,
    CHOICE_ROW,
};

#define MIX_CONV_ROW(bias)                                                                         \
  { ROLE_MIX_CONV, "blk.#.ssm_conv1d", DIM_MIX_CONV, DIM_NONE, WHEN_ALWAYS, bias, FORM_CONV }
#define MIX_VECTOR(role, name, rows)                                                               \
  { role, "blk.#." name, rows, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }

/* Qwen3-Next and Qwen3.5. The gate of attention's output stands in attn_q, head by head. */
#define DELTA_ROWS                                                                                 \
  OUTER_ROWS(WHEN_NEVER), NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),                                   \
      NORM_ROW(ROLE_MLP_NORM, "post_attention_norm"), ATTENTION_ROWS,                              \
      MATRIX(ROLE_ATTN_GATE, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),                \
      MATRIX(ROLE_MIX_IN, "attn_qkv", DIM_MIX_IN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),            \
      MATRIX(ROLE_MIX_Z, "attn_gate", DIM_MIX_INNER, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),         \
      MIX_CONV_ROW(WHEN_NEVER), MIX_VECTOR(ROLE_MIX_DECAY, "ssm_a!", DIM_MIX_HEADS),               \
      MIX_VECTOR(ROLE_MIX_BIAS, "ssm_dt.bias!", DIM_MIX_HEADS),                                    \
      MIX_VECTOR(ROLE_MIX_NORM, "ssm_norm", DIM_MIX_NORM),                                         \
      MATRIX(ROLE_MIX_OUT, "ssm_out", DIM_HIDDEN, DIM_MIX_INNER, WHEN_ALWAYS, WHEN_NEVER),         \
      SCORED_ROWS, SHARED(ROLE_SHARED_SWITCH, "ffn_gate_inp_shexp", DIM_ONE, DIM_HIDDEN)

static const tensor_pattern_t qwen3_next_patterns[] = {
    DELTA_ROWS,
    MATRIX(ROLE_MIX_RATE, "ssm_ba", DIM_MIX_HEADS_2, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
};

static const tensor_pattern_t qwen3_5_patterns[] = {
    DELTA_ROWS,
    MATRIX(ROLE_MIX_RATE, "ssm_beta", DIM_MIX_HEADS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    MATRIX(ROLE_MIX_STEP, "ssm_alpha", DIM_MIX_HEADS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
};

#define MAMBA_ROWS                                                                                 \
  MATRIX(ROLE_MIX_IN, "ssm_in", DIM_MIX_IN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MIXER_BIAS),             \
      MIX_CONV_ROW(WHEN_CONV_BIAS), MIX_VECTOR(ROLE_MIX_DECAY, "ssm_a!", DIM_MIX_HEADS),           \
      MIX_VECTOR(ROLE_MIX_BIAS, "ssm_dt.bias!", DIM_MIX_HEADS),                                    \
      MIX_VECTOR(ROLE_MIX_SKIP, "ssm_d!", DIM_MIX_HEADS),                                          \
      {ROLE_MIX_NORM,   "blk.#.ssm_norm", DIM_MIX_NORM, DIM_NONE,                                  \
       WHEN_MIXER_NORM, WHEN_NEVER,       FORM_HEADS},                                             \
      MATRIX(ROLE_MIX_OUT, "ssm_out", DIM_HIDDEN, DIM_MIX_INNER, WHEN_ALWAYS, WHEN_MIXER_BIAS)

/* Granite 4 and Bamba. */
static const tensor_pattern_t granite_hybrid_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    PROJECTION_ROWS,
    MAMBA_ROWS,
    SCORED_ROWS,
};

/* Every layer has attention and a state; the second norm has no suffix. */
static const tensor_pattern_t falcon_h1_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm!"),
    PROJECTION_ROWS,
    MAMBA_ROWS,
    DENSE_ROWS,
};

/* A layer has one block and one norm; experts have no gate. */
static const tensor_pattern_t nemotron_h_patterns[] = {
    OUTER_ROWS(WHEN_NEVER),
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "attn_norm"),
    PROJECTION_ROWS,
    MAMBA_ROWS,
    UP_ROW,
    DOWN_ROW,
    MATRIX(ROLE_ROUTER, "ffn_gate_inp", DIM_EXPERTS, DIM_HIDDEN, WHEN_EXPERTS, WHEN_NEVER),
    CHOICE_ROW,
    EXPERT(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EXPERT, DIM_HIDDEN, WHEN_NEVER),
    EXPERT(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT, WHEN_NEVER),
    SHARED(ROLE_SHARED_UP, "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_DOWN, "ffn_down_shexp", DIM_HIDDEN, DIM_SHARED),
};

const layout_t layout_gguf_lfm2 = GGUF_LAYOUT(lfm2_patterns, false);
const layout_t layout_gguf_qwen3_next = GGUF_LAYOUT(qwen3_next_patterns, false);
const layout_t layout_gguf_qwen3_5 = GGUF_LAYOUT(qwen3_5_patterns, false);
const layout_t layout_gguf_granite_hybrid = GGUF_LAYOUT(granite_hybrid_patterns, true);
const layout_t layout_gguf_falcon_h1 = GGUF_LAYOUT(falcon_h1_patterns, false);
const layout_t layout_gguf_nemotron_h = GGUF_LAYOUT(nemotron_h_patterns, true);
