/* test_mask_threads.c: whoever makes the masks, the tokens are the same; jobs that are dropped.
 *
 * The fake device draws the next allowed id of a mask, so texts show each bit that matters.
 */
#include "engine/internal.h"
#include "engine/sample/mask_threads.h"
#include "tests/engine/client.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <string.h>
#include <time.h>

enum { VOCAB = 384, JOBS = 12, ROUNDS = 10 };

/* Each letter may begin several ways, so masks take hundreds of thousands of units each. */
static const char ambiguous[] = "root ::= a\n"
                                "a ::= b a b | b a c | b | \"x\" a \"y\" d | [a-z] d a\n"
                                "b ::= [a-m] | [a-z] c | d d\nc ::= \"a\"? \"b\"? | [a-z] a\n"
                                "d ::= [a-z]{1,3} | \"q\" d? c? | [c-p] a";
static const char rows[] = "root ::= (\"[\" [0-9]{4} (\",\" [a-z]{1,8}){0,3} \"]\"){1,9}";

static void nap(void) {
  struct timespec ms = {.tv_nsec = 1000000};
  nanosleep(&ms, NULL);
}

/* ---- through the engine ---- */

typedef struct results {
  char text[JOBS][2][CLIENT_TEXT_MAX]; /* of a request, or of its first choices */
  finish_reason_t finish[JOBS];
  engine_stats_t stats;
} results_t;

static void add_job(client_t *c, int i, grammar_t *grammar) {
  job_t *job = client_job(c, 20 + i, 40, i);
  sampling_params_t *params = &job->request.params;
  job->request.grammar = grammar;
  params->temperature = i % 3 == 2 ? 0 : 1;
  if (i % 5 == 1) params->n = params->best_of = 4;
  if (i % 5 == 2) params->n = params->beam_width = 3;
  if (i % 5 == 1 || i % 5 == 2) client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
}

/* Equal and different grammars, quick and slow ones, choices and beams, at once. */
static results_t *run_with(const ops_t *ops, int32_t threads, int32_t mask_units, int32_t blocks) {
  results_t *results = calloc(1, sizeof *results);
  engine_options_t options = client_options(ops);
  options.mask_threads = threads;
  options.mask_units = mask_units;
  options.num_blocks = blocks;
  client_t *c = client_new(&options);
  grammar_t *grammars[] = {client_grammar(c, rows), client_slow_grammar(c),
                           client_grammar(c, ambiguous)};
  for (int i = 0; i < JOBS; i++) add_job(c, i, grammars[i % 4 % 3]);
  client_run(c);
  for (int i = 0; i < JOBS; i++) {
    const job_t *job = &c->jobs[i];
    bool several = i % 5 == 1 || i % 5 == 2;
    results->finish[i] = job->done.finish;
    for (int k = 0; k < (several ? 2 : 1); k++)
      memcpy(results->text[i][k], several ? job->choices[k].text : job->text,
             several ? job->choices[k].text_length : job->text_length);
  }
  results->stats = client_stats(c);
  for (int i = 0; i < 3; i++) grammar_unref(grammars[i]);
  client_check_idle(c);
  client_free(c);
  return results;
}

static void expect_equal(const ops_t *ops, int32_t mask_units, int32_t blocks) {
  results_t *alone = run_with(ops, 0, mask_units, blocks);
  ASSERT_EQ(alone->stats.grammar_masks_helped, 0);
  for (int threads = 1; threads <= 4; threads += 3) {
    results_t *helped = run_with(ops, threads, mask_units, blocks);
    ASSERT_GT(helped->stats.grammar_masks_helped, 5);
    ASSERT_LE(helped->stats.grammar_masks_late, helped->stats.grammar_masks);
    for (int i = 0; i < JOBS; i++) {
      ASSERT_NE_FOR(alone->finish[i], FINISH_ERROR, "job %d", i);
      ASSERT_EQ_FOR(helped->finish[i], alone->finish[i], "job %d, %d threads", i, threads);
      for (int k = 0; k < 2; k++) ASSERT_STR_EQ(helped->text[i][k], alone->text[i][k]);
      ASSERT_GT(strlen(alone->text[i][0]), 0);
    }
    free(helped);
  }
  free(alone);
}

