/* test_pace.c: the time of a step: chunks that fit, decodes of other clients, turns. */
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4 };

/* A step costs 1 ms, a row 1 ms, a token of a prompt 0.1 ms: known, and learned from nothing. */
static rig_t *rig_with(pace_options_t pace, bool passing) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.fair_share = true;
  options.short_prompts_pass = passing;
  options.pace = pace;
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  rig->scheduler->cost =
      (cost_t){.ns = {[COST_STEP] = 1e6, [COST_ROW] = 1e6, [COST_TOKEN] = 1e5}, .num_steps = 1000};
  return rig;
}

static group_t *add(rig_t *rig, uint64_t tenant, int32_t prompt_tokens) {
  rig->requests[rig->count].tenant = tenant;
  return rig_add(rig, prompt_tokens, 100, rig->count);
}

static void run(rig_t *rig, int steps) {
  for (int i = 0; i < steps; i++) {
    rig_step(rig);
    rig_commit(rig, 1);
  }
}

Test(pace, a_prompt_beside_a_decode_gets_what_fits_into_the_step) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6}, false);
  group_t *stream = add(rig, 1, 8);
  run(rig, 1);
  group_t *prompt = add(rig, 1, 600);
  rig_step(rig);
  /* 12 - 1 - 1.1 of the decode - 1 that a row of the prompt would take = 8.9 ms, in whole blocks */
  ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(prompt, 88));
  rig_free(rig);
}

/* A step is 12.5 ms, or twice what one costs that computes nothing, if that is more: of 12 ms it is
 * 12.5, of 20 it is 20. With 0, where somebody has said how long, it is 12.5, and 0.4 are left. */
Test(pace, a_step_takes_so_many_times_as_long_as_the_weights) {
  static const struct {
    double reads, weights_ns;
    int32_t tokens;
  } cases[] = {{2, 6e6, 44}, {2, 10e6, 76}, {0, 10e6, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig_t *rig = rig_with((pace_options_t){.step_ns = 12.5e6, .reads = cases[i].reads}, false);
    group_t *stream = add(rig, 1, 8);
    run(rig, 1);
    rig->scheduler->cost.ns[COST_STEP] = cases[i].weights_ns;
    group_t *prompt = add(rig, 1, 600);
    rig_step(rig);
    EXPECT_EQ_FOR(rig_chunk(rig, prompt), cases[i].tokens, "case %d", (int)i);
    EXPECT_EQ(rig_chunk(rig, stream), 1);
    rig_free(rig);
  }
}

Test(pace, without_a_decode_tokens_alone_bound_the_step) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6, .client_ns = 2e6}, false);
  group_t *prompt = add(rig, 1, 600), *other = add(rig, 2, 600);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(prompt, 512));
  EXPECT_EQ(rig_chunk(rig, other), 0);
  rig_free(rig);
}

Test(pace, before_costs_are_known_tokens_alone_bound_the_step) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6, .client_ns = 2e6}, false);
  rig->scheduler->cost.num_steps = 0;
  group_t *stream = add(rig, 1, 8);
  run(rig, 1);
  group_t *prompt = add(rig, 2, 600);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(prompt, 511));
  rig_free(rig);
}

/* A chunk of one token costs 1 ms for each key, one of several 1 us: so what is set aside for the
 * first prompt, one token, is more than its client has, and what it gets then, three tokens, is
 * not. */
Test(pace, a_short_prompt_may_get_what_the_first_one_leaves) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.fair_share = options.short_prompts_pass = true;
  options.pace = (pace_options_t){.step_ns = 7e6, .client_ns = 8e6};
  rig_t *rig = rig_new(&options, 2000, 1, false);
  group_t *stream = add(rig, 1, 2);
  run(rig, 1);
  group_t *first = add(rig, 2, 900);
  run(rig, 1);
  first->chunk_max = 100;
  group_t *second = add(rig, 2, 8);
  second->chunk_max = 1;
  run(rig, 1); /* both are in `running` now */
  rig->scheduler->cost = (cost_t){.ns = {[COST_KEY] = 1e6, [COST_PAIR] = 1e3}, .num_steps = 1000};
  rig_step(rig);
  EXPECT_EQ(rig_chunk(rig, stream), 1);
  EXPECT_EQ(rig_chunk(rig, first), 3);
  EXPECT_GT(rig_chunk(rig, second), 0);
  rig_free(rig);
}

