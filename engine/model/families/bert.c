/* bert.c: encoders, which read a prompt in both directions and make vectors.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define VECTOR(role, name, gguf) BIASED_NORM(role, name, gguf, WHEN_ALWAYS)
/* Tables have the width of the layers, or one of their own with a projection behind their norm. */
#define WORDS                                                                                      \
  ROW(ROLE_EMBED, "embeddings.word_embeddings", "token_embd", DIM_VOCAB, DIM_TABLE, WHEN_ALWAYS,   \
      WHEN_NEVER)
#define EMBED_NORM(name)                                                                           \
  ROW(ROLE_EMBED_NORM, name, "token_embd_norm", DIM_TABLE, DIM_NONE, WHEN_ALWAYS, WHEN_ALWAYS)
#define EMBED_PROJECT(name)                                                                        \
  ROW(ROLE_EMBED_PROJECT, name, NULL, DIM_HIDDEN, DIM_TABLE, WHEN_TABLES_APART, WHEN_TABLES_APART)
/* The first token goes through the pooler, or through a layer of the classifier's own. */
#define POOLER(name, bias) ROW(ROLE_POOLER, name, "cls", DIM_HIDDEN, DIM_HIDDEN, WHEN_LABELS, bias)
#define LABELS(name)                                                                               \
  ROW(ROLE_CLASSIFIER, name, "cls.output", DIM_LABELS, DIM_HIDDEN, WHEN_LABELS, WHEN_LABELS)
#define TYPES                                                                                      \
  ROW(ROLE_TYPES, "embeddings.token_type_embeddings", "token_types", DIM_TYPES, DIM_TABLE,         \
      WHEN_TYPES, WHEN_NEVER)
#define POSITIONS                                                                                  \
  ROW(ROLE_POSITIONS, "embeddings.position_embeddings", "position_embd", DIM_POSITIONS, DIM_TABLE, \
      WHEN_ALWAYS, WHEN_NEVER)

#define BERT_LAYER "encoder.layer.#."
#define APART(role, name, gguf, rows)                                                              \
  ROW(role, name, "blk.#." gguf, rows, DIM_HIDDEN, WHEN_QKV_APART, WHEN_QKV_BIAS_APART)
#define OUT(name)                                                                                  \
  ROW(ROLE_O, name, "blk.#.attn_output", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS)
#define FUSED(name, bias)                                                                          \
  ROW(ROLE_QKV, name, NULL, DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, bias), GGUF_FUSED, GGUF_APART
#define MLP(role, name, gguf, rows, cols)                                                          \
  ROW(role, name, "blk.#." gguf, rows, cols, WHEN_DENSE, WHEN_DENSE_BIAS)
/* Both norms stand behind their block. */
#define LATE_NORMS(layer, attention, mlp)                                                          \
  VECTOR(ROLE_ATTN_NORM, layer attention, "blk.#.attn_output_norm"),                               \
      VECTOR(ROLE_MLP_NORM, layer mlp, "blk.#.layer_output_norm")
#define BERT_BLOCKS                                                                                \
  APART(ROLE_Q, BERT_LAYER "attention.self.query", "attn_q", DIM_Q),                               \
      APART(ROLE_K, BERT_LAYER "attention.self.key", "attn_k", DIM_KV),                            \
      APART(ROLE_V, BERT_LAYER "attention.self.value", "attn_v", DIM_KV),                          \
      OUT(BERT_LAYER "attention.output.dense"),                                                    \
      MLP(ROLE_UP, BERT_LAYER "intermediate.dense", "ffn_up", DIM_MLP, DIM_HIDDEN),                \
      MLP(ROLE_DOWN, BERT_LAYER "output.dense", "ffn_down", DIM_HIDDEN, DIM_MLP)
#define BERT_NORMS LATE_NORMS(BERT_LAYER, "attention.output.LayerNorm", "output.LayerNorm")
#define BERT_ROWS                                                                                  \
  WORDS, POSITIONS, TYPES, EMBED_NORM("embeddings.LayerNorm"),                                     \
      EMBED_PROJECT("embeddings_project"), GGUF_FUSED, BERT_BLOCKS, BERT_NORMS

