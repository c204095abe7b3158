/* test_engine.c: the whole engine over the fake device: streams, stops, cancels, limits, faults.
 *
 * The fake device draws every token as a hash of all ids before it, so the expected stream of a
 * request is known without running anything else, whatever shared the batch.
 */
#include "tests/engine/client.h"
#include "tests/sim/fake_ops.h"

#include "engine/internal.h"
#include "tests/expect.h"

#include <string.h>

enum { VOCAB = 384 };

/* Every test runs with one and with two steps in flight. */
#define TEST_DEPTHS(name)                                                                          \
  static void name(const ops_t *ops);                                                              \
  Test(engine, name) {                                                                             \
    name(&ops_fake);                                                                               \
  }                                                                                                \
  Test(engine_two_steps, name) {                                                                   \
    name(fake_ops_deep());                                                                         \
  }                                                                                                \
  static void name(const ops_t *ops)

static void expect_stream(const job_t *job) {
  int32_t ids[4096];
  int32_t count = job->request.num_prompt_tokens;
  memcpy(ids, job->prompt, (size_t)count * sizeof *ids);
  for (int32_t i = 0; i < job->num_output; i++) {
    int32_t want = fake_next(ids, count, VOCAB);
    cr_assert(job->output[i] == want, "request %d: output %d is %d, expected %d",
              (int)job->request.id, i, job->output[i], want);
    ids[count++] = want;
  }
}

static void expect_done(const job_t *job, finish_reason_t finish, int32_t num_output) {
  cr_assert(job->num_done == 1 && job->done.finish == finish, "finish %d", (int)job->done.finish);
  if (num_output >= 0) cr_assert(job->num_output == num_output, "%d tokens", job->num_output);
}

TEST_DEPTHS(hundreds_of_mixed_requests_get_their_own_streams) {
  engine_options_t options = client_options(ops);
  options.num_blocks = 200; /* small enough that some are preempted */
  client_t *c = client_new(&options);
  for (int i = 0; i < 300; i++) {
    job_t *job = client_job(c, 1 + (i * 37) % 400, 1 + (i * 13) % 120, i % 20);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 0; i < c->count; i++) {
    expect_stream(&c->jobs[i]);
    expect_done(&c->jobs[i], FINISH_LENGTH, c->jobs[i].request.params.max_tokens);
  }
  ASSERT_GT_FOR(client_stats(c).preemptions, 0, "the pool was to be too small");
  ASSERT_GT(client_stats(c).prefix_hits_tokens, 0);
  ASSERT_EQ_FOR((ops->pipeline_depth == 2), (fake_resolved() > 0), "steps were to overlap");
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
  client_check_idle(c);
  client_free(c);
}

TEST_DEPTHS(eos_ends_with_stop_and_counts) {
  fake_settings = (fake_settings_t){.first_id = 2, .eos_one_in = 20, .eos_id = 0};
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  for (int i = 0; i < 50; i++) {
    job_t *job = client_job(c, 5 + i, 200, i);
    job->request.params.ignore_eos = i % 5 == 4;
    job->request.params.min_tokens = i % 5 == 3 ? 30 : 0;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 0; i < 50; i++) {
    const job_t *job = &c->jobs[i];
    if (i % 5 == 3) continue; /* suppressed ids are the sampler's business, not the fake device's */
    expect_stream(job);
    bool eos_last = job->output[job->num_output - 1] == 0;
    expect_done(job, i % 5 == 4 || !eos_last ? FINISH_LENGTH : FINISH_STOP, -1);
    if (i % 5 == 4) ASSERT_EQ(job->num_output, 200);
    for (int t = 0; t + 1 < job->num_output && i % 5 != 4; t++) ASSERT_NE(job->output[t], 0);
    ASSERT_EQ_FOR(job->done.stop_token_id, -1, "the primary EOS has no stop_reason");
  }
  for (int i = 3; i < 50; i += 5)
    ASSERT_GE_FOR(c->jobs[i].num_output, 30, "stopped before min_tokens");
  client_free(c);
}

