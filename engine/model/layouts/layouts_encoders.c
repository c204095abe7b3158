/* layouts_encoders.c: the tensor names of encoders and of the classifiers on top of them.
 *
 * Names and shapes are those of the published checkpoints. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_rows.h"

#include <stddef.h>

#define ALWAYS WHEN_ALWAYS, WHEN_ALWAYS, FORM_PLAIN
#define BARE WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN
#define VECTOR(role, name)                                                                         \
  { role, name, DIM_HIDDEN, DIM_NONE, ALWAYS }
#define LABELS(name)                                                                               \
  { ROLE_CLASSIFIER, name, DIM_LABELS, DIM_HIDDEN, WHEN_LABELS, WHEN_LABELS, FORM_PLAIN }
#define SQUARE(role, name)                                                                         \
  { role, name, DIM_HIDDEN, DIM_HIDDEN, WHEN_LABELS, WHEN_LABELS, FORM_PLAIN }
#define WORDS(name)                                                                                \
  { ROLE_EMBED, name, DIM_VOCAB, DIM_EMBED, BARE }
#define TYPES                                                                                      \
  {                                                                                                \
    ROLE_TYPES, "embeddings.token_type_embeddings", DIM_TYPES, DIM_HIDDEN, WHEN_TYPES, WHEN_NEVER, \
        FORM_PLAIN                                                                                 \
  }
#define POSITIONS                                                                                  \
  { ROLE_POSITIONS, "embeddings.position_embeddings", DIM_POSITIONS, DIM_HIDDEN, BARE }

#define BERT_LAYER "encoder.layer.#."
#define BERT_ROWS                                                                                  \
  WORDS("embeddings.word_embeddings"), POSITIONS, TYPES,                                           \
      VECTOR(ROLE_EMBED_NORM, "embeddings.LayerNorm"),                                             \
      {ROLE_Q, BERT_LAYER "attention.self.query", DIM_Q, DIM_HIDDEN, ALWAYS},                      \
      {ROLE_K, BERT_LAYER "attention.self.key", DIM_KV, DIM_HIDDEN, ALWAYS},                       \
      {ROLE_V, BERT_LAYER "attention.self.value", DIM_KV, DIM_HIDDEN, ALWAYS},                     \
      {ROLE_O, BERT_LAYER "attention.output.dense", DIM_HIDDEN, DIM_Q, ALWAYS},                    \
      VECTOR(ROLE_ATTN_NORM, BERT_LAYER "attention.output.LayerNorm"),                             \
      {ROLE_UP, BERT_LAYER "intermediate.dense", DIM_MLP, DIM_HIDDEN, ALWAYS},                     \
      {ROLE_DOWN, BERT_LAYER "output.dense", DIM_HIDDEN, DIM_MLP, ALWAYS},                         \
      VECTOR(ROLE_MLP_NORM, BERT_LAYER "output.LayerNorm")

/* The first token of BERT goes through the pooler, that of RoBERTa through a layer of the
 * classifier's own. */
static const tensor_pattern_t bert_patterns[] = {
    BERT_ROWS,
    SQUARE(ROLE_POOLER, "pooler.dense"),
    LABELS("/classifier"),
};
static const tensor_pattern_t roberta_patterns[] = {
    BERT_ROWS,
    SQUARE(ROLE_POOLER, "/classifier.dense"),
    LABELS("/classifier.out_proj"),
};

#define DISTIL_LAYER "transformer.layer.#."
static const tensor_pattern_t distilbert_patterns[] = {
    WORDS("embeddings.word_embeddings"),
    POSITIONS,
    VECTOR(ROLE_EMBED_NORM, "embeddings.LayerNorm"),
    SQUARE(ROLE_POOLER, "/pre_classifier"),
    LABELS("/classifier"),
    {ROLE_Q, DISTIL_LAYER "attention.q_lin", DIM_Q, DIM_HIDDEN, ALWAYS},
    {ROLE_K, DISTIL_LAYER "attention.k_lin", DIM_KV, DIM_HIDDEN, ALWAYS},
    {ROLE_V, DISTIL_LAYER "attention.v_lin", DIM_KV, DIM_HIDDEN, ALWAYS},
    {ROLE_O, DISTIL_LAYER "attention.out_lin", DIM_HIDDEN, DIM_Q, ALWAYS},
    VECTOR(ROLE_ATTN_NORM, DISTIL_LAYER "sa_layer_norm"),
    {ROLE_UP, DISTIL_LAYER "ffn.lin1", DIM_MLP, DIM_HIDDEN, ALWAYS},
    {ROLE_DOWN, DISTIL_LAYER "ffn.lin2", DIM_HIDDEN, DIM_MLP, ALWAYS},
    VECTOR(ROLE_MLP_NORM, DISTIL_LAYER "output_layer_norm"),
};

#define MODERN_NORM(role, name, when)                                                              \
  { role, name, DIM_HIDDEN, DIM_NONE, when, WHEN_NORM_BIAS, FORM_PLAIN }