static const tensor_pattern_t bert_patterns[] = {
    BERT_ROWS,
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
};
#define MPNET_LAYER BERT_LAYER "attention.attn."
static const tensor_pattern_t mpnet_patterns[] = {
    EMBED("embeddings.word_embeddings"),
    POSITIONS,
    EMBED_NORM("embeddings.LayerNorm"),
    ROW(ROLE_DISTANCES, "encoder.relative_attention_bias", NULL, DIM_BUCKETS, DIM_HEADS,
        WHEN_ALWAYS, WHEN_NEVER),
    APART(ROLE_Q, MPNET_LAYER "q", "attn_q", DIM_Q),
    APART(ROLE_K, MPNET_LAYER "k", "attn_k", DIM_KV),
    APART(ROLE_V, MPNET_LAYER "v", "attn_v", DIM_KV),
    OUT(MPNET_LAYER "o"),
    MLP(ROLE_UP, BERT_LAYER "intermediate.dense", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, BERT_LAYER "output.dense", "ffn_down", DIM_HIDDEN, DIM_MLP),
    LATE_NORMS(BERT_LAYER, "attention.LayerNorm", "output.LayerNorm"),
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
};
static const tensor_pattern_t roberta_patterns[] = {
    BERT_ROWS,
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
};

/* Norms before both blocks, and none behind the embeddings. */
static const tensor_pattern_t xlm_roberta_xl_patterns[] = {
    EMBED("embeddings.word_embeddings"),
    POSITIONS,
    TYPES,
    VECTOR(ROLE_FINAL_NORM, "encoder.LayerNorm", "output_norm"),
    VECTOR(ROLE_ATTN_NORM, BERT_LAYER "attention.self_attn_layer_norm", "blk.#.attn_norm"),
    BERT_BLOCKS,
    VECTOR(ROLE_MLP_NORM, BERT_LAYER "LayerNorm", "blk.#.ffn_norm"),
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
};

/* The same with a norm behind the embeddings, and other names. */
static const tensor_pattern_t prelayernorm_patterns[] = {
    WORDS,
    POSITIONS,
    TYPES,
    EMBED_NORM("embeddings.LayerNorm"),
    VECTOR(ROLE_FINAL_NORM, "LayerNorm", NULL),
    VECTOR(ROLE_ATTN_NORM, BERT_LAYER "attention.LayerNorm", NULL),
    BERT_BLOCKS,
    VECTOR(ROLE_MLP_NORM, BERT_LAYER "intermediate.LayerNorm", NULL),
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
};
static const tensor_pattern_t megatron_bert_patterns[] = {
    WORDS,
    POSITIONS,
    TYPES,
    VECTOR(ROLE_FINAL_NORM, "encoder.ln", NULL),
    VECTOR(ROLE_ATTN_NORM, BERT_LAYER "attention.ln", NULL),
    BERT_BLOCKS,
    VECTOR(ROLE_MLP_NORM, BERT_LAYER "ln", NULL),
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
};

/* All tables are projected. */
static const tensor_pattern_t rembert_patterns[] = {
    WORDS,
    POSITIONS,
    TYPES,
    EMBED_NORM("embeddings.LayerNorm"),
    EMBED_PROJECT("encoder.embedding_hidden_mapping_in"),
    BERT_BLOCKS,
    BERT_NORMS,
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
};

/* A BERT that rotates. */
static const tensor_pattern_t roformer_patterns[] = {
    WORDS,
    TYPES,
    EMBED_NORM("embeddings.LayerNorm"),
    EMBED_PROJECT("embeddings_project"),
    BERT_BLOCKS,
    BERT_NORMS,
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
};

/* With use_task_id, row 0 of the tasks is part of every token. */
static const tensor_pattern_t ernie_patterns[] = {
    BERT_ROWS,
    ROW(ROLE_TASKS, "embeddings.task_type_embeddings", NULL, DIM_TASKS, DIM_HIDDEN, WHEN_TASKS,
        WHEN_NEVER),
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
};

