/* test_choices.c: n and best_of through the whole engine, on the fake device and on the CPU.
 *
 * Choice j of a request must be what a request of its own gets whose random stream is the one of
 * (seed, j): the same tokens, logprobs, text and end, bit for bit, whatever shares the batch and
 * however often the group is preempted.
 */
#include "engine/base/random.h"
#include "engine/device/ops.h"
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 384, GROUPS = 24 };

/* random_mix is a bijection; this undoes it. */
static uint64_t unmix(uint64_t x) {
  const uint64_t factors[] = {RANDOM_MIX_2, RANDOM_MIX_1};
  const int shifts[] = {31, 27, 30};
  for (int step = 0; step < 3; step++) {
    uint64_t y = x;
    for (int i = 0; i < 3; i++) y = x ^ y >> shifts[step];
    x = y;
    if (step == 2) break;
    uint64_t inverse = factors[step];
    for (int i = 0; i < 6; i++) inverse *= 2 - factors[step] * inverse; /* Newton, modulo 2^64 */
    x *= inverse;
  }
  return x;
}

/* The seed whose first stream is stream `index` of `seed`. */
static uint64_t seed_of_stream(uint64_t seed, uint32_t index) {
  uint64_t base = random_mix(seed + RANDOM_GAMMA) + (uint64_t)index * RANDOM_GAMMA;
  uint64_t out = unmix(base) - RANDOM_GAMMA;
  ASSERT_EQ(random_key(out, 0), random_key(seed, index));
  return out;
}

static void shape(job_t *job, int i) {
  sampling_params_t *p = &job->request.params;
  p->seed = (uint64_t)i * 77 + 5;
  p->temperature = 0.9f;
  p->num_logprobs = i % 3 - 1;
  if (i % 4 == 1) p->top_p = 0.7f;
  if (i % 5 == 2) p->repetition_penalty = 1.2f;
  if (i % 6 == 3) p->num_prompt_logprobs = 0;
  p->ignore_eos = i % 2 == 0;
}

static int num_choices(int i) {
  return 1 + i % 6;
}

static int32_t prompt_length(int i) {
  static const int32_t lengths[] = {48, 44, 43, 1, 16, 90};
  return lengths[i % 6];
}

static job_t *add(client_t *c, int i) {
  job_t *job = client_job(c, prompt_length(i), 5 + i * 3 % 40, i % 7);
  shape(job, i);
  return job;
}

static client_t *run_singles(const engine_options_t *o) {
  client_t *c = client_new(o);
  for (int i = 0; i < GROUPS; i++) {
    for (int j = 0; j < num_choices(i); j++) {
      job_t *job = add(c, i);
      job->request.params.seed = seed_of_stream(job->request.params.seed, (uint32_t)j);
      ASSERT_EQ(client_submit(c, job), 0);
    }
  }
  client_run(c);
  return c;
}

static client_t *run_groups(const engine_options_t *o) {
  client_t *c = client_new(o);
  for (int i = 0; i < GROUPS; i++) {
    job_t *job = add(c, i);
    job->request.params.n = num_choices(i);
    if (num_choices(i) > 1) client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  client_check_idle(c);
  return c;
}

static void expect_equal(const job_t *want, const job_t *got, int j, const char *name) {
  int32_t count = got->choices ? got->choices[j].num_output : got->num_output;
  const int32_t *output = got->choices ? got->choices[j].output : got->output;
  const event_t *done = got->choices ? &got->choices[j].done : &got->done;
  const char *text = got->choices ? got->choices[j].text : got->text;
  size_t length = got->choices ? got->choices[j].text_length : got->text_length;
  cr_assert(count == want->num_output, "%s: choice %d has %d tokens, alone %d", name, j, count,
            want->num_output);
  ASSERT_IDS_EQ(output, want->output, count);
  ASSERT_EQ(length, want->text_length);
  cr_assert(memcmp(text, want->text, length) == 0);
  ASSERT_EQ(done->finish, want->done.finish);
  ASSERT_EQ(done->stop_token_id, want->done.stop_token_id);
}

static void expect_all_equal(const client_t *singles, const client_t *groups, const char *name) {
  int at = 0;
  for (int i = 0; i < GROUPS; i++) {
    const job_t *job = &groups->jobs[i];
    for (int j = 0; j < num_choices(i); j++) expect_equal(&singles->jobs[at++], job, j, name);
    if (i % 6 == 3) ASSERT_EQ_FOR(job->num_prompt_logprobs, prompt_length(i) - 1, "scored once");
  }
}

static void compare_on(const struct ops *ops) {
  engine_options_t o = client_options(ops);
  client_t *singles = run_singles(&o);
  const struct {
    const char *name;
    int seqs, budget, blocks;
    bool cache;
  } variants[] = {{"as usual", 16, 128, 600, true},
                  {"no cache", 16, 128, 600, false},
                  {"chunks of 9", 9, 9, 600, true},
                  {"preempted", 16, 64, 36, true},
                  {"preempted, no cache", 16, 64, 36, false}};
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    o = client_options(ops);
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.max_model_len = 512;
    o.enable_prefix_caching = variants[v].cache;
    client_t *groups = run_groups(&o);
    expect_all_equal(singles, groups, variants[v].name);
    if (variants[v].blocks < 100) ASSERT_GT(client_stats(groups).preemptions, 0);
    client_free(groups);
  }
  client_free(singles);
}

