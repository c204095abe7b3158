/* test_constrain.c: grammars in the step: mixed batches, preemption, several choices, ends.
 *
 * The fake device draws the next allowed id of a mask, so a constrained text must match its
 * grammar, and a free request beside it must draw what it would have drawn alone.
 */
#include "engine/grammar/mask/matcher.h"
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <string.h>

enum { VOCAB = 384 };

static grammar_t *compile(client_t *c, const char *pattern) {
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  grammar_source_t source = {.kind = GRAMMAR_REGEX, .text = pattern, .length = strlen(pattern)};
  int code =
      grammar_compile(&source, engine_grammar_vocabulary(c->engine), NULL, NULL, &grammar, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  return grammar;
}

/* Groups of four digits with dashes between them, then "end". */
static void expect_groups(const char *text, size_t length) {
  size_t at = 0;
  while (at < length && text[at] != 'e') {
    cr_assert(strspn(text + at, "0123456789") == 4 && text[at + 4] == '-', "'%s' at %zu", text, at);
    at += 5;
  }
  ASSERT_STR_EQ(text + at, "end");
}

static void expect_free(const job_t *job) {
  int32_t ids[4096];
  int32_t count = job->request.num_prompt_tokens;
  memcpy(ids, job->prompt, (size_t)count * sizeof *ids);
  for (int32_t i = 0; i < job->num_output; i++) {
    int32_t want = fake_next(ids, count, VOCAB);
    ASSERT_EQ_FOR(job->output[i], want, "free request %d, output %d", (int)job->request.id, i);
    ids[count++] = want;
  }
}

static void expect_done_by_length(const job_t *job, int32_t tokens) {
  ASSERT_EQ(job->num_done, 1);
  ASSERT_EQ(job->done.finish, FINISH_LENGTH);
  ASSERT_EQ(job->num_output, tokens);
}

static void mixed_batch(const ops_t *ops, int32_t num_blocks) {
  engine_options_t options = client_options(ops);
  options.num_blocks = num_blocks;
  client_t *c = client_new(&options);
  grammar_t *grammar = compile(c, "(?:[0-9]{4}-){1,30}end");
  for (int i = 0; i < 120; i++) {
    job_t *job = client_job(c, 1 + (i * 37) % 200, i % 2 ? 60 : 300, i);
    if (i % 2 == 0) job->request.grammar = grammar_ref(grammar);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 0; i < 120; i++) {
    const job_t *job = &c->jobs[i];
    if (i % 2) {
      expect_free(job);
    } else {
      cr_assert(job->done.finish == FINISH_STOP, "%d: %d", i, (int)job->done.finish);
      expect_groups(job->text, job->text_length);
    }
    grammar_unref(job->request.grammar);
  }
  ASSERT_GT(client_stats(c).grammar_masks, 0);
  cr_assert(num_blocks > 1000 || client_stats(c).preemptions > 0, "the pool was to be too small");
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
}

Test(constrain, beside_free_requests) {
  mixed_batch(&ops_fake, 2000);
}

Test(constrain, two_steps_in_flight) {
  mixed_batch(fake_ops_deep(), 2000);
}

/* Of `count` requests the first `constrained` have a grammar and decode `tokens` tokens, the others
 * 200. Returns the share of the steps that were launched while the one before was in flight. */
static double overlap_of(int constrained, int count, int32_t tokens, engine_stats_t *out) {
  engine_options_t options = client_options(fake_ops_deep());
  options.max_num_seqs = options.max_num_batched_tokens = 64;
  options.num_blocks = 4000;
  client_t *c = client_by_hand(&options);
  grammar_t *grammar = compile(c, "[ab]{1000}");
  for (int i = 0; i < count; i++) {
    job_t *job = client_job(c, 4, i < constrained ? tokens : 200, i);
    if (i < constrained) job->request.grammar = grammar;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  for (int i = 0; i < 100000 && c->num_done < count; i++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  for (int i = 0; i < count; i++) {
    expect_done_by_length(&c->jobs[i], i < constrained ? tokens : 200);
    if (i >= constrained) expect_free(&c->jobs[i]);
  }
  engine_stats_t stats = client_stats(c);
  *out = stats;
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
  grammar_unref(grammar);
  client_free(c);
  return (double)stats.overlapped_steps / (double)stats.steps;
}

/* It gets a token in every second step. A step has 64 tokens at most, so of all tokens more than
 * 95 of 100 come from steps that overlap. */
Test(constrain, one_row_of_64_leaves_the_steps_overlapped) {
  engine_stats_t stats;
  double share = overlap_of(1, 64, 98, &stats);
  uint64_t apart = stats.steps - stats.overlapped_steps, tokens = 63 * 200 + 98;
  cr_assert(share >= 0.97, "%.3f of the steps", share);
  EXPECT_LE(100 * 64 * apart, 5 * tokens);
  ASSERT_GE(stats.awaited_rows, 97);
  ASSERT_LE(stats.awaited_rows, 98);
}

Test(constrain, steps_do_not_overlap_if_many_would_wait) {
  engine_stats_t stats;
  double share = overlap_of(9, 64, 200, &stats);
  cr_assert(share <= 0.06, "%.3f of the steps", share);
  ASSERT_EQ(stats.awaited_rows, 0);
}

Test(constrain, survives_preemption) {
  mixed_batch(&ops_fake, 120);
}

Test(constrain, ends_at_once_or_at_its_length) {
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_new(&options);
  grammar_t *grammar = compile(c, "[ab]{20}");
  job_t *whole = client_job(c, 10, 50, 1), *cut = client_job(c, 10, 7, 2);
  job_t *longer = client_job(c, 10, 50, 3);
  whole->request.grammar = cut->request.grammar = longer->request.grammar = grammar;
  longer->request.params.min_tokens = 40; /* more than the grammar can give */
  ASSERT_EQ(client_submit(c, whole), 0);
  ASSERT_EQ(client_submit(c, cut), 0);
  ASSERT_EQ(client_submit(c, longer), 0);
  client_run(c);
  ASSERT_EQ(whole->done.finish, FINISH_STOP);
  ASSERT_EQ(whole->text_length, 20);
  ASSERT_EQ(strspn(whole->text, "ab"), 20);
  ASSERT_EQ(longer->done.finish, FINISH_STOP);
  ASSERT_EQ(longer->text_length, 20);
  ASSERT_EQ(cut->done.finish, FINISH_LENGTH);
  ASSERT_EQ(cut->num_output, 7);
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
}

Test(constrain, several_choices_each_follow_the_grammar) {
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_new(&options);
  grammar_t *grammar = compile(c, "(?:[0-9]{4}-){1,30}end");
  job_t *job = client_job(c, 40, 300, 5);
  job->request.params.n = 4;
  job->request.params.best_of = 4;
  job->request.params.temperature = 1;
  job->request.grammar = grammar;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  for (int i = 0; i < 4; i++) {
    ASSERT_EQ(job->choices[i].done.finish, FINISH_STOP);
    expect_groups(job->choices[i].text, job->choices[i].text_length);
  }
  ASSERT_STR_NE(job->choices[0].text, job->choices[1].text);
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
}

/* ---- late masks ---- */

typedef struct slow_run {
  char text[3][256]; /* of a constrained request, of its second choice, of beams */
  engine_stats_t stats;
  int error_code;
  uint64_t step_units_max;
} slow_run_t;

/* Constrained requests of one choice, of two and of two beams, and free ones beside them. */
static slow_run_t run_slow(const ops_t *ops, int32_t mask_units) {
  engine_options_t options = client_options(ops);
  slow_run_t run = {.error_code = 0};
  options.mask_units = mask_units;
  client_t *c = client_new(&options);
  grammar_t *grammar = client_slow_grammar(c);
  job_t *jobs[3];
  for (int i = 0; i < 6; i++) {
    job_t *job = client_job(c, 20 + i, 40, i);
    if (i < 3) {
      jobs[i] = job;
      job->request.grammar = grammar;
      job->request.params.temperature = i == 2 ? 0 : 1;
    }
    if (i == 1) job->request.params.n = job->request.params.best_of = 2;
    if (i == 2) job->request.params.n = job->request.params.beam_width = 2;
    if (i == 1 || i == 2) client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 3; i < 6; i++) expect_free(&c->jobs[i]);
  memcpy(run.text[0], jobs[0]->text, jobs[0]->text_length);
  for (int i = 1; i < 3; i++) ASSERT_NE(jobs[i]->done.finish, FINISH_ERROR);
  for (int i = 1; i < 3; i++)
    memcpy(run.text[i], jobs[i]->choices[1].text, jobs[i]->choices[1].text_length);
  run.error_code = jobs[0]->done.finish == FINISH_ERROR ? jobs[0]->done.error_code : 0;
  run.stats = client_stats(c);
  run.step_units_max = c->engine->constrain.step_units_max;
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
  return run;
}

/* A row whose mask is not ready sits the step out; later it draws the same token. */
Test(constrain, late_masks_change_no_token) {
  const ops_t *devices[] = {&ops_fake, fake_ops_deep()};
  for (int i = 0; i < 2; i++) {
    slow_run_t whole = run_slow(devices[i], 100000000), parts = run_slow(devices[i], 2000);
    ASSERT_EQ(whole.stats.grammar_masks_late, 0);
    ASSERT_GT(parts.stats.grammar_masks_late, 1);
    ASSERT_LE(parts.step_units_max, 2000u + GRAMMAR_UNITS_OVER);
    for (int k = 0; k < 3; k++) ASSERT_STR_EQ(parts.text[k], whole.text[k]);
    ASSERT_GT(strlen(whole.text[0]), 5);
  }
}

/* A request that has spent all that one may cost goes on with one way through its grammar. */
Test(constrain, a_request_that_costs_too_much_goes_on) {
  slow_run_t run = run_slow(&ops_fake, 4);
  ASSERT_EQ(run.error_code, 0);
  ASSERT_GT(strlen(run.text[0]), 2);
}

/* Each letter may begin several ways, so masks take hundreds of thousands of units each. */
static const char ambiguous[] = "root ::= a\n"
                                "a ::= b a b | b a c | b | \"x\" a \"y\" d | [a-z] d a\n"
                                "b ::= [a-m] | [a-z] c | d d\nc ::= \"a\"? \"b\"? | [a-z] a\n"
                                "d ::= [a-z]{1,3} | \"q\" d? c? | [c-p] a";

/* Whatever asks for masks, a step spends its units and no more: 32 choices, beams, free requests
 * beside them, with the default budget. */
Test(constrain, no_step_costs_more_than_its_budget) {
  const ops_t *devices[] = {&ops_fake, fake_ops_deep()};
  for (int i = 0; i < 2; i++) {
    engine_options_t options = client_options(devices[i]);
    client_t *c = client_new(&options);
    grammar_t *grammar = client_grammar(c, ambiguous);
    job_t *jobs[4];
    for (int k = 0; k < 4; k++) {
      job_t *job = jobs[k] = client_job(c, 20 + k, k == 3 ? 40 : 5, k);
      job->request.params.temperature = k < 2 ? 1 : 0;
      if (k < 3) job->request.grammar = grammar;
      if (k < 2) job->request.params.n = job->request.params.best_of = 16;
      if (k == 2) job->request.params.n = job->request.params.beam_width = 4;
      if (k < 3) client_several(job);
      ASSERT_EQ(client_submit(c, job), 0);
    }
    client_run(c);
    for (int k = 0; k < 3; k++)
      ASSERT_NE_FOR(jobs[k]->done.finish, FINISH_ERROR, "job %d: error %d", k,
                    jobs[k]->done.error_code);
    expect_free(jobs[3]);
    ASSERT_LE(c->engine->constrain.step_units_max, 200000u);
    ASSERT_GT(c->engine->constrain.step_units_max, 100000u);
    ASSERT_GT(client_stats(c).grammar_masks_late, 10);
    grammar_unref(grammar);
    client_check_idle(c);
    client_free(c);
  }
}

/* A stop id that the grammar needs as text leaves nothing: that request ends with an error. */
Test(constrain, an_empty_mask_fails_one_request) {
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_new(&options);
  grammar_t *grammar = compile(c, "!#");
  static const int32_t stop = 2; /* "!" */
  job_t *bad = client_job(c, 10, 50, 1), *good = client_job(c, 10, 50, 1);
  bad->request.params.num_stop_token_ids = 1;
  bad->request.params.stop_token_ids = &stop;
  bad->request.grammar = good->request.grammar = grammar;
  ASSERT_EQ(client_submit(c, bad), 0);
  ASSERT_EQ(client_submit(c, good), 0);
  client_run(c);
  ASSERT_EQ(bad->done.finish, FINISH_ERROR);
  ASSERT_EQ(bad->done.error_code, ERR_NO_CHOICE);
  ASSERT_EQ(good->done.finish, FINISH_STOP);
  ASSERT_STR_EQ(good->text, "!#");
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
}
