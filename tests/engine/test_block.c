/* test_block.c: the block pool and the prefix cache: order, counts, eviction, identity. */
#include "engine/block.h"

#include <criterion/criterion.h>
#include <string.h>

static const uint64_t secret[2] = {42, 43};

static block_pool_t *pool_of(int32_t blocks, int32_t block_size) {
  block_pool_t *pool;
  cr_assert(block_pool_new(blocks, block_size, true, secret, &pool, NULL) == 0);
  return pool;
}

/* Publishes `block` as the child of `parent` (-1 = first block) holding ids id, id, ... */
static void publish(block_pool_t *pool, int32_t block, int32_t parent, int32_t id) {
  int32_t ids[16];
  for (int i = 0; i < 16; i++) ids[i] = id;
  const block_t *p = parent > 0 ? &pool->blocks[parent] : NULL;
  block_key_t key = prefix_key(pool, p ? &p->key : NULL, ids, 0);
  prefix_publish(pool, block, &key, p ? p->unique_id : 0, ids);
}

static int32_t find(block_pool_t *pool, int32_t parent, int32_t id) {
  int32_t ids[16];
  for (int i = 0; i < 16; i++) ids[i] = id;
  const block_t *p = parent > 0 ? &pool->blocks[parent] : NULL;
  block_key_t key = prefix_key(pool, p ? &p->key : NULL, ids, 0);
  return prefix_find(pool, &key, p ? p->unique_id : 0, ids);
}

Test(block, hands_out_in_ascending_order_and_never_the_null_block) {
  block_pool_t *pool = pool_of(5, 4);
  for (int32_t want = 1; want < 5; want++) cr_assert(block_allocate(pool) == want);
  cr_assert(block_allocate(pool) == -1);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, empty_blocks_return_to_the_head_cached_ones_to_the_tail) {
  block_pool_t *pool = pool_of(6, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, -1, 7);
  block_release(pool, c);
  block_release(pool, b);
  block_release(pool, a);
  block_pool_check(pool);
  cr_assert(pool->num_free == 5 && pool->num_cached == 1);
  const int32_t order[] = {b, c, 4, 5, a};
  for (int i = 0; i < 5; i++) cr_assert(block_allocate(pool) == order[i]);
  cr_assert(find(pool, -1, 7) == -1, "eviction drops the identity");
  block_pool_free(pool);
}

Test(block, a_cached_block_is_revived_with_its_content) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t a = block_allocate(pool);
  publish(pool, a, -1, 9);
  cr_assert(find(pool, -1, 9) == a);
  cr_assert(find(pool, -1, 8) == -1);
  block_release(pool, a);
  cr_assert(find(pool, -1, 9) == a);
  block_acquire(pool, a);
  cr_assert(pool->blocks[a].ref_count == 1 && pool->num_free == 2 && pool->num_cached == 0);
  block_acquire(pool, a);
  block_release(pool, a);
  cr_assert(pool->blocks[a].ref_count == 1);
  block_release(pool, a);
  block_pool_check(pool);
  block_pool_free(pool);
}

Test(block, leaves_are_evicted_before_their_parents) {
  block_pool_t *pool = pool_of(4, 4);
  int32_t a = block_allocate(pool), b = block_allocate(pool), c = block_allocate(pool);
  publish(pool, a, -1, 1);
  publish(pool, b, a, 2);
  publish(pool, c, b, 3);
  int32_t chain[] = {c, b, a}; /* released last block first */
  for (int i = 0; i < 3; i++) block_release(pool, chain[i]);
  block_pool_check(pool);
  cr_assert(block_allocate(pool) == c);
  cr_assert(find(pool, -1, 1) == a && find(pool, a, 2) == b);
  cr_assert(block_allocate(pool) == b);
  cr_assert(find(pool, -1, 1) == a);
  block_pool_free(pool);
}

Test(prefix, equal_key_with_other_tokens_or_parent_is_no_hit) {
  block_pool_t *pool = pool_of(8, 4);
  int32_t a = block_allocate(pool);
  int32_t ids[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
  block_key_t key = prefix_key(pool, NULL, ids, 0);
  prefix_publish(pool, a, &key, 0, ids);
  cr_assert(prefix_find(pool, &key, 0, ids) == a);
  cr_assert(prefix_find(pool, &key, 0, other) == -1, "a hash collision must not hit");
  cr_assert(prefix_find(pool, &key, 77, ids) == -1, "another parent must not hit");
  block_pool_free(pool);
}

Test(prefix, key_depends_on_everything) {
  block_pool_t *pool = pool_of(8, 4), *foreign;
  const uint64_t other_secret[2] = {42, 44};
  cr_assert(block_pool_new(8, 4, true, other_secret, &foreign, NULL) == 0);
  int32_t ids[4] = {1, 2, 3, 4}, swapped[4] = {2, 1, 3, 4};
  block_key_t keys[] = {
      prefix_key(pool, NULL, ids, 0),
      prefix_key(pool, NULL, ids, 1),
      prefix_key(pool, NULL, swapped, 0),
      prefix_key(foreign, NULL, ids, 0),
      prefix_key(pool, &(block_key_t){{1, 0}}, ids, 0),
      prefix_key(pool, &(block_key_t){{0, 1}}, ids, 0),
  };
  for (int i = 0; i < 6; i++) {
    for (int j = 0; j < i; j++) cr_assert(memcmp(&keys[i], &keys[j], sizeof keys[i]) != 0);
  }
  block_key_t again = prefix_key(pool, NULL, ids, 0);
  cr_assert(memcmp(&keys[0], &again, sizeof again) == 0);
  block_pool_free(pool);
  block_pool_free(foreign);
}
