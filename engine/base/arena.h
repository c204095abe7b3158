/* arena.h: memory that is allocated piece by piece and freed all at once.
 *
 * A request, a compilation or a render allocates from an arena, so it leaks nothing wherever it
 * stops. One owner, one thread at a time. `(arena_t){0}` is an empty arena without a limit.
 */
#ifndef INFERD_ENGINE_BASE_ARENA_H
#define INFERD_ENGINE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena {
  struct arena_chunk *chunks; /* the first chunk is the one that pieces are taken from */
  char *at, *end;             /* the free part of the first chunk */
  size_t chunk_size;          /* of the last chunk that was made for many pieces, in bytes; set
                                 before the first piece: half of the first chunk */
  size_t taken, limit;        /* bytes of all pieces, and their maximum; limit 0 = none */
  size_t held;                /* bytes from malloc */
  bool out_of_memory;         /* malloc has failed; reaching the limit does not set it */
} arena_t;

/* Returns `count` elements of `size` bytes, aligned for any type; a valid pointer also if count or
 * size is 0. Returns NULL if the product overflows, if the limit would be exceeded, or without
 * memory (`out_of_memory` is set). The arena owns the piece. */
void *arena_alloc(arena_t *arena, size_t count, size_t size);
void *arena_calloc(arena_t *arena, size_t count, size_t size); /* the same, zeroed */
/* Makes room in a growing array. Returns an array of at least `need` elements of `size` bytes that
 * begins with the `count` elements of `items`, and sets *capacity, which at least doubles. The old
 * array stays in the arena, so what points into it stays valid. Returns NULL as arena_alloc. */
void *arena_grow(arena_t *arena, const void *items, uint32_t count, uint32_t need, size_t size,
                 uint32_t *capacity);
/* Returns a copy of `length` bytes, followed by a NUL; NULL as arena_alloc. */
char *arena_copy(arena_t *arena, const char *bytes, size_t length);
void arena_free(arena_t *arena); /* frees all pieces; the arena can be used again, with its limit */

#endif
