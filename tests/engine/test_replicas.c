/* test_replicas.c: several engines that read one model: the same tokens and logprobs as one, bit
 * for bit; where a request goes; one limit on what waits; and what a lost replica does.
 */
#include "engine/internal.h"
#include "engine/model/forward/internal.h"
#include "engine/quota.h"
#include "engine/replicas/routes.h"
#include "tests/engine/crew.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 24 };

/* ---- the same tokens ---- */

static void make_jobs(client_t *c) {
  crew_add_jobs(c, JOBS);
}

/* Which replicas have answered, as bits. */
static unsigned used(const client_t *client) {
  unsigned bits = 0;
  for (int i = 0; i < client->count; i++) bits |= 1U << client->jobs[i].request.replica;
  return bits;
}

static void check_jobs(engine_options_t options, const char *name, void (*make)(client_t *client)) {
  options.num_threads = 1;
  client_t *alone = client_run_all(&options, make);
  for (int32_t count = 2; count <= 3; count++) {
    options.num_replicas = count;
    client_t *client = client_run_all(&options, make);
    ASSERT_EQ_FOR(used(client), (1U << count) - 1, "%s by %d replicas", name, count);
    client_expect_same(alone, client, name);
    client_check_idle(client);
    const replicas_t *replicas = &client->engine->replicas;
    for (int32_t i = 1; i < count; i++)
      cr_assert(replicas->all[i]->model->embed == client->engine->model->embed,
                "%s: the weights are not shared", name);
    client_free(client);
  }
  client_free(alone);
}

static void check(const char *model, bool as_bf16) {
  check_jobs(crew_options(model, as_bf16), model, make_jobs);
}

Test(replicas, the_tokens_are_those_of_one_engine, .timeout = 300) {
  check("llama-g7-d128", false);
  check("gemma3", false);             /* windows */
  check("moe-qwen3-moe", false);      /* experts */
  check("gpt-oss-mxfp4-bf16", false); /* blocks of 4 bits, unpacked for each panel */
  check("state-qwen3-next", false);   /* states and snapshots */
  check("latent-deepseek-v2", false);
  check("gemma4-e", false); /* layers that read the K and V of others */
  check("gguf-qwen3", true);
  check("packed-fp8-blocks", true);
}

Test(replicas, options_of_one_engine, .timeout = 300) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.draft = (draft_options_t){.tokens_max = 5, .match_min = 1, .match_max = 3, .longest = true};
  check_jobs(o, "drafts", make_jobs);
  o = crew_options("qwen3-g8-bf16", false);
  o.num_blocks = 24, o.max_model_len = 128;
  check_jobs(o, "few blocks", make_jobs);
  o = crew_options("qwen3-g8-bf16", false);
  o.kv_int8 = true;
  check_jobs(o, "a cache of 8 bits", make_jobs);
}

