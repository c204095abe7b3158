/* test_best_effort.c: who runs by best effort gets what all others leave, and nothing of them. */
#include "engine/quota.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

enum { BLOCK = 4, CLIENT = 1, BATCH = 2 };
static const uint64_t MINUTE_NS = 60000000000;

/* A step costs 1 ms, a row 1 ms, a token 0.1 ms: known, and learned from nothing. */
static rig_t *rig_of(int32_t max_num_seqs, int32_t num_blocks, bool chunked) {
  scheduler_options_t options = rig_options(max_num_seqs, 512, 1000);
  options.fair_share = true;
  options.chunked_prefill = chunked;
  options.pace = (pace_options_t){.step_ns = 30e6, .client_ns = 2e6};
  rig_t *rig = rig_new(&options, num_blocks, BLOCK, false);
  rig->scheduler->cost =
      (cost_t){.ns = {[COST_STEP] = 1e6, [COST_ROW] = 1e6, [COST_TOKEN] = 1e5}, .num_steps = 1000};
  return rig;
}

static group_t *add_of(rig_t *rig, uint64_t tenant, bool best_effort, int32_t prompt,
                       int32_t output) {
  rig->requests[rig->count].tenant = tenant;
  rig->requests[rig->count].arrival_ns = rig->now_ns;
  rig->requests[rig->count].best_effort = best_effort;
  return rig_add(rig, prompt, output, rig->count);
}

static group_t *add_line(rig_t *rig) {
  return add_of(rig, BATCH, true, 4, 400);
}

static group_t *add_chat(rig_t *rig, int32_t prompt) {
  return add_of(rig, CLIENT, false, prompt, 400);
}

static void run(rig_t *rig, int steps) {
  for (int i = 0; i < steps; i++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
}

/* The same, and each step takes its time. */
static void run_timed(rig_t *rig, int steps) {
  for (int i = 0; i < steps; i++) {
    run(rig, 1);
    rig->now_ns += (uint64_t)cost_ns(&rig->scheduler->cost, &rig->scheduler->plan.work);
  }
}

static void end(rig_t *rig, group_t *group) {
  scheduler_finish(rig->scheduler, group, SEQUENCE_FINISHED_STOPPED);
}

/* Entries of the next plan; it is committed. */
static int32_t count_next(rig_t *rig) {
  int32_t count = rig_step(rig);
  rig_commit(rig, 1);
  return count;
}

Test(best_effort, alone_it_has_the_whole_step) {
  rig_t *rig = rig_of(16, 2000, true);
  for (int i = 0; i < 10; i++) add_line(rig);
  run(rig, 1);
  for (int i = 0; i < 5; i++) ASSERT_EQ(count_next(rig), 10);
  rig_free(rig);
}

Test(best_effort, beside_a_prompt_of_others_it_gets_nothing) {
  rig_t *rig = rig_of(16, 2000, true);
  for (int i = 0; i < 10; i++) add_line(rig);
  run(rig, 1);
  group_t *chat = add_chat(rig, 600);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(chat, 512));
  rig_commit(rig, 1);
  rig->now_ns += 52200000; /* what it took */
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(chat, 88));
  rig_commit(rig, 1);
  /* Beside the next ones all lines have half of what these take, 2.1 ms: one of them. */
  for (int i = 0; i < 4; i++) {
    ASSERT_EQ(count_next(rig), 2);
    ASSERT_EQ(rig_chunk(rig, chat), 1);
  }
  rig_free(rig);
}

/* Lines of 1.1 ms, or 1.2. Beside a chat, whose token takes as much, and the reading of the
 * weights, they have half of that time, however late first tokens are; and one line at least.
 */
