/* vocab.c: one arena of strings and the table that finds them.
 *
 * Filled by the loading thread; afterwards any thread reads it. Never resizes after vocab_init,
 * never looks at what a string means.
 */
#include "engine/text/model/vocab.h"

#include <stdlib.h>

bool vocab_init(vocab_t *v, uint32_t num_ids, uint32_t count) {
  *v = (vocab_t){0};
  uint32_t slots = 16;
  while (slots < 2 * (uint64_t)count) slots *= 2;
  v->slots = calloc(slots, sizeof *v->slots);
  v->offset = calloc((size_t)num_ids + 1, sizeof *v->offset);
  v->length = calloc((size_t)num_ids + 1, sizeof *v->length);
  if (v->slots == NULL || v->offset == NULL || v->length == NULL) {
    vocab_free(v);
    return false;
  }
  memset(v->length, 0xFF, ((size_t)num_ids + 1) * sizeof *v->length);
  v->slot_mask = slots - 1, v->num_ids = num_ids;
  return true;
}

void vocab_free(vocab_t *v) {
  bytes_free(&v->arena);
  free(v->slots);
  free(v->offset);
  free(v->length);
  *v = (vocab_t){0};
}

/* The slot that holds the string, or the empty slot where it belongs. */
static uint32_t slot_of(const vocab_t *v, const uint8_t *text, size_t length) {
  uint32_t slot = (uint32_t)hash_bytes(text, length) & v->slot_mask;
  for (;; slot = (slot + 1) & v->slot_mask) {
    if (v->slots[slot] == 0) return slot;
    uint32_t id = v->slots[slot] - 1;
    if (v->length[id] == length && memcmp(v->arena.data + v->offset[id], text, length) == 0)
      return slot;
  }
}

vocab_result_t vocab_put(vocab_t *v, const char *text, size_t length, uint32_t id) {
  if (v->length[id] != VOCAB_UNUSED) return VOCAB_DUPLICATE;
  uint32_t slot = slot_of(v, (const uint8_t *)text, length);
  if (v->slots[slot] != 0) return VOCAB_DUPLICATE;
  if (v->arena.length + length > UINT32_MAX) return VOCAB_NO_MEMORY;
  v->offset[id] = (uint32_t)v->arena.length;
  if (!bytes_append(&v->arena, text, length)) return VOCAB_NO_MEMORY;
  v->length[id] = (uint32_t)length;
  v->slots[slot] = id + 1;
  v->count++;
  if (length > v->longest) v->longest = (uint32_t)length;
  return VOCAB_ADDED;
}

uint32_t vocab_find(const vocab_t *v, const void *text, size_t length) {
  if (v->slots == NULL || length > v->longest) return NO_ID;
  return v->slots[slot_of(v, text, length)] - 1; /* an empty slot wraps to NO_ID */
}

const uint8_t *vocab_string(const vocab_t *v, uint32_t id, size_t *length) {
  if (id >= v->num_ids || v->length[id] == VOCAB_UNUSED) return NULL;
  *length = v->length[id];
  return v->arena.data + v->offset[id];
}
