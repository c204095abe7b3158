/* gpt.c: GPT-2 and decoders of its time: OPT, XGLM, BioGPT, GPT-Neo, GPT-J, CodeGen, GPT-NeoX,
 * StarCoder, StableLM.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define BOTH(role, name, gguf, rows, cols, bias)                                                   \
  ROW(role, name, "blk.#." gguf, rows, cols, WHEN_ALWAYS, bias)
#define NORM_OF(role, name, gguf) BIASED_NORM(role, name, "blk.#." gguf, WHEN_ALWAYS)
#define UP_OF(name)                                                                                \
  ROW(ROLE_UP, name, "blk.#.ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS)
#define DOWN_OF(name)                                                                              \
  ROW(ROLE_DOWN, name, "blk.#.ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_DENSE, WHEN_DENSE_BIAS)

/* Layers of models that fairseq trained. */
#define FAIRSEQ_LAYERS(normed)                                                                     \
  BIASED_NORM(ROLE_ATTN_NORM, "layers.#.self_attn_layer_norm", NULL, normed),                      \
      ATTENTION(ROLE_Q, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_QKV_BIAS),                     \
      ATTENTION(ROLE_K, "k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),                    \
      ATTENTION(ROLE_V, "v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_QKV_BIAS),                    \
      ATTENTION(ROLE_O, "out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),                \
      BIASED_NORM(ROLE_MLP_NORM, "layers.#.final_layer_norm", NULL, normed),                       \
      UP_OF("layers.#.fc1"), DOWN_OF("layers.#.fc2")
#define POSITIONS_OF(name)                                                                         \
  ROW(ROLE_POSITIONS, name, NULL, DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER)

static const tensor_pattern_t opt_patterns[] = {
    EMBED("embed_tokens"),
    POSITIONS_OF("embed_positions"),
    ROW(ROLE_PROJECT_IN, "project_in", NULL, DIM_HIDDEN, DIM_EMBED, WHEN_PROJECTED, WHEN_NEVER),
    ROW(ROLE_PROJECT_OUT, "project_out", NULL, DIM_EMBED, DIM_HIDDEN, WHEN_PROJECTED, WHEN_NEVER),
    BIASED_NORM(ROLE_FINAL_NORM, "final_layer_norm", NULL, WHEN_FINAL_NORM),
    HEAD("/lm_head", WHEN_NEVER),
    FAIRSEQ_LAYERS(WHEN_NORM_AFFINE),
};

static const tensor_pattern_t xglm_patterns[] = {
    EMBED("embed_tokens"),
    BIASED_NORM(ROLE_FINAL_NORM, "layer_norm", NULL, WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_NEVER),
    FAIRSEQ_LAYERS(WHEN_ALWAYS),
};

static const tensor_pattern_t biogpt_patterns[] = {
    EMBED("embed_tokens"),
    POSITIONS_OF("embed_positions"),
    BIASED_NORM(ROLE_FINAL_NORM, "layer_norm", NULL, WHEN_ALWAYS),
    HEAD("/output_projection", WHEN_NEVER),
    FAIRSEQ_LAYERS(WHEN_ALWAYS),
};

/* The matrices of GPT-2 are transposed in safetensors. */
#define GPT2_ROWS                                                                                  \
  EMBED("wte"),                                                                                    \
      ROW(ROLE_POSITIONS, "wpe", "position_embd", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS,          \
          WHEN_NEVER),                                                                             \
      FINAL_NORM("ln_f", WHEN_ALWAYS), HEAD("/lm_head", WHEN_NEVER),                               \
      NORM_OF(ROLE_ATTN_NORM, "h.#.ln_1", "attn_norm"),                                            \
      NORM_OF(ROLE_MLP_NORM, "h.#.ln_2", "ffn_norm")
#define TURNED(role, name, rows, cols)                                                             \
  { role, name, NULL, rows, cols, WHEN_ALWAYS, WHEN_ALWAYS, FORM_TRANSPOSED }
static const tensor_pattern_t gpt2_patterns[] = {
    GPT2_ROWS,
    TURNED(ROLE_QKV, "h.#.attn.c_attn", DIM_QKV, DIM_HIDDEN),
    TURNED(ROLE_O, "h.#.attn.c_proj", DIM_HIDDEN, DIM_Q),
    TURNED(ROLE_UP, "h.#.mlp.c_fc", DIM_MLP, DIM_HIDDEN),
    TURNED(ROLE_DOWN, "h.#.mlp.c_proj", DIM_HIDDEN, DIM_MLP),
    BOTH(ROLE_QKV, NULL, "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_QKV_BIAS),
    BOTH(ROLE_O, NULL, "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    UP_OF(NULL),
    DOWN_OF(NULL),
};

static const tensor_pattern_t gpt_bigcode_patterns[] = {
    GPT2_ROWS,
    BOTH(ROLE_QKV, "h.#.attn.c_attn", "attn_qkv", DIM_QKV, DIM_HIDDEN, WHEN_QKV_BIAS),
    BOTH(ROLE_O, "h.#.attn.c_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    UP_OF("h.#.mlp.c_fc"),
    DOWN_OF("h.#.mlp.c_proj"),
};

static const tensor_pattern_t gpt_neo_patterns[] = {
    GPT2_ROWS,
    BOTH(ROLE_Q, "h.#.attn.attention.q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_K, "h.#.attn.attention.k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_V, "h.#.attn.attention.v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_O, "h.#.attn.attention.out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS),
    UP_OF("h.#.mlp.c_fc"),
    DOWN_OF("h.#.mlp.c_proj"),
};

static const tensor_pattern_t gptj_patterns[] = {
    EMBED("wte"),
    FINAL_NORM("ln_f", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_HEAD),
    NORM_OF(ROLE_ATTN_NORM, "h.#.ln_1", "attn_norm"),
    BOTH(ROLE_Q, "h.#.attn.q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_K, "h.#.attn.k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_V, "h.#.attn.v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_O, "h.#.attn.out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_NEVER),
    UP_OF("h.#.mlp.fc_in"),
    DOWN_OF("h.#.mlp.fc_out"),
};

/* One tensor holds q, v and k, of a quarter of the heads after another. */
static const tensor_pattern_t codegen_patterns[] = {
    EMBED("wte"),
    FINAL_NORM("ln_f", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_HEAD),
    NORM_OF(ROLE_ATTN_NORM, "h.#.ln_1", "attn_norm"),
    BOTH(ROLE_Q, "h.#.attn.qkv_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_K, "h.#.attn.qkv_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_V, "h.#.attn.qkv_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_NEVER),
    BOTH(ROLE_O, "h.#.attn.out_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_NEVER),
    UP_OF("h.#.mlp.fc_in"),
    DOWN_OF("h.#.mlp.fc_out"),
};

static const tensor_pattern_t gpt_neox_patterns[] = {
    EMBED("embed_in"),
    FINAL_NORM("final_layer_norm", WHEN_ALWAYS),
    HEAD("/embed_out", WHEN_NEVER),
    NORM_OF(ROLE_ATTN_NORM, "layers.#.input_layernorm", "attn_norm"),
    NORM_OF(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", "ffn_norm"),
    BOTH(ROLE_QKV, "layers.#.attention.query_key_value", "attn_qkv", DIM_QKV, DIM_HIDDEN,
         WHEN_QKV_BIAS),
    BOTH(ROLE_O, "layers.#.attention.dense", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_O_BIAS),
    UP("dense_h_to_4h"),
    DOWN("dense_4h_to_h"),
};

/* LayerNorms with biases and a plain MLP, otherwise the Llama layout. */
#define LAYER_NORM_ROWS(second)                                                                    \
  EMBED("embed_tokens"), FINAL_NORM("norm", WHEN_ALWAYS), HEAD("/lm_head", WHEN_NEVER),            \
      NORM_OF(ROLE_ATTN_NORM, "layers.#.input_layernorm", "attn_norm"),                            \
      BIASED_NORM(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", "blk.#.ffn_norm", second)
static const tensor_pattern_t starcoder2_patterns[] = {
    LAYER_NORM_ROWS(WHEN_ALWAYS),
    ATTENTION_ROWS,
    UP("c_fc"),
    DOWN("c_proj"),
};

/* LayerNorms of each head, a tensor for every one (StableLM 2 12B). */
#define EACH_HEAD_NORM(role, name)                                                                 \
  STORED(role, "self_attn." name ".norms.*", DIM_HEAD, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER,         \
         FORM_EACH_HEAD)
#define GGUF_HEAD_NORM(role, name, rows)                                                           \
  GGUF(role, name, rows, DIM_NONE, WHEN_QK_NORM, WHEN_NEVER, FORM_PLAIN)
static const tensor_pattern_t stablelm_patterns[] = {
    LAYER_NORM_ROWS(WHEN_MLP_NORM),
    PROJECTION_ROWS,
    EACH_HEAD_NORM(ROLE_Q_NORM, "q_layernorm"),
    EACH_HEAD_NORM(ROLE_K_NORM, "k_layernorm"),
    GGUF_HEAD_NORM(ROLE_Q_NORM, "attn_q_norm", DIM_Q_NORM),
    GGUF_HEAD_NORM(ROLE_K_NORM, "attn_k_norm", DIM_K_NORM),
    DENSE_ROWS,
};

static const layout_t layout_opt = {PATTERNS(opt_patterns),
                                    .prefixes = {"model.decoder.", "decoder."}};
/* The mask buffers end in ".attn.bias"; "attn.c_attn.bias" does not. */
#define GPT_LIKE(array)                                                                            \
  PATTERNS(array), .prefixes = {"transformer.", ""},                                               \
                   .ignored = {"$.attn.bias", "$.attn.masked_bias"}
static const layout_t layout_gpt2 = {GPT_LIKE(gpt2_patterns)};
static const layout_t layout_gpt_neo = {
    PATTERNS(gpt_neo_patterns),
    .prefixes = {"transformer.", ""},
    .ignored = {"$.attention.bias", "$.attention.masked_bias"},
};
static const layout_t layout_gptj = {GPT_LIKE(gptj_patterns)};
static const layout_t layout_codegen = {PATTERNS(codegen_patterns),
                                        .prefixes = {"transformer.", ""},
                                        .ignored = {"$.attn.causal_mask"}, .qvk_groups = 4};
static const layout_t layout_xglm = {PATTERNS(xglm_patterns), .prefixes = {"model.", ""}};
static const layout_t layout_biogpt = {PATTERNS(biogpt_patterns), .prefixes = {"biogpt.", ""}};
static const layout_t layout_gpt_bigcode = {GPT_LIKE(gpt_bigcode_patterns), .qkv_grouped = true};
/* "$.attention.bias" is the mask that old files carry; "attention.dense.bias" does not end so. */
static const layout_t layout_gpt_neox = {
    PATTERNS(gpt_neox_patterns),
    .prefixes = {"gpt_neox.", ""},
    .ignored = {ROTARY_BUFFERS, "$.attention.bias", "$.attention.masked_bias"},
    .qkv_grouped = true,
};
static const layout_t layout_starcoder2 = {LLAMA_LIKE(starcoder2_patterns)};
static const layout_t layout_stablelm = {LLAMA_LIKE(stablelm_patterns)};

#define GPT2                                                                                       \
  .layout = &layout_gpt2, SIZES(50257, 768, 0, 12, 12, 0, 0, 1024), IDS(50256, 50256),             \
  .norm_eps = 1e-5, .activation = "gelu_new", .tied = true, .norm = NORM_LAYER, .qkv_bias = true,  \
  .o_bias = true, .mlp_bias = true

#define GPTJ                                                                                       \
  .layout = &layout_gptj, SIZES(50400, 4096, 0, 28, 16, 0, 0, 2048), IDS(50256, 50256),            \
  .norm_eps = 1e-5, .rope_theta = 1e4, .activation = "gelu_new", .norm = NORM_LAYER,               \
  .rotary = true, .mlp_bias = true, .block = BLOCK_PARALLEL, .rope_pairs = true,                   \
  .shared_norm = true, .rotary_dim = 64
/* No key changes the eps of their norms. */
#define FAIRSEQ                                                                                    \
  .norm_eps = 1e-5, .norm_eps_key = "", .activation = "gelu", .tied = true, .norm = NORM_LAYER,    \
  .qkv_bias = true, .o_bias = true, .mlp_bias = true, .position_offset = 2,                        \
  .embed_root_key = "scale_embedding", .embed_root = true

static const family_t rows[] = {
    {GPT2, NAMES("gpt2", "GPT2LMHeadModel"), .tags_by_classifier = true},
    {GPT2, NAMES("gpt_bigcode", "GPTBigCodeForCausalLM"), .tags_by_classifier = true,
     .layout = &layout_gpt_bigcode, .activation = "gelu_pytorch_tanh", .multi_query = true},
    {GPT2, NAMES("gpt_neo", "GPTNeoForCausalLM"), .tags_by_classifier = true,
     .layout = &layout_gpt_neo, SIZES(50257, 2048, 0, 24, 16, 0, 0, 2048), .qkv_bias = false,
     .window = 256, .window_rule = WINDOW_TYPES, .attn_scale = 1},
    {NAMES("opt", "OPTForCausalLM"), .layout = &layout_opt,
     SIZES(50272, 768, 3072, 12, 12, 0, 0, 2048), IDS(2, 2), .norm_eps = 1e-5, .activation = "relu",
     .tied = true, .norm = NORM_LAYER, .attention_bias_key = "enable_bias",
     .mlp_bias_key = "enable_bias", .bias_default = true, .opt_keys = true, .position_offset = 2},
    {FAIRSEQ, NAMES("xglm", "XGLMForCausalLM"), .layout = &layout_xglm,
     SIZES(256008, 1024, 4096, 24, 16, 0, 0, 2048), IDS(2, 0), .sinusoid = SINUSOID_TO_END},
    {FAIRSEQ, NAMES("biogpt", "BioGptForCausalLM"), .layout = &layout_biogpt,
     .tags_by_classifier = true, SIZES(42384, 1024, 4096, 24, 16, 0, 0, 1024), IDS(2, 0)},
    {GPTJ, NAMES("gptj", "GPTJForCausalLM")},
    {GPTJ, NAMES("codegen", "CodeGenForCausalLM"), .layout = &layout_codegen},
    {NAMES("gpt_neox", "GPTNeoXForCausalLM"), .tags_by_classifier = true,
     .layout = &layout_gpt_neox, SIZES(50432, 6144, 24576, 44, 64, 0, 0, 2048), IDS(2, 0),
     .norm_eps = 1e-5, .rope_theta = 1e4, .activation = "gelu", .norm = NORM_LAYER, .rotary = true,
     .mlp_bias = true, .attention_bias_key = "attention_bias", .bias_default = true,
     .block = BLOCK_PARALLEL, .rotary_factor = 0.25, .parallel_key = "use_parallel_residual"},
    {NAMES("starcoder2", "Starcoder2ForCausalLM"), .layout = &layout_starcoder2,
     SIZES(49152, 3072, 12288, 30, 24, 2, 0, 4096), IDS(50256, 50256), .norm_eps = 1e-5,
     .rope_theta = 1e4, .activation = "gelu_pytorch_tanh", .tied = true, .norm = NORM_LAYER,
     .rotary = true, .grouped = true, .attention_bias_key = "use_bias", .mlp_bias_key = "use_bias",
     .bias_default = true, .window_rule = WINDOW_ALL},
    {LLAMA_PARTS, NAMES("stablelm", "StableLmForCausalLM"), .layout = &layout_stablelm,
     SIZES(50304, 2560, 6912, 32, 32, 32, 0, 4096), IDS(0, 0), .norm_eps = 1e-5, .norm = NORM_LAYER,
     .qkv_bias_key = "use_qkv_bias", .qk_norm_key = "qk_layernorm", .qk_norm_each = true,
     .rotary_factor = 0.25, .parallel_key = "use_parallel_residual", .shared_norm = true},
};

static const gguf_name_t gguf[] = {
    {"starcoder2", "Starcoder2ForCausalLM", LAYER_NORMS | WINDOWED, 0},
    {"gpt2", "GPT2LMHeadModel", LAYER_NORMS | POSITION_TABLE, 0},
    {"gptneox", "GPTNeoXForCausalLM", LAYER_NORMS | PARALLEL, 0},
    {"stablelm", "StableLmForCausalLM", LAYER_NORMS | PARALLEL, 0},
    {"starcoder", "GPTBigCodeForCausalLM", LAYER_NORMS | POSITION_TABLE, 0},
};

const family_table_t lineage_gpt = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