TEST_DEPTHS(a_further_eos_and_a_stop_id_name_themselves) {
  fake_settings = (fake_settings_t){.first_id = 2, .eos_one_in = 20, .eos_id = 1};
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  static int32_t stop_ids[1];
  job_t *a = client_job(c, 9, 400, 1), *b = client_job(c, 9, 400, 2);
  stop_ids[0] = fake_next(b->prompt, 9, VOCAB);
  b->request.params.stop_token_ids = stop_ids;
  b->request.params.num_stop_token_ids = 1;
  client_submit(c, a);
  client_submit(c, b);
  client_run(c);
  expect_done(a, FINISH_STOP, -1);
  ASSERT_EQ(a->done.stop_token_id, 1);
  expect_done(b, FINISH_STOP, 1);
  ASSERT_EQ(b->done.stop_token_id, stop_ids[0]);
  ASSERT_EQ_FOR(b->text_length, 0, "a stop token is not in the text");
  client_free(c);
}

TEST_DEPTHS(a_stop_string_cuts_the_text_and_leaks_nothing) {
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  job_t *plain = client_job(c, 12, 60, 5);
  client_submit(c, plain);
  client_run(c);
  ASSERT_GT(plain->text_length, 30);
  for (size_t at = 1; at + 3 < plain->text_length; at += 7) {
    char stop[4] = {0};
    memcpy(stop, plain->text + at, 3);
    if ((stop[0] & 0xC0) == 0x80 || (plain->text[at + 3] & 0xC0) == 0x80) continue;
    const char *strings[] = {stop};
    size_t lengths[] = {3};
    stop_set_t *stops;
    ASSERT_EQ(stop_set_new(strings, lengths, 1, &stops, NULL), 0);
    job_t *job = client_job(c, 12, 60, 5);
    job->request.stops = stops;
    client_submit(c, job);
    client_run(c);
    const char *found = memmem(plain->text, plain->text_length, stop, 3);
    expect_done(job, FINISH_STOP, -1);
    ASSERT_EQ(job->done.stop_string, 0);
    ASSERT_EQ(job->text_length, (size_t)(found - plain->text));
    cr_assert(memcmp(job->text, plain->text, job->text_length) == 0);
    stop_set_free(stops);
  }
  client_free(c);
}

/* One turn of the engine, in a test that has no engine thread. */
static void turn(client_t *c) {
  engine_iterate(c->engine);
  client_drain(c);
}

TEST_DEPTHS(cancelled_requests_leave_and_give_their_blocks_back) {
  fake_settings = (fake_settings_t){.first_id = 2};
  engine_options_t options = client_options(ops);
  client_t *c = client_by_hand(&options);
  for (int i = 0; i < 40; i++) client_submit(c, client_job(c, 50, 400, i));
  for (int i = 0; i < 100 && c->jobs[0].num_output < 5; i++) turn(c);
  for (int i = 0; i < 40; i += 2) engine_cancel(c->engine, &c->jobs[i].request);
  uint64_t steps = fake_steps(); /* the one in flight ends, the next is planned without them */
  for (int i = 0; i < 100 && c->num_done < 20; i++) turn(c);
  ASSERT_LE_FOR(fake_steps() - steps, 2, "a cancel took %d steps", (int)(fake_steps() - steps));
  for (int i = 0; i < 100000 && c->num_done < 40; i++) turn(c);
  for (int i = 0; i < 40; i++) {
    expect_stream(&c->jobs[i]);
    expect_done(&c->jobs[i], i % 2 ? FINISH_LENGTH : FINISH_ABORT, i % 2 ? 400 : -1);
  }
  client_check_idle(c);
  client_free(c);
}

/* While each step runs, or one of `one_in`, a request comes, `coming` of them in all. */
static client_t *visited;
static int coming, one_in;
static bool comes_by_best_effort;

static void come(void) {
  if (coming == 0 || fake_steps() % (uint64_t)one_in != 0) return;
  job_t *job = client_job(visited, 20, 2, 1000 + coming--);
  job->request.best_effort = comes_by_best_effort;
  cr_assert(client_submit(visited, job) == 0);
}

static client_t *visit(const ops_t *ops, int count, bool by_best_effort) {
  fake_settings = (fake_settings_t){.first_id = 2, .begun = come};
  engine_options_t options = client_options(ops);
  options.max_num_batched_tokens = 64;
  coming = count;
  one_in = 1;
  comes_by_best_effort = by_best_effort;
  return visited = client_by_hand(&options);
}

