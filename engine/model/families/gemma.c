/* gemma.c: Gemma to Gemma 4, and Gemma 3n.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define NORMS_BEFORE                                                                               \
  NORM(ROLE_ATTN_NORM, "input_layernorm", "attn_norm"),                                            \
      NORM(ROLE_MLP_NORM, "pre_feedforward_layernorm", "ffn_norm")
/* post_attention_layernorm is applied after attention, not before the MLP. */
#define GEMMA_NORMS NORMS_BEFORE, OUT_NORMS

static const tensor_pattern_t gemma_patterns[] = {
    DECODER_ROWS,
    GEMMA_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
};

static const tensor_pattern_t vaultgemma_patterns[] = {
    DECODER_ROWS,
    NORMS_BEFORE,
    PROJECTION_ROWS,
    DENSE_ROWS,
};

#define OUTSIDE(role, name, gguf, rows, cols)                                                      \
  ROW(role, name, gguf, rows, cols, WHEN_PER_LAYER, WHEN_NEVER)
#define INPUT(role, name, gguf, rows, cols)                                                        \
  LAYER(role, name, gguf, rows, cols, WHEN_PER_LAYER, WHEN_NEVER)
#define MLP(role, name, gguf, rows, cols)                                                          \
  LAYER(role, name, gguf, rows, cols, WHEN_ALWAYS, WHEN_NEVER)
#define BESIDE(role, name, gguf, rows, cols, form)                                                 \
  { role, "layers.#." name, "blk.#." gguf, rows, cols, WHEN_EXPERTS, WHEN_NEVER, form }

/* Embeddings of every layer: their table, and what is in front of all layers and in each. */
#define LAYER_TABLES                                                                               \
  OUTSIDE(ROLE_LAYER_EMBED, "embed_tokens_per_layer", "per_layer_token_embd", DIM_LAYER_VOCAB,     \
          DIM_PER_LAYERS),                                                                         \
      OUTSIDE(ROLE_LAYER_PROJECT, "per_layer_model_projection", "per_layer_model_proj",            \
              DIM_PER_LAYERS, DIM_HIDDEN),                                                         \
      OUTSIDE(ROLE_LAYER_NORM, "per_layer_projection_norm", "per_layer_proj_norm", DIM_PER_LAYER,  \
              DIM_NONE)
#define LAYER_INPUTS                                                                               \
  INPUT(ROLE_INPUT_GATE, "per_layer_input_gate", "inp_gate", DIM_PER_LAYER, DIM_HIDDEN),           \
      INPUT(ROLE_INPUT_PROJECT, "per_layer_projection", "proj", DIM_HIDDEN, DIM_PER_LAYER),        \
      INPUT(ROLE_INPUT_NORM, "post_per_layer_input_norm", "post_norm", DIM_HIDDEN, DIM_NONE)

static const tensor_pattern_t gemma4_patterns[] = {
    DECODER_ROWS,
    LAYER_TABLES,
    GEMMA_NORMS,
    ATTENTION_ROWS,
    MLP(ROLE_GATE, "mlp.gate_proj", "ffn_gate", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_UP, "mlp.up_proj", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, "mlp.down_proj", "ffn_down", DIM_HIDDEN, DIM_MLP),
    MLP(ROLE_LAYER_SCALAR, "layer_scalar!", "layer_output_scale", DIM_ONE, DIM_NONE),
    LAYER_INPUTS,
    ROUTER("router.proj", WHEN_NEVER),
    BESIDE(ROLE_ROUTER_SCALE, "router.scale!", "ffn_gate_inp.scale!", DIM_HIDDEN, DIM_NONE,
           FORM_PLAIN),
    BESIDE(ROLE_SHARE_FACTORS, "router.per_expert_scale!", "ffn_down_exps.scale!", DIM_EXPERTS,
           DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_GATE_UP, "experts.gate_up_proj!", "ffn_gate_up_exps", DIM_EXPERT_UP,
           DIM_HIDDEN, FORM_STACK),
    BESIDE(ROLE_EXPERT_DOWN, "experts.down_proj!", "ffn_down_exps", DIM_HIDDEN, DIM_EXPERT,
           FORM_STACK),
    BESIDE(ROLE_DENSE_OUT_NORM, "post_feedforward_layernorm_1", "post_ffw_norm_1", DIM_HIDDEN,
           DIM_NONE, FORM_PLAIN),
    BESIDE(ROLE_EXPERT_NORM, "pre_feedforward_layernorm_2", "pre_ffw_norm_2", DIM_HIDDEN, DIM_NONE,
           FORM_PLAIN),
    BESIDE(ROLE_EXPERT_OUT_NORM, "post_feedforward_layernorm_2", "post_ffw_norm_2", DIM_HIDDEN,
           DIM_NONE, FORM_PLAIN),
};

