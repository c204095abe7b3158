/* test_slo.c: the order by size and age, what is too late, and how many may decode. */
#include "engine/schedule/state/snapshots.h"
#include "engine/schedule/table.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

static const double MS = 1e6; /* ns */

/* One sequence runs at a time; a token of a prompt costs 1 ms, and nothing else costs anything. A
 * prompt of n tokens counts as 10 n ms later than it came. */
static rig_t *rig_with(int32_t max_num_seqs, double step_ns) {
  scheduler_options_t options = rig_options(max_num_seqs, 512, 1000);
  options.ageing = 10;
  options.pace = (pace_options_t){.step_ns = step_ns, .bounds_admission = step_ns > 0};
  rig_t *rig = rig_new(&options, 1000, 4, true);
  rig->scheduler->cost = (cost_t){.ns = {[COST_TOKEN] = 1 * MS}, .num_steps = 1000};
  return rig;
}

static group_t *add(rig_t *rig, double arrival_ms, int32_t prompt_tokens) {
  rig->requests[rig->count].arrival_ns = (uint64_t)(arrival_ms * MS);
  return rig_add(rig, prompt_tokens, 1, rig->count);
}

/* The number of the group that runs next, among those that were added. */
static int next_of(rig_t *rig) {
  rig_step(rig);
  int found = -1;
  for (int i = 0; i < rig->count; i++) {
    if (rig->groups[i].queue == &rig->scheduler->running) found = i;
  }
  rig_commit(rig, 1);
  scheduler_finish(rig->scheduler, &rig->groups[found], SEQUENCE_FINISHED_STOPPED);
  return found;
}

/* The number of the group that is late, with a limit of 50 ms; -1 = none is. */
static int late_at(const rig_t *rig, double now_ms) {
  const group_t *late = scheduler_find_late(rig->scheduler, (uint64_t)(now_ms * MS), 50 * MS);
  return late != NULL ? (int)(late - rig->groups) : -1;
}

Test(slo, short_prompts_go_first_but_none_waits_for_those_that_come_late) {
  rig_t *rig = rig_with(1, 0);
  add(rig, 0, 100); /* counts as of 1000 ms */
  add(rig, 1, 50);  /* of 501 */
  add(rig, 2, 8);   /* of 82 */
  add(rig, 600, 8); /* of 680 */
  add(rig, 930, 8); /* of 1010: more than 10 times 100 - 8 tokens later than the first */
  const int order[] = {2, 1, 3, 0, 4};
  for (int i = 0; i < 5; i++) EXPECT_EQ_FOR(next_of(rig), order[i], "turn %d", i);
  rig_free(rig);
}

Test(slo, without_ageing_they_go_by_arrival) {
  rig_t *rig = rig_with(1, 0);
  rig->scheduler->options.ageing = 0;
  add(rig, 0, 100);
  add(rig, 1, 50);
  EXPECT_EQ(next_of(rig), 0);
  EXPECT_EQ(next_of(rig), 1);
  rig_free(rig);
}

/* The second prompt is as long as the third, and the cache has all but its last block. */
Test(slo, what_the_cache_has_does_not_count) {
  rig_t *rig = rig_with(1, 0);
  group_t *first = add(rig, 0, 64);
  EXPECT_EQ(next_of(rig), 0);
  (void)first;
  block_key_t keys[2][16];
  for (int i = 1; i < 3; i++) {
    request_t *request = &rig->requests[rig->count];
    int32_t seed = i == 1 ? 1 : 0; /* the second has other ids, the third those of the first */
    for (int32_t at = 0; at < 64; at++) rig->ids[rig->count][at] = seed * 1000 + at;
    prefix_keys(rig->pool, 0, rig->ids[rig->count], 16, keys[i - 1]);
    request->prompt_keys = keys[i - 1];
    request->arrival_ns = 1000000;
    rig_add(rig, 64, 1, seed);
  }
  EXPECT_EQ(next_of(rig), 2);
  EXPECT_EQ(next_of(rig), 1);
  rig_free(rig);
}

/* A state is known behind a snapshot alone, so the blocks behind the last one are computed again.
 */
Test(slo, with_states_what_stands_before_a_snapshot_does_not_count) {
  enum { BLOCK = 4, TOKENS = 64 };
  rig_t *rig = rig_with(1, 0);
  snapshots_t *snapshots;
  inferd_error_t error;
  block_key_t keys[TOKENS / BLOCK];
  add(rig, 0, TOKENS);
  EXPECT_EQ(next_of(rig), 0);
  for (int32_t at = 0; at < TOKENS; at++) rig->ids[1][at] = at;
  prefix_keys(rig->pool, 0, rig->ids[1], TOKENS / BLOCK, keys);
  rig->requests[1].prompt_keys = keys;
  const group_t *group = rig_add(rig, TOKENS, 1, 0);
  ASSERT_EQ(snapshots_new(2, 100, rig->pool, &snapshots, &error), 0);
  EXPECT_EQ(table_count_cached(rig->scheduler, &group->sequence), TOKENS - BLOCK);
  rig->pool->snapshots = snapshots;
  rig->scheduler->options.has_states = true;
  EXPECT_EQ(table_count_cached(rig->scheduler, &group->sequence), 0);
  for (int32_t count = 8; count < TOKENS / BLOCK; count += 7) {
    const int32_t block = prefix_find_key(rig->pool, &keys[count - 1]);
    ASSERT_GT(snapshots_attach(snapshots, snapshots_take(snapshots), block), 0);
    EXPECT_EQ(table_count_cached(rig->scheduler, &group->sequence), count * BLOCK);
  }
  rig->pool->snapshots = NULL;
  snapshots_free(snapshots);
  rig_free(rig);
}