static void end_visit(client_t *c) {
  for (int i = 0; i < 10000 && c->num_done < c->count; i++) turn(c);
  for (int i = 0; i < c->count; i++) {
    expect_stream(&c->jobs[i]);
    expect_done(&c->jobs[i], FINISH_LENGTH, c->jobs[i].request.params.max_tokens);
  }
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
  fake_settings = (fake_settings_t){.first_id = 2};
  client_check_idle(c);
  client_free(c);
}

static job_t *submit_line(client_t *c, int32_t prompt, int32_t seed) {
  job_t *job = client_job(c, prompt, 6, seed);
  job->request.best_effort = true;
  cr_assert(client_submit(c, job) == 0);
  return job;
}

/* Lines of 90 and 30 tokens, 64 a step: a prompt is left within its first chunk, and begins anew.
 */
Test(engine, a_step_of_best_effort_is_left_for_who_comes) {
  client_t *c = visit(&ops_fake, 1, false);
  submit_line(c, 90, 1);
  submit_line(c, 30, 2);
  turn(c);
  ASSERT_EQ_FOR(c->engine->stats.steps_left, 1, "somebody came");
  ASSERT_EQ(c->engine->stats.scheduled_tokens, 0);
  turn(c);
  EXPECT_EQ_FOR(c->jobs[2].num_output, 1, "who came has a token after the next step");
  EXPECT_EQ(c->engine->stats.steps_left, 1);
  end_visit(c);
}

/* A request of two tokens comes in one of three steps, 20 times. So it comes while one runs in
 * which all others are by best effort: every second time that is left. */
Test(engine, of_two_steps_of_best_effort_one_is_not_left) {
  client_t *c = visit(&ops_fake, 20, false);
  one_in = 3;
  for (int i = 0; i < 8; i++) {
    job_t *line = client_job(c, 40 + i, 60, i);
    line->request.best_effort = true;
    client_submit(c, line);
  }
  uint64_t left = 0;
  for (int i = 0; i < 60; i++) {
    const uint64_t steps = c->engine->stats.steps;
    turn(c);
    if (c->engine->stats.steps_left == left) continue;
    left++;
    ASSERT_EQ_FOR(c->engine->stats.steps_left, left, "turn %d", i);
    ASSERT_EQ_FOR(c->engine->stats.steps, steps, "a step that is left is none, turn %d", i);
  }
  EXPECT_EQ(coming, 0);
  EXPECT_EQ(left, 10);
  end_visit(c);
}

/* Another one by best effort; a step in which a token of another request is due; and a device that
 * runs steps by itself. */
Test(engine, other_steps_are_not_left) {
  client_t *c = visit(&ops_fake, 5, true);
  submit_line(c, 90, 1);
  for (int i = 0; i < 5; i++) turn(c);
  EXPECT_EQ_FOR(c->engine->stats.steps_left, 0, "best effort came");
  end_visit(c);

  c = visit(&ops_fake, 0, false);
  client_submit(c, client_job(c, 20, 12, 7));
  submit_line(c, 60, 1);
  turn(c);
  for (coming = 5; c->jobs[0].num_output < 10;) turn(c);
  EXPECT_EQ_FOR(c->engine->stats.steps_left, 0, "another one was in it");
  end_visit(c);

  c = visit(fake_ops_deep(), 5, false);
  submit_line(c, 90, 1);
  for (int i = 0; i < 5; i++) turn(c);
  EXPECT_EQ_FOR(c->engine->stats.steps_left, 0, "two steps are in flight");
  end_visit(c);
}

