/* test_states.c: models that keep a state per sequence, through the real engine on the CPU.
 *
 * The same requests under several configurations: batch, chunks, threads, a pool so small that
 * sequences are preempted and computed again from a state of zeros, several choices that fork, and
 * beams. Every token and logprob must be that of the request alone, bit for bit. What cannot run
 * with such a model is refused by the name of its option.
 */
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { JOBS = 72 };

static engine_options_t state_options(const char *model) {
  engine_options_t o = client_options(&ops_cpu);
  o.model_dir = model;
  o.max_model_len = 512;
  o.num_threads = 2;
  return o;
}

static void make_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % 180, 4 + (i * 7) % 40, i % 60);
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 7 == 0) p->repetition_penalty = 1.3f;
    if (i % 11 == 0) p->num_prompt_logprobs = 0;
    p->ignore_eos = i % 2 == 0;
  }
}

static client_t *run_all(const engine_options_t *options) {
  client_t *c = client_new(options);
  make_jobs(c);
  for (int i = 0; i < JOBS; i++) ASSERT_EQ(client_submit(c, &c->jobs[i]), 0);
  client_run(c);
  return c;
}

static void expect_same(const client_t *want, const client_t *got, const char *name) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *a = &want->jobs[i], *b = &got->jobs[i];
    ASSERT_EQ_FOR(b->num_output, a->num_output, "%s: request %d", name, i);
    ASSERT_IDS_EQ(b->output, a->output, CLIENT_OUTPUT_MAX);
    cr_assert(memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs) == 0,
              "%s: prompt logprobs of request %d differ", name, i);
  }
}

static void check_model(const char *model) {
  const struct {
    const char *name;
    int threads, seqs, budget, blocks;
  } variants[] = {
      {"16 at once", 2, 16, 128, 600},
      {"chunks of 5", 1, 4, 5, 600},
      {"three threads, chunks of 67", 3, 32, 67, 900},
      {"preempted", 2, 16, 64, 60},
  };
  engine_options_t o = state_options(model);
  o.num_threads = o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  client_t *alone = run_all(&o);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    o = state_options(model);
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    client_t *c = run_all(&o);
    expect_same(alone, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    ASSERT_EQ((s.preemptions > 0), (variants[v].blocks == 60));
    ASSERT_EQ(s.prefix_hits_tokens, 0);
    client_check_idle(c);
    client_free(c);
  }
  client_free(alone);
}

Test(states, tokens_do_not_depend_on_company, .timeout = 300) {
  check_model("tests/fixtures/states");
}

Test(states, tokens_of_delta_nets_do_not_either, .timeout = 300) {
  check_model("tests/fixtures/delta");
}

/* ---- refusals ---- */

static void expect_refused(const engine_options_t *o, const char *option) {
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(engine_new(o, &engine, &error), 0, "%s", error.message);
  engine_load(engine);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  ASSERT_EQ_FOR(error.code, ERR_CONFIGURATION, "%s", error.message);
  cr_assert(strstr(error.message, option) != NULL, "%s is not in: %s", option, error.message);
  cr_assert(strstr(error.message, "state") != NULL, "%s", error.message);
  engine_destroy(engine);
}

Test(states, what_they_exclude_is_refused_by_name) {
  engine_options_t o = state_options("tests/fixtures/states");
  o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3};
  expect_refused(&o, "num_speculative_tokens");
  o = state_options("tests/fixtures/tiny");
  o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3};
  o.draft_model_dir = "tests/fixtures/states";
  expect_refused(&o, "speculative_model");
  o = state_options("tests/fixtures/states");
  o.max_loras = 1, o.max_lora_rank = 8;
  expect_refused(&o, "enable_lora");
  o = state_options("tests/fixtures/states");
  o.swap_space_bytes = 1 << 20;
  expect_refused(&o, "swap_space");
  ops_t without = ops_cpu;
  without.state = NULL;
  o = state_options("tests/fixtures/states");
  o.ops = &without;
  expect_refused(&o, "device cpu");
}
