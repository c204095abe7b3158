/* block.h: the pool of KV blocks: how many holders each block has, in which order free blocks are
 * allocated again, and which blocks are findable by content (the prefix cache).
 *
 * Engine thread only; block_pool_new allocates everything. Block 0 is the null block: it pads block
 * tables and is never allocated. A block is either empty (free, without content), or cached (free,
 * findable), or held (ref_count or pins >= 1) and findable or not. Findable by key means: the token
 * ids of all its rows are known; num_valid says how many rows are computed. Findable by parent
 * means: its first num_valid rows may be copied into another block.
 *
 * Order of eviction: block_allocate takes the head of a free queue: of nobody's blocks first, then
 * of the owner that has the most for its weight (free_queues.h). A released block goes to the tail
 * of its owner's queue if its content is findable, else to the head of nobody's. A block that was
 * never written and gets its saved identity back also goes to the head, because it was the oldest.
 * A sequence releases its last block first. So each queue is in least-recently-used order, and in
 * it a cached child stands before its cached parent: the oldest leaf is evicted first, in O(1).
 *
 * Owners: the one for whom a block was written, as long as it has a share. Another one may have
 * content behind the block. Where the block is at the head then, it passes to that one instead of
 * being evicted, and stands behind the content in its queue.
 *
 * Second chance, as in the CLOCK algorithm: a block that was cached and acquired is not evicted
 * when it reaches the head. It goes to the tail, its parents behind it, and all of them must be
 * used again before they are spared again. So what many share outlives what was read once.
 */
#ifndef INFERD_ENGINE_SCHEDULE_BLOCK_H
#define INFERD_ENGINE_SCHEDULE_BLOCK_H

#include "engine/base/error.h"
#include "engine/request.h"
#include "engine/schedule/free_queues.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NO_BLOCK = 0 };           /* the null block, where a number stands for "none" */
enum { BLOCK_MOVES_MAX = 1024 }; /* between two block_begin_plan: blocks that are spared */

typedef struct block_key {
  uint64_t word[2]; /* 128-bit keyed hash of the whole prefix, this block included */
} block_key_t;

/* The place of a block in the cache: the block before it, and its domain where that is another than
 * the domain of the block before it. */
typedef struct prefix_place {
  int32_t parent;  /* number of the block before it; 0 = first block of a sequence */
  int32_t adapter; /* slot of the low-rank adapter; part of `domain`, kept for events */
  uint64_t domain; /* cache domain (salt, adapter) of a first block, and of the first block that an
                    * adapter changes; in each block that pictures touch, these are part of it;
                    * else 0 for later blocks */
} prefix_place_t;

/* What a block holds, by which it can be found. */
typedef struct block_identity {
  uint64_t unique_id;   /* 0 = no identity; new for each identity, never reused */
  uint64_t parent;      /* unique_id of the block before it; 0 = first block */
  prefix_place_t place; /* the same place, by block number */
  bool keyed;           /* findable by key: in the hash map */
  bool was_hit;         /* it was cached and acquired, since it was spared last */
  int32_t owner;        /* whose it is; kept when a held block loses its identity */
  int32_t depth;        /* blocks of its prefix, itself included */
  int32_t num_valid;    /* leading rows whose K/V is committed, in [0, block_size] */
  block_key_t key;      /* valid only if keyed */
} block_identity_t;

typedef struct block {
  int32_t ref_count;                           /* block-table entries that name it */
  int32_t pins;                                /* copies that read it in a step not yet committed */
  int32_t prev, next, queue;                   /* free queue; 0 ends it; whose queue it is */
  int32_t chain;                               /* next block of the same hash bucket; 0 ends it */
  int32_t first_child, child_prev, child_next; /* findable blocks behind it, newest first; 0 ends */
  int32_t mark, side_of;   /* scratch of table.c and swap.c, 0 between uses; see side_blocks.h */
  struct sequence *filler; /* keyed and not full: the sequence that writes it */
  block_identity_t identity;
  block_identity_t saved; /* the evicted identity, until the block is written; unique_id 0 = none */
} block_t;

typedef struct block_pool {
  int32_t num_blocks, num_free;    /* num_free: empty and cached blocks */
  int32_t block_size, block_shift; /* tokens of a block: 2^block_shift */
  int32_t num_cached;
  bool caching;              /* false: a released block loses its identity */
  block_t *blocks;           /* [num_blocks] */
  int32_t *sides, num_sides; /* [num_blocks, num_sides]: side_blocks.h; 0 = none */
  int32_t *token_ids;        /* [num_blocks, block_size] token ids of findable blocks */
  int32_t *saved_ids;        /* [num_blocks, block_size] token ids of saved identities */
  int32_t *buckets; /* [bucket_mask + 1] hash map: key -> first block of the chain, 0 = none */
  uint32_t bucket_mask;
  int32_t *roots; /* [bucket_mask + 1] heads of the lists of first blocks, by domain */
  uint64_t secret[2], next_unique_id; /* key of the hash, one per process */
  struct kv_events *events;    /* hears of full blocks; of the owner of the pool; NULL = none */
  struct snapshots *snapshots; /* of states behind blocks, of the scheduler; NULL = none */
  struct floor *floor;         /* where full blocks go when they are free; NULL = nowhere */
  int32_t moves_left;          /* steps that may still be taken to spare blocks */
  free_queues_t free;
  uint64_t num_reverted, num_spared; /* since start: identities given back; second chances */
} block_pool_t;