TEST_DEPTHS(a_full_queue_refuses_and_recovers) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 500000};
  engine_options_t options = client_options(ops);
  options.max_queue_requests = 10;
  options.max_num_seqs = 2;
  client_t *c = client_new(&options);
  int refused = 0;
  for (int i = 0; i < 60; i++) {
    job_t *job = client_job(c, 8, 50, i);
    request_t *request = &job->request;
    inferd_error_t error = {0};
    int code = engine_submit(c->engine, &request, 1, &error);
    if (code == 0) continue;
    ASSERT_EQ(code, ERR_QUEUE_FULL);
    cr_assert(strstr(error.message, "; at most 10 with ") != NULL, "%s", error.message);
    refused++;
    c->count--;
    memset(job, 0, sizeof *job);
  }
  ASSERT_GT(refused, 0);
  ASSERT_GE(engine_retry_after_s(c->engine), 1);
  client_run(c);
  ASSERT_EQ(client_submit(c, client_job(c, 8, 5, 1)), 0);
  client_run(c);
  client_free(c);
}

/* Before any request has ended, the costs of the prompts alone say how long it takes. */
Test(engine, the_time_of_a_retry_is_that_of_the_prompts_that_wait) {
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_new(&options);
  EXPECT_EQ(engine_retry_after_s(c->engine), 1);
  atomic_store(&c->engine->queued_tokens, 40000);
  atomic_store(&c->engine->wait_token_ns, 500000);
  EXPECT_EQ(engine_retry_after_s(c->engine), 20);
  atomic_store(&c->engine->wait_base_us, 2000000);
  EXPECT_EQ(engine_retry_after_s(c->engine), 22);
  atomic_store(&c->engine->finish_rate_milli, 10); /* seats become free more slowly than that */
  EXPECT_EQ(engine_retry_after_s(c->engine), 100);
  atomic_store(&c->engine->queued_tokens, 0);
  client_free(c);
}

/* One client fills the queue; another, which has less, takes places of it. */
TEST_DEPTHS(a_client_that_fills_the_queue_makes_room_for_another) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 500000};
  engine_options_t options = client_options(ops);
  options.max_queue_requests = 10;
  options.max_num_seqs = 2;
  client_t *c = client_new(&options);
  job_t *flood[100];
  int count = 0, refused = 0;
  while (refused == 0) {
    flood[count] = client_job(c, 8, 200, count);
    flood[count]->request.tenant = 1;
    if (client_submit(c, flood[count]) == 0) {
      count++;
    } else {
      memset(flood[count], 0, sizeof **flood);
      c->count--;
      refused++;
    }
  }
  job_t *other[4];
  for (int i = 0; i < 4; i++) {
    other[i] = client_job(c, 8, 3, 1000 + i);
    other[i]->request.tenant = 2;
    ASSERT_EQ_FOR(client_submit(c, other[i]), 0, "request %d of the other client", i);
  }
  client_run(c);
  for (int i = 0; i < 4; i++) expect_done(other[i], FINISH_LENGTH, 3);
  int dropped = 0;
  for (int i = 0; i < count; i++) {
    bool made_room = flood[i]->done.error_code == ERR_QUEUE_FULL;
    expect_done(flood[i], made_room ? FINISH_ERROR : FINISH_LENGTH, made_room ? 0 : 200);
    dropped += made_room;
  }
  ASSERT_GE(dropped, 2); /* two may have begun since the refusal */
  ASSERT_LE(dropped, 4);
  client_check_idle(c);
  client_free(c);
}

TEST_DEPTHS(what_the_pool_can_never_hold_is_refused_at_the_door) {
  engine_options_t options = client_options(ops);
  options.num_blocks = 40; /* 39 x 16 = 624 slots, context fitted to 608 */
  client_t *c = client_new(&options);
  ASSERT_EQ(engine_info(c->engine)->max_model_len, 608);
  job_t *job = client_job(c, 620, 10, 1);
  ASSERT_EQ(client_submit(c, job), ERR_CONTEXT_LENGTH);
  c->count--;
  client_free(c);
}

TEST_DEPTHS(a_prompt_leaves_room_for_a_token_in_the_context) {
  engine_options_t options = client_options(ops);
  options.max_model_len = 96;
  options.num_blocks = 40;
  client_t *c = client_new(&options);
  ASSERT_EQ(client_submit(c, client_job(c, 96, 1, 1)), ERR_CONTEXT_LENGTH);
  ASSERT_EQ(client_submit(c, client_job(c, 200, 0, 1)), ERR_CONTEXT_LENGTH);
  c->count = 0;
  job_t *last = client_job(c, 95, 10, 1); /* the context ends it */
  ASSERT_EQ(client_submit(c, last), 0);
  client_run(c);
  ASSERT_EQ(last->num_output, 1);
  ASSERT_EQ(last->done.finish, FINISH_LENGTH);
  client_free(c);
}

