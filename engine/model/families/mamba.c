/* mamba.c: Mamba, Falcon-Mamba and Mamba-2, of which no layer has attention, and Jamba.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define BACKBONE_ROWS                                                                              \
  EMBED("embeddings"), FINAL_NORM("norm_f", WHEN_NEVER), HEAD("/lm_head", WHEN_NEVER),             \
      NORM(ROLE_ATTN_NORM, "norm", "attn_norm")
static const tensor_pattern_t mamba_patterns[] = {BACKBONE_ROWS, MAMBA_1_ROWS("mixer.")};
static const tensor_pattern_t mamba2_patterns[] = {BACKBONE_ROWS, MAMBA_ROWS("mixer.")};

/* Steps, B and C are normed by weights of their own. */
#define PART_NORM(role, name, gguf, rows)                                                          \
  LAYER(role, "mamba." name, gguf, rows, DIM_NONE, WHEN_PARTS_NORM, WHEN_NEVER)
#define JAMBA_MLP(role, name, gguf, rows, cols)                                                    \
  LAYER(role, "feed_forward." name, gguf, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS)
static const tensor_pattern_t jamba_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("final_layernorm", WHEN_NEVER),
    HEAD("/lm_head", WHEN_NEVER),
    NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),
    NORM(ROLE_MLP_NORM, "pre_ff_layernorm", "ffn_norm"),
    PROJECTION_ROWS,
    MAMBA_1_ROWS("mamba."),
    PART_NORM(ROLE_MIX_STEP_NORM, "dt_layernorm", "ssm_dt_norm", DIM_MIX_STEPS),
    PART_NORM(ROLE_MIX_KEY_NORM, "b_layernorm", "ssm_b_norm", DIM_MIX_STATE),
    PART_NORM(ROLE_MIX_QUERY_NORM, "c_layernorm", "ssm_c_norm", DIM_MIX_STATE),
    JAMBA_MLP(ROLE_GATE, "gate_proj", "ffn_gate", DIM_MLP, DIM_HIDDEN),
    JAMBA_MLP(ROLE_UP, "up_proj", "ffn_up", DIM_MLP, DIM_HIDDEN),
    JAMBA_MLP(ROLE_DOWN, "down_proj", "ffn_down", DIM_HIDDEN, DIM_MLP),
    ROUTER("feed_forward.router", WHEN_NEVER),
    EXPERTS("feed_forward.experts.*.", "gate_proj", "up_proj", "down_proj"),
    GGUF_EXPERTS(WHEN_NEVER),
};

#define IN_BACKBONE(array) PATTERNS(array), .prefixes = {"backbone.", DECODER_PREFIXES}
static const layout_t layout_mamba = {IN_BACKBONE(mamba_patterns)};
static const layout_t layout_mamba2 = {IN_BACKBONE(mamba2_patterns)};
static const layout_t layout_jamba = {LLAMA_LIKE(jamba_patterns)};

/* The files do not say how long a sequence may be. */
#define ALONE(vocab, hidden, layers)                                                               \
  LLAMA_PARTS, SIZES(vocab, hidden, 1, layers, 1, 1, 0, 1 << 20),                                  \
      .unattended = true, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_epsilon"

static const family_t rows[] = {
    {ALONE(50280, 768, 32), NAMES("mamba", "MambaForCausalLM"), .layout = &layout_mamba, IDS(0, 0),
     .tied = true, .mixer_keys = MIXERS_MAMBA},
    {ALONE(50280, 768, 32), NAMES("falcon_mamba", "FalconMambaForCausalLM"),
     .layout = &layout_mamba, IDS(0, 0), .tied = true, .mixer_keys = MIXERS_MAMBA},
    {ALONE(32768, 4096, 64), NAMES("mamba2", "Mamba2ForCausalLM"), .layout = &layout_mamba2,
     IDS(2, 0), .mixer_keys = MIXERS_MAMBA2},
    {LLAMA_PARTS, NAMES("jamba", "JambaForCausalLM"), .layout = &layout_jamba,
     SIZES(65536, 4096, 14336, 32, 32, 8, 0, 262144), IDS(2, 1), .mixer_keys = MIXERS_JAMBA,
     .expert_keys = EXPERTS_JAMBA, .num_experts = 16, .experts_top = 2},
};

const family_table_t lineage_mamba = {rows, ARRAY_LEN(rows), NULL, 0};
