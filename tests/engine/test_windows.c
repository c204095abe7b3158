/* test_windows.c: models with sliding windows whose blocks are freed, through the real engine.
 *
 * The fixture has one layer that sees everything and two with a window of 24 tokens; Gemma 4's has
 * one with larger heads, three with a window of 37, and two that read K and V of these. Every token
 * and logprob must be those of a back end without groups of layers, which keeps all blocks: alone,
 * in company, in chunks, from the prefix cache, preempted, with draft tokens, forked and in beams.
 */
#include "engine/internal.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/window/side_blocks.h"
#include "tests/engine/client.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { JOBS = 96, WINDOW = 24, GROUPS = 2, BLOCK = 16 };

static engine_options_t window_options(void) {
  engine_options_t o = client_options(&ops_cpu);
  o.model_dir = "tests/fixtures/windows";
  o.block_size = BLOCK;
  o.max_model_len = 512;
  o.num_threads = 2;
  return o;
}

/* The same back end, which keeps every block. */
static const ops_t *keeps_all(void) {
  static ops_t ops;
  ops = ops_cpu;
  ops.kv_groups = false;
  return &ops;
}

static void make_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % 180, 4 + (i * 7) % 90, i % 30);
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 7 == 0) p->repetition_penalty = 1.3f;
    if (i % 11 == 0) p->num_prompt_logprobs = 0;
    if (i % 8 == 5) {
      p->n = p->best_of = 3;
      p->temperature = 1;
    }
    if (i % 8 == 6) {
      p->temperature = 0;
      p->n = p->best_of = p->beam_width = 2;
    }
    if (params_multiple(p)) client_several(job);
    p->ignore_eos = i % 2 == 0;
  }
}

static void expect_kept_tokens(const char *model, int32_t groups) {
  const struct {
    const char *name;
    int threads, seqs, budget, blocks, drafts; /* blocks 0: so few that some are preempted */
    bool cache;
  } variants[] = {
      {"16 at once", 2, 16, 128, 1500, 0, false}, {"with the cache", 2, 16, 128, 1500, 0, true},
      {"chunks of 5", 1, 4, 5, 1500, 0, true},    {"three threads", 3, 32, 67, 1500, 0, true},
      {"preempted", 2, 16, 64, 0, 3, true},       {"preempted, no cache", 2, 16, 64, 0, 0, false},
      {"drafting", 2, 4, 33, 1500, 7, true},
  };
  engine_options_t o = window_options();
  o.model_dir = model;
  o.ops = keeps_all();
  o.num_threads = 1;
  o.max_num_seqs = 4;
  o.enable_prefix_caching = false;
  o.num_blocks = 600;
  client_t *kept = client_run_all(&o, make_jobs);
  ASSERT_EQ(kept->engine->pool->num_sides, 0);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    o = window_options();
    o.model_dir = model;
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks > 0 ? variants[v].blocks : 50 + 30 * groups;
    o.enable_prefix_caching = variants[v].cache;
    o.draft = (draft_options_t){.tokens_max = variants[v].drafts, .match_min = 1, .match_max = 3};
    client_t *c = client_run_all(&o, make_jobs);
    ASSERT_EQ(c->engine->pool->num_sides, groups);
    client_expect_same(kept, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    ASSERT_EQ_FOR((s.preemptions > 0), (variants[v].blocks == 0), "%s", variants[v].name);
    if (s.preemptions == 0) ASSERT_EQ((s.prefix_hits_tokens > 0), variants[v].cache);
    client_check_idle(c);
    client_free(c);
  }
  client_free(kept);
}

Test(windows, tokens_do_not_depend_on_freed_blocks, .timeout = 600) {
  expect_kept_tokens("tests/fixtures/windows", GROUPS);
}

/* A block has three heads, a layer four. */
Test(windows, tokens_do_not_depend_on_freed_blocks_of_heads, .timeout = 600) {
  expect_kept_tokens("tests/fixtures/gemma4", 4);
}

/* A pool of one layer's blocks that holds 500 tokens in the layer that sees everything, and in the
 * others their windows. All three layers of so many tokens are more than twice as much. */
Test(windows, long_outputs_run_in_what_they_see, .timeout = 120) {
  engine_options_t o = window_options();
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = BLOCK;
  o.num_blocks = 2 + 512 / BLOCK + GROUPS * 4;
  client_t *c = client_new(&o);
  job_t *job = client_job(c, 8, 500, 1);
  job->request.params.ignore_eos = true;
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  ASSERT_EQ(job->num_output, 500);
  ASSERT_EQ(client_stats(c).preemptions, 0);
  client_check_idle(c);
  int32_t layers = 1 + GROUPS;
  o.ops = keeps_all();
  o.num_blocks = o.num_blocks / layers; /* of three layers: as many bytes */
  engine_t *engine = NULL;
  ASSERT_EQ(engine_new(&o, &engine, NULL), 0);
  engine_load(engine);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_destroy(engine);
  o.num_blocks = 600;
  client_t *kept = client_new(&o);
  job_t *same = client_job(kept, 8, 500, 1);
  same->request.params.ignore_eos = true;
  ASSERT_EQ(client_submit(kept, same), 0);
  client_run(kept);
  ASSERT_IDS_EQ(job->output, same->output, 500);
  client_free(kept);
  client_free(c);
}