TEST_DEPTHS(waiting_too_long_ends_with_queue_timeout) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 2000000};
  engine_options_t options = client_options(ops);
  options.max_num_seqs = 1;
  options.max_queue_time_s = 0.3;
  client_t *c = client_new(&options);
  job_t *a = client_job(c, 8, 500, 1), *b = client_job(c, 8, 5, 2);
  client_submit(c, a);
  client_submit(c, b);
  while (!b->num_done) client_drain(c);
  expect_done(b, FINISH_ERROR, 0);
  ASSERT_EQ(b->done.error_code, ERR_QUEUE_TIMEOUT);
  cr_assert(!a->num_done);
  fake_settings.step_ns = 0;
  client_run(c);
  expect_done(a, FINISH_LENGTH, 500);
  client_free(c);
}

/* A cancel that comes when its request has ended already must not reach the request that has the
 * same slot by then. */
Test(engine, a_late_cancel_does_not_reach_the_next_request_of_its_slot) {
  fake_settings = (fake_settings_t){.first_id = 2};
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_by_hand(&options);
  job_t *first = client_job(c, 8, 1, 1);
  client_submit(c, first);
  /* It ends; the loop has not read it yet. */
  for (int i = 0; i < 20; i++) engine_iterate(c->engine);
  engine_cancel(c->engine, &first->request);
  client_drain(c);
  expect_done(first, FINISH_LENGTH, 1);
  job_t *second = client_job(c, 8, 3, 2);
  client_submit(c, second);
  ASSERT_EQ(second->request.slot, first->request.slot);
  for (int i = 0; i < 50 && !second->num_done; i++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  expect_done(second, FINISH_LENGTH, 3);
  client_free(c);
}

/* The loop may post when the engine's iteration has begun: such a request is younger than the
 * iteration. */
TEST_DEPTHS(a_request_younger_than_the_turn_has_not_waited) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 2000000};
  engine_options_t options = client_options(ops);
  options.max_num_seqs = 1;
  options.max_queue_time_s = 30;
  client_t *c = client_new(&options);
  job_t *a = client_job(c, 8, 300, 1), *b = client_job(c, 8, 5, 2);
  b->request.arrival_ns += 60000000000;
  client_submit(c, a);
  client_submit(c, b);
  client_run(c);
  expect_done(a, FINISH_LENGTH, 300);
  expect_done(b, FINISH_LENGTH, 5);
  fake_settings.step_ns = 0;
  client_free(c);
}

TEST_DEPTHS(a_failing_row_ends_its_own_request_only) {
  fake_settings = (fake_settings_t){.first_id = 2, .fail_seed = 7777};
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  for (int i = 0; i < 20; i++) {
    job_t *job = client_job(c, 30, 40, i);
    if (i == 7) job->request.params.seed = 7777;
    client_submit(c, job);
  }
  client_run(c);
  for (int i = 0; i < 20; i++) {
    expect_stream(&c->jobs[i]);
    expect_done(&c->jobs[i], i == 7 ? FINISH_ERROR : FINISH_LENGTH, -1);
  }
  ASSERT_EQ(c->jobs[7].done.error_code, ERR_INTERNAL);
  client_check_idle(c);
  client_free(c);
}

TEST_DEPTHS(a_lost_device_answers_everybody) {
  fake_settings = (fake_settings_t){.first_id = 2, .fail_at_step = 30};
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  request_t *all[40]; /* at once: the device may fail before a loop has submitted the last one */
  for (int i = 0; i < 40; i++) all[i] = &client_job(c, 30, 400, i)->request;
  ASSERT_EQ(engine_submit(c->engine, all, 40, NULL), 0);
  client_run(c);
  for (int i = 0; i < 40; i++) {
    expect_done(&c->jobs[i], FINISH_ERROR, -1);
    ASSERT_EQ(c->jobs[i].done.error_code, ERR_DEVICE_FAILED);
  }
  ASSERT_EQ(engine_state(c->engine), ENGINE_FAILED);
  ASSERT_EQ(client_submit(c, client_job(c, 30, 4, 1)), ERR_ENGINE_FAILED);
  client_free(c);
}

