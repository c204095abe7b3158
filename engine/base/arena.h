/* arena.h: memory that is taken piece by piece and freed all at once.
 *
 * A request, a compilation or a render takes what it needs from an arena, so that giving up at any
 * point leaks nothing. One owner, one thread at a time. `(arena_t){0}` is an empty arena without a
 * limit.
 */
#ifndef INFERD_ENGINE_BASE_ARENA_H
#define INFERD_ENGINE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct arena {
  struct arena_chunk *chunks; /* the one that pieces come from is first */
  char *at, *end;             /* its free part */
  size_t chunk_size;          /* of the last chunk that was made for many pieces */
  size_t taken, limit;        /* bytes in pieces, and the most that may be; limit 0: none */
  size_t held;                /* bytes from malloc */
  bool out_of_memory;         /* malloc failed, as opposed to the limit */
} arena_t;

/* `count` elements of `size` bytes, aligned for any type; count or size 0 gives a valid pointer.
 * Returns NULL when the product overflows, at the limit, or without memory (`out_of_memory`). */
void *arena_alloc(arena_t *arena, size_t count, size_t size);
void *arena_calloc(arena_t *arena, size_t count, size_t size); /* the same, zeroed */
/* Copy of `length` bytes with a NUL behind; NULL as above. */
char *arena_copy(arena_t *arena, const char *bytes, size_t length);
void arena_free(arena_t *arena); /* all pieces; the arena is empty and usable, its limit stays */

#endif
