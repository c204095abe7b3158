/* test_eagle.c: heads of EAGLE-3, against tests/vectors/eagle (scripts/vectors/eagle.py). */
#include "engine/base/check.h"
#include "engine/model/forward/eagle.h"
#include "engine/model/sizes.h"
#include "tests/engine/model/draft_case.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/expect.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the head over `count` places from `start` on; the batch is that of its rig. */
static void predict(rig_t *head, const int32_t *next, int32_t count, int32_t start,
                    const float *rows, bool of_target, float *out, float *logits) {
  inferd_error_t error = {0};
  rig_batch(head, next, count, start, count);
  head->ops->begin(head->device, &head->batch);
  eagle_forward(head->model, &head->batch, rows, of_target, out);
  eagle_head(head->model, out, count);
  for (int32_t t = 0; t < count; t += 8) {
    const int32_t some = count - t < 8 ? count - t : 8;
    model_logits(head->model, t, some);
    head->ops->read_logits(head->device, logits + (size_t)t * DRAFT_VOCAB, some);
  }
  ASSERT_EQ(head->ops->end(head->device, &error), 0);
}

/* The target's prompt in one step, and the head over it in chunks; then once more, on its own
 * output. */
static void check_case(const char *name, int32_t chunk) {
  char dir[64], target_dir[80];
  snprintf(dir, sizeof dir, "tests/vectors/eagle/%s", name);
  snprintf(target_dir, sizeof target_dir, "%s-target", dir);
  draft_case_t *c = draft_case_read(dir);
  rig_options_t options = {.ops = &ops_cpu,
                           .dir = target_dir,
                           .dummy = true,
                           .seed = (uint64_t)c->seed,
                           .dtype = -1,
                           .max_model_len = 64,
                           .num_threads = 2};
  rig_t target, head;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(rig_open(&options, &target, &error), 0, "%s: %s", name, error.message);
  options.dir = dir;
  options.dummy = false;
  ASSERT_EQ_FOR(rig_open(&options, &head, &error), 0, "%s: %s", name, error.message);
  ASSERT_EQ(eagle_check(&ops_cpu, &head.blueprint, &target.blueprint, dir, &error), 0);
  ASSERT_EQ_FOR(eagle_attach(head.model, target.model, dir, DRAFT_PROMPT, &error), 0, "%s",
                error.message);
  const size_t hidden = (size_t)target.blueprint.hidden_size;
  float *logits = calloc(DRAFT_PROMPT * DRAFT_VOCAB, sizeof *logits),
        *out = calloc(DRAFT_PROMPT * hidden, 4);
  ASSERT_EQ(rig_run(&target, c->prompt, DRAFT_PROMPT, 0, 1, logits, &error), 0);
  const float *rows = eagle_rows(target.model);
  for (int32_t at = 0; at < DRAFT_PROMPT - 1; at += chunk) {
    const int32_t n = DRAFT_PROMPT - 1 - at < chunk ? DRAFT_PROMPT - 1 - at : chunk;
    predict(&head, &c->prompt[at + 1], n, at, rows + (size_t)at * EAGLE_LAYERS * hidden, true,
            out + (size_t)at * hidden, logits + (size_t)at * DRAFT_VOCAB);
  }
  draft_case_expect_first(name, c, logits);
  float *last = out + (DRAFT_PROMPT - 2) * hidden;
  predict(&head, &c->drafted, 1, DRAFT_PROMPT - 1, last, false, out, logits);
  draft_case_expect_second(name, c, logits);
  free(logits);
  free(out);
  free(c);
  rig_close(&head);
  rig_close(&target);
}

Test(eagle, the_head_computes_what_the_formula_says) {
  static const char *const names[] = {"llama", "qwen3"};
  for (int i = 0; i < 2; i++) {
    check_case(names[i], DRAFT_PROMPT);
    check_case(names[i], 1);
    check_case(names[i], 7);
  }
}

/* ---- refusals ---- */