Test(choices, on_the_fake_device_each_is_a_request_of_its_own, .timeout = 120) {
  fake_settings = (fake_settings_t){.first_id = 2, .eos_one_in = 30, .eos_id = 1};
  compare_on(&ops_fake);
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
}

Test(choices, with_two_steps_in_flight_each_is_a_request_of_its_own, .timeout = 120) {
  fake_settings = (fake_settings_t){.first_id = 2, .eos_one_in = 30, .eos_id = 1};
  compare_on(fake_ops_deep());
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
}

Test(choices, on_the_cpu_each_is_a_request_of_its_own, .timeout = 300) {
  compare_on(&ops_cpu);
}

Test(choices, greedy_choices_are_equal) {
  engine_options_t o = client_options(&ops_cpu);
  client_t *c = client_new(&o);
  job_t *job = client_job(c, 21, 30, 3);
  job->request.params.n = 5;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  for (int j = 1; j < 5; j++) {
    ASSERT_IDS_EQ(job->choices[j].output, job->choices[0].output, CLIENT_OUTPUT_MAX);
  }
  client_free(c);
}

/* Ranks of the samples of `all` by mean logprob, the lower index first on ties. */
static void rank_samples(const job_t *all, int32_t *order) {
  double mean[32];
  for (int32_t j = 0; j < all->num_choices; j++) {
    const choice_t *c = &all->choices[j];
    double sum = 0;
    for (int32_t t = 0; t < c->num_output; t++) sum += (double)c->logprob[t];
    mean[j] = sum / c->num_output;
    int32_t at = j;
    for (; at > 0 && mean[order[at - 1]] < mean[j]; at--) order[at] = order[at - 1];
    order[at] = j;
  }
}

Test(choices, best_of_returns_the_best_means_best_first, .timeout = 60) {
  engine_options_t o = client_options(&ops_cpu);
  client_t *c = client_new(&o);
  for (int i = 0; i < 12; i++) {
    for (int turn = 0; turn < 2; turn++) { /* all samples, then the best of them */
      job_t *job = add(c, i);
      sampling_params_t *p = &job->request.params;
      p->num_logprobs = turn == 0 ? 2 : i % 4 - 1;
      p->best_of = 3 + i % 4;
      p->n = turn == 0 ? p->best_of : 1 + i % 3;
      client_several(job);
      ASSERT_EQ(client_submit(c, job), 0);
    }
  }
  client_run(c);
  for (int i = 0; i < 12; i++) {
    const job_t *all = &c->jobs[2 * i], *best = &c->jobs[2 * i + 1];
    int32_t order[32];
    rank_samples(all, order);
    bool compete = params_collect(&best->request.params);
    for (int32_t j = 0; j < all->num_choices && !compete; j++) order[j] = j;
    for (int32_t j = 0; j < best->num_choices; j++) {
      const choice_t *want = &all->choices[order[j]], *got = &best->choices[j];
      ASSERT_EQ_FOR(got->num_output, want->num_output, "request %d choice %d", i, j);
      ASSERT_IDS_EQ(got->output, want->output, CLIENT_OUTPUT_MAX);
      ASSERT_EQ(got->text_length, want->text_length);
      cr_assert(memcmp(got->text, want->text, got->text_length) == 0, "%.*s, expected %.*s",
                (int)got->text_length, got->text, (int)want->text_length, want->text);
      ASSERT_EQ(got->done.finish, want->done.finish);
      if (compete)
        ASSERT_LT(fabs(got->done.cumulative_logprob - want->done.cumulative_logprob), 1e-9);
      if (best->request.params.num_logprobs < 2) continue;
      cr_assert(memcmp(got->logprob, want->logprob, sizeof got->logprob) == 0);
      for (int32_t t = 0; t < got->num_output; t++) {
        cr_assert(memcmp(got->top[t], want->top[t], 2 * sizeof(token_logprob_t)) == 0);
      }
    }
    int32_t sum = 0;
    for (int32_t j = 0; j < best->num_choices; j++) sum += best->choices[j].num_output;
    ASSERT_EQ_FOR(best->done.num_output_tokens, sum, "usage counts what is returned");
  }
  client_free(c);
}

