/* families_states.c: the rows of the table of model families with layers that keep a state.
 *
 * As families.c says. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/config/family.h"

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
};

const family_table_t families_states = {families, ARRAY_LEN(families)};
