/* params_embedding.h: the fields of the routes that generate nothing, as a part of params_t. */
#ifndef INFERD_SERVER_FIELDS_PARAMS_EMBEDDING_H
#define INFERD_SERVER_FIELDS_PARAMS_EMBEDDING_H

#include "engine/embedding.h"
#include "server/fields/fields.h"
#include "server/fields/params_pairs.h"

enum { EMBEDDING_INPUTS_MAX = 2048 };

/* transformers' aggregation_strategy. */
typedef enum aggregation {
  AGGREGATE_NONE,
  AGGREGATE_SIMPLE,
  AGGREGATE_FIRST,
  AGGREGATE_AVERAGE,
  AGGREGATE_MAX
} aggregation_t;

typedef struct embedding_params {
  bool wanted;        /* the request is one of these routes */
  bool base64;        /* else arrays of numbers */
  int64_t dimensions; /* values of a vector; ABSENT = all */
  bool normalises, normalises_given;
  engine_task_t task; /* that /pooling names; AUTO = none */
  aggregation_t aggregation;
  const char *aggregated; /* the name of the field that asks for it; NULL = none does */
  bool wants_places;      /* the answer names parts of the texts */
} embedding_params_t;

struct params;
extern const field_table_t embedding_table, classify_table, pooling_table;

/* Reads `root` into *params by a table of these, or of params_pairs.h, as params_read does for the
 * other routes. `info` is that of the model. The reader's `out` is set here. Returns 0, or an error
 * with param set. */
int params_read_pooled(struct params *params, const field_table_t *table,
                       const embedding_info_t *info, reader_t *reader, const json_t *root);

#endif
