/* arena.h: memory that lives as long as one HTTP request, freed by one call.
 *
 * A request is built by one thread at a time (loop, then a pool thread, then the loop again).
 */
#ifndef INFERD_ENGINE_BASE_ARENA_H
#define INFERD_ENGINE_BASE_ARENA_H

#include "engine/base/json.h"

#include <stddef.h>

typedef struct arena {
  struct arena_chunk *chunks; /* newest first */
  size_t used, capacity;      /* of the newest chunk */
} arena_t;

/* Zeroed and aligned for any type; NULL when memory is short or the product overflows. */
void *arena_alloc(arena_t *arena, size_t count, size_t size);
/* Copy of `length` bytes with a NUL behind; NULL when memory is short. */
char *arena_copy(arena_t *arena, const char *bytes, size_t length);
/* Copy of a value that needs its document no more; NULL when memory is short or `value` is. */
const json_t *arena_copy_json(arena_t *arena, const json_t *value);
void arena_release(arena_t *arena); /* leaves an empty, usable arena */

#endif
