/* block.h: the pool of KV blocks: who holds them, in which order they are given out again, and
 * which of them are findable by content (the prefix cache).
 *
 * Engine thread only; everything is allocated by block_pool_new. Block 0 is the null block: it pads
 * block tables and is never handed out. A block is one of: empty (free, nothing in it), cached
 * (free, findable), owned (ref_count or pins >= 1), owned and findable. Findable by key means: the
 * ids of all its rows are known, though perhaps not yet computed (num_valid says how many are);
 * findable by parent: its first num_valid rows may be copied.
 *
 * Free order: allocation takes the head of the free queue. A released block goes to the tail when
 * its content can be found again, to the head when not; a sequence releases its last block first.
 * So the queue is in least-recently-used order and a cached child always stands before its cached
 * parent: leaves are evicted first, in O(1).
 */
#ifndef INFERD_ENGINE_SCHEDULE_BLOCK_H
#define INFERD_ENGINE_SCHEDULE_BLOCK_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sequence;

typedef struct block_key {
  uint64_t word[2]; /* 128-bit keyed hash of the whole prefix up to and with this block */
} block_key_t;

/* Where a block stands: behind which block, or first in a cache domain. */
typedef struct prefix_place {
  int32_t parent;  /* block before it; 0 = first block of a sequence */
  uint64_t domain; /* of a first block; 0 behind it */
} prefix_place_t;

typedef struct block_identity {
  uint64_t unique_id;   /* 0 = none; new for each identity, never reused */
  uint64_t parent;      /* unique_id of the block before it; 0 = first block */
  prefix_place_t place; /* the same place by number */
  bool keyed;           /* findable by key: in the hash map */
  int32_t num_valid;    /* leading rows whose K/V is committed */
  block_key_t key;      /* only when keyed */
} block_identity_t;

typedef struct block {
  int32_t ref_count;                           /* block-table entries that name it */
  int32_t pins;                                /* copies that read it in a step not yet committed */
  int32_t prev, next;                          /* free queue; 0 ends it */
  int32_t chain;                               /* next block of the same hash bucket; 0 ends it */
  int32_t first_child, child_prev, child_next; /* findable blocks behind it, newest first */
  int32_t mark;                                /* scratch of the scheduler, 0 between uses */
  struct sequence *filler;                     /* keyed and not full: who writes it */
  block_identity_t identity;
  block_identity_t saved; /* of a block taken from the cache and not yet written */
} block_t;

typedef struct block_pool {
  int32_t num_blocks, block_size;
  int32_t num_free; /* empty + cached */
  int32_t num_cached;
  bool caching;       /* false: a released block is forgotten */
  block_t *blocks;    /* [num_blocks] */
  int32_t *token_ids; /* [num_blocks, block_size] of findable blocks */
  int32_t *saved_ids; /* the same, of saved identities */
  int32_t free_head, free_tail;
  int32_t *buckets; /* hash map: key -> first block */
  uint32_t bucket_mask;
  int32_t *roots;     /* first blocks by domain: [bucket_mask + 1] heads of child lists */
  uint64_t secret[2]; /* process key of the hash */
  uint64_t next_unique_id;
  uint64_t num_reverted; /* identities given back to blocks that were never written */
} block_pool_t;

/* `secret` keys the hash; draw it at random per process. 0 or ERR_NO_MEMORY. */
int block_pool_new(int32_t num_blocks, int32_t block_size, bool caching, const uint64_t secret[2],
                   block_pool_t **out, error_t *error);
void block_pool_free(block_pool_t *pool);

/* Takes the least recently used free block, ref_count 1. Its identity is evicted, and saved until
 * block_written. -1 = none left. */
int32_t block_allocate(block_pool_t *pool);
/* Somebody's, or read by a copy: not in the free queue. */
static inline bool block_is_held(const block_t *block) {
  return block->ref_count > 0 || block->pins > 0;
}
/* One more holder. A free cached block is taken out of the free queue. */
void block_acquire(block_pool_t *pool, int32_t block);
/* One holder less; at 0 the block returns to the free queue. One that was never written gets the
 * identity back that it was taken from, if nobody has that content and its parent is still there.
 */
void block_release(block_pool_t *pool, int32_t block);
/* Keeps a findable or held block as it is while a copy reads it. */
void block_pin(block_pool_t *pool, int32_t block);
void block_unpin(block_pool_t *pool, int32_t block);
/* The step being planned writes into the block. */
void block_written(block_pool_t *pool, int32_t block);

/* prefix.c: content identity.
 * key of a full block = H(secret, parent key, token ids, extra); parent key 0 for the first block,
 * `extra` is the cache domain in the first block and 0 behind it. */
block_key_t prefix_key(const block_pool_t *pool, prefix_place_t place, const int32_t *token_ids);
/* Finds a keyed block whose key, token ids and parent block all agree, so that a collision of
 * hashes can never return foreign content. -1 = none. */
int32_t prefix_find(const block_pool_t *pool, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids);
/* Makes an owned block whose ids are all known findable by key. num_valid stays: 0 for a block that
 * is still to be filled. */
void prefix_publish(block_pool_t *pool, int32_t block, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids);
/* Makes the first `rows` rows of an owned block findable by its parent. */
void prefix_note(block_pool_t *pool, int32_t block, prefix_place_t place, const int32_t *token_ids,
                 int32_t rows);
/* The block at this place that shares the most leading rows with token_ids, at most rows_max; looks
 * at the newest 64. rows 0 = none. */
typedef struct prefix_partial {
  int32_t block, rows;
} prefix_partial_t;
prefix_partial_t prefix_find_partial(const block_pool_t *pool, prefix_place_t place,
                                     const int32_t *token_ids, int32_t rows_max);
/* Drops the identity of one block; nothing findable may stand behind it. */
void prefix_withdraw(block_pool_t *pool, int32_t block);
/* A block that will not be filled: no longer findable by key; its valid rows stay findable. */
void prefix_abandon(block_pool_t *pool, int32_t block);

/* Aborts unless every invariant of the pool holds (tests, simulator): counts add up, queue and
 * flags agree, block 0 is untouched, children stand before parents. O(num_blocks^2) at worst. */
void block_pool_check(const block_pool_t *pool);

#endif
