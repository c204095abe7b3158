/* trie.h: the strings of a vocabulary by their bytes, for finding all that begin at a place.
 *
 * Built once at load, read-only afterwards; any thread. One step costs one look-up in a hash table.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_TRIE_H
#define INFERD_ENGINE_TEXT_MODEL_TRIE_H

#include "engine/base/hash.h"
#include "engine/text/model/vocab.h"

enum { TRIE_NODE_BITS = 28 };

typedef struct trie {
  uint64_t *edges; /* node << 36 | byte << 28 | child, 0 = free; [edge_mask + 1] */
  uint32_t edge_mask;
  uint32_t *accept; /* [num_nodes] id + 1 of the string that ends here, 0 = none */
  uint32_t num_nodes;
} trie_t;

/* Holds every string of the vocabulary but the empty one. False: no memory. */
bool trie_build(trie_t *trie, const vocab_t *vocab);
void trie_free(trie_t *trie);

static inline uint32_t trie_slot(const trie_t *trie, uint32_t node, uint8_t byte) {
  uint64_t key = (uint64_t)node << 8 | byte;
  uint32_t i = (uint32_t)hash_mix(key * 0xD6E8FEB86659FD93u) & trie->edge_mask;
  while (trie->edges[i] != 0 && trie->edges[i] >> TRIE_NODE_BITS != key)
    i = (i + 1) & trie->edge_mask;
  return i;
}

/* The node behind `byte`; 0, which is the root, if no string goes on with it. */
static inline uint32_t trie_step(const trie_t *trie, uint32_t node, uint8_t byte) {
  return (uint32_t)(trie->edges[trie_slot(trie, node, byte)] & ((1u << TRIE_NODE_BITS) - 1));
}

/* The id of the string that ends at a node; NO_ID = none. */
static inline uint32_t trie_id(const trie_t *trie, uint32_t node) {
  return trie->accept[node] - 1;
}

#endif