static void expect_refusal(const ops_t *ops, const char *head, const char *target,
                           const char *word) {
  blueprint_t a, b;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(blueprint_read(head, 0, -1, &a, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(blueprint_read(target, 0, -1, &b, &error), 0, "%s", error.message);
  ASSERT_EQ(eagle_check(ops, &a, &b, head, &error), ERR_CONFIGURATION);
  cr_assert(strstr(error.message, word) != NULL, "%s", error.message);
  ASSERT_STR_EQ(error.param, "speculative_model");
  blueprint_free(&a);
  blueprint_free(&b);
}

Test(eagle, models_that_it_was_not_made_for_are_refused) {
  ops_t deep = ops_cpu, without = ops_cpu;
  deep.pipeline_depth = 2;
  without.drafts = NULL;
  const char *head = "tests/vectors/eagle/llama", *target = "tests/vectors/eagle/llama-target";
  expect_refusal(&deep, head, target, "--device cpu");
  expect_refusal(&without, head, target, "--device cpu");
  expect_refusal(&ops_cpu, head, "tests/vectors/eagle/qwen3-target", "target_hidden_size");
  expect_refusal(&ops_cpu, head, "tests/vectors/eagle/right-target", "vocab_size");
}

/* Before anything is loaded: the plan of the memory is made of heads that will load. */
Test(eagle, tokens_that_do_not_fit_are_refused) {
  char dir[] = "/tmp/inferd-eagle-XXXXXX", path[64], weights[PATH_MAX];
  blueprint_t head, target;
  inferd_error_t error = {0};
  draft_config_make(dir, "tests/vectors/eagle/right", "\"draft_vocab_size\": 64",
                    "\"draft_vocab_size\": 63");
  cr_assert_not_null(realpath("tests/vectors/eagle/right/model.safetensors", weights));
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  ASSERT_EQ(symlink(weights, path), 0);
  ASSERT_EQ(blueprint_read(dir, 0, -1, &head, &error), 0);
  ASSERT_EQ(blueprint_read("tests/vectors/eagle/right-target", 0, -1, &target, &error), 0);
  ASSERT_EQ(eagle_check(&ops_cpu, &head, &target, dir, &error), ERR_MODEL_MALFORMED);
  cr_assert(strstr(error.message, "d2t is not I64 [63]") != NULL, "%s", error.message);
  blueprint_free(&head);
  blueprint_free(&target);
  remove(path);
  draft_config_remove(dir);
}

/* Of the case qwen3. */
static void expect_config_refusal(const char *from, const char *to, const char *word) {
  char dir[] = "/tmp/inferd-eagle-XXXXXX";
  blueprint_t blueprint;
  inferd_error_t error = {0};
  draft_config_make(dir, "tests/vectors/eagle/qwen3", from, to);
  cr_assert(eagle_is_head(dir));
  ASSERT_EQ(blueprint_read(dir, 0, -1, &blueprint, &error), ERR_MODEL_MALFORMED);
  cr_assert(strstr(error.message, word) != NULL, "%s", error.message);
  draft_config_remove(dir);
}

Test(eagle, heads_of_another_formula_are_refused) {
  const char *flag = "\"norm_before_residual\"";
  expect_config_refusal(flag, "\"norm_before_fc\"", "norm_before_fc");
  expect_config_refusal(flag, "\"fc_norm\"", "fc_norm");
  expect_config_refusal(flag, "\"norm_output\"", "norm_output");
  expect_config_refusal("\"use_aux_hidden_state\": true", "\"use_aux_hidden_state\": false",
                        "use_aux_hidden_state");
  expect_config_refusal("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2",
                        "num_hidden_layers");
  expect_config_refusal("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
                        "tie_word_embeddings");
  expect_config_refusal("\"eagle_config\"", "\"eagle_aux_hidden_state_layer_ids\": [1, 2], \"x\"",
                        "eagle_aux_hidden_state_layer_ids");
  cr_assert(!eagle_is_head("tests/fixtures/tiny") && !eagle_is_head("tests/vectors"));
}
