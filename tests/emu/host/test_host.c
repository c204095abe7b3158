/* test_host.c: experts in host memory, beside the emulated GPU: one answer in any company, the plan
 * of both memories, faults, and what is refused.
 *
 * What a model with such experts is worth, test_models.c checks against transformers' numbers.
 */
#include "engine/device/ops.h"
#include "engine/internal.h"
#include "tests/emu/host/calls.h"
#include "tests/engine/crew.h"
#include "tests/engine/model/rig.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT = 37, BLOCK = 16, MIXTURES = 2 /* of 3 layers of moe-qwen2-moe */ };

/* Prompts that begin alike, greedy and drawn; one asks for two choices. */
static void make_jobs(client_t *c) {
  for (int i = 0; i < 7; i++) {
    job_t *job = client_job(c, PROMPT + i % 3 * 5, 18 + i * 3 % 7, 1);
    sampling_params_t *p = &job->request.params;
    for (int k = 0; k < job->request.num_prompt_tokens; k++)
      job->prompt[k] = (k < 2 * BLOCK ? job->prompt[k] : job->prompt[k] + i) % CREW_VOCAB;
    p->seed = (uint64_t)i;
    p->ignore_eos = true;
    p->num_logprobs = 2;
    if (i % 2 == 1) p->temperature = 0.9f;
    if (i == 3) p->n = 2;
    if (i == 3) client_several(job);
  }
}

/* One sequence at a time, whose prompt is one chunk, and nothing is kept. */
static engine_options_t alone(const char *model, int32_t host_experts) {
  engine_options_t o = crew_options(model, true);
  o.ops = &ops_cuda;
  o.host_experts = host_experts;
  o.batch_invariant = true;
  o.num_threads = 1;
  o.block_size = BLOCK;
  o.num_blocks = 40;
  o.max_num_seqs = 2;
  o.max_num_batched_tokens = 64;
  o.enable_prefix_caching = false;
  return o;
}

/* Chunks, hits of the prefix cache, and requests that are preempted. */
static engine_options_t crowded(const char *model, int32_t host_experts) {
  engine_options_t o = alone(model, host_experts);
  o.num_threads = 3;
  o.num_blocks = 9;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 24;
  o.enable_prefix_caching = true;
  return o;
}

static void check(const char *model, int32_t host_experts) {
  char name[128];
  snprintf(name, sizeof name, "%s, %d layers", model, host_experts);
  const engine_options_t one = alone(model, host_experts);
  client_t *want = client_run_all(&one, make_jobs);
  engine_options_t many = crowded(model, host_experts);
  const int graphs = emu_count_calls("cudaGraphLaunch");
  client_t *got = client_run_all(&many, make_jobs);
  engine_stats_t stats = client_stats(got);
  client_expect_same(want, got, name);
  ASSERT_GT_FOR(emu_count_calls("cudaGraphLaunch"), graphs, "%s", name);
  ASSERT_GT_FOR(stats.preemptions, 0, "%s", name);
  ASSERT_GT_FOR(stats.prefix_hits_tokens, 0, "%s", name);
  client_check_idle(got);
  client_free(got);
  many.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3, .longest = true};
  got = client_run_all(&many, make_jobs);
  stats = client_stats(got);
  client_expect_same(want, got, name);
  ASSERT_GT_FOR(stats.draft_tokens, 0, "%s", name);
  client_free(got);
  client_free(want);
}

Test(host, a_row_does_not_depend_on_its_company, .timeout = 600) {
  check("moe-qwen2-moe", HOST_EXPERTS_ALL); /* a shared expert with a gate */
  check("moe-qwen2-moe", 1);
}

Test(host, nor_does_one_that_is_routed_by_groups, .timeout = 600) {
  check("routed-glm4-moe", HOST_EXPERTS_ALL);
  check("routed-glm4-moe", 1);
}

Test(host, nor_does_one_of_packed_experts, .timeout = 600) {
  check("gpt-oss-mxfp4-bf16", HOST_EXPERTS_ALL);
  check("packed-awq-moe", HOST_EXPERTS_ALL);
}

enum { LONG_PROMPT = 180, MANY = 4 };

static void make_long(client_t *c) {
  for (int i = 0; i < MANY; i++) {
    job_t *job = client_job(c, LONG_PROMPT, 3, i);
    for (int k = 0; k < LONG_PROMPT; k++) job->prompt[k] %= CREW_VOCAB;
    job->request.params.ignore_eos = true;
    job->request.params.num_prompt_logprobs = 0;
  }
}