#define ALBERT_LAYER "encoder.albert_layer_groups.0.albert_layers.0."
static const tensor_pattern_t albert_patterns[] = {
    WORDS,
    POSITIONS,
    TYPES,
    EMBED_NORM("embeddings.LayerNorm"),
    EMBED_PROJECT("encoder.embedding_hidden_mapping_in"),
    APART(ROLE_Q, ALBERT_LAYER "attention.query", "attn_q", DIM_Q),
    APART(ROLE_K, ALBERT_LAYER "attention.key", "attn_k", DIM_KV),
    APART(ROLE_V, ALBERT_LAYER "attention.value", "attn_v", DIM_KV),
    OUT(ALBERT_LAYER "attention.dense"),
    MLP(ROLE_UP, ALBERT_LAYER "ffn", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, ALBERT_LAYER "ffn_output", "ffn_down", DIM_HIDDEN, DIM_MLP),
    LATE_NORMS(ALBERT_LAYER, "attention.LayerNorm", "full_layer_layer_norm"),
    POOLER("pooler", WHEN_LABELS),
    LABELS("/classifier"),
};

/* Layers of Llama that read in both directions. */
static const tensor_pattern_t eurobert_patterns[] = {
    EMBED("embed_tokens"),
    FINAL_NORM("norm", WHEN_NEVER),
    PRE_NORMS,
    PROJECTION_ROWS,
    DENSE_ROWS,
    POOLER("/dense", WHEN_LABELS),
    LABELS("/classifier"),
};

#define DISTIL_LAYER "transformer.layer.#."
static const tensor_pattern_t distilbert_patterns[] = {
    EMBED("embeddings.word_embeddings"),
    POSITIONS,
    EMBED_NORM("embeddings.LayerNorm"),
    POOLER("/pre_classifier", WHEN_LABELS),
    LABELS("/classifier"),
    GGUF_FUSED,
    APART(ROLE_Q, DISTIL_LAYER "attention.q_lin", "attn_q", DIM_Q),
    APART(ROLE_K, DISTIL_LAYER "attention.k_lin", "attn_k", DIM_KV),
    APART(ROLE_V, DISTIL_LAYER "attention.v_lin", "attn_v", DIM_KV),
    OUT(DISTIL_LAYER "attention.out_lin"),
    MLP(ROLE_UP, DISTIL_LAYER "ffn.lin1", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, DISTIL_LAYER "ffn.lin2", "ffn_down", DIM_HIDDEN, DIM_MLP),
    LATE_NORMS(DISTIL_LAYER, "sa_layer_norm", "output_layer_norm"),
};

#define MODERN_NORM(role, name, gguf, when)                                                        \
  ROW(role, name, gguf, DIM_HIDDEN, DIM_NONE, when, WHEN_NORM_BIAS)
static const tensor_pattern_t modernbert_patterns[] = {
    EMBED("embeddings.tok_embeddings"),
    MODERN_NORM(ROLE_EMBED_NORM, "embeddings.norm", "token_embd_norm", WHEN_ALWAYS),
    MODERN_NORM(ROLE_FINAL_NORM, "final_norm", "output_norm", WHEN_ALWAYS),
    POOLER("/head.dense", WHEN_POOLER_BIAS),
    ROW(ROLE_POOLER_NORM, "/head.norm", "cls.norm", DIM_HIDDEN, DIM_NONE, WHEN_LABELS,
        WHEN_LABELS_NORM_BIAS),
    LABELS("/classifier"),
    LAYER(ROLE_ATTN_NORM, "attn_norm", "attn_norm", DIM_HIDDEN, DIM_NONE, WHEN_NOT_FIRST,
          WHEN_NOT_FIRST_BIAS),
    FUSED("layers.#.attn.Wqkv", WHEN_QKV_BIAS),
    OUT("layers.#.attn.Wo"),
    MODERN_NORM(ROLE_MLP_NORM, "layers.#.mlp_norm", "blk.#.ffn_norm", WHEN_ALWAYS),
    MLP(ROLE_GATE_UP, "layers.#.mlp.Wi", "ffn_up", DIM_GATE_UP, DIM_HIDDEN),
    MLP(ROLE_DOWN, "layers.#.mlp.Wo", "ffn_down", DIM_HIDDEN, DIM_MLP),
};

