/* free_queues.h: the free blocks of a pool, by whose they are, in the order of eviction.
 *
 * A queue for each owner, and one for blocks that are empty or nobody's, which go first. Else the
 * owner goes first that has the most free blocks for its weight: so whoever fills the cache evicts
 * what it had itself, and a lone owner may fill all of it. An owner without weight has no share:
 * it goes before all that have one. Weighted max-min fairness (Bertsekas and Gallager, "Data
 * Networks", 1992, 6.5.2). Each change costs O(log owners). Engine thread only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_FREE_QUEUES_H
#define INFERD_ENGINE_SCHEDULE_FREE_QUEUES_H

#include <stdint.h>

enum { BLOCK_OWNERS_MAX = 4098, BLOCK_OF_NOBODY = 0 };

typedef struct free_queue {
  int32_t head, tail, count; /* blocks; 0 ends it */
  uint32_t weight;
  int32_t place; /* 1 + its index in the heap; 0 = it is empty */
} free_queue_t;

typedef struct free_queues {
  free_queue_t of[BLOCK_OWNERS_MAX];
  int32_t heap[BLOCK_OWNERS_MAX], num_used; /* owners with free blocks, but for nobody */
} free_queues_t;

struct block_pool;

/* At the tail of the owner's queue; at its head; or right behind a free block, in the queue of
 * that. The block is in no queue. */
void free_queue_append(struct block_pool *pool, int32_t block, int32_t owner);
void free_queue_push(struct block_pool *pool, int32_t block, int32_t owner);
void free_queue_insert_behind(struct block_pool *pool, int32_t block, int32_t before);
void free_queue_remove(struct block_pool *pool, int32_t block);
/* The block that goes first; 0 = none is free. */
int32_t free_queues_head(const struct block_pool *pool);
void free_queues_set_weight(struct block_pool *pool, int32_t owner, uint32_t weight);

#endif