Test(mask_threads, tokens_are_those_of_no_threads) {
  expect_equal(&ops_fake, 0, 2000);
  expect_equal(fake_ops_deep(), 0, 2000);
}

Test(mask_threads, late_masks_change_no_token) {
  expect_equal(&ops_fake, 2000, 2000);
}

Test(mask_threads, preempted_requests_find_their_masks) {
  expect_equal(&ops_fake, 2000, 60);
}

/* A request that has cost too much goes on with one way through its grammar: from the same token.
 */
Test(mask_threads, requests_that_cost_too_much_turn_narrow_at_the_same_token) {
  expect_equal(&ops_fake, 40, 2000);
}

/* Clients that leave while threads walk for them; afterwards the engine holds nothing of them. */
Test(mask_threads, clients_leave_while_their_masks_are_made) {
  for (int threads = 1; threads <= 4; threads += 3) {
    engine_options_t options = client_options(&ops_fake);
    options.mask_threads = threads;
    client_t *c = client_new(&options);
    for (int round = 0; round < ROUNDS; round++) {
      grammar_t *grammar = client_grammar(c, ambiguous);
      for (int i = 0; i < 6; i++) {
        job_t *job = client_job(c, 20 + i, 40, round * 6 + i);
        job->request.grammar = grammar;
        job->request.params.temperature = 1;
        ASSERT_EQ(client_submit(c, job), 0);
      }
      client_wait_output(c, &c->jobs[round * 6 + 2], 1 + round % 3);
      for (int i = 0; i < 6; i++) engine_cancel(c->engine, &c->jobs[round * 6 + i].request);
      client_run(c);
      grammar_unref(grammar); /* the last one, unless a thread still reads it */
    }
    job_t *job = client_job(c, 20, 40, 1);
    job->request.grammar = client_grammar(c, "root ::= \"abc\"");
    ASSERT_EQ(client_submit(c, job), 0);
    client_run(c);
    ASSERT_STR_EQ(job->text, "abc");
    ASSERT_EQ(c->engine->constrain.num_away, 0);
    grammar_unref(job->request.grammar);
    client_check_idle(c);
    client_free(c);
  }
}

