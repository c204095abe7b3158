/* granite.c: Granite, HyperCLOVA X, Granite 4 with layers of Mamba-2, Granite SWA, and Bamba.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define STACKED(role, name, rows, cols)                                                            \
  STORED(role, "block_sparse_moe." name, rows, cols, WHEN_EXPERTS, WHEN_NEVER, FORM_STACK)
#define FUSED(role, name, rows, cols, when)                                                        \
  STORED(role, "shared_mlp." name, rows, cols, when, WHEN_NEVER, FORM_PLAIN)
#define APART(role, name, rows, cols, when, bias)                                                  \
  GGUF(role, name, rows, cols, when, bias, FORM_PLAIN)

static const tensor_pattern_t clova_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    PROJECTION_ROWS,
    DENSE_ROWS,
    STORED(ROLE_ATTN_OUT_NORM, "post_norm1", DIM_HIDDEN, DIM_NONE, WHEN_OUT_NORMS, WHEN_NEVER,
           FORM_PLAIN),
    STORED(ROLE_MLP_OUT_NORM, "post_norm2", DIM_HIDDEN, DIM_NONE, WHEN_OUT_NORMS, WHEN_NEVER,
           FORM_PLAIN),
};

#define SHARED_UP_OF_BOTH                                                                          \
  FUSED(ROLE_SHARED_GATE, "input_linear", DIM_SHARED_UP, DIM_HIDDEN, WHEN_SHARED)

/* Without experts the shared MLP is the only one. */
static const tensor_pattern_t granite_hybrid_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    PROJECTION_ROWS,
    MAMBA_ROWS("mamba."),
    FUSED(ROLE_GATE_UP, "input_linear", DIM_GATE_UP, DIM_HIDDEN, WHEN_DENSE),
    APART(ROLE_GATE, "ffn_gate", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS),
    APART(ROLE_UP, "ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS),
    LAYER(ROLE_DOWN, "shared_mlp.output_linear", "ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_DENSE,
          WHEN_DENSE_BIAS),
    ROUTER("block_sparse_moe.router.layer", WHEN_NEVER),
    STACKED(ROLE_EXPERT_GATE_UP, "input_linear", DIM_EXPERT_UP, DIM_HIDDEN),
    STACKED(ROLE_EXPERT_DOWN, "output_linear", DIM_HIDDEN, DIM_EXPERT),
    GGUF_EXPERTS(WHEN_NEVER),
    SHARED_UP_OF_BOTH,
    APART(ROLE_SHARED_GATE, "ffn_gate_shexp", DIM_SHARED, DIM_HIDDEN, WHEN_SHARED, WHEN_NEVER),
    APART(ROLE_SHARED_UP, "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN, WHEN_SHARED, WHEN_NEVER),
    SHARED(ROLE_SHARED_DOWN, "shared_mlp.output_linear", "ffn_down_shexp", DIM_HIDDEN, DIM_SHARED),
};

/* Attention with sinks, as gpt-oss has them. */
#define SINKS                                                                                      \
  STORED(ROLE_SINKS, "self_attn.sinks!", DIM_HEADS, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN)
static const tensor_pattern_t granite_swa_patterns[] = {
    DECODER_ROWS, PRE_NORMS, PROJECTION_ROWS, SINKS, DENSE_ROWS,
};

static const tensor_pattern_t granite_moe_swa_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    PROJECTION_ROWS,
    SINKS,
    ROUTER("block_sparse_moe.router", WHEN_NEVER),
    STACKED(ROLE_EXPERT_GATE_UP, "experts.gate_up_proj!", DIM_EXPERT_UP, DIM_HIDDEN),
    STACKED(ROLE_EXPERT_DOWN, "experts.down_proj!", DIM_HIDDEN, DIM_EXPERT),
    SHARED_UP_OF_BOTH,
    STORED(ROLE_SHARED_DOWN, "shared_mlp.output_linear", DIM_HIDDEN, DIM_SHARED, WHEN_SHARED,
           WHEN_NEVER, FORM_PLAIN),
};

/* Falcon-H1, too: there every layer has attention and a state. Its second norm has no suffix in
 * GGUF files. */
#define BAMBA_MLP(role, name, gguf, rows, cols)                                                    \
  LAYER(role, "feed_forward." name, gguf, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS)