/* The same, but a third prompt, of a client that has time, finds no free block: the last one, which
 * had its turn in vain, leaves for the host, or with priorities the first one does. Then each that
 * had its turn in vain passes the long ones as ever. */
Test(pace, a_turn_in_vain_is_forgotten_when_a_prompt_makes_room) {
  for (int worst = 0; worst < 2; worst++) {
    scheduler_options_t options = rig_options(16, 512, 1000);
    options.fair_share = options.short_prompts_pass = true;
    options.reserve_full = false;
    options.priority_policy = worst;
    options.swap = (swap_options_t){.num_blocks = 900, .mode = PREEMPT_SWAP};
    options.pace = (pace_options_t){.step_ns = 7e6, .client_ns = 8e6};
    rig_t *rig = rig_new(&options, 2000, 1, false);
    scheduler_t *s = rig->scheduler;
    add(rig, 1, 2);
    run(rig, 1);
    rig->requests[rig->count].priority = worst;
    group_t *first = add(rig, 2, 900);
    run(rig, 1);
    first->chunk_max = 100;
    group_t *third = add(rig, 3, 200), *second = add(rig, 2, 20);
    third->chunk_max = second->chunk_max = 10;
    run(rig, 1); /* all are in `running` now */
    third->chunk_max = second->chunk_max = 1;
    s->cost = (cost_t){.ns = {[COST_KEY] = 1e6, [COST_PAIR] = 1e3}, .num_steps = 1000};
    int32_t taken[2000], count = 0;
    while (rig->pool->num_free > 1) taken[count++] = block_allocate(rig->pool);
    rig_step(rig);
    ASSERT_EQ(s->plan.num_preempted, 1);
    ASSERT_EQ((worst ? first : second)->sequence.status, SEQUENCE_SWAPPED);
    rig_commit(rig, 1);
    while (count > 0) block_release(rig->pool, taken[--count]);
    s->cost.num_steps = 0;
    run(rig, 1); /* it comes back */
    ASSERT_EQ(s->swapped.count, 0);
    s->options.max_num_batched_tokens = 16;
    third->chunk_max = second->chunk_max = 0;
    rig_step(rig);
    EXPECT_GT_FOR(rig_chunk(rig, second), 0, "priorities %d", worst);
    rig_free(rig);
  }
}

Test(pace, a_prompt_gets_a_block_where_decodes_leave_nothing) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 1e6}, true);
  group_t *stream = add(rig, 1, 8);
  run(rig, 1);
  group_t *first = add(rig, 1, 600), *second = add(rig, 1, 300), *third = add(rig, 1, 400);
  run(rig, 1);
  for (int i = 0; i < 10; i++) {
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(second, BLOCK), CHUNK(first, BLOCK));
    ASSERT_EQ(rig_chunk(rig, third), 0);
    rig_commit(rig, 1);
  }
  rig_free(rig);
}

/* A block of the long prompt alone takes more than a step may. What comes behind it must not wait
 * for its end: first tokens of other clients would take as long as one client likes. */
Test(pace, a_prompt_whose_blocks_are_slow_lets_short_ones_pass) {
  for (int own = 0; own < 2; own++) {
    rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6, .client_ns = 4e6}, true);
    rig->scheduler->cost.ns[COST_TOKEN] = 5e6;
    group_t *stream = add(rig, 1, 8);
    run(rig, 1);
    group_t *slow = add(rig, 2, 600);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(slow, BLOCK));
    rig_commit(rig, 1);
    group_t *shorter = add(rig, own ? 2 : 3, 2 * BLOCK);
    /* Beside the block of its own client it gets nothing: that would be twice what it may have. */
    for (int i = 0; i < 2; i++) {
      rig_step(rig);
      ASSERT_EQ_FOR(rig_chunk(rig, shorter), (own ? 0 : BLOCK), "own %d, step %d", own, i);
      ASSERT_EQ_FOR(rig_chunk(rig, slow), BLOCK, "own %d, step %d", own, i);
      rig_commit(rig, 1);
    }
    rig_free(rig);
  }
}

