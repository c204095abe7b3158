/* test_determinism_formats.c: the same tokens, bit for bit, whatever shares the batch, over
 * quantised weights.
 *
 * As test_determinism.c, with shorter requests: blocks of 4 and 8 bits of GGUF files, panels in
 * which formats mix, groups with and without an order of the columns, floats of 4 and 8 bits,
 * stacks of experts in these formats, latent attention, 16-bit weights rounded to Q8_0, and a KV
 * cache of 8 bits.
 */
#include "tests/engine/client.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { JOBS = 48, PROMPT_MAX = 70, VOCAB = 64 };

static void make_jobs(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % PROMPT_MAX, 4 + (i * 7) % 30, i % 20);
    for (int k = 0; k < job->request.num_prompt_tokens; k++)
      job->prompt[k] = job->prompt[k] % VOCAB;
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 7 == 0) p->repetition_penalty = 1.3f;
    if (i % 11 == 0) p->num_prompt_logprobs = 0;
    p->ignore_eos = true;
  }
}

static void expect_same(const client_t *want, const client_t *got, const char *model,
                        const char *name) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *a = &want->jobs[i], *b = &got->jobs[i];
    cr_assert(a->num_output == b->num_output && a->num_output > 0,
              "%s, %s: request %d has %d tokens, alone %d", model, name, i, b->num_output,
              a->num_output);
    const char *difference = ids_difference(b->output, a->output, a->num_output);
    cr_assert(difference == NULL, "%s, %s: request %d: %s", model, name, i, difference);
    cr_assert(memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs) == 0,
              "%s, %s: prompt logprobs of request %d differ", model, name, i);
  }
}

typedef struct how {
  bool rounded; /* 16-bit weights become Q8_0 */
  bool kv_int8;
  bool states; /* which are not swapped */
} how_t;

static engine_options_t options_of(const ops_t *ops, const char *model, how_t how) {
  static char dir[256];
  engine_options_t o = client_options(ops);
  snprintf(dir, sizeof dir, "tests/vectors/models/%s", model);
  o.model_dir = dir;
  o.dummy_weights = false;
  o.skip_tokenizer = true;
  o.dtype = "bfloat16"; /* quantised panels: a float32 run decodes them */
  o.quantise_q8 = how.rounded;
  o.kv_int8 = how.kv_int8;
  return o;
}

static void check(const char *model, how_t how) {
  engine_options_t o = options_of(&ops_cpu, model, how);
  o.num_threads = 1;
  o.enable_prefix_caching = false;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 512;
  client_t *alone = client_run_all(&o, make_jobs);
  const struct {
    const char *name;
    int threads, seqs, budget, blocks;
    bool cache, swap;
  } variants[] = {
      {"16 at once", 2, 16, 128, 600, false, false},
      {"chunks of 7 with the prefix cache", 1, 4, 7, 600, true, false},
      {"three threads, 48 at once", 3, 48, 256, 600, true, false},
      {"preempted", 2, 16, 64, 24, true, false},
      {"swapped", 2, 16, 64, 24, true, true},
  };
  size_t num_variants = sizeof variants / sizeof *variants - (how.states ? 1 : 0);
  for (size_t v = 0; v < num_variants; v++) {
    o = options_of(variants[v].swap ? swap_double_ops() : &ops_cpu, model, how);
    if (variants[v].swap) o.swap_space_bytes = (int64_t)1 << 24, o.preemption_mode = PREEMPT_SWAP;
    o.num_threads = variants[v].threads;
    o.max_num_seqs = variants[v].seqs;
    o.max_num_batched_tokens = variants[v].budget;
    o.num_blocks = variants[v].blocks;
    o.enable_prefix_caching = variants[v].cache;
    client_t *c = client_run_all(&o, make_jobs);
    expect_same(alone, c, model, variants[v].name);
    engine_stats_t s = client_stats(c);
    cr_assert(s.preemptions > 0 || variants[v].blocks > 100, "%s: nothing was preempted", model);
    ASSERT_EQ(s.preemptions_swap, (variants[v].swap ? s.preemptions : 0));
    client_check_idle(c);
    client_free(c);
  }
  client_free(alone);
}

static void check_model(const char *model, bool rounded) {
  check(model, (how_t){.rounded = rounded});
}

