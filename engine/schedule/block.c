/* block.c: reference counts and the free queue of KV blocks.
 *
 * Engine thread only. Never touches KV memory and never allocates after block_pool_new.
 */
#include "engine/schedule/block.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/pages.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/window/side_blocks.h"

#include <stdlib.h>
#include <string.h>

/* A table of the pool is small beside the keys and values of its blocks. */
static void make_real(void *table, size_t bytes) {
  pages_want_huge(table, bytes);
  pages_touch(table, bytes);
}

int block_pool_new(int32_t num_blocks, int32_t block_size, bool caching, const uint64_t secret[2],
                   block_pool_t **out, inferd_error_t *error) {
  CHECK_GE(num_blocks, 2);
  CHECK(block_size >= 1 && (block_size & (block_size - 1)) == 0);
  uint32_t num_buckets = 1;
  while (num_buckets < (uint32_t)num_blocks) num_buckets *= 2;
  block_pool_t *pool = calloc(1, sizeof *pool);
  if (pool != NULL) {
    size_t row_bytes = (size_t)block_size * sizeof *pool->token_ids;
    pool->blocks = calloc((size_t)num_blocks, sizeof *pool->blocks);
    pool->token_ids = calloc((size_t)num_blocks, row_bytes);
    pool->saved_ids = calloc((size_t)num_blocks, row_bytes);
    pool->buckets = calloc(num_buckets, sizeof *pool->buckets);
    pool->roots = calloc(num_buckets, sizeof *pool->roots);
    make_real(pool->blocks, (size_t)num_blocks * sizeof *pool->blocks);
    make_real(pool->token_ids, (size_t)num_blocks * row_bytes);
    make_real(pool->saved_ids, (size_t)num_blocks * row_bytes);
    make_real(pool->buckets, num_buckets * sizeof *pool->buckets);
    make_real(pool->roots, num_buckets * sizeof *pool->roots);
  }
  if (pool == NULL || pool->blocks == NULL || pool->token_ids == NULL || pool->saved_ids == NULL ||
      pool->buckets == NULL || pool->roots == NULL) {
    block_pool_free(pool);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the records of %d KV blocks",
                     num_blocks);
  }
  pool->num_blocks = num_blocks;
  pool->block_size = block_size;
  pool->block_shift = __builtin_ctz((unsigned)block_size);
  pool->caching = caching;
  pool->bucket_mask = num_buckets - 1;
  pool->secret[0] = secret[0];
  pool->secret[1] = secret[1];
  pool->next_unique_id = 1;
  block_begin_plan(pool);
  for (int32_t b = 1; b < num_blocks; b++) free_queue_append(pool, b, BLOCK_OF_NOBODY);
  *out = pool;
  return 0;
}

int block_pool_add_sides(block_pool_t *pool, int32_t num_sides, inferd_error_t *error) {
  if (num_sides == 0) return 0;
  pool->sides = calloc((size_t)pool->num_blocks, (size_t)num_sides * sizeof *pool->sides);
  if (pool->sides == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the records of %d KV blocks",
                     pool->num_blocks);
  pool->num_sides = num_sides;
  return 0;
}

void block_pool_free(block_pool_t *pool) {
  if (pool == NULL) return;
  free(pool->sides);
  free(pool->blocks);
  free(pool->token_ids);
  free(pool->saved_ids);
  free(pool->buckets);
  free(pool->roots);
  free(pool);
}

static int32_t *ids_of(int32_t *ids, const block_pool_t *pool, int32_t block) {
  return &ids[(size_t)block * (size_t)pool->block_size];
}

static void copy_ids(int32_t *to, const int32_t *from, const block_pool_t *pool, int32_t block) {
  size_t at = (size_t)block * (size_t)pool->block_size;
  memcpy(&to[at], &from[at], (size_t)pool->block_size * sizeof *to);
}

/* ---- side blocks ---- */

static int32_t *sides_of(const block_pool_t *pool, int32_t block) {
  return &pool->sides[(size_t)block * (size_t)pool->num_sides];
}

bool block_has_sides(const block_pool_t *pool, int32_t block) {
  for (int32_t s = 0; s < pool->num_sides; s++) {
    if (sides_of(pool, block)[s] == 0) return false;
  }
  return true;
}

/* Takes one side block from the block that it is attached to. */
static void forget_side(block_pool_t *pool, int32_t side) {
  block_t *entry = &pool->blocks[side];
  int32_t *sides = sides_of(pool, entry->side_of), s = 0;
  while (sides[s] != side) s++;
  sides[s] = entry->side_of = 0;
  entry->identity.was_hit = false;
}

