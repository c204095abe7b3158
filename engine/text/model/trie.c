/* trie.c: builds the trie of a vocabulary.
 *
 * The loading thread only.
 */
#include "engine/text/model/trie.h"

#include <stdlib.h>

static void add_string(trie_t *trie, const uint8_t *text, size_t length, uint32_t id) {
  uint32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t slot = trie_slot(trie, node, text[i]);
    if (trie->edges[slot] == 0)
      trie->edges[slot] = ((uint64_t)node << 8 | text[i]) << TRIE_NODE_BITS | trie->num_nodes++;
    node = trie_step(trie, node, text[i]);
  }
  trie->accept[node] = id + 1;
}

bool trie_build(trie_t *trie, const vocab_t *vocab) {
  size_t bytes = vocab->arena.length, slots = 16;
  if (bytes + 1 >= (1u << TRIE_NODE_BITS)) return false;
  while (slots < 2 * (bytes + 1)) slots *= 2;
  trie->edges = calloc(slots, sizeof *trie->edges);
  trie->accept = calloc(bytes + 1, sizeof *trie->accept);
  if (trie->edges == NULL || trie->accept == NULL) return false;
  trie->edge_mask = (uint32_t)(slots - 1);
  trie->num_nodes = 1;
  for (uint32_t id = 0; id < vocab->num_ids; id++) {
    size_t length;
    const uint8_t *text = vocab_string(vocab, id, &length);
    if (text != NULL && length > 0) add_string(trie, text, length, id);
  }
  return true;
}

void trie_free(trie_t *trie) {
  free(trie->edges);
  free(trie->accept);
}