static const tensor_pattern_t modernbert_patterns[] = {
    WORDS("embeddings.tok_embeddings"),
    MODERN_NORM(ROLE_EMBED_NORM, "embeddings.norm", WHEN_ALWAYS),
    MODERN_NORM(ROLE_FINAL_NORM, "final_norm", WHEN_ALWAYS),
    {ROLE_POOLER, "/head.dense", DIM_HIDDEN, DIM_HIDDEN, WHEN_LABELS, WHEN_POOLER_BIAS, FORM_PLAIN},
    {ROLE_POOLER_NORM, "/head.norm", DIM_HIDDEN, DIM_NONE, WHEN_LABELS, WHEN_LABELS_NORM_BIAS,
     FORM_PLAIN},
    LABELS("/classifier"),
    {ROLE_ATTN_NORM, "layers.#.attn_norm", DIM_HIDDEN, DIM_NONE, WHEN_NOT_FIRST,
     WHEN_NOT_FIRST_BIAS, FORM_PLAIN},
    {ROLE_QKV, "layers.#.attn.Wqkv", DIM_QKV, DIM_HIDDEN, WHEN_ALWAYS, WHEN_QKV_BIAS, FORM_PLAIN},
    {ROLE_O, "layers.#.attn.Wo", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS, WHEN_O_BIAS, FORM_PLAIN},
    MODERN_NORM(ROLE_MLP_NORM, "layers.#.mlp_norm", WHEN_ALWAYS),
    {ROLE_GATE_UP, "layers.#.mlp.Wi", DIM_GATE_UP, DIM_HIDDEN, WHEN_ALWAYS, WHEN_MLP_BIAS,
     FORM_PLAIN},
    {ROLE_DOWN, "layers.#.mlp.Wo", DIM_HIDDEN, DIM_MLP, WHEN_ALWAYS, WHEN_MLP_BIAS, FORM_PLAIN},
};

#define NOMIC_LAYER "encoder.layers.#."
static const tensor_pattern_t nomic_bert_patterns[] = {
    WORDS("embeddings.word_embeddings"),
    TYPES,
    VECTOR(ROLE_EMBED_NORM, "emb_ln"),
    SQUARE(ROLE_POOLER, "pooler.dense"),
    LABELS("/classifier"),
    {ROLE_QKV, NOMIC_LAYER "attn.Wqkv", DIM_QKV, DIM_HIDDEN, BARE},
    {ROLE_O, NOMIC_LAYER "attn.out_proj", DIM_HIDDEN, DIM_Q, BARE},
    VECTOR(ROLE_ATTN_NORM, NOMIC_LAYER "norm1"),
    {ROLE_UP, NOMIC_LAYER "mlp.fc11", DIM_MLP, DIM_HIDDEN, BARE},
    {ROLE_GATE, NOMIC_LAYER "mlp.fc12", DIM_MLP, DIM_HIDDEN, BARE},
    {ROLE_DOWN, NOMIC_LAYER "mlp.fc2", DIM_HIDDEN, DIM_MLP, BARE},
    VECTOR(ROLE_MLP_NORM, NOMIC_LAYER "norm2"),
};

static const tensor_pattern_t gte_patterns[] = {
    WORDS("embeddings.word_embeddings"),
    TYPES,
    VECTOR(ROLE_EMBED_NORM, "embeddings.LayerNorm"),
    SQUARE(ROLE_POOLER, "pooler.dense"),
    LABELS("/classifier"),
    {ROLE_QKV, BERT_LAYER "attention.qkv_proj", DIM_QKV, DIM_HIDDEN, ALWAYS},
    {ROLE_O, BERT_LAYER "attention.o_proj", DIM_HIDDEN, DIM_Q, ALWAYS},
    VECTOR(ROLE_ATTN_NORM, BERT_LAYER "attn_ln"),
    {ROLE_UP_GATE, BERT_LAYER "mlp.up_gate_proj", DIM_GATE_UP, DIM_HIDDEN, BARE},
    {ROLE_DOWN, BERT_LAYER "mlp.down_proj", DIM_HIDDEN, DIM_MLP, ALWAYS},
    VECTOR(ROLE_MLP_NORM, BERT_LAYER "mlp_ln"),
};

/* Heads of the training, and buffers of old files. */
#define UNUSED .ignored = {"pooler.", "cls.", "lm_head.", "position_ids", "token_type_ids"}

const layout_t layout_bert = {PATTERNS(bert_patterns), .prefixes = {"", "bert."}, UNUSED};
const layout_t layout_roberta = {PATTERNS(roberta_patterns), .prefixes = {"", "roberta."}, UNUSED};
const layout_t layout_distilbert = {PATTERNS(distilbert_patterns), .prefixes = {"", "distilbert."},
                                    .ignored = {"vocab_"}};
const layout_t layout_modernbert = {PATTERNS(modernbert_patterns), .prefixes = {"", "model."},
                                    .ignored = {"head.", "decoder."}};
const layout_t layout_nomic_bert = {PATTERNS(nomic_bert_patterns),
                                    .prefixes = {"", "nomic_bert.", "bert."}, UNUSED};
const layout_t layout_gte = {PATTERNS(gte_patterns), .prefixes = {"", "new.", "gte."}, UNUSED};
