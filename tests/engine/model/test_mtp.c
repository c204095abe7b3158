/* test_mtp.c: the layer that predicts, against tests/vectors/mtp (scripts/vectors/mtp.py). */
#include "engine/base/json.h"
#include "engine/model/model_file.h"
#include "engine/model/mtp/mtp.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/engine/model/vectors.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 24, POSITIONS = 4, VOCAB = 384 };
/* fp32 sums in another order, on logits of about 1. */
static const double TOLERANCE = 1e-4;

typedef struct expected {
  int32_t prompt[PROMPT], positions[POSITIONS], drafted, seed;
  double first[POSITIONS][VOCAB], second[VOCAB];
} expected_t;

static void read_ids(const json_t *list, int32_t *out, int32_t count) {
  int32_t i = 0;
  ASSERT_EQ((int32_t)list->count, count);
  JSON_EACH(item, list) {
    int64_t id;
    cr_assert(json_int64(item, &id));
    out[i++] = (int32_t)id;
  }
}

static void read_row(const json_t *list, double *out) {
  int32_t i = 0;
  ASSERT_EQ(list->count, (uint32_t)VOCAB);
  JSON_EACH(item, list) cr_assert(json_double(item, &out[i++]));
}

static expected_t *read_expected(const char *dir) {
  expected_t *e = calloc(1, sizeof *e);
  model_file_t file;
  inferd_error_t error = {0};
  ASSERT_EQ(model_file_read(dir, "expected.json", 1 << 20, &json_limits_request, &file, &error), 0);
  const json_t *root = json_root(file.doc);
  int32_t i = 0;
  read_ids(json_get(root, "prompt"), e->prompt, PROMPT);
  read_ids(json_get(root, "positions"), e->positions, POSITIONS);
  JSON_EACH(row, json_get(root, "first")) read_row(row, e->first[i++]);
  read_row(json_get(root, "second"), e->second);
  int64_t number;
  cr_assert(json_int64(json_get(root, "drafted"), &number));
  e->drafted = (int32_t)number;
  cr_assert(json_int64(json_get(root, "seed"), &number));
  e->seed = (int32_t)number;
  model_file_free(&file);
  return e;
}

/* The model's prompt in one step, and the layer over it in chunks of `chunk`; then the layer once
 * more, on its own output. */
static void check_case(const ops_t *ops, const char *name, int32_t chunk) {
  char dir[64];
  snprintf(dir, sizeof dir, "tests/vectors/mtp/%s", name);
  expected_t *e = read_expected(dir);
  rig_options_t options = {.ops = ops,
                           .dir = dir,
                           .dummy = true,
                           .seed = (uint64_t)e->seed,
                           .dtype = -1,
                           .max_model_len = 64,
                           .num_threads = 2,
                           .mtp = true};
  rig_t rig;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s: %s", name, error.message);
  const size_t hidden = (size_t)rig.blueprint.hidden_size;
  float *logits = calloc(PROMPT * VOCAB, sizeof *logits), *rows = calloc(PROMPT * hidden, 4);
  float *out = calloc(PROMPT * hidden, 4);
  ASSERT_EQ(rig_run(&rig, e->prompt, PROMPT, 0, 1, logits, &error), 0);
  memcpy(rows, mtp_rows(rig.model), PROMPT * hidden * sizeof *rows);
  for (int32_t at = 0; at < PROMPT - 1; at += chunk) {
    int32_t n = PROMPT - 1 - at < chunk ? PROMPT - 1 - at : chunk;
    ASSERT_EQ(rig_predict(&rig, &e->prompt[at + 1], n, at, rows + (size_t)at * hidden,
                          out + (size_t)at * hidden, logits + (size_t)at * VOCAB, &error),
              0);
  }
  for (int i = 0; i < POSITIONS; i++) {
    double found = vectors_distance(logits + (size_t)e->positions[i] * VOCAB, e->first[i], VOCAB);
    cr_assert(found <= TOLERANCE, "%s: logits at %d differ by %g", name, e->positions[i], found);
  }
  ASSERT_EQ(vectors_largest(logits + (size_t)(PROMPT - 2) * VOCAB, VOCAB), e->drafted);
  ASSERT_EQ(rig_predict(&rig, &e->drafted, 1, PROMPT - 1, out + (PROMPT - 2) * hidden, rows, logits,
                        &error),
            0);
  double found = vectors_distance(logits, e->second, VOCAB);
  cr_assert(found <= TOLERANCE, "%s: logits behind the draft differ by %g", name, found);
  free(logits);
  free(rows);
  free(out);
  free(e);
  rig_close(&rig);
}

Test(mtp, the_layer_computes_what_the_formula_says) {
  static const char *const names[] = {"glm4-moe",   "deepseek-v3", "glm4-moe-lite",
                                      "qwen3-next", "qwen3-5",     "qwen3-5-moe"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    check_case(&ops_cpu, names[i], PROMPT);
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

/* The configuration of the case qwen3-5 with another value of mtp_num_hidden_layers. */
static void expect_refusal_of(const char *value, const char *word) {
  static const char key[] = "\"mtp_num_hidden_layers\": ";
  char dir[] = "/tmp/inferd-mtp-XXXXXX", path[64], text[4096];
  FILE *file = fopen("tests/vectors/mtp/qwen3-5/config.json", "r");
  cr_assert_not_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  char *at = strstr(text, key);
  cr_assert(at != NULL && mkdtemp(dir) != NULL);
  at += strlen(key);
  snprintf(path, sizeof path, "%s/config.json", dir);
  file = fopen(path, "w");
  cr_assert_not_null(file);
  fprintf(file, "%.*s%s%s", (int)(at - text), text, value, strchr(at, ','));
  fclose(file);
  expect_refusal(&ops_cpu, dir, word);
  remove(path);
  remove(dir);
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
