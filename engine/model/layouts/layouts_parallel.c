/* layouts_parallel.c: the tensor names of families that can run attention and MLP side by side.
 *
 * As layouts.c says. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

static const tensor_pattern_t gpt_neox_patterns[] = {
    ROW(ROLE_EMBED, "embed_in", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "final_layer_norm", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/embed_out", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", WHEN_ALWAYS),
    BIASED_NORM(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", WHEN_ALWAYS),
    ROW(ROLE_QKV, "layers.#.attention.query_key_value", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS,
        WHEN_QKV_BIAS),
    ROW(ROLE_O, "layers.#.attention.dense", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS),
    DENSE(ROLE_UP, "dense_h_to_4h", DIM_MLP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "dense_4h_to_h", DIM_HIDDEN, DIM_MLP),
};

/* Blocks of the second generation with two norms call them ln_attn and ln_mlp. */
static const tensor_pattern_t falcon_patterns[] = {
    ROW(ROLE_EMBED, "word_embeddings", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "ln_f", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.input_layernorm", WHEN_ONE_INPUT),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.ln_attn", WHEN_TWO_INPUTS),
    BIASED_NORM(ROLE_MLP_NORM, "h.#.ln_mlp", WHEN_TWO_INPUTS),
    BIASED_NORM(ROLE_MLP_NORM, "h.#.post_attention_layernorm", WHEN_SERIAL),
    ROW(ROLE_QKV, "h.#.self_attention.query_key_value", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS,
        WHEN_QKV_BIAS),
    ROW(ROLE_O, "h.#.self_attention.dense", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS),
    ROW(ROLE_UP, "h.#.mlp.dense_h_to_4h", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS),
    ROW(ROLE_DOWN, "h.#.mlp.dense_4h_to_h", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS),
};

/* LayerNorms of each head, a tensor for every one (StableLM 2 12B). */
#define EACH_HEAD_NORM(role, name)                                                                 \
  {                                                                                                \
    role, "layers.#.self_attn." name ".norms.*", DIM_HEAD, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER,     \
        FORM_EACH_HEAD                                                                             \
  }

static const tensor_pattern_t stablelm_patterns[] = {
    ROW(ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "norm", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", WHEN_ALWAYS),
    BIASED_NORM(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", WHEN_MLP_NORM),
    PROJECTION_ROWS,
    EACH_HEAD_NORM(ROLE_Q_NORM, "q_layernorm"),
    EACH_HEAD_NORM(ROLE_K_NORM, "k_layernorm"),
    DENSE_ROWS,
};

/* One norm a layer, without biases. */
static const tensor_pattern_t cohere_patterns[] = {
    DECODER_ROWS,
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    PROJECTION_ROWS,
    {ROLE_Q_NORM, "layers.#.self_attn.q_norm", DIM_Q_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER,
     FORM_HEADS},
    {ROLE_K_NORM, "layers.#.self_attn.k_norm", DIM_K_NORM, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER,
     FORM_HEADS},
    DENSE_ROWS,
};

static const tensor_pattern_t phi_patterns[] = {
    ROW(ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "final_layernorm", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_HEAD),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", WHEN_ALWAYS),
    ATTENTION(ROLE_Q, "q_proj", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_K, "k_proj", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_V, "v_proj", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),
    ATTENTION(ROLE_O, "dense", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    DENSE(ROLE_UP, "fc1", DIM_MLP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "fc2", DIM_HIDDEN, DIM_MLP),
};

static const tensor_pattern_t gptj_patterns[] = {
    ROW(ROLE_EMBED, "wte", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "ln_f", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_HEAD),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.ln_1", WHEN_ALWAYS),
    ROW(ROLE_Q, "h.#.attn.q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_K, "h.#.attn.k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_V, "h.#.attn.v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_O, "h.#.attn.out_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_UP, "h.#.mlp.fc_in", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS),
    ROW(ROLE_DOWN, "h.#.mlp.fc_out", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS),
};

/* "$.attention.bias" is the mask that old files carry; "attention.dense.bias" does not end so. */
const layout_t layout_gpt_neox = {
    PATTERNS(gpt_neox_patterns),
    .prefixes = {"gpt_neox.", ""},
    .ignored = {ROTARY_BUFFERS, "$.attention.bias", "$.attention.masked_bias"},
    .qkv_grouped = true,
};
const layout_t layout_falcon = {
    PATTERNS(falcon_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {ROTARY_BUFFERS},
    .qkv_grouped = true,
};
const layout_t layout_cohere = LLAMA_LIKE(cohere_patterns);
const layout_t layout_phi = LLAMA_LIKE(phi_patterns);
const layout_t layout_gptj = {
    PATTERNS(gptj_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {"$.attn.bias", "$.attn.masked_bias"},
};
const layout_t layout_stablelm = LLAMA_LIKE(stablelm_patterns);
