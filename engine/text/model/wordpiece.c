/* wordpiece.c: greedy longest match over a trie of the vocabulary.
 *
 * Loading thread, then the tokenizing threads. A word of which any part matches no piece is unknown
 * as a whole.
 */
#include "engine/text/model/wordpiece.h"

#include "engine/base/utf8.h"

bool wordpiece_finish(wordpiece_t *wordpiece, const vocab_t *vocab, const char *prefix,
                      size_t prefix_length) {
  if (!trie_build(&wordpiece->trie, vocab)) return false;
  uint32_t node = 0;
  wordpiece->prefix_length = prefix_length;
  wordpiece->has_inner = true;
  for (size_t i = 0; i < prefix_length && wordpiece->has_inner; i++) {
    node = trie_step(&wordpiece->trie, node, (uint8_t)prefix[i]);
    wordpiece->has_inner = node != 0;
  }
  wordpiece->inner = node;
  return true;
}

void wordpiece_free(wordpiece_t *wordpiece) {
  trie_free(&wordpiece->trie);
}

/* The longest piece at word[at..]: its id, and its end. NO_ID = none fits. */
static uint32_t longest(const wordpiece_t *wordpiece, const uint8_t *word, size_t length, size_t at,
                        size_t *end) {
  uint32_t node = at > 0 ? wordpiece->inner : 0, found = NO_ID;
  if (at > 0 && !wordpiece->has_inner) return NO_ID;
  for (size_t i = at; i < length; i++) {
    node = trie_step(&wordpiece->trie, node, word[i]);
    if (node == 0) break;
    uint32_t id = trie_id(&wordpiece->trie, node);
    if (id == NO_ID) continue;
    found = id;
    *end = i + 1;
  }
  return found;
}

int wordpiece_encode(const wordpiece_t *wordpiece, const uint8_t *word, size_t length,
                     buffer_t *out) {
  size_t before = out->length;
  bool known = utf8_count((const char *)word, length) <= wordpiece->chars_max;
  for (size_t at = 0; at < length && known;) {
    uint32_t id = longest(wordpiece, word, length, at, &at);
    known = id != NO_ID;
    if (known && !buffer_append(out, &id, sizeof id)) return ERR_INTERNAL;
  }
  if (known) return 0;
  out->length = before;
  return buffer_append(out, &wordpiece->unk, sizeof wordpiece->unk) ? 0 : ERR_INTERNAL;
}
