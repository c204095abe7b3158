/* arena.c: arenas: pieces are taken from chunks, which double from 1 KiB to 1 MiB.
 *
 * Any thread, one owner at a time. A piece of more than half a chunk gets a chunk of its own, so
 * little of each chunk stays unused. No memory is freed before arena_free.
 */
#include "engine/base/arena.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_MIN = 1 << 10, CHUNK_MAX = 1 << 20, ALIGNMENT = alignof(max_align_t) };

struct arena_chunk {
  struct arena_chunk *next;
  alignas(max_align_t) char data[];
};

static struct arena_chunk *new_chunk(arena_t *arena, size_t capacity, bool zero) {
  struct arena_chunk *chunk = NULL;
  size_t bytes;
  if (checked_add(capacity, sizeof *chunk, &bytes)) {
    chunk = zero ? calloc(1, bytes) : malloc(bytes);
  }
  if (chunk == NULL) {
    arena->out_of_memory = true;
    return NULL;
  }
  arena->held += bytes;
  return chunk;
}

/* Takes a piece that does not fit into the first chunk from a new chunk. */
static void *take_from_new(arena_t *arena, size_t bytes, bool zero) {
  size_t capacity = arena->chunk_size == 0 ? CHUNK_MIN : 2 * arena->chunk_size;
  if (capacity > CHUNK_MAX) capacity = CHUNK_MAX;
  arena->chunk_size = capacity;
  bool alone = bytes > capacity / 2;
  struct arena_chunk *chunk = new_chunk(arena, alone ? bytes : capacity, alone && zero);
  if (chunk == NULL) return NULL;
  if (alone && arena->chunks != NULL) { /* second in the list: the first chunk stays in use */
    chunk->next = arena->chunks->next;
    arena->chunks->next = chunk;
    return chunk->data;
  }
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  arena->at = chunk->data + bytes;
  arena->end = chunk->data + (alone ? bytes : capacity);
  return alone || !zero ? chunk->data : memset(chunk->data, 0, bytes);
}

static void *take(arena_t *arena, size_t count, size_t size, bool zero) {
  size_t bytes, taken;
  if (!checked_mul(count, size, &bytes) || !checked_align(bytes, ALIGNMENT, &bytes)) return NULL;
  if (bytes == 0) bytes = ALIGNMENT;
  if (!checked_add(arena->taken, bytes, &taken)) return NULL;
  if (arena->limit != 0 && taken > arena->limit) return NULL;
  void *piece = arena->at;
  if ((size_t)(arena->end - arena->at) < bytes) {
    piece = take_from_new(arena, bytes, zero);
    if (piece == NULL) return NULL;
  } else {
    arena->at += bytes;
    if (zero) memset(piece, 0, bytes);
  }
  arena->taken = taken;
  return piece;
}

void *arena_alloc(arena_t *arena, size_t count, size_t size) {
  return take(arena, count, size, false);
}

void *arena_calloc(arena_t *arena, size_t count, size_t size) {
  return take(arena, count, size, true);
}

void *arena_grow(arena_t *arena, const void *items, uint32_t count, uint32_t need, size_t size,
                 uint32_t *capacity) {
  uint32_t doubled = *capacity > UINT32_MAX / 2 ? UINT32_MAX : 2 * *capacity;
  uint32_t grown = MAX(need, doubled);
  void *array = arena_alloc(arena, grown, size);
  if (array == NULL) return NULL;
  if (count != 0) memcpy(array, items, count * size);
  *capacity = grown;
  return array;
}

char *arena_copy(arena_t *arena, const char *bytes, size_t length) {
  size_t room;
  char *copy = checked_add(length, 1, &room) ? arena_alloc(arena, room, 1) : NULL;
  if (copy == NULL) return NULL;
  if (length != 0) memcpy(copy, bytes, length);
  copy[length] = '\0';
  return copy;
}

void arena_free(arena_t *arena) {
  for (struct arena_chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  *arena = (arena_t){.limit = arena->limit};
}
