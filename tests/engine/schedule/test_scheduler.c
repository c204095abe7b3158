/* test_scheduler.c: budget, order, admission, preemption, prefix reuse, priorities, and a random
 * drive with the invariants checked after every step. */
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>

static const plan_entry_t *entry_of(const rig_t *rig, const group_t *g) {
  const plan_t *plan = &rig->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].sequence == &g->sequence) return &plan->entries[i];
  }
  return NULL;
}

Test(scheduler, decodes_come_before_chunks_of_a_long_prompt) {
  scheduler_options_t options = rig_options(4, 16, 128);
  rig_t *rig = rig_new(&options, 64, 4, false);
  group_t *a = rig_add(rig, 5, 50, 1), *b = rig_add(rig, 5, 50, 2);
  rig_step(rig);
  rig_commit(rig, 7);
  group_t *longest = rig_add(rig, 100, 5, 3);
  int32_t want_left = 100;
  while (want_left > 0) {
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(a, 1), CHUNK(b, 1)); /* a decode waited */
    int32_t want = want_left < 14 ? want_left : 14;
    ASSERT_EQ(rig_chunk(rig, longest), want);
    ASSERT_EQ(entry_of(rig, longest)->do_sample, (want == want_left));
    want_left -= want;
    rig_commit(rig, 7);
  }
  rig_free(rig);
}

Test(scheduler, long_prefill_threshold_bounds_one_request) {
  scheduler_options_t options = rig_options(4, 64, 128);
  options.long_prefill_token_threshold = 10;
  rig_t *rig = rig_new(&options, 64, 4, false);
  group_t *a = rig_add(rig, 30, 5, 1), *b = rig_add(rig, 30, 5, 2);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(a, 10), CHUNK(b, 10));
  rig_free(rig);
}

/* A long prompt that has run for a step of 64 tokens, decodes aside. */
static rig_t *rig_with_long_prompt(int32_t num_blocks, int32_t max_skips, group_t **longest) {
  scheduler_options_t options = rig_options(8, 64, 1024);
  options.short_prompts_pass = true;
  options.max_skips = max_skips;
  rig_t *rig = rig_new(&options, num_blocks, 4, false);
  *longest = rig_add(rig, 664, 5, 1);
  rig_step(rig);
  ASSERT_EQ_FOR(rig_chunk(rig, *longest), 64, "alone it has all");
  rig_commit(rig, 7);
  return rig;
}

Test(scheduler, a_short_prompt_passes_a_long_one_in_progress) {
  group_t *longest;
  rig_t *rig = rig_with_long_prompt(512, 4, &longest);
  group_t *brief = rig_add(rig, 20, 5, 2);
  rig_step(rig);
  ASSERT_EQ(rig_chunk(rig, brief), 20);
  cr_assert(entry_of(rig, brief)->do_sample);
  ASSERT_EQ_FOR(rig_chunk(rig, longest), 44, "what is left is the long one's");
  rig_commit(rig, 7);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(brief, 1), CHUNK(longest, 63));
  rig_free(rig);
}

Test(scheduler, the_first_prefill_keeps_one_half_and_the_shortest_come_first) {
  group_t *longest;
  rig_t *rig = rig_with_long_prompt(1024, 4, &longest);
  group_t *a = rig_add(rig, 100, 5, 2), *b = rig_add(rig, 99, 5, 3), *c = rig_add(rig, 10, 5, 4);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(longest, 32), CHUNK(a, 32)); /* admitted in order */
  rig_commit(rig, 7);
  rig_step(rig); /* b is not shorter than the 68 tokens that a lacks: c passes it */
  ASSERT_PLAN(rig, CHUNK(c, 10), CHUNK(a, 22), CHUNK(longest, 32));
  ASSERT_EQ(b->sequence.status, SEQUENCE_WAITING);
  ASSERT_EQ(b->num_skips, 1);
  rig_free(rig);
}

