/* pickle.h: the opcodes of pickle that a file of tensors needs, and no other.
 *
 * A pickle is a program: Python's own reader imports and calls whatever the file names. This
 * machine imports nothing and calls nothing. The names of torch's storages and types, and of what
 * puts a tensor together, are rows of a table; any other name or opcode ends the reading. What
 * comes out are descriptions of tensors; nothing here reads their numbers. One thread a machine.
 */
#ifndef INFERD_ENGINE_FILE_PICKLE_H
#define INFERD_ENGINE_FILE_PICKLE_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"

enum {
  PICKLE_RANK_MAX = 8,
  PICKLE_VALUES_MAX = 4 << 20 /* of a pool of the machine: bounds its memory */
};

typedef enum pickle_kind {
  PICKLE_NONE,
  PICKLE_BOOL,
  PICKLE_INT,
  PICKLE_FLOAT, /* its value is not kept */
  PICKLE_TEXT,
  PICKLE_TUPLE,
  PICKLE_LIST,
  PICKLE_DICT,
  PICKLE_NAME, /* a class or a function: a row of the table */
  PICKLE_STORAGE,
  PICKLE_TENSOR,
  PICKLE_MARK /* only on the stack */
} pickle_kind_t;

typedef struct pickle_value {
  pickle_kind_t kind;
  uint32_t count; /* bytes of a text, items of a tuple */
  int64_t number; /* the number; else where it is: byte of the text, item, container, row, ... */
} pickle_value_t;

/* What a list or dictionary holds, in the order in which it was put there. */
typedef struct pickle_node {
  int64_t container;         /* `number` of the list or dictionary */
  pickle_value_t key, value; /* key: PICKLE_NONE in a list */
} pickle_node_t;

typedef struct pickle_storage {
  pickle_value_t key; /* a text */
  const char *type;   /* of its elements, as in pickle_tensor_t */
  uint32_t element_bytes;
  size_t bytes; /* as the pickle says */
} pickle_storage_t;

typedef struct pickle_tensor {
  int64_t storage;
  const char *type; /* as safetensors spells it: "BF16" */
  uint32_t element_bytes;
  int32_t rank;
  size_t elements, offset; /* offset: elements from the start of the storage */
  size_t shape[PICKLE_RANK_MAX], stride[PICKLE_RANK_MAX]; /* stride: elements; never outside */
} pickle_tensor_t;

typedef struct pickle {
  const uint8_t *data; /* [size], the caller's; texts are bytes of it */
  size_t size, at;     /* at: of the next opcode */
  buffer_t stack, memo, items, nodes, counts, storages, tensors;
  bool is_cut;      /* the program ended before its STOP */
  const char *path; /* for messages */
  inferd_error_t *error;
} pickle_t;

/* Runs the program that begins at `at`, up to its STOP, and leaves `at` behind it. Start with a
 * zeroed machine that has data, size, path and error; several programs may follow one another in
 * one machine. 0 and *out, ERR_MODEL_MALFORMED or ERR_NO_MEMORY. */
int pickle_run(pickle_t *pickle, pickle_value_t *out);
void pickle_free(pickle_t *pickle);

static inline const pickle_node_t *pickle_nodes(const pickle_t *pickle, size_t *count) {
  *count = pickle->nodes.length / sizeof(pickle_node_t);
  return (const pickle_node_t *)(const void *)pickle->nodes.data;
}
static inline const pickle_storage_t *pickle_storages(const pickle_t *pickle, size_t *count) {
  *count = pickle->storages.length / sizeof(pickle_storage_t);
  return (const pickle_storage_t *)(const void *)pickle->storages.data;
}
static inline const pickle_tensor_t *pickle_tensors(const pickle_t *pickle) {
  return (const pickle_tensor_t *)(const void *)pickle->tensors.data;
}

/* "a dictionary", "a number", ... for messages. */
const char *pickle_kind_name(pickle_kind_t kind);

#endif
