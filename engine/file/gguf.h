/* gguf.h: a GGUF file, or the files of a split one: metadata and tensors, checked.
 *
 * Format: version 2 and 3 of the GGUF specification (ggml, docs/gguf.md), little endian. Opening
 * copies the header and checks every count, length, type and byte range in it; the data of tensors
 * stays in read-only mappings (mapping.h). Values and names point into the copy and live as long as
 * the file is open. One thread opens and closes; any thread may read between.
 */
#ifndef INFERD_ENGINE_FILE_GGUF_H
#define INFERD_ENGINE_FILE_GGUF_H

#include "engine/base/error.h"
#include "engine/file/mapping.h"

#include <stddef.h>
#include <stdint.h>

enum {
  GGUF_RANK_MAX = 4,
  GGUF_NAME_MAX = 127,          /* bytes of a tensor's name */
  GGUF_KEY_MAX = 1024,          /* bytes of a key */
  GGUF_STRING_MAX = 64 << 20,   /* bytes of a string: some files hold a whole tokenizer.json */
  GGUF_PAIRS_MAX = 1 << 16,     /* keys with their values */
  GGUF_TENSORS_MAX = 1 << 20,   /* of one file */
  GGUF_ELEMENTS_MAX = 1 << 22,  /* of an array */
  GGUF_ALIGNMENT_MAX = 1 << 20, /* bytes */
  GGUF_HEADER_MAX = 1 << 29,    /* bytes of the header of one file */
  GGUF_SPLITS_MAX = 4096        /* files of a model */
};

/* Types of values, as numbered in the file. */
typedef enum gguf_kind {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_KINDS
} gguf_kind_t;

typedef struct gguf_value {
  const char *key; /* not NUL-terminated */
  uint32_t key_length;
  gguf_kind_t kind, element; /* element: of an array, never GGUF_ARRAY */
  uint32_t count;            /* elements; 1 if the value is no array */
  const uint8_t *data;       /* the number or the elements as in the file; the bytes of a string */
  size_t length;             /* bytes of `data` */
} gguf_value_t;

/* Types of tensors, as numbered in the file. gguf_type_name has the names of the others. */
enum { GGUF_TYPE_F32 = 0, GGUF_TYPE_F16 = 1, GGUF_TYPE_BF16 = 30 };

typedef struct gguf_tensor {
  char *name; /* NUL-terminated */
  uint32_t type;
  int32_t rank;
  int64_t shape[GGUF_RANK_MAX]; /* outermost first: a linear layer is [rows, columns] */
  int32_t file;                 /* of a split */
  size_t begin, bytes;          /* in the file */
  const uint8_t *data;          /* in the mapping, any alignment */
} gguf_tensor_t;

typedef struct gguf gguf_t;

/* Finds the GGUF file that `path` means: the file itself, or the only model in the directory `path`
 * when that has no model.safetensors of its own; of a split model the first file. Returns 1 and
 * fills `out`, 0 when `path` is something else, or ERR_MODEL_MALFORMED when the choice is not clear
 * (the message names the files), ERR_PERMISSION, ERR_IO. */
int gguf_find(const char *path, char *out, size_t capacity, inferd_error_t *error);

/* Opens `path` and, for `with_splits`, the other files of a split model. Without them only the
 * metadata and the tensors of the first file are there. ERR_MODEL_MISSING, ERR_MODEL_MALFORMED with
 * file, field, value and limit, ERR_PERMISSION, ERR_IO, ERR_NO_MEMORY. */
int gguf_open(const char *path, bool with_splits, gguf_t **out, inferd_error_t *error);
void gguf_close(gguf_t *gguf); /* NULL is allowed */

/* The path of file `file` (from 0) of a split model, as it was opened; owned by the model. */
const char *gguf_path(const gguf_t *gguf, int32_t file);
int32_t gguf_num_files(const gguf_t *gguf);

/* Looks a key up in the metadata of the first file; the other files of a split have none. */
const gguf_value_t *gguf_get(const gguf_t *gguf, const char *key); /* NULL = absent */
/* All of them, in order of keys. */
size_t gguf_num_values(const gguf_t *gguf);
const gguf_value_t *gguf_value_at(const gguf_t *gguf, size_t index);
/* Element `index` as a number; false for another type, and for a fraction as an integer. */
bool gguf_int(const gguf_value_t *value, uint32_t index, int64_t *out);
bool gguf_double(const gguf_value_t *value, uint32_t index, double *out);
bool gguf_bool(const gguf_value_t *value, uint32_t index, bool *out);
/* Walks over the strings of an array, or over a single one. *at is 0 at first; false at the end. */
bool gguf_next_string(const gguf_value_t *value, size_t *at, const char **text, size_t *length);

size_t gguf_num_tensors(const gguf_t *gguf);
const gguf_tensor_t *gguf_tensor_at(const gguf_t *gguf, size_t index);  /* in order of names */
const gguf_tensor_t *gguf_tensor(const gguf_t *gguf, const char *name); /* NULL = absent */
const char *gguf_type_name(uint32_t type);                              /* "Q4_K"; never NULL */

/* The mapping of a file, as long as the model is open. */
const mapping_t *gguf_mapping(const gguf_t *gguf, int32_t file);
/* 0, or ERR_IO when a file shrank or could not be read while it was mapped. */
int gguf_intact(const gguf_t *gguf, inferd_error_t *error);

#endif
