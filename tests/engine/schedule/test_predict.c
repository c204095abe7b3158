/* test_predict.c: drafts by a layer of the model, or by a head of EAGLE-3, change the number of
 * steps alone.
 *
 * Models of tests/vectors/mtp and eagle on the real CPU back end: some with random weights, whose
 * layer or head is rarely right, and some that were made so that it is right always.
 */
#include "tests/engine/client.h"

#include "engine/device/ops.h"
#include "engine/grammar/grammar.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>
#include <unistd.h>

enum { JOBS = 60 };

static engine_options_t options_of(const char *dir, int32_t drafts) {
  engine_options_t o = client_options(&ops_cpu);
  o.model_dir = dir;
  o.skip_tokenizer = true;
  o.num_threads = 2;
  o.num_blocks = 70; /* small: some are preempted */
  o.max_model_len = 1024;
  o.draft = (draft_options_t){.tokens_max = drafts,
                              .match_min = 2,
                              .match_max = 4,
                              .predicts = drafts > 0,
                              .longest = true};
  return o;
}

/* Greedy and drawn, with penalties, some with several choices or beams. */
static client_t *run_all(const engine_options_t *options, int32_t vocab, bool mixed) {
  client_t *c = client_new(options);
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 2 + (i * 29) % 180, 4 + (i * 11) % 60, i % 12);
    sampling_params_t *p = &job->request.params;
    for (int32_t t = 0; t < job->request.num_prompt_tokens; t++)
      job->prompt[t] = 2 + job->prompt[t] % (vocab - 2);
    p->ignore_eos = true;
    if (mixed && i % 3 == 1) p->temperature = 0.9f;
    if (mixed && i % 3 == 2) p->repetition_penalty = 1.2f;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  return c;
}

static void expect_same(const client_t *a, const client_t *b) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *x = &a->jobs[i], *y = &b->jobs[i];
    ASSERT_EQ(x->num_output, y->num_output);
    ASSERT_IDS_EQ(x->output, y->output, x->num_output);
  }
}

/* Both engines give the same tokens. What drafts has random weights, so some drafts are wrong. */
static void expect_often_wrong(const engine_options_t *plain, const engine_options_t *drafted) {
  client_t *want = run_all(plain, 384, true), *got = run_all(drafted, 384, true);
  engine_stats_t s = client_stats(got);
  expect_same(want, got);
  ASSERT_GT(s.draft_tokens, 200);
  ASSERT_GT(s.draft_tokens, s.draft_tokens_accepted);
  ASSERT_GT(s.preemptions, 0);
  ASSERT_GT(s.prefix_hits_tokens, 0);
  client_check_idle(got);
  client_free(want);
  client_free(got);
}

/* Both engines give the same tokens. What drafts was made so that it is always right. */
static void expect_all_accepted(const engine_options_t *plain, const engine_options_t *drafted,
                                int32_t vocab) {
  client_t *want = run_all(plain, vocab, false), *got = run_all(drafted, vocab, false);
  engine_stats_t s = client_stats(got);
  expect_same(want, got);
  ASSERT_GT(s.draft_tokens, 1000);
  ASSERT_EQ(s.draft_tokens_accepted, s.draft_tokens);
  ASSERT_LT(2 * s.steps, client_stats(want).steps);
  client_check_idle(got);
  client_free(want);
  client_free(got);
}

Test(predict, a_layer_that_is_often_wrong_costs_no_token, .timeout = 300) {
  static const struct {
    const char *dir;
    int snapshots; /* of states, for the prefix cache */
  } models[] = {{"tests/vectors/mtp/glm4-moe", 0},
                {"tests/vectors/mtp/deepseek-v3", 0},
                {"tests/vectors/mtp/qwen3-next", 20},
                {"tests/vectors/mtp/qwen3-5", 6},
                {"tests/vectors/mtp/qwen3-5-moe", 3}};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    engine_options_t plain = options_of(models[m].dir, 0), drafted = options_of(models[m].dir, 4);
    drafted.num_snapshots = models[m].snapshots;
    expect_often_wrong(&plain, &drafted);
  }
}