#define NOMIC_LAYER "encoder.layers.#."
static const tensor_pattern_t nomic_bert_patterns[] = {
    EMBED("embeddings.word_embeddings"),
    TYPES,
    EMBED_NORM("emb_ln"),
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
    FUSED(NOMIC_LAYER "attn.Wqkv", WHEN_NEVER),
    OUT(NOMIC_LAYER "attn.out_proj"),
    MLP(ROLE_UP, NOMIC_LAYER "mlp.fc11", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_GATE, NOMIC_LAYER "mlp.fc12", "ffn_gate", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, NOMIC_LAYER "mlp.fc2", "ffn_down", DIM_HIDDEN, DIM_MLP),
    LATE_NORMS(NOMIC_LAYER, "norm1", "norm2"),
};

/* Jina v3: a BERT that rotates. */
static const tensor_pattern_t jina3_patterns[] = {
    WORDS,
    TYPES,
    EMBED_NORM("emb_ln"),
    POOLER("/classifier.dense", WHEN_LABELS),
    LABELS("/classifier.out_proj"),
    FUSED(NOMIC_LAYER "mixer.Wqkv", WHEN_ALWAYS),
    OUT(NOMIC_LAYER "mixer.out_proj"),
    MLP(ROLE_UP, NOMIC_LAYER "mlp.fc1", "ffn_up", DIM_MLP, DIM_HIDDEN),
    MLP(ROLE_DOWN, NOMIC_LAYER "mlp.fc2", "ffn_down", DIM_HIDDEN, DIM_MLP),
    LATE_NORMS(NOMIC_LAYER, "norm1", "norm2"),
};

#define GTE_ROW(role, name, rows, cols, bias)                                                      \
  ROW(role, BERT_LAYER name, NULL, rows, cols, WHEN_ALWAYS, bias)
static const tensor_pattern_t gte_patterns[] = {
    EMBED("embeddings.word_embeddings"),
    TYPES,
    EMBED_NORM("embeddings.LayerNorm"),
    POOLER("pooler.dense", WHEN_LABELS),
    LABELS("/classifier"),
    GTE_ROW(ROLE_QKV, "attention.qkv_proj", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS),
    GTE_ROW(ROLE_O, "attention.o_proj", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS),
    GTE_ROW(ROLE_UP_GATE, "mlp.up_gate_proj", DIM_GATE_UP, DIM_HIDDEN, WHEN_NEVER),
    GTE_ROW(ROLE_DOWN, "mlp.down_proj", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS),
    LATE_NORMS(BERT_LAYER, "attn_ln", "mlp_ln"),
};

/* Heads of the training, and buffers of old files. */
#define UNUSED .ignored = {"pooler.", "cls.", "lm_head.", "position_ids", "token_type_ids"}

static const layout_t layout_bert = {PATTERNS(bert_patterns), .prefixes = {"", "bert."}, UNUSED};
static const layout_t layout_roberta = {PATTERNS(roberta_patterns), .prefixes = {"", "roberta."},
                                        UNUSED};
static const layout_t layout_xlm_roberta_xl = {PATTERNS(xlm_roberta_xl_patterns),
                                               .prefixes = {"", "roberta."}, UNUSED};
static const layout_t layout_data2vec = {PATTERNS(roberta_patterns),
                                         .prefixes = {"", "data2vec_text."}, UNUSED};
static const layout_t layout_prelayernorm = {PATTERNS(prelayernorm_patterns),
                                             .prefixes = {"", "roberta_prelayernorm."}, UNUSED};
static const layout_t layout_megatron_bert = {PATTERNS(megatron_bert_patterns),
                                              .prefixes = {"", "bert."}, UNUSED};
static const layout_t layout_rembert = {PATTERNS(rembert_patterns), .prefixes = {"", "rembert."},
                                        UNUSED};
