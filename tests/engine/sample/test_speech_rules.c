/* test_speech_rules.c: what may follow in a transcript, against transformers
 * (tests/vectors/speech_rules.jsonl, which scripts/vectors/speech.py wrote). */
#include "engine/base/json.h"
#include "engine/device/speech_rules.h"
#include "engine/sample/sampler.h"
#include "tests/engine/sample/rig.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB_MAX = 64 };

static int32_t read_ids(const json_t *list, int32_t *out) {
  int32_t count = 0;
  JSON_EACH(element, list) {
    int64_t id = 0;
    cr_assert(json_int64(element, &id) && count < VOCAB_MAX);
    out[count++] = (int32_t)id;
  }
  return count;
}

static int32_t id_of(const json_t *row, const char *name) {
  int64_t id = 0;
  cr_assert(json_int64(json_get(row, name), &id), "%s", name);
  return (int32_t)id;
}

static void compare(const json_t *row, int number) {
  speech_rules_t rules = {.stamps = true,
                          .eos_id = id_of(row, "eos"),
                          .no_stamps_id = id_of(row, "no_stamps"),
                          .first_stamp_id = id_of(row, "no_stamps") + 1,
                          .max_initial = id_of(row, "initial")};
  int32_t history[VOCAB_MAX], left[VOCAB_MAX], vocab = 0;
  float logits[VOCAB_MAX];
  rules.num_begin_ids = read_ids(json_get(row, "begin"), rules.begin_ids);
  const int32_t num_left = read_ids(json_get(row, "left"), left);
  JSON_EACH(element, json_get(row, "logits")) {
    double value = 0;
    cr_assert(json_double(element, &value));
    logits[vocab++] = value < -1e8 ? -INFINITY : (float)value;
  }
  rig_t rig = rig_new(logits, vocab);
  rig.params.rules = &rules;
  rig.params.temperature = 0;
  rig.row.output_ids = history;
  rig.row.num_output = read_ids(json_get(row, "history"), history);
  int32_t best = -1;
  for (int32_t i = 0; i < num_left; i++)
    if (best < 0 || logits[left[i]] > logits[best]) best = left[i];
  const int32_t id = rig_run(&rig);
  EXPECT_EQ_FOR(rig.result.status, best < 0 ? ERR_NO_CHOICE : 0, "case %d", number);
  if (best >= 0) EXPECT_EQ_FOR(id, best, "case %d", number);
  /* The whole set, which the row is left with. */
  void *scratch = aligned_alloc(64, (sampler_scratch_bytes(vocab) + 63) / 64 * 64);
  cr_assert_not_null(scratch);
  sampler_row(logits, vocab, &rig.row, scratch);
  for (int32_t i = 0, at = 0; i < vocab; i++) {
    const bool is_left = at < num_left && left[at] == i;
    at += is_left;
    EXPECT_EQ_FOR(logits[i] > -INFINITY, is_left, "case %d, id %d", number, i);
  }
  free(scratch);
}

Test(speech_rules, leave_what_transformers_leaves) {
  FILE *vectors = fopen("tests/vectors/speech_rules.jsonl", "r");
  char *text = NULL;
  size_t capacity = 0;
  int count = 0;
  cr_assert_not_null(vectors);
  for (ssize_t length; (length = getline(&text, &capacity, vectors)) > 0; count++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    ASSERT_EQ(json_parse(text, (size_t)length, &json_limits_request, &doc, &error), 0);
    compare(json_root(doc), count);
    json_free(doc);
  }
  fclose(vectors);
  free(text);
  ASSERT_LE(400, count);
}

Test(speech_rules, without_stamps_bind_the_first_token_alone) {
  float logits[] = {3, 2, 1, 5};
  rig_t rig = rig_new(logits, 4);
  const int32_t history[] = {0};
  const speech_rules_t rules = {.begin_ids = {3, 0}, .num_begin_ids = 2};
  rig.params.temperature = 0;
  rig.params.rules = &rules;
  EXPECT_EQ(rig_run(&rig), 1);
  rig.row.output_ids = history;
  rig.row.num_output = 1;
  EXPECT_EQ(rig_run(&rig), 3);
}