Test(pace, a_client_gets_less_beside_the_decode_of_another) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 30e6, .client_ns = 4e6}, false);
  group_t *stream = add(rig, 1, 8);
  run(rig, 1);
  group_t *prompt = add(rig, 2, 600), *third = add(rig, 3, 600), *own = add(rig, 1, 600);
  rig_step(rig);
  /* 4 - 1 ms; the client of the only decode is bounded by the step, of which 28.9 - 6 are left */
  ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(prompt, 28), CHUNK(third, 28), CHUNK(own, 212));
  rig_free(rig);
}

Test(pace, without_fair_shares_clients_are_not_told_apart) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 30e6, .client_ns = 4e6}, false);
  rig->scheduler->options.fair_share = false;
  group_t *stream = add(rig, 1, 8);
  run(rig, 1);
  group_t *prompt = add(rig, 2, 600);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(stream, 1), CHUNK(prompt, 268));
  rig_free(rig);
}

/* Six decodes of one client take 6.6 ms: four fit, beside that of another client, which always
 * goes. Each gets as many tokens as any other, or one more. */
Test(pace, decodes_of_a_client_that_has_too_many_take_turns) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 5e6}, false);
  group_t *many[6], *stream;
  for (int i = 0; i < 6; i++) many[i] = add(rig, 1, 8);
  run(rig, 3);
  for (int i = 0; i < 6; i++) ASSERT_EQ(many[i]->sequence.num_output_tokens, 3);
  stream = add(rig, 2, 8);
  rig_step(rig); /* its prompt is short, so its first token does not wait for all of theirs */
  ASSERT_EQ(rig->scheduler->plan.num_entries, 5);
  rig_commit(rig, 1);
  for (int step = 1; step < 30; step++) {
    int32_t before = stream->sequence.num_output_tokens, count = 0;
    ASSERT_EQ(rig_step(rig), 5);
    for (int i = 0; i < 6; i++) count += rig_chunk(rig, many[i]);
    ASSERT_EQ(count, 4);
    rig_commit(rig, 1);
    ASSERT_EQ(stream->sequence.num_output_tokens, before + 1);
  }
  /* 3 alone, 4 of 6 in each of 30 steps */
  for (int i = 0; i < 6; i++) EXPECT_EQ_FOR(many[i]->sequence.num_output_tokens, 23, "%d", i);
  EXPECT_EQ(rig->scheduler->num_sat_out, 60);
  rig_free(rig);
}

/* Where a prompt does not end in the step, the decodes of the other client all go on. */
Test(pace, decodes_take_turns_beside_a_prompt_that_ends) {
  for (int32_t tokens = 39; tokens <= 41; tokens++) { /* 40 and a row take 5 ms */
    for (int32_t before = 0; before <= 40; before += 40) {
      rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 5e6}, false);
      for (int i = 0; i < 6; i++) add(rig, 1, 8);
      run(rig, 2);
      group_t *other = add(rig, 2, before + tokens);
      run(rig, before > 0);
      rig_step(rig);
      bool ends = tokens <= 40;
      EXPECT_EQ_FOR(rig_chunk(rig, other), ends ? tokens : 40, "%d behind %d", tokens, before);
      EXPECT_EQ_FOR(rig->scheduler->plan.num_entries, ends ? 5 : 7, "%d of %d", tokens, before);
      rig_free(rig);
    }
  }
}

/* The choices of one request take 8.8 ms together: four of them fit into 5 ms, in turns, also when
 * one has ended. Alone they all go. */