Test(predict, a_layer_that_is_right_has_every_token_accepted, .timeout = 300) {
  static const char *const dirs[] = {"tests/vectors/mtp/right", "tests/vectors/mtp/right-qwen3-5"};
  for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
    engine_options_t plain = options_of(dirs[i], 0), drafted = options_of(dirs[i], 4);
    plain.max_num_seqs = drafted.max_num_seqs = 3; /* states behind draft tokens are few */
    plain.dummy_weights = drafted.dummy_weights = false;
    expect_all_accepted(&plain, &drafted, 64);
  }
}

/* ---- heads of EAGLE-3 ---- */

static engine_options_t with_head(engine_options_t options, const char *head, int32_t drafts) {
  options.draft.tokens_max = drafts;
  options.draft_model_dir = drafts > 0 ? head : NULL;
  options.draft.predicts = false;
  return options;
}

/* The vocabulary of its drafts is that of the model. */
Test(predict, a_head_that_is_often_wrong_costs_no_token, .timeout = 300) {
  const engine_options_t plain = options_of("tests/vectors/eagle/qwen3-target", 0);
  const engine_options_t drafted = with_head(plain, "tests/vectors/eagle/qwen3", 4);
  expect_often_wrong(&plain, &drafted);
}

/* Its vocabulary is smaller than the model's. */
Test(predict, a_head_that_is_right_has_every_token_accepted, .timeout = 300) {
  engine_options_t plain = options_of("tests/vectors/eagle/right-target", 0);
  plain.dummy_weights = false;
  const engine_options_t drafted = with_head(plain, "tests/vectors/eagle/right", 4);
  expect_all_accepted(&plain, &drafted, 96);
}

/* A model with a head, whose steps `begin` and `end` see, too. */
static engine_options_t watched(void (*begin)(device_t *device, const batch_t *batch),
                                int (*end)(device_t *device, inferd_error_t *error)) {
  static ops_t ops;
  ops = ops_cpu;
  ops.begin = begin;
  ops.end = end;
  engine_options_t o = options_of("tests/vectors/eagle/qwen3-target", 0);
  o = with_head(o, "tests/vectors/eagle/qwen3", 2);
  o.ops = &ops;
  return o;
}

/* Copies of blocks that steps of the model begin with, and those in the cache of its head. */
static const device_t *model_device;
static uint64_t num_copies[2];

static void count_begin(device_t *device, const batch_t *batch) {
  if (model_device == NULL) model_device = device;
  num_copies[device != model_device] += (uint64_t)batch->num_copies;
  ops_cpu.begin(device, batch);
}

/* Two prompts with 20 tokens in common share part of a block; nothing drafts in the step that
 * copies it. */
Test(predict, the_cache_of_a_head_has_all_copies) {
  const engine_options_t o = watched(count_begin, ops_cpu.end);
  client_t *c = client_new(&o);
  for (int i = 0; i < 2; i++) {
    job_t *job = client_job(c, 24, 3, 1);
    for (int32_t t = 20; t < 24; t++) job->prompt[t] += i;
    ASSERT_EQ(client_submit(c, job), 0);
    client_run(c);
  }
  ASSERT_EQ(num_copies[0], 1);
  ASSERT_EQ(num_copies[1], 1);
  client_free(c);
}

/* Where a step of the model wrote its tokens, and where its head did. */
static int64_t slots[2][64];
static int32_t num_slots[2];

static void note_slots(device_t *device, const batch_t *batch) {
  if (model_device == NULL) model_device = device;
  const bool is_head = device != model_device;
  for (int32_t t = 0; t < batch->num_tokens && num_slots[is_head] < 64; t++)
    slots[is_head][num_slots[is_head]++] = batch->slot_mapping[t];
  ops_cpu.begin(device, batch);
}

/* Its blocks stay in the prefix cache: whoever finds them drafts from what the head made of them.
 * The token behind the last one is not known. */
Test(predict, a_prompt_that_ends_with_its_step_is_followed) {
  const engine_options_t o = watched(note_slots, ops_cpu.end);
  for (int kind = 0; kind < 3; kind++) {
    model_device = NULL;
    num_slots[0] = num_slots[1] = 0;
    client_t *c = client_new(&o);
    job_t *job = client_job(c, 40, kind == 1 ? 0 : 1, 1);
    if (kind == 1) job->request.params.num_prompt_logprobs = 0;
    if (kind == 2) {
      job->request.params.n = job->request.params.beam_width = 2;
      client_several(job);
    }
    ASSERT_EQ(client_submit(c, job), 0);
    client_run(c);
    ASSERT_EQ(num_slots[0], 40);
    ASSERT_EQ(num_slots[1], 39);
    ASSERT_EQ(memcmp(slots[0], slots[1], 39 * sizeof **slots), 0);
    client_free(c);
  }
}

