/* test_block.c: the block pool and the prefix cache: order, counts, eviction, identity. */
#include "engine/base/random.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/expect.h"

#include <string.h>

static const uint64_t secret[2] = {42, 43};

static block_pool_t *pool_of(int32_t blocks, int32_t block_size) {
  block_pool_t *pool;
  ASSERT_EQ(block_pool_new(blocks, block_size, true, secret, &pool, NULL), 0);
  return pool;
}

/* Publishes `block` as the child of `parent` (0 = first block) holding ids id, id, ... */
static void publish(block_pool_t *pool, int32_t block, int32_t parent, int32_t id) {
  int32_t ids[16];
  for (int i = 0; i < 16; i++) ids[i] = id;
  prefix_place_t place = {.parent = parent};
  block_key_t key = prefix_key(pool, place, ids);
  prefix_publish(pool, block, &key, place, ids);
  pool->blocks[block].identity.num_valid = pool->block_size;
}

static int32_t find(block_pool_t *pool, int32_t parent, int32_t id) {
  int32_t ids[16];
  for (int i = 0; i < 16; i++) ids[i] = id;
  prefix_place_t place = {.parent = parent};
  block_key_t key = prefix_key(pool, place, ids);
  return prefix_find(pool, &key, place, ids);
}

Test(block, hands_out_in_ascending_order_and_never_the_null_block) {
  block_pool_t *pool = pool_of(5, 4);
  for (int32_t want = 1; want < 5; want++) ASSERT_EQ(block_allocate(pool), want);
  ASSERT_EQ(block_allocate(pool), -1);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, empty_blocks_return_to_the_head_cached_ones_to_the_tail) {
  block_pool_t *pool = pool_of(6, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, 0, 7);
  block_release(pool, c);
  block_release(pool, b);
  block_release(pool, a);
  block_pool_check(pool);
  ASSERT_EQ(pool->num_free, 5);
  ASSERT_EQ(pool->num_cached, 1);
  const int32_t order[] = {b, c, 4, 5, a};
  for (int i = 0; i < 5; i++) ASSERT_EQ(block_allocate(pool), order[i]);
  ASSERT_EQ_FOR(find(pool, 0, 7), -1, "eviction drops the identity");
  block_pool_free(pool);
}

Test(block, a_cached_block_is_revived_with_its_content) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t a = block_allocate(pool);
  publish(pool, a, 0, 9);
  ASSERT_EQ(find(pool, 0, 9), a);
  ASSERT_EQ(find(pool, 0, 8), -1);
  block_release(pool, a);
  ASSERT_EQ(find(pool, 0, 9), a);
  block_acquire(pool, a);
  ASSERT_EQ(pool->blocks[a].ref_count, 1);
  ASSERT_EQ(pool->num_free, 2);
  ASSERT_EQ(pool->num_cached, 0);
  block_acquire(pool, a);
  block_release(pool, a);
  ASSERT_EQ(pool->blocks[a].ref_count, 1);
  block_release(pool, a);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, leaves_are_evicted_before_their_parents) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, 0, 1);
  publish(pool, b, a, 2);
  publish(pool, c, b, 3);
  int32_t chain[] = {c, b, a}; /* released last block first */
  for (int i = 0; i < 3; i++) block_release(pool, chain[i]);
  block_pool_check(pool);
  ASSERT_EQ(block_allocate(pool), c);
  ASSERT_EQ(find(pool, 0, 1), a);
  ASSERT_EQ(find(pool, a, 2), b);
  ASSERT_EQ(block_allocate(pool), b);
  ASSERT_EQ(find(pool, 0, 1), a);
  block_pool_free(pool);
}

Test(block, one_that_was_hit_gets_a_second_chance_and_no_third) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, 0, 1);
  publish(pool, b, 0, 2);
  publish(pool, c, 0, 3);
  block_release(pool, a);
  block_acquire(pool, a); /* a hit */
  block_release(pool, a);
  block_release(pool, b);
  block_release(pool, c);
  ASSERT_EQ(block_allocate(pool), b);
  block_pool_check(pool);
  ASSERT_EQ(pool->num_spared, 1);
  ASSERT_EQ(block_allocate(pool), c);
  ASSERT_EQ_FOR(block_allocate(pool), a, "it was not hit again");
  ASSERT_EQ(pool->num_spared, 1);
  block_pool_free(pool);
}

