/* test_mtp.c: the layer that predicts, against tests/vectors/mtp (scripts/vectors/mtp.py). */
#include "engine/model/forward/mtp.h"
#include "tests/engine/model/draft_case.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model's prompt in one step, and the layer over it in chunks of `chunk`; then the layer once
 * more, on its own output. */
static void check_case(const ops_t *ops, const char *name, int32_t chunk) {
  char dir[64];
  snprintf(dir, sizeof dir, "tests/vectors/mtp/%s", name);
  draft_case_t *c = draft_case_read(dir);
  rig_options_t options = {.ops = ops,
                           .dir = dir,
                           .dummy = true,
                           .seed = (uint64_t)c->seed,
                           .dtype = -1,
                           .max_model_len = 64,
                           .num_threads = 2,
                           .mtp = true};
  rig_t rig;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s: %s", name, error.message);
  const size_t hidden = (size_t)rig.blueprint.hidden_size;
  float *logits = calloc(DRAFT_PROMPT * DRAFT_VOCAB, sizeof *logits),
        *rows = calloc(DRAFT_PROMPT * hidden, 4);
  float *out = calloc(DRAFT_PROMPT * hidden, 4);
  ASSERT_EQ(rig_run(&rig, c->prompt, DRAFT_PROMPT, 0, 1, logits, &error), 0);
  memcpy(rows, mtp_rows(rig.model), DRAFT_PROMPT * hidden * sizeof *rows);
  for (int32_t at = 0; at < DRAFT_PROMPT - 1; at += chunk) {
    int32_t n = DRAFT_PROMPT - 1 - at < chunk ? DRAFT_PROMPT - 1 - at : chunk;
    ASSERT_EQ(rig_predict(&rig, &c->prompt[at + 1], n, at, rows + (size_t)at * hidden,
                          out + (size_t)at * hidden, logits + (size_t)at * DRAFT_VOCAB, &error),
              0);
  }
  draft_case_expect_first(name, c, logits);
  ASSERT_EQ(rig_predict(&rig, &c->drafted, 1, DRAFT_PROMPT - 1, out + (DRAFT_PROMPT - 2) * hidden,
                        rows, logits, &error),
            0);
  draft_case_expect_second(name, c, logits);
  free(logits);
  free(rows);
  free(out);
  free(c);
  rig_close(&rig);
}

Test(mtp, the_layer_computes_what_the_formula_says) {
  static const char *const names[] = {"glm4-moe",   "deepseek-v3", "glm4-moe-lite",
                                      "qwen3-next", "qwen3-5",     "qwen3-5-moe"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    check_case(&ops_cpu, names[i], DRAFT_PROMPT);
    check_case(&ops_cpu, names[i], 1);
    check_case(&ops_cpu, names[i], 7);
  }
}

static void expect_refusal(const ops_t *ops, const char *dir, const char *word) {
  rig_options_t options = {
      .ops = ops, .dir = dir, .dummy = true, .dtype = -1, .num_threads = 1, .mtp = true};
  rig_t rig;
  inferd_error_t error = {0};
  ASSERT_EQ(rig_open(&options, &rig, &error), ERR_CONFIGURATION);
  cr_assert(strstr(error.message, word) != NULL, "%s", error.message);
  ASSERT_STR_EQ(error.param, "speculative_method");
}

Test(mtp, what_has_no_such_layer_is_refused) {
  ops_t deep = ops_cpu;
  deep.pipeline_depth = 2;
  expect_refusal(&ops_cpu, "tests/fixtures/tiny", "num_nextn_predict_layers");
  expect_refusal(&deep, "tests/vectors/mtp/glm4-moe", "--device cpu");
}

/* Of the case qwen3-5 with another value of mtp_num_hidden_layers, which is 1. */
static void expect_refusal_of(const char *value, const char *word) {
  char dir[] = "/tmp/inferd-mtp-XXXXXX", line[128];
  snprintf(line, sizeof line, "\"mtp_num_hidden_layers\": %s,", value);
  draft_config_make(dir, "tests/vectors/mtp/qwen3-5", "\"mtp_num_hidden_layers\": 1,", line);
  expect_refusal(&ops_cpu, dir, word);
  draft_config_remove(dir);
}

Test(mtp, layers_of_qwen_that_do_not_run_are_refused) {
  expect_refusal_of("0", "mtp_num_hidden_layers");
  expect_refusal_of("1, \"mtp_use_dedicated_embeddings\": true", "mtp_use_dedicated_embeddings");
}

Test(mtp, files_without_the_layer_are_refused) {
  rig_options_t options = {.ops = &ops_cpu,
                           .dir = "tests/vectors/models/state-files-qwen3-5-moe",
                           .dtype = -1,
                           .num_threads = 1,
                           .mtp = true};
  rig_t rig;
  inferd_error_t error = {0};
  ASSERT_EQ(rig_open(&options, &rig, &error), ERR_MODEL_MALFORMED);
  cr_assert(strstr(error.message, "tensor mtp.layers.0.") != NULL, "%s", error.message);
  ASSERT_STR_EQ(error.param, "speculative_method");
}