/* Makes a pool of num_blocks >= 2 blocks, the null block included. `secret` keys the hash: random,
 * one per process. Returns 0 and *out, to be freed with block_pool_free, or ERR_NO_MEMORY. */
int block_pool_new(int32_t num_blocks, int32_t block_size, bool caching, const uint64_t secret[2],
                   block_pool_t **out, inferd_error_t *error);
void block_pool_free(block_pool_t *pool); /* NULL is allowed */

static inline void block_begin_plan(block_pool_t *pool) {
  pool->moves_left = BLOCK_MOVES_MAX;
}
/* Takes the first free block that is not spared, and sets its ref_count to 1. Evicts its identity,
 * which stays saved until block_written. Nobody owns it. Returns it, or -1 if none is free. */
int32_t block_allocate(block_pool_t *pool);
/* The owner uses a held block: it is the owner's, unless it is that of another one with a share. */
void block_use(block_pool_t *pool, int32_t block, int32_t owner);
/* True if a block table names the block or a copy reads it: then it is not in the free queue. */
static inline bool block_is_held(const block_t *block) {
  return block->ref_count > 0 || block->pins > 0;
}
/* Adds a holder. The block must be held or cached; a cached block leaves the free queue. */
void block_acquire(block_pool_t *pool, int32_t block);
/* Removes a holder. A block without holders and pins returns to the free queue. If it was never
 * written it gets its saved identity back, unless another block has the same content by now or its
 * parent has lost its identity. */
void block_release(block_pool_t *pool, int32_t block);
/* Pins a findable or held block: its content stays as it is while a copy reads it. block_unpin
 * undoes one block_pin. */
void block_pin(block_pool_t *pool, int32_t block);
void block_unpin(block_pool_t *pool, int32_t block);
/* Says that the step being planned writes into the block: its saved identity is lost. */
void block_written(block_pool_t *pool, int32_t block);

/* Functions of prefix.c. The key of a full block is SipHash-2-4-128(secret, parent key, domain,
 * token ids); the parent key is 0 for a first block, the domain is that of the place. token_ids
 * always points at block_size ids, unless a number of rows is given. */
block_key_t prefix_key(const block_pool_t *pool, prefix_place_t place, const int32_t *token_ids);
/* Whether the adapter of a request changes the block, and the domain of its place. */
bool prefix_is_adapted(const request_t *request, int32_t index, int32_t block_size);
uint64_t prefix_domain(const block_pool_t *pool, const request_t *request, int32_t index);
/* Writes the keys of the first num_blocks blocks of a prompt, or of a request's. Any thread. */
void prefix_request_keys(const block_pool_t *pool, const request_t *request, int32_t num_blocks,
                         block_key_t *out);
void prefix_keys(const block_pool_t *pool, uint64_t domain, const int32_t *token_ids,
                 int32_t num_blocks, block_key_t *out);
/* Returns the keyed block whose key, place and token ids all agree, or -1. A collision of hashes
 * can therefore never return other content. */
int32_t prefix_find(const block_pool_t *pool, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids);
/* Returns the keyed block that has this key, or -1. Who counts by it compares no ids. */
int32_t prefix_find_key(const block_pool_t *pool, const block_key_t *key);
/* Makes a held block, all of whose ids are known, findable by key. Leaves num_valid, which is below
 * block_size, as it is: 0 for a block that is still to be filled. */
void prefix_publish(block_pool_t *pool, int32_t block, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids);
/* Makes the first `rows` rows of a held block findable by its parent. */
void prefix_note(block_pool_t *pool, int32_t block, prefix_place_t place, const int32_t *token_ids,
                 int32_t rows);
/* Returns the block at this place that shares the most leading rows with token_ids, and how many
 * it shares, at most rows_max; rows 0 = none. Looks at the newest 64 blocks of the place only. */
typedef struct prefix_partial {
  int32_t block, rows;
} prefix_partial_t;
prefix_partial_t prefix_find_partial(const block_pool_t *pool, prefix_place_t place,
                                     const int32_t *token_ids, int32_t rows_max);
void prefix_validate(block_pool_t *pool, int32_t block, int32_t rows); /* these are computed */
/* Removes the identity of one block. No findable block may stand behind it. */
void prefix_withdraw(block_pool_t *pool, int32_t block);
/* For a keyed block that will never be filled: it is no longer findable by key, but its valid rows
 * stay findable by parent. No findable block may stand behind it. */
void prefix_abandon(block_pool_t *pool, int32_t block);

#endif