/* A chain of three blocks, hit as a whole, in front of one that was read once. */
Test(block, the_parents_of_a_spared_block_stay_behind_it) {
  block_pool_t *pool = pool_of(5, 4);
  int32_t chain[3], other;
  for (int i = 0; i < 3; i++) {
    chain[i] = block_allocate(pool);
    publish(pool, chain[i], i > 0 ? chain[i - 1] : 0, 1);
  }
  other = block_allocate(pool);
  publish(pool, other, 0, 2);
  for (int i = 2; i >= 0; i--) block_release(pool, chain[i]);
  for (int i = 0; i < 3; i++) block_acquire(pool, chain[i]);
  for (int i = 2; i >= 0; i--) block_release(pool, chain[i]);
  block_release(pool, other);
  const int32_t order[] = {other, chain[2], chain[1], chain[0]};
  for (int i = 0; i < 4; i++) {
    ASSERT_EQ(block_allocate(pool), order[i]);
    block_pool_check(pool);
  }
  ASSERT_EQ_FOR(pool->num_spared, 3, "all three at once, each once");
  block_pool_free(pool);
}

Test(block, a_plan_spares_so_many_blocks_and_no_more) {
  enum { COUNT = BLOCK_MOVES_MAX + 8 };
  block_pool_t *pool = pool_of(COUNT + 1, 4);
  int32_t blocks[COUNT];
  for (int i = 0; i < COUNT; i++) publish(pool, blocks[i] = block_allocate(pool), 0, i);
  for (int i = 0; i < COUNT; i++) block_release(pool, blocks[i]);
  for (int i = 0; i < COUNT; i++) {
    block_acquire(pool, blocks[i]);
    block_release(pool, blocks[i]);
  }
  ASSERT_EQ_FOR(block_allocate(pool), blocks[BLOCK_MOVES_MAX], "the first one that was not moved");
  ASSERT_EQ(pool->num_spared, BLOCK_MOVES_MAX);
  block_begin_plan(pool);
  ASSERT_EQ_FOR(block_allocate(pool), blocks[0], "the last seven are spared");
  ASSERT_EQ(pool->num_spared, BLOCK_MOVES_MAX + 7);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(prefix, equal_key_with_other_tokens_or_parent_is_no_hit) {
  block_pool_t *pool = pool_of(8, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool);
  int32_t ids[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
  prefix_place_t first = {.domain = 9}, foreign = {.domain = 8}, behind = {.parent = b};
  block_key_t key = prefix_key(pool, first, ids);
  prefix_publish(pool, a, &key, first, ids);
  publish(pool, b, 0, 7);
  ASSERT_EQ(prefix_find(pool, &key, first, ids), a);
  ASSERT_EQ_FOR(prefix_find(pool, &key, first, other), -1, "a hash collision must not hit");
  ASSERT_EQ_FOR(prefix_find(pool, &key, behind, ids), -1, "another parent must not hit");
  ASSERT_EQ_FOR(prefix_find(pool, &key, foreign, ids), -1, "another domain must not hit");
  block_pool_free(pool);
}

Test(prefix, key_depends_on_everything) {
  block_pool_t *pool = pool_of(8, 4), *foreign;
  const uint64_t other_secret[2] = {42, 44};
  ASSERT_EQ(block_pool_new(8, 4, true, other_secret, &foreign, NULL), 0);
  int32_t ids[4] = {1, 2, 3, 4}, swapped[4] = {2, 1, 3, 4};
  int32_t a = block_allocate(pool), b = block_allocate(pool);
  publish(pool, a, 0, 5);
  publish(pool, b, 0, 6);
  block_key_t keys[] = {
      prefix_key(pool, (prefix_place_t){0}, ids),
      prefix_key(pool, (prefix_place_t){.domain = 1}, ids),
      prefix_key(pool, (prefix_place_t){0}, swapped),
      prefix_key(foreign, (prefix_place_t){0}, ids),
      prefix_key(pool, (prefix_place_t){.parent = a}, ids),
      prefix_key(pool, (prefix_place_t){.parent = b}, ids),
  };
  for (int i = 0; i < 6; i++) {
    for (int j = 0; j < i; j++) cr_assert(memcmp(&keys[i], &keys[j], sizeof keys[i]) != 0);
  }
  block_key_t again = prefix_key(pool, (prefix_place_t){0}, ids);
  cr_assert(memcmp(&keys[0], &again, sizeof again) == 0);
  block_pool_free(pool);
  block_pool_free(foreign);
}

Test(prefix, the_longest_common_run_behind_a_block_is_found) {
  block_pool_t *pool = pool_of(8, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  prefix_place_t behind = {.parent = a};
  const int32_t one[4] = {1, 2, 3, 4}, two[4] = {1, 2, 9, 9}, want[4] = {1, 2, 3, 9};
  publish(pool, a, 0, 7);
  ASSERT_EQ(prefix_find_partial(pool, behind, want, 4).rows, 0);
  prefix_note(pool, b, behind, one, 2); /* two rows are valid */
  prefix_note(pool, c, behind, two, 4);
  prefix_partial_t found = prefix_find_partial(pool, behind, want, 4);
  ASSERT_EQ_FOR(found.block, c, "the newest of equals");
  ASSERT_EQ_FOR(found.rows, 2, "the newest of equals");
  prefix_note(pool, b, behind, one, 3);
  found = prefix_find_partial(pool, behind, want, 4);
  ASSERT_EQ(found.block, b);
  ASSERT_EQ(found.rows, 3);
  ASSERT_EQ_FOR(prefix_find_partial(pool, behind, want, 1).rows, 1, "never more than asked");
  ASSERT_EQ(prefix_find_partial(pool, (prefix_place_t){0}, want, 4).rows, 0);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, a_block_taken_and_not_written_gets_its_identity_back) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t chain[3];
  for (int i = 0; i < 3; i++) chain[i] = block_allocate(pool);
  publish(pool, chain[0], 0, 1);
  publish(pool, chain[1], chain[0], 2);
  prefix_note(pool, chain[2], (prefix_place_t){.parent = chain[1]}, (int32_t[]){3, 3, 3, 3}, 2);
  for (int i = 2; i >= 0; i--) block_release(pool, chain[i]);
  int32_t taken[3];
  for (int i = 0; i < 3; i++) taken[i] = block_allocate(pool);
  ASSERT_EQ(taken[0], chain[2]);
  ASSERT_EQ(taken[1], chain[1]);
  ASSERT_EQ(taken[2], chain[0]);
  ASSERT_EQ(find(pool, 0, 1), -1);
  ASSERT_EQ(pool->num_cached, 0);
  for (int i = 2; i >= 0; i--) block_release(pool, taken[i]);
  block_pool_check(pool);
  ASSERT_EQ(find(pool, 0, 1), chain[0]);
  ASSERT_EQ(find(pool, chain[0], 2), chain[1]);
  prefix_place_t last = {.parent = chain[1]};
  ASSERT_EQ(prefix_find_partial(pool, last, (int32_t[]){3, 3, 3, 3}, 4).rows, 2);
  ASSERT_EQ(pool->num_reverted, 3);
  ASSERT_EQ(pool->num_cached, 3);
  /* written: gone for good */
  ASSERT_EQ(block_allocate(pool), chain[2]);
  block_written(pool, chain[2]);
  block_release(pool, chain[2]);
  ASSERT_EQ(prefix_find_partial(pool, last, (int32_t[]){3, 3, 3, 3}, 4).rows, 0);
  /* a twin took the place of the content: it stays, the old one is empty */
  int32_t b = block_allocate(pool), c = block_allocate(pool);
  ASSERT_EQ(b, chain[2]);
  ASSERT_EQ(c, chain[1]);
  publish(pool, b, chain[0], 2);
  block_release(pool, c);
  ASSERT_EQ(find(pool, chain[0], 2), b);
  ASSERT_EQ(pool->num_cached, 1);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, a_pinned_source_returns_in_front_of_its_parent) {
  block_pool_t *pool = pool_of(5, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, 0, 1);
  publish(pool, b, a, 2);
  publish(pool, c, b, 3);
  int32_t chain[] = {c, b, a};
  for (int i = 0; i < 3; i++) block_release(pool, chain[i]);
  block_acquire(pool, a);
  block_pin(pool, b);
  ASSERT_EQ(pool->num_free, 2);
  ASSERT_EQ(pool->blocks[b].pins, 1);
  block_release(pool, a); /* the parent is back first */
  block_unpin(pool, b);
  block_pool_check(pool);
  ASSERT_EQ(block_allocate(pool), 4);
  ASSERT_EQ(block_allocate(pool), c);
  ASSERT_EQ(block_allocate(pool), b);
  block_pool_free(pool);
}

/* A copy that is planned reads the child's rows; the parent may be gone before it has run. */
Test(block, a_pinned_child_outlives_its_parent_without_its_name) {
  block_pool_t *pool = pool_of(3, 4);
  int32_t parent = block_allocate(pool), child = block_allocate(pool);
  publish(pool, parent, 0, 1);
  publish(pool, child, parent, 2);
  block_release(pool, child);
  block_release(pool, parent);
  block_pin(pool, child);
  ASSERT_EQ_FOR(block_allocate(pool), parent, "the only one that is free");
  block_pool_check(pool);
  ASSERT_EQ(find(pool, 0, 1), -1);
  ASSERT_EQ(find(pool, parent, 2), -1);
  publish(pool, parent, 0, 3); /* another content in the same block: the child is not its child */
  ASSERT_EQ(find(pool, parent, 2), -1);
  block_unpin(pool, child);
  block_pool_check(pool);
  ASSERT_EQ(pool->num_free, 1);
  ASSERT_EQ(block_allocate(pool), child);
  block_pool_free(pool);
}

/* Two copies read a chain that everybody else has left. */
static void pin_chain(block_pool_t *pool, int32_t *chain) {
  for (int i = 0; i < 3; i++) chain[i] = block_allocate(pool);
  for (int i = 0; i < 3; i++) publish(pool, chain[i], i > 0 ? chain[i - 1] : 0, i + 1);
  block_pin(pool, chain[1]);
  block_pin(pool, chain[2]);
  for (int i = 2; i >= 0; i--) block_release(pool, chain[i]);
}

Test(block, copies_that_end_leaf_first_leave_the_leaf_in_front) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t chain[3];
  pin_chain(pool, chain);
  block_unpin(pool, chain[2]);
  block_unpin(pool, chain[1]);
  block_pool_check(pool);
  for (int i = 2; i >= 0; i--) ASSERT_EQ(block_allocate(pool), chain[i]);
  block_pool_free(pool);
}

Test(block, a_free_leaf_goes_before_those_above_a_pinned_parent) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t chain[3];
  pin_chain(pool, chain);
  block_unpin(pool, chain[2]);
  ASSERT_EQ(block_allocate(pool), chain[2]);
  ASSERT_EQ(block_allocate(pool), chain[0]);
  block_pool_check(pool);
  block_unpin(pool, chain[1]);
  block_pool_free(pool);
}