/* Some requests have the adapter of the start, some one that is set later, others none. */
static void adapted_jobs(client_t *c) {
  struct adapter *adapter = NULL;
  inferd_error_t error = {0};
  int code =
      engine_adapter_read(c->engine, "tests/vectors/models/lora-llama/adapter", &adapter, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  engine_adapter_set(c->engine, 2, adapter);
  make_jobs(c);
  for (int i = 0; i < c->count; i++) c->jobs[i].request.adapter = i % 3;
}

Test(replicas, adapters_of_all, .timeout = 120) {
  static const char *const dirs[] = {"tests/vectors/models/lora-llama/adapter"};
  engine_options_t o = crew_options("lora-llama", false);
  o.max_loras = 2, o.max_lora_rank = 8;
  o.lora_dirs = dirs, o.num_lora_dirs = 1;
  check_jobs(o, "adapters", adapted_jobs);
}

/* ---- by hand: no thread runs, so that what waits stays ---- */

static client_t *by_hand(const engine_options_t *options) {
  client_t *c = calloc(1, sizeof *c);
  inferd_error_t error = {0};
  cr_assert(c != NULL && (c->jobs = calloc(CLIENT_REQUESTS, sizeof *c->jobs)) != NULL);
  ASSERT_EQ_FOR(engine_new(options, &c->engine, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(engine_make_replicas(c->engine, options, &error), 0, "%s", error.message);
  const replicas_t *replicas = &c->engine->replicas;
  for (int32_t i = 0; i < replicas->count; i++) {
    ASSERT_EQ(engine_state(c->engine), ENGINE_LOADING);
    engine_load(replicas->all[i]);
  }
  engine_failure(c->engine, &error);
  ASSERT_EQ_FOR(engine_state(c->engine), ENGINE_READY, "%s", error.message);
  return c;
}

static engine_options_t hand_options(int32_t count) {
  engine_options_t o = crew_options("llama-f16", false);
  o.num_threads = 1;
  o.num_replicas = count;
  return o;
}

/* All replicas take turns until every job has ended. */
static void run_by_hand(client_t *c) {
  const replicas_t *replicas = &c->engine->replicas;
  for (int turn = 0; c->num_done < c->count; turn++) {
    ASSERT_LT_FOR(turn, 10000, "%d of %d requests ended", c->num_done, c->count);
    for (int32_t i = 0; i < replicas->count; i++) engine_iterate(replicas->all[i]);
    client_drain(c);
  }
}

static job_t *add_job(client_t *c, int32_t prompt, int32_t max_tokens, int32_t seed) {
  job_t *job = client_job(c, prompt, max_tokens, seed);
  for (int k = 0; k < prompt; k++) job->prompt[k] %= CREW_VOCAB;
  job->request.params.ignore_eos = true;
  return job;
}

static int32_t replica_of(client_t *c, int32_t prompt, int32_t seed) {
  job_t *job = add_job(c, prompt, 2, seed);
  ASSERT_EQ(client_submit(c, job), 0);
  return job->request.replica;
}

static int32_t cached_in(client_t *c, int32_t prompt, int32_t seed) {
  replica_of(c, prompt, seed);
  run_by_hand(c);
  return c->jobs[c->count - 1].done.num_cached_tokens;
}

Test(replicas, a_prefix_goes_where_it_is_cached, .timeout = 60) {
  engine_options_t o = hand_options(3);
  client_t *c = by_hand(&o);
  int32_t places[3];
  for (int i = 0; i < 3; i++) {
    places[i] = replica_of(c, 100, i);
    run_by_hand(c);
  }
  cr_assert(places[0] != places[1] && places[0] != places[2] && places[1] != places[2],
            "idle replicas get %d, %d, %d", places[0], places[1], places[2]);
  for (int i = 2; i >= 0; i--) {
    ASSERT_GE_FOR(cached_in(c, 100, i), 96, "prompt %d", i);
    ASSERT_EQ_FOR(c->jobs[c->count - 1].request.replica, places[i], "prompt %d", i);
  }
  /* a prompt that goes on, and one of another cache domain */
  ASSERT_GE(cached_in(c, 120, 1), 96);
  ASSERT_EQ(c->jobs[c->count - 1].request.replica, places[1]);
  job_t *job = add_job(c, 100, 2, 1);
  job->request.salt = 99;
  ASSERT_EQ(client_submit(c, job), 0);
  run_by_hand(c);
  ASSERT_EQ(job->done.num_cached_tokens, 0);
  client_free(c);
}

/* 64 tokens for each request that runs, against 80 that are cached. */
Test(replicas, a_short_prefix_does_not_keep_a_replica_busy_beside_idle_ones, .timeout = 60) {
  engine_options_t o = hand_options(2);
  client_t *c = by_hand(&o);
  ASSERT_EQ(replica_of(c, 80, 5), 0);
  run_by_hand(c);
  int counts[2] = {0};
  for (int i = 0; i < 8; i++) counts[replica_of(c, 80, 5)]++;
  EXPECT_EQ(counts[0], 5);
  EXPECT_EQ(counts[1], 3);
  run_by_hand(c);
  client_free(c);
}

Test(replicas, a_full_one_leaves_it_to_another, .timeout = 60) {
  engine_options_t o = hand_options(2);
  o.max_num_seqs = 2;
  client_t *c = by_hand(&o);
  ASSERT_EQ(replica_of(c, 120, 5), 0);
  run_by_hand(c);
  EXPECT_EQ(replica_of(c, 120, 5), 0);
  EXPECT_EQ(replica_of(c, 120, 5), 0);
  EXPECT_EQ_FOR(replica_of(c, 120, 5), 1, "the first one has no place to run");
  EXPECT_EQ_FOR(replica_of(c, 120, 5), 1, "its prefix is there now, too");
  EXPECT_EQ_FOR(replica_of(c, 120, 6), 0, "both are full: the one with less to do, or the first");
  run_by_hand(c);
  client_free(c);
}

Test(replicas, a_key_that_may_run_few_requests_has_one, .timeout = 60) {
  engine_options_t o = hand_options(3);
  client_t *c = by_hand(&o);
  quota_t quota = {.max_running = 1};
  for (int i = 0; i < 6; i++) {
    job_t *job = add_job(c, 20, 4, i);
    job->request.tenant = 7;
    job->request.quota = &quota;
    ASSERT_EQ(client_submit(c, job), 0);
    EXPECT_EQ(job->request.replica, c->jobs[0].request.replica);
  }
  engine_iterate(c->engine->replicas.all[c->jobs[0].request.replica]);
  EXPECT_EQ(client_stats(c).num_running, 1);
  run_by_hand(c);
  client_free(c);
}

Test(replicas, prompts_of_one_call_are_shared_out, .timeout = 60) {
  engine_options_t o = hand_options(3);
  client_t *c = by_hand(&o);
  request_t *all[9];
  int counts[3] = {0};
  for (int i = 0; i < 9; i++) all[i] = &add_job(c, 30, 3, i)->request;
  ASSERT_EQ(engine_submit(c->engine, all, 9, NULL), 0);
  for (int i = 0; i < 9; i++) counts[all[i]->replica]++;
  for (int i = 0; i < 3; i++) EXPECT_EQ(counts[i], 3);
  run_by_hand(c);
  client_free(c);
}

static job_t *job_of(client_t *c, uint64_t tenant) {
  job_t *job = add_job(c, 20, 4, c->count);
  job->request.tenant = tenant;
  return job;
}

/* The limit holds for all of them together, and a client makes room in any of them. */
Test(replicas, one_limit_on_what_waits, .timeout = 60) {
  engine_options_t o = hand_options(2);
  o.max_queue_requests = 4;
  client_t *c = by_hand(&o);
  inferd_error_t error = {0};
  for (int i = 0; i < 4; i++) ASSERT_EQ(client_submit(c, job_of(c, 1)), 0);
  ASSERT_EQ(used(c), 3U);
  request_t *more = &job_of(c, 1)->request;
  ASSERT_EQ(engine_submit(c->engine, &more, 1, &error), ERR_QUEUE_FULL);
  cr_assert(strstr(error.message, "4 requests") != NULL, "%s", error.message);
  c->count--;
  for (int i = 0; i < 2; i++) ASSERT_EQ(client_submit(c, job_of(c, 2)), 0);
  run_by_hand(c);
  for (int i = 0; i < 6; i++)
    EXPECT_EQ_FOR(c->jobs[i].done.error_code, i == 2 || i == 3 ? ERR_QUEUE_FULL : 0, "request %d",
                  i);
  for (int i = 0; i < 4; i++) ASSERT_EQ_FOR(client_submit(c, job_of(c, 1)), 0, "none waits");
  engine_set_queue(c->engine, 2, 0);
  more = &job_of(c, 1)->request;
  ASSERT_EQ(engine_submit(c->engine, &more, 1, &error), ERR_QUEUE_FULL);
  c->count--;
  run_by_hand(c);
  client_check_idle(c);
  client_free(c);
}

Test(replicas, a_cancel_reaches_the_right_one, .timeout = 60) {
  engine_options_t o = hand_options(2);
  client_t *c = by_hand(&o);
  for (int i = 0; i < 4; i++) ASSERT_EQ(client_submit(c, add_job(c, 20, 300, i)), 0);
  for (int i = 0; i < 2; i++) engine_cancel(c->engine, &c->jobs[i].request);
  ASSERT_NE(c->jobs[0].request.replica, c->jobs[1].request.replica);
  run_by_hand(c);
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(c->jobs[i].done.finish, i < 2 ? FINISH_ABORT : FINISH_LENGTH);
  client_free(c);
}

/* Sums of all; each by itself; and the busy one that makes no steps is the one that counts. */
Test(replicas, statistics, .timeout = 60) {
  engine_options_t o = hand_options(2);
  client_t *c = by_hand(&o);
  engine_stats_t one[2], all;
  for (int i = 0; i < 6; i++) ASSERT_EQ(client_submit(c, add_job(c, 20 + i, 4, i)), 0);
  run_by_hand(c);
  const replicas_t *replicas = &c->engine->replicas;
  for (int32_t i = 0; i < 2; i++) engine_iterate(replicas->all[i]);
  for (int32_t i = 0; i < 2; i++) engine_stats_of(c->engine, i, &one[i]);
  engine_stats(c->engine, &all);
  cr_assert(one[0].prompt_tokens > 0 && one[1].prompt_tokens > 0);
  EXPECT_EQ(all.prompt_tokens, 6 * 20 + 15);
  EXPECT_EQ(all.prompt_tokens, one[0].prompt_tokens + one[1].prompt_tokens);
  EXPECT_EQ(all.blocks_free + all.blocks_cached, 2 * (engine_info(c->engine)->num_blocks - 1));
  EXPECT_EQ(all.steps, one[0].steps + one[1].steps);
  cr_assert(all.last_step_ns == one[0].last_step_ns || all.last_step_ns == one[1].last_step_ns);
  for (int i = 0; i < 2; i++) ASSERT_EQ(client_submit(c, add_job(c, 20, 40, 10 + i)), 0);
  ASSERT_NE(c->jobs[6].request.replica, c->jobs[7].request.replica);
  for (int i = 0; i < 20; i++) engine_iterate(replicas->all[1]);
  engine_stats_of(c->engine, 1, &one[1]);
  engine_stats(c->engine, &all);
  cr_assert(all.last_step_ns < one[1].last_step_ns, "the first one has not begun");
  engine_activity_t slow, first;
  engine_activity(c->engine, &slow);
  engine_activity(replicas->all[0], &first);
  EXPECT_EQ(slow.worked_ns, replicas->all[0]->activity.worked_ns);
  run_by_hand(c);
  client_free(c);
}

/* ---- failures ---- */

static device_t *last_opened, *lost;

static int open_noted(const device_options_t *options, device_t **out, inferd_error_t *error) {
  int code = ops_cpu.open(options, out, error);
  last_opened = *out;
  return code;
}

static int end_lost(device_t *device, inferd_error_t *error) {
  if (device != lost) return ops_cpu.end(device, error);
  return error_set(error, ERR_DEVICE_FAILED, NULL, "planted failure");
}

Test(replicas, a_lost_one_fails_the_engine, .timeout = 60) {
  ops_t ops = ops_cpu;
  ops.open = open_noted;
  ops.end = end_lost;
  engine_options_t o = hand_options(2);
  o.ops = &ops;
  client_t *c = by_hand(&o);
  inferd_error_t error = {0};
  for (int i = 0; i < 4; i++) ASSERT_EQ(client_submit(c, add_job(c, 20, 30, i)), 0);
  for (int32_t i = 0; i < 2; i++) engine_iterate(c->engine->replicas.all[i]);
  lost = last_opened; /* of the second one */
  run_by_hand(c);
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(c->jobs[i].done.error_code, c->jobs[i].request.replica == 1 ? ERR_DEVICE_FAILED : 0);
  ASSERT_EQ(engine_state(c->engine), ENGINE_FAILED);
  engine_failure(c->engine, &error);
  EXPECT_STR_EQ(error.message, "planted failure");
  ASSERT_EQ(client_submit(c, add_job(c, 20, 4, 9)), ERR_ENGINE_FAILED);
  lost = NULL;
  client_free(c);
}

Test(replicas, a_leader_that_does_not_load_fails_all, .timeout = 60) {
  engine_options_t o = hand_options(3);
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  o.max_model_len = 1 << 30;
  ASSERT_EQ(engine_create(&o, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) sched_yield();
  engine_failure(engine, &error);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  cr_assert(strstr(error.message, "max_model_len") != NULL, "%s", error.message);
  engine_destroy(engine);
}

static void no_event(void *context, const event_t *event) {
  (void)context;
  cr_assert_fail("an event of request %llu", (unsigned long long)event->request->id);
}

/* The leader is ready, and wakes the loop, before the others are. */
Test(replicas, events_are_asked_for_while_some_load, .timeout = 60) {
  engine_options_t o = hand_options(3);
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_create(&o, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) ASSERT_EQ(engine_drain(engine, no_event, NULL), 0);
  ASSERT_EQ(engine_state(engine), ENGINE_READY);
  engine_destroy(engine);
}

static void expect_refused(engine_options_t options, const char *word) {
  inferd_error_t error = {0};
  int code = engine_survey(&options, NULL, &error);
  EXPECT_EQ_FOR(code, ERR_CONFIGURATION, "%s", word);
  cr_expect(strstr(error.message, word) != NULL, "%s", error.message);
  cr_expect(strstr(error.message, "data_parallel_size") != NULL, "%s", error.message);
}

Test(replicas, what_does_not_go_with_them) {
  ops_t ops = ops_cpu;
  ops.lends_weights = false;
  engine_options_t o = hand_options(2);
  o.ops = &ops;
  expect_refused(o, "on a CPU only");
  o = hand_options(2);
  o.planned_ranks = 2;
  expect_refused(o, "tensor_parallel_size");
  o = hand_options(2);
  o.prefix_cache_file = "/tmp/no-such-file";
  expect_refused(o, "prefix_cache_file");
  o = hand_options(2);
  o.draft_model_dir = o.model_dir;
  expect_refused(o, "speculative_model");
  o = hand_options(REPLICAS_MAX + 1);
  expect_refused(o, "1 to 16");
}

static void note_weights(void *context, const char *line) {
  const char *at = strstr(line, "weights ");
  if (strncmp(line, "memory", 6) == 0 && at != NULL)
    *(double *)context = strtod(at + strlen("weights "), NULL);
}

/* Each has places for adapters of its own, beside weights that are there once. */
Test(replicas, the_plan_has_the_adapters_of_all) {
  double gib[3];
  for (int32_t count = 1; count <= 2; count++) {
    engine_options_t o = crew_options("lora-llama", false);
    inferd_error_t error = {0};
    o.max_loras = 30, o.max_lora_rank = 512;
    o.num_replicas = count;
    o.log = note_weights, o.context = &gib[count];
    ASSERT_EQ_FOR(engine_survey(&o, NULL, &error), 0, "%s", error.message);
  }
  cr_assert(gib[1] > 0.1, "%g GiB", gib[1]);
  cr_assert(fabs(gib[2] - 2 * gib[1]) < 0.02, "%g GiB with two, %g with one", gib[2], gib[1]);
}

/* ---- routes ---- */

static void make_keys(block_key_t *keys, int32_t count, uint64_t seed) {
  for (int32_t i = 0; i < count; i++) {
    uint64_t value = seed << 32 | (uint64_t)i;
    keys[i] = (block_key_t){{value * UINT64_C(0x9E3779B97F4A7C15), value * 31 + 7}};
  }
}

Test(routes, a_prefix_is_known_until_as_many_others_came) {
  block_key_t keys[40], others[40];
  routes_t *routes = routes_new(64);
  cr_assert(routes != NULL);
  EXPECT_EQ(routes_match(NULL, keys, 4), 0);
  make_keys(keys, 40, 1);
  EXPECT_EQ(routes_match(routes, keys, 40), 0);
  routes_note(routes, keys, 20);
  EXPECT_EQ(routes_match(routes, keys, 40), 20);
  EXPECT_EQ(routes_match(routes, keys, 7), 7);
  make_keys(others, 40, 2);
  EXPECT_EQ(routes_match(routes, others, 40), 0);
  routes_note(routes, others, 30);
  EXPECT_EQ(routes_match(routes, keys, 40), 20);
  routes_note(routes, keys, 10); /* used again */
  make_keys(others, 40, 3);
  routes_note(routes, others, 35);
  EXPECT_EQ_FOR(routes_match(routes, keys, 40), 10, "the rest came 65 keys ago");
  EXPECT_EQ(routes_noted(routes), 20 + 30 + 35);
  routes_free(routes);
}
