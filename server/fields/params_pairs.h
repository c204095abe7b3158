/* params_pairs.h: the fields of the routes that score pairs of texts, as a part of params_t. */
#ifndef INFERD_SERVER_FIELDS_PARAMS_PAIRS_H
#define INFERD_SERVER_FIELDS_PARAMS_PAIRS_H

#include "engine/embedding.h"
#include "server/fields/fields.h"

enum { DOCUMENTS_MAX = 1024, INSTRUCTION_BYTES_MAX = 1 << 16, PLACE_BYTES_MAX = 48 };

struct prompt;

/* One side of the pairs. */
typedef struct pair_side {
  const char *name;     /* of the field; NULL = not given */
  struct prompt *texts; /* [count] in the arena, text in the JSON document */
  int32_t count;
  bool is_list;
} pair_side_t;

/* Pair i is query i, or the only query, and document i. */
typedef struct pair_params {
  bool wanted; /* the request is one of pairs */
  bool cosine; /* each text has a vector; else each pair is one prompt */
  pair_side_t queries, documents;
  int64_t top_n; /* 0 = all */
  bool returns_texts, returns_texts_given;
  bool bare;              /* `texts` in the place of `documents`: the answer is a list */
  bool raw, raw_given;    /* scores without the activation */
  bool raw_by_activation; /* `use_activation` says so, not `raw_scores` */
  int64_t query_tokens_max, document_tokens_max; /* 0 = not cut */
  const json_t *instruction;                     /* of a model that judges; NULL = the usual */
} pair_params_t;

struct params;
extern const field_table_t rerank_table, score_table;

/* The field that asks for scores without the activation; NULL = none does. */
const char *pairs_raw_field(const pair_params_t *pairs);

/* params.c: writes where prompt `index` stands, such as input[3]; returns `out`, of
 * PLACE_BYTES_MAX. */
const char *params_place(const struct params *params, int32_t index, char *out);
/* The rules between the fields of a request of pairs; makes the prompts. Returns 0, or an error
 * with param set. */
int params_check_pairs(struct params *params, const embedding_info_t *info, reader_t *reader);

#endif
