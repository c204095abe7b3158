/* test_fairness.c: bounded overtaking, protection after repeated preemption, fair shares. */
#include "engine/quota.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

static bool runs(const group_t *g) {
  return g->sequence.status == SEQUENCE_RUNNING;
}

static void end(rig_t *rig, group_t *g) {
  scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_LENGTH_CAPPED);
}

Test(fairness, one_that_does_not_fit_is_passed_a_few_times_and_no_more) {
  scheduler_options_t options = rig_options(8, 64, 128);
  options.max_skips = 3;
  rig_t *rig = rig_new(&options, 21, 4, false); /* 20 blocks */
  group_t *holder = rig_add(rig, 40, 8, 1);
  rig_step(rig);
  rig_commit(rig, 1);
  group_t *large = rig_add(rig, 60, 8, 2); /* 15 blocks of the 10 left */
  group_t *small[5];
  for (int i = 0; i < 5; i++) small[i] = rig_add(rig, 4, 2, 3 + i);
  rig_step(rig);
  cr_assert(!runs(large));
  ASSERT_EQ(large->num_skips, 3);
  for (int i = 0; i < 5; i++) ASSERT_EQ_FOR(runs(small[i]), (i < 3), "request %d", i);
  rig_commit(rig, 1);
  for (int i = 0; i < 3; i++) end(rig, small[i]);
  rig_step(rig);
  cr_assert(!runs(small[3]), "now the queue waits for the large one");
  rig_commit(rig, 1);
  end(rig, holder);
  rig_step(rig);
  cr_assert(runs(large));
  cr_assert(runs(small[3]));
  rig_free(rig);
}

Test(fairness, without_skips_the_order_is_strict) {
  scheduler_options_t options = rig_options(8, 64, 128);
  rig_t *rig = rig_new(&options, 21, 4, false);
  rig_add(rig, 40, 8, 1);
  rig_step(rig);
  rig_commit(rig, 1);
  group_t *large = rig_add(rig, 60, 8, 2), *small = rig_add(rig, 4, 2, 3);
  rig_step(rig);
  cr_assert(!runs(large));
  cr_assert(!runs(small));
  ASSERT_EQ(large->num_skips, 0);
  rig_free(rig);
}

Test(fairness, a_better_priority_is_never_passed_by_a_worse_one) {
  scheduler_options_t options = rig_options(8, 64, 128);
  options.max_skips = 3;
  options.priority_policy = true;
  rig_t *rig = rig_new(&options, 21, 4, false);
  rig_add(rig, 40, 8, 1);
  rig_step(rig);
  rig_commit(rig, 1);
  group_t *large = rig_add(rig, 60, 8, 2);
  rig->requests[2].priority = 1;
  group_t *worse = rig_add(rig, 4, 2, 3), *equal = rig_add(rig, 4, 2, 4);
  ASSERT_EQ(rig->scheduler->waiting.queue.head, large);
  rig_step(rig);
  cr_assert(!runs(large));
  cr_assert(!runs(worse));
  cr_assert(runs(equal));
  rig_free(rig);
}

/* Eight requests that each grow to 10 blocks share 20: without protection some are sent back again
 * and again. */
Test(fairness, who_was_preempted_often_is_protected_and_ends) {
  scheduler_options_t options = rig_options(8, 64, 64);
  options.max_preemptions = 2;
  options.max_skips = 4;
  rig_t *rig = rig_new(&options, 21, 4, false);
  group_t *g[8];
  int most = 0, ended = 0;
  for (int i = 0; i < 8; i++) g[i] = rig_add(rig, 4, 36, i);
  for (int step = 0; step < 2000 && ended < 8; step++) {
    rig_step(rig);
    rig_commit(rig, 1);
    block_pool_check(rig->pool);
    for (int i = 0; i < 8; i++) {
      if (!g[i]->queue) continue;
      if (g[i]->num_preemptions > most) most = g[i]->num_preemptions;
      if (runs(g[i]) && g[i]->num_preemptions >= 2) {
        ASSERT_EQ_FOR(g[i]->sequence.num_blocks, 10, "its worst case is reserved");
      }
      if (g[i]->sequence.num_output_tokens < 36) continue;
      end(rig, g[i]);
      ended++;
    }
  }
  ASSERT_EQ(ended, 8);
  cr_assert(most == 2, "preempted %d times", most);
  rig_free(rig);
}

