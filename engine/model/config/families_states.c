/* families_states.c: the rows of the table of model families with layers that keep a state.
 *
 * As families.c says. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/config/family.h"

/* Gated DeltaNet in three of four layers. */
#define DELTA                                                                                      \
  .num_heads = 16, .head_dim = 256, .max_positions = 32768, .eos_id = -1, .bos_id = -1,            \
  .norm_eps = 1e-6, .rope_theta = 1e4, .rotary_factor = 0.25, .activation = "silu",                \
  .norm = NORM_RMS, .rotary = true, .gated_mlp = true, .grouped = true, .qk_norm = true,           \
  .norm_plus_one = true, .attn_gate = true
#define QWEN3_5                                                                                    \
  DELTA, .layout = &layout_qwen3_5, .vocab_size = 248320, .mrope = true, .mixer_keys = MIXERS_DELTA
#define QWEN3_5_DENSE                                                                              \
  QWEN3_5, .hidden_size = 4096, .intermediate_size = 12288, .num_layers = 32, .num_kv_heads = 4
#define QWEN3_5_EXPERTS                                                                            \
  QWEN3_5, .hidden_size = 2048, .intermediate_size = 5632, .num_layers = 40, .num_kv_heads = 2,    \
           .expert_keys = EXPERTS_QWEN, .num_experts = 256, .experts_top = 8, .expert_size = 512,  \
           .shared_size = 512, .shares_sum = true

static const family_t families[] = {
    {.name = "lfm2",
     .architecture = "Lfm2ForCausalLM",
     .layout = &layout_lfm2,
     .vocab_size = 65536,
     .hidden_size = 2560,
     .intermediate_size = 12288,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 8,
     .max_positions = 128000,
     .eos_id = 2,
     .bos_id = 1,
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .tied = true,
     .qk_norm = true,
     .mixer_keys = MIXERS_LFM2},
    {.name = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     DELTA,
     .layout = &layout_qwen3_next,
     .vocab_size = 151936,
     .hidden_size = 2048,
     .intermediate_size = 5632,
     .num_layers = 48,
     .num_kv_heads = 2,
     .mixer_keys = MIXERS_DELTA_BY_GROUP,
     .expert_keys = EXPERTS_QWEN,
     .num_experts = 512,
     .experts_top = 10,
     .expert_size = 512,
     .shared_size = 512,
     .shares_sum = true},
    {.name = "granitemoehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .layout = &layout_granite_hybrid,
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
     .granite_keys = true,
     .mixer_keys = MIXERS_GRANITE,
     .expert_keys = EXPERTS_MIXTRAL,
     .num_experts = 8,
     .experts_top = 2},
    {.name = "bamba",
     .architecture = "BambaForCausalLM",
     .layout = &layout_bamba,
     .vocab_size = 128000,
     .hidden_size = 4096,
     .intermediate_size = 14336,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 8,
     .max_positions = 262144,
     .eos_id = 2,
     .bos_id = 1,
     .norm_eps = 1e-5,
     .rope_theta = 1e4,
     .rotary_factor = 0.5,
     .activation = "silu",
     .norm = NORM_RMS,
     .rotary = true,
     .gated_mlp = true,
     .grouped = true,
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .mixer_keys = MIXERS_BAMBA},
    {.name = "qwen3_5_text", .architecture = "Qwen3_5ForCausalLM", QWEN3_5_DENSE},
    /* The text parts of models that see images. */
    {.name = "qwen3_5",
     .architecture = "Qwen3_5ForConditionalGeneration",
     .text_type = "qwen3_5_text",
     .nested = true,
     QWEN3_5_DENSE},
    {.name = "qwen3_5_moe_text", .architecture = "Qwen3_5MoeForCausalLM", QWEN3_5_EXPERTS},
    {.name = "qwen3_5_moe",
     .architecture = "Qwen3_5MoeForConditionalGeneration",
     .text_type = "qwen3_5_moe_text",
     .nested = true,
     QWEN3_5_EXPERTS},
};

const family_table_t families_states = {families, ARRAY_LEN(families)};