Test(block, a_pinned_chain_loses_its_names_with_its_root) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t chain[3];
  pin_chain(pool, chain);
  ASSERT_EQ_FOR(block_allocate(pool), chain[0], "the only one that is free");
  block_pool_check(pool);
  for (int i = 1; i < 3; i++) {
    cr_assert(!pool->blocks[chain[i]].identity.unique_id);
    block_unpin(pool, chain[i]);
  }
  block_pool_check(pool);
  ASSERT_EQ(pool->num_free, 2);
  ASSERT_EQ(pool->num_cached, 0);
  block_pool_free(pool);
}

/* ---- owners ---- */

/* A block of the owner, published behind `parent` and free. */
static int32_t cached_of(block_pool_t *pool, int32_t owner, int32_t parent, int32_t id) {
  int32_t block = block_allocate(pool);
  ASSERT_GT(block, 0);
  if (parent != 0) block_acquire(pool, parent);
  block_use(pool, block, owner);
  block_written(pool, block);
  publish(pool, block, parent, id);
  block_release(pool, block);
  if (parent != 0) block_release(pool, parent);
  return block;
}

Test(block, who_fills_the_cache_evicts_what_it_had_itself) {
  block_pool_t *pool = pool_of(9, 4);
  for (int32_t owner = 1; owner <= 2; owner++) free_queues_set_weight(pool, owner, 1);
  for (int i = 0; i < 3; i++) cached_of(pool, 1, 0, i);
  for (int i = 0; i < 100; i++) cached_of(pool, 2, 0, 100 + i);
  for (int i = 0; i < 3; i++) ASSERT_GT(find(pool, 0, i), 0);
  for (int i = 95; i < 100; i++) ASSERT_GT_FOR(find(pool, 0, 100 + i), 0, "5 of 8, the newest");
  for (int i = 0; i < 100; i++) cached_of(pool, 1, 0, 300 + i);
  ASSERT_LE_FOR(pool->free.of[1].count, 5, "a half each, and the one that came last");
  ASSERT_EQ_FOR(find(pool, 0, 0), -1, "the oldest of its own");
  ASSERT_GT(find(pool, 0, 199), 0);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, shares_of_the_cache_are_by_weight) {
  block_pool_t *pool = pool_of(41, 4);
  for (int32_t owner = 1; owner <= 3; owner++) free_queues_set_weight(pool, owner, (uint32_t)owner);
  for (int i = 0; i < 600; i++) cached_of(pool, 1 + i % 3, 0, i);
  for (int32_t owner = 1; owner <= 3; owner++) {
    int32_t count = pool->free.of[owner].count, share = 40 * owner / 6;
    cr_assert(count >= share - 1 && count <= share + 1, "owner %d has %d", owner, count);
  }
  free_queues_set_weight(pool, 3, 0); /* it asks for nothing any more */
  for (int i = 0; i < 21; i++) cached_of(pool, 1, 0, 1000 + i);
  ASSERT_EQ(pool->free.of[3].count, 0);
  free_queues_set_weight(pool, 2, 0);
  for (int i = 0; i < 40; i++) cached_of(pool, 1, 0, 2000 + i);
  ASSERT_EQ_FOR(pool->free.of[1].count, 40, "a lone owner has all of it");
  block_pool_check(pool);
  block_pool_free(pool);
}

