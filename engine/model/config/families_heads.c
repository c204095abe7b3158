/* families_heads.c: the rows of the table of heads that draft for another model (eagle.h).
 *
 * As families.c says; the same head under the names of two programs. Constant data; any thread may
 * read it.
 */
#include "engine/base/util.h"
#include "engine/model/families/family.h"

#define EAGLE3                                                                                     \
  .layout = &layout_eagle3, .eagle = true, .vocab_size = 32000, .hidden_size = 4096,               \
  .intermediate_size = 11008, .num_layers = 1, .num_heads = 32, .max_positions = 2048,             \
  .eos_id = -1, .bos_id = -1, .norm_eps = 1e-6, .rope_theta = 1e4, .activation = "silu",           \
  .norm = NORM_RMS, .rotary = true, .gated_mlp = true, .grouped = true,                            \
  .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias"

static const family_t families[] = {
    {.name = "llama_eagle3", .architecture = "LlamaForCausalLMEagle3", EAGLE3},
    {.name = "eagle3_llama", .architecture = "Eagle3LlamaForCausalLM", EAGLE3},
};

const family_table_t families_heads = {families, ARRAY_LEN(families)};