/* The same; a free one is empty then, so it is allocated before those that are cached. */
static void detach(block_pool_t *pool, int32_t side) {
  forget_side(pool, side);
  if (block_is_held(&pool->blocks[side])) return;
  free_queue_remove(pool, side);
  free_queue_push(pool, side, BLOCK_OF_NOBODY);
  pool->num_cached--;
}

void block_detach(block_pool_t *pool, int32_t block) {
  for (int32_t s = 0; s < pool->num_sides; s++) {
    if (sides_of(pool, block)[s] != 0) detach(pool, sides_of(pool, block)[s]);
  }
}

void block_attach(block_pool_t *pool, int32_t block, int32_t index, int32_t side) {
  int32_t *place = &sides_of(pool, block)[index];
  if (*place == side) return;
  CHECK_NE(pool->blocks[block].identity.unique_id, 0);
  CHECK(block_is_held(&pool->blocks[side]));
  if (*place != 0) detach(pool, *place);
  if (pool->blocks[side].side_of != 0) detach(pool, side);
  *place = side;
  pool->blocks[side].side_of = block;
}

/* The block loses its identity. One that was offered to the floor leaves now. */
static void withdraw(block_pool_t *pool, int32_t block) {
  if (pool->floor != NULL) floor_evict(pool, block);
  prefix_withdraw(pool, block);
}

/* A free block is empty then, so it is allocated before those that are cached. */
static void forget_leaf(block_pool_t *pool, int32_t block) {
  withdraw(pool, block);
  if (block_is_held(&pool->blocks[block])) return; /* pinned: a copy needs the rows alone */
  free_queue_remove(pool, block);
  free_queue_push(pool, block, BLOCK_OF_NOBODY);
  pool->num_cached--;
}

void block_forget(block_pool_t *pool, int32_t block) {
  CHECK(!block_is_held(&pool->blocks[block]));
  for (int32_t leaf = block, parent; leaf != 0; leaf = parent) {
    while (pool->blocks[leaf].first_child) leaf = pool->blocks[leaf].first_child;
    parent = leaf != block ? pool->blocks[leaf].identity.place.parent : 0;
    CHECK_EQ(pool->blocks[leaf].ref_count, 0);
    forget_leaf(pool, leaf);
  }
}

/* ---- the free queue ---- */

/* Whether the block keeps what it holds when it is free. */
static bool is_findable(const block_t *entry) {
  return entry->identity.unique_id != 0 || entry->side_of != 0;
}

static void move_to_tail(block_pool_t *pool, int32_t free_block) {
  free_queue_remove(pool, free_block);
  free_queue_append(pool, free_block, pool->blocks[free_block].identity.owner);
}

/* The free parents of a block at the tail must stand behind it, so they move to their tails. */
static void move_parents(block_pool_t *pool, int32_t block, bool spares) {
  for (int32_t p = pool->blocks[block].identity.place.parent; p && pool->blocks[p].ref_count == 0;
       p = pool->blocks[p].identity.place.parent) {
    if (block_is_held(&pool->blocks[p])) continue; /* pinned by a copy: not in the queue */
    if (spares) pool->blocks[p].identity.was_hit = false;
    move_to_tail(pool, p);
  }
}

/* Moves blocks that were hit from the head of a free queue to its tail. */
static void spare(block_pool_t *pool) {
  for (int32_t block; (block = free_queues_head(pool)) != 0;) {
    block_identity_t *identity = &pool->blocks[block].identity;
    int32_t moves = MAX(identity->depth, 1); /* a side block has no parents */
    if (!identity->was_hit || moves > pool->moves_left) return;
    pool->moves_left -= moves;
    pool->num_spared += (uint64_t)moves;
    identity->was_hit = false;
    move_to_tail(pool, block);
    move_parents(pool, block, true);
  }
}

/* The first block behind this one that copies have not pinned, or the last pinned one; 0 = none. */
static int32_t find_behind(const block_pool_t *pool, int32_t block) {
  int32_t child = pool->blocks[block].first_child;
  while (block_is_held(&pool->blocks[child]) && pool->blocks[child].first_child != 0)
    child = pool->blocks[child].first_child;
  return child;
}

/* The block that is evicted next, which has nothing behind it; 0 = none is free. A free block may
 * have children that copies have pinned: a copy needs the rows of its source, not the identity, so
 * these lose their identities. And it may have free children in the queue of another owner: it
 * passes to that one, right behind the child. It comes to the head again only when that child has
 * left: so each block that is evicted or used again lets one other pass, however long chains are.
 */
