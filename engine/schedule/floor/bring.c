/* bring.c: blocks enter the prefix cache from the floor; the contract is in floor.h.
 *
 * Engine thread only; allocates nothing. Called at admission, before the match (table.h): what is
 * brought is a cached block like any other then, so nothing else knows of the floor. The request
 * takes at least as many free blocks as are brought, so they evict nothing that it would not.
 */
#include "engine/schedule/floor/floor.h"

#include "engine/schedule/table.h"

/* Keeps what the pool has behind `end` from being evicted. */
static void hold_chain(block_pool_t *pool, int32_t last, int32_t end) {
  for (int32_t b = last; b != end; b = pool->blocks[b].identity.place.parent)
    block_acquire(pool, b);
}

/* The child goes before its parent, as the order of eviction wants it. */
static void release_chain(block_pool_t *pool, int32_t last, int32_t end) {
  for (int32_t b = last, parent; b != end; b = parent) {
    parent = pool->blocks[b].identity.place.parent;
    block_release(pool, b);
  }
}

/* Returns the last block that the pool has, computed, behind `*index` blocks; -1 if another
 * sequence fills the next one. */
static int32_t walk(scheduler_t *scheduler, const sequence_t *seq, int32_t block, int32_t *index,
                    int32_t most) {
  const block_pool_t *pool = scheduler->pool;
  for (int32_t next; *index < most; ++*index, block = next) {
    next = table_find(scheduler, seq, *index, block);
    if (next == NO_BLOCK) break;
    if (pool->blocks[next].identity.num_valid < pool->block_size) return -1;
  }
  return block;
}

/* The place of the floor that has the block behind `parent`; 0 = none. */
static int32_t find_place(scheduler_t *scheduler, const sequence_t *seq, int32_t index,
                          int32_t parent, block_wanted_t *wanted) {
  const block_pool_t *pool = scheduler->pool;
  block_key_t before = {{0, 0}};
  if (!table_wanted(scheduler, seq, index, parent, wanted)) return 0;
  if (parent != NO_BLOCK) before = pool->blocks[parent].identity.key;
  scheduler->num_walked++;
  return floor_find(pool->floor, &wanted->key, &before, wanted->place.domain, wanted->token_ids);
}

/* Returns the block, which is held. */
static int32_t enter(block_pool_t *pool, int32_t place, const block_wanted_t *wanted) {
  floor_pin(pool->floor, place);
  int32_t block = block_allocate(pool); /* another block may leave for it */
  block_written(pool, block);
  prefix_publish(pool, block, &wanted->key, wanted->place, wanted->token_ids);
  prefix_validate(pool, block, pool->block_size); /* the copy runs before the next forward */
  floor_enter(pool->floor, place, block);
  return block;
}

void floor_bring(scheduler_t *scheduler, sequence_t *seq, int32_t first, int32_t most) {
  block_pool_t *pool = scheduler->pool;
  int32_t index = first, begin = first > 0 ? seq->blocks[first - 1] : NO_BLOCK, place;
  block_wanted_t wanted;
  if (pool->floor == NULL) return;
  /* No block is whole before the one that it follows. */
  if (first > 0 && pool->blocks[begin].identity.num_valid < pool->block_size) return;
  int32_t known = walk(scheduler, seq, begin, &index, most), last = known;
  if (known < 0 || index == most || find_place(scheduler, seq, index, last, &wanted) == 0) return;
  hold_chain(pool, known, begin);
  for (; index < most && pool->num_free > 0; index++) {
    place = find_place(scheduler, seq, index, last, &wanted);
    if (place == 0) break;
    last = enter(pool, place, &wanted);
    block_use(pool, last, scheduler_owner(scheduler, seq));
    if (!seq->recomputes) seq->num_floor_tokens += pool->block_size;
  }
  release_chain(pool, last, begin);
}
