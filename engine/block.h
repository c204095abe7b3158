/* block.h: the pool of KV blocks: who holds them, in which order they are given out again, and
 * which of them are findable by content (the prefix cache).
 *
 * Engine thread only; everything is allocated by block_pool_new. Block 0 is the null block: it pads
 * block tables and is never handed out. A block is one of: empty (free, nothing in it), cached
 * (free, findable), owned (ref_count >= 1), owned and published.
 *
 * Free order: allocation takes the head of the free queue. A released block goes to the tail when
 * its content can be found again, to the head when not; a sequence releases its last block first.
 * So the queue is in least-recently-used order and a cached child always stands before its cached
 * parent: leaves are evicted first, in O(1).
 */
#ifndef INFERD_ENGINE_BLOCK_H
#define INFERD_ENGINE_BLOCK_H

#include "engine/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct block_key {
  uint64_t word[2]; /* 128-bit keyed hash of the whole prefix up to and with this block */
} block_key_t;

typedef struct block {
  int32_t ref_count;  /* block-table entries that name it */
  int32_t prev, next; /* free queue; 0 ends it */
  int32_t chain;      /* next block of the same hash bucket; 0 ends it */
  bool published;     /* findable by key */
  block_key_t key;
  uint64_t unique_id; /* changes each time the block gets a new identity; never reused */
  uint64_t parent;    /* unique_id of the block before it in its sequence; 0 = first block */
} block_t;

typedef struct block_pool {
  int32_t num_blocks, block_size;
  int32_t num_free; /* empty + cached */
  int32_t num_cached;
  bool caching;
  block_t *blocks;    /* [num_blocks] */
  int32_t *token_ids; /* [num_blocks, block_size] of published blocks */
  int32_t free_head, free_tail;
  int32_t *buckets; /* hash map: key -> first block */
  uint32_t bucket_mask;
  uint64_t secret[2]; /* process key of the hash */
  uint64_t next_unique_id;
} block_pool_t;

/* `secret` keys the hash; draw it at random per process. 0 or ERR_NO_MEMORY. */
int block_pool_new(int32_t num_blocks, int32_t block_size, bool caching, const uint64_t secret[2],
                   block_pool_t **out, error_t *error);
void block_pool_free(block_pool_t *pool);

/* Takes the least recently used free block, ref_count 1; evicts its identity. -1 = none left. */
int32_t block_allocate(block_pool_t *pool);
/* One more holder. A free cached block is taken out of the free queue. */
void block_acquire(block_pool_t *pool, int32_t block);
/* One holder less; at 0 the block returns to the free queue. */
void block_release(block_pool_t *pool, int32_t block);

/* prefix.c: content identity.
 * key of a full block = H(secret, parent key, token ids, extra); parent key 0 for the first block,
 * `extra` is the cache domain in the first block and 0 behind it. */
block_key_t prefix_key(const block_pool_t *pool, const block_key_t *parent,
                       const int32_t *token_ids, uint64_t extra);
/* Finds a published block whose key, token ids and parent block all agree, so that a collision of
 * hashes can never return foreign content. `parent` is the unique_id of the block just matched. -1
 * = none. */
int32_t prefix_find(const block_pool_t *pool, const block_key_t *key, uint64_t parent,
                    const int32_t *token_ids);
/* Makes an owned, completely written block findable. */
void prefix_publish(block_pool_t *pool, int32_t block, const block_key_t *key, uint64_t parent,
                    const int32_t *token_ids);
/* Drops the identity of one block (eviction). */
void prefix_withdraw(block_pool_t *pool, int32_t block);

/* Aborts unless every invariant of the pool holds (tests, simulator): counts add up, queue and
 * flags agree, block 0 is untouched, children stand before parents. O(num_blocks^2) at worst. */
void block_pool_check(const block_pool_t *pool);

#endif
