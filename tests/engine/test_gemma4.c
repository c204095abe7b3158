/* test_gemma4.c: layers of two kinds, layers that share K and V, embeddings of layers and experts
 * beside the MLP, through the real engine on the CPU.
 *
 * The same requests under several configurations: batch, chunks, threads, the prefix cache, a pool
 * so small that sequences are preempted, draft tokens. Every token and logprob must be that of the
 * request alone, bit for bit.
 */
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { JOBS = 64 };

static engine_options_t gemma_options(void) {
  engine_options_t o = client_options(&ops_cpu);
  o.model_dir = "tests/fixtures/gemma4";
  o.max_model_len = 512;
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

Test(gemma4, tokens_do_not_depend_on_company, .timeout = 300) {
  const struct {
    const char *name;
    int threads, seqs, budget, blocks, drafts;
    bool cache;
  } variants[] = {
      {"16 at once", 2, 16, 128, 600, 0, false},
      {"chunks of 5, with the prefix cache", 1, 4, 5, 600, 0, true},
      {"three threads, chunks of 67", 3, 32, 67, 900, 0, true},
      {"preempted, drafting", 2, 16, 64, 80, 3, true},
  };
  engine_options_t o = gemma_options();
  o.num_threads = o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  o.enable_prefix_caching = false;
  client_t *alone = client_run_all(&o, make_jobs);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    o = gemma_options();
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.enable_prefix_caching = variants[v].cache;
    o.draft = (draft_options_t){.tokens_max = variants[v].drafts, .match_min = 1, .match_max = 3};
    client_t *c = client_run_all(&o, make_jobs);
    client_expect_same(alone, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    ASSERT_EQ_FOR((s.preemptions > 0), (variants[v].blocks == 80), "%s", variants[v].name);
    if (s.preemptions == 0) /* else hardly anything stays that a window can go on with */
      ASSERT_EQ_FOR((s.prefix_hits_tokens > 0), (variants[v].cache), "%s", variants[v].name);
    client_check_idle(c);
    client_free(c);
  }
  client_free(alone);
}

Test(gemma4, adapters_are_refused_where_v_is_k) {
  engine_options_t o = gemma_options();
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  o.max_loras = 1, o.max_lora_rank = 8;
  ASSERT_EQ_FOR(engine_new(&o, &engine, &error), 0, "%s", error.message);
  engine_load(engine);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  cr_assert(strstr(error.message, "attention_k_eq_v") != NULL, "%s", error.message);
  engine_destroy(engine);
}
