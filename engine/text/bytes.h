/* bytes.h: growable arrays and hashing for the text room.
 *
 * A buffer grows by half and reports failure instead of aborting; the caller turns false into
 * ERR_INTERNAL (a request) or ERR_NO_MEMORY (a load). Not shared between threads.
 */
#ifndef INFERD_ENGINE_TEXT_BYTES_H
#define INFERD_ENGINE_TEXT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct bytes {
  uint8_t *data;
  size_t length, capacity; /* bytes */
} bytes_t;

typedef struct ids {
  int32_t *data;
  size_t count, capacity; /* elements */
} ids_t;

bool bytes_reserve(bytes_t *bytes,
                   size_t extra); /* room for `extra` more bytes; false: no memory */
bool bytes_append(bytes_t *bytes, const void *data, size_t length);
void bytes_free(bytes_t *bytes);
/* Frees the memory when a rare large input made it bigger than `keep_max` bytes. */
void bytes_trim(bytes_t *bytes, size_t keep_max);

bool ids_grow(ids_t *ids, size_t extra);
static inline bool ids_push(ids_t *ids, int32_t id) {
  if (ids->count == ids->capacity && !ids_grow(ids, 1)) return false;
  ids->data[ids->count++] = id;
  return true;
}

#endif
