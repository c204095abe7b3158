/* layout_gguf_rows.h: the rows that the tables of GGUF names share.
 *
 * Constant data, included by the files that hold layouts of GGUF files.
 */
#ifndef INFERD_ENGINE_MODEL_LAYOUTS_LAYOUT_GGUF_ROWS_H
#define INFERD_ENGINE_MODEL_LAYOUTS_LAYOUT_GGUF_ROWS_H

#include "engine/model/families/layout.h"

#define OUTER_ROWS(bias)                                                                           \
  {ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},           \
      {ROLE_FINAL_NORM, "output_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, bias, FORM_PLAIN}, {     \
    ROLE_HEAD, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN                 \
  }
#define NORM_ROW(role, name)                                                                       \
  { role, "blk.#." name, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }
#define LAYER_NORM_ROW(role, name)                                                                 \
  { role, "blk.#." name, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN }
#define MATRIX(role, name, rows, cols, when, bias)                                                 \
  { role, "blk.#." name, rows, cols, when, bias, FORM_PLAIN }
#define OUT_ROW MATRIX(ROLE_O, "attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS)
#define PROJECTION_ROWS                                                                            \
  MATRIX(ROLE_Q, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),                         \
      MATRIX(ROLE_K, "attn_k", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),                    \
      MATRIX(ROLE_V, "attn_v", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS), OUT_ROW
#define ATTENTION_ROWS                                                                             \
  PROJECTION_ROWS,                                                                                 \
      MATRIX(ROLE_Q_NORM, "attn_q_norm", DIM_Q_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER),          \
      MATRIX(ROLE_K_NORM, "attn_k_norm", DIM_K_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER)
#define UP_ROW MATRIX(ROLE_UP, "ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS)
#define DOWN_ROW MATRIX(ROLE_DOWN, "ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_DENSE, WHEN_DENSE_BIAS)
#define DENSE_ROWS                                                                                 \
  MATRIX(ROLE_GATE, "ffn_gate", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS), UP_ROW, DOWN_ROW
#define EXPERT(role, name, rows, cols, bias)                                                       \
  { role, "blk.#." name, rows, cols, WHEN_EXPERTS, bias, FORM_STACK }
#define EXPERT_ROWS(bias)                                                                          \
  MATRIX(ROLE_ROUTER, "ffn_gate_inp", DIM_EXPERTS, DIM_HIDDEN, WHEN_EXPERTS, bias),                \
      EXPERT(ROLE_EXPERT_GATE, "ffn_gate_exps", DIM_EXPERT, DIM_HIDDEN, bias),                     \
      EXPERT(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EXPERT, DIM_HIDDEN, bias),                         \
      EXPERT(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT, bias)
#define SHARED(role, name, rows, cols) MATRIX(role, name, rows, cols, WHEN_SHARED, WHEN_NEVER)

/* Converters of the first files fused q, k and v, younger ones keep the three tensors. */
#define FUSED_OR_APART                                                                             \
  MATRIX(ROLE_QKV, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_QKV_FUSED, WHEN_QKV_BIAS_FUSED),          \
      MATRIX(ROLE_Q, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART),            \
      MATRIX(ROLE_K, "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART),           \
      MATRIX(ROLE_V, "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART), OUT_ROW

/* ffn_up holds gate and up. */
#define GATE_UP_ROWS                                                                               \
  MATRIX(ROLE_GATE_UP, "ffn_up", DIM_GATE_UP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS), DOWN_ROW

/* Experts that are scored, beside shared ones; of DeepSeek V2 without a bias of the choice. */
#define CHOICE_ROW                                                                                 \
  {                                                                                                \
    ROLE_CHOICE_BIAS, "blk.#.exp_probs_b.bias!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED, WHEN_NEVER,   \
        FORM_PLAIN                                                                                 \
  }
#define SCORED_ROWS                                                                                \
  DENSE_ROWS, EXPERT_ROWS(WHEN_NEVER),                                                             \
      SHARED(ROLE_SHARED_GATE, "ffn_gate_shexp", DIM_SHARED, DIM_HIDDEN),                          \
      SHARED(ROLE_SHARED_UP, "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN),                              \
      SHARED(ROLE_SHARED_DOWN, "ffn_down_shexp", DIM_HIDDEN, DIM_SHARED)

/* The divisors of the angles are read with the metadata. */
#define GGUF_LAYOUT(array, zipped)                                                                 \
  {                                                                                                \
    .patterns = (array), .num_patterns = (int)(sizeof(array) / sizeof((array)[0])),                \
    .prefixes = {""}, .heads_zipped = (zipped), .ignored = {                                       \
      "rope_freqs.weight",                                                                         \
      "rope_factors_short.weight",                                                                 \
      "rope_factors_long.weight",                                                                  \
      "$.attn_rot_embd.weight",                                                                    \
      "cls.output.weight" /* of a decoder that judges: rows of its head */                         \
    }                                                                                              \
  }

#endif
