/* families.c: the table of model families, and nothing else.
 *
 * Defaults are those of the transformers configuration classes; names and shapes are those of the
 * published checkpoints. Constant data; any thread may read it.
 */
#include "engine/model/family.h"

#include <stdio.h>
#include <string.h>

static const tensor_pattern_t llama_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_FINAL_NORM, "norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, false},
    {ROLE_ATTN_NORM, "layers.#.input_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER,
     false},
    {ROLE_Q, "layers.#.self_attn.q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_K, "layers.#.self_attn.k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_V, "layers.#.self_attn.v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_Q_NORM, "layers.#.self_attn.q_norm", DIM_HEAD, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, false},
    {ROLE_K_NORM, "layers.#.self_attn.k_norm", DIM_HEAD, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, false},
    {ROLE_O, "layers.#.self_attn.o_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS, false},
    {ROLE_MLP_NORM, "layers.#.post_attention_layernorm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS,
     WHEN_NEVER, false},
    {ROLE_GATE, "layers.#.mlp.gate_proj", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS, false},
    {ROLE_UP, "layers.#.mlp.up_proj", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS, false},
    {ROLE_DOWN, "layers.#.mlp.down_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS, false},
};

static const tensor_pattern_t opt_patterns[] = {
    {ROLE_EMBED, "embed_tokens", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_POSITIONS, "embed_positions", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_PROJECT_IN, "project_in", DIM_HIDDEN, DIM_EMBED, WHEN_PROJECTED, WHEN_NEVER, false},
    {ROLE_PROJECT_OUT, "project_out", DIM_EMBED, DIM_HIDDEN, WHEN_PROJECTED, WHEN_NEVER, false},
    {ROLE_FINAL_NORM, "final_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_FINAL_NORM, WHEN_FINAL_NORM,
     false},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, false},
    {ROLE_ATTN_NORM, "layers.#.self_attn_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_NORM_AFFINE,
     WHEN_NORM_AFFINE, false},
    {ROLE_Q, "layers.#.self_attn.q_proj", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_K, "layers.#.self_attn.k_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_V, "layers.#.self_attn.v_proj", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, false},
    {ROLE_O, "layers.#.self_attn.out_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS, false},
    {ROLE_MLP_NORM, "layers.#.final_layer_norm", DIM_HIDDEN, DIM_NONE, WHEN_NORM_AFFINE,
     WHEN_NORM_AFFINE, false},
    {ROLE_UP, "layers.#.fc1", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS, false},
    {ROLE_DOWN, "layers.#.fc2", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS, false},
};

static const tensor_pattern_t gpt2_patterns[] = {
    {ROLE_EMBED, "wte", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_POSITIONS, "wpe", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, false},
    {ROLE_FINAL_NORM, "ln_f", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, false},
    {ROLE_HEAD, "/lm_head", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, false},
    {ROLE_ATTN_NORM, "h.#.ln_1", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, false},
    {ROLE_QKV, "h.#.attn.c_attn", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS, true},
    {ROLE_O, "h.#.attn.c_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_ALWAYS, true},
    {ROLE_MLP_NORM, "h.#.ln_2", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS, false},
    {ROLE_UP, "h.#.mlp.c_fc", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_ALWAYS, true},
    {ROLE_DOWN, "h.#.mlp.c_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_ALWAYS, true},
};

#define PATTERNS(array)                                                                            \
  .patterns = (array), .num_patterns = (int)(sizeof(array) / sizeof((array)[0]))

static const layout_t llama_layout = {
    PATTERNS(llama_patterns),
    .prefixes = {"model."},
    .ignored = {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"},
};
static const layout_t opt_layout = {
    PATTERNS(opt_patterns),
    .prefixes = {"model.decoder.", "decoder."},
};
/* The mask buffers end in ".attn.bias"; "attn.c_attn.bias" does not. */
static const layout_t gpt2_layout = {
    PATTERNS(gpt2_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {"$.attn.bias", "$.attn.masked_bias"},
};

static const family_t families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .layout = &llama_layout,
     .vocab_size = 32000,
     .hidden_size = 4096,
     .intermediate_size = 11008,
     .num_layers = 32,
     .num_heads = 32,
     .max_positions = 2048,
     .eos_id = 2,
     .bos_id = 1,
     .norm_eps = 1e-6,
     .rope_theta = 1e4,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias"},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .layout = &llama_layout,
     .vocab_size = 32000,
     .hidden_size = 4096,
     .intermediate_size = 14336,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 8,
     .max_positions = 131072,
     .window = 4096,
     .eos_id = 2,
     .bos_id = 1,
     .norm_eps = 1e-6,
     .rope_theta = 1e4,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .window_rule = WINDOW_ALL},
    /* Qwen 2 has q, k and v biases although no key says so. */
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .layout = &llama_layout,
     .vocab_size = 151936,
     .hidden_size = 4096,
     .intermediate_size = 22016,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 32,
     .max_positions = 32768,
     .window = 4096,
     .eos_id = -1,
     .bos_id = -1,
     .norm_eps = 1e-6,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .qkv_bias = true,
     .qk_norm_key = "qk_norm",
     .window_rule = WINDOW_UPPER},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .layout = &llama_layout,
     .vocab_size = 151936,
     .hidden_size = 4096,
     .intermediate_size = 22016,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .window = 4096,
     .eos_id = -1,
     .bos_id = -1,
     .norm_eps = 1e-6,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .attention_bias_key = "attention_bias",
     .qk_norm = true,
     .window_rule = WINDOW_UPPER},
    {.name = "opt",
     .architecture = "OPTForCausalLM",
     .layout = &opt_layout,
     .vocab_size = 50272,
     .hidden_size = 768,
     .intermediate_size = 3072,
     .num_layers = 12,
     .num_heads = 12,
     .max_positions = 2048,
     .eos_id = 2,
     .bos_id = 2,
     .norm_eps = 1e-5,
     .activation = "relu",
     .tied = true,
     .norm = NORM_LAYER,
     .attention_bias_key = "enable_bias",
     .mlp_bias_key = "enable_bias",
     .bias_default = true,
     .opt_keys = true,
     .position_offset = 2},
    {.name = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .layout = &gpt2_layout,
     .vocab_size = 50257,
     .hidden_size = 768,
     .intermediate_size = 0,
     .num_layers = 12,
     .num_heads = 12,
     .max_positions = 1024,
     .eos_id = 50256,
     .bos_id = 50256,
     .norm_eps = 1e-5,
     .activation = "gelu_new",
     .tied = true,
     .norm = NORM_LAYER,
     .qkv_bias = true,
     .o_bias = true,
     .mlp_bias = true},
};

enum { FAMILY_COUNT = sizeof(families) / sizeof(families[0]) };

static bool same(const char *name, const char *text, size_t length) {
  return strlen(name) == length && memcmp(name, text, length) == 0;
}

const family_t *family_by_architecture(const char *architecture, size_t length) {
  for (int i = 0; i < FAMILY_COUNT; i++) {
    if (same(families[i].architecture, architecture, length)) return &families[i];
  }
  return NULL;
}

const family_t *family_by_name(const char *name, size_t length) {
  for (int i = 0; i < FAMILY_COUNT; i++) {
    if (same(families[i].name, name, length)) return &families[i];
  }
  return NULL;
}

const char *family_list(char *out, size_t capacity) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < FAMILY_COUNT && used < capacity; i++) {
    int n = snprintf(out + used, capacity - used, "%s%s", i ? ", " : "", families[i].architecture);
    used += n > 0 ? (size_t)n : 0;
  }
  return out;
}