Test(pace, choices_of_one_request_take_turns) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 5e6}, false);
  rig->requests[0].tenant = 1;
  group_t *lead = rig_add_choices(rig, 8, 100, 0, 8), *choices[8], *stream;
  run(rig, 3);
  for (int i = 0; i < 8; i++) choices[i] = rig_choice(lead, i);
  for (int i = 0; i < 8; i++) ASSERT_EQ(choices[i]->sequence.num_output_tokens, 2 + (i == 0));
  stream = add(rig, 2, 8);
  run(rig, 1);
  int32_t before[8];
  for (int i = 0; i < 8; i++) before[i] = choices[i]->sequence.num_output_tokens;
  for (int step = 0; step < 20; step++) {
    rig_step(rig);
    ASSERT_EQ(rig->scheduler->plan.num_entries, 5);
    ASSERT_EQ(rig_chunk(rig, stream), 1);
    rig_commit(rig, 1);
  }
  for (int i = 0; i < 8; i++)
    ASSERT_EQ_FOR(choices[i]->sequence.num_output_tokens, before[i] + 10, "choice %d", i);
  scheduler_finish(rig->scheduler, choices[1], SEQUENCE_FINISHED_STOPPED);
  run(rig, 14); /* seven are left: each goes in four of seven steps */
  for (int i = 0; i < 8; i++) {
    if (i != 1) ASSERT_EQ(choices[i]->sequence.num_output_tokens, before[i] + 18);
  }
  scheduler_finish(rig->scheduler, stream, SEQUENCE_FINISHED_STOPPED);
  rig_step(rig);
  ASSERT_EQ_FOR(rig->scheduler->plan.num_entries, 7, "no other client decodes");
  rig_free(rig);
}

/* The decodes of client 1 take 4.4 of 8 ms: with four draft tokens 8.8 ms, and three choices of it
 * would sit out in turns. The one decode of client 2 has the time for them. */
Test(pace, draft_tokens_take_no_time_of_decodes) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 8e6}, false);
  group_t *one = add(rig, 1, 8), *stream = add(rig, 2, 8), *choices;
  rig->requests[rig->count].tenant = 1;
  choices = rig_add_choices(rig, 8, 100, 0, 3);
  run(rig, 3);
  rig->scheduler->options.draft.tokens_max = 4;
  rig->scheduler->options.draft.longest = true;
  rig->scheduler->options.draft_model = true;
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(one, 1), CHUNK(stream, 5), CHUNK(choices, 1));
  EXPECT_EQ(rig->scheduler->plan.num_entries, 5);
  EXPECT_EQ(rig->scheduler->plan.num_tokens, 9);
  rig_free(rig);
}

Test(pace, newcomers_of_a_client_put_nobody_off_for_long) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 3e6}, false);
  group_t *stream = add(rig, 2, 8), *old = add(rig, 1, 8);
  for (int i = 0; i < 4; i++) add(rig, 1, 8);
  run(rig, 2);
  int32_t sat_out = 0, most = 0;
  group_t *newest = NULL;
  for (int step = 0; step < 40; step++) {
    int32_t before = old->sequence.num_output_tokens;
    if (newest != NULL && newest->sequence.num_output_tokens > 1) {
      scheduler_finish(rig->scheduler, newest, SEQUENCE_FINISHED_ABORTED);
      newest = NULL;
    }
    if (newest == NULL) newest = add(rig, 1, 8);
    run(rig, 1);
    sat_out = old->sequence.num_output_tokens > before ? 0 : sat_out + 1;
    if (sat_out > most) most = sat_out;
  }
  EXPECT_LE(most, 4);
  EXPECT_EQ(stream->sequence.num_output_tokens, 42);
  rig_free(rig);
}