#define STREAM(role, name, gguf, rows, cols)                                                       \
  LAYER(role, name, gguf, rows, cols, WHEN_ALWAYS, WHEN_NEVER)
#define STREAMS(role, name, gguf)                                                                  \
  {role, name ".*", NULL, DIM_HIDDEN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, FORM_EACH}, {           \
    role, NULL, gguf, DIM_HIDDEN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER, FORM_STACK                  \
  }
static const tensor_pattern_t gemma3n_patterns[] = {
    DECODER_ROWS,
    LAYER_TABLES,
    STREAMS(ROLE_STREAM_IN, "altup_projections", "altup_proj"),
    STREAMS(ROLE_STREAM_OUT, "altup_unembed_projections", "altup_unembd_proj"),
    GEMMA_NORMS,
    ATTENTION_ROWS,
    DENSE_ROWS,
    LAYER_INPUTS,
    STREAM(ROLE_STREAM_NORM, "altup.router_norm", "altup_router_norm", DIM_HIDDEN, DIM_NONE),
    STREAM(ROLE_STREAM_ROUTER, "altup.modality_router", "altup_router", DIM_STREAMS, DIM_HIDDEN),
    STREAM(ROLE_STREAM_PREDICT, "altup.prediction_coefs", "altup_predict_coef", DIM_STREAMS_2,
           DIM_STREAMS),
    STREAM(ROLE_STREAM_CORRECT, "altup.correction_coefs", "altup_correct_coef", DIM_STREAMS,
           DIM_STREAMS),
    STREAM(ROLE_STREAM_SCALE, "altup.correct_output_scale!", "altup_correct_scale", DIM_HIDDEN,
           DIM_NONE),
    STREAM(ROLE_LAUREL_DOWN, "laurel.linear_left", "laurel_l", DIM_LAUREL, DIM_HIDDEN),
    STREAM(ROLE_LAUREL_UP, "laurel.linear_right", "laurel_r", DIM_HIDDEN, DIM_LAUREL),
    STREAM(ROLE_LAUREL_NORM, "laurel.post_laurel_norm", "laurel_post_norm", DIM_HIDDEN, DIM_NONE),
};

static const layout_t layout_gemma = {LLAMA_LIKE(gemma_patterns)};
static const layout_t layout_vaultgemma = {LLAMA_LIKE(vaultgemma_patterns)};
static const layout_t layout_gemma4 = {LLAMA_LIKE(gemma4_patterns)};
/* Layers that share K and V have matrices for these in published files. */
static const layout_t layout_gemma3n = {PATTERNS(gemma3n_patterns), .prefixes = {DECODER_PREFIXES},
                                        .ignored = {"self_attn.k_proj.", "self_attn.v_proj.",
                                                    "self_attn.k_norm.", "attn_k.weight",
                                                    "attn_v.weight", "attn_k_norm.weight"}};

#define GEMMA                                                                                      \
  LLAMA_PARTS, SIZES(256000, 3072, 24576, 28, 16, 16, 256, 8192), IDS(1, 2),                       \
      .activation = "gelu_pytorch_tanh", .tied = true, .attention_bias_key = "attention_bias",     \
      .gemma_keys = true
#define GEMMA2                                                                                     \
  GEMMA, .layout = &layout_gemma, SIZES(256000, 2304, 9216, 26, 8, 4, 256, 8192), .window = 4096,  \
         .window_rule = WINDOW_EVEN, .block = BLOCK_SANDWICH, .attn_softcap = 50,                  \
         .final_softcap = 30
