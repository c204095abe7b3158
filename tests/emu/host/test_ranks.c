/* test_ranks.c: a model over several emulated GPUs: tokens and logprobs of one, bit for bit.
 *
 * The ranks are threads with a device each; they exchange through host memory, because this program
 * has a function of NCCL and lacks the others. What a model is worth on one GPU, test_models.c
 * checks.
 */
#include "engine/device/ops.h"
#include "tests/engine/crew.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 4, VOCAB = 64 };

/* In the place of the machine's library. */
int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
  *version = 0;
  return 0;
}

static void make_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 3 + i * 13, 2 + i % 3, i % 4);
    sampling_params_t *p = &job->request.params;
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= VOCAB;
    p->seed = (uint64_t)i;
    p->ignore_eos = true;
    if (i % 2 == 1) p->temperature = 0.9f;
    if (i % 2 == 0) p->num_prompt_logprobs = 0;
  }
}

static engine_options_t options_of(const char *model) {
  engine_options_t o = crew_options(model, false);
  o.ops = &ops_cuda;
  o.batch_invariant = true;
  o.num_blocks = 40;
  o.num_threads = 1;
  return o;
}

static void check_options(engine_options_t o, const char *model, int32_t size) {
  setenv("EMU_DEVICES", "4", 1); /* before the first call of the runtime */
  client_t *alone = client_run_all(&o, make_jobs);
  client_t *many = crew_run(o, size, make_jobs, model);
  client_expect_same(alone, many, model);
  client_free(alone);
  client_free(many);
}

static void check(const char *model, int32_t size) {
  check_options(options_of(model), model, size);
}

Test(cuda_ranks, dense_layers, .timeout = 240) {
  check("qwen3-g8-bf16", 4);        /* all on one KV head */
  check("phi3-gqa-bf16", 2);        /* q, k, v and gate, up in one tensor each */
  check("gemma3-bf16", 2);          /* norms around both parts, windows */
  check("decoder-cohere-norms", 2); /* a norm of its own for each head, parallel parts */
  check("gpt2-bf16-d80", 2);        /* LayerNorms, learned positions */
  check("decoder-internlm2", 3);    /* rows of heads in groups */
}

Test(cuda_ranks, mixtures_of_experts, .timeout = 240) {
  check("moe-qwen2-moe", 2);      /* a shared expert with a gate */
  check("gpt-oss-mxfp4-bf16", 2); /* sinks, biases of experts, blocks of 4 bits */
  check("routed-glm4-moe", 3);    /* scores by groups, dense layers before */
}

Test(cuda_ranks, quantised_weights, .timeout = 240) {
  check("gguf-qwen3", 2);
  check("packed-awq", 2);
  check("packed-fp8-blocks", 2);
  check("packed-nvfp4", 2);
}

Test(cuda_ranks, a_cache_of_8_bits, .timeout = 240) {
  engine_options_t o = options_of("qwen3-g8-bf16");
  o.kv_fp8 = true;
  check_options(o, "fp8", 2);
}

static char adapter_dir[300];

/* Some requests of each step have the adapter of the start, some one that is set later, some none.
 */
static void adapted_jobs(client_t *c) {
  crew_set_adapter(c, 2, adapter_dir);
  make_jobs(c);
  for (int i = 0; i < c->count; i++) c->jobs[i].request.adapter = (i + 1) % 3;
}

static void check_adapter(const char *model, int32_t size) {
  const char *const dirs[] = {adapter_dir};
  setenv("EMU_DEVICES", "4", 1);
  snprintf(adapter_dir, sizeof adapter_dir, "tests/vectors/models/%s/adapter", model);
  engine_options_t o = options_of(model);
  o.max_loras = 2, o.max_lora_rank = 16;
  o.lora_dirs = dirs, o.num_lora_dirs = 1;
  client_t *alone = client_run_all(&o, adapted_jobs), *plain = client_run_all(&o, make_jobs);
  client_t *many = crew_run(o, size, adapted_jobs, model);
  client_expect_same(alone, many, model);
  cr_assert(memcmp(alone->jobs[0].prompt_logprobs, plain->jobs[0].prompt_logprobs,
                   sizeof alone->jobs[0].prompt_logprobs) != 0,
            "%s: the adapter changes nothing", model);
  client_free(alone);
  client_free(plain);
  client_free(many);
}

Test(cuda_ranks, adapters, .timeout = 240) {
  check_adapter("lora-bf16", 2);
  check_adapter("lora-mixtral", 2);
}

/* Sums of parts have other bits, but the same ones in each run, and near those of one GPU. */
static void check_fast(const char *model, int32_t size) {
  engine_options_t o = options_of(model);
  setenv("EMU_DEVICES", "4", 1);
  client_t *alone = client_run_all(&o, make_jobs);
  o.add_ranks = true;
  client_t *first = crew_run(o, size, make_jobs, model);
  client_t *second = crew_run(o, size, make_jobs, model);
  client_expect_same(first, second, model);
  for (int i = 0; i < alone->count; i++)
    for (int k = 1; k <= alone->jobs[i].num_prompt_logprobs; k++) {
      const float a = alone->jobs[i].prompt_logprobs[k], b = first->jobs[i].prompt_logprobs[k];
      cr_assert(fabsf(a - b) < 0.1f, "%s: request %d, prompt token %d: %g, alone %g", model, i, k,
                (double)b, (double)a);
    }
  client_free(alone);
  client_free(first);
  client_free(second);
}

Test(cuda_ranks, fast, .timeout = 240) {
  check_fast("qwen3-g8-bf16", 3);
  check_fast("decoder-cohere-norms", 2);
  check_fast("moe-qwen2-moe", 2);
  check_fast("packed-awq", 2);
}
