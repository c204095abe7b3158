/* families_parallel.c: the rows of the table of model families that can run attention and MLP side
 * by side.
 *
 * As families.c says. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/config/family.h"

/* What both generations of Command share. */
#define COHERE_PARTS                                                                               \
  .vocab_size = 256000, .hidden_size = 8192, .intermediate_size = 22528, .num_layers = 40,         \
  .num_heads = 64, .max_positions = 8192, .eos_id = 255001, .bos_id = 5, .norm_eps = 1e-5,         \
  .activation = "silu", .tied = true, .norm = NORM_LAYER, .rotary = true, .rope_pairs = true,      \
  .gated_mlp = true, .grouped = true, .block = BLOCK_PARALLEL, .shared_norm = true,                \
  .attention_bias_key = "attention_bias", .logit_scale = 0.0625

static const family_t families[] = {
    {.name = "gpt_neox",
     .architecture = "GPTNeoXForCausalLM",
     .layout = &layout_gpt_neox,
     .gguf_layout = &layout_gguf_gpt_neox,
     .vocab_size = 50432,
     .hidden_size = 6144,
     .intermediate_size = 24576,
     .num_layers = 44,
     .num_heads = 64,
     .max_positions = 2048,
     .eos_id = 2,
     .bos_id = 0,
     .norm_eps = 1e-5,
     .rope_theta = 1e4,
     .activation = "gelu",
     .norm = NORM_LAYER,
     .rotary = true,
     .rotary_factor = 0.25,
     .block = BLOCK_PARALLEL,
     .parallel_key = "use_parallel_residual",
     .attention_bias_key = "attention_bias",
     .bias_default = true,
     .mlp_bias = true},
    {.name = "falcon",
     .architecture = "FalconForCausalLM",
     .layout = &layout_falcon,
     .gguf_layout = &layout_gguf_falcon,
     .vocab_size = 65024,
     .hidden_size = 4544,
     .num_layers = 32,
     .num_heads = 71,
     .max_positions = 2048,
     .eos_id = 11,
     .bos_id = 11,
     .norm_eps = 1e-5,
     .rope_theta = 1e4,
     .activation = "gelu",
     .tied = true,
     .norm = NORM_LAYER,
     .rotary = true,
     .grouped = true,
     .falcon_keys = true,
     .block = BLOCK_PARALLEL,
     .parallel_key = "parallel_attn",
     .shared_norm = true,
     .attention_bias_key = "bias",
     .mlp_bias_key = "bias"},
    {.name = "stablelm",
     .architecture = "StableLmForCausalLM",
     .layout = &layout_stablelm,
     .gguf_layout = &layout_gguf_stablelm,
     .vocab_size = 50304,
     .hidden_size = 2560,
     .intermediate_size = 6912,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 32,
     .max_positions = 4096,
     .eos_id = 0,
     .bos_id = 0,
     .norm_eps = 1e-5,
     .rope_theta = 1e4,
     .activation = "silu",
     .norm = NORM_LAYER,
     .rotary = true,
     .rotary_factor = 0.25,
     .gated_mlp = true,
     .grouped = true,
     .parallel_key = "use_parallel_residual",
     .shared_norm = true,
     .qkv_bias_key = "use_qkv_bias"},
    {.name = "cohere",
     .architecture = "CohereForCausalLM",
     .layout = &layout_cohere,
     .gguf_layout = &layout_gguf_cohere,
     .rope_theta = 5e5,
     COHERE_PARTS},
    /* The layers that see the whole context have no rotation. */
    {.name = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .layout = &layout_cohere,
     .gguf_layout = &layout_gguf_cohere,
     .rope_theta = 1e4,
     .window = 4096,
     .window_rule = WINDOW_PATTERN,
     .window_pattern = 4,
     .full_rule = FULL_UNROTATED,
     COHERE_PARTS},
};

const family_table_t families_parallel = {families, ARRAY_LEN(families)};
