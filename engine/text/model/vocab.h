/* vocab.h: the strings of a vocabulary, string -> id and id -> string.
 *
 * One arena and an open-addressing table of 32-bit slots. Filled at load by one thread, read-only
 * afterwards. Ids may have holes; strings are spelled as in the file.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_VOCAB_H
#define INFERD_ENGINE_TEXT_MODEL_VOCAB_H

#include "engine/base/buffer.h"

enum { VOCAB_ID_MAX = 16000000, VOCAB_COUNT_MAX = 4000000, VOCAB_PIECE_BYTES_MAX = 65536 };

typedef struct vocab {
  buffer_t arena;
  uint32_t *offset, *length; /* [num_ids]; length VOCAB_UNUSED = a hole */
  uint32_t num_ids;          /* highest id + 1 */
  uint32_t count;            /* ids in use */
  uint32_t *slots;           /* id + 1, 0 = empty; [slot_mask + 1] */
  uint32_t slot_mask;
  uint32_t longest; /* bytes of the longest string */
} vocab_t;

#define VOCAB_UNUSED UINT32_MAX
#define NO_ID UINT32_MAX

/* Room for ids 0..num_ids-1 and `count` strings. False: no memory. */
bool vocab_init(vocab_t *vocab, uint32_t num_ids, uint32_t count);
void vocab_free(vocab_t *vocab);

typedef enum { VOCAB_ADDED, VOCAB_DUPLICATE, VOCAB_NO_MEMORY } vocab_result_t;
/* Adds one string; the id must be below num_ids, and at most `count` strings may be added. */
vocab_result_t vocab_put(vocab_t *vocab, const char *text, size_t length, uint32_t id);
uint32_t vocab_find(const vocab_t *vocab, const void *text, size_t length); /* NO_ID = absent */
/* The string of an id, NULL for a hole or an id out of range. */
const uint8_t *vocab_string(const vocab_t *vocab, uint32_t id, size_t *length);

#endif