Test(slo, a_first_token_is_late_if_the_rest_of_its_prompt_takes_too_long) {
  rig_t *rig = rig_with(1, 0);
  group_t *runs = add(rig, 0, 600), *waits = add(rig, 10, 700);
  rig_step(rig); /* 512 of 600 tokens */
  rig_commit(rig, 1);
  ASSERT_EQ(runs->sequence.status, SEQUENCE_RUNNING);
  ASSERT_EQ(waits->sequence.status, SEQUENCE_WAITING);
  /* Alone they take 600 and 700 ms, so they have three times as long, from 0 and from 10 ms on. */
  EXPECT_EQ(late_at(rig, 1409), -1);
  EXPECT_EQ(late_at(rig, 1410), 1);
  scheduler_finish(rig->scheduler, waits, SEQUENCE_FINISHED_ABORTED);
  EXPECT_EQ(late_at(rig, 1711), -1);
  EXPECT_EQ(late_at(rig, 1712), 0); /* 88 tokens are left */
  scheduler_note_first(rig->scheduler, runs);
  EXPECT_EQ(late_at(rig, 9999), -1);
  rig_free(rig);
}

/* With a limit of 50 ms. A decode takes 1 ms of each step of 11 ms, so a prompt gets 10 tokens of
 * each; and it is looked at four steps before the limit. */
Test(slo, what_will_be_late_beside_the_decodes_ends_before_its_time) {
  rig_t *rig = rig_with(4, 11 * MS);
  rig->scheduler->options.chunked_prefill = true;
  group_t *decodes = add(rig, 0, 4);
  rig_step(rig);
  rig_commit(rig, 1);
  scheduler_note_first(rig->scheduler, decodes);
  rig_step(rig);
  ASSERT_EQ(rig->scheduler->pace.num_decoding, 1);
  add(rig, 100, 8);  /* one step */
  add(rig, 100, 15); /* two steps */
  EXPECT_EQ(late_at(rig, 127), -1);
  EXPECT_EQ(late_at(rig, 128), 2);
  scheduler_finish(rig->scheduler, &rig->groups[2], SEQUENCE_FINISHED_ABORTED);
  EXPECT_EQ(late_at(rig, 138), -1);
  EXPECT_EQ(late_at(rig, 139), 1);
  rig_free(rig);
}

Test(slo, by_arrival_nobody_is_late_once_it_runs) {
  rig_t *rig = rig_with(1, 0);
  rig->scheduler->options.ageing = 0;
  add(rig, 0, 600);
  rig_step(rig);
  EXPECT_EQ(late_at(rig, 9999), -1);
  rig_free(rig);
}

/* Of steps that took 14 ms of their 10, and 3: what was too much is taken from the next ones. */
Test(slo, a_step_that_took_longer_makes_the_next_ones_shorter) {
  const struct {
    double took_ms, next_ms;
  } steps[] = {{14, 6}, {7, 9}, {3, 10}, {10, 10}, {30, 5}, {10, 5}, {8, 7}};
  rig_t *rig = rig_with(4, 10 * MS);
  add(rig, 0, 4);
  rig_step(rig);
  rig_commit(rig, 1);
  for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
    rig_step(rig);
    rig->scheduler->plan.copies_floor = true; /* its time is not that of its tokens */
    scheduler_note_time(rig->scheduler, &rig->scheduler->plan, steps[i].took_ms * MS);
    rig_commit(rig, 1);
    rig_step(rig);
    EXPECT_EQ_FOR(rig->scheduler->pace.step_ns, steps[i].next_ms * MS, "step %zu", i);
    rig_commit(rig, 1);
  }
  rig_free(rig);
}

/* A decode costs 1 ms, so five of them fit into a step, and six do not. */
Test(slo, no_more_are_admitted_than_can_decode_within_the_step) {
  rig_t *rig = rig_with(16, 5.5 * MS);
  for (int i = 0; i < 8; i++) add(rig, i, 4);
  for (int i = 0; i < 3; i++) {
    rig_step(rig);
    EXPECT_EQ(rig->scheduler->running.count, 5);
  }
  scheduler_finish(rig->scheduler, rig->scheduler->running.head, SEQUENCE_FINISHED_STOPPED);
  rig_step(rig);
  EXPECT_EQ(rig->scheduler->running.count, 5);
  rig_free(rig);
}

