/* apertus.c: Apertus: an MLP without a gate, whose activation has numbers of its layer.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define XIELU(role, name, form)                                                                    \
  STORED(role, "mlp.act_fn." name "!", DIM_ONE, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, form)
static const tensor_pattern_t apertus_patterns[] = {
    DECODER_ROWS,
    NORM(ROLE_ATTN_NORM, "attention_layernorm", "attn_norm"),
    NORM(ROLE_MLP_NORM, "feedforward_layernorm", "ffn_norm"),
    ATTENTION_ROWS,
    UP("up_proj"),
    DOWN("down_proj"),
    XIELU(ROLE_XIELU_ABOVE, "alpha_p", FORM_PLAIN),
    XIELU(ROLE_XIELU_BELOW, "alpha_n", FORM_PLAIN),
    XIELU(ROLE_XIELU_BETA, "beta", FORM_SCALAR),
    XIELU(ROLE_XIELU_EPS, "eps", FORM_SCALAR),
};

static const layout_t layout_apertus = {LLAMA_LIKE(apertus_patterns)};

static const family_t rows[] = {
    /* Without a dict the class scales as Llama 3.1 does; published files have it. */
    {LLAMA_PARTS, NAMES("apertus", "ApertusForCausalLM"), .layout = &layout_apertus,
     SIZES(131072, 4096, 14336, 32, 32, 0, 0, 65536), IDS(2, 1), .norm_eps = 1e-5, .rope_theta = 0,
     .activation = "xielu", .gated_mlp = false, .attention_bias_key = "attention_bias",
     .qk_norm = true},
};

const family_table_t lineage_apertus = {rows, ARRAY_LEN(rows), NULL, 0};
