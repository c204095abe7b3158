/* prefix.c: the prefix cache: full blocks found by the content of their whole prefix.
 *
 * Engine thread only. The key is SipHash-2-4 with 128 bits under a random key of the process, so
 * that no client can aim at collisions; stored token ids and the parent block are compared as well,
 * so that a collision could not return foreign content either.
 */
#include "engine/block.h"

#include "engine/siphash.h"

#include <string.h>

block_key_t prefix_key(const block_pool_t *pool, const block_key_t *parent,
                       const int32_t *token_ids, uint64_t extra) {
  siphash_t s = siphash_begin_128(pool->secret);
  siphash_word(&s, parent ? parent->word[0] : 0, 2);
  siphash_word(&s, parent ? parent->word[1] : 0, 2);
  siphash_word(&s, extra, 2);
  siphash_bytes(&s, (const char *)token_ids, (size_t)pool->block_size * sizeof *token_ids, 2);
  block_key_t key;
  siphash_end_128(&s, key.word);
  return key;
}

static uint32_t bucket_of(const block_pool_t *pool, const block_key_t *key) {
  return (uint32_t)key->word[0] & pool->bucket_mask;
}

int32_t prefix_find(const block_pool_t *pool, const block_key_t *key, uint64_t parent,
                    const int32_t *token_ids) {
  if (!pool->caching) return -1;
  size_t bytes = (size_t)pool->block_size * sizeof *token_ids;
  for (int32_t b = pool->buckets[bucket_of(pool, key)]; b; b = pool->blocks[b].chain) {
    const block_t *block = &pool->blocks[b];
    if (block->key.word[0] != key->word[0] || block->key.word[1] != key->word[1]) continue;
    if (block->parent != parent) continue;
    if (memcmp(&pool->token_ids[(size_t)b * (size_t)pool->block_size], token_ids, bytes) == 0) {
      return b;
    }
  }
  return -1;
}

void prefix_publish(block_pool_t *pool, int32_t block, const block_key_t *key, uint64_t parent,
                    const int32_t *token_ids) {
  block_t *b = &pool->blocks[block];
  CHECK(b->ref_count > 0 && !b->published && pool->caching);
  b->published = true;
  b->key = *key;
  b->parent = parent;
  b->unique_id = pool->next_unique_id++;
  memcpy(&pool->token_ids[(size_t)block * (size_t)pool->block_size], token_ids,
         (size_t)pool->block_size * sizeof *token_ids);
  uint32_t bucket = bucket_of(pool, key);
  b->chain = pool->buckets[bucket];
  pool->buckets[bucket] = block;
}

void prefix_withdraw(block_pool_t *pool, int32_t block) {
  block_t *b = &pool->blocks[block];
  CHECK(b->published);
  int32_t *link = &pool->buckets[bucket_of(pool, &b->key)];
  while (*link != block) link = &pool->blocks[*link].chain;
  *link = b->chain;
  b->chain = 0;
  b->published = false;
  b->unique_id = 0;
  b->parent = 0;
}
