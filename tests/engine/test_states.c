/* test_states.c: models that keep a state per sequence, through the real engine on the CPU.
 *
 * The same requests under several configurations: batch, chunks, threads, draft tokens, a pool so
 * small that sequences are preempted, with snapshots of states and without. Every token and logprob
 * must be that of the request alone, bit for bit. A chat that goes on and prompts that share a
 * beginning are hits. What cannot run with such a model is refused by the name of its option.
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

static void check_model(const char *model) {
  const struct {
    const char *name;
    int threads, seqs, budget, blocks, snapshots, drafts;
    const char *drafter; /* NULL = prompt lookup */
  } variants[] = {
      {"16 at once", 2, 16, 128, 600, 0, 0, NULL},
      {"chunks of 5", 1, 4, 5, 600, 3, 0, NULL},
      {"three threads, chunks of 67", 3, 32, 67, 900, 40, 0, NULL},
      {"preempted", 2, 16, 64, 60, 0, 0, NULL},
      {"preempted, with snapshots", 2, 16, 64, 60, 20, 0, NULL},
      {"draft tokens", 2, 3, 64, 600, 0, 4, NULL},
      {"draft tokens, few snapshots", 2, 2, 32, 600, 2, 3, NULL},
      {"a draft model", 2, 4, 64, 600, 0, 4, "tests/fixtures/tiny"},
      {"a draft model, few snapshots", 1, 3, 32, 600, 2, 3, "tests/fixtures/tiny"},
      {"a draft model, preempted", 2, 16, 64, 60, 20, 2, "tests/fixtures/tiny"},
  };
  engine_options_t o = state_options(model);
  o.num_threads = o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  o.enable_prefix_caching = false;
  client_t *alone = client_run_all(&o, make_jobs);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    o = state_options(model);
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.enable_prefix_caching = variants[v].snapshots > 0;
    o.num_snapshots = variants[v].snapshots;
    o.draft = (draft_options_t){
        .tokens_max = variants[v].drafts, .match_min = 1, .match_max = 3, .longest = true};
    o.draft_model_dir = variants[v].drafter;
    client_t *c = client_run_all(&o, make_jobs);
    client_expect_same(alone, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    ASSERT_EQ((s.preemptions > 0), (variants[v].blocks == 60));
    if (variants[v].snapshots == 0) ASSERT_EQ(s.prefix_hits_tokens, 0);
    ASSERT_EQ((s.draft_tokens_accepted > 0), (variants[v].drafts > 0));
    ASSERT_EQ((s.draft_tokens > s.draft_tokens_accepted), (variants[v].drafts > 0));
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

/* Mamba-2 and experts, each in layers of their own. */
Test(states, tokens_of_scans_do_not_either, .timeout = 300) {
  check_model("tests/fixtures/scan");
}

/* Mamba-2 beside attention in every layer. */
Test(states, tokens_of_scans_beside_attention_do_not_either, .timeout = 300) {
  check_model("tests/fixtures/beside");
}

/* Mamba-1 between attention and experts. */
Test(states, tokens_of_selections_do_not_either, .timeout = 300) {
  check_model("tests/fixtures/selective");
}

/* No layer has attention. */
Test(states, tokens_without_attention_do_not_either, .timeout = 300) {
  check_model("tests/fixtures/alone");
}

/* ---- hits ---- */

enum { SHARED = 100, OWN = 20, ANSWER = 80 };

/* Runs a prompt of the tokens before it and `own` of its own to its end. */
static job_t *ask(client_t *c, const int32_t *before, int32_t length, int32_t own, int32_t seed) {
  job_t *job = client_job(c, length + own, ANSWER, seed);
  job->request.params.ignore_eos = true;
  memcpy(job->prompt, before, (size_t)length * sizeof *before);
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  ASSERT_EQ(job->num_output, ANSWER);
  return job;
}

/* Three users behind one system prompt; then the third one goes on. */
static void talk(client_t *c, const int32_t *cached) {
  int32_t text[SHARED + OWN + ANSWER] = {0};
  job_t *job = NULL;
  for (int i = 0; i < 3; i++) {
    job = ask(c, text, i > 0 ? SHARED : 0, i > 0 ? OWN : SHARED + OWN, 100 + i);
    ASSERT_EQ_FOR(job->done.num_cached_tokens, cached[i], "user %d", i);
    memcpy(text, job->prompt, (SHARED + OWN) * sizeof *text);
  }
  memcpy(text + SHARED + OWN, job->output, ANSWER * sizeof *text);
  job = ask(c, text, SHARED + OWN + ANSWER, OWN, 200);
  ASSERT_EQ_FOR(job->done.num_cached_tokens, cached[3], "the next turn");
  job = ask(c, job->prompt, SHARED + 2 * OWN + ANSWER, 0, 200);
  ASSERT_EQ_FOR(job->done.num_cached_tokens, cached[4], "the same again");
}

static void check_hits(const char *model) {
  static const int32_t none[5] = {0};
  /* In blocks of 16: the second one finds where they branch off, and the third one's is a hit. An
   * answer leaves a snapshot behind 192 of 199 computed tokens, a prompt behind its last block. */
  static const int32_t hits[5] = {0, 0, 96, 192, 208};
  engine_options_t o = state_options(model);
  o.enable_prefix_caching = false;
  client_t *without = client_new(&o);
  o = state_options(model);
  client_t *with = client_new(&o);
  talk(without, none);
  talk(with, hits);
  for (int i = 0; i < with->count; i++)
    ASSERT_IDS_EQ(with->jobs[i].output, without->jobs[i].output, ANSWER);
  ASSERT_EQ(client_stats(with).prefix_hits_tokens, 96 + 192 + 208);
  client_check_idle(with);
  client_free(with);
  client_free(without);
}

Test(states, chats_and_shared_prompts_are_hits, .timeout = 120) {
  check_hits("tests/fixtures/states");
  check_hits("tests/fixtures/delta");
  check_hits("tests/fixtures/scan");
  check_hits("tests/fixtures/beside");
  check_hits("tests/fixtures/selective");
  check_hits("tests/fixtures/alone");
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
  engine_options_t o = state_options("tests/fixtures/tiny");
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
