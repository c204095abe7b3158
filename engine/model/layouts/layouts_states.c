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
#define MIX_VECTOR(role, name, rows)                                                               \
  { role, "layers.#." name, rows, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }
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
    ROUTER("feed_forward.gate", WHEN_NEVER),
    {ROLE_CHOICE_BIAS, "layers.#.feed_forward.expert_bias!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED,
     WHEN_NEVER, FORM_PLAIN},
    EXPERT(ROLE_EXPERT_GATE, "feed_forward.experts.*.w1", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_UP, "feed_forward.experts.*.w3", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_DOWN, "feed_forward.experts.*.w2", DIM_HIDDEN, DIM_EXPERT),
};

/* Qwen3-Next and Qwen3.5. The gate of attention's output stands in q_proj, head by head. */
#define DELTA_ROWS                                                                                 \
  DECODER_ROWS, PRE_NORMS, ATTENTION_ROWS,                                                         \
      ATTENTION(ROLE_ATTN_GATE, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_NEVER),                          \
      MIX_CONV("linear_attn.conv1d", WHEN_NEVER),                                                  \
      MIX_VECTOR(ROLE_MIX_DECAY, "linear_attn.A_log!", DIM_MIX_HEADS),                             \
      MIX_VECTOR(ROLE_MIX_BIAS, "linear_attn.dt_bias!", DIM_MIX_HEADS),                            \
      MIX_VECTOR(ROLE_MIX_NORM, "linear_attn.norm", DIM_MIX_NORM),                                 \
      MIX(ROLE_MIX_OUT, "linear_attn.out_proj", DIM_HIDDEN, DIM_MIX_INNER, WHEN_NEVER),            \
      DENSE_ROWS, ROUTER("mlp.gate", WHEN_NEVER),                                                  \
      SHARED(ROLE_SHARED_GATE, "shared_expert.gate_proj", DIM_SHARED, DIM_HIDDEN),                 \
      SHARED(ROLE_SHARED_UP, "shared_expert.up_proj", DIM_SHARED, DIM_HIDDEN),                     \
      SHARED(ROLE_SHARED_DOWN, "shared_expert.down_proj", DIM_HIDDEN, DIM_SHARED),                 \
      SHARED(ROLE_SHARED_SWITCH, "shared_expert_gate", DIM_ONE, DIM_HIDDEN)
#define EACH_EXPERT(role, name, rows, cols)                                                        \
  { role, "layers.#.mlp.experts.*." name, rows, cols, WHEN_EXPERTS_EACH, WHEN_NEVER, FORM_EACH }
#define EACH_EXPERT_ROWS                                                                           \
  EACH_EXPERT(ROLE_EXPERT_GATE, "gate_proj", DIM_EXPERT, DIM_HIDDEN),                              \
      EACH_EXPERT(ROLE_EXPERT_UP, "up_proj", DIM_EXPERT, DIM_HIDDEN),                              \
      EACH_EXPERT(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT)

static const tensor_pattern_t qwen3_next_patterns[] = {
    DELTA_ROWS,
    MIX(ROLE_MIX_IN, "linear_attn.in_proj_qkvz", DIM_MIX_IN, DIM_HIDDEN, WHEN_NEVER),
    MIX(ROLE_MIX_RATE, "linear_attn.in_proj_ba", DIM_MIX_HEADS_2, DIM_HIDDEN, WHEN_NEVER),
    EACH_EXPERT_ROWS,
};

static const tensor_pattern_t qwen3_5_patterns[] = {
    DELTA_ROWS,
    MIX(ROLE_MIX_IN, "linear_attn.in_proj_qkv", DIM_MIX_IN, DIM_HIDDEN, WHEN_NEVER),
    MIX(ROLE_MIX_Z, "linear_attn.in_proj_z", DIM_MIX_INNER, DIM_HIDDEN, WHEN_NEVER),
    MIX(ROLE_MIX_RATE, "linear_attn.in_proj_b", DIM_MIX_HEADS, DIM_HIDDEN, WHEN_NEVER),
    MIX(ROLE_MIX_STEP, "linear_attn.in_proj_a", DIM_MIX_HEADS, DIM_HIDDEN, WHEN_NEVER),
    EACH_EXPERT_ROWS,
    {ROLE_EXPERT_GATE_UP, "layers.#.mlp.experts.gate_up_proj!", DIM_EXPERT_UP, DIM_HIDDEN,
     WHEN_EXPERTS_STACKED, WHEN_NEVER, FORM_STACK},
    {ROLE_EXPERT_DOWN, "layers.#.mlp.experts.down_proj!", DIM_HIDDEN, DIM_EXPERT,
     WHEN_EXPERTS_STACKED, WHEN_NEVER, FORM_STACK},
};