Test(mask_threads, their_number_is_checked) {
  engine_options_t options = client_options(&ops_fake);
  engine_t *engine;
  inferd_error_t error;
  options.mask_threads = MASK_THREADS_MAX + 1;
  ASSERT_EQ(engine_new(&options, &engine, &error), ERR_CONFIGURATION);
  cr_assert(strstr(error.message, "mask_threads is 65"), "%s", error.message);
  static const int32_t wanted[][2] = {{1, 0}, {2, 0}, {3, 0}, {4, 1}, {16, 4}, {128, 8}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    ASSERT_EQ_FOR(mask_threads_default(wanted[i][0]), wanted[i][1], "%d CPUs", wanted[i][0]);
}

/* ---- jobs ---- */

typedef struct bench {
  client_t *c;
  grammar_t *grammar;
  grammar_scratch_t *scratch;
  mask_threads_t *threads;
  mask_job_t job;
  atomic_int wakes;
} bench_t;

static void count_wake(void *context) {
  atomic_fetch_add((atomic_int *)context, 1);
}

/* A job whose walk takes several slices, and one thread. */
static bench_t *bench_new(void) {
  bench_t *b = calloc(1, sizeof *b);
  engine_options_t options = client_options(&ops_fake);
  b->c = client_new(&options);
  b->grammar = client_grammar(b->c, ambiguous);
  const grammar_vocabulary_t *vocabulary = engine_grammar_vocabulary(b->c->engine);
  b->scratch = calloc(1, grammar_scratch_bytes());
  b->job = (mask_job_t){.matcher = calloc(1, grammar_matcher_bytes()),
                        .row = calloc((size_t)grammar_row_words(vocabulary), sizeof(uint32_t)),
                        .units_max = UINT64_MAX};
  ASSERT_EQ(grammar_matcher_start(b->job.matcher, b->scratch, b->grammar, vocabulary), 0);
  static const char text[] = "aaaaaaaaaaaaaaaa"; /* by then a mask takes several slices */
  for (const char *at = text; *at; at++) {
    size_t length;
    for (int32_t id = 0; id < VOCAB; id++) {
      const char *bytes = tokenizer_bytes(b->c->engine->tokenizer, id, &length);
      if (length != 1 || *bytes != *at) continue;
      ASSERT_EQ(grammar_matcher_accept(b->job.matcher, b->scratch, id), 0);
      break;
    }
  }
  inferd_error_t error;
  ASSERT_EQ(mask_threads_new(1, count_wake, &b->wakes, &b->threads, &error), 0);
  return b;
}

static void bench_free(bench_t *b) {
  mask_threads_free(b->threads);
  grammar_unref(b->grammar);
  client_free(b->c);
  free(b->job.matcher);
  free(b->job.row);
  free(b->scratch);
  free(b);
}

static void wait_for(bench_t *b, mask_job_state_t state) {
  while (mask_threads_state(b->threads, &b->job) != state) nap();
}

static uint64_t whole_units(bench_t *b) {
  grammar_walk_t walk = {0};
  ASSERT_EQ(grammar_walk_on(b->job.matcher, b->scratch, &walk, UINT64_MAX, b->job.row), 0);
  return walk.units;
}

Test(mask_threads, a_walk_costs_a_thread_what_it_costs_the_engine) {
  bench_t *b = bench_new();
  uint64_t units = whole_units(b);
  ASSERT_GT(units, 3 * 50000u);
  for (int urgent = 0; urgent < 2; urgent++) {
    b->job.walk = (grammar_walk_t){0};
    mask_threads_post(b->threads, &b->job, urgent);
    wait_for(b, MASK_DONE);
    ASSERT_EQ(b->job.code, 0);
    ASSERT_EQ(b->job.walk.units, units);
    cr_assert(mask_threads_take(b->threads, &b->job));
    ASSERT_EQ(mask_threads_state(b->threads, &b->job), MASK_HERE);
  }
  b->job.walk = (grammar_walk_t){0};
  b->job.units_max = units / 2;
  mask_threads_post(b->threads, &b->job, false);
  wait_for(b, MASK_DONE);
  ASSERT_EQ(b->job.code, GRAMMAR_LATER);
  ASSERT_GT(b->job.walk.units, units / 2);
  cr_assert(mask_threads_take(b->threads, &b->job));
  /* The last wake may still be on its way. Urgent jobs that took several slices wake, too. */
  while (atomic_load(&b->wakes) < 3) nap();
  bench_free(b);
}

/* The step does not wait for a job after its first slice. */
Test(mask_threads, a_slow_job_is_urgent_for_one_slice) {
  bench_t *b = bench_new();
  mask_threads_post(b->threads, &b->job, true);
  mask_threads_wait(b->threads, UINT64_C(300) * 1000000000);
  cr_assert_null(mask_threads_take_next(b->threads, true));
  wait_for(b, MASK_DONE);
  cr_assert(mask_threads_take(b->threads, &b->job));
  bench_free(b);
}

/* A running job that is dropped comes back by the list, and its grammar lives until then. */
Test(mask_threads, a_dropped_job_comes_back) {
  bench_t *b = bench_new();
  bool ran = false;
  while (!ran) {
    b->job.walk = (grammar_walk_t){0};
    mask_threads_post(b->threads, &b->job, false);
    while (mask_threads_state(b->threads, &b->job) == MASK_QUEUED) {
    }
    ran = !mask_threads_drop(b->threads, &b->job, b->grammar);
    if (!ran) cr_assert_null(mask_threads_dropped(b->threads));
  }
  grammar_unref(b->grammar); /* that of the request */
  b->grammar = NULL;
  const mask_job_t *job;
  while ((job = mask_threads_dropped(b->threads)) == NULL) nap();
  cr_assert(job == &b->job);
  ASSERT_EQ(mask_threads_state(b->threads, &b->job), MASK_HERE);
  cr_assert_null(mask_threads_dropped(b->threads));
  bench_free(b);
}
