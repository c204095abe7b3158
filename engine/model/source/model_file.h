/* model_file.h: a JSON file of a model directory, read whole and parsed. Any thread. */
#ifndef INFERD_ENGINE_MODEL_MODEL_FILE_H
#define INFERD_ENGINE_MODEL_MODEL_FILE_H

#include "engine/base/json.h"

typedef struct model_file {
  char *text;      /* owned; the document points into it */
  json_doc_t *doc; /* NULL = the file does not exist */
} model_file_t;

/* Reads DIR/NAME. An absent file is no error: out->doc is NULL. ERR_MODEL_MALFORMED when it is
 * larger than `bytes_max`, no regular file or no JSON object; ERR_PERMISSION, ERR_IO,
 * ERR_NO_MEMORY. Free with model_file_free after success only. */
int model_file_read(const char *dir, const char *name, size_t bytes_max,
                    const json_limits_t *limits, model_file_t *out, inferd_error_t *error);
/* The same for a file that holds an array. */
int model_file_read_list(const char *dir, const char *name, size_t bytes_max,
                         const json_limits_t *limits, model_file_t *out, inferd_error_t *error);
void model_file_free(model_file_t *file);

/* Writes "DIR/NAME" for messages and calls; a long directory keeps its end. Returns `out`. */
const char *model_file_path(char *out, size_t capacity, const char *dir, const char *name);

/* Returns 0 for a directory that can be entered, which else would look like one without files, and
 * for a GGUF file; else ERR_MODEL_MALFORMED or the error of the system. */
int model_directory_check(const char *dir, inferd_error_t *error);

#endif