Test(scheduler, a_prompt_as_long_waits_and_is_passed_in_bounds) {
  group_t *longest, *brief[4];
  rig_t *rig = rig_with_long_prompt(1024, 2, &longest);
  group_t *other = rig_add(rig, 664, 5, 2);
  for (int i = 0; i < 4; i++) brief[i] = rig_add(rig, 10, 5, 3 + i);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(brief[0], 10), CHUNK(brief[1], 10));
  ASSERT_EQ(other->num_skips, 2);
  ASSERT_PLAN(rig, CHUNK(other, 0), CHUNK(brief[2], 0));
  ASSERT_EQ_FOR(rig_chunk(rig, longest), 44, "nothing is wasted");
  rig_commit(rig, 7);
  rig_step(rig);
  ASSERT_EQ_FOR(other->sequence.status, SEQUENCE_RUNNING, "it was passed often enough");
  rig_commit(rig, 7);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(brief[2], 10), CHUNK(brief[3], 10)); /* from here they go on */
  rig_free(rig);
}

Test(scheduler, short_prompts_wait_in_line_when_told_so) {
  scheduler_options_t options = rig_options(8, 64, 1024);
  rig_t *rig = rig_new(&options, 512, 4, false);
  group_t *longest = rig_add(rig, 664, 5, 1);
  rig_step(rig);
  rig_commit(rig, 7);
  group_t *brief = rig_add(rig, 20, 5, 2);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(longest, 64), CHUNK(brief, 0));
  rig_free(rig);
}

Test(scheduler, nobody_passes_a_prompt_of_better_priority) {
  scheduler_options_t options = rig_options(8, 64, 1024);
  options.short_prompts_pass = options.priority_policy = true;
  rig_t *rig = rig_new(&options, 512, 4, false);
  group_t *longest = rig_add(rig, 664, 5, 1);
  rig_step(rig);
  rig_commit(rig, 7);
  group_t *worse = rig_add(rig, 20, 5, 2);
  worse->request->priority = 1;
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(longest, 64), CHUNK(worse, 0));
  rig_free(rig);
}

Test(scheduler, without_chunking_a_prompt_is_planned_whole_or_waits) {
  scheduler_options_t options = rig_options(4, 64, 64);
  options.chunked_prefill = false;
  rig_t *rig = rig_new(&options, 64, 4, false);
  group_t *a = rig_add(rig, 40, 5, 1), *b = rig_add(rig, 40, 5, 2);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(a, 40), CHUNK(b, 0));
  rig_commit(rig, 7);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(a, 1), CHUNK(b, 40));
  rig_free(rig);
}

Test(scheduler, admission_reserves_the_whole_prompt) {
  scheduler_options_t options = rig_options(4, 8, 64);
  rig_t *rig = rig_new(&options, 11, 4, false); /* 10 blocks */
  group_t *a = rig_add(rig, 28, 4, 1), *b = rig_add(rig, 16, 4, 2);
  rig_step(rig);
  ASSERT_EQ(a->sequence.num_blocks, 7);
  ASSERT_EQ(rig->pool->num_free, 3);
  ASSERT_EQ_FOR(b->sequence.status, SEQUENCE_WAITING, "4 blocks are needed, 3 are free");
  rig_free(rig);
}

Test(scheduler, max_num_seqs_bounds_the_running_set) {
  scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = rig_new(&options, 64, 4, false);
  for (int i = 0; i < 4; i++) rig_add(rig, 4, 4, i);
  ASSERT_EQ(rig_step(rig), 2);
  ASSERT_EQ(rig->scheduler->waiting.queue.count, 2);
  rig_free(rig);
}

