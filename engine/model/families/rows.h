/* rows.h: what the lineages share: rows of tables of tensors, and the defaults of Llama.
 *
 * A row of tensors has its name in safetensors and then that in GGUF files; where a file has
 * another shape or none, a row of STORED or GGUF stands for one kind of files alone. Included by
 * the lineages. Constant data.
 */
#ifndef INFERD_ENGINE_MODEL_FAMILIES_ROWS_H
#define INFERD_ENGINE_MODEL_FAMILIES_ROWS_H

#include "engine/base/util.h"
#include "engine/model/families/family.h"

#include <stddef.h>

/* A family that is like another begins with its macro: what follows goes before that. */
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

/* ---- rows of families ---- */

#define NAMES(type, class) .name = (type), .architecture = (class)
/* Class defaults: vocabulary, hidden size, MLP, layers, heads, heads of K and V or 0, size of a
 * head or 0, positions. */
#define SIZES(vocab, hidden, mlp, layers, heads, kv, head, positions)                              \
  .vocab_size = (vocab), .hidden_size = (hidden), .intermediate_size = (mlp),                      \
  .num_layers = (layers), .num_heads = (heads), .num_kv_heads = (kv), .head_dim = (head),          \
  .max_positions = (positions)
#define IDS(eos, bos) .eos_id = (eos), .bos_id = (bos)
#define LLAMA_PARTS                                                                                \
  .layout = &layout_llama, .norm_eps = 1e-6, .rope_theta = 1e4, .activation = "silu",              \
  .norm = NORM_RMS, .rotary = true, .gated_mlp = true, .grouped = true
/* The text of a model that sees images, whose keys stand in text_config. */
#define TEXT_OF(type) .text_type = (type), .nested = true

/* ---- rows of tensors ---- */

#define ROW(role, name, gguf, rows, cols, when, bias)                                              \
  { role, name, gguf, rows, cols, when, bias, FORM_PLAIN }
/* Of a layer, as Llama numbers them. */
#define LAYER(role, name, gguf, rows, cols, when, bias)                                            \
  { role, "layers.#." name, "blk.#." gguf, rows, cols, when, bias, FORM_PLAIN }
#define STORED(role, name, rows, cols, when, bias, form)                                           \
  { role, "layers.#." name, NULL, rows, cols, when, bias, form }
#define GGUF(role, name, rows, cols, when, bias, form)                                             \
  { role, NULL, "blk.#." name, rows, cols, when, bias, form }

/* LayerNorms with biases. */
#define BIASED_NORM(role, name, gguf, when) ROW(role, name, gguf, DIM_HIDDEN, DIM_NONE, when, when)
#define NORM(role, name, gguf)                                                                     \
  LAYER(role, name, gguf, DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER)
#define EMBED(name)                                                                                \
  ROW(ROLE_EMBED, name, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER)
#define FINAL_NORM(name, bias)                                                                     \
  ROW(ROLE_FINAL_NORM, name, "output_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, bias)
#define HEAD(name, bias) ROW(ROLE_HEAD, name, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, bias)
/* Embedding, last norm and head under the names of the Llama layout. */
#define DECODER_ROWS                                                                               \
  EMBED("embed_tokens"), FINAL_NORM("norm", WHEN_NEVER), HEAD("/lm_head", WHEN_NEVER)
/* Norms before both blocks, as Llama names them; GGUF files of some call the second otherwise. */
#define PRE_NORMS_AS(second)                                                                       \
  NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),                                            \
      NORM(ROLE_MLP_NORM, "post_attention_layernorm", second)
#define PRE_NORMS PRE_NORMS_AS("ffn_norm")
/* Norms behind both blocks. */
#define OUT_NORMS                                                                                  \
  NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm", "post_attention_norm"),                     \
      NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm", "post_ffw_norm")

#define ATTENTION(role, name, gguf, rows, cols, bias)                                              \
  LAYER(role, "self_attn." name, gguf, rows, cols, WHEN_ALWAYS, bias)
#define HEAD_NORMS(q, k)                                                                           \
  LAYER(ROLE_Q_NORM, "self_attn." q, "attn_q_norm", DIM_Q_NORM, DIM_NONE, WHEN_QK_NORM,            \
        WHEN_NEVER),                                                                               \
      LAYER(ROLE_K_NORM, "self_attn." k, "attn_k_norm", DIM_K_NORM, DIM_NONE, WHEN_QK_NORM,        \
            WHEN_NEVER)
#define OUT_PROJECTION ATTENTION(ROLE_O, "o_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS)
#define PROJECTION_ROWS                                                                            \
  ATTENTION(ROLE_Q, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),                         \
      ATTENTION(ROLE_K, "k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),                    \
      ATTENTION(ROLE_V, "v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS), OUT_PROJECTION
