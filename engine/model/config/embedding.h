/* embedding.h: how a model directory of sentence-transformers makes a vector of a text.
 *
 * Any thread; called once while a model loads.
 */
#ifndef INFERD_ENGINE_MODEL_CONFIG_EMBEDDING_H
#define INFERD_ENGINE_MODEL_CONFIG_EMBEDDING_H

#include "engine/base/error.h"
#include "engine/embedding.h"

typedef struct embedding_files {
  bool found;                     /* a pooling is named: the model was made to embed */
  int32_t max_tokens;             /* of sentence_bert_config.json; 0 = no limit of its own */
  dense_layer_t dense[DENSE_MAX]; /* in order */
  int32_t num_dense;
  embedding_info_t info; /* without sizes; of the last token, normalised, when nothing was found */
} embedding_files_t;

/* Reads modules.json, what the modules' directories and sentence_bert_config.json say, and the keys
 * about shorter vectors in config.json; or {architecture}.pooling_type of the GGUF file that `dir`
 * is or holds. Absent files are no error. Returns 0, ERR_MODEL_MALFORMED with file, key, value
 * found and supported, or an error of model_file_read. */
int embedding_read(const char *dir, embedding_files_t *out, inferd_error_t *error);

const char *pooling_name(pooling_t pooling); /* "last", "mean", "cls" */

#endif