Test(scheduler, the_last_running_is_preempted_and_resumes_first) {
  scheduler_options_t options = rig_options(4, 32, 32);
  rig_t *rig = rig_new(&options, 6, 4, false); /* 5 blocks */
  group_t *a = rig_add(rig, 8, 20, 1), *b = rig_add(rig, 7, 20, 2);
  rig_step(rig);
  rig_commit(rig, 9);
  rig_step(rig); /* a needs a 3rd block: the last free one */
  ASSERT_EQ(a->sequence.num_blocks, 3);
  ASSERT_EQ(b->sequence.num_blocks, 2);
  rig_commit(rig, 9);
  group_t *c = rig_add(rig, 4, 4, 3);
  rig_step(rig); /* b has 9 tokens and finds no block: it is the last, so it goes itself */
  ASSERT_EQ(b->sequence.status, SEQUENCE_WAITING);
  ASSERT_EQ(b->num_preemptions, 1);
  ASSERT_EQ(b->sequence.num_output_tokens, 2);
  ASSERT_EQ(b->sequence.num_computed_tokens, 0);
  ASSERT_EQ(b->sequence.num_prefill_tokens, 9);
  ASSERT_EQ_FOR(rig->scheduler->waiting.queue.head, b, "arrival order is kept");
  ASSERT_EQ_FOR(b->next, c, "arrival order is kept");
  ASSERT_EQ_FOR(c->sequence.status, SEQUENCE_WAITING, "no admission in a step that preempted");
  ASSERT_EQ(rig_chunk(rig, a), 1);
  ASSERT_EQ(rig->scheduler->num_preemptions, 1);
  scheduler_finish(rig->scheduler, a, SEQUENCE_FINISHED_LENGTH_CAPPED);
  rig_step(rig);
  ASSERT_EQ_FOR(rig_chunk(rig, b), 9, "prompt and output again");
  cr_assert(entry_of(rig, b)->do_sample, "prompt and output again");
  ASSERT_EQ(rig->batch->input_ids[7], 9);
  ASSERT_EQ(rig->batch->input_ids[8], 9);
  rig_free(rig);
}

Test(scheduler, priority_policy_orders_and_chooses_victims) {
  scheduler_options_t options = rig_options(2, 32, 32);
  options.priority_policy = true;
  rig_t *rig = rig_new(&options, 6, 4, false);
  group_t *low = rig_add(rig, 8, 20, 1);
  scheduler_finish(rig->scheduler, low, SEQUENCE_FINISHED_ABORTED);
  for (int i = 0; i < 2; i++) rig->requests[1 + i].priority = i == 0 ? 5 : -5;
  group_t *bad = rig_add(rig, 8, 20, 2), *good = rig_add(rig, 8, 20, 3);
  ASSERT_EQ(rig->scheduler->waiting.queue.head, good);
  rig_step(rig);
  rig_commit(rig, 1);
  rig_step(rig); /* both need a third block, one is free: the worse one goes */
  ASSERT_EQ(bad->sequence.status, SEQUENCE_WAITING);
  ASSERT_EQ(good->sequence.status, SEQUENCE_RUNNING);
  ASSERT_EQ(rig_chunk(rig, good), 1);
  rig_free(rig);
}

/* A request of two choices needs two rows, and preempted requests behind it hold all rows but one.
 * It would wait for ever if they could not overtake it. */
Test(scheduler, a_preempted_request_that_holds_a_row_overtakes_one_that_needs_it) {
  scheduler_options_t options = rig_options(2, 32, 32);
  options.priority_policy = true;
  rig_t *rig = rig_new(&options, 6, 4, false); /* 5 blocks */
  group_t *first = rig_add(rig, 8, 20, 1), *held = rig_add(rig, 8, 20, 2);
  rig_step(rig);
  rig_commit(rig, 9);
  rig_step(rig); /* both need a third block, one is free */
  ASSERT_EQ(held->sequence.status, SEQUENCE_WAITING);
  rig->requests[2].priority = -5;
  group_t *pair = rig_add_several(rig, 4, 4, 3, 2);
  ASSERT_EQ(rig->scheduler->waiting.queue.head, pair);
  scheduler_finish(rig->scheduler, first, SEQUENCE_FINISHED_LENGTH_CAPPED);
  ASSERT_EQ_FOR(rig->scheduler->num_free_rows, 7, "the eighth row is that of `held`");
  rig->scheduler->num_free_rows = 1; /* as if further preempted requests held two rows */
  rig_step(rig);
  rig->scheduler->num_free_rows = 7;
  ASSERT_EQ(held->sequence.status, SEQUENCE_RUNNING);
  ASSERT_EQ(pair->sequence.status, SEQUENCE_WAITING);
  rig_free(rig);
}

