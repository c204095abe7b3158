/* test_embedding.c: vectors of prompts: what they are, and the same bits whatever shares the batch.
 *
 * The real engine on the CPU back end, tests/fixtures/tiny with random weights.
 */
#include "tests/engine/client.h"
#include "tests/expect.h"

#include "engine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 120, SIZE = 64 /* of tiny */ };

static engine_options_t embed_options(const ops_t *ops, pooling_t pooling) {
  engine_options_t o = client_options(ops);
  o.embedding = (embedding_options_t){.task = TASK_EMBED, .pooling = pooling};
  o.max_model_len = 1024;
  return o;
}

static job_t *embed_job(client_t *c, int32_t tokens, int32_t seed) {
  job_t *job = client_job(c, tokens, 0, seed);
  const embedding_info_t *info = engine_info(c->engine)->embedding;
  ASSERT_EQ(info->size, SIZE);
  job->request.pooling = info->pooling;
  job->request.pooled = calloc(SIZE, sizeof(double));
  cr_assert_not_null(job->request.pooled);
  return job;
}

static void free_client(client_t *c) {
  client_check_idle(c);
  for (int i = 0; i < c->count; i++) free(c->jobs[i].request.pooled);
  client_free(c);
}

/* Prompts of 1 to 400 tokens, many with a common beginning. */
static client_t *run_all(const engine_options_t *options) {
  client_t *c = client_new(options);
  for (int i = 0; i < JOBS; i++) embed_job(c, 1 + (i * 29) % 400, i % 9);
  for (int i = 0; i < JOBS; i++) ASSERT_EQ(client_submit(c, &c->jobs[i]), 0);
  client_run(c);
  for (int i = 0; i < JOBS; i++) {
    ASSERT_EQ(c->jobs[i].done.finish, FINISH_STOP);
    ASSERT_EQ(c->jobs[i].done.num_output_tokens, 0);
  }
  return c;
}

static client_t *run_alone(pooling_t pooling) {
  engine_options_t o = embed_options(&ops_cpu, pooling);
  o.num_threads = 1;
  o.enable_prefix_caching = false;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  return run_all(&o);
}

/* Runs the jobs under one configuration after another and compares all bits. */
static void check_company(pooling_t pooling) {
  client_t *alone = run_alone(pooling);
  const struct {
    const char *name;
    int threads, seqs, budget, blocks;
    bool cache;
    int32_t replicas;
  } variants[] = {
      {"16 at once", 2, 16, 128, 600, false, 1},
      {"with the prefix cache", 2, 16, 128, 600, true, 1},
      {"chunks of 17", 1, 16, 17, 600, true, 1},
      {"three threads, 64 at once", 3, 64, 256, 1200, true, 1},
      {"few blocks", 2, 16, 64, 70, true, 1},
      {"two replicas", 1, 16, 128, 600, true, 2},
  };
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    engine_options_t o = embed_options(&ops_cpu, pooling);
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.enable_prefix_caching = variants[v].cache;
    o.num_replicas = variants[v].replicas;
    client_t *c = run_all(&o);
    for (int i = 0; i < JOBS; i++) {
      const double *a = alone->jobs[i].request.pooled, *b = c->jobs[i].request.pooled;
      cr_assert(memcmp(a, b, SIZE * sizeof *a) == 0, "%s: vector %d differs", variants[v].name, i);
    }
    uint64_t hits = client_stats(c).prefix_hits_tokens;
    if (pooling == POOLING_LAST && variants[v].cache && variants[v].blocks >= 600)
      cr_assert(hits > 0, "%s: no prefix was found", variants[v].name);
    if (pooling == POOLING_MEAN) ASSERT_EQ(hits, 0);
    free_client(c);
  }
  free_client(alone);
}

Test(embedding, last_does_not_depend_on_company, .timeout = 600) {
  check_company(POOLING_LAST);
}

Test(embedding, mean_does_not_depend_on_company, .timeout = 600) {
  check_company(POOLING_MEAN);
}

Test(embedding, cls_does_not_depend_on_company, .timeout = 600) {
  check_company(POOLING_CLS);
}

/* The vectors of the beginnings of one prompt, by `pooling`. */
static client_t *run_beginnings(pooling_t pooling, int32_t count) {
  engine_options_t o = embed_options(&ops_cpu, pooling);
  client_t *c = client_new(&o);
  for (int32_t n = 1; n <= count; n++) ASSERT_EQ(client_submit(c, embed_job(c, n, 5)), 0);
  client_run(c);
  return c;
}

Test(embedding, mean_and_first_follow_from_last, .timeout = 120) {
  enum { TOKENS = 150 };
  client_t *last = run_beginnings(POOLING_LAST, TOKENS);
  client_t *mean = run_beginnings(POOLING_MEAN, TOKENS);
  client_t *cls = run_beginnings(POOLING_CLS, TOKENS);
  double sum[SIZE] = {0};
  for (int32_t n = 0; n < TOKENS; n++) {
    for (int32_t c = 0; c < SIZE; c++) {
      sum[c] += last->jobs[n].request.pooled[c];
      ASSERT_LE(fabs(mean->jobs[n].request.pooled[c] - sum[c] / (n + 1)), 1e-12);
      cr_assert(cls->jobs[n].request.pooled[c] == last->jobs[0].request.pooled[c]);
    }
  }
  cr_assert(memcmp(last->jobs[0].request.pooled, last->jobs[1].request.pooled, sizeof sum) != 0);
  free_client(last);
  free_client(mean);
  free_client(cls);
}