/* A grammar that needs a stop id as text ends its request beside the step of the prompt, before the
 * step is committed. From then on the prompt is the client's, who may have freed it. */
Test(predict, a_prompt_that_ends_before_its_step_is_not_followed) {
  static const int32_t stop = 66; /* "a" */
  engine_options_t o = watched(note_slots, ops_cpu.end);
  o.model_dir = "tests/fixtures/tiny";
  o.skip_tokenizer = false;
  o.draft_model_dir = "tests/fixtures/eagle";
  model_device = NULL;
  num_slots[0] = num_slots[1] = 0;
  client_t *c = client_new(&o);
  job_t *job = client_job(c, 40, 4, 1);
  job->request.grammar = client_grammar(c, "root ::= \"a\"");
  job->request.params.stop_token_ids = &stop;
  job->request.params.num_stop_token_ids = 1;
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  ASSERT_EQ(job->done.error_code, ERR_NO_CHOICE);
  ASSERT_EQ(num_slots[0], 40);
  ASSERT_EQ(num_slots[1], 0);
  grammar_unref(job->request.grammar);
  client_free(c);
}

static int32_t num_of_head; /* steps */

static void count_head(device_t *device, const batch_t *batch) {
  if (model_device == NULL) model_device = device;
  num_of_head += device != model_device;
  ops_cpu.begin(device, batch);
}

static int fail_head(device_t *device, inferd_error_t *error) {
  const int code = ops_cpu.end(device, error);
  return device == model_device ? code : error_set(error, ERR_INTERNAL, NULL, "the head is ill");
}

Test(predict, nothing_is_drafted_once_a_head_has_failed) {
  const engine_options_t o = watched(count_head, fail_head);
  client_t *c = client_new(&o);
  for (int i = 0; i < 2; i++) {
    job_t *job = client_job(c, 40, 20, 1);
    job->request.params.ignore_eos = true;
    ASSERT_EQ(client_submit(c, job), 0);
    client_run(c);
    ASSERT_EQ(job->num_output, 20);
  }
  ASSERT_EQ(num_of_head, 1);
  ASSERT_EQ(client_stats(c).draft_tokens, 0);
  client_free(c);
}

static void expect_refusal_at(engine_options_t options, const char *param, const char *word) {
  engine_t *engine;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_create(&options, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) usleep(1000);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  cr_assert(error.code == ERR_CONFIGURATION && strstr(error.message, word), "%s", error.message);
  ASSERT_STR_EQ(error.param, param);
  engine_destroy(engine);
}

static void expect_refusal(engine_options_t options, const char *word) {
  expect_refusal_at(options, "speculative_method", word);
}

Test(predict, heads_that_do_not_fit_are_refused) {
  engine_options_t o = options_of("tests/vectors/eagle/qwen3", 0);
  expect_refusal_at(o, "model", "speculative_model");
  o = with_head(options_of("tests/fixtures/tiny", 0), "tests/vectors/eagle/qwen3", 3);
  expect_refusal_at(o, "speculative_model", "target_hidden_size");
  o = with_head(options_of("tests/vectors/eagle/qwen3-target", 0), "tests/vectors/eagle/qwen3", 3);
  o.draft.predicts = true;
  expect_refusal(o, "speculative_model");
}

Test(predict, what_does_not_go_together_is_refused) {
  engine_options_t o = options_of("tests/fixtures/tiny", 3);
  expect_refusal(o, "num_nextn_predict_layers");
  o = options_of("tests/vectors/mtp/glm4-moe", 3);
  o.draft.tokens_max = 0;
  expect_refusal(o, "num_speculative_tokens");
  o = options_of("tests/vectors/mtp/glm4-moe", 3);
  o.draft_model_dir = "tests/vectors/mtp/glm4-moe";
  expect_refusal(o, "speculative_model");
}
