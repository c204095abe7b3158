/* gguf_internal.h: an open GGUF model. Shared by gguf_parse.c, which reads one file's header, and
 * gguf.c, which joins the files.
 */
#ifndef INFERD_ENGINE_FILE_GGUF_INTERNAL_H
#define INFERD_ENGINE_FILE_GGUF_INTERNAL_H

#include "engine/file/gguf.h"

typedef struct gguf_file {
  char *path;
  mapping_t *mapping;
  uint8_t *header; /* copy of the header; keys and values point into it */
  gguf_value_t *values;
  size_t num_values; /* sorted by key */
} gguf_file_t;

struct gguf {
  gguf_file_t *files; /* [num_files], owned */
  int32_t num_files;
  gguf_tensor_t *tensors; /* of all files, sorted by name once all are open */
  size_t num_tensors;
};

/* Reads the header of files[file], whose mapping is open; appends its tensors, which must not
 * overlap. Errors as gguf_open. */
int gguf_parse(gguf_t *gguf, int32_t file, inferd_error_t *error);
/* Among sorted values; NULL = absent. */
const gguf_value_t *gguf_lookup(const gguf_value_t *values, size_t count, const char *key);

#endif