/* The CPU back end gets 512 rows at a time. The prompts are one step, so three steps are all. */
Test(host, a_step_may_have_more_rows_than_the_cpu_gets_at_once, .timeout = 300) {
  engine_options_t o = alone("moe-qwen2-moe", HOST_EXPERTS_ALL);
  client_t *want = client_run_all(&o, make_long);
  o.num_blocks = 80;
  o.max_num_seqs = MANY;
  o.max_num_batched_tokens = MANY * LONG_PROMPT;
  client_t *got = client_by_hand(&o);
  make_long(got);
  for (int i = 0; i < MANY; i++) ASSERT_EQ(client_submit(got, &got->jobs[i]), 0);
  for (int i = 0; i < 1000 && got->num_done < MANY; i++) {
    engine_iterate(got->engine);
    client_drain(got);
  }
  client_expect_same(want, got, "720 rows");
  ASSERT_LE(client_stats(got).steps, 3);
  client_free(got);
  client_free(want);
}

static void make_one(client_t *c) {
  job_t *job = client_job(c, PROMPT, 8, 1);
  for (int k = 0; k < PROMPT; k++) job->prompt[k] %= CREW_VOCAB;
  job->request.params.ignore_eos = true;
  job->request.params.num_logprobs = 1;
}

/* Each step calls a host function for each layer with experts in host memory, and for no other. */
Test(host, the_layers_that_were_asked_for_are_computed_there, .timeout = 300) {
  for (int32_t layers = 0; layers <= MIXTURES; layers++) {
    const engine_options_t o = alone("moe-qwen2-moe", layers);
    const int before = emu_count_calls("cudaLaunchHostFunc");
    client_t *client = client_run_all(&o, make_one);
    const int calls = emu_count_calls("cudaLaunchHostFunc") - before;
    ASSERT_EQ(client->jobs[0].done.error_code, 0);
    if (layers == 0) ASSERT_EQ(calls, 0);
    if (layers > 0) ASSERT_EQ(calls % layers, 0);
    ASSERT_GE(calls, layers);
    client_free(client);
  }
}

static const int32_t PROMPT_IDS[] = {5, 9, 2, 33, 41, 7, 7, 12};

static rig_t open_rig(int32_t host_experts) {
  const rig_options_t options = {.ops = &ops_cuda,
                                 .dir = "tests/vectors/models/moe-qwen2-moe",
                                 .dummy = true,
                                 .seed = 3,
                                 .dtype = DTYPE_BF16,
                                 .num_threads = 1,
                                 .host_experts = host_experts};
  inferd_error_t error = {0};
  rig_t rig;
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s", error.message);
  return rig;
}

/* A launch that fails is a fault of the device, which the end of the step tells. */
Test(host, a_launch_that_fails_is_a_fault_of_the_device) {
  static float logits[8 * 512];
  char which[64];
  rig_t rig = open_rig(2);
  inferd_error_t error = {0};
  ASSERT_LE(rig.blueprint.vocab_size, 512);
  ASSERT_EQ_FOR(rig_run(&rig, PROMPT_IDS, 8, 0, 1, logits, &error), 0, "%s", error.message);
  snprintf(which, sizeof which, "cudaLaunchHostFunc:%d:719",
           emu_count_calls("cudaLaunchHostFunc") + 2);
  emu_fail(which);
  ASSERT_EQ(rig_run(&rig, PROMPT_IDS, 8, 0, 1, logits, &error), ERR_DEVICE_FAILED);
  cr_expect(strstr(error.message, "experts in host memory") != NULL, "%s", error.message);
  rig_close(&rig);
}

/* Other bits than on the device: the experts are really computed elsewhere. */
Test(host, a_placement_has_its_own_bits) {
  static float here[8 * 512], there[8 * 512];
  inferd_error_t error = {0};
  rig_t device = open_rig(0), host = open_rig(HOST_EXPERTS_ALL);
  ASSERT_EQ(rig_run(&device, PROMPT_IDS, 8, 0, 8, here, &error), 0);
  ASSERT_EQ(rig_run(&host, PROMPT_IDS, 8, 0, 8, there, &error), 0);
  cr_expect(memcmp(here, there, sizeof here) != 0);
  rig_close(&device);
  rig_close(&host);
}

/* ---- the plan ---- */

static engine_survey_t survey(const engine_options_t *options) {
  engine_survey_t out = {0};
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(engine_survey(options, &out, &error), 0, "%s", error.message);
  return out;
}