#define ATTENTION_ROWS PROJECTION_ROWS, HEAD_NORMS("q_norm", "k_norm")
/* Converters of the first files fused q, k and v, younger ones keep the three tensors. */
#define GGUF_FUSED                                                                                 \
  GGUF(ROLE_QKV, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_QKV_FUSED, WHEN_QKV_BIAS_FUSED, FORM_PLAIN)
#define GGUF_APART                                                                                 \
  GGUF(ROLE_Q, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART, FORM_PLAIN),      \
      GGUF(ROLE_K, "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART, FORM_PLAIN), \
      GGUF(ROLE_V, "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART, FORM_PLAIN)

#define DENSE(role, name, gguf, rows, cols)                                                        \
  LAYER(role, "mlp." name, gguf, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS)
#define UP(name) DENSE(ROLE_UP, name, "ffn_up", DIM_MLP, DIM_HIDDEN)
#define DOWN(name) DENSE(ROLE_DOWN, name, "ffn_down", DIM_HIDDEN, DIM_MLP)
#define DENSE_ROWS                                                                                 \
  DENSE(ROLE_GATE, "gate_proj", "ffn_gate", DIM_MLP, DIM_HIDDEN), UP("up_proj"), DOWN("down_proj")
/* The rows of the gate, then those of up. */
#define FUSED_MLP_ROWS                                                                             \
  DENSE(ROLE_GATE_UP, "gate_up_proj", "ffn_up", DIM_GATE_UP, DIM_HIDDEN), DOWN("down_proj")

#define ROUTER(name, bias)                                                                         \
  LAYER(ROLE_ROUTER, name, "ffn_gate_inp", DIM_EXPERTS, DIM_HIDDEN, WHEN_EXPERTS, bias)
#define EXPERT(role, name, rows, cols)                                                             \
  STORED(role, name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, FORM_EACH)
/* The names of gate, up and down in front of which `path` stands: a tensor for each expert. */
#define EXPERTS(path, gate, up, down)                                                              \
  EXPERT(ROLE_EXPERT_GATE, path gate, DIM_EXPERT, DIM_HIDDEN),                                     \
      EXPERT(ROLE_EXPERT_UP, path up, DIM_EXPERT, DIM_HIDDEN),                                     \
      EXPERT(ROLE_EXPERT_DOWN, path down, DIM_HIDDEN, DIM_EXPERT)
#define GGUF_EXPERT(role, name, rows, cols, bias)                                                  \
  GGUF(role, name, rows, cols, WHEN_EXPERTS, bias, FORM_STACK)
#define GGUF_EXPERTS(bias)                                                                         \
  GGUF_EXPERT(ROLE_EXPERT_GATE, "ffn_gate_exps", DIM_EXPERT, DIM_HIDDEN, bias),                    \
      GGUF_EXPERT(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EXPERT, DIM_HIDDEN, bias),                    \
      GGUF_EXPERT(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT, bias)
#define NUMBERED_EXPERTS                                                                           \
  EXPERTS("mlp.experts.*.", "gate_proj", "up_proj", "down_proj"), GGUF_EXPERTS(WHEN_NEVER)
/* Experts of layouts with `may_stack`: one by one, or in stacks. */
#define EACH(role, name, rows, cols)                                                               \
  STORED(role, "mlp.experts.*." name, rows, cols, WHEN_EXPERTS_EACH, WHEN_NEVER, FORM_EACH)
#define EXPERTS_APART                                                                              \
  EACH(ROLE_EXPERT_GATE, "gate_proj", DIM_EXPERT, DIM_HIDDEN),                                     \
      EACH(ROLE_EXPERT_UP, "up_proj", DIM_EXPERT, DIM_HIDDEN),                                     \
      EACH(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT)
#define STACK(role, name, rows, cols, when, form)                                                  \
  STORED(role, "mlp.experts." name "!", rows, cols, when, WHEN_NEVER, form)
#define STACKS(when, form)                                                                         \
  STACK(ROLE_EXPERT_GATE_UP, "gate_up_proj", DIM_EXPERT_UP, DIM_HIDDEN, when, form),               \
      STACK(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT, when, form)
#define SHARED(role, name, gguf, rows, cols)                                                       \
  LAYER(role, name, gguf, rows, cols, WHEN_SHARED, WHEN_NEVER)
