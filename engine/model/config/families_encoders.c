/* families_encoders.c: the rows of the table of model families that read a prompt in both
 * directions and make vectors.
 *
 * As families.c says. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/families/family.h"

/* What BERT and those that only renamed it have in common. */
#define BERT_LIKE(names)                                                                           \
  .layout = &(names), .gguf_layout = &layout_gguf_bert, .hidden_size = 768,                        \
  .intermediate_size = 3072, .num_layers = 12, .num_heads = 12, .max_positions = 512,              \
  .eos_id = -1, .bos_id = -1, .norm_eps = 1e-12, .activation = "gelu", .norm = NORM_LAYER,         \
  .qkv_bias = true, .o_bias = true, .mlp_bias = true, .block = BLOCK_POST_NORM, .encoder = true,   \
  .embed_norm = true, .token_types = 2
#define ROBERTA_LIKE BERT_LIKE(layout_roberta), .padded_positions = true, .pad_id = 1
#define GTE_LIKE                                                                                   \
  .layout = &layout_gte, .vocab_size = 250048, .hidden_size = 768, .intermediate_size = 3072,      \
  .num_layers = 12, .num_heads = 12, .max_positions = 8192, .eos_id = -1, .bos_id = -1,            \
  .norm_eps = 1e-12, .rope_theta = 160000, .activation = "gelu", .norm = NORM_LAYER,               \
  .rotary = true, .gated_mlp = true, .qkv_bias = true, .o_bias = true, .block = BLOCK_POST_NORM,   \
  .encoder = true, .embed_norm = true, .token_types = 1

static const family_t families[] = {
    {.name = "bert", .architecture = "BertModel", .vocab_size = 30522, BERT_LIKE(layout_bert)},
    {.name = "roberta", .architecture = "RobertaModel", .vocab_size = 50265, ROBERTA_LIKE},
    {.name = "xlm-roberta", .architecture = "XLMRobertaModel", .vocab_size = 30522, ROBERTA_LIKE},
    {.name = "camembert", .architecture = "CamembertModel", .vocab_size = 30522, ROBERTA_LIKE},
    {.name = "distilbert",
     .architecture = "DistilBertModel",
     .layout = &layout_distilbert,
     .gguf_layout = &layout_gguf_bert,
     .vocab_size = 30522,
     .hidden_size = 768,
     .intermediate_size = 3072,
     .num_layers = 6,
     .num_heads = 12,
     .max_positions = 512,
     .eos_id = -1,
     .bos_id = -1,
     .norm_eps = 1e-12,
     .activation = "gelu",
     .norm = NORM_LAYER,
     .qkv_bias = true,
     .o_bias = true,
     .mlp_bias = true,
     .block = BLOCK_POST_NORM,
     .encoder = true,
     .embed_norm = true},
    {.name = "modernbert",
     .architecture = "ModernBertModel",
     .layout = &layout_modernbert,
     .gguf_layout = &layout_gguf_modern_bert,
     .vocab_size = 50368,
     .hidden_size = 768,
     .intermediate_size = 1152,
     .num_layers = 22,
     .num_heads = 12,
     .max_positions = 8192,
     .window = 128,
     .eos_id = 50282,
     .bos_id = 50281,
     .norm_eps = 1e-5,
     .rope_theta = 160000,
     .activation = "gelu",
     .norm = NORM_LAYER,
     .rotary = true,
     .gated_mlp = true,
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .norm_bias_key = "norm_bias",
     .window_rule = WINDOW_LOCAL,
     .window_pattern = 3,
     .local_theta = 10000,
     .encoder = true,
     .embed_norm = true,
     .first_unnormed = true},
    {.name = "nomic_bert",
     .architecture = "NomicBertModel",
     .layout = &layout_nomic_bert,
     .gguf_layout = &layout_gguf_nomic_bert,
     .vocab_size = 30528,
     .hidden_size = 768,
     .intermediate_size = 3072,
     .num_layers = 12,
     .num_heads = 12,
     .max_positions = 2048,
     .eos_id = -1,
     .bos_id = -1,
     .norm_eps = 1e-12,
     .rope_theta = 1000,
     .activation = "silu",
     .norm = NORM_LAYER,
     .rotary = true,
     .gated_mlp = true,
     .block = BLOCK_POST_NORM,
     .encoder = true,
     .embed_norm = true,
     .token_types = 2},
    {.name = "gte", .architecture = "GteModel", GTE_LIKE},
    {.name = "new", .architecture = "NewModel", GTE_LIKE},
};

const family_table_t families_encoders = {families, ARRAY_LEN(families)};