Test(pace, a_client_whose_decodes_take_its_time_starts_no_prompt) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 3e6}, false);
  for (int i = 0; i < 4; i++) add(rig, 1, 8);
  group_t *stream = add(rig, 2, 8);
  run(rig, 2);
  group_t *own = add(rig, 1, 40), *honest = add(rig, 2, 40);
  rig_step(rig);
  EXPECT_EQ(own->sequence.status, SEQUENCE_WAITING);
  EXPECT_EQ(rig_chunk(rig, stream), 1);
  EXPECT_GT(rig_chunk(rig, honest), 0);
  rig_free(rig);
}

/* ---- where steps cost more than was thought, or are thought to ---- */

/* One decode of each client takes more than a client has: costs have jumped, or are learned
 * wrongly. A chat of a client with one stream must not wait for the end of that. */
Test(pace, decodes_hold_a_client_within_its_share_for_two_plans) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 3e6}, false);
  group_t *stream = add(rig, 1, 8);
  for (int i = 0; i < 4; i++) add(rig, 2, 8);
  run(rig, 2);
  rig->scheduler->cost.ns[COST_ROW] = 5e6;
  for (int time = 0; time < 3; time++) {
    group_t *chat = add(rig, 1, 2 * BLOCK);
    for (int i = 0; i < 2; i++) {
      run(rig, 1);
      ASSERT_EQ_FOR(chat->sequence.status, SEQUENCE_WAITING, "time %d, plan %d", time, i);
    }
    rig_step(rig);
    ASSERT_EQ_FOR(chat->sequence.status, SEQUENCE_RUNNING, "time %d", time);
    EXPECT_EQ(rig_chunk(rig, stream), 1);
    rig_commit(rig, 1);
    for (int i = 0; i < 2; i++) { /* it is the first prompt */
      rig_step(rig);
      EXPECT_EQ_FOR(rig_chunk(rig, chat), BLOCK, "time %d, block %d", time, i);
      rig_commit(rig, 1);
    }
    EXPECT_EQ(chat->sequence.num_output_tokens, 1);
    scheduler_finish(rig->scheduler, chat, SEQUENCE_FINISHED_LENGTH_CAPPED);
  }
  rig_free(rig);
}

Test(pace, decodes_hold_a_client_above_its_share_until_they_have_time) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6, .client_ns = 3e6}, false);
  for (int i = 0; i < 8; i++) add(rig, 1, 8); /* of 16, beside another one */
  add(rig, 2, 8);
  run(rig, 2);
  group_t *ninth = add(rig, 1, 8);
  run(rig, 20);
  EXPECT_EQ(ninth->sequence.status, SEQUENCE_WAITING);
  rig_free(rig);
}

/* The decodes of all leave no time of the step, so that the block of the long prompt is the only
 * one, and the other prompt is longer still. */
Test(pace, a_step_without_time_holds_a_client_within_its_share_for_two_plans) {
  for (int passing = 0; passing < 2; passing++) {
    rig_t *rig = rig_with((pace_options_t){.step_ns = 3e6, .client_ns = 2e6}, passing);
    group_t *stream = add(rig, 1, 8), *first, *longer;
    add(rig, 2, 8);
    run(rig, 2);
    rig->scheduler->cost.ns[COST_ROW] = 5e6;
    first = add(rig, 3, 600);
    run(rig, 1);
    longer = add(rig, 4, 700);
    run(rig, 2);
    ASSERT_EQ(longer->sequence.status, SEQUENCE_WAITING);
    run(rig, 1);
    ASSERT_EQ(longer->sequence.status, SEQUENCE_RUNNING);
    run(rig, 2);
    int32_t before = first->sequence.num_computed_tokens,
            longer_before = longer->sequence.num_computed_tokens;
    for (int i = 0; i < 20; i++) {
      rig_step(rig);
      EXPECT_EQ(rig_chunk(rig, stream), 1);
      rig_commit(rig, 1);
    }
    int32_t has = first->sequence.num_computed_tokens - before;
    int32_t other_has = longer->sequence.num_computed_tokens - longer_before;
    EXPECT_GE_FOR(has, 10 * BLOCK, "passing %d", passing);
    EXPECT_GE_FOR(other_has, 6 * BLOCK, "passing %d", passing);
    EXPECT_LE_FOR(has + other_has, 40 * BLOCK, "passing %d", passing); /* two in a step at most */
    rig_free(rig);
  }
}