/* Owner 1 wrote a and b, which owner 2 has content behind: they pass to owner 2. */
Test(block, what_others_have_content_behind_passes_to_them) {
  block_pool_t *pool = pool_of(9, 4);
  for (int32_t owner = 1; owner <= 2; owner++) free_queues_set_weight(pool, owner, 1);
  int32_t a = cached_of(pool, 1, 0, 1), b = cached_of(pool, 1, a, 2);
  block_acquire(pool, a);
  int32_t c = cached_of(pool, 2, b, 3);
  block_release(pool, a);
  for (int i = 0; i < 100; i++) cached_of(pool, 1, 0, 100 + i);
  ASSERT_EQ(find(pool, 0, 1), a);
  ASSERT_EQ(find(pool, a, 2), b);
  ASSERT_EQ(find(pool, b, 3), c);
  ASSERT_EQ(pool->blocks[a].queue, 2);
  ASSERT_EQ(pool->blocks[b].queue, 2);
  for (int i = 0; i < 100; i++) cached_of(pool, 2, 0, 300 + i);
  ASSERT_EQ_FOR(find(pool, 0, 1), -1, "the oldest of owner 2, the leaf first");
  block_pool_check(pool);
  block_pool_free(pool);
}

/* A chain that is longer than the moves of a plan passes as any other: nothing walks along it. */
Test(block, a_long_chain_passes_block_by_block) {
  enum { CHAIN = 2 * BLOCK_MOVES_MAX };
  block_pool_t *pool = pool_of(CHAIN + 2, 4);
  for (int32_t owner = 1; owner <= 2; owner++) free_queues_set_weight(pool, owner, 1);
  int32_t chain[CHAIN + 1];
  for (int32_t i = 0; i < CHAIN; i++) {
    chain[i] = cached_of(pool, 1, i > 0 ? chain[i - 1] : 0, i);
    if (i > 0) block_acquire(pool, chain[i - 1]);
    block_acquire(pool, chain[i]);
  }
  chain[CHAIN] = cached_of(pool, 2, chain[CHAIN - 1], CHAIN);
  for (int32_t i = CHAIN; i-- > 0;) {
    block_release(pool, chain[i]);
    if (i + 1 < CHAIN) block_release(pool, chain[i]);
  }
  block_begin_plan(pool);
  ASSERT_EQ(block_allocate(pool), chain[CHAIN]);
  ASSERT_EQ_FOR(pool->free.of[2].count, CHAIN / 2, "half of it is behind the other owner's");
  for (int32_t i = 1; i < CHAIN; i++) {
    int32_t block = block_allocate(pool);
    ASSERT_EQ_FOR(pool->blocks[block].first_child, 0, "leaves go first, %d", i);
    ASSERT_LE(abs(pool->free.of[1].count - pool->free.of[2].count), 1);
  }
  block_pool_free(pool);
}

