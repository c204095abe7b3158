/* safetensors.h: the weight files of a model, mapped and checked: safetensors, or GGUF.
 *
 * Opening reads and checks every header (names, types, shapes, byte ranges) before any weight is
 * read. The data stays in read-only mappings. If a file shrinks while it is mapped, the guard of
 * mapping.h gives the reader pages of zeros, and weight_files_intact returns an error. One thread
 * opens and closes; any thread may read between.
 */
#ifndef INFERD_ENGINE_MODEL_SAFETENSORS_H
#define INFERD_ENGINE_MODEL_SAFETENSORS_H

#include "engine/base/error.h"
#include "engine/quant/quant.h"

#include <stddef.h>
#include <stdint.h>

enum {
  TENSOR_NAME_MAX = 512,
  TENSOR_RANK_MAX = 8,
  SHARDS_MAX = 4096,
  SAFETENSORS_HEADER_MAX = 100000000 /* bytes; the limit of the format's own library */
};

typedef struct stored_tensor {
  char *name;    /* owned by the files */
  char type[12]; /* "BF16", "F32", ... as the file spells it */
  int32_t rank;
  int64_t shape[TENSOR_RANK_MAX];
  size_t bytes;
  size_t begin;        /* offset in the file */
  const uint8_t *data; /* inside the mapping, any alignment */
  int32_t shard;
  const quant_format_t *quant; /* blocks of a GGUF file; NULL = elements of `type` */
} stored_tensor_t;

typedef struct weight_files weight_files_t;

/* Opens DIR/model.safetensors.index.json and its shards, or DIR/model.safetensors. The index wins
 * when both exist. If `dir` is a GGUF file or holds one (engine/file/gguf.h), that is opened, with
 * the other files of a split model. ERR_MODEL_MISSING, ERR_MODEL_MALFORMED, ERR_PERMISSION or
 * ERR_IO. */
int weight_files_open(const char *dir, weight_files_t **out, inferd_error_t *error);
/* Opens the one file DIR/NAME. */
int weight_files_open_file(const char *dir, const char *name, weight_files_t **out,
                           inferd_error_t *error);
void weight_files_close(weight_files_t *files); /* NULL is allowed */

const stored_tensor_t *weight_files_find(const weight_files_t *files, const char *name);
size_t weight_files_count(const weight_files_t *files);
/* In order of names. */
const stored_tensor_t *weight_files_at(const weight_files_t *files, size_t index);

/* What was odd about the files and is not an error, such as a name in the index that no shard has;
 * "" if nothing was. */
const char *weight_files_note(const weight_files_t *files);

/* Writes the path of the file that holds a tensor, for messages. Returns `out`. */
const char *weight_files_path(const weight_files_t *files, const stored_tensor_t *tensor, char *out,
                              size_t capacity);

/* Tells the kernel that the bytes of a tensor were read and need not stay in memory. */
void weight_files_done(const weight_files_t *files, const stored_tensor_t *tensor);
/* 0, or ERR_IO when a file shrank or could not be read while it was mapped. */
int weight_files_intact(const weight_files_t *files, inferd_error_t *error);

#endif
