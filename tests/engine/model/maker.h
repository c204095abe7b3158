/* maker.h: writes small model directories, good ones and broken ones, for the tests of the loader.
 *
 * A maker starts as a complete Llama of one layer (float32, untied, V 8, h 8, 2 heads, 1 KV head,
 * f 12). A test changes what it wants broken and writes it into a fresh temporary directory.
 * Functions assert.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_MAKER_H
#define INFERD_TESTS_ENGINE_MODEL_MAKER_H

#include "engine/model/model.h"

enum { MAKER_TENSORS_MAX = 32 };

typedef struct maker_tensor {
  char name[96], type[12];
  int64_t shape[10];
  int rank;
  int64_t elements, element_size;
  double poison;     /* value of the element in the middle; 0 = as the others */
  int64_t base, per; /* per > 0: element k of an integer type is base + k / per */
} maker_tensor_t;

typedef struct maker {
  char dir[64];
  char config[4096];
  char generation[1024]; /* "" = no generation_config.json */
  maker_tensor_t tensors[MAKER_TENSORS_MAX];
  int num_tensors;
  const char *header;      /* replaces the whole header; NULL = made from the tensors */
  uint64_t header_length;  /* replaces the number in front; 0 = the true one */
  int64_t data_change;     /* bytes more (or less) than the header says */
  const char *extra_entry; /* text added inside the header's object, with its comma */
} maker_t;

/* A good model in a fresh temporary directory (not written yet). */
void maker_open(maker_t *maker);
/* Removes the directory and everything in it. */
void maker_close(maker_t *maker);

/* Replaces `"key": value` in config.json, or adds it. `value` NULL removes the key. */
void maker_set(maker_t *maker, const char *key, const char *value);
maker_tensor_t *maker_tensor(maker_t *maker, const char *name);
void maker_reshape(maker_tensor_t *tensor, const char *type, int rank, int64_t rows, int64_t cols);
maker_tensor_t *maker_add(maker_t *maker, const char *name, const char *type, int rank,
                          int64_t rows, int64_t cols);
void maker_remove(maker_t *maker, const char *name);

void maker_write_config(const maker_t *maker);
/* Writes the tensors [first, first + count) into DIR/NAME. */
void maker_write_tensors(const maker_t *maker, const char *name, int first, int count);
/* config.json, generation_config.json and model.safetensors. */
void maker_write(const maker_t *maker);
void maker_write_file(const maker_t *maker, const char *name, const void *bytes, size_t length);

/* Reads the directory as the engine would, on plain-loop ops. 0 or the first error. */
int maker_load(const maker_t *maker, int32_t dtype, inferd_error_t *error);
/* The same on the CPU back end, which takes quantised rows as they are stored. */
int maker_load_on_cpu(const maker_t *maker, int32_t dtype, inferd_error_t *error);
/* Removes the directory, and asserts that a good one loads after it: the bad one left no handler,
 * lock or list in a bad state. */
void maker_finish(maker_t *maker);

#endif
