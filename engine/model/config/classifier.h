/* classifier.h: what config.json says of the scores of a classifier, or of a model that judges.
 *
 * Any thread; called once while a model loads.
 */
#ifndef INFERD_ENGINE_MODEL_CONFIG_CLASSIFIER_H
#define INFERD_ENGINE_MODEL_CONFIG_CLASSIFIER_H

#include "engine/base/error.h"
#include "engine/embedding.h"

enum { ANSWER_BYTES_MAX = 64 };

typedef struct classifier_files {
  score_activation_t activation;
  const char **labels;               /* [num_labels] names, one allocation, the caller's to free */
  char answers[2][ANSWER_BYTES_MAX]; /* tokens of a model that judges: no, and yes */
} classifier_files_t;

/* Reads problem_type, the activation that sentence-transformers writes, id2label, and
 * classifier_from_token from DIR/config.json; a GGUF file has none of them. Without `num_labels`
 * there are no names. Returns 0, ERR_MODEL_MALFORMED with file, key, value found and supported,
 * ERR_NO_MEMORY, or an error of model_file_read; then there are no labels. */
int classifier_read(const char *dir, int32_t num_labels, classifier_files_t *out,
                    inferd_error_t *error);

#endif
