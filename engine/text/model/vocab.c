/* vocab.c: one arena of strings and the table that finds them.
 *
 * Filled by the loading thread; afterwards any thread reads it. It never grows after vocab_init.
 */
#include "engine/text/model/vocab.h"

#include "engine/base/hash.h"

#include <stdlib.h>

bool vocab_init(vocab_t *vocab, uint32_t num_ids, uint32_t count) {
  *vocab = (vocab_t){0};
  uint32_t slots = 16;
  while (slots < 2 * (uint64_t)count) slots *= 2;
  vocab->slots = calloc(slots, sizeof *vocab->slots);
  vocab->offset = calloc((size_t)num_ids + 1, sizeof *vocab->offset);
  vocab->length = calloc((size_t)num_ids + 1, sizeof *vocab->length);
  if (vocab->slots == NULL || vocab->offset == NULL || vocab->length == NULL) {
    vocab_free(vocab);
    return false;
  }
  memset(vocab->length, 0xFF, ((size_t)num_ids + 1) * sizeof *vocab->length);
  vocab->slot_mask = slots - 1, vocab->num_ids = num_ids;
  return true;
}

void vocab_free(vocab_t *vocab) {
  buffer_free(&vocab->arena);
  free(vocab->slots);
  free(vocab->offset);
  free(vocab->length);
  *vocab = (vocab_t){0};
}

/* Returns the slot of the string, or the empty slot where it would be inserted. */
static uint32_t slot_of(const vocab_t *vocab, const uint8_t *text, size_t length) {
  uint32_t slot = (uint32_t)hash_bytes(text, length) & vocab->slot_mask;
  for (;; slot = (slot + 1) & vocab->slot_mask) {
    if (vocab->slots[slot] == 0) return slot;
    uint32_t id = vocab->slots[slot] - 1;
    if (vocab->length[id] == length &&
        memcmp(vocab->arena.bytes + vocab->offset[id], text, length) == 0)
      return slot;
  }
}

vocab_result_t vocab_put(vocab_t *vocab, const char *text, size_t length, uint32_t id) {
  if (vocab->length[id] != VOCAB_UNUSED) return VOCAB_DUPLICATE;
  uint32_t slot = slot_of(vocab, (const uint8_t *)text, length);
  if (vocab->slots[slot] != 0) return VOCAB_DUPLICATE;
  if (vocab->arena.length + length > UINT32_MAX) return VOCAB_NO_MEMORY;
  vocab->offset[id] = (uint32_t)vocab->arena.length;
  if (!buffer_append(&vocab->arena, text, length)) return VOCAB_NO_MEMORY;
  vocab->length[id] = (uint32_t)length;
  vocab->slots[slot] = id + 1;
  vocab->count++;
  if (length > vocab->longest) vocab->longest = (uint32_t)length;
  return VOCAB_ADDED;
}

uint32_t vocab_find(const vocab_t *vocab, const void *text, size_t length) {
  if (vocab->slots == NULL || length > vocab->longest) return NO_ID;
  return vocab->slots[slot_of(vocab, text, length)] - 1; /* an empty slot wraps to NO_ID */
}

const uint8_t *vocab_string(const vocab_t *vocab, uint32_t id, size_t *length) {
  if (id >= vocab->num_ids || vocab->length[id] == VOCAB_UNUSED) return NULL;
  *length = vocab->length[id];
  return vocab->arena.bytes + vocab->offset[id];
}