/* What leaves the device is what the experts of the layers take there. */
Test(host, the_plan_has_both_memories) {
  engine_options_t o = alone("moe-qwen2-moe", 0);
  engine_survey_t before = survey(&o);
  ASSERT_EQ(before.host_weights, 0);
  for (int32_t layers = 1; layers <= MIXTURES; layers++) {
    o.host_experts = layers;
    const engine_survey_t now = survey(&o);
    ASSERT_LT(now.weights, before.weights);
    ASSERT_GT(now.host_weights, before.host_weights);
    ASSERT_EQ(now.workspace, before.workspace);
    before = now;
  }
  o.host_experts = HOST_EXPERTS_ALL;
  ASSERT_EQ(survey(&o).weights, before.weights);
  ASSERT_EQ(survey(&o).host_weights, before.host_weights);
}

/* `auto`: the fewest layers with which weights, work and the K/V that was asked for fit; to the
 * byte at the limit, which is the share of --memory. */
Test(host, as_few_layers_as_the_memory_asks_for) {
  engine_options_t o = alone("moe-qwen2-moe", 0);
  engine_survey_t of[MIXTURES + 1];
  for (int32_t layers = 0; layers <= MIXTURES; layers++) {
    o.host_experts = layers;
    of[layers] = survey(&o);
  }
  o.host_experts = HOST_EXPERTS_AUTO;
  for (int32_t layers = 0; layers <= MIXTURES; layers++) {
    const int64_t need = of[layers].weights + of[layers].workspace + of[layers].kv_cache;
    for (int64_t more = -1; more <= 1; more++) {
      o.memory_fraction = ((double)(need + more) + 0.5) / (double)of[0].free;
      const int32_t expected = more < 0 && layers < MIXTURES ? layers + 1 : layers;
      ASSERT_EQ_FOR(survey(&o).host_weights, of[expected].host_weights, "%d layers, %+d byte",
                    layers, (int)more);
    }
  }
}

/* Without a size of the K/V cache there is room for one whole context. */
Test(host, one_context_fits_beside_the_experts) {
  engine_options_t o = alone("moe-qwen2-moe", 0);
  o.num_blocks = 0;
  o.max_model_len = 256;
  const engine_survey_t none = survey(&o);
  o.host_experts = MIXTURES;
  const engine_survey_t all = survey(&o);
  o.host_experts = HOST_EXPERTS_AUTO;
  const double block = (double)all.kv_cache / (all.contexts * 256 / BLOCK + 1);
  const double between = (double)(none.weights + all.weights) / 2;
  o.memory_fraction = (between + (double)all.workspace + 21 * block) / (double)none.free;
  const engine_survey_t chosen = survey(&o);
  ASSERT_EQ(chosen.context, 256);
  ASSERT_GT(chosen.host_weights, 0);
  cr_expect(chosen.contexts >= 1, "%g", chosen.contexts);
}

/* ---- refusals ---- */

static void expect_refusal(const engine_options_t *options, int expected, const char *message) {
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(engine_survey(options, NULL, &error), expected, "%s", error.message);
  cr_expect(strstr(error.message, message) != NULL, "%s", error.message);
  ASSERT_STR_EQ(error.param, "cpu_experts");
}

Test(host, what_does_not_go_with_it_is_refused_by_name) {
  engine_options_t o = alone("moe-qwen2-moe", MIXTURES + 1);
  expect_refusal(&o, ERR_CONFIGURATION,
                 "cpu_experts is 3; the model (Qwen2MoeForCausalLM) has 2 layers with experts: it "
                 "must be 0 to 2, all or auto");
  o.host_experts = HOST_EXPERTS_AUTO, o.sleep_space_bytes = 1 << 30;
  expect_refusal(&o, ERR_CONFIGURATION, "cpu_experts is set, and so is sleep_space");
  o.sleep_space_bytes = 0, o.planned_ranks = 2;
  expect_refusal(&o, ERR_CONFIGURATION, "cpu_experts is set, and so is tensor_parallel_size");
  o = alone("qwen3-g8-bf16", 1);
  expect_refusal(&o, ERR_CONFIGURATION,
                 "cpu_experts is set, and the model (Qwen3ForCausalLM) has no experts; it must be "
                 "0 or auto");
  o.host_experts = HOST_EXPERTS_AUTO;
  ASSERT_EQ(survey(&o).host_weights, 0);
}

/* On a CPU they are there already. */
Test(host, a_cpu_has_all_experts_anyway) {
  engine_options_t o = alone("moe-qwen2-moe", 2), plain = o;
  o.ops = plain.ops = &ops_cpu;
  plain.host_experts = 0;
  o.batch_invariant = plain.batch_invariant = false;
  ASSERT_EQ(survey(&o).weights, survey(&plain).weights);
  ASSERT_EQ(survey(&o).host_weights, 0);
  o = alone("qwen3-g8-bf16", HOST_EXPERTS_ALL);
  o.ops = &ops_cpu;
  expect_refusal(&o, ERR_CONFIGURATION, "the model (Qwen3ForCausalLM) has no experts");
}