/* A prompt that runs, of a client whose decodes have come to take all that it has. */
Test(pace, a_prompt_behind_a_long_one_gets_a_block_of_its_own_though_its_client_has_no_time) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 600e6, .client_ns = 3e6}, false);
  group_t *stream = add(rig, 1, 8), *first, *chat;
  add(rig, 2, 8);
  run(rig, 2);
  first = add(rig, 3, 600);
  run(rig, 1);
  chat = add(rig, 1, 40);
  rig->scheduler->cost.ns[COST_ROW] = 5e6;
  run(rig, 3);
  ASSERT_EQ(chat->sequence.status, SEQUENCE_RUNNING);
  for (int i = 0; i < 30 && chat->sequence.num_output_tokens == 0; i++) {
    rig_step(rig);
    EXPECT_EQ(rig_chunk(rig, stream), 1);
    EXPECT_GT(rig_chunk(rig, first) + rig_chunk(rig, chat), 0);
    rig_commit(rig, 1);
  }
  EXPECT_EQ(chat->sequence.num_output_tokens, 1);
  rig_free(rig);
}

/* Where admission is bounded by the time of a step, a client has its part of that. */
Test(pace, a_client_within_its_part_of_the_time_finds_a_seat) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 9.8e6, .bounds_admission = true}, false);
  for (int i = 0; i < 10; i++) add(rig, 1, 8);
  run(rig, 3);
  ASSERT_EQ(rig->scheduler->running.count, 8); /* 1 + 8 * 1.1 ms */
  group_t *others[4];
  for (int i = 0; i < 4; i++) others[i] = add(rig, 2, 8);
  run(rig, 12);
  for (int i = 0; i < 4; i++) /* 4.4 of 4.9 ms */
    EXPECT_EQ_FOR(others[i]->sequence.status, SEQUENCE_RUNNING, "%d", i);
  EXPECT_EQ(rig->scheduler->running.count, 12);
  group_t *fifth = add(rig, 2, 8);
  run(rig, 12);
  EXPECT_EQ(fifth->sequence.status, SEQUENCE_WAITING);
  rig->scheduler->cost.ns[COST_ROW] = 50e6;
  group_t *third = add(rig, 3, 8), *fourth = add(rig, 3, 8);
  run(rig, 12);
  EXPECT_EQ(third->sequence.status, SEQUENCE_RUNNING); /* one always does */
  EXPECT_EQ(fourth->sequence.status, SEQUENCE_WAITING);
  rig_free(rig);
}

/* The time of a step is learned as it is told, whatever waits. */
Test(pace, costs_are_learned_from_the_plans_that_ran) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 60e6}, false);
  memset(&rig->scheduler->cost, 0, sizeof rig->scheduler->cost);
  add(rig, 1, 200);
  for (int i = 0; i < 99; i++) {
    rig_step(rig);
    const plan_t *plan = &rig->scheduler->plan;
    double ns = 1e6 + 1e6 * plan->work.of[COST_ROW] + 1e5 * plan->work.of[COST_TOKEN];
    scheduler_note_time(rig->scheduler, plan, ns);
    if (i == 50) add(rig, 1, 100);
    rig_commit(rig, 1);
  }
  cost_work_t decode = {.of = {1, 1, 1, 250, 0}};
  cr_assert_float_eq(cost_ns(&rig->scheduler->cost, &decode), 2.1e6, 0.1e6);
  rig_free(rig);
}

/* ---- how long what waits will wait ---- */

static double ns_until(rig_t *rig, const group_t *last) {
  double ns = 0;
  while (sequence_in_prefill(&last->sequence)) {
    rig_step(rig);
    ns += cost_ns(&rig->scheduler->cost, &rig->scheduler->plan.work);
    rig_commit(rig, 1);
  }
  return ns;
}

