/* arena.c: chunks of memory that live and die together.
 *
 * Used by whoever compiles a grammar, one thread at a time. Never gives a part back.
 */
#include "engine/grammar/arena.h"

#include "engine/base/checked.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 64 << 10, CHUNK_HEAD = 16, ALIGNMENT = 16 };

struct arena_chunk {
  struct arena_chunk *next;
};

static bool add_chunk(arena_t *arena, size_t bytes) {
  size_t capacity = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES, all, total;
  if (!checked_add(capacity, CHUNK_HEAD, &all)) return false;
  if (!checked_add(arena->total, all, &total) || total > arena->total_max) return false;
  struct arena_chunk *chunk = calloc(1, all);
  if (chunk == NULL) return false;
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  arena->used = 0;
  arena->capacity = capacity;
  arena->total = total;
  return true;
}

void *arena_take(arena_t *arena, size_t count, size_t size) {
  size_t bytes;
  if (!checked_mul(count, size, &bytes) || !checked_align(bytes, ALIGNMENT, &bytes)) return NULL;
  if (arena->capacity - arena->used < bytes && !add_chunk(arena, bytes)) return NULL;
  if (arena->chunks == NULL && !add_chunk(arena, bytes)) return NULL;
  char *start = (char *)arena->chunks + CHUNK_HEAD + arena->used;
  arena->used += bytes;
  return start;
}

void arena_free(arena_t *arena) {
  while (arena->chunks != NULL) {
    struct arena_chunk *next = arena->chunks->next;
    free(arena->chunks);
    arena->chunks = next;
  }
  arena->used = arena->capacity = arena->total = 0;
}