/* Two tenants ask for the same; the weight of one is 3. */
Test(fairness, a_weight_is_a_larger_share) {
  scheduler_options_t options = rig_options(1, 64, 64);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, 64, 4, false);
  quota_t heavy = {.weight = 3};
  group_t *g[40];
  int served[2] = {0};
  for (int i = 0; i < 40; i++) {
    rig->requests[rig->count].tenant = 1 + (uint64_t)(i >= 20);
    rig->requests[rig->count].quota = i < 20 ? &heavy : NULL;
    g[i] = rig_add(rig, 11, 4, i);
  }
  for (int turn = 0; turn < 12; turn++) {
    rig_step(rig);
    rig_commit(rig, 1);
    for (int i = 0; i < 40; i++) {
      if (!runs(g[i])) continue;
      served[i >= 20]++;
      end(rig, g[i]);
    }
  }
  EXPECT_EQ(served[0], 9);
  EXPECT_EQ(served[1], 3);
  rig_free(rig);
}

Test(fairness, tenants_share_evenly) {
  scheduler_options_t options = rig_options(1, 64, 64);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, 64, 4, false);
  group_t *g[SUPPORT_GROUPS];
  int served[3] = {0};
  /* tenant 1 comes with 30 requests, then 2 and 3 with 6 each, of other sizes */
  for (int i = 0; i < 42; i++) {
    uint64_t tenant = i < 30 ? 1 : i < 36 ? 2 : 3;
    rig->requests[rig->count].tenant = tenant;
    g[i] = rig_add(rig, tenant == 3 ? 28 : 12, tenant == 3 ? 4 : 4, i);
  }
  for (int turn = 0; turn < 15; turn++) {
    rig_step(rig);
    rig_commit(rig, 1);
    for (int i = 0; i < 42; i++) {
      if (!runs(g[i])) continue;
      served[i < 30 ? 0 : i < 36 ? 1 : 2] += rig->requests[i].num_prompt_tokens + 4;
      end(rig, g[i]);
    }
  }
  for (int t = 0; t < 3; t++) cr_assert(served[t] >= 80, "tenant %d got %d tokens", t, served[t]);
  rig_free(rig);
}

/* ---- shares of what runs ---- */

enum { HOSTILE = 1, HONEST = 2 };

static group_t *add_of(rig_t *rig, uint64_t tenant, int32_t prompt, int32_t tokens) {
  rig->requests[rig->count].tenant = tenant;
  return rig_add(rig, prompt, tokens, rig->count);
}

static int count_running_of(const rig_t *rig, uint64_t tenant) {
  int count = 0;
  for (const group_t *g = rig->scheduler->running.head; g != NULL; g = g->next)
    count += g->request->tenant == tenant;
  return count;
}

static void end_complete(rig_t *rig) {
  for (int i = 0; i < rig->count; i++) {
    group_t *g = &rig->groups[i];
    if (g->queue != NULL && g->sequence.num_output_tokens >= g->request->params.max_tokens)
      end(rig, g);
  }
}

static rig_t *rig_full_of_hostile(scheduler_options_t *options, int running, int waiting) {
  options->fair_share = true;
  rig_t *rig = rig_new(options, 2000, 4, true);
  for (int i = 0; i < running + waiting; i++) add_of(rig, HOSTILE, 8, 400);
  rig_step(rig);
  rig_commit(rig, 1);
  ASSERT_EQ(count_running_of(rig, HOSTILE), running);
  return rig;
}

Test(fairness, who_runs_less_than_its_share_gets_a_row_at_once) {
  scheduler_options_t options = rig_options(8, 64, 512);
  rig_t *rig = rig_full_of_hostile(&options, 8, 4);
  group_t *youngest = rig->scheduler->running.tail;
  group_t *chat = add_of(rig, HONEST, 6, 1);
  rig_step(rig);
  cr_assert(runs(chat));
  ASSERT_EQ(rig_chunk(rig, chat), 6);
  cr_assert(!runs(youngest));
  ASSERT_EQ(count_running_of(rig, HOSTILE), 7);
  ASSERT_EQ(rig->scheduler->num_yields, 1);
  rig_commit(rig, 1);
  end_complete(rig);
  rig_step(rig);
  cr_assert(runs(youngest), "who made room comes back first");
  ASSERT_EQ_FOR(rig->scheduler->num_yields, 1, "it takes nothing back");
  rig_free(rig);
}

