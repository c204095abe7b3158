/* test_looks.c: work that must not be done again in every step: counts, not times. */
#include "engine/schedule/table.h"
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

static void end(rig_t *rig, group_t *g) {
  scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_LENGTH_CAPPED);
}

/* 20 blocks: one holds 10 and decodes, two hold 2, and the head of the queue wants 15. */
static group_t *add_unfit(rig_t *rig, group_t **holder, group_t *small[2]) {
  *holder = rig_add(rig, 37, 8, 1);
  for (int i = 0; i < 2; i++) small[i] = rig_add(rig, 4, 4, 2 + i);
  step(rig);
  group_t *head = rig_add(rig, 60, 8, 9);
  step(rig);
  cr_assert(runs(*holder));
  cr_assert(runs(small[1]));
  cr_assert(!runs(head));
  return head;
}

Test(looks, what_does_not_fit_is_looked_at_again_when_enough_is_free) {
  scheduler_options_t options = rig_options(8, 128, 128);
  rig_t *rig = rig_new(&options, 21, 4, true);
  group_t *holder, *small[2], *head = add_unfit(rig, &holder, small);
  uint64_t looks = rig->scheduler->num_looks, hashed = rig->scheduler->num_hashed;
  for (int i = 0; i < 2; i++) step(rig);
  ASSERT_EQ(rig->scheduler->num_looks, looks);
  ASSERT_LE_FOR(rig->scheduler->num_hashed - hashed, 3 * 4, "ids of the blocks that became full");
  end(rig, small[0]); /* a little is free, not enough */
  step(rig);
  ASSERT_EQ(rig->scheduler->num_looks, looks);
  cr_assert(!runs(head));
  end(rig, holder);
  step(rig);
  ASSERT_EQ(rig->scheduler->num_looks, looks + 1);
  cr_assert(runs(head));
  rig_free(rig);
}

/* Also not to see what others would have to give: the cache has 12 of its 15 blocks. */
Test(looks, a_match_that_did_not_fit_is_not_made_again_for_fair_shares) {
  scheduler_options_t options = rig_options(8, 128, 128);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, 31, 4, true);
  group_t *first = rig_add(rig, 48, 4, 9);
  step(rig);
  end(rig, first);
  group_t *holder = rig_add(rig, 73, 8, 1);
  step(rig);
  group_t *head = rig_add(rig, 60, 8, 9);
  step(rig);
  cr_assert(runs(holder));
  cr_assert(!runs(head));
  uint64_t walked = rig->scheduler->num_walked;
  for (int i = 0; i < 2; i++) step(rig);
  ASSERT_LE(rig->scheduler->num_walked - walked, 1);
  rig_free(rig);
}

/* A prompt is admitted behind the head, which shares 6 of its blocks and then needs 9, not 15. */
Test(looks, an_admission_whose_blocks_it_may_share_is_a_reason_to_look) {
  scheduler_options_t options = rig_options(8, 128, 128);
  options.max_skips = 4;
  rig_t *rig = rig_new(&options, 22, 4, true);
  group_t *holder = rig_add(rig, 16, 8, 1), *leaves = rig_add(rig, 16, 8, 2);
  step(rig);
  group_t *head = rig_add(rig, 60, 8, 9);
  step(rig);
  cr_assert(!runs(head));
  group_t *same = rig_add(rig, 24, 4, 9); /* the first 24 tokens of the head */
  step(rig);
  cr_assert(runs(same));
  step(rig);
  cr_assert(!runs(head));
  ASSERT_EQ(head->unfit.num_blocks, 9);
  end(rig, leaves);
  step(rig);
  cr_assert(runs(head));
  cr_assert(runs(holder));
  cr_assert(runs(same));
  rig_free(rig);
}

/* The same, if the cache has these 6 blocks: then the admission keys none. */
Test(looks, an_admission_that_takes_cached_blocks_is_a_reason_to_look) {
  scheduler_options_t options = rig_options(8, 128, 128);
  options.max_skips = 4;
  rig_t *rig = rig_new(&options, 22, 4, true);
  group_t *before = rig_add(rig, 25, 4, 9);
  step(rig);
  end(rig, before);
  group_t *holder = rig_add(rig, 16, 8, 1), *leaves = rig_add(rig, 16, 8, 2);
  step(rig);
  group_t *head = rig_add(rig, 60, 8, 9);
  step(rig);
  cr_assert(!runs(head));
  group_t *same = rig_add(rig, 25, 4, 9);
  step(rig);
  cr_assert(runs(same));
  ASSERT_GE(same->sequence.num_cached_tokens, 24);
  step(rig);
  cr_assert(!runs(head));
  ASSERT_EQ(head->unfit.num_blocks, 9);
  end(rig, leaves);
  step(rig);
  cr_assert(runs(head));
  cr_assert(runs(holder));
  rig_free(rig);
}

/* A prompt that is scored is computed anew, whatever the cache has: it takes the 6 cached blocks in
 * place of its own once these are computed. The head then needs 9, and as many are free. */
Test(looks, blocks_that_a_scored_prompt_takes_are_a_reason_to_look) {
  scheduler_options_t options = rig_options(8, 128, 128);
  rig_t *rig = rig_new(&options, 22, 4, true);
  group_t *before = rig_add(rig, 25, 4, 9);
  step(rig);
  end(rig, before);
  group_t *holder = rig_add(rig, 16, 8, 1), *scored = rig_add(rig, 25, 4, 9);
  scored->request->params.num_prompt_logprobs = 0;
  group_t *head = rig_add(rig, 60, 8, 9);
  rig_step(rig);
  cr_assert(runs(holder));
  cr_assert(runs(scored));
  ASSERT_EQ(head->unfit.num_blocks, 15);
  ASSERT_EQ(scored->sequence.num_cached_tokens, 0);
  rig_commit(rig, 1);
  step(rig);
  cr_assert(runs(head));
  cr_assert(runs(scored));
  rig_free(rig);
}

