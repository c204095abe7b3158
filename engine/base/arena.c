/* arena.c: the per-request arena. Chunks double; a large allocation gets a chunk of its own size.
 *
 * Any thread, one owner at a time. Never gives memory back before arena_release.
 */
#include "engine/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_CHUNK_MIN = 1024 }; /* a plain completion fits */

struct arena_chunk {
  struct arena_chunk *next;
  alignas(max_align_t) char data[];
};

void *arena_alloc(arena_t *arena, size_t count, size_t size) {
  if (size != 0 && count > (SIZE_MAX / 4) / size) return NULL;
  size_t align = alignof(max_align_t);
  size_t bytes = (count * size + align - 1) / align * align;
  if (bytes == 0) bytes = align;
  if (arena->capacity - arena->used < bytes) {
    size_t capacity = arena->capacity == 0 ? ARENA_CHUNK_MIN : arena->capacity;
    if (arena->capacity > 0 && capacity < ((size_t)1 << 20)) capacity *= 2;
    if (capacity < bytes) capacity = bytes;
    struct arena_chunk *chunk = malloc(sizeof *chunk + capacity);
    if (chunk == NULL) return NULL;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->capacity = capacity;
    arena->used = 0;
  }
  void *memory = arena->chunks->data + arena->used;
  arena->used += bytes;
  return memset(memory, 0, bytes);
}

char *arena_copy(arena_t *arena, const char *bytes, size_t length) {
  char *copy = arena_alloc(arena, length + 1, 1);
  if (copy != NULL && length != 0) memcpy(copy, bytes, length);
  return copy;
}

/* Values lie in preorder (json.h): those of a subtree are a range. */
static size_t count_values(const json_t *value) {
  size_t count = 0;
  for (uint64_t left = 1; left > 0; left--) {
    const json_t *v = value + count++;
    if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) left += v->count;
  }
  return count;
}

const json_t *arena_copy_json(arena_t *arena, const json_t *value) {
  if (value == NULL) return NULL;
  size_t count = count_values(value);
  json_t *copy = arena_alloc(arena, count, sizeof *copy);
  if (copy == NULL) return NULL;
  memcpy(copy, value, count * sizeof *copy);
  for (json_t *v = copy; v < copy + count; v++) {
    bool is_text = v->type == JSON_STRING || v->type == JSON_NUMBER;
    if (is_text) v->text = arena_copy(arena, v->text, v->length);
    if (v->key != NULL) v->key = arena_copy(arena, v->key, v->key_length);
    if ((is_text && v->text == NULL) || (value[v - copy].key != NULL && v->key == NULL)) {
      return NULL;
    }
  }
  copy->next = 0;
  return copy;
}

void arena_release(arena_t *arena) {
  for (struct arena_chunk *chunk = arena->chunks; chunk != NULL;) {
    struct arena_chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
  *arena = (arena_t){0};
}
