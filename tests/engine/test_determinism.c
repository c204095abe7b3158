/* test_determinism.c: the same tokens, bit for bit, whatever shares the batch.
 *
 * A few hundred mixed requests (greedy, seeded sampling, penalties, logprobs) go through the real
 * engine on the CPU back end under several configurations: batch composition, chunk size, threads,
 * prefix cache on and off, draft tokens, a pool so small that sequences are preempted, to be
 * computed again or to be swapped. Tokens and logprobs must be those of each request running alone.
 */
#include "tests/engine/client.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { JOBS = 160 };

static void make_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % 180, 4 + (i * 7) % 40, i % 60);
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 6 == 1) p->top_p = 0.8f;
    if (i % 6 == 4) p->top_k = 20;
    if (i % 7 == 0) p->repetition_penalty = 1.3f;
    if (i % 7 == 3) p->frequency_penalty = 0.5f;
    if (i % 11 == 0) p->num_prompt_logprobs = 0;
    p->ignore_eos = i % 2 == 0;
  }
}

/* One request at a time, one thread, no cache, whole prompts: nothing to share anything with. */
static client_t *run_alone(void) {
  engine_options_t o = client_options(&ops_cpu);
  o.num_threads = 1;
  o.enable_prefix_caching = false;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  return client_run_all(&o, make_jobs);
}

Test(determinism, tokens_do_not_depend_on_company, .timeout = 600) {
  client_t *alone = run_alone();
  const struct {
    const char *name;
    int threads, seqs, budget, blocks, drafts;
    bool cache, swap, floor;
  } variants[] = {
      {"16 at once", 2, 16, 128, 600, 0, false, false, false},
      {"with the prefix cache", 2, 16, 128, 600, 0, true, false, false},
      {"chunks of 17", 1, 16, 17, 600, 0, true, false, false},
      {"three threads, 64 at once", 3, 64, 256, 900, 0, true, false, false},
      {"preempted", 2, 16, 64, 80, 3, true, false, false},
      {"swapped", 2, 16, 64, 80, 3, true, true, false},
      {"swapped without a cache", 2, 16, 64, 70, 0, false, true, false},
      {"two at a time, drafting", 7, 2, 33, 600, 7, true, false, false},
      {"swapped, with a floor", 2, 16, 64, 80, 3, true, true, true},
  };
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    engine_options_t o = client_options(variants[v].swap ? swap_double_ops() : &ops_cpu);
    if (variants[v].swap) o.swap_space_bytes = (int64_t)1 << 26, o.preemption_mode = PREEMPT_SWAP;
    if (variants[v].floor) o.prefix_cache_bytes = (int64_t)1 << 21;
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.max_model_len = 1024;
    o.enable_prefix_caching = variants[v].cache;
    o.draft = (draft_options_t){.tokens_max = variants[v].drafts, .match_min = 1, .match_max = 3};
    client_t *c = client_run_all(&o, make_jobs);
    client_expect_same(alone, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    cr_assert(s.preemptions > 0 || variants[v].blocks > 80);
    cr_assert(variants[v].floor || s.preemptions_swap == (variants[v].swap ? s.preemptions : 0));
    cr_assert(!variants[v].swap || variants[v].floor || s.recomputed_tokens == 0);
    ASSERT_EQ((s.floor_in_blocks > 0), variants[v].floor);
    ASSERT_EQ((s.draft_tokens > 0), (variants[v].drafts > 0));
    client_check_idle(c);
    client_free(c);
  }
  client_free(alone);
}