Test(determinism_formats, blocks_of_gguf_files, .timeout = 600) {
  check_model("gguf-llama-k", false);    /* Q2_K to Q6_K and Q5_0, mixed in the panels of q, k, v */
  check_model("gguf-llama-iq", false);   /* 4 bits through a table, tied */
  check_model("gguf-qwen3", false);      /* Q4_0 */
  check_model("gguf-qwen2-yarn", false); /* Q8_0 */
  check_model("gguf-llama-mins", false); /* Q4_1 and Q5_1 */
}

Test(determinism_formats, groups_of_safetensors, .timeout = 600) {
  check_model("packed-awq", false);
  check_model("packed-gptq-2-bits", false);
  check_model("packed-gptq-v1", false);
  check_model("packed-gptq-v1-sym", false);
  check_model("packed-gptq-v2-desc-act", false);
  check_model("packed-w4a16", false);
  check_model("packed-w4a16-actorder", false);
  check_model("packed-gptq-8-bits", false);
  check_model("packed-w8a16", false);
  check_model("packed-w8a8", false);
  check_model("packed-w4a16-asym", false);
  check_model("packed-nvfp4", false);
  check_model("packed-nvfp4-modelopt", false);
  check_model("packed-mxfp4", false);
}

Test(determinism_formats, floats_of_8_bits, .timeout = 600) {
  check_model("packed-fp8-blocks", false);
  check_model("packed-fp8-channel", false);
  check_model("packed-fp8-tensor", false);
  check_model("packed-fp8-modelopt", false);
}

Test(determinism_formats, stacks_of_experts, .timeout = 600) {
  check_model("gguf-qwen3-moe-k", false);
  check_model("gguf-gpt-oss", false);
  check_model("gguf-converted-nvfp4-moe", false);
  check_model("gguf-mixtral", false);   /* Q5_1 */
  check_model("gguf-qwen2-moe", false); /* Q4_1 */
  check_model("packed-awq-moe", false);
  check_model("packed-nvfp4-moe", false);
  check_model("packed-mxfp4-moe", false);
}

/* States, of which heads in the file stand group by group or tile by tile. */
Test(determinism_formats, states_of_gguf_files, .timeout = 600) {
  static const how_t how = {.states = true};
  check("gguf-converted-qwen3-next", how);
  check("gguf-converted-qwen3-5-moe", how);
  check("gguf-converted-granite-hybrid", how);
  check("gguf-converted-falcon-h1", how);
  check("gguf-converted-nemotron-h", how);
}

/* One latent row a token, in the cache, in copies and in host memory. */
Test(determinism_formats, latent_rows, .timeout = 600) {
  check_model("files-deepseek-v3", false);
  check_model("files-glm4-moe-lite", false);
  check_model("packed-fp8-deepseek-v3", false);
  check_model("gguf-converted-deepseek-v2", false);
  check_model("gguf-converted-deepseek-v3-q8", false);
}

Test(determinism_formats, experts_that_are_scored, .timeout = 600) {
  check_model("files-glm4-moe", false);
  check_model("files-ernie-moe", false);
  check_model("gguf-converted-glm4-moe", false); /* chosen by groups */
  check_model("gguf-converted-glm4-moe-q8", false);
  check_model("gguf-converted-ernie4-5-moe", false);
  check_model("gguf-converted-minimax-m2", false);
}

Test(determinism_formats, weights_rounded_while_they_load, .timeout = 600) {
  check_model("files-qwen2-bf16", true);
  check_model("files-mixtral", true);
}

Test(determinism_formats, keys_and_values_of_8_bits, .timeout = 600) {
  check("files-qwen2-bf16", (how_t){.kv_int8 = true});
  check("gguf-llama-k", (how_t){.kv_int8 = true});
  check("files-gemma3-text", (how_t){.kv_int8 = true}); /* with windows */
  check("state-files-qwen3-5-moe", (how_t){.kv_int8 = true, .states = true});
}

Test(determinism_formats, latent_rows_of_8_bits_are_refused) {
  engine_options_t o = options_of(&ops_cpu, "files-deepseek-v3", (how_t){.kv_int8 = true});
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_create(&o, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) continue;
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  engine_destroy(engine);
  ASSERT_EQ(error.code, ERR_CONFIGURATION);
  EXPECT_STR_EQ(error.param, "kv_cache_dtype");
  cr_assert(strstr(error.message, "latent") != NULL, "%s", error.message);
}
