/* test_snapshots.c: the list of snapshots by itself: who is taken next, and what is found. */
#include "engine/schedule/state/snapshots.h"
#include "tests/expect.h"

enum { BLOCKS = 12, FIRST = 9, COUNT = 4 };

static block_pool_t *pool;
static snapshots_t *made;

static void begin(void) {
  static const uint64_t secret[2] = {1, 2};
  inferd_error_t error;
  ASSERT_EQ(block_pool_new(BLOCKS, 1, true, secret, &pool, &error), 0);
  ASSERT_EQ(snapshots_new(COUNT, FIRST, pool, &made, &error), 0);
  pool->snapshots = made;
}

static void finish(void) {
  snapshots_free(made);
  block_pool_free(pool);
}

/* A block with the content `id`, findable by key and held. */
static int32_t fill(int32_t id) {
  prefix_place_t place = {.domain = 1};
  int32_t block = block_allocate(pool);
  block_key_t key = prefix_key(pool, place, &id);
  block_written(pool, block);
  prefix_publish(pool, block, &key, place, &id);
  prefix_validate(pool, block, 1);
  return block;
}

/* Takes a slot and attaches it. */
static int32_t store(int32_t block) {
  int32_t slot = snapshots_take(made);
  cr_assert(slot >= FIRST && slot < FIRST + COUNT, "slot %d", slot);
  ASSERT_EQ(snapshots_attach(made, slot, block), slot);
  ASSERT_EQ(snapshots_find(made, block), slot);
  return slot;
}

Test(snapshots, least_recently_used_is_taken) {
  begin();
  int32_t blocks[COUNT], slots[COUNT];
  for (int i = 0; i < COUNT; i++) slots[i] = store(blocks[i] = fill(i));
  snapshots_hit(made, slots[0]);
  ASSERT_EQ(store(fill(50)), slots[1]);
  ASSERT_EQ(snapshots_find(made, blocks[1]), 0);
  ASSERT_EQ(snapshots_find(made, blocks[0]), slots[0]);
  ASSERT_EQ(store(fill(51)), slots[2]);
  ASSERT_EQ(snapshots_find(NULL, blocks[0]), 0);
  finish();
}

Test(snapshots, taken_ones_are_nobodys) {
  begin();
  int32_t slots[COUNT];
  for (int i = 0; i < COUNT; i++) slots[i] = snapshots_take(made);
  ASSERT_EQ(snapshots_take(made), 0);
  ASSERT_EQ(made->num_taken, COUNT);
  snapshots_give(made, slots[2]);
  snapshots_give(made, slots[2]); /* it is free already */
  ASSERT_EQ(snapshots_take(made), slots[2]);
  ASSERT_EQ(snapshots_take(made), 0);
  for (int i = 0; i < COUNT; i++) snapshots_give(made, slots[i]);
  ASSERT_EQ(made->num_taken, 0);
  finish();
}

Test(snapshots, a_block_has_one) {
  begin();
  int32_t block = fill(7), slot = store(block), second = snapshots_take(made);
  ASSERT_EQ(snapshots_attach(made, second, block), slot);
  ASSERT_EQ(snapshots_find(made, block), slot);
  ASSERT_EQ(snapshots_take(made), second); /* it is free, so it comes first */
  snapshots_give(made, second);
  finish();
}

Test(snapshots, go_with_the_identity_of_their_block) {
  begin();
  int32_t blocks[COUNT];
  for (int i = 0; i < COUNT; i++) store(blocks[i] = fill(i));
  int32_t slot = snapshots_find(made, blocks[3]);
  prefix_withdraw(pool, blocks[3]);
  ASSERT_EQ(snapshots_find(made, blocks[3]), 0);
  ASSERT_EQ(snapshots_take(made), slot); /* before those that were used less recently */
  snapshots_give(made, slot);
  finish();
}

Test(snapshots, come_back_with_a_block_that_was_not_written) {
  begin();
  int32_t last = 0;
  for (int i = 0; i < BLOCKS - 1; i++) last = fill(i);
  int32_t slot = store(last);
  block_release(pool, last);
  ASSERT_EQ(block_allocate(pool), last);
  ASSERT_EQ(snapshots_find(made, last), 0);
  block_release(pool, last);
  ASSERT_EQ(snapshots_find(made, last), slot);
  finish();
}

Test(snapshots, outdated_ones_go_first_unless_they_were_hit) {
  begin();
  int32_t blocks[COUNT], slots[COUNT];
  for (int i = 0; i < COUNT; i++) slots[i] = store(blocks[i] = fill(i));
  snapshots_outdate(made, slots[2], pool->blocks[blocks[2]].identity.unique_id);
  ASSERT_EQ(store(fill(50)), slots[2]);
  snapshots_outdate(made, slots[2], pool->blocks[blocks[2]].identity.unique_id); /* another's now */
  ASSERT_EQ(store(fill(51)), slots[0]);
  snapshots_hit(made, slots[3]);
  snapshots_outdate(made, slots[3], pool->blocks[blocks[3]].identity.unique_id);
  ASSERT_EQ(store(fill(52)), slots[1]);
  finish();
}
