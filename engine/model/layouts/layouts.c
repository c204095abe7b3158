/* layouts.c: the table of the tensor names of every family.
 *
 * Names and shapes are those of the published checkpoints. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

static const tensor_pattern_t llama_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
};

/* post_attention_layernorm is applied after attention, not before the MLP. */
static const tensor_pattern_t gemma_patterns[] = {
    DECODER_ROWS,
    LAYER_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm"),
    LAYER_NORM(ROLE_MLP_NORM, "pre_feedforward_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t olmo2_patterns[] = {
    DECODER_ROWS,
    LAYER_NORM(ROLE_ATTN_OUT_NORM, "post_attention_layernorm"),
    LAYER_NORM(ROLE_MLP_OUT_NORM, "post_feedforward_layernorm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t phi3_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION(ROLE_QKV, "qkv_proj", DIM_QKV, DIM_HIDDEN, WHEN_NEVER),
    OUT_PROJECTION,
    DENSE(ROLE_GATE_UP, "gate_up_proj", DIM_GATE_UP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "down_proj", DIM_HIDDEN, DIM_MLP),
};

static const tensor_pattern_t mixtral_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    ROUTER("block_sparse_moe.gate", WHEN_NEVER),
    EXPERT(ROLE_EXPERT_GATE, "block_sparse_moe.experts.*.w1", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_UP, "block_sparse_moe.experts.*.w3", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_DOWN, "block_sparse_moe.experts.*.w2", DIM_HIDDEN, DIM_EXPERT),
};

static const tensor_pattern_t qwen_moe_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    ROUTER("mlp.gate", WHEN_NEVER),
    EXPERT(ROLE_EXPERT_GATE, "mlp.experts.*.gate_proj", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_UP, "mlp.experts.*.up_proj", DIM_EXPERT, DIM_HIDDEN),
    EXPERT(ROLE_EXPERT_DOWN, "mlp.experts.*.down_proj", DIM_HIDDEN, DIM_EXPERT),
    SHARED(ROLE_SHARED_GATE, "shared_expert.gate_proj", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_UP, "shared_expert.up_proj", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_DOWN, "shared_expert.down_proj", DIM_HIDDEN, DIM_SHARED),
    SHARED(ROLE_SHARED_SWITCH, "shared_expert_gate", DIM_ONE, DIM_HIDDEN),
};

/* Published files have MXFP4 blocks. Files saved again by transformers have plain numbers,
 * transposed in comparison to the blocks. */
#define OSS_EXPERTS(role, name, rows, cols, when, form)                                            \
  { role, "layers.#.mlp.experts." name "!", rows, cols, when, WHEN_NEVER, form }
#define OSS_BIAS(role, name, rows)                                                                 \
  { role, "layers.#.mlp.experts." name "!", rows, DIM_NONE, WHEN_NEVER, WHEN_EXPERTS, FORM_STACK }
static const tensor_pattern_t gpt_oss_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    {ROLE_SINKS, "layers.#.self_attn.sinks!", DIM_HEADS, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER,
     FORM_PLAIN},
    ROUTER("mlp.router", WHEN_EXPERTS),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP, "gate_up_proj", DIM_EXPERT_UP, DIM_HIDDEN, WHEN_EXPERTS_PLAIN,
                FORM_STACK_TRANSPOSED),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP, "gate_up_proj_blocks", DIM_EXPERT_UP, DIM_HIDDEN,
                WHEN_EXPERTS_MXFP4, FORM_STACK_BLOCKS),
    OSS_EXPERTS(ROLE_EXPERT_GATE_UP_SCALES, "gate_up_proj_scales", DIM_EXPERT_UP, DIM_HIDDEN,
                WHEN_EXPERTS_MXFP4, FORM_STACK_SCALES),
    OSS_BIAS(ROLE_EXPERT_GATE_UP, "gate_up_proj_bias", DIM_EXPERT_UP),
    OSS_EXPERTS(ROLE_EXPERT_DOWN, "down_proj", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_PLAIN,
                FORM_STACK_TRANSPOSED),
    OSS_EXPERTS(ROLE_EXPERT_DOWN, "down_proj_blocks", DIM_HIDDEN, DIM_EXPERT, WHEN_EXPERTS_MXFP4,
                FORM_STACK_BLOCKS),
    OSS_EXPERTS(ROLE_EXPERT_DOWN_SCALES, "down_proj_scales", DIM_HIDDEN, DIM_EXPERT,
                WHEN_EXPERTS_MXFP4, FORM_STACK_SCALES),
    OSS_BIAS(ROLE_EXPERT_DOWN, "down_proj_bias", DIM_HIDDEN),
};