static double forecast_ns(const rig_t *rig, double tokens) {
  forecast_t forecast = scheduler_forecast(rig->scheduler, 0);
  return forecast.base_ns + tokens * forecast.token_ns;
}

Test(pace, prompts_that_wait_are_computed_when_the_forecast_says) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6}, false);
  add(rig, 1, 8);
  run(rig, 2);
  double forecast = forecast_ns(rig, 1600);
  add(rig, 1, 800);
  group_t *last = add(rig, 1, 800);
  double took = ns_until(rig, last); /* the first of the two decodes beside the second by then */
  EXPECT_GE(forecast, 0.9 * took);
  EXPECT_LE(forecast, took);
  rig_free(rig);
}

Test(pace, a_forecast_counts_what_prompts_that_run_have_left) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6}, false);
  add(rig, 1, 8);
  run(rig, 1);
  group_t *last = add(rig, 1, 900);
  run(rig, 3);
  rig_step(rig);
  double forecast = forecast_ns(rig, 0);
  double took = cost_ns(&rig->scheduler->cost, &rig->scheduler->plan.work);
  rig_commit(rig, 1);
  took += ns_until(rig, last);
  EXPECT_GE(forecast, 0.95 * took);
  EXPECT_LE(forecast, 1.05 * took);
  rig_free(rig);
}

Test(pace, without_known_costs_nothing_is_forecast) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6}, false);
  rig->scheduler->cost.num_steps = 0;
  add(rig, 1, 8);
  run(rig, 1);
  EXPECT_EQ(forecast_ns(rig, 1000), 0);
  rig_free(rig);
}

Test(pace, what_the_cache_usually_has_is_not_waited_for) {
  rig_t *rig = rig_with((pace_options_t){.step_ns = 12e6}, false);
  add(rig, 1, 8);
  run(rig, 2);
  double all = forecast_ns(rig, 1000);
  rig->scheduler->prefix_queries_tokens = 4000;
  rig->scheduler->prefix_hits_tokens = 3000;
  double quarter = forecast_ns(rig, 1000);
  EXPECT_GE(quarter, 0.249 * all);
  EXPECT_LE(quarter, 0.251 * all);
  rig_free(rig);
}

/* The draft tokens of the next decode of each of `num_seqs` sequences, if so many tokens of their
 * last drafts were right as were tried, or none. */
static int32_t drafts_beside(int32_t num_seqs, float tried, bool right, double token_ns) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.draft = (draft_options_t){.tokens_max = 4, .match_min = 1, .match_max = 1};
  options.draft_model = true;
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  rig->scheduler->cost =
      (cost_t){.ns = {[COST_STEP] = 1e6, [COST_TOKEN] = token_ns}, .num_steps = 1000};
  rig->scheduler->drafts.num_slow = 1; /* none is a try */
  for (int32_t i = 0; i < num_seqs; i++) add(rig, 0, 8);
  run(rig, 1);
  for (int32_t i = 0; i < num_seqs; i++) {
    rig->groups[i].sequence.drafts.history.tried = tried;
    rig->groups[i].sequence.drafts.history.right = right ? tried : 0;
  }
  rig_step(rig);
  int32_t chunk = rig_chunk(rig, &rig->groups[num_seqs - 1]);
  rig_free(rig);
  return chunk - 1;
}

Test(pace, drafts_are_as_long_as_they_are_worth_their_time) {
  /* A token takes a tenth of a step. */
  ASSERT_EQ(drafts_beside(1, 0, true, 1e5), 4);
  ASSERT_EQ(drafts_beside(1, 10, false, 1e5), 1);
  /* Of sixteen a step yields 16 tokens in the time of 26. */
  ASSERT_EQ(drafts_beside(16, 10, true, 1e5), 4);
  ASSERT_EQ(drafts_beside(16, 2, false, 1e5), 0);
  /* What nearly costs a step of its own is drafted if it is nearly certain. */
  ASSERT_EQ(drafts_beside(1, 10, true, 9e5), 4);
  ASSERT_EQ(drafts_beside(1, 4, false, 9e5), 0);
}

