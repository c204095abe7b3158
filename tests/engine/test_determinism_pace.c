/* test_determinism_pace.c: the same tokens and logprobs, bit for bit, whatever bounds a step in
 * time.
 *
 * Where a chunk of a prompt ends then hangs on a clock and on the costs that were learned. Requests
 * with long prompts, logprobs and choices go through the real engine on the CPU back end under
 * several bounds; and under drawn costs, which are wrong in every step. The reference has no bound
 * of time.
 */
#include "engine/internal.h"

#include "engine/base/random.h"
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <math.h>
#include <string.h>

enum { JOBS = 36 };

static int num_choices(int i) {
  return i % 2 == 1 ? 2 + i % 3 : 1;
}

/* Most decode for long, so that the prompts of the others come beside them. */
static void submit_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    int32_t prompt_tokens = i % 3 == 0 ? 5 + i : 150 + (i * 53) % 250;
    job_t *job = client_job(c, prompt_tokens, 10 + (i * 7) % 50, i);
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 2 == 1) p->temperature = 0.9f;
    if (i % 5 == 1) p->top_p = 0.8f;
    if (i % 7 == 3) p->repetition_penalty = 1.3f;
    if (i % 6 == 1) p->num_prompt_logprobs = 0;
    p->num_logprobs = i % 3;
    p->ignore_eos = i % 2 == 0;
    p->n = num_choices(i);
    job->request.tenant = (uint64_t)i % 3;
    if (num_choices(i) > 1) client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
}

static engine_options_t options_of(int32_t max_step_ms) {
  engine_options_t o = client_options(&ops_cpu);
  o.num_threads = 2;
  o.max_num_batched_tokens = 512;
  o.max_model_len = 1024;
  o.fair_share = true;
  o.max_step_ms = max_step_ms;
  return o;
}

static client_t *run_with(int32_t max_step_ms) {
  engine_options_t o = options_of(max_step_ms);
  client_t *c = client_new(&o);
  submit_jobs(c);
  client_run(c);
  client_check_idle(c);
  return c;
}

Test(determinism_pace, tokens_do_not_depend_on_the_time_of_a_step, .timeout = 600) {
  client_t *unbounded = run_with(0), *short_steps = run_with(5), *long_steps = run_with(40);
  client_expect_same(unbounded, short_steps, "5 ms");
  client_expect_same(unbounded, long_steps, "40 ms");
  client_free(unbounded);
  client_free(short_steps);
  client_free(long_steps);
}

/* Each cost is drawn from a thousandth to a hundred times that of a small model. */
static void draw_costs(cost_t *cost, uint64_t *state) {
  static const double usual[COST_TERMS] = {300e3, 200e3, 8e3, 20, 8};
  *cost = (cost_t){.num_steps = 1000};
  for (int t = 0; t < COST_TERMS; t++) {
    double drawn = (double)(random_mix(*state += RANDOM_GAMMA) >> 11) / 9007199254740992.0;
    cost->ns[t] = usual[t] * pow(10, 5 * drawn - 3);
  }
}

typedef struct seen {
  int bounded, cut; /* steps with a bound, and of these those with a chunk of a prompt */
  int32_t steps;
} seen_t;

static client_t *run_with_drawn_costs(int32_t max_step_ms, uint64_t seed, seen_t *seen) {
  engine_options_t o = options_of(max_step_ms);
  client_t *c = client_by_hand(&o);
  scheduler_t *scheduler = c->engine->scheduler;
  submit_jobs(c);
  while (c->num_done < c->count) {
    ASSERT_LT_FOR(seen->steps++, 100000, "%d of %d requests ended", c->num_done, c->count);
    draw_costs(&scheduler->cost, &seed);
    engine_iterate(c->engine);
    client_drain(c);
    bool bounded = scheduler->pace.is_on;
    seen->bounded += bounded;
    seen->cut += bounded && scheduler->plan.work.of[COST_PAIR] > 0;
  }
  return c;
}

Test(determinism_pace, tokens_do_not_depend_on_wrong_costs, .timeout = 600) {
  client_t *unbounded = run_with(0);
  int32_t steps[8];
  for (int v = 0; v < 8; v++) {
    seen_t seen = {0};
    char name[32];
    snprintf(name, sizeof name, "drawn costs %d", v);
    client_t *c = run_with_drawn_costs(v % 2 ? 40 : 5, (uint64_t)v, &seen);
    client_expect_same(unbounded, c, name);
    client_free(c);
    steps[v] = seen.steps;
    ASSERT_GT_FOR(seen.cut, 10, "%s cut prompts in some of %d steps", name, seen.bounded);
    cr_assert(v == 0 || steps[v] != steps[v - 1], "%s: the same steps as the ones before", name);
  }
  client_free(unbounded);
}
