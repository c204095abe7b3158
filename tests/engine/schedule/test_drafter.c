/* test_drafter.c: a draft model changes the number of steps and nothing else.
 *
 * The large model is tests/fixtures/tiny with dummy weights on the real CPU back end. The same
 * model as its own drafter must have every draft accepted, greedy or sampled, through preemption,
 * shared blocks and copies: one wrong row in the drafter's cache would show. Another model drafts
 * badly.
 */
#include "tests/engine/client.h"

#include "engine/device/ops.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOBS = 60 };

static const char *const TINY = "tests/fixtures/tiny";

static engine_options_t options_of(const char *draft_dir) {
  engine_options_t o = client_options(&ops_cpu);
  o.num_threads = 2;
  o.num_blocks = 70; /* small: some are preempted */
  o.max_model_len = 1024;
  /* it is as slow as the model, so it would draft nothing */
  o.draft = (draft_options_t){
      .tokens_max = draft_dir ? 5 : 0, .match_min = 2, .match_max = 4, .longest = true};
  o.draft_model_dir = draft_dir;
  return o;
}

static client_t *run_all(const engine_options_t *options) {
  client_t *c = client_new(options);
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % 180, 4 + (i * 11) % 60, i % 12);
    sampling_params_t *p = &job->request.params;
    p->ignore_eos = true;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 3 == 2) p->repetition_penalty = 1.2f;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  return c;
}

static void expect_same(const client_t *a, const client_t *b) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *x = &a->jobs[i], *y = &b->jobs[i];
    ASSERT_EQ(x->num_output, y->num_output);
    ASSERT_EQ(x->text_length, y->text_length);
    ASSERT_IDS_EQ(x->output, y->output, x->num_output);
  }
}

/* A copy of the tiny model's directory with one word of config.json replaced. */
static void make_other(char *dir, const char *from, const char *to) {
  char path[256], target[512], text[4096];
  cr_assert(mkdtemp(dir) != NULL);
  snprintf(path, sizeof path, "%s/config.json", TINY);
  FILE *in = fopen(path, "r");
  cr_assert(in != NULL);
  size_t n = fread(text, 1, sizeof text - 1, in);
  fclose(in);
  text[n] = 0;
  char *at = strstr(text, from);
  cr_assert(at != NULL);
  snprintf(path, sizeof path, "%s/config.json", dir);
  FILE *out = fopen(path, "w");
  cr_assert(out != NULL);
  fprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  fclose(out);
  const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
  for (int i = 0; i < 2; i++) {
    char cwd[256];
    cr_assert(getcwd(cwd, sizeof cwd) != NULL);
    snprintf(target, sizeof target, "%s/%s/%s", cwd, TINY, files[i]);
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    ASSERT_EQ(symlink(target, path), 0);
  }
}

static void remove_other(const char *dir) {
  const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
  char path[256];
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    unlink(path);
  }
  rmdir(dir);
}

Test(drafter, the_model_itself_drafts_every_token, .timeout = 300) {
  engine_options_t plain = options_of(NULL), drafted = options_of(TINY);
  plain.max_model_len = drafted.max_model_len = 512;
  plain.num_blocks = drafted.num_blocks = 40;
  client_t *want = run_all(&plain), *got = run_all(&drafted);
  engine_stats_t s = client_stats(got);
  expect_same(want, got);
  ASSERT_GT(s.draft_tokens, 200);
  ASSERT_GT(s.preemptions, 0);
  ASSERT_GT(s.prefix_hits_tokens, 0);
  cr_assert(s.draft_tokens_accepted == s.draft_tokens, "%llu of %llu",
            (unsigned long long)s.draft_tokens_accepted, (unsigned long long)s.draft_tokens);
  ASSERT_LT(s.steps, client_stats(want).steps);
  client_check_idle(got);
  client_free(want);
  client_free(got);
}

Test(drafter, another_model_costs_steps_and_no_token, .timeout = 300) {
  char dir[] = "/tmp/inferd-drafter-XXXXXX";
  make_other(dir, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  engine_options_t plain = options_of(NULL), drafted = options_of(dir);
  client_t *want = run_all(&plain), *got = run_all(&drafted);
  engine_stats_t s = client_stats(got);
  expect_same(want, got);
  ASSERT_GT(s.draft_tokens, s.draft_tokens_accepted);
  client_check_idle(got);
  client_free(want);
  client_free(got);
  remove_other(dir);
}

static void expect_refusal(const char *from, const char *to, const char *word) {
  char dir[] = "/tmp/inferd-drafter-XXXXXX";
  engine_t *engine;
  inferd_error_t error = {0};
  make_other(dir, from, to);
  engine_options_t options = options_of(dir);
  ASSERT_EQ(engine_create(&options, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) usleep(1000);
  ASSERT_EQ(engine_state(engine), ENGINE_FAILED);
  engine_failure(engine, &error);
  cr_assert(error.code == ERR_CONFIGURATION && strstr(error.message, word), "%s", error.message);
  engine_destroy(engine);
  remove_other(dir);
}

Test(drafter, what_does_not_fit_is_refused) {
  expect_refusal("\"vocab_size\": 384", "\"vocab_size\": 448", "vocab_size");
  expect_refusal("\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 512",
                 "--max-model-len");
}

/* ---- a draft model whose device is lost ---- */

static const device_t *model_device;
static int num_ended, num_lost, num_said;

static void note_begin(device_t *device, const batch_t *batch) {
  if (model_device == NULL) model_device = device;
  ops_cpu.begin(device, batch);
}

/* Its fifth step fails, and all behind it. */
static int end_or_fail(device_t *device, inferd_error_t *error) {
  if (device == model_device || ++num_ended < 5) return ops_cpu.end(device, error);
  num_lost++;
  return error_set(error, ERR_DEVICE_FAILED, NULL, "the device is lost");
}

static void count_said(void *context, const char *line) {
  (void)context;
  num_said += strstr(line, "no more draft tokens") != NULL;
}

Test(drafter, one_that_is_lost_is_told_of_once_and_costs_no_token, .timeout = 300) {
  engine_options_t plain = options_of(NULL), drafted = options_of(TINY);
  ops_t ops = ops_cpu;
  ops.begin = note_begin;
  ops.end = end_or_fail;
  drafted.ops = &ops;
  drafted.log = count_said;
  client_t *want = run_all(&plain), *got = run_all(&drafted);
  expect_same(want, got);
  ASSERT_EQ(num_lost, 1);
  ASSERT_EQ(num_said, 1);
  client_check_idle(got);
  client_free(want);
  client_free(got);
}