Test(scheduler, a_wrong_expectation_prints_both_plans) {
  scheduler_options_t options = rig_options(4, 32, 32);
  rig_t *rig = rig_new(&options, 20, 4, false);
  group_t *first = rig_add(rig, 8, 4, 1), *second = rig_add(rig, 5, 4, 2);
  rig_step(rig);
  const expected_chunk_t right[] = {CHUNK(first, 8), CHUNK(second, 5)};
  const expected_chunk_t wrong[] = {CHUNK(first, 8), CHUNK(second, 4)};
  ASSERT_EQ(plan_difference(rig, right, 2), NULL);
  ASSERT_STR_EQ(plan_difference(rig, wrong, 2),
                "plan is first 8, second 5; expected first 8, second 4");
  rig_free(rig);
}

Test(scheduler, a_repeated_prompt_is_reused_up_to_its_last_token) {
  scheduler_options_t options = rig_options(4, 64, 128);
  const int32_t prompts[] = {77, 65, 64, 17, 16, 1};
  const int32_t cached[] = {76, 64, 63, 16, 15, 0}; /* full blocks of 16 and a run of rows */
  for (int i = 0; i < 6; i++) {
    rig_t *rig = rig_new(&options, 64, 16, true);
    for (int turn = 0; turn < 2; turn++) {
      group_t *g = rig_add(rig, prompts[i], 4, 1);
      while (g->sequence.num_computed_tokens < prompts[i]) {
        rig_step(rig);
        rig_commit(rig, 5);
      }
      cr_assert(g->sequence.num_cached_tokens == (turn ? cached[i] : 0), "prompt %d: %d cached",
                prompts[i], g->sequence.num_cached_tokens);
      if (turn == 0) scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_STOPPED);
      block_pool_check(rig->pool);
    }
    rig_free(rig);
  }
}

Test(scheduler, another_salt_never_hits) {
  scheduler_options_t options = rig_options(4, 64, 128);
  rig_t *rig = rig_new(&options, 64, 16, true);
  for (int i = 0; i < 3; i++) {
    rig->requests[i].salt = i == 2 ? 99 : 0;
    group_t *g = rig_add(rig, 40, 4, 1);
    rig_step(rig);
    rig_commit(rig, 5);
    ASSERT_EQ(g->sequence.num_cached_tokens, (i == 1 ? 39 : 0));
  }
  rig_free(rig);
}

Test(scheduler, a_twin_waits_for_the_blocks_that_another_fills) {
  scheduler_options_t options = rig_options(4, 24, 128);
  rig_t *rig = rig_new(&options, 64, 16, true);
  group_t *a = rig_add(rig, 40, 4, 1), *b = rig_add(rig, 40, 4, 1);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(a, 24), CHUNK(b, 0));
  rig_commit(rig, 5);
  rig_step(rig); /* block 0 is valid, block 1 has 8 rows */
  ASSERT_EQ(a->sequence.blocks[0], b->sequence.blocks[0]);
  ASSERT_EQ(a->sequence.blocks[1], b->sequence.blocks[1]);
  ASSERT_NE_FOR(a->sequence.blocks[2], b->sequence.blocks[2], "partial blocks stay private");
  ASSERT_EQ(rig->pool->num_free, 63 - 4);
  ASSERT_PLAN(rig, CHUNK(a, 16), CHUNK(b, 0));
  rig_commit(rig, 5);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(a, 1), CHUNK(b, 8));
  ASSERT_EQ(b->sequence.num_cached_tokens, 32);
  block_pool_check(rig->pool);
  rig_commit(rig, 5);
  rig_free(rig);
}

/* Beams compute a prompt of six blocks; another request has claimed two of these, and fills them
 * late. Whichever beam finds its blocks filled, all of them get these: they share those behind. */
Test(scheduler, beams_exchange_what_has_a_twin_together) {
  scheduler_options_t options = rig_options(4, 12, 128);
  options.reserve_full = false;
  options.long_prefill_token_threshold = 8;
  rig_t *rig = rig_new(&options, 64, 4, true);
  group_t *beams = rig_add_several(rig, 24, 8, 1, 2), *other = rig_add(rig, 18, 4, 1);
  for (int i = 0; i < 3; i++) {
    rig_step(rig);
    rig_commit(rig, 5);
  }
  const sequence_t *first = &beams->sequence, *second = first->next;
  ASSERT_EQ(other->sequence.num_computed_tokens, 16);
  ASSERT_NE_FOR(first->blocks[3], other->sequence.blocks[3], "the twin was filled later");
  rig_step(rig);
  scheduler_publish(rig->scheduler, first->entry);
  ASSERT_IDS_EQ(&first->blocks[2], &other->sequence.blocks[2], 2);
  ASSERT_IDS_EQ(second->blocks, first->blocks, 6);
  scheduler_finish(rig->scheduler, other, SEQUENCE_FINISHED_STOPPED);
  rig_end_sequence(rig, &beams->sequence, SEQUENCE_FINISHED_STOPPED);
  block_pool_check(rig->pool);
  for (int32_t i = 0; i < 6; i++) EXPECT_EQ(rig->pool->blocks[second->blocks[i]].ref_count, 1);
  while (block_allocate(rig->pool) > 0) continue; /* every block that is free can be taken */
  rig_free(rig);
}