#define GEMMA3_TEXT                                                                                \
  GEMMA, .layout = &layout_gemma, SIZES(262208, 2304, 9216, 26, 8, 4, 256, 131072),                \
         .window = 4096, .rope_theta = 1e6, .qk_norm = true, .window_rule = WINDOW_PATTERN,        \
         .window_pattern = 6, .block = BLOCK_SANDWICH, .local_theta = 1e4,                         \
         .picture_mask = PICTURES_WHOLE
#define GEMMA3N_TEXT                                                                               \
  GEMMA3_TEXT, .layout = &layout_gemma3n, SIZES(262400, 2048, 16384, 35, 8, 2, 256, 32768),        \
               .window = 512, .window_pattern = 5, .gemma_keys = false, .gemma3n_keys = true,      \
               .final_softcap = 30, .attn_scale = 1, .per_layer_size = 256, .block = BLOCK_ALTUP,  \
               .picture_mask = PICTURES_CAUSAL
#define GEMMA4_TEXT                                                                                \
  GEMMA3_TEXT, .layout = &layout_gemma4, SIZES(262144, 2304, 9216, 30, 8, 4, 256, 131072),         \
               .window = 512, .gemma_keys = false, .gemma4_keys = true, .proportional = 0.25,      \
               .per_layer_size = 256, .expert_keys = EXPERTS_GEMMA4
#define GEMMA4_UNIFIED_TEXT                                                                        \
  GEMMA4_TEXT, SIZES(262144, 2304, 9216, 30, 8, 4, 256, 262144), .window = 1024, .per_layer_size = 0

static const family_t rows[] = {
    {GEMMA, NAMES("gemma", "GemmaForCausalLM")},
    {GEMMA2, NAMES("gemma2", "Gemma2ForCausalLM")},
    {GEMMA2, NAMES("vaultgemma", "VaultGemmaForCausalLM"), .layout = &layout_vaultgemma,
     .block = BLOCK_PRE_NORM},
    {GEMMA3_TEXT, NAMES("gemma3_text", "Gemma3ForCausalLM")},
    /* The text part of a multimodal model. */
    {GEMMA3_TEXT, NAMES("gemma3", "Gemma3ForConditionalGeneration"), TEXT_OF("gemma3_text")},
    {GEMMA3N_TEXT, NAMES("gemma3n_text", "Gemma3nForCausalLM")},
    /* The text part of a model that sees and hears. */
    {GEMMA3N_TEXT, NAMES("gemma3n", "Gemma3nForConditionalGeneration"), TEXT_OF("gemma3n_text")},
    {GEMMA4_TEXT, NAMES("gemma4_text", "Gemma4ForCausalLM")},
    /* The text parts of models that see and hear. */
    {GEMMA4_TEXT, NAMES("gemma4", "Gemma4ForConditionalGeneration"), TEXT_OF("gemma4_text")},
    {GEMMA4_UNIFIED_TEXT, NAMES("gemma4_unified_text", "Gemma4UnifiedForCausalLM")},
    {GEMMA4_UNIFIED_TEXT, NAMES("gemma4_unified", "Gemma4UnifiedForConditionalGeneration"),
     TEXT_OF("gemma4_unified_text")},
};

static const gguf_name_t gguf[] = {
    {"gemma", "GemmaForCausalLM", GEMMA_SCALE, 0},
    {"gemma2", "Gemma2ForCausalLM", GEMMA_SCALE | WINDOWED, 46},
    {"gemma3", "Gemma3ForCausalLM", GEMMA_SCALE | WINDOWED | TWO_ROPES, 62},
    {"gemma3n", "Gemma3nForCausalLM", WINDOWED | GEMMA3N, 0},
    {"gemma4", "Gemma4ForCausalLM", WINDOWED | GEMMA4, 0},
    {"gemma-embedding", "Gemma3TextModel", GEMMA_SCALE | WINDOWED | TWO_ROPES | ENCODER, 0},
};

const family_table_t lineage_gemma = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
