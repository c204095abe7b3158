/* layouts_decoders.c: the tensor names of younger decoders with Llama's parts.
 *
 * As layouts.c says. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

static const tensor_pattern_t glm_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE(ROLE_GATE_UP, "gate_up_proj", DIM_GATE_UP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP),
};

static const tensor_pattern_t glm4_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_self_attn_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_mlp_layernorm"),
    ATTENTION_ROWS,
    DENSE(ROLE_GATE_UP, "gate_up_proj", DIM_GATE_UP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP),
};

static const tensor_pattern_t olmo_patterns[] = {
    ROW(ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t hunyuan_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    PROJECTION_ROWS,
    HEAD_NORM(ROLE_Q_NORM, "query_layernorm", DIM_Q_NORM),
    HEAD_NORM(ROLE_K_NORM, "key_layernorm", DIM_K_NORM),
    DENSE_ROWS,
};

static const tensor_pattern_t exaone_patterns[] = {
    ROW(ROLE_EMBED, "wte", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_FINAL_NORM, "ln_f", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    ROW(ROLE_ATTN_NORM, "h.#.ln_1", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_MLP_NORM, "h.#.ln_2", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_Q, "h.#.attn.attention.q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_K, "h.#.attn.attention.k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_V, "h.#.attn.attention.v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_O, "h.#.attn.attention.out_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_GATE, "h.#.mlp.c_fc_0", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_UP, "h.#.mlp.c_fc_1", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_DOWN, "h.#.mlp.c_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_NEVER),
};

static const tensor_pattern_t internlm2_patterns[] = {
    ROW(ROLE_EMBED, "tok_embeddings", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_FINAL_NORM, "norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_HEAD, "/output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    LAYER_NORM(ROLE_ATTN_NORM, "attention_norm"),
    LAYER_NORM(ROLE_MLP_NORM, "ffn_norm"),
    ROW(ROLE_QKV, "layers.#.attention.wqkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    ROW(ROLE_O, "layers.#.attention.wo", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS),
    ROW(ROLE_GATE, "layers.#.feed_forward.w1", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_UP, "layers.#.feed_forward.w3", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_DOWN, "layers.#.feed_forward.w2", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_NEVER),
};

#define PLAIN_MLP                                                                                  \
  DENSE(ROLE_UP, "up_proj", DIM_MLP, DIM_HIDDEN), DENSE(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP)

static const tensor_pattern_t nemotron_patterns[] = {
    ROW(ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "norm", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", WHEN_ALWAYS),
    BIASED_NORM(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", WHEN_ALWAYS),
    ATTENTION_ROWS,
    PLAIN_MLP,
};

static const tensor_pattern_t arcee_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    PLAIN_MLP,
};

/* GPT-2 whose matrices are not transposed. */
static const tensor_pattern_t gpt_bigcode_patterns[] = {
    ROW(ROLE_EMBED, "wte", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER),
    ROW(ROLE_POSITIONS, "wpe", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "ln_f", WHEN_ALWAYS),
    ROW(ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "h.#.ln_1", WHEN_ALWAYS),
    ROW(ROLE_QKV, "h.#.attn.c_attn", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS),
    ROW(ROLE_O, "h.#.attn.c_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_ALWAYS),
    BIASED_NORM(ROLE_MLP_NORM, "h.#.ln_2", WHEN_ALWAYS),
    ROW(ROLE_UP, "h.#.mlp.c_fc", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS),
    ROW(ROLE_DOWN, "h.#.mlp.c_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_ALWAYS),
};

const layout_t layout_nemotron = LLAMA_LIKE(nemotron_patterns);
const layout_t layout_arcee = LLAMA_LIKE(arcee_patterns);
const layout_t layout_gpt_bigcode = {
    PATTERNS(gpt_bigcode_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {"$.attn.bias", "$.attn.masked_bias"},
    .qkv_grouped = true,
};
const layout_t layout_olmo = LLAMA_LIKE(olmo_patterns);
const layout_t layout_hunyuan = LLAMA_LIKE(hunyuan_patterns);
const layout_t layout_glm = LLAMA_LIKE(glm_patterns);
const layout_t layout_glm4 = LLAMA_LIKE(glm4_patterns);
const layout_t layout_exaone = {
    PATTERNS(exaone_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {ROTARY_BUFFERS, "$rotary.inv_freq"},
};
const layout_t layout_internlm2 = {
    PATTERNS(internlm2_patterns),
    .prefixes = {"model.", ""},
    .ignored = {ROTARY_BUFFERS},
    .qkv_grouped = true,
};
