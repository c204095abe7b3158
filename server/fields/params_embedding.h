/* params_embedding.h: the fields that only POST /v1/embeddings has, as a part of params_t. */
#ifndef INFERD_SERVER_FIELDS_PARAMS_EMBEDDING_H
#define INFERD_SERVER_FIELDS_PARAMS_EMBEDDING_H

#include "engine/embedding.h"
#include "server/fields/fields.h"

enum { EMBEDDING_INPUTS_MAX = 2048 };

typedef struct embedding_params {
  bool wanted;        /* the request is one of /v1/embeddings */
  bool base64;        /* else arrays of numbers */
  int64_t dimensions; /* values of a vector; 0 = all */
  bool normalises, normalises_given;
} embedding_params_t;

struct params;
extern const field_table_t embedding_table;

/* Reads `root` into *params, as params_read does for the other routes. `info` is that of the model.
 * The reader's `out` is set here. Returns 0, or an error with param set. */
int params_read_embedding(struct params *params, const embedding_info_t *info, reader_t *reader,
                          const json_t *root);

#endif
