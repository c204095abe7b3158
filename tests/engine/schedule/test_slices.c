/* test_slices.c: a long prompt is admitted a slice of blocks a plan: counts, not times. */
#include "engine/schedule/slices.h"

#include "engine/schedule/promised.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

enum { TOKENS = 4000, BLOCK = 4, BLOCKS = TOKENS / BLOCK, SLICE = 16 };
/* A slice taken and keyed, and the last one; for what is admitted also the search for it. */
enum { WALKED_MAX = 5 * SLICE };

static block_key_t keys[4][BLOCKS];

static rig_t *new_rig(int32_t num_blocks, int32_t budget) {
  scheduler_options_t options = rig_options(8, budget, 4096);
  options.slice_blocks = SLICE;
  options.max_skips = 4;
  return rig_new(&options, num_blocks, BLOCK, true);
}

static group_t *add_long(rig_t *rig, int32_t num_tokens, int32_t seed) {
  int i = rig->count;
  group_t *group = rig_add(rig, num_tokens, 8, seed);
  prefix_keys(rig->pool, 0, rig->ids[i], num_tokens / BLOCK, keys[i]);
  rig->requests[i].prompt_keys = keys[i];
  return group;
}

static int32_t step(rig_t *rig) {
  uint64_t walked = rig->scheduler->num_walked;
  int32_t rows = rig_step(rig);
  ASSERT_LE(rig->scheduler->num_walked - walked, WALKED_MAX);
  rig_commit(rig, 1);
  block_pool_check(rig->pool);
  return rows;
}

/* Plans until the group has its first token; returns how many. */
static int begin(rig_t *rig, const group_t *group) {
  int count = 0;
  for (; group->sequence.num_output_tokens == 0; count++) {
    bool goes_on = step(rig) > 0 || rig->scheduler->slices.num_open > 0;
    cr_assert(goes_on, "nothing can run after %d plans", count);
  }
  return count;
}

static void end(rig_t *rig, group_t *group) {
  scheduler_finish(rig->scheduler, group, SEQUENCE_FINISHED_STOPPED);
}

Test(slices, no_plan_walks_more_than_a_few_slices) {
  rig_t *rig = new_rig(BLOCKS + 10, 1024);
  group_t *group = add_long(rig, TOKENS, 1);
  int plans = begin(rig, group);
  ASSERT_EQ_FOR(plans, 63, "plans of 16 blocks for 1,000");
  ASSERT_EQ(rig->scheduler->slices.num_open, 0);
  ASSERT_EQ(rig->scheduler->num_hashed, 0);
  end(rig, group);
  ASSERT_EQ(rig->pool->num_free, rig->pool->num_blocks - 1);
  rig_free(rig);
}

/* Tokens are computed in the blocks that are there: slices do not delay a prefill of small chunks.
 */
Test(slices, chunks_of_less_than_a_slice_wait_for_nothing) {
  rig_t *rig = new_rig(BLOCKS + 10, 32);
  group_t *group = add_long(rig, TOKENS, 1);
  ASSERT_EQ(begin(rig, group), TOKENS / 32);
  rig_free(rig);
}

Test(slices, what_the_cache_has_is_taken_and_not_computed) {
  rig_t *rig = new_rig(BLOCKS + 10, 1024);
  group_t *first = add_long(rig, TOKENS, 1);
  begin(rig, first);
  end(rig, first);
  group_t *again = add_long(rig, TOKENS, 1);
  begin(rig, again);
  ASSERT_EQ_FOR(again->sequence.num_cached_tokens, TOKENS - BLOCK, "all blocks but the last");
  ASSERT_EQ(rig->scheduler->prefix_hits_tokens, TOKENS - BLOCK);
  end(rig, again);
  group_t *part = add_long(rig, TOKENS, 1);
  rig->ids[2][TOKENS / 2] = 7; /* from here on it is another prompt */
  prefix_keys(rig->pool, 0, rig->ids[2], BLOCKS, keys[2]);
  begin(rig, part);
  ASSERT_EQ(part->sequence.num_cached_tokens, TOKENS / 2);
  rig_free(rig);
}