/* One that alone takes longer runs alone. */
Test(slo, one_always_runs) {
  rig_t *rig = rig_with(16, 0.5 * MS);
  for (int i = 0; i < 3; i++) add(rig, i, 4);
  rig_step(rig);
  EXPECT_EQ(rig->scheduler->running.count, 1);
  rig_free(rig);
}

/* The pool has blocks for the short prompt when it is let in, but not for the next chunk of the
 * long one as well. So it leaves again in the same plan, and has computed nothing. */
Test(slo, who_is_admitted_in_vain_keeps_its_place) {
  scheduler_options_t options = rig_options(8, 64, 1000);
  options.ageing = 10;
  options.short_prompts_pass = true;
  options.reserve_full = false;
  rig_t *rig = rig_new(&options, 1000, 4, false);
  rig->scheduler->cost = (cost_t){.ns = {[COST_TOKEN] = 1 * MS}, .num_steps = 1000};
  add(rig, 0, 200);
  rig_step(rig);
  rig_commit(rig, 1);
  while (rig->pool->num_free > 15) block_allocate(rig->pool);
  group_t *in_vain = add(rig, 1, 32);
  rig_step(rig);
  ASSERT_EQ(rig->scheduler->plan.num_preempted, 1);
  ASSERT_EQ(in_vain->sequence.status, SEQUENCE_WAITING);
  EXPECT_EQ(in_vain->key, (uint64_t)(321 * MS));
  rig_free(rig);
}

Test(slo, who_is_preempted_after_it_computed_comes_first) {
  rig_t *rig = rig_with(2, 0);
  group_t *first = add(rig, 0, 500), *second = add(rig, 1, 8);
  rig_step(rig);
  rig_commit(rig, 1);
  while (rig->pool->num_free > 0) block_allocate(rig->pool);
  for (int i = 0; i < 5 && rig->scheduler->num_preemptions == 0; i++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
  const group_t *victim = first->num_preemptions > 0 ? first : second;
  ASSERT_EQ(rig->scheduler->num_preemptions, 1);
  EXPECT_EQ(victim->key, 0);
  rig_free(rig);
}

/* A prompt of 1000 tokens is computed, 64 tokens a step, and passed by shorter ones. */
Test(slo, what_is_passed_keeps_a_quarter) {
  scheduler_options_t options = rig_options(8, 64, 1024);
  options.ageing = 10;
  options.short_prompts_pass = true;
  rig_t *rig = rig_new(&options, 1000, 4, false);
  rig->scheduler->cost = (cost_t){.ns = {[COST_TOKEN] = 1 * MS}, .num_steps = 1000};
  group_t *longest = add(rig, 0, 1000);
  rig_step(rig);
  rig_commit(rig, 1);
  group_t *other = add(rig, 1, 900);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(other, 48), CHUNK(longest, 16));
  rig_free(rig);
}

/* A step of 25 ms, in which a client has 2 ms beside others, or half of what decodes leave: that is
 * 12 ms, as one decode takes 1 ms. */
Test(slo, a_prompt_gets_half_of_what_decodes_leave_beside_other_clients) {
  const struct {
    double ageing;
    int32_t tokens;
  } cases[] = {{0, 4}, {10, 12}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    rig_t *rig = rig_with(8, 0);
    rig->scheduler->options.pace = (pace_options_t){.step_ns = 25 * MS, .client_ns = 2 * MS};
    rig->scheduler->options.fair_share = true;
    rig->scheduler->options.ageing = cases[i].ageing;
    rig->requests[0].tenant = 1;
    group_t *stream = add(rig, 0, 4);
    rig_step(rig);
    rig_commit(rig, 1);
    rig->requests[1].tenant = 2;
    group_t *prompt = add(rig, 1, 500);
    rig_step(rig);
    EXPECT_EQ(rig_chunk(rig, stream), 1);
    EXPECT_EQ_FOR(rig_chunk(rig, prompt), cases[i].tokens, "ageing %g", cases[i].ageing);
    rig_free(rig);
  }
}

/* Those above 20 tokens may take in proportion longer than the limit of 50 ms. */
Test(slo, a_longer_prompt_may_take_longer) {
  rig_t *rig = rig_with(1, 0);
  rig->scheduler->options.queue_time_tokens = 20;
  add(rig, 0, 20);
  add(rig, 0, 40);
  rig->scheduler->cost.ns[COST_TOKEN] = 0.1 * MS;
  EXPECT_EQ(late_at(rig, 49.9), -1);
  EXPECT_EQ(late_at(rig, 50), 0);
  scheduler_finish(rig->scheduler, &rig->groups[0], SEQUENCE_FINISHED_ABORTED);
  EXPECT_EQ(late_at(rig, 95.9), -1);
  EXPECT_EQ(late_at(rig, 96), 1);
  rig_free(rig);
}
