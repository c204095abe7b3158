/* bpe_internal.h: the pair table's look-up, shared by bpe_table.c (fills it) and bpe.c (asks it).
 *
 * Pure functions over a read-only table, any thread.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_BPE_INTERNAL_H
#define INFERD_ENGINE_TEXT_MODEL_BPE_INTERNAL_H

#include "engine/text/model/bpe.h"

static inline uint32_t bpe_pair_hash(uint32_t left, uint32_t right) {
  uint64_t x = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ULL;
  return (uint32_t)(x >> 32 ^ x >> 15);
}

/* Returns the rank of a pair, or BPE_NO_RANK. The table always has an empty slot, which ends the
 * search. */
static inline uint32_t bpe_pair_rank(const bpe_t *bpe, uint32_t left, uint32_t right) {
  uint32_t slot = bpe_pair_hash(left, right) & bpe->pair_mask;
  for (;; slot = (slot + 1) & bpe->pair_mask) {
    const bpe_pair_t *pair = &bpe->pairs[slot];
    if (pair->left == left && pair->right == right) return pair->rank;
    if (pair->left == NO_ID) return BPE_NO_RANK;
  }
}

#endif