TEST_DEPTHS(scoring_returns_every_prompt_position_and_no_token) {
  engine_options_t options = client_options(ops);
  client_t *c = client_new(&options);
  for (int i = 0; i < 10; i++) {
    job_t *job = client_job(c, 1 + i * 33, i % 2 ? 3 : 0, 4);
    job->request.params.num_prompt_logprobs = 0;
    client_submit(c, job);
  }
  client_run(c);
  for (int i = 0; i < 10; i++) {
    expect_done(&c->jobs[i], FINISH_LENGTH, i % 2 ? 3 : 0);
    ASSERT_EQ(c->jobs[i].num_prompt_logprobs, i * 33);
    ASSERT_EQ_FOR(c->jobs[i].done.num_cached_tokens, 0, "scores must not come from the cache");
  }
  client_free(c);
}

TEST_DEPTHS(stopping_with_work_in_flight_still_ends_every_request) {
  engine_options_t options = client_options(ops);
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 1000000};
  client_t *c = client_new(&options);
  for (int i = 0; i < 30; i++) client_submit(c, client_job(c, 30, 400, i));
  client_wait_output(c, &c->jobs[0], 2);
  engine_stop(c->engine);
  client_run(c);
  for (int i = 0; i < 30; i++) ASSERT_EQ(c->jobs[i].num_done, 1);
  client_free(c);
}