static const tensor_pattern_t bamba_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("final_layernorm", WHEN_NEVER),
    HEAD("/lm_head", WHEN_NEVER),
    NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),
    LAYER(ROLE_MLP_NORM, "pre_ff_layernorm", "ffn_norm!", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS,
          WHEN_NEVER),
    PROJECTION_ROWS,
    MAMBA_ROWS("mamba."),
    BAMBA_MLP(ROLE_GATE, "gate_proj", "ffn_gate", DIM_MLP, DIM_HIDDEN),
    BAMBA_MLP(ROLE_UP, "up_proj", "ffn_up", DIM_MLP, DIM_HIDDEN),
    BAMBA_MLP(ROLE_DOWN, "down_proj", "ffn_down", DIM_HIDDEN, DIM_MLP),
};

static const layout_t layout_clova = {LLAMA_LIKE(clova_patterns)};
static const layout_t layout_granite_hybrid = {LLAMA_LIKE(granite_hybrid_patterns)};
static const layout_t layout_granite_swa = {LLAMA_LIKE(granite_swa_patterns)};
static const layout_t layout_granite_moe_swa = {LLAMA_LIKE(granite_moe_swa_patterns)};
const layout_t layout_bamba = {LLAMA_LIKE(bamba_patterns)};

#define GRANITEMOE                                                                                 \
  LLAMA_PARTS, .layout = &layout_granite_hybrid, SIZES(32000, 4096, 11008, 32, 32, 0, 0, 2048),    \
               IDS(2, 1), .attention_bias_key = "attention_bias", .granite_keys = true,            \
               .expert_keys = EXPERTS_MIXTRAL, .num_experts = 8, .experts_top = 2

/* Every fourth layer from 0 on sees everything. */
#define SINKS_AND_WINDOWS                                                                          \
  .sinks = true, .window = 128, .window_rule = WINDOW_BEHIND, .window_pattern = 4,                 \
  .layer_thetas = true

static const family_t rows[] = {
    {LLAMA_PARTS, NAMES("granite", "GraniteForCausalLM"),
     SIZES(32000, 4096, 11008, 32, 32, 0, 0, 2048), IDS(2, 1),
     .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias", .granite_keys = true,
     .gguf_zipped = true},
    {LLAMA_PARTS, NAMES("hyperclovax", "HyperCLOVAXForCausalLM"), .layout = &layout_clova,
     SIZES(32000, 4096, 11008, 32, 32, 0, 0, 2048), IDS(2, 1),
     .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias", .granite_keys = true,
     .clova_keys = true, .block = BLOCK_SANDWICH},
    {GRANITEMOE, NAMES("granitemoe", "GraniteMoeForCausalLM")},
    {GRANITEMOE, NAMES("granitemoeshared", "GraniteMoeSharedForCausalLM"),
     .expert_keys = EXPERTS_GRANITE},
    {GRANITEMOE, NAMES("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
     .mixer_keys = MIXERS_GRANITE, .gguf_zipped = true},
    {LLAMA_PARTS, NAMES("granite_swa", "GraniteSWAForCausalLM"), .layout = &layout_granite_swa,
     SIZES(100352, 2560, 8192, 24, 20, 4, 0, 8192), IDS(100257, 100257), .norm_eps = 1e-5,
     .tied = true, .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
     .granite_keys = true, SINKS_AND_WINDOWS},
    {GRANITEMOE, NAMES("granitemoe_swa", "GraniteMoeSWAForCausalLM"),
     .layout = &layout_granite_moe_swa, .expert_keys = EXPERTS_GRANITE, SINKS_AND_WINDOWS},
    {LLAMA_PARTS, NAMES("bamba", "BambaForCausalLM"), .layout = &layout_bamba,
     SIZES(128000, 4096, 14336, 32, 32, 8, 0, 262144), IDS(2, 1), .norm_eps = 1e-5,
     .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias", .rotary_factor = 0.5,
     .mixer_keys = MIXERS_BAMBA},
};

static const gguf_name_t gguf[] = {
    {"granite", "GraniteForCausalLM", NEEDS_NOTHING, 0},
    {"granitehybrid", "GraniteMoeHybridForCausalLM", STATES, 0},
};

const family_table_t lineage_granite = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