static const layout_t layout_ernie = {PATTERNS(ernie_patterns), .prefixes = {"", "ernie."}, UNUSED};
static const layout_t layout_roformer = {PATTERNS(roformer_patterns), .prefixes = {"", "roformer."},
                                         .ignored = {"encoder.embed_positions.",
                                                     "roformer.encoder.embed_positions.", "cls.",
                                                     "position_ids"}};
static const layout_t layout_electra = {PATTERNS(roberta_patterns), .prefixes = {"", "electra."},
                                        .ignored = {"discriminator_predictions.",
                                                    "generator_predictions.", "generator_lm_head.",
                                                    "position_ids"}};
static const layout_t layout_albert = {
    PATTERNS(albert_patterns), .prefixes = {"", "albert."},
    .ignored = {"pooler.", "predictions.", "sop_classifier.", "position_ids"}};
static const layout_t layout_jina3 = {PATTERNS(jina3_patterns), .prefixes = {"", "roberta."},
                                      UNUSED};
static const layout_t layout_eurobert = {PATTERNS(eurobert_patterns), .prefixes = {"", "model."},
                                         .ignored = {"lm_head.", ROTARY_BUFFERS}};
static const layout_t layout_mpnet = {PATTERNS(mpnet_patterns), .prefixes = {"", "mpnet."}, UNUSED};
static const layout_t layout_distilbert = {PATTERNS(distilbert_patterns),
                                           .prefixes = {"", "distilbert."}, .ignored = {"vocab_"}};
static const layout_t layout_modernbert = {
    PATTERNS(modernbert_patterns), .prefixes = {"", "model."}, .ignored = {"head.", "decoder."}};
static const layout_t layout_nomic_bert = {PATTERNS(nomic_bert_patterns),
                                           .prefixes = {"", "nomic_bert.", "bert."}, UNUSED};
static const layout_t layout_gte = {PATTERNS(gte_patterns), .prefixes = {"", "new.", "gte."},
                                    UNUSED};

#define BERT                                                                                       \
  .layout = &layout_bert, SIZES(30522, 768, 3072, 12, 12, 0, 0, 512), IDS(-1, -1),                 \
  .norm_eps = 1e-12, .activation = "gelu", .norm = NORM_LAYER, .qkv_bias = true, .o_bias = true,   \
  .mlp_bias = true, .block = BLOCK_POST_NORM, .encoder = true, .embed_norm = true,                 \
  .token_types = 2
#define XLM_ROBERTA BERT, .layout = &layout_roberta, .padded_positions = true, .pad_id = 1
#define GTE                                                                                        \
  BERT, .layout = &layout_gte, SIZES(250048, 768, 3072, 12, 12, 0, 0, 8192), .rope_theta = 160000, \
        .rotary = true, .gated_mlp = true, .mlp_bias = false, .token_types = 1