/* The pool has blocks for one of them: the second shares what the first still computes. */
Test(slices, a_prompt_that_others_hold_needs_few_blocks) {
  rig_t *rig = new_rig(BLOCKS + 20, 256);
  add_long(rig, TOKENS, 1);
  for (int i = 0; i < 70; i++) step(rig);
  ASSERT_EQ(rig->scheduler->slices.num_open, 0);
  group_t *second = add_long(rig, TOKENS, 1);
  step(rig);
  ASSERT_EQ(second->sequence.status, SEQUENCE_RUNNING);
  ASSERT_LE_FOR(second->sequence.slices.promised, 2, "the last block, and one behind it");
  begin(rig, second);
  ASSERT_EQ(second->sequence.num_cached_tokens, TOKENS - BLOCK);
  rig_free(rig);
}

Test(slices, promised_blocks_are_nobody_elses) {
  rig_t *rig = new_rig(BLOCKS + 10, 64);
  group_t *first = add_long(rig, TOKENS, 1);
  step(rig);
  ASSERT_EQ(first->sequence.num_blocks, SLICE);
  ASSERT_EQ(promised_num_free(rig->scheduler), 9);
  group_t *other = rig_add(rig, 60, 4, 2);
  step(rig);
  ASSERT_EQ_FOR(other->sequence.status, SEQUENCE_WAITING, "15 blocks of 9");
  end(rig, first);
  ASSERT_EQ(rig->scheduler->slices.num_open, 0);
  ASSERT_EQ(promised_num_free(rig->scheduler), BLOCKS + 9);
  step(rig);
  ASSERT_EQ(other->sequence.status, SEQUENCE_RUNNING);
  rig_free(rig);
}

/* The holder of shared blocks leaves before the second one has taken them, and a third takes the
 * room: the second lacks blocks that it was not promised, and gets what is free. */
Test(slices, shared_blocks_that_are_lost_are_taken_anew) {
  rig_t *rig = new_rig(BLOCKS + 200, 64);
  group_t *first = add_long(rig, TOKENS, 1);
  begin(rig, first);
  group_t *second = add_long(rig, TOKENS, 1);
  step(rig);
  end(rig, first);
  group_t *third = add_long(rig, 1600, 3);
  begin(rig, second);
  begin(rig, third);
  ASSERT_EQ(rig->scheduler->slices.num_open, 0);
  rig_free(rig);
}

static void check_writes(const rig_t *rig) {
  const plan_t *plan = &rig->scheduler->plan;
  for (int32_t e = 0; e < plan->num_entries; e++) {
    const plan_entry_t *entry = &plan->entries[e];
    int32_t end = entry->num_computed + entry->num_tokens;
    for (int32_t i = entry->num_computed / BLOCK; i * BLOCK < end; i++) {
      const block_t *block = &rig->pool->blocks[entry->sequence->blocks[i]];
      cr_assert(block->ref_count == 1 || block->filler == entry->sequence,
                "block %d is written by who does not fill it", i);
    }
  }
}

static void run(rig_t *rig, int32_t plans) {
  for (int32_t i = 0; i < plans; i++) {
    rig_step(rig);
    check_writes(rig);
    rig_commit(rig, 1);
  }
}

/* When the first one leaves, the longer is the heir of the blocks that it has by then. The shorter
 * shares these, takes its blocks first, and fills those behind them, which the longer shares. */
Test(slices, nobody_computes_into_blocks_that_another_fills) {
  rig_t *rig = new_rig(2 * BLOCKS, 16);
  rig->scheduler->options.long_prefill_token_threshold = 3;
  group_t *first = add_long(rig, TOKENS, 1);
  run(rig, 4);
  group_t *longer = add_long(rig, TOKENS, 1);
  add_long(rig, 240, 2); /* the slices of the next plans are its own */
  run(rig, 1);
  end(rig, first);
  group_t *shorter = add_long(rig, 100, 1);
  for (int32_t i = 0; i < 100 && shorter->sequence.num_output_tokens == 0; i++) run(rig, 1);
  ASSERT_EQ(shorter->sequence.num_output_tokens, 1);
  ASSERT_GT(longer->sequence.num_blocks, SLICE);
  ASSERT_EQ(longer->sequence.blocks[SLICE], shorter->sequence.blocks[SLICE]);
  rig_free(rig);
}

Test(slices, the_shortest_admission_goes_on_first) {
  rig_t *rig = new_rig(2 * BLOCKS, 1024);
  group_t *longer = add_long(rig, TOKENS, 1);
  for (int i = 0; i < 3; i++) step(rig);
  group_t *shorter = add_long(rig, 200, 2);
  int plans = begin(rig, shorter);
  ASSERT_LE_FOR(plans, 5, "50 blocks, 16 a plan");
  ASSERT_GT(longer->sequence.slices.total, 0);
  rig_free(rig);
}