Test(best_effort, beside_tokens_of_others_it_has_half_of_what_these_take) {
  static const struct {
    double weights_ns, token_ns;
    int32_t prompt, lines;
  } cases[] = {{1e6, 1e5, 600, 1},   {3.2e6, 1e5, 600, 1},  {3.4e6, 1e5, 600, 2},
               {5.4e6, 1e5, 600, 2}, {5.6e6, 1e5, 600, 3},  {3.5e6, 2e5, 600, 1},
               {3.7e6, 2e5, 600, 2}, {16.4e6, 1e5, 600, 7}, {16.6e6, 1e5, 600, 8},
               {3.2e6, 1e5, 4, 1},   {3.4e6, 1e5, 4, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig_t *rig = rig_of(16, 2000, true);
    rig->scheduler->cost.ns[COST_STEP] = cases[i].weights_ns;
    rig->scheduler->cost.ns[COST_TOKEN] = cases[i].token_ns;
    for (int j = 0; j < 10; j++) add_line(rig);
    run(rig, 1);
    group_t *chat = add_chat(rig, cases[i].prompt);
    run_timed(rig, 2);
    for (int j = 0; j < 4; j++) {
      ASSERT_EQ_FOR(count_next(rig), 1 + cases[i].lines, "case %d", (int)i);
      ASSERT_EQ_FOR(rig_chunk(rig, chat), 1, "case %d", (int)i);
    }
    rig_free(rig);
  }
}

/* The first token took 63 ms: of a tenth of it five lines of 1.1 ms have a token. */
Test(best_effort, a_step_is_short_for_a_minute_after_others) {
  rig_t *rig = rig_of(16, 2000, true);
  group_t *lines[10];
  run(rig, 1);
  group_t *chat = add_chat(rig, 600);
  run_timed(rig, 2);
  run(rig, 1);
  end(rig, chat);
  for (int i = 0; i < 10; i++) lines[i] = add_line(rig);
  rig->now_ns += MINUTE_NS - 1;
  run(rig, 20); /* the prompts begin */
  int32_t least = INT32_MAX, most = 0, entries = 0;
  int32_t before[10];
  for (int i = 0; i < 10; i++) before[i] = lines[i]->sequence.num_output_tokens;
  for (int i = 0; i < 20; i++) entries = MAX(entries, count_next(rig));
  for (int i = 0; i < 10; i++) {
    const int32_t got = lines[i]->sequence.num_output_tokens - before[i];
    if (before[i] == 0) continue; /* it waits for the end of others */
    least = MIN(least, got);
    most = MAX(most, got);
  }
  EXPECT_EQ(entries, 5);
  EXPECT_LE_FOR(most - least, 1, "they take turns: %d to %d", least, most);
  rig->now_ns += 1;
  run(rig, 2);
  EXPECT_EQ_FOR(count_next(rig), 10, "a minute after the last plan with others");
  rig_free(rig);
}

/* The time of a first token counts from its arrival; of the longest one a tenth of what it is above
 * a later one is forgotten, of the mean a tenth is the new one's. */
Test(best_effort, first_tokens_are_known_by_their_mean_and_the_longest) {
  const best_effort_t *known;
  rig_t *rig = rig_of(16, 2000, true);
  known = &rig->scheduler->best_effort;
  add_chat(rig, 8); /* 1 + 1 + 0.8 ms */
  rig->now_ns += 97200000;
  run(rig, 1);
  EXPECT_EQ(known->longest_first_ns, 100e6);
  EXPECT_EQ(known->mean_first_ns, 100e6);
  rig_free(rig);

  rig = rig_of(16, 2000, true);
  known = &rig->scheduler->best_effort;
  group_t *first = add_chat(rig, 600);
  run_timed(rig, 2);
  end(rig, first);
  EXPECT_EQ(known->longest_first_ns, 63e6);
  group_t *second = add_chat(rig, 10); /* 3 ms */
  run(rig, 1);
  EXPECT_EQ(known->longest_first_ns, 57e6);
  EXPECT_EQ(known->mean_first_ns, 57e6);
  end(rig, second);
  add_line(rig); /* no first token of others */
  run(rig, 1);
  EXPECT_EQ(known->longest_first_ns, 57e6);
  rig_free(rig);
}

/* Lines of 2 ms, where a first token takes 10 ms and lasts: a third of the mean is less than a
 * tenth of the longest one, which took 2 s. Reading the weights takes 1 ms, or 8: then 12 are
 * theirs. */
Test(best_effort, the_mean_and_the_weights_bound_what_it_has) {
  for (int heavy = 0; heavy < 2; heavy++) {
    rig_t *rig = rig_of(16, 2000, true);
    rig->scheduler->options.pace.step_ns = 0;
    rig->scheduler->cost.ns[COST_TOKEN] = 1e6;
    rig->scheduler->best_effort.longest_first_ns = 2000e6;
    rig->scheduler->best_effort.mean_first_ns = 30e6;
    if (heavy) rig->scheduler->cost.ns[COST_STEP] = 8e6;
    if (heavy) rig->scheduler->best_effort.mean_first_ns = 3e6;
    group_t *lines[10];
    for (int i = 0; i < 10; i++) lines[i] = add_line(rig);
    run(rig, 1);
    rig->scheduler->best_effort.others_ns = 1;
    rig->now_ns = 2;
    run(rig, 10);
    EXPECT_EQ_FOR(count_next(rig), heavy ? 6 : 5, "heavy: %d", heavy);
    EXPECT_GT(lines[9]->sequence.num_output_tokens, 0);
    rig_free(rig);
  }
}

/* First tokens took minutes, as a client can make its own: four steps of 30 ms are the most, which
 * is three lines of 31 ms. */
Test(best_effort, late_first_tokens_give_it_four_steps_at_most) {
  rig_t *rig = rig_of(16, 2000, true);
  rig->scheduler->cost.ns[COST_TOKEN] = 30e6;
  rig->scheduler->best_effort.longest_first_ns = rig->scheduler->best_effort.mean_first_ns = 1e11;
  for (int i = 0; i < 10; i++) add_line(rig);
  run(rig, 1);
  rig->scheduler->best_effort.others_ns = 1;
  rig->now_ns = 2;
  run(rig, 10);
  EXPECT_EQ(count_next(rig), 3);
  rig_free(rig);
}

/* A step is 30 ms, a token takes 0.4 ms. Beside the token of another line, 1.4 ms, a prompt fills
 * what best effort has: a tenth of a second-long first token, or, if nobody else was there for a
 * minute, four steps. A step and a row of the prompt are 1 ms each; a chunk has whole blocks. */
Test(best_effort, prompts_fill_what_it_has_where_nobody_runs) {
  static const struct {
    uint64_t others_ns;
    int32_t tokens;
  } cases[] = {{1, 244}, {0, 288}}; /* of 97.6 ms, of 116.6 */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig_t *rig = rig_of(16, 2000, true);
    rig->scheduler->cost.ns[COST_TOKEN] = 4e5;
    rig->scheduler->best_effort.longest_first_ns = 1e9;
    rig->scheduler->best_effort.mean_first_ns = 1e9;
    add_line(rig);
    run(rig, 1);
    rig->scheduler->best_effort.others_ns = cases[i].others_ns;
    rig->now_ns = 2;
    group_t *line = add_of(rig, BATCH, true, 900, 1);
    run(rig, 1); /* it is let in */
    rig_step(rig);
    EXPECT_EQ_FOR(rig_chunk(rig, line), cases[i].tokens, "case %d", (int)i);
    rig_free(rig);
  }
}