#define SHARED_ROWS(path)                                                                          \
  SHARED(ROLE_SHARED_GATE, path "gate_proj", "ffn_gate_shexp", DIM_SHARED, DIM_HIDDEN),            \
      SHARED(ROLE_SHARED_UP, path "up_proj", "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN),              \
      SHARED(ROLE_SHARED_DOWN, path "down_proj", "ffn_down_shexp", DIM_HIDDEN, DIM_SHARED)
#define SHARED_SWITCH                                                                              \
  SHARED(ROLE_SHARED_SWITCH, "mlp.shared_expert_gate", "ffn_gate_inp_shexp", DIM_ONE, DIM_HIDDEN)
/* Experts that are scored have a bias of the choice. */
#define CHOICE_BIAS(name)                                                                          \
  LAYER(ROLE_CHOICE_BIAS, name "!", "exp_probs_b.bias!", DIM_EXPERTS, DIM_NONE, WHEN_SCORED,       \
        WHEN_NEVER)

/* Layers with a state: roles of attention are expected in layers that have it, those of ROLE_MIX_
 * in layers with a state. */
#define MIX_IN(name, gguf, bias)                                                                   \
  LAYER(ROLE_MIX_IN, name, gguf, DIM_MIX_IN, DIM_HIDDEN, WHEN_ALWAYS, bias)
#define MIX_OUT(name, gguf, bias)                                                                  \
  LAYER(ROLE_MIX_OUT, name, gguf, DIM_HIDDEN, DIM_MIX_INNER, WHEN_ALWAYS, bias)
#define MIX_CONV(name, gguf, bias)                                                                 \
  {                                                                                                \
    ROLE_MIX_CONV, "layers.#." name, "blk.#." gguf, DIM_MIX_CONV, DIM_NONE, WHEN_ALWAYS, bias,     \
        FORM_CONV                                                                                  \
  }
#define MIX_VECTOR(role, name, gguf, rows)                                                         \
  LAYER(role, name, gguf, rows, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER)
/* What all kinds of Mamba have. */
#define MAMBA_ENDS(path)                                                                           \
  MIX_IN(path "in_proj", "ssm_in", WHEN_MIXER_BIAS),                                               \
      MIX_CONV(path "conv1d", "ssm_conv1d", WHEN_CONV_BIAS),                                       \
      MIX_OUT(path "out_proj", "ssm_out", WHEN_MIXER_BIAS)
/* Mamba-2, as transformers names it. */
#define MAMBA_ROWS(path)                                                                           \
  MAMBA_ENDS(path), MIX_VECTOR(ROLE_MIX_DECAY, path "A_log!", "ssm_a!", DIM_MIX_HEADS),            \
      MIX_VECTOR(ROLE_MIX_BIAS, path "dt_bias!", "ssm_dt.bias!", DIM_MIX_HEADS),                   \
      MIX_VECTOR(ROLE_MIX_SKIP, path "D!", "ssm_d!", DIM_MIX_HEADS),                               \
      STORED(ROLE_MIX_NORM, path "norm", DIM_MIX_NORM, DIM_NONE, WHEN_MIXER_NORM, WHEN_NEVER,      \
             FORM_PLAIN),                                                                          \
      GGUF(ROLE_MIX_NORM, "ssm_norm", DIM_MIX_NORM, DIM_NONE, WHEN_MIXER_NORM, WHEN_NEVER,         \
           FORM_HEADS)
/* Mamba-1. */
#define MAMBA_1_ROWS(path)                                                                         \
  MAMBA_ENDS(path),                                                                                \
      LAYER(ROLE_MIX_PARTS, path "x_proj", "ssm_x", DIM_MIX_PARTS, DIM_MIX_INNER, WHEN_ALWAYS,     \
            WHEN_NEVER),                                                                           \
      LAYER(ROLE_MIX_STEPS, path "dt_proj", "ssm_dt", DIM_MIX_INNER, DIM_MIX_STEPS, WHEN_ALWAYS,   \
            WHEN_ALWAYS),                                                                          \
      {ROLE_MIX_DECAY, "layers.#." path "A_log!",                                                  \
       "blk.#.ssm_a!", DIM_MIX_STATES,                                                             \
       DIM_NONE,       WHEN_ALWAYS,                                                                \
       WHEN_NEVER,     FORM_HEADS},                                                                \
      MIX_VECTOR(ROLE_MIX_SKIP, path "D!", "ssm_d!", DIM_MIX_INNER)

/* ---- layouts ---- */

#define PATTERNS(array) .patterns = (array), .num_patterns = (int)ARRAY_LEN(array)
/* Old files carry the buffers of the rotary module. */
#define ROTARY_BUFFERS "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"
/* A model of its own, without its head as for embeddings, and inside a model that sees images or
 * hears sound. */
#define DECODER_PREFIXES                                                                           \
  "model.", "", "model.language_model.", "language_model.model.", "language_model.",               \
      "model.text_model.", "thinker.model.", "llm.model."
#define LLAMA_LIKE(array)                                                                          \
  PATTERNS(array), .prefixes = {DECODER_PREFIXES}, .ignored = {ROTARY_BUFFERS}

/* Of more than one lineage. */
extern const layout_t layout_llama, layout_olmo2, layout_qwen_moe, layout_deepseek3, layout_bamba;

#endif
