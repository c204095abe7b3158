/* deberta.c: DeBERTa V2 and V3, whose scores have keys and queries of distances.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

#define LINEAR(role, name, rows, cols, when) ROW(role, name, NULL, rows, cols, when, when)
#define VECTOR(role, name, when) LINEAR(role, name, DIM_HIDDEN, DIM_NONE, when)
#define TABLE(role, name, rows, when) ROW(role, name, NULL, rows, DIM_HIDDEN, when, WHEN_NEVER)
#define IN_LAYER(role, name, rows, cols)                                                           \
  LINEAR(role, "encoder.layer.#." name, rows, cols, WHEN_ALWAYS)

static const tensor_pattern_t patterns[] = {
    TABLE(ROLE_EMBED, "embeddings.word_embeddings", DIM_VOCAB, WHEN_ALWAYS),
    TABLE(ROLE_POSITIONS, "embeddings.position_embeddings", DIM_POSITIONS, WHEN_POSITIONS),
    TABLE(ROLE_TYPES, "embeddings.token_type_embeddings", DIM_TYPES, WHEN_TYPES),
    VECTOR(ROLE_EMBED_NORM, "embeddings.LayerNorm", WHEN_ALWAYS),
    TABLE(ROLE_DISTANCE_ROWS, "encoder.rel_embeddings", DIM_DISTANCES, WHEN_DISTANCES),
    VECTOR(ROLE_DISTANCE_NORM, "encoder.LayerNorm", WHEN_DISTANCE_NORM),
    IN_LAYER(ROLE_Q, "attention.self.query_proj", DIM_Q, DIM_HIDDEN),
    IN_LAYER(ROLE_K, "attention.self.key_proj", DIM_KV, DIM_HIDDEN),
    IN_LAYER(ROLE_V, "attention.self.value_proj", DIM_KV, DIM_HIDDEN),
    IN_LAYER(ROLE_O, "attention.output.dense", DIM_HIDDEN, DIM_Q),
    IN_LAYER(ROLE_ATTN_NORM, "attention.output.LayerNorm", DIM_HIDDEN, DIM_NONE),
    IN_LAYER(ROLE_UP, "intermediate.dense", DIM_MLP, DIM_HIDDEN),
    IN_LAYER(ROLE_DOWN, "output.dense", DIM_HIDDEN, DIM_MLP),
    IN_LAYER(ROLE_MLP_NORM, "output.LayerNorm", DIM_HIDDEN, DIM_NONE),
    LINEAR(ROLE_POOLER, "/pooler.dense", DIM_HIDDEN, DIM_HIDDEN, WHEN_LABELS),
    LINEAR(ROLE_CLASSIFIER, "/classifier", DIM_LABELS, DIM_HIDDEN, WHEN_LABELS),
};

/* Heads of the training; files of models that have no table of positions may hold one. */
static const layout_t layout = {PATTERNS(patterns), .prefixes = {"", "deberta."},
                                .ignored = {"lm_predictions.", "mask_predictions.", "cls.",
                                            "pooler.", "position_ids",
                                            "embeddings.position_embeddings."}};

static const family_t rows[] = {
    {NAMES("deberta-v2", "DebertaV2Model"), .layout = &layout,
     SIZES(128100, 1536, 6144, 24, 24, 0, 0, 512), IDS(-1, -1), .norm_eps = 1e-7,
     .activation = "gelu", .norm = NORM_LAYER, .qkv_bias = true, .o_bias = true, .mlp_bias = true,
     .block = BLOCK_POST_NORM, .encoder = true, .embed_norm = true, .deberta_keys = true},
};

const family_table_t lineage_deberta = {rows, ARRAY_LEN(rows), NULL, 0};