Test(looks, the_keys_that_a_request_brings_are_not_made_again) {
  scheduler_options_t options = rig_options(8, 128, 128);
  rig_t *rig = rig_new(&options, 61, 4, true);
  block_key_t keys[2][15];
  group_t *g[3];
  g[0] = rig_add(rig, 60, 8, 9);
  step(rig);
  ASSERT_GT(rig->scheduler->num_hashed, 0);
  uint64_t hashed = rig->scheduler->num_hashed;
  for (int i = 0; i < 2; i++) {
    g[i + 1] = rig_add(rig, 60, 8, 9 + i);
    prefix_keys(rig->pool, 0, rig->ids[i + 1], 15, keys[i]);
    rig->requests[i + 1].prompt_keys = keys[i];
  }
  step(rig);
  cr_assert(runs(g[2]));
  ASSERT_EQ(rig->scheduler->num_hashed, hashed); /* the first one decodes within its 16th block */
  ASSERT_EQ_FOR(g[1]->sequence.num_cached_tokens, 59, "the same prompt: all but its last token");
  ASSERT_EQ(g[2]->sequence.num_cached_tokens, 0);
  rig_free(rig);
}

/* Twenty share the prompt that a first one still computes, and this one leaves. */
Test(looks, the_heir_of_a_prompt_is_searched_once) {
  scheduler_options_t options = rig_options(32, 64, 1024);
  options.long_prefill_token_threshold = 40;
  rig_t *rig = rig_new(&options, 400, 4, true);
  group_t *filler = rig_add(rig, 1000, 4, 1), *others[20];
  step(rig);
  for (int i = 0; i < 20; i++) others[i] = rig_add(rig, 1000, 4, 1);
  step(rig);
  for (int i = 0; i < 20; i++) cr_assert(runs(others[i]));
  uint64_t visited = rig->scheduler->num_visited;
  end(rig, filler);
  ASSERT_LE(rig->scheduler->num_visited - visited, 21);
  for (int i = 0; i < 40; i++) step(rig);
  for (int i = 0; i < 20; i++) ASSERT_GT(others[i]->sequence.num_output_tokens, 0);
  rig_free(rig);
}

/* Of those that run, nobody is asked who shares no block that is still to be filled. */
Test(looks, the_heir_of_a_prompt_is_not_searched_among_all_that_run) {
  scheduler_options_t options = rig_options(64, 128, 1024);
  options.long_prefill_token_threshold = 40;
  rig_t *rig = rig_new(&options, 800, 4, true);
  group_t *others[40];
  for (int i = 0; i < 40; i++) others[i] = rig_add(rig, 5, 60, 100 + i);
  for (int i = 0; i < 8; i++) step(rig);
  group_t *filler = rig_add(rig, 1000, 4, 1);
  step(rig);
  group_t *passed = rig_add(rig, 9, 60, 1), *heir = rig_add(rig, 1000, 4, 1);
  for (int i = 0; i < 4; i++) step(rig);
  for (int i = 0; i < 40; i++) cr_assert(runs(others[i]));
  cr_assert(runs(passed));
  cr_assert(runs(heir));
  uint64_t visited = rig->scheduler->num_visited;
  end(rig, filler);
  ASSERT_LE(rig->scheduler->num_visited - visited, 2);
  for (int i = 0; i < 60; i++) step(rig);
  ASSERT_GT(heir->sequence.num_output_tokens, 0);
  end(rig, heir);
  cr_assert(rig->scheduler->sharers == NULL, "who has ended is listed");
  rig_free(rig);
}

/* The prompt of several choices is not copied for each of them, nor into the row of the first: a
 * row has its end alone, in the block where the output begins. */
Test(looks, rows_have_no_ids_of_a_long_prompt) {
  enum { PROMPT = 3003, BLOCK = 16, CHOICES = 8, NONE = -7 };
  scheduler_options_t options = rig_options(CHOICES, 4096, 4096);
  rig_t *rig = rig_new(&options, 400, BLOCK, true);
  for (int32_t i = 0; i < rig->scheduler->num_rows * options.max_model_len; i++)
    rig->scheduler->token_table[i] = NONE;
  group_t *group = rig_add_choices(rig, PROMPT, 8, 1, CHOICES);
  for (int i = 0; i < 4; i++) step(rig);
  for (int k = 0; k < CHOICES; k++) {
    const sequence_t *seq = &rig_choice(group, k)->sequence;
    int32_t begins = PROMPT - PROMPT % BLOCK;
    for (int32_t i = 0; i < begins; i++) ASSERT_EQ_FOR(seq->tokens[i], NONE, "row at %d", i);
    ASSERT_IDS_EQ(&seq->tokens[begins], &rig->ids[0][begins], PROMPT - begins);
    for (int32_t i = 0; i < PROMPT; i++) ASSERT_EQ(table_id(seq, i), rig->ids[0][i]);
    ASSERT_EQ(seq->num_output_tokens, 3 + (k == 0));
    ASSERT_EQ(table_id(seq, PROMPT), 1 + seq->index);
  }
  end(rig, group);
  rig_free(rig);
}
