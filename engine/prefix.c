/* prefix.c: the prefix cache: full blocks found by the content of their whole prefix.
 *
 * Engine thread only. The key is SipHash-2-4 with 128-bit output (Aumasson, Bernstein: "SipHash: a
 * fast short-input PRF", 2012) under a random key of the process, so that no client can aim at
 * collisions; stored token ids and the parent block are compared as well, so that a collision could
 * not return foreign content either.
 */
#include "engine/block.h"

#include <string.h>

typedef struct siphash {
  uint64_t v0, v1, v2, v3;
} siphash_t;

static inline uint64_t rotate_left(uint64_t x, int n) {
  return x << n | x >> (64 - n);
}

static inline void siphash_round(siphash_t *s) {
  s->v0 += s->v1;
  s->v1 = rotate_left(s->v1, 13) ^ s->v0;
  s->v0 = rotate_left(s->v0, 32);
  s->v2 += s->v3;
  s->v3 = rotate_left(s->v3, 16) ^ s->v2;
  s->v0 += s->v3;
  s->v3 = rotate_left(s->v3, 21) ^ s->v0;
  s->v2 += s->v1;
  s->v1 = rotate_left(s->v1, 17) ^ s->v2;
  s->v2 = rotate_left(s->v2, 32);
}

static inline void siphash_word(siphash_t *s, uint64_t word) {
  s->v3 ^= word;
  siphash_round(s);
  siphash_round(s);
  s->v0 ^= word;
}

static uint64_t siphash_end(siphash_t *s) {
  for (int i = 0; i < 4; i++) siphash_round(s);
  return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

block_key_t prefix_key(const block_pool_t *pool, const block_key_t *parent,
                       const int32_t *token_ids, uint64_t extra) {
  siphash_t s = {
      .v0 = pool->secret[0] ^ 0x736f6d6570736575u,
      .v1 = pool->secret[1] ^ 0x646f72616e646f6du ^ 0xee,
      .v2 = pool->secret[0] ^ 0x6c7967656e657261u,
      .v3 = pool->secret[1] ^ 0x7465646279746573u,
  };
  siphash_word(&s, parent ? parent->word[0] : 0);
  siphash_word(&s, parent ? parent->word[1] : 0);
  siphash_word(&s, extra);
  int32_t i = 0;
  for (; i + 1 < pool->block_size; i += 2) {
    siphash_word(&s, (uint64_t)(uint32_t)token_ids[i] | (uint64_t)(uint32_t)token_ids[i + 1] << 32);
  }
  if (i < pool->block_size) siphash_word(&s, (uint32_t)token_ids[i]);
  siphash_word(&s, (uint64_t)pool->block_size << 56);
  block_key_t key;
  s.v2 ^= 0xee;
  key.word[0] = siphash_end(&s);
  s.v1 ^= 0xdd;
  key.word[1] = siphash_end(&s);
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