/* Two long prompts of one client are computed side by side, then a second client takes its share
 * of the blocks: the younger prompt makes room in the middle of its mean. */
static void check_preempted(pooling_t pooling) {
  engine_options_t o = embed_options(&ops_cpu, pooling);
  o.max_num_batched_tokens = 48;
  o.short_prompts_pass = false;
  o.long_prefill_token_threshold = 16;
  o.max_num_seqs = 4;
  o.num_blocks = 66; /* 65 x 16 tokens; the null block is the other one */
  client_t *alone = client_by_hand(&o), *c = client_by_hand(&o);
  job_t *want = embed_job(alone, 480, 2);
  ASSERT_EQ(client_submit(alone, want), 0);
  while (!want->num_done) engine_iterate(alone->engine), client_drain(alone);
  job_t *older = embed_job(c, 520, 1), *younger = embed_job(c, 480, 2);
  job_t *other = embed_job(c, 400, 3);
  older->request.tenant = younger->request.tenant = 1;
  other->request.tenant = 2;
  ASSERT_EQ(client_submit(c, older), 0);
  ASSERT_EQ(client_submit(c, younger), 0);
  for (int i = 0; i < 10; i++) engine_iterate(c->engine);
  const group_t *group = &c->engine->groups[younger->request.slot];
  ASSERT_EQ(group->sequence.num_computed_tokens, 160);
  ASSERT_EQ(group->sequence.num_pooled, (pooling == POOLING_MEAN ? 160 : 0));
  ASSERT_EQ(client_submit(c, other), 0);
  while (c->num_done < 3) engine_iterate(c->engine), client_drain(c);
  engine_stats_t stats = client_stats(c);
  ASSERT_EQ(stats.preemptions, 1);
  ASSERT_EQ(group->num_preemptions, 1);
  cr_assert(memcmp(want->request.pooled, younger->request.pooled, SIZE * sizeof(double)) == 0);
  for (int i = 0; i < alone->count; i++) free(alone->jobs[i].request.pooled);
  client_free(alone);
  for (int i = 0; i < c->count; i++) free(c->jobs[i].request.pooled);
  client_free(c);
}

Test(embedding, a_preempted_prompt_goes_on_where_it_was, .timeout = 60) {
  check_preempted(POOLING_MEAN);
  check_preempted(POOLING_LAST);
}

/* A request of the other kind, and options that do not go with the task. */
static void expect_refused(engine_options_t *o, int code, const char *text) {
  engine_t *engine;
  ASSERT_EQ(engine_new(o, &engine, NULL), 0);
  engine_load(engine);
  inferd_error_t error = {0};
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  ASSERT_EQ_FOR(error.code, code, "%s", error.message);
  cr_assert(strstr(error.message, text) != NULL, "%s", error.message);
  engine_destroy(engine);
}

Test(embedding, the_other_task_is_refused, .timeout = 60) {
  engine_options_t o = embed_options(&ops_cpu, POOLING_LAST);
  client_t *embeds = client_new(&o);
  job_t *generates = client_job(embeds, 5, 3, 1);
  ASSERT_EQ(client_submit(embeds, generates), ERR_UNSUPPORTED_ENDPOINT);
  job_t *other_pooling = embed_job(embeds, 5, 1);
  other_pooling->request.pooling = POOLING_MEAN;
  ASSERT_EQ(client_submit(embeds, other_pooling), ERR_UNSUPPORTED_ENDPOINT);
  job_t *longest = embed_job(embeds, 1024, 1); /* the whole context */
  ASSERT_EQ(client_submit(embeds, longest), 0);
  while (!longest->num_done) client_drain(embeds);
  ASSERT_EQ(longest->done.finish, FINISH_STOP);
  free_client(embeds);

  o = client_options(&ops_cpu);
  client_t *generator = client_new(&o);
  cr_assert_null(engine_info(generator->engine)->embedding);
  job_t *job = client_job(generator, 5, 0, 1);
  double room[SIZE];
  job->request.pooling = POOLING_LAST;
  job->request.pooled = room;
  ASSERT_EQ(client_submit(generator, job), ERR_UNSUPPORTED_ENDPOINT);
  client_free(generator);
}

Test(embedding, options_of_the_other_task_are_refused, .timeout = 60) {
  engine_options_t o = embed_options(&ops_cpu, POOLING_LAST);
  o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3};
  expect_refused(&o, ERR_CONFIGURATION, "num_speculative_tokens is 3; it must be 0");
  o = embed_options(&ops_cpu, POOLING_MEAN);
  o.embedding.task = TASK_AUTO;
  expect_refused(&o, ERR_CONFIGURATION, "pooling is set, but the model generates");
  ops_t without = ops_cpu;
  without.read_rows = NULL;
  o = embed_options(&without, POOLING_LAST);
  expect_refused(&o, ERR_CONFIGURATION, "does not run on device cpu yet");
}