/* The owner's other branch stands behind the one that a block has passed to: leaves first still. */
Test(block, a_block_passes_once_more_for_each_child) {
  block_pool_t *pool = pool_of(9, 4);
  for (int32_t owner = 1; owner <= 2; owner++) free_queues_set_weight(pool, owner, 1);
  int32_t root = cached_of(pool, 1, 0, 1), left = cached_of(pool, 2, root, 2),
          right = cached_of(pool, 2, root, 3);
  block_acquire(pool, root);
  block_acquire(pool, left);
  block_release(pool, left); /* in the queue behind `right`, in the list of children, too */
  block_release(pool, root);
  pool->blocks[root].identity.was_hit = pool->blocks[left].identity.was_hit = false;
  for (int32_t i = 0; i < 5; i++) ASSERT_GT(block_allocate(pool), 0);
  free_queues_set_weight(pool, 1, 0); /* so its block is looked at first */
  ASSERT_EQ(block_allocate(pool), right);
  ASSERT_EQ(block_allocate(pool), left);
  ASSERT_EQ(block_allocate(pool), root);
  block_pool_free(pool);
}

/* Drawn: nobody loses a block while another has more for its weight, and children go first. */
Test(block, nobody_loses_a_block_while_another_has_more) {
  enum { BLOCKS = 64, OWNERS = 4, STEPS = 20000 };
  block_pool_t *pool = pool_of(BLOCKS, 4);
  for (int32_t owner = 1; owner <= OWNERS; owner++)
    free_queues_set_weight(pool, owner, 1 + (uint32_t)owner % 3);
  int32_t last[OWNERS + 1] = {0}, evicted = 0;
  for (int i = 0; i < STEPS; i++) {
    int32_t owner = 1 + (int32_t)(random_mix(2 * (uint64_t)i) % OWNERS), before[OWNERS + 1];
    bool is_full = pool->free.of[BLOCK_OF_NOBODY].count == 0;
    for (int32_t o = 1; o <= OWNERS; o++) before[o] = pool->free.of[o].count;
    block_begin_plan(pool);
    int32_t block = block_allocate(pool);
    for (int32_t o = 1; o <= OWNERS && is_full; o++) {
      int32_t lost = before[o] - pool->free.of[o].count;
      evicted += lost > 0;
      for (int32_t other = 1; other <= OWNERS && lost > 0; other++)
        cr_assert(before[o] * (1 + other % 3) >= before[other] * (1 + o % 3),
                  "%d had %d and lost one, %d had %d", o, before[o], other, before[other]);
    }
    block_use(pool, block, owner);
    block_written(pool, block);
    int32_t parent = random_mix(2 * (uint64_t)i + 1) % 2 ? last[owner] : 0;
    bool behind = parent != 0 && pool->blocks[parent].identity.owner == owner &&
                  pool->blocks[parent].identity.keyed && parent != block;
    if (behind) block_acquire(pool, parent);
    publish(pool, block, behind ? parent : 0, 1000 + i);
    block_release(pool, block);
    if (behind) block_release(pool, parent);
    last[owner] = block;
    if (i % 100 == 0) block_pool_check(pool);
  }
  ASSERT_GT(evicted, STEPS / 2);
  block_pool_free(pool);
}