/* Mamba-2, as transformers names it. */
#define MAMBA_ROWS(part)                                                                           \
  MIX(ROLE_MIX_IN, part "in_proj", DIM_MIX_IN, DIM_HIDDEN, WHEN_MIXER_BIAS),                       \
      MIX_CONV(part "conv1d", WHEN_CONV_BIAS),                                                     \
      MIX_VECTOR(ROLE_MIX_DECAY, part "A_log!", DIM_MIX_HEADS),                                    \
      MIX_VECTOR(ROLE_MIX_BIAS, part "dt_bias!", DIM_MIX_HEADS),                                   \
      MIX_VECTOR(ROLE_MIX_SKIP, part "D!", DIM_MIX_HEADS), {ROLE_MIX_NORM,                         \
                                                            "layers.#." part "norm",               \
                                                            DIM_MIX_NORM,                          \
                                                            DIM_NONE,                              \
                                                            WHEN_MIXER_NORM,                       \
                                                            WHEN_NEVER,                            \
                                                            FORM_PLAIN},                           \
      MIX(ROLE_MIX_OUT, part "out_proj", DIM_HIDDEN, DIM_MIX_INNER, WHEN_MIXER_BIAS)
#define STACKED(role, name, rows, cols)                                                            \
  { role, "layers.#.block_sparse_moe." name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, FORM_STACK }

/* Granite 4: without experts the shared MLP is the only one. */
static const tensor_pattern_t granite_hybrid_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    MAMBA_ROWS("mamba."),
    {ROLE_GATE_UP, "layers.#.shared_mlp.input_linear", DIM_GATE_UP, DIM_HIDDEN, WHEN_DENSE,
     WHEN_NEVER, FORM_PLAIN},
    {ROLE_DOWN, "layers.#.shared_mlp.output_linear", DIM_HIDDEN, DIM_MLP, WHEN_DENSE, WHEN_NEVER,
     FORM_PLAIN},
    ROUTER("block_sparse_moe.router.layer", WHEN_NEVER),
    STACKED(ROLE_EXPERT_GATE_UP, "input_linear", DIM_EXPERT_UP, DIM_HIDDEN),
    STACKED(ROLE_EXPERT_DOWN, "output_linear", DIM_HIDDEN, DIM_EXPERT),
    {ROLE_SHARED_GATE, "layers.#.shared_mlp.input_linear", DIM_SHARED_UP, DIM_HIDDEN, WHEN_SHARED,
     WHEN_NEVER, FORM_PLAIN},
    {ROLE_SHARED_DOWN, "layers.#.shared_mlp.output_linear", DIM_HIDDEN, DIM_SHARED, WHEN_SHARED,
     WHEN_NEVER, FORM_PLAIN},
};

/* Falcon-H1, too: there every layer has attention and a state. */
static const tensor_pattern_t bamba_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "final_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    LAYER_NORM(ROLE_MLP_NORM, "pre_ff_layernorm"),
    ATTENTION_ROWS,
    MAMBA_ROWS("mamba."),
    {ROLE_GATE, "layers.#.feed_forward.gate_proj", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS,
     FORM_PLAIN},
    {ROLE_UP, "layers.#.feed_forward.up_proj", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS,
     FORM_PLAIN},
    {ROLE_DOWN, "layers.#.feed_forward.down_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS,
     FORM_PLAIN},
};

/* A layer has one block, which is the mixer, and one norm. */
#define BLOCK(role, name, rows, cols, when, bias)                                                  \
  ROW(role, "layers.#.mixer." name, rows, cols, when, bias)

static const tensor_pattern_t nemotron_h_patterns[] = {
    ROW(ROLE_EMBED, "embeddings", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_FINAL_NORM, "norm_f", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    LAYER_NORM(ROLE_ATTN_NORM, "norm"),
    LAYER_NORM(ROLE_MLP_NORM, "norm"),
    BLOCK(ROLE_Q, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    BLOCK(ROLE_K, "k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    BLOCK(ROLE_V, "v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    BLOCK(ROLE_O, "o_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_NEVER),
    MAMBA_ROWS("mixer."),
    BLOCK(ROLE_UP, "up_proj", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS),
    BLOCK(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP, WHEN_DENSE, WHEN_DENSE_BIAS),
    ROUTER("mixer.gate", WHEN_NEVER),
    BLOCK(ROLE_CHOICE_BIAS, "gate.e_score_correction_bias!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED,
          WHEN_NEVER),
    EXPERT(ROLE_EXPERT_UP, "mixer.experts.*.up_proj", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_DOWN, "mixer.experts.*.down_proj", DIM_HIDDEN, DIM_EXPERT),
    BLOCK(ROLE_SHARED_UP, "shared_experts.up_proj", DIM_SHARED, DIM_HIDDEN, WHEN_SHARED,
          WHEN_NEVER),
    BLOCK(ROLE_SHARED_DOWN, "shared_experts.down_proj", DIM_HIDDEN, DIM_SHARED, WHEN_SHARED,
          WHEN_NEVER),
};

const layout_t layout_nemotron_h = {PATTERNS(nemotron_h_patterns),
                                    .prefixes = {"backbone.", DECODER_PREFIXES}};
const layout_t layout_granite_hybrid = LLAMA_LIKE(granite_hybrid_patterns);
const layout_t layout_bamba = LLAMA_LIKE(bamba_patterns);
const layout_t layout_qwen3_next = LLAMA_LIKE(qwen3_next_patterns);
const layout_t layout_qwen3_5 = LLAMA_LIKE(qwen3_5_patterns);
const layout_t layout_lfm2 = LLAMA_LIKE(lfm2_patterns);
