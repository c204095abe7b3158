/* arena.h: memory that is freed all at once.
 *
 * A compilation takes everything it needs from arenas, so that giving up at any point leaks
 * nothing. One owner, one thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_ARENA_H
#define INFERD_ENGINE_GRAMMAR_ARENA_H

#include <stddef.h>

typedef struct arena {
  struct arena_chunk *chunks;
  size_t used, capacity;   /* of the newest chunk */
  size_t total, total_max; /* bytes taken from the system, and the most that may be */
} arena_t;

/* `count` zeroed elements of `size` bytes, aligned to 16; NULL when memory is short, total_max is
 * reached or the product overflows. count 0 gives a valid pointer. */
void *arena_take(arena_t *arena, size_t count, size_t size);
void arena_free(arena_t *arena);

#endif
