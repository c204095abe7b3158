/* test_drafter.c: a draft model on the emulated GPU, beside the model itself.
 *
 * As its own draft model a model is always right: a wrong row of the draft model's cache, another
 * type, or other sums would show. Where few drafts are made most steps overlap, and are repeated
 * on the draft model when their ids are known.
 */
#include "engine/device/ops.h"
#include "tests/emu/host/calls.h"
#include "tests/engine/client.h"
#include "tests/expect.h"

#include <criterion/criterion.h>

static void make_jobs(client_t *c) {
  for (int i = 0; i < 8; i++) {
    job_t *job = client_job(c, 3 + (i * 29) % 50, 12 + (i * 11) % 14, i % 5);
    sampling_params_t *p = &job->request.params;
    p->ignore_eos = true;
    p->num_logprobs = 1;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 3 == 2) p->repetition_penalty = 1.2f;
  }
}

static engine_options_t options_of(const char *dir, bool longest) {
  engine_options_t o = client_options(&ops_cuda);
  o.num_threads = 1;
  o.batch_invariant = true;
  o.block_size = 16;
  o.num_blocks = 10; /* some are preempted, and swapped */
  o.max_model_len = 128;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 48;
  o.draft = (draft_options_t){
      .tokens_max = dir ? 3 : 0, .match_min = 2, .match_max = 4, .longest = longest};
  o.draft_model_dir = dir;
  return o;
}

static void check_itself(const client_t *want, bool longest) {
  const engine_options_t o = options_of("tests/fixtures/tiny", longest);
  client_t *got = client_run_all(&o, make_jobs);
  engine_stats_t s = client_stats(got);
  client_expect_same(want, got, longest ? "as many drafts as may be" : "drafts that pay");
  ASSERT_GT(s.draft_tokens, longest ? 60 : 0);
  ASSERT_EQ(s.draft_tokens_accepted, s.draft_tokens);
  ASSERT_GT(s.preemptions, 0);
  ASSERT_GT(s.overlapped_steps, 0);
  client_check_idle(got);
  client_free(got);
}

Test(drafter, the_model_itself_is_always_right, .timeout = 900) {
  const engine_options_t plain = options_of(NULL, false);
  client_t *want = client_run_all(&plain, make_jobs);
  check_itself(want, true);
  check_itself(want, false);
  client_free(want);
}

/* One token of the prompt's step, then four of each: three drafts are right. */
enum { STEPS_FEW = 2, STEPS_MORE = 7 };
static int num_jobs, num_steps;

static void make_some(client_t *c) {
  for (int i = 0; i < num_jobs; i++)
    client_job(c, 9, 1 + 4 * num_steps, i)->request.params.ignore_eos = true;
}

static int count_graphs(int seqs, int steps) {
  engine_options_t o = options_of("tests/fixtures/tiny", true);
  const int before = emu_count_calls("cudaGraphLaunch");
  o.num_blocks = 20, o.max_num_seqs = num_jobs = seqs, num_steps = steps;
  client_t *client = client_run_all(&o, make_some);
  for (int i = 0; i < seqs; i++) ASSERT_EQ(client->jobs[i].num_output, 1 + 4 * steps);
  ASSERT_EQ(client_stats(client).drafts, (uint64_t)(seqs * steps));
  client_free(client);
  return emu_count_calls("cudaGraphLaunch") - before;
}

/* Three draft tokens of each sequence that are drawn, the step that verifies them, and the step
 * that repeats it. Three sequences are none of the sizes that a step is padded to. */
Test(drafter, every_step_of_decodes_is_a_graph, .timeout = 300) {
  for (int seqs = 1; seqs <= 3; seqs += 2) {
    const int few = count_graphs(seqs, STEPS_FEW), more = count_graphs(seqs, STEPS_MORE);
    ASSERT_EQ(more - few, 5 * (STEPS_MORE - STEPS_FEW));
  }
}
