/* llama.c: Llama, and decoders that are Llama with other numbers, names or biases.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

/* A Qwen3-Reranker of GGUF holds two rows of its head in the place of one. */
static const tensor_pattern_t llama_patterns[] = {
    DECODER_ROWS,
    ROW(ROLE_HEAD, NULL, "cls.output", DIM_ANSWERS, DIM_EMBED, WHEN_ANSWERS, WHEN_NEVER),
    PRE_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t seed_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS_AS("post_attention_norm"),
    ATTENTION_ROWS,
    DENSE_ROWS,
};

/* q, k and v in groups; in GGUF files apart. */
static const tensor_pattern_t internlm2_patterns[] = {
    EMBED("tok_embeddings"),
    FINAL_NORM("norm", WHEN_NEVER),
    HEAD("/output", WHEN_NEVER),
    NORM(ROLE_ATTN_NORM, "attention_norm", "attn_norm"),
    NORM(ROLE_MLP_NORM, "ffn_norm", "ffn_norm"),
    STORED(ROLE_QKV, "attention.wqkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, FORM_PLAIN),
    GGUF(ROLE_Q, "attn_q", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, FORM_PLAIN),
    GGUF(ROLE_K, "attn_k", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, FORM_PLAIN),
    GGUF(ROLE_V, "attn_v", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, FORM_PLAIN),
    LAYER(ROLE_O, "attention.wo", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS),
    LAYER(ROLE_GATE, "feed_forward.w1", "ffn_gate", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    LAYER(ROLE_UP, "feed_forward.w3", "ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    LAYER(ROLE_DOWN, "feed_forward.w2", "ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_NEVER),
};

const layout_t layout_llama = {LLAMA_LIKE(llama_patterns)};
static const layout_t layout_seed = {LLAMA_LIKE(seed_patterns)};
static const layout_t layout_internlm2 = {
    PATTERNS(internlm2_patterns),
    .prefixes = {DECODER_PREFIXES},
    .ignored = {ROTARY_BUFFERS},
    .qkv_grouped = true,
};

#define LLAMA                                                                                      \
  LLAMA_PARTS, SIZES(32000, 4096, 11008, 32, 32, 0, 0, 2048), IDS(2, 1),                           \
      .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias", .gguf_zipped = true

static const family_t rows[] = {
    {LLAMA, NAMES("llama", "LlamaForCausalLM")},
    {LLAMA, NAMES("smollm3", "SmolLM3ForCausalLM"), SIZES(128256, 2048, 11008, 36, 16, 4, 0, 32768),
     IDS(128001, 128000), .rope_theta = 2e6, .tied = true, .window_rule = WINDOW_REFUSED,
     .no_rope_keys = true},
    /* Inside of models that hear, whose classes give it other defaults. */
    {LLAMA, NAMES("voxtral", "VoxtralForConditionalGeneration"), .text_type = "llama",
     SIZES(131072, 3072, 8192, 30, 32, 8, 128, 131072), .norm_eps = 1e-5, .rope_theta = 1e8},
    {LLAMA, NAMES("glmasr", "GlmAsrForConditionalGeneration"), .text_type = "llama",
     SIZES(59264, 2048, 6144, 28, 16, 4, 0, 8192), IDS(59246, 1), .norm_eps = 1e-5},
    {LLAMA_PARTS, NAMES("cwm", "CwmForCausalLM"),
     SIZES(128256, 6144, 21504, 64, 48, 8, 128, 131072), IDS(128001, 128000), .window = 8192,
     .norm_eps = 1e-5, .rope_theta = 0, .mlp_bias_key = "mlp_bias", .window_rule = WINDOW_BEHIND,
     .window_pattern = 4},
    {LLAMA_PARTS, NAMES("helium", "HeliumForCausalLM"),
     SIZES(48000, 2560, 7040, 24, 20, 20, 128, 4096), IDS(2, 1), .norm_eps = 1e-8,
     .rope_theta = 1e5, .qkv_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
     .rope_pairs = true},
    {LLAMA_PARTS, NAMES("seed_oss", "SeedOssForCausalLM"), .layout = &layout_seed,
     SIZES(155136, 4096, 27648, 64, 80, 8, 128, 524288), IDS(2, 0), .qkv_bias = true,
     .qkv_bias_key = "attention_bias", .o_bias_key = "attention_out_bias",
     .mlp_bias_key = "mlp_bias"},
    /* Llama with q, k and v in groups; published with remote code alone. */
    {LLAMA_PARTS, NAMES("internlm2", "InternLM2ForCausalLM"), .layout = &layout_internlm2,
     SIZES(103168, 4096, 11008, 32, 32, 0, 0, 2048), IDS(2, 1), .attention_bias_key = "bias",
     .bias_default = true, .gguf_zipped = true},
    {LLAMA_PARTS, NAMES("internlm3", "InternLM3ForCausalLM"),
     SIZES(128512, 4096, 10240, 48, 32, 2, 128, 32768), IDS(2, 1), .norm_eps = 1e-5,
     .qkv_bias_key = "qkv_bias", .o_bias_key = "bias", .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias", .mlp_bias_key_also = "bias"},
};

static const gguf_name_t gguf[] = {
    {"llama", "LlamaForCausalLM", NEEDS_NOTHING, 0},
    {"seed_oss", "SeedOssForCausalLM", NEEDS_NOTHING, 0},
    {"smollm3", "SmolLM3ForCausalLM", NEEDS_NOTHING, 0},
    {"internlm2", "InternLM2ForCausalLM", NEEDS_NOTHING, 0},
};

const family_table_t lineage_llama = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