static void rig_steps(rig_t *rig, int count) {
  for (int i = 0; i < count; i++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
}

/* Three requests of the one client share a prompt, and so the side blocks of its window, too: when
 * all three leave, these are free as well. The other client has its share of the blocks only with
 * them. The fourth request has a better priority than its own, so that stays. */
Test(fairness, side_blocks_that_givers_share_are_room) {
  scheduler_options_t options = rig_options(8, 8, 256);
  options.fair_share = options.priority_policy = true;
  options.window = (window_options_t){.tokens = 36, .in_flight = 8};
  rig_t *rig = rig_new(&options, 1 + 68, 4, true);
  rig->requests[0].priority = -1;
  group_t *stays = add_of(rig, HOSTILE, 75, 400);
  rig_steps(rig, 10);
  for (int i = 0; i < 3; i++) {
    rig->requests[rig->count].tenant = HOSTILE;
    rig_add(rig, 39, 400, 7);
    rig_steps(rig, i == 0 ? 7 : 2); /* until it decodes */
  }
  ASSERT_EQ(count_running_of(rig, HOSTILE), 4);
  group_t *honest = add_of(rig, HONEST, 75, 1);
  rig_step(rig);
  cr_expect(runs(honest));
  cr_expect(runs(stays));
  EXPECT_EQ(count_running_of(rig, HOSTILE), 1);
  rig_free(rig);
}

/* Half of the rows is the share of each: nobody gets more by force. */
Test(fairness, rows_move_up_to_the_share_and_not_further) {
  scheduler_options_t options = rig_options(8, 64, 512);
  rig_t *rig = rig_full_of_hostile(&options, 8, 4);
  for (int i = 0; i < 8; i++) add_of(rig, HONEST, 8, 400);
  for (int step = 0; step < 50; step++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
  EXPECT_EQ(count_running_of(rig, HONEST), 4);
  EXPECT_EQ(count_running_of(rig, HOSTILE), 4);
  EXPECT_EQ_FOR(rig->scheduler->num_yields, 4, "no row moves twice");
  rig_free(rig);
}

/* Weights 3, 1, 1: the share of the first is 2.4 of 4 rows. It makes room for the second, and as it
 * has 3 then, which is more, for the third as well; then it has 2, and for none that comes later.
 */
Test(fairness, who_is_above_its_share_makes_room_until_it_is_not) {
  scheduler_options_t options = rig_options(4, 64, 512);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, 2000, 4, true);
  quota_t heavy = {.weight = 3};
  for (int i = 0; i < 4; i++) {
    rig->requests[i].quota = &heavy;
    add_of(rig, HOSTILE, 8, 400);
  }
  rig_step(rig);
  rig_commit(rig, 1);
  for (uint64_t tenant = 2; tenant <= 3; tenant++) add_of(rig, tenant, 8, 400);
  rig_step(rig);
  ASSERT_EQ(count_running_of(rig, HOSTILE), 2);
  ASSERT_EQ(rig->scheduler->num_yields, 2);
  rig_commit(rig, 1);
  add_of(rig, 2, 8, 400);
  rig_step(rig);
  ASSERT_EQ(count_running_of(rig, HOSTILE), 2);
  ASSERT_EQ(rig->scheduler->num_yields, 2);
  rig_free(rig);
}

Test(fairness, without_fair_shares_nobody_makes_room) {
  scheduler_options_t options = rig_options(4, 64, 512);
  rig_t *rig = rig_full_of_hostile(&options, 4, 4);
  rig_free(rig);
  rig = rig_new(&options, 2000, 4, true);
  rig->scheduler->options.fair_share = rig->scheduler->waiting.fair_share = false;
  for (int i = 0; i < 5; i++) add_of(rig, i < 4 ? HOSTILE : HONEST, 8, 400);
  for (int step = 0; step < 20; step++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
  EXPECT_EQ(rig->scheduler->num_yields, 0);
  EXPECT_EQ(count_running_of(rig, HONEST), 0);
  rig_free(rig);
}

/* A prompt that lacks blocks gets them from who has more than half of them. */
Test(fairness, who_has_less_than_its_share_of_the_blocks_gets_them) {
  scheduler_options_t options = rig_options(8, 256, 512);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, 65, 4, false); /* 64 blocks */
  for (int i = 0; i < 4; i++) add_of(rig, HOSTILE, 60, 4);
  rig_step(rig);
  rig_commit(rig, 1);
  ASSERT_EQ(count_running_of(rig, HOSTILE), 4); /* 60 to 64 blocks */
  group_t *small = add_of(rig, HONEST, 80, 4);
  rig_step(rig);
  cr_assert(runs(small));
  ASSERT_EQ(count_running_of(rig, HOSTILE), 2);
  rig_commit(rig, 1);
  block_pool_check(rig->pool);
  group_t *large = add_of(rig, HONEST, 100, 4);
  rig_step(rig);
  cr_assert(!runs(large), "with it, its tenant would have 45 of 64 blocks");
  rig_free(rig);
}

/* A stream and the chats of one key, beside a full queue of another: the chats do not wait for what
 * their own stream may still ask for. */
Test(fairness, a_long_stream_does_not_delay_the_chats_of_its_client) {
  scheduler_options_t options = rig_options(8, 64, 512);
  rig_t *rig = rig_full_of_hostile(&options, 8, 8);
  add_of(rig, HONEST, 8, 450);
  rig_step(rig);
  rig_commit(rig, 1);
  for (int chat = 0; chat < 40; chat++) {
    group_t *g = add_of(rig, HONEST, 6, 1);
    rig_step(rig);
    cr_assert(runs(g), "chat %d waits", chat);
    for (int step = 0; step < 6; step++) {
      rig_commit(rig, 1);
      end_complete(rig);
      rig_step(rig);
    }
    rig_commit(rig, 1);
  }
  EXPECT_EQ_FOR(rig->scheduler->num_yields, 41, "one for each that came");
  rig_free(rig);
}

/* max_running of a key: no third sequence, and a request of more runs alone. */
Test(fairness, a_key_runs_no_more_than_it_may) {
  scheduler_options_t options = rig_options(8, 64, 128);
  rig_t *rig = rig_new(&options, 400, 4, false);
  quota_t two = {.max_running = 2};
  for (int i = 0; i < 10; i++) rig->requests[i].quota = &two;
  group_t *g[3];
  for (int i = 0; i < 3; i++) g[i] = add_of(rig, HOSTILE, 8, 100);
  group_t *other = &rig->groups[3];
  rig->requests[3].quota = NULL;
  add_of(rig, HONEST, 8, 100);
  rig_step(rig);
  cr_assert(runs(g[0]));
  cr_assert(runs(g[1]));
  cr_assert(!runs(g[2]));
  cr_assert(runs(other));
  rig_commit(rig, 1);
  end(rig, g[0]);
  rig_step(rig);
  cr_assert(runs(g[2]));
  rig_commit(rig, 1);
  rig_free(rig);
}

Test(fairness, a_request_of_more_sequences_than_its_key_may_run_runs_alone) {
  scheduler_options_t options = rig_options(8, 64, 128);
  rig_t *rig = rig_new(&options, 400, 4, false);
  quota_t two = {.max_running = 2};
  rig->requests[0].quota = rig->requests[1].quota = rig->requests[2].quota = &two;
  group_t *one = add_of(rig, HOSTILE, 8, 100);
  rig->requests[1].tenant = HOSTILE;
  group_t *wide = rig_add_several(rig, 8, 100, 4, 4);
  group_t *last = add_of(rig, HOSTILE, 8, 100);
  rig_step(rig);
  cr_assert(runs(one));
  cr_assert(!runs(wide));
  cr_assert(!runs(last));
  rig_commit(rig, 1);
  end(rig, one);
  rig_step(rig);
  cr_assert(runs(wide));
  cr_assert(!runs(last));
  rig_free(rig);
}

/* Where tenants count as equally served the short prompts of one go first, but a place is left for
 * each other tenant that waits: who ends in one step makes room for nobody. */
Test(fairness, who_goes_first_leaves_a_place_to_the_others) {
  for (int32_t tenants = 1; tenants <= 3; tenants++) {
    scheduler_options_t options = rig_options(3, 512, 1000);
    options.fair_share = true;
    options.fair_span = 8192;
    rig_t *rig = rig_new(&options, 1000, 4, true);
    for (int i = 0; i < 4; i++) {
      rig->requests[rig->count].tenant = 1;
      rig_add(rig, 8, 1, rig->count);
    }
    for (int32_t t = 2; t <= tenants; t++) {
      rig->requests[rig->count].tenant = (uint64_t)t;
      rig_add(rig, 40, 1, rig->count);
    }
    rig_step(rig);
    ASSERT_EQ(rig->scheduler->running.count, 3);
    for (int32_t t = 2; t <= tenants; t++)
      ASSERT_EQ_FOR(rig->groups[2 + t].queue, &rig->scheduler->running, "tenant %d of %d", t,
                    tenants);
    rig_free(rig);
  }
}

/* The same of blocks: half of 16 is the share of each. Who found nobody to give it what it lacks,
 * since the others end in one step, goes before the next that is above its share. */
Test(fairness, who_lacked_blocks_goes_before_those_above_their_share) {
  static const int32_t prompts[] = {32, 33};
  for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
    scheduler_options_t options = rig_options(3, 512, 1000);
    options.fair_share = true;
    options.fair_span = 8192;
    rig_t *rig = rig_new(&options, 17, 4, true);
    add_of(rig, HOSTILE, prompts[i], 1);
    add_of(rig, HOSTILE, prompts[i], 1);
    group_t *second = add_of(rig, HONEST, 32, 1);
    rig_step(rig);
    rig_commit(rig, 1);
    end_complete(rig);
    rig_step(rig);
    cr_assert(runs(second) || second->queue == NULL, "%d", prompts[i]);
    block_pool_check(rig->pool);
    rig_free(rig);
  }
}
