/* test_progress.c: no request waits for ever: rows, forks and drafts that once kept others out.
 *
 * Each test is the smallest form of a deadlock or a starvation that the simulator has found.
 */
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

static bool runs(const group_t *g) {
  return g->sequence.status == SEQUENCE_RUNNING;
}

static void step(rig_t *rig) {
  rig_step(rig);
  rig_commit(rig, 1);
  block_pool_check(rig->pool);
}

static void run_until_preempted(rig_t *rig, const group_t *g) {
  for (int i = 0; i < 100 && g->num_preemptions == 0; i++) step(rig);
  ASSERT_GT(g->num_preemptions, 0);
  cr_assert(!runs(g));
}

static group_t *add_with_priority(rig_t *rig, int32_t prompt, int32_t seed, int32_t n,
                                  int64_t priority) {
  rig->requests[rig->count].priority = priority;
  return rig_add_several(rig, prompt, 60, seed, n);
}

static void end(rig_t *rig, group_t *g) {
  scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_LENGTH_CAPPED);
}

/* The first lacks the rows that the last hold; these may pass it, but not the one in between, which
 * has its rows and may not pass the first. */
Test(progress, three_that_bar_each_other_go_on) {
  scheduler_options_t options = rig_options(4, 64, 128);
  options.priority_policy = true;
  rig_t *rig = rig_new(&options, 17, 4, false);
  group_t *urgent = add_with_priority(rig, 4, 1, 1, 0);
  group_t *a = add_with_priority(rig, 40, 2, 3, 5);
  run_until_preempted(rig, a);
  group_t *b = add_with_priority(rig, 36, 3, 3, 4);
  run_until_preempted(rig, b);
  end(rig, urgent);
  ASSERT_EQ(rig->scheduler->running.count, 0);
  rig->scheduler->num_free_rows -= 8; /* as if other preempted ones held them */
  ASSERT_EQ(rig->scheduler->num_free_rows, 2);
  group_t *first = add_with_priority(rig, 4, 4, 3, 1), *second = add_with_priority(rig, 4, 5, 2, 2);
  ASSERT_EQ(rig->scheduler->waiting.queue.head, first);
  ASSERT_EQ(first->next, second);
  for (int i = 0; i < 400 && rig->scheduler->waiting.queue.count + rig->scheduler->running.count;
       i++) {
    step(rig);
    ASSERT_GT_FOR(rig->scheduler->running.count, 0, "all %d wait for each other",
                  rig->scheduler->waiting.queue.count);
    for (group_t *g = rig->scheduler->running.head, *next; g; g = next) {
      next = g->next;
      if (g->forked && g->sequence.num_output_tokens >= 8) end(rig, g);
    }
  }
  cr_assert(!a->queue);
  cr_assert(!b->queue);
  cr_assert(!first->queue);
  cr_assert(!second->queue);
  rig_free(rig);
}

/* A preempted group of forks has more to compute again than one step takes, and fits into the pool
 * only if they share what they have in common, with a cache or without. */
Test(progress, preempted_forks_come_back) {
  for (int caching = 0; caching < 2; caching++) {
    scheduler_options_t options = rig_options(4, 48, 64);
    options.chunked_prefill = false;
    options.priority_policy = true;
    rig_t *rig = rig_new(&options, 17, 4, caching == 1);
    group_t *urgent = add_with_priority(rig, 4, 1, 1, 0);
    group_t *forks = add_with_priority(rig, 40, 2, 3, 5);
    run_until_preempted(rig, forks);
    int32_t known = sequence_num_tokens(&forks->sequence);
    cr_assert(3 * known > 48 && 3 * ((known + 3) / 4) > 16, "%d tokens", known);
    end(rig, urgent);
    for (int i = 0; i < 10 && sequence_num_tokens(&forks->sequence) == known; i++) step(rig);
    ASSERT_GT_FOR(sequence_num_tokens(&forks->sequence), known, "they wait for ever");
    rig_free(rig);
  }
}

/* One choice stopped while a further token of it was in flight, which never lands. */
Test(progress, a_choice_that_ended_in_flight_keeps_nobody_waiting) {
  scheduler_options_t options = rig_options(4, 64, 64);
  options.priority_policy = true;
  rig_t *rig = rig_new(&options, 17, 4, false);
  group_t *urgent = add_with_priority(rig, 4, 1, 1, 0);
  group_t *forks = add_with_priority(rig, 40, 2, 2, 5);
  step(rig);
  rig_step(rig);
  sequence_t *ended = forks->sequence.next;
  ASSERT_EQ(ended->num_in_flight_tokens, 1);
  rig_end_sequence(rig, ended, SEQUENCE_FINISHED_STOPPED);
  plan_t *plan = &rig->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (!plan_entry_live(&plan->entries[i])) plan->entries[i] = plan->entries[--plan->num_entries];
  }
  rig_commit(rig, 1);
  run_until_preempted(rig, forks);
  end(rig, urgent);
  step(rig);
  cr_assert(runs(forks));
  rig_free(rig);
}

/* With few tokens in a step, draft tokens of the first ones would take all of them. */
Test(progress, drafts_leave_a_token_for_every_sequence) {
  scheduler_options_t options = rig_options(4, 7, 64);
  options.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 2};
  rig_t *rig = rig_new(&options, 65, 4, false);
  group_t *g[4];
  for (int i = 0; i < 4; i++) g[i] = rig_add(rig, 1, 40, i + 1);
  step(rig);
  bool drafted = false;
  for (int i = 0; i < 30; i++) {
    if (i == 15) { /* room for drafts */
      end(rig, g[2]);
      end(rig, g[3]);
    }
    int32_t rows = rig_step(rig), running = i < 15 ? 4 : 2;
    cr_assert(rows == running, "step %d: %d of %d get a token", i, rows, running);
    for (int32_t r = 0; r < rows; r++) {
      plan_entry_t *entry = &rig->scheduler->plan.entries[r];
      drafted = drafted || entry->num_drafts > 0;
      scheduler_reject(entry, entry->num_drafts);
      entry->sequence->num_in_flight_tokens -= entry->num_drafts;
      entry->num_drafts = 0;
    }
    rig_commit(rig, 1);
  }
  cr_assert(drafted, "no sequence has drafted");
  rig_free(rig);
}