Test(scheduler, when_a_filler_leaves_the_first_sharer_goes_on) {
  for (int keep = 0; keep < 2; keep++) {
    scheduler_options_t options = rig_options(4, 24, 128);
    rig_t *rig = rig_new(&options, 64, 16, true);
    group_t *a = rig_add(rig, 40, 4, 1), *b = rig_add(rig, 40, 4, 1), *c = rig_add(rig, 40, 4, 1);
    rig_step(rig);
    rig_commit(rig, 5);
    rig_step(rig); /* b and c are admitted behind the 16 tokens that a still has */
    ASSERT_EQ(c->sequence.status, SEQUENCE_RUNNING);
    ASSERT_EQ(rig_chunk(rig, c), 0);
    scheduler_finish(rig->scheduler, a, SEQUENCE_FINISHED_ABORTED);
    if (!keep) scheduler_finish(rig->scheduler, b, SEQUENCE_FINISHED_ABORTED);
    group_t *heir = keep ? b : c;
    block_pool_check(rig->pool);
    rig_step(rig);
    ASSERT_EQ_FOR(rig_chunk(rig, heir), 24, "from the block that was not full");
    if (keep) ASSERT_EQ(rig_chunk(rig, c), 0);
    rig_commit(rig, 5);
    rig_step(rig);
    if (keep) {
      ASSERT_EQ(rig_chunk(rig, c), 8);
      ASSERT_EQ(c->sequence.num_cached_tokens, 32);
    }
    scheduler_finish(rig->scheduler, b->sequence.row >= 0 ? b : c, SEQUENCE_FINISHED_ABORTED);
    if (keep) scheduler_finish(rig->scheduler, c, SEQUENCE_FINISHED_ABORTED);
    block_pool_check(rig->pool);
    ASSERT_EQ(rig->pool->num_free, 63);
    rig_free(rig);
  }
}

Test(scheduler, a_scoring_request_may_fill_the_whole_context) {
  scheduler_options_t options = rig_options(2, 16, 32);
  rig_t *rig = rig_new(&options, 16, 4, true);
  group_t *g = rig_add(rig, 32, 0, 1);
  for (int i = 0; i < 2; i++) {
    rig_step(rig);
    ASSERT_EQ(rig_chunk(rig, g), 16);
    cr_assert(!entry_of(rig, g)->do_sample);
    rig_commit(rig, 5);
  }
  ASSERT_EQ(g->sequence.num_computed_tokens, 32);
  rig_free(rig);
}

/* ---- random drive ---- */

static void check_plan(const rig_t *rig, const scheduler_options_t *o) {
  const batch_t *b = rig->batch;
  ASSERT_LE(b->num_tokens, o->max_num_batched_tokens);
  ASSERT_LE(b->num_reqs, o->max_num_seqs);
  ASSERT_LE(rig->scheduler->running.count, o->max_num_seqs);
  for (int32_t t = 0; t < b->num_tokens; t++) {
    ASSERT_GE_FOR(b->slot_mapping[t], b->block_size, "the null block is never written");
    for (int32_t u = 0; u < t; u++) ASSERT_NE(b->slot_mapping[t], b->slot_mapping[u]);
  }
  block_pool_check(rig->pool);
}