TEST_DEPTHS(more_logprobs_than_tokens) {
  engine_options_t options = client_options(ops);
  inferd_error_t error = {0};
  options.max_logprobs = 1000000;
  engine_t *engine;
  ASSERT_EQ(engine_create(&options, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) continue;
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  ASSERT_EQ(error.code, ERR_CONFIGURATION);
  ASSERT_STR_EQ(error.message,
                "max_logprobs is 1000000; it must be at most 384, the tokens of the model, or -1");
  engine_destroy(engine);
}

TEST_DEPTHS(a_missing_model_says_so) {
  engine_options_t options = client_options(ops);
  options.model_dir = "tests/fixtures/none";
  engine_t *engine;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_create(&options, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) continue;
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  cr_assert(error.code == ERR_MODEL_MISSING && strstr(error.message, "tests/fixtures/none"),
            "%d: %s", error.code, error.message);
  engine_destroy(engine);
}

/* The fake device repeats itself for no prompt; a few ids only make pairs repeat, and its streams
 * are functions of everything before, so that most drafts are wrong and some are right. */
static void drafts_change_nothing(const ops_t *ops) {
  fake_settings = (fake_settings_t){.first_id = VOCAB - 3, .eos_one_in = 300, .eos_id = 0};
  engine_options_t options = client_options(ops);
  options.draft = (draft_options_t){.tokens_max = 7, .match_min = 1, .match_max = 4};
  options.num_blocks = 120; /* some are preempted */
  client_t *c = client_new(&options);
  for (int i = 0; i < 60; i++) {
    job_t *job = client_job(c, 1 + (i * 37) % 200, 1 + (i * 13) % 300, i % 20);
    job->request.params.min_tokens = i % 3 == 0 ? 5 : 0;
    if (job->request.params.min_tokens > job->request.params.max_tokens) {
      job->request.params.min_tokens = 0;
    }
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 0; i < c->count; i++) {
    ASSERT_EQ(c->jobs[i].num_done, 1);
    expect_stream(&c->jobs[i]);
  }
  engine_stats_t stats = client_stats(c);
  ASSERT_GT(stats.draft_tokens_accepted, 0);
  ASSERT_GT(stats.draft_tokens, stats.draft_tokens_accepted);
  ASSERT_GT(stats.preemptions, 0);
  ASSERT_EQ((stats.overlapped_steps > 0), (ops->pipeline_depth == 2));
  ASSERT_EQ(fake_violations(), 0);
  client_check_idle(c);
  client_free(c);
}

Test(engine, drafts_change_nothing_but_the_number_of_steps) {
  drafts_change_nothing(&ops_fake);
}

Test(engine, drafts_beside_steps_that_overlap) {
  drafts_change_nothing(fake_ops_deep());
}

/* The device draws one id for ever, so every draft is right. Rows fail from the 7th token on: the
 * request that stops at the 6th has ended, although a draft token behind it has failed; the one
 * that goes on fails, with the tokens before it. */
Test(engine, a_failed_draft_does_not_hide_the_stop_before_it) {
  static const int32_t last_id = VOCAB - 1;
  fake_settings = (fake_settings_t){.first_id = VOCAB - 1, .nan_after = 6};
  for (int32_t drafts = 1; drafts <= 8; drafts++) {
    engine_options_t options = client_options(&ops_fake);
    options.draft = (draft_options_t){.tokens_max = drafts, .match_min = 1, .match_max = 2};
    client_t *c = client_new(&options);
    for (int i = 0; i < 2; i++) {
      job_t *job = client_job(c, 9, 40, 1);
      job->request.params.stop_token_ids = &last_id;
      job->request.params.num_stop_token_ids = 1;
      job->request.params.min_tokens = i == 0 ? 6 : 30;
      ASSERT_EQ(client_submit(c, job), 0);
      client_run(c);
      cr_assert(job->num_done == 1 && job->done.finish == (i == 0 ? FINISH_STOP : FINISH_ERROR),
                "%d drafts: request %d ends by %d", drafts, i, (int)job->done.finish);
      cr_assert(job->num_output == 6, "%d drafts: %d tokens", drafts, job->num_output);
    }
    ASSERT_GT(client_stats(c).draft_tokens_accepted, 0);
    client_free(c);
  }
}

static void count_wake(void *context) {
  ++*(int *)context;
}

/* A request that scores its prompt and wants no logprobs has no selected row in any step: the loop
 * thread must be woken for its EVENT_DONE all the same, or it never reads it. */
TEST_DEPTHS(the_loop_is_woken_for_a_request_without_selected_rows) {
  int wakes = 0;
  engine_options_t options = client_options(ops);
  options.wake = count_wake;
  options.context = &wakes;
  client_t *c = client_by_hand(&options);
  job_t *job = client_job(c, 20, 0, 1);
  ASSERT_EQ(client_submit(c, job), 0);
  wakes = 0;
  for (int i = 0; i < 8 && wakes == 0; i++) engine_iterate(c->engine);
  cr_assert(wakes == 1, "%d wake-ups in 8 iterations, expected 1", wakes);
  client_drain(c);
  expect_done(job, FINISH_LENGTH, 0);
  client_check_idle(c);
  client_free(c);
}

/* The loop reads nothing for a while: the event ring fills up, and no step may begin that could
 * find it full. No event is lost. */
TEST_DEPTHS(steps_wait_while_the_loop_reads_no_events) {
  enum { JOBS = 64, TOKENS = 500 };
  engine_options_t options = client_options(ops);
  options.max_queue_requests = JOBS; /* a small ring: it has space for the end of each request */
  options.max_num_batched_tokens = options.max_num_seqs = JOBS;
  options.num_blocks = JOBS * (TOKENS / 16 + 3);
  client_t *c = client_by_hand(&options);
  job_t *jobs[JOBS];
  for (int i = 0; i < JOBS; i++) {
    jobs[i] = client_job(c, 4, TOKENS, i);
    jobs[i]->request.params.ignore_eos = true;
    jobs[i]->request.params.num_logprobs = 0; /* so that events are long */
    ASSERT_EQ(client_submit(c, jobs[i]), 0);
  }
  int pauses = 0, iterations = 0;
  for (; c->num_done < JOBS && iterations < 100000; iterations++) {
    bool full = engine_iterate(c->engine) > 0;
    pauses += full;
    if (full) client_drain(c);
  }
  ASSERT_EQ_FOR(c->num_done, JOBS, "after %d iterations", iterations);
  for (int i = 0; i < JOBS; i++) ASSERT_EQ_FOR(jobs[i]->num_output, TOKENS, "request %d", i);
  ASSERT_GT_FOR(pauses, 2, "the ring was never full: this test shows nothing");
  client_free(c);
}
