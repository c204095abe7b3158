/* gguf_maker.h: writes small GGUF files, good ones and broken ones.
 *
 * A test appends pairs and tensors in the order of the file; gguf_maker_write puts the header
 * around them. What a test wants broken it writes byte for byte. Functions assert.
 */
#ifndef INFERD_TESTS_ENGINE_FILE_GGUF_MAKER_H
#define INFERD_TESTS_ENGINE_FILE_GGUF_MAKER_H

#include "engine/base/buffer.h"
#include "engine/file/gguf.h"

typedef struct gguf_maker {
  char dir[64];
  buffer_t pairs, tensors, data;
  uint64_t num_pairs, num_tensors;
  uint64_t alignment; /* that data is padded to */
  /* in place of the true numbers, when not 0 */
  uint64_t magic, version, tensor_count, pair_count;
  size_t cut; /* bytes missing at the end */
} gguf_maker_t;

void gguf_maker_open(gguf_maker_t *maker);  /* a fresh directory, nothing in the file */
void gguf_maker_clear(gguf_maker_t *maker); /* the directory stays */
void gguf_maker_close(gguf_maker_t *maker);

/* Little-endian bytes. */
void gguf_put(buffer_t *buffer, uint64_t number, int bytes);
void gguf_put_text(buffer_t *buffer, const char *text); /* length and bytes */

/* The key and the type of a pair; its value follows by gguf_put on maker->pairs. */
void gguf_maker_key(gguf_maker_t *maker, const char *key, uint32_t kind);
void gguf_maker_text(gguf_maker_t *maker, const char *key, const char *text);
void gguf_maker_number(gguf_maker_t *maker, const char *key, uint32_t kind, uint64_t number);
void gguf_maker_f32(gguf_maker_t *maker, const char *key, float number);
/* An array's key, element type and length; the elements follow by gguf_put. */
void gguf_maker_array(gguf_maker_t *maker, const char *key, uint32_t element, uint64_t count);

/* Adds a tensor without data: name, dimensions (innermost first, ended by 0), type, offset. */
void gguf_maker_info(gguf_maker_t *maker, const char *name, const uint64_t *dims, uint32_t type,
                     uint64_t offset);
/* Adds a float32 tensor [rows, cols] with data; rows 0: a vector. Element i is `first` + i. */
void gguf_maker_tensor(gguf_maker_t *maker, const char *name, uint64_t rows, uint64_t cols,
                       float first);

/* Writes DIR/NAME and returns its path, which lives until the next call. */
const char *gguf_maker_write(const gguf_maker_t *maker, const char *name);

#endif