static int32_t take_first(block_pool_t *pool) {
  for (int32_t first; (first = free_queues_head(pool)) != 0;) {
    int32_t child = find_behind(pool, first);
    if (child == 0) {
      free_queue_remove(pool, first);
      return first;
    }
    if (block_is_held(&pool->blocks[child])) {
      CHECK_EQ(pool->blocks[child].ref_count, 0);
      withdraw(pool, child);
      continue;
    }
    free_queue_remove(pool, first);
    free_queue_insert_behind(pool, first, child);
    pool->blocks[first].identity.owner = pool->blocks[child].queue;
  }
  return 0;
}

int32_t block_allocate(block_pool_t *pool) {
  spare(pool);
  int32_t block = take_first(pool);
  if (!block) return -1;
  block_t *entry = &pool->blocks[block];
  CHECK(!block_is_held(entry));
  entry->saved.unique_id = 0;
  if (entry->side_of != 0) {
    pool->num_cached--;
    forget_side(pool, block);
  }
  if (entry->identity.unique_id) {
    pool->num_cached--;
    if (pool->floor != NULL) floor_evict(pool, block);
    entry->saved = entry->identity;
    copy_ids(pool->saved_ids, pool->token_ids, pool, block);
    prefix_withdraw(pool, block);
  }
  entry->identity.owner = BLOCK_OF_NOBODY;
  entry->ref_count = 1;
  return block;
}

void block_use(block_pool_t *pool, int32_t block, int32_t owner) {
  int32_t *now = &pool->blocks[block].identity.owner;
  CHECK(block_is_held(&pool->blocks[block]));
  if (pool->free.of[*now].weight == 0) *now = owner;
}

/* Takes the block out of the free queue if it is there. */
static void hold(block_pool_t *pool, int32_t block) {
  CHECK_RANGE(block, 1, pool->num_blocks);
  const block_t *entry = &pool->blocks[block];
  if (block_is_held(entry)) return;
  CHECK(is_findable(entry)); /* an empty block has no content to share */
  free_queue_remove(pool, block);
  pool->num_cached--;
}

void block_acquire(block_pool_t *pool, int32_t block) {
  if (!block_is_held(&pool->blocks[block])) pool->blocks[block].identity.was_hit = true;
  hold(pool, block);
  pool->blocks[block].ref_count++;
}

void block_pin(block_pool_t *pool, int32_t block) {
  hold(pool, block);
  pool->blocks[block].pins++;
}

/* Gives a block that was never written its saved identity back. Returns false if it has none, if
 * its parent lost its identity, or if another block has the same content by now. */
static bool revert(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  const block_identity_t *saved = &entry->saved;
  if (!saved->unique_id) return false;
  int32_t parent = saved->place.parent;
  const block_identity_t *before = &pool->blocks[parent].identity;
  if (parent && (before->unique_id != saved->parent || !before->keyed)) return false;
  const int32_t *ids = ids_of(pool->saved_ids, pool, block);
  if (saved->keyed) {
    if (prefix_find(pool, &saved->key, saved->place, ids) >= 0) return false;
    prefix_publish(pool, block, &saved->key, saved->place, ids);
    prefix_validate(pool, block, saved->num_valid);
  } else {
    prefix_note(pool, block, saved->place, ids, saved->num_valid);
  }
  entry->identity.unique_id = saved->unique_id; /* its children name it when they revert */
  entry->identity.owner = saved->owner;
  entry->saved.unique_id = 0;
  pool->num_reverted++;
  return true;
}

/* Returns the block to the free queue if it has no holder and no pin. */
static void let_go(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  if (block_is_held(entry)) return;
  CHECK(entry->filler == NULL);
  if (!pool->caching && entry->identity.unique_id) prefix_withdraw(pool, block);
  if (!pool->caching && entry->side_of != 0) forget_side(pool, block);
  bool reverted = !is_findable(entry) && revert(pool, block);
  if (!is_findable(entry) || reverted) {
    if (reverted) pool->num_cached++; /* the oldest cached block, so its place is the head */
    free_queue_push(pool, block, reverted ? entry->identity.owner : BLOCK_OF_NOBODY);
    return;
  }
  pool->num_cached++;
  free_queue_append(pool, block, entry->identity.owner);
  move_parents(pool, block, false); /* a copy may have pinned it after they became free */
  if (pool->floor != NULL) floor_offer(pool, block);
}

void block_release(block_pool_t *pool, int32_t block) {
  CHECK_RANGE(block, 1, pool->num_blocks);
  CHECK_GT(pool->blocks[block].ref_count, 0);
  pool->blocks[block].ref_count--;
  let_go(pool, block);
}

void block_unpin(block_pool_t *pool, int32_t block) {
  CHECK_RANGE(block, 1, pool->num_blocks);
  CHECK_GT(pool->blocks[block].pins, 0);
  pool->blocks[block].pins--;
  let_go(pool, block);
}

void block_written(block_pool_t *pool, int32_t block) {
  pool->blocks[block].saved.unique_id = 0;
}
