/* layout_rows.h: the rows that the tables of tensor names share.
 *
 * Constant data, included by the files that hold layouts.
 */
#ifndef INFERD_ENGINE_MODEL_LAYOUTS_LAYOUT_ROWS_H
#define INFERD_ENGINE_MODEL_LAYOUTS_LAYOUT_ROWS_H

#include "engine/model/families/layout.h"

#define ROW(role, name, rows, cols, when, bias)                                                    \
  { role, name, rows, cols, when, bias, FORM_PLAIN }
/* LayerNorms with biases. */
#define BIASED_NORM(role, name, when) ROW(role, name, DIM_HIDDEN, DIM_NONE, when, when)
/* Embedding, last norm and head under the names of the Llama layout. */
#define DECODER_ROWS                                                                               \
  {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},         \
      {ROLE_FINAL_NORM, "norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN}, {      \
    ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN               \
  }

#define LAYER_NORM(role, name)                                                                     \
  { role, "layers.#." name, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN }
/* Norms before both blocks, as Llama names them. */
#define PRE_NORMS                                                                                  \
  LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),                                                   \
      LAYER_NORM(ROLE_MLP_NORM, "post_attention_layernorm")

#define ATTENTION(role, name, rows, cols, bias)                                                    \
  { role, "layers.#.self_attn." name, rows, cols, WHEN_ALWAYS, bias, FORM_PLAIN }
#define HEAD_NORM(role, name, rows)                                                                \
  { role, "layers.#.self_attn." name, rows, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_PLAIN }
#define OUT_PROJECTION ATTENTION(ROLE_O, "o_proj", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS)
#define PROJECTION_ROWS                                                                            \
  ATTENTION(ROLE_Q, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),                                   \
      ATTENTION(ROLE_K, "k_proj", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),                              \
      ATTENTION(ROLE_V, "v_proj", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS), OUT_PROJECTION
#define ATTENTION_ROWS                                                                             \
  PROJECTION_ROWS, HEAD_NORM(ROLE_Q_NORM, "q_norm", DIM_Q_NORM),                                   \
      HEAD_NORM(ROLE_K_NORM, "k_norm", DIM_K_NORM)

#define DENSE(role, name, rows, cols)                                                              \
  { role, "layers.#.mlp." name, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS, FORM_PLAIN }
#define DENSE_ROWS                                                                                 \
  DENSE(ROLE_GATE, "gate_proj", DIM_MLP, DIM_HIDDEN),                                              \
      DENSE(ROLE_UP, "up_proj", DIM_MLP, DIM_HIDDEN),                                              \
      DENSE(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP)

#define ROUTER(name, bias)                                                                         \
  { ROLE_ROUTER, "layers.#." name, DIM_EXPERTS, DIM_HIDDEN, WHEN_EXPERTS, bias, FORM_PLAIN }
#define EXPERT(role, name, rows, cols)                                                             \
  { role, "layers.#." name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, FORM_EACH }
#define SHARED(role, name, rows, cols)                                                             \
  { role, "layers.#.mlp." name, rows, cols, WHEN_SHARED, WHEN_NEVER, FORM_PLAIN }

#define PATTERNS(array)                                                                            \
  .patterns = (array), .num_patterns = (int)(sizeof(array) / sizeof((array)[0]))
/* Old files carry the buffers of the rotary module. */
#define ROTARY_BUFFERS "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"
/* A model of its own, without its head as for embeddings, and inside a model that sees images. */
#define DECODER_PREFIXES                                                                           \
  "model.", "", "model.language_model.", "language_model.model.", "language_model.",               \
      "model.text_model."
#define LLAMA_LIKE(array)                                                                          \
  {                                                                                                \
    PATTERNS(array), .prefixes = {DECODER_PREFIXES}, .ignored = { ROTARY_BUFFERS }                 \
  }

#endif