Test(pace, the_time_of_the_draft_model_counts) {
  for (int slow = 0; slow < 2; slow++) {
    scheduler_options_t options = rig_options(16, 512, 1000);
    options.draft = (draft_options_t){.tokens_max = 4, .match_min = 1, .match_max = 1};
    options.draft_model = true;
    rig_t *rig = rig_new(&options, 2000, BLOCK, false);
    rig->scheduler->cost = (cost_t){.ns = {[COST_STEP] = 1e6, [COST_TOKEN] = 1e5}, .num_steps = 99};
    rig->scheduler->drafts.model_ns = slow ? 2e6 : 1e4;
    group_t *stream = add(rig, 0, 8);
    run(rig, 1);
    ASSERT_EQ(rig->scheduler->drafts.num_slow, 0u);
    rig_step(rig); /* the first one that is not worth it is a try */
    ASSERT_EQ(rig_chunk(rig, stream), slow ? 2 : 5);
    ASSERT_EQ(rig->scheduler->drafts.num_slow, (uint64_t)slow);
    rig_free(rig);
  }
}

/* Three plans while nothing is committed, as where steps overlap. */
Test(pace, a_text_that_repeats_waits_for_its_token_and_no_other_does) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.draft = (draft_options_t){.tokens_max = 4, .match_min = 2, .match_max = 3};
  options.history_on_device = true;
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  group_t *reciting = add(rig, 0, 12), *other = add(rig, 0, 12);
  for (int32_t t = 0; t < 12; t++) rig->ids[0][t] = t % 5;
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(reciting, 12), CHUNK(other, 12));
  cr_assert(!scheduler_awaits(reciting) && !scheduler_awaits(other), "prompts wait for nothing");
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(reciting, 1), CHUNK(other, 1));
  cr_assert(scheduler_awaits(reciting) && !scheduler_awaits(other));
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(reciting, 0), CHUNK(other, 1));
  rig_free(rig);
}

/* ---- stages ---- */

/* Two steps in flight share five streams; a third one finds none, for their tokens are awaited. */
Test(pace, stages_share_the_streams) {
  enum { STREAMS = 5, SEQS = 16 };
  scheduler_options_t options = rig_options(SEQS, 512, 1000);
  options.num_stages = 2;
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  plan_t held[2] = {0};
  for (int i = 0; i < STREAMS; i++) add(rig, 1, 8);
  run(rig, 1);
  for (int i = 0; i < 2; i++) {
    held[i].entries = calloc(SEQS, sizeof *held[i].entries);
    held[i].copies = calloc(SEQS, sizeof *held[i].copies);
    held[i].state_copies = calloc(SEQS, sizeof *held[i].state_copies);
    ASSERT_EQ(rig_step(rig), i == 0 ? 3 : 2);
    scheduler_take_plan(rig->scheduler, &held[i]);
  }
  ASSERT_EQ(rig_step(rig), 0);
  for (int k = 0; k < STREAMS; k++) {
    const plan_entry_t *entry = k < 3 ? &held[0].entries[k] : &held[1].entries[k - 3];
    EXPECT_EQ(entry->sequence->group->arrival, rig->groups[k].arrival);
  }
  for (int i = 0; i < 2; i++) {
    free(held[i].entries);
    free(held[i].copies);
    free(held[i].state_copies);
  }
  rig_free(rig);
}

/* A prompt comes in eighths, of 16 tokens at least; prompts together have an eighth of a step. */
Test(pace, stages_share_the_prompts) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.num_stages = 2;
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  group_t *small = add(rig, 1, 100);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(small, 16));
  rig_commit(rig, 1);
  group_t *large = add(rig, 1, 400), *other = add(rig, 1, 400);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(small, 16), CHUNK(large, 48));
  EXPECT_EQ(rig_chunk(rig, other), 0);
  rig_free(rig);
}
