/* block_check.c: walks the free queue and all blocks of a pool and compares what they say. */
#include "tests/engine/schedule/block_check.h"

#include "engine/base/check.h"

/* Every child of a block names it as its parent. */
static void check_children(const block_pool_t *pool, int32_t block) {
  const block_t *entry = &pool->blocks[block];
  for (int32_t c = entry->first_child, previous = 0; c; c = pool->blocks[c].child_next) {
    const block_t *child = &pool->blocks[c];
    CHECK(child->identity.unique_id);
    CHECK_EQ(child->identity.parent, entry->identity.unique_id);
    CHECK_EQ(child->identity.place.parent, block);
    CHECK_EQ(child->child_prev, previous);
    previous = c;
  }
}

/* Blocks pass from one owner to another behind one of their children: another child may come later.
 */
static bool can_pass(const block_pool_t *pool) {
  int32_t num_owners = 0;
  for (int32_t owner = 1; owner < BLOCK_OWNERS_MAX; owner++)
    num_owners += pool->free.of[owner].weight > 0 || pool->free.of[owner].count > 0;
  return num_owners > 1;
}

/* Returns how many blocks the queue has; adds to *num_cached. */
static int32_t check_queue(const block_pool_t *pool, int32_t owner, bool in_order,
                           int32_t *num_cached) {
  const free_queue_t *queue = &pool->free.of[owner];
  int32_t count = 0, previous = 0;
  for (int32_t right = queue->head; right; right = pool->blocks[right].next) {
    const block_t *block = &pool->blocks[right];
    CHECK_RANGE(right, 1, pool->num_blocks);
    CHECK(!block_is_held(block));
    CHECK_EQ(block->prev, previous);
    CHECK_EQ(block->queue, owner);
    CHECK_LT(++count, pool->num_blocks);
    CHECK(block->filler == NULL);
    if (block->identity.unique_id) ++*num_cached;
    /* leaves first: the parent of a cached block stands behind it in the queue, or is held */
    int32_t parent = block->identity.unique_id ? block->identity.place.parent : 0;
    for (int32_t p = pool->blocks[right].prev; in_order && p; p = pool->blocks[p].prev)
      CHECK_NE(p, parent);
    previous = right;
  }
  CHECK_EQ(previous, queue->tail);
  CHECK_EQ(count, queue->count);
  return count;
}

void block_pool_check(const block_pool_t *pool) {
  int32_t num_free = 0, num_cached = 0, num_owned = 0;
  bool in_order = !can_pass(pool);
  for (int32_t owner = 0; owner < BLOCK_OWNERS_MAX; owner++)
    num_free += check_queue(pool, owner, in_order, &num_cached);
  CHECK_EQ(num_free, pool->num_free);
  CHECK_EQ(num_cached, pool->num_cached);
  for (int32_t right = 1; right < pool->num_blocks; right++) {
    const block_t *block = &pool->blocks[right];
    CHECK_GE(block->ref_count, 0);
    CHECK_GE(block->pins, 0);
    CHECK_EQ(block->mark, 0);
    CHECK(block->filler == NULL || (block->ref_count > 0 && block->identity.keyed));
    CHECK(!block->first_child || block->identity.keyed);
    CHECK_LE(block->identity.num_valid, pool->block_size);
    check_children(pool, right);
    num_owned += block_is_held(block);
  }
  CHECK_EQ(num_owned + num_free, pool->num_blocks - 1);
  CHECK(!block_is_held(&pool->blocks[0]));
  CHECK(!pool->blocks[0].identity.unique_id);
}