/* A line takes 1.1 ms, the weights 1 or 3: beside first tokens of 63 ms best effort has 6.3 ms,
 * which is five lines. In a step that can be left it has a step, or four times what the weights
 * take, up to four steps; but not behind one that was left. */
Test(best_effort, a_step_that_can_be_left_has_the_time_of_one) {
  static const struct {
    bool leaves, has_left;
    double step_ns, weights_ns;
    int32_t lines;
  } cases[] = {{false, false, 9e6, 1e6, 5}, {true, false, 9e6, 1e6, 8},
               {true, true, 9e6, 1e6, 5},   {true, false, 8.7e6, 1e6, 7},
               {true, false, 4e6, 1e6, 5},  {true, false, 4e6, 3e6, 10},
               {true, false, 2e6, 3e6, 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig_t *rig = rig_of(16, 2000, true);
    rig->scheduler->cost.ns[COST_STEP] = cases[i].weights_ns;
    rig->scheduler->options.leaves_steps = cases[i].leaves;
    rig->scheduler->options.pace.step_ns = cases[i].step_ns;
    for (int j = 0; j < 12; j++) add_line(rig);
    run(rig, 4);
    rig->scheduler->best_effort = (best_effort_t){.others_ns = 1,
                                                  .has_left = cases[i].has_left,
                                                  .mean_first_ns = 63e6,
                                                  .longest_first_ns = 63e6};
    rig->now_ns = 2;
    run(rig, 4);
    EXPECT_EQ_FOR(count_next(rig), cases[i].lines, "case %d", (int)i);
    rig_free(rig);
  }
}

Test(best_effort, what_comes_later_goes_before_it) {
  rig_t *rig = rig_of(2, 2000, true);
  group_t *line = add_of(rig, CLIENT, true, 8, 10), *first = add_chat(rig, 8),
          *second = add_chat(rig, 8);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(first, 8), CHUNK(second, 8));
  EXPECT_EQ(line->sequence.status, SEQUENCE_WAITING);
  rig_free(rig);
}

