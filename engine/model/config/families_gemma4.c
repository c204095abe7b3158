/* families_gemma4.c: the rows of the table of model families that are Gemma 4.
 *
 * As families.c says. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/families/family.h"

#define GEMMA4                                                                                     \
  .layout = &layout_gemma4, .gguf_layout = &layout_gguf_gemma4, .vocab_size = 262144,              \
  .hidden_size = 2304, .intermediate_size = 9216, .num_layers = 30, .num_heads = 8,                \
  .num_kv_heads = 4, .head_dim = 256, .eos_id = 1, .bos_id = 2, .norm_eps = 1e-6,                  \
  .rope_theta = 1e6, .activation = "gelu_pytorch_tanh", .norm = NORM_RMS, .rotary = true,          \
  .gated_mlp = true, .grouped = true, .block = BLOCK_SANDWICH, .gemma4_keys = true, .tied = true,  \
  .attention_bias_key = "attention_bias", .qk_norm = true, .window_rule = WINDOW_PATTERN,          \
  .window_pattern = 6, .local_theta = 1e4, .expert_keys = EXPERTS_GEMMA4

#define SMALL_OR_LARGE GEMMA4, .max_positions = 131072, .window = 512, .per_layer_size = 256
/* 12B: no embeddings of layers; images and sound pass a projection, not a tower. */
#define UNIFIED GEMMA4, .max_positions = 262144, .window = 1024

static const family_t families[] = {
    {.name = "gemma4_text", .architecture = "Gemma4ForCausalLM", SMALL_OR_LARGE},
    {.name = "gemma4_unified_text", .architecture = "Gemma4UnifiedForCausalLM", UNIFIED},
    /* The text parts of models that see and hear. */
    {.name = "gemma4",
     .architecture = "Gemma4ForConditionalGeneration",
     .text_type = "gemma4_text",
     .nested = true,
     SMALL_OR_LARGE},
    {.name = "gemma4_unified",
     .architecture = "Gemma4UnifiedForConditionalGeneration",
     .text_type = "gemma4_unified_text",
     .nested = true,
     UNIFIED},
};

const family_table_t families_gemma4 = {families, ARRAY_LEN(families)};