Test(choices, scoring_with_several_choices_ends_each_of_them) {
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_new(&o);
  for (int i = 0; i < 3; i++) {
    job_t *job = client_job(c, 20, 0, i);
    job->request.params.n = 3;
    job->request.params.num_prompt_logprobs = 0;
    job->request.params.best_of = i == 1 ? 5 : 0;
    job->request.params.beam_width = i == 2 ? 4 : 0;
    client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(c->jobs[i].num_prompt_logprobs, 19);
    ASSERT_EQ(c->jobs[i].done.finish, FINISH_LENGTH);
  }
  client_check_idle(c);
  client_free(c);
}

Test(choices, a_group_that_fails_or_is_cancelled_ends_once) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 200000, .fail_seed = 7777};
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_new(&o);
  for (int i = 0; i < 16; i++) {
    job_t *job = client_job(c, 30, 400, i);
    job->request.params.n = 4;
    job->request.params.best_of = i % 2 ? 4 : 5;
    job->request.params.temperature = 1;
    if (i % 8 == 3) job->request.params.seed = 7777;
    client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
  while (c->jobs[1].choices[0].num_output < 5) client_drain(c);
  for (int i = 0; i < 16; i += 2) {
    if (!c->jobs[i].num_done) engine_cancel(c->engine, &c->jobs[i].request);
  }
  fake_settings.step_ns = 0;
  client_run(c);
  for (int i = 0; i < 16; i++) {
    finish_reason_t want = i % 8 == 3 ? FINISH_ERROR : i % 2 ? FINISH_LENGTH : FINISH_ABORT;
    ASSERT_EQ(c->jobs[i].num_done, 1);
    ASSERT_EQ(c->jobs[i].done.finish, want);
  }
  client_check_idle(c);
  client_free(c);
}

Test(choices, what_can_never_run_is_refused_at_the_door) {
  engine_options_t o = client_options(&ops_fake);
  o.num_blocks = 31; /* 30 usable: 2 + 4 x (9 - 2) beams just fit */
  client_t *c = client_new(&o);
  job_t *fits = client_job(c, 44, 100, 1);
  fits->request.params.n = fits->request.params.beam_width = 4;
  client_several(fits);
  ASSERT_EQ(client_submit(c, fits), 0);
  client_run(c);
  job_t *large = client_job(c, 44, 101, 1);
  large->request.params.n = large->request.params.beam_width = 4;
  request_t *r = &large->request;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_submit(c->engine, &r, 1, &error), ERR_CONTEXT_LENGTH);
  cr_assert(strstr(error.message, "2 + 4 x 8 = 34") != NULL, "%s", error.message);
  r->params.n = r->params.beam_width = 17;
  r->params.max_tokens = 1;
  ASSERT_EQ(engine_submit(c->engine, &r, 1, &error), ERR_BAD_REQUEST);
  cr_assert(strstr(error.message, "at most 16") != NULL, "%s", error.message);
  r->params.n = 1, r->params.best_of = 2, r->params.beam_width = 0;
  ASSERT_EQ_FOR(engine_submit(c->engine, &r, 1, &error), ERR_INTERNAL, "no room was lent");
  c->count--;
  client_free(c);
}