/* A prompt that begins like one that has gone is taken from the cache up to where its windows are
 * there: here they are at the end of the first prompt. */
Test(windows, a_hit_needs_the_blocks_of_the_window) {
  engine_options_t o = window_options();
  o.num_blocks = 400;
  client_t *c = client_new(&o);
  job_t *first = client_job(c, 200, 2, 1);
  ASSERT_EQ(client_submit(c, first), 0);
  client_run(c);
  job_t *again = client_job(c, 220, 2, 1); /* 200 tokens are those of the first */
  memcpy(again->prompt, first->prompt, 200 * sizeof *first->prompt);
  ASSERT_EQ(client_submit(c, again), 0);
  client_run(c);
  ASSERT_EQ(again->done.num_cached_tokens, 200);
  client_check_idle(c);
  client_free(c);
}

Test(windows, what_knows_one_table_keeps_all_blocks) {
  engine_options_t o = window_options();
  o.ops = swap_double_ops();
  o.swap_space_bytes = 1 << 22;
  o.num_blocks = 200;
  client_t *c = client_new(&o);
  ASSERT_EQ(c->engine->pool->num_sides, 0);
  client_free(c);
  o = window_options();
  o.num_blocks = 200;
  o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3};
  o.draft_model_dir = "tests/fixtures/windows";
  c = client_new(&o);
  ASSERT_EQ(c->engine->pool->num_sides, 0);
  client_free(c);
  o = window_options();
  o.max_model_len = WINDOW; /* nothing is ever behind the window */
  c = client_new(&o);
  ASSERT_EQ(c->engine->pool->num_sides, 0);
  client_free(c);
}

/* Forks that were preempted share their prompt by what the first of them claims. Here the cache has
 * the prompt, so there is nothing to claim, but no side blocks, so nothing is of use. */
Test(windows, preempted_forks_share_what_the_cache_cannot_give, .timeout = 120) {
  engine_options_t o = window_options();
  o.max_num_batched_tokens = BLOCK;
  o.num_blocks = 1 + 52; /* what engine_submit wants; three times the prompt is more */
  client_t *c = client_by_hand(&o);
  scheduler_t *s = c->engine->scheduler;
  job_t *job = client_job(c, 16 * BLOCK, 2 * BLOCK, 1);
  job->request.params.n = job->request.params.best_of = job->request.params.beam_width = 3;
  job->request.params.ignore_eos = true;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  while (s->running.count == 0 || !s->running.head->forked) engine_iterate(c->engine);
  for (int i = 0; i < 4; i++) engine_iterate(c->engine);
  plan_preempt(s, s->running.head, false);
  for (int32_t b = 1; b < c->engine->pool->num_blocks; b++) block_detach(c->engine->pool, b);
  for (int i = 0; i < 1000 && c->num_done == 0; i++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  ASSERT_EQ(c->num_done, 1);
  for (int i = 0; i < 3; i++) ASSERT_EQ(job->choices[i].num_output, 2 * BLOCK);
  client_free(c);
}

/* Beams that come back may draw in the plan of their admission, each in a block of its own: the
 * admission takes the side blocks for that, too, or leaves the beams where they are. */
Test(windows, beams_come_back_with_all_blocks_of_their_draw, .timeout = 120) {
  engine_options_t o = window_options();
  o.max_num_batched_tokens = 2 * BLOCK;
  o.num_blocks = 100;
  client_t *c = client_by_hand(&o);
  scheduler_t *s = c->engine->scheduler;
  block_pool_t *pool = c->engine->pool;
  job_t *job = client_job(c, 2 * BLOCK, BLOCK, 1);
  job->request.params.n = job->request.params.best_of = job->request.params.beam_width = 6;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  while (s->running.count == 0 || !s->running.head->forked) engine_iterate(c->engine);
  plan_preempt(s, s->running.head, false);
  int32_t held[100], count = 0;
  while (pool->num_free > 20) held[count++] = block_allocate(pool); /* the empty ones */
  engine_iterate(c->engine);
  ASSERT_EQ(s->num_preemptions, 1);
  while (count > 0) block_release(pool, held[--count]);
  for (int i = 0; i < 1000 && c->num_done == 0; i++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  ASSERT_EQ(c->num_done, 1);
  ASSERT_EQ(s->num_preemptions, 1);
  client_free(c);
}
