/* nemotron.c: Nemotron, Jais 2 and Nemotron-H.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t nemotron_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("norm", WHEN_ALWAYS),
    HEAD("/lm_head", WHEN_NEVER),
    BIASED_NORM(ROLE_ATTN_NORM, "layers.#.input_layernorm", "blk.#.attn_norm", WHEN_ALWAYS),
    BIASED_NORM(ROLE_MLP_NORM, "layers.#.post_attention_layernorm", "blk.#.ffn_norm", WHEN_ALWAYS),
    ATTENTION_ROWS,
    UP("up_proj"),
    DOWN("down_proj"),
};

/* A layer of Nemotron-H has one block, which is the mixer, and one norm; experts have no gate. */
#define BLOCK(role, name, gguf, rows, cols, when, bias)                                            \
  LAYER(role, "mixer." name, gguf, rows, cols, when, bias)
static const tensor_pattern_t nemotron_h_patterns[] = {
    EMBED("embeddings"),
    FINAL_NORM("norm_f", WHEN_NEVER),
    HEAD("/lm_head", WHEN_NEVER),
    NORM(ROLE_ATTN_NORM, "norm", "attn_norm"),
    NORM(ROLE_MLP_NORM, "norm", "attn_norm"),
    BLOCK(ROLE_Q, "q_proj", "attn_q", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    BLOCK(ROLE_K, "k_proj", "attn_k", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    BLOCK(ROLE_V, "v_proj", "attn_v", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS),
    BLOCK(ROLE_O, "o_proj", "attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS),
    MAMBA_ROWS("mixer."),
    BLOCK(ROLE_UP, "up_proj", "ffn_up", DIM_MLP, DIM_HIDDEN, WHEN_DENSE, WHEN_DENSE_BIAS),
    BLOCK(ROLE_DOWN, "down_proj", "ffn_down", DIM_HIDDEN, DIM_MLP, WHEN_DENSE, WHEN_DENSE_BIAS),
    ROUTER("mixer.gate", WHEN_NEVER),
    CHOICE_BIAS("mixer.gate.e_score_correction_bias"),
    STORED(ROLE_EXPERTS_IN, "mixer.fc1_latent_proj", DIM_EXPERT_IN, DIM_HIDDEN, WHEN_EXPERTS_IN,
           WHEN_NEVER, FORM_PLAIN),
    EXPERT(ROLE_EXPERT_UP, "mixer.experts.*.up_proj", DIM_EXPERT, DIM_EXPERT_IN),
    EXPERT(ROLE_EXPERT_DOWN, "mixer.experts.*.down_proj", DIM_EXPERT_IN, DIM_EXPERT),
    GGUF_EXPERT(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EXPERT, DIM_HIDDEN, WHEN_NEVER),
    GGUF_EXPERT(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT, WHEN_NEVER),
    STORED(ROLE_EXPERTS_OUT, "mixer.fc2_latent_proj", DIM_HIDDEN, DIM_EXPERT_IN, WHEN_EXPERTS_IN,
           WHEN_NEVER, FORM_PLAIN),
    SHARED(ROLE_SHARED_UP, "mixer.shared_experts.up_proj", "ffn_up_shexp", DIM_SHARED, DIM_HIDDEN),
    SHARED(ROLE_SHARED_DOWN, "mixer.shared_experts.down_proj", "ffn_down_shexp", DIM_HIDDEN,
           DIM_SHARED),
};

static const layout_t layout_nemotron = {LLAMA_LIKE(nemotron_patterns)};
static const layout_t layout_nemotron_h = {
    PATTERNS(nemotron_h_patterns),
    .prefixes = {"backbone.", "language_model.backbone.", DECODER_PREFIXES}};

#define NEMOTRON                                                                                   \
  .layout = &layout_nemotron, SIZES(256000, 6144, 24576, 32, 48, 0, 0, 4096), IDS(3, 2),           \
  .norm_eps = 1e-5, .rope_theta = 1e4, .activation = "relu2", .norm = NORM_LAYER, .rotary = true,  \
  .grouped = true, .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",             \
  .norm_plus_one = true, .rotary_factor = 0.5

static const family_t rows[] = {
    /* Squared ReLU without a gate; norms of 1 + w. */
    {NEMOTRON, NAMES("nemotron", "NemotronForCausalLM")},
    /* The same with LayerNorms and biases. */
    {NEMOTRON, NAMES("jais2", "Jais2ForCausalLM"), SIZES(150272, 3328, 26624, 32, 26, 0, 0, 8192),
     IDS(150024, 0), .bias_default = true, .norm_plus_one = false, .rotary_factor = 0},
    {LLAMA_PARTS,
     NAMES("nemotron_h", "NemotronHForCausalLM"),
     .layout = &layout_nemotron_h,
     SIZES(131072, 4096, 21504, 52, 32, 8, 128, 4096),
     IDS(2, 1),
     .norm_eps = 1e-5,
     .norm_eps_key = "layer_norm_epsilon",
     .activation = "relu2",
     .gated_mlp = false,
     .mlp_bias_key = "mlp_bias",
     .mixer_keys = MIXERS_NEMOTRON,
     .expert_keys = EXPERTS_NEMOTRON,
     .num_experts = 8,
     .experts_top = 2,
     .expert_size = 7688,
     .shared_size = 7688,
     .routing = ROUTING_SIGMOID,
     .num_groups = 1,
     .groups_top = 1,
     .shares_sum = true,
     .share_factor = 1.0,
     .gguf_zipped = true},
};

static const gguf_name_t gguf[] = {
    {"nemotron", "NemotronForCausalLM", LAYER_NORMS, 0},
    {"nemotron_h", "NemotronHForCausalLM", STATES | NO_ROPE, 0},
    {"nemotron_h_moe", "NemotronHForCausalLM", STATES | NO_ROPE | SCORED_EXPERTS, 0},
};

const family_table_t lineage_nemotron = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