static const family_t rows[] = {
    {BERT, NAMES("bert", "BertModel")},
    {BERT, NAMES("roberta", "RobertaModel"), .layout = &layout_roberta,
     SIZES(50265, 768, 3072, 12, 12, 0, 0, 512), .padded_positions = true, .pad_id = 1},
    {XLM_ROBERTA, NAMES("xlm-roberta", "XLMRobertaModel")},
    {XLM_ROBERTA, NAMES("camembert", "CamembertModel")},
    {XLM_ROBERTA, NAMES("mpnet", "MPNetModel"), .layout = &layout_mpnet,
     SIZES(30527, 768, 3072, 12, 12, 0, 0, 512), .token_types = 0, .distances = true},
    {XLM_ROBERTA, NAMES("xlm-roberta-xl", "XLMRobertaXLModel"), .layout = &layout_xlm_roberta_xl,
     SIZES(250880, 2560, 10240, 36, 32, 0, 0, 514), .norm_eps = 1e-5, .block = BLOCK_PRE_NORM,
     .embed_norm = false, .token_types = 1},
    {BERT, NAMES("electra", "ElectraModel"), .layout = &layout_electra,
     SIZES(30522, 256, 1024, 12, 4, 0, 0, 512), .table_size = 128},
    {XLM_ROBERTA, NAMES("data2vec-text", "Data2VecTextModel"), .layout = &layout_data2vec},
    {XLM_ROBERTA, NAMES("roberta-prelayernorm", "RobertaPreLayerNormModel"),
     .layout = &layout_prelayernorm, SIZES(50265, 768, 3072, 12, 12, 0, 0, 512),
     .block = BLOCK_PRE_NORM},
    {BERT, NAMES("ernie", "ErnieModel"), .layout = &layout_ernie, .task_types = 3},
    {BERT, NAMES("megatron-bert", "MegatronBertModel"), .layout = &layout_megatron_bert,
     SIZES(29056, 1024, 4096, 24, 16, 0, 0, 512), .block = BLOCK_PRE_NORM, .embed_norm = false},
    {BERT, NAMES("rembert", "RemBertModel"), .layout = &layout_rembert,
     SIZES(250300, 1152, 4608, 32, 18, 0, 0, 512), IDS(313, 312), .table_size = 256,
     .table_key = "input_embedding_size", .table_projects = true},
    {BERT, NAMES("roformer", "RoFormerModel"), .layout = &layout_roformer,
     SIZES(50000, 768, 3072, 12, 12, 0, 0, 1536), .table_size = TABLE_IS_HIDDEN, .rotary = true,
     .rope_theta = 1e4, .rope_pairs = true},
    {BERT, NAMES("jina_embeddings_v3", "JinaEmbeddingsV3Model"), .layout = &layout_jina3,
     SIZES(250002, 1024, 4096, 24, 16, 0, 0, 8194), .norm_eps = 1e-5, .rope_theta = 20000,
     .rotary = true, .token_types = 1},
    {BERT, NAMES("albert", "AlbertModel"), .layout = &layout_albert,
     SIZES(30000, 4096, 16384, 12, 64, 0, 0, 512), .activation = "gelu_new", .table_size = 128,
     .one_layer = true},
    {LLAMA_PARTS, NAMES("eurobert", "EuroBertModel"), .layout = &layout_eurobert,
     SIZES(128256, 768, 3072, 12, 12, 0, 0, 8192), IDS(128001, 128000), .norm_eps = 1e-5,
     .rope_theta = 0, .attention_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
     .encoder = true},
    {BERT, NAMES("distilbert", "DistilBertModel"), .layout = &layout_distilbert,
     SIZES(30522, 768, 3072, 6, 12, 0, 0, 512), .token_types = 0},
    {NAMES("modernbert", "ModernBertModel"),
     .layout = &layout_modernbert,
     SIZES(50368, 768, 1152, 22, 12, 0, 0, 8192),
     IDS(50282, 50281),
     .window = 128,
     .norm_eps = 1e-5,
     .rope_theta = 160000,
     .activation = "gelu",
     .norm = NORM_LAYER,
     .rotary = true,
     .gated_mlp = true,
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .window_rule = WINDOW_LOCAL,
     .window_pattern = 3,
     .local_theta = 10000,
     .encoder = true,
     .embed_norm = true,
     .first_unnormed = true,
     .norm_bias_key = "norm_bias"},
    {NAMES("nomic_bert", "NomicBertModel"), .layout = &layout_nomic_bert,
     SIZES(30528, 768, 3072, 12, 12, 0, 0, 2048), IDS(-1, -1), .norm_eps = 1e-12,
     .rope_theta = 1000, .activation = "silu", .norm = NORM_LAYER, .rotary = true,
     .gated_mlp = true, .block = BLOCK_POST_NORM, .encoder = true, .embed_norm = true,
     .token_types = 2},
    {GTE, NAMES("gte", "GteModel")},
    {GTE, NAMES("new", "NewModel")},
};

static const gguf_name_t gguf[] = {
    {"bert", "BertModel", LAYER_NORMS | POSITION_TABLE | ENCODER, 0},
    {"nomic-bert", "NomicBertModel", LAYER_NORMS | ENCODER, 0},
    {"modern-bert", "ModernBertModel", LAYER_NORMS | TWO_ROPES | ENCODER, 0},
};

const family_table_t lineage_bert = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