/* The client gets all places, which is more than its share. */
Test(best_effort, it_makes_room_at_once_for_whoever_lacks_it) {
  rig_t *rig = rig_of(4, 2000, true);
  for (int i = 0; i < 4; i++) add_line(rig);
  run(rig, 1);
  for (int i = 0; i < 4; i++) {
    group_t *chat = add_chat(rig, 8);
    rig_step(rig);
    ASSERT_EQ_FOR(rig_chunk(rig, chat), 8, "chat %d", i);
    rig_commit(rig, 1);
  }
  EXPECT_EQ(rig->scheduler->num_yields, 4);
  run(rig, 20);
  EXPECT_EQ_FOR(rig->scheduler->num_yields, 4, "it takes nothing back");
  rig_free(rig);
}

/* A stream needs its next block, and so does the line: the line leaves, whoever asks. */
Test(best_effort, where_blocks_are_short_it_leaves) {
  for (int first = 0; first < 2; first++) {
    rig_t *rig = rig_of(8, 12, true);
    group_t *line = first ? add_line(rig) : NULL, *chat = add_of(rig, CLIENT, false, 8, 400);
    if (line == NULL) line = add_line(rig);
    run(rig, 30);
    EXPECT_EQ_FOR(chat->num_preemptions, 0, "line first: %d", first);
    EXPECT_GT_FOR(line->num_preemptions, 0, "line first: %d", first);
    EXPECT_EQ(chat->sequence.status, SEQUENCE_RUNNING);
    rig_free(rig);
  }
}

/* A chat that its key does not let begin. */
Test(best_effort, who_cannot_run_keeps_nothing_from_it) {
  rig_t *rig = rig_of(8, 2000, true);
  quota_t one = {.max_running = 1};
  for (int i = 0; i < 2; i++) {
    rig->requests[i].quota = &one;
    add_chat(rig, 8);
  }
  group_t *line = add_line(rig);
  run(rig, 10);
  EXPECT_EQ(rig->groups[1].sequence.status, SEQUENCE_WAITING);
  EXPECT_GT(line->sequence.num_output_tokens, 5);
  rig_free(rig);
}

/* A chat that never fits, as if the lines held what it lacks: one of them begins, to end it, and no
 * more, not even a further choice of it. */
Test(best_effort, if_nothing_runs_one_begins_before_who_waits) {
  for (int choices = 1; choices < 3; choices++) {
    rig_t *rig = rig_of(8, 12, true);
    group_t *chat = add_chat(rig, 100);
    rig->requests[rig->count].tenant = BATCH;
    rig->requests[rig->count].best_effort = true;
    group_t *first = rig_add_choices(rig, 4, 20, 1, choices), *second = add_line(rig);
    for (int i = 0; i < 5; i++) {
      run(rig, 1);
      ASSERT_EQ(chat->sequence.status, SEQUENCE_WAITING);
      ASSERT_EQ(first->sequence.status, SEQUENCE_RUNNING);
      ASSERT_EQ_FOR(second->sequence.status, SEQUENCE_WAITING, "step %d", i);
      ASSERT_EQ_FOR(rig->scheduler->running.count, 1, "step %d", i);
    }
    rig_free(rig);
  }
}

/* The same of lines that are on the host. */
Test(best_effort, if_nothing_runs_one_comes_back_before_who_waits) {
  scheduler_options_t options = rig_options(8, 512, 1000);
  options.fair_share = true;
  options.swap = (swap_options_t){.num_blocks = 100, .mode = PREEMPT_SWAP};
  rig_t *rig = rig_new(&options, 12, BLOCK, false);
  scheduler_t *s = rig->scheduler;
  for (int i = 0; i < 3; i++) add_line(rig);
  for (int i = 0; i < 40 && s->swapped.count < 2; i++) run(rig, 1);
  ASSERT_EQ(s->swapped.count, 2);
  group_t *chat = add_chat(rig, 100);
  end(rig, s->running.head);
  for (int i = 0; i < 5; i++) {
    run(rig, 1);
    ASSERT_EQ(chat->sequence.status, SEQUENCE_WAITING);
    ASSERT_EQ_FOR(s->running.count, 1, "step %d", i);
    ASSERT_EQ_FOR(s->swapped.count, 1, "step %d", i);
  }
  rig_free(rig);
}

/* Prompts that are planned whole, as those of encoders: behind the first, what time is left for. */
Test(best_effort, whole_prompts_share_a_short_step) {
  rig_t *rig = rig_of(16, 2000, false);
  group_t *chat = add_chat(rig, 100);
  run(rig, 2);
  end(rig, chat);
  for (int i = 0; i < 4; i++) add_of(rig, BATCH, true, 100, 1);
  rig_step(rig);
  EXPECT_EQ_FOR(rig->scheduler->plan.num_entries, 1, "11 ms of 2");
  rig_free(rig);
}