/* Writes into a block must never reach a block that somebody else reads at other positions. */
static void check_writers(const rig_t *rig) {
  const batch_t *b = rig->batch;
  for (int32_t t = 0; t < b->num_tokens; t++) {
    int32_t block = (int32_t)(b->slot_mapping[t] / b->block_size);
    const block_t *record = &rig->pool->blocks[block];
    const sequence_t *writer = rig->scheduler->plan.entries[b->request_row[t]].sequence;
    if (record->filler) {
      ASSERT_EQ_FOR(record->filler, writer, "a block is written by another than its filler");
    } else {
      cr_assert(!record->identity.keyed, "a full block is written again");
      ASSERT_EQ_FOR(record->ref_count, 1, "a shared block is written");
    }
  }
}

/* Ends what is complete, and now and then what is not. Returns how many groups ended. */
static int end_some(rig_t *rig, uint64_t *state) {
  int ended = 0;
  for (int i = 0; i < rig->count; i++) {
    group_t *g = &rig->groups[i];
    if (!g->queue) continue;
    if (next_random(state) % 200 == 0) {
      scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_ABORTED);
      ended++;
      continue;
    }
    int live = 0;
    for (sequence_t *q = &g->sequence; q; q = q->next) {
      int32_t most = rig->requests[i].params.max_tokens - q->index % 3;
      bool done = sequence_is_live(q) && q->num_output_tokens >= (most > 1 ? most : 1);
      if (done) rig_end_sequence(rig, q, SEQUENCE_FINISHED_LENGTH_CAPPED);
      live += q->status == SEQUENCE_NEW || sequence_is_live(q);
    }
    if (live > 0) continue;
    scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_LENGTH_CAPPED);
    ended++;
  }
  return ended;
}

Test(scheduler, random_drive_keeps_every_invariant) {
  for (uint64_t seed = 1; seed <= 120; seed++) {
    uint64_t state = seed;
    scheduler_options_t options = rig_options(1 + (int)(next_random(&state) % 6), 24, 48);
    options.long_prefill_token_threshold = next_random(&state) % 2 ? 5 : 0;
    options.short_prompts_pass = next_random(&state) % 2;
    options.priority_policy = next_random(&state) % 2;
    options.reserve_full = next_random(&state) % 4 != 0;
    int blocks = 14 + (int)(next_random(&state) % 20);
    rig_t *rig = rig_new(&options, blocks, 4, next_random(&state) % 8 != 0);
    int finished = 0;
    for (int step = 0; step < 4000 && finished < SUPPORT_GROUPS; step++) {
      if (rig->count < SUPPORT_GROUPS && next_random(&state) % 3 == 0) {
        rig->requests[rig->count].priority = next_random(&state) % 3;
        int n = 1 + (int)(next_random(&state) % (uint32_t)options.max_num_seqs);
        int prompt = 1 + (int)(next_random(&state) % 30),
            most = 1 + (int)(next_random(&state) % 16);
        int need = prompt / 4 + n * ((prompt + most + 3) / 4 - prompt / 4);
        rig_add_several(rig, prompt, most, (int)(next_random(&state) % 3), need < blocks ? n : 1);
      }
      rig_step(rig);
      check_plan(rig, &options);
      check_writers(rig);
      rig_commit(rig, (int)(next_random(&state) % 2));
      finished += end_some(rig, &state);
      block_pool_check(rig->pool);
    }
    cr_assert(finished == SUPPORT_GROUPS, "seed %d: only %d requests finished", (int)seed,
              finished);
    ASSERT_EQ_FOR(rig->pool->num_free, rig->pool->num_blocks - 1, "seed %d: blocks leaked",
                  (int)seed);
    ASSERT_EQ(rig->scheduler->num_free_rows, rig->scheduler->num_rows);
    rig_free(rig);
  }
}

/* Pages of this process's addresses. */
static long count_pages(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  cr_assert(file != NULL && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  return pages;
}

/* Both tables have 64 MiB; a sanitizer of leaks knows nothing of pages. */
Test(scheduler, its_tables_are_given_back) {
  enum { TOKENS = 1 << 20, TIMES = 20 };
  const scheduler_options_t options = rig_options(4, 8, TOKENS);
  rig_free(rig_new(&options, 8, 1, false));
  const long before = count_pages();
  for (int i = 0; i < TIMES; i++) rig_free(rig_new(&options, 8, 1, false));
  ASSERT_LT(count_pages() - before, TIMES / 2 * (64 << 20) / 4096);
}