/* LayerNorms with biases and a plain MLP, otherwise the Llama layout. */
static const tensor_pattern_t starcoder2_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    {ROLE_ATTN_NORM, "layers.#.input_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS,
     FORM_PLAIN},
    {ROLE_MLP_NORM, "layers.#.post_attention_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS,
     WHEN_ALWAYS, FORM_PLAIN},
    ATTENTION_ROWS,
    DENSE(ROLE_UP, "c_fc", DIM_MLP, DIM_HIDDEN),
    DENSE(ROLE_DOWN, "c_proj", DIM_HIDDEN, DIM_MLP),
};

static const tensor_pattern_t opt_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_POSITIONS, "embed_positions", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER,
     FORM_PLAIN},
    {ROLE_PROJECT_IN, "project_in", DIM_HIDDEN, DIM_EMBED, WHEN_PROJECTED, WHEN_NEVER, FORM_PLAIN},
    {ROLE_PROJECT_OUT, "project_out", DIM_EMBED, DIM_HIDDEN, WHEN_PROJECTED, WHEN_NEVER,
     FORM_PLAIN},
    {ROLE_FINAL_NORM, "final_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_FINAL_NORM, WHEN_FINAL_NORM,
     FORM_PLAIN},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    {ROLE_ATTN_NORM, "layers.#.self_attn_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_NORM_AFFINE,
     WHEN_NORM_AFFINE, FORM_PLAIN},
    {ROLE_Q, "layers.#.self_attn.q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS,
     FORM_PLAIN},
    {ROLE_K, "layers.#.self_attn.k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS,
     FORM_PLAIN},
    {ROLE_V, "layers.#.self_attn.v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS,
     FORM_PLAIN},
    {ROLE_O, "layers.#.self_attn.out_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS,
     FORM_PLAIN},
    {ROLE_MLP_NORM, "layers.#.final_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_NORM_AFFINE,
     WHEN_NORM_AFFINE, FORM_PLAIN},
    {ROLE_UP, "layers.#.fc1", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS, FORM_PLAIN},
    {ROLE_DOWN, "layers.#.fc2", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS, FORM_PLAIN},
};

static const tensor_pattern_t gpt2_patterns[] = {
    {ROLE_EMBED, "wte", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_POSITIONS, "wpe", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "ln_f", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    {ROLE_ATTN_NORM, "h.#.ln_1", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN},
    {ROLE_QKV, "h.#.attn.c_attn", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TRANSPOSED},
    {ROLE_O, "h.#.attn.c_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TRANSPOSED},
    {ROLE_MLP_NORM, "h.#.ln_2", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN},
    {ROLE_UP, "h.#.mlp.c_fc", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TRANSPOSED},
    {ROLE_DOWN, "h.#.mlp.c_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TRANSPOSED},
};

const layout_t layout_llama = LLAMA_LIKE(llama_patterns);
const layout_t layout_gemma = LLAMA_LIKE(gemma_patterns);
const layout_t layout_phi3 = LLAMA_LIKE(phi3_patterns);
const layout_t layout_olmo2 = LLAMA_LIKE(olmo2_patterns);
const layout_t layout_mixtral = LLAMA_LIKE(mixtral_patterns);
const layout_t layout_qwen_moe = LLAMA_LIKE(qwen_moe_patterns);
const layout_t layout_gpt_oss = {PATTERNS(gpt_oss_patterns), .prefixes = {DECODER_PREFIXES},
                                 .ignored = {ROTARY_BUFFERS}, .experts_interleaved = true};
const layout_t layout_starcoder2 = LLAMA_LIKE(starcoder2_patterns);
const layout_t layout_opt = {
    PATTERNS(opt_patterns),
    .prefixes = {"model.decoder.", "decoder."},
};
/* The mask buffers end in ".attn.bias"; "attn.c_attn.bias" does not. */
const layout_t layout_gpt2 = {
    PATTERNS(gpt2_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {"$.attn.bias", "$.attn.masked_bias"},
};
