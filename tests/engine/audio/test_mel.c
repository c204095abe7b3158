/* test_mel.c: spectrograms against transformers (tests/vectors/mel.jsonl, which
 * scripts/vectors/speech.py wrote), and what no reference is needed for. */
#include "engine/audio/mel.h"
#include "engine/base/json.h"
#include "tests/engine/audio/signals.h"
#include "tests/expect.h"

#include <stdio.h>

static double number_of(const json_t *row, const char *name) {
  double value = 0;
  cr_assert(json_double(json_get(row, name), &value), "%s", name);
  return value;
}

static void compare(const json_t *row) {
  char kind[16];
  const json_t *named = json_get(row, "kind");
  snprintf(kind, sizeof kind, "%.*s", (int)named->length, named->text);
  const size_t count = (size_t)number_of(row, "count");
  const int32_t bands = (int32_t)number_of(row, "bands");
  float *samples =
      signal_make(kind, count, (int64_t)number_of(row, "number"), number_of(row, "level"));
  float *out = calloc((size_t)MEL_ROWS * (size_t)bands, sizeof *out);
  mel_t *mel = mel_new(bands);
  cr_assert(out != NULL && mel != NULL);
  mel_window(mel, samples, count, out);
  double sum = 0, worst = 0;
  for (size_t i = 0; i < (size_t)MEL_ROWS * (size_t)bands; i++) sum += (double)out[i];
  JSON_EACH(value, json_get(row, "values")) {
    double place[3];
    int i = 0;
    JSON_EACH(part, value) cr_assert(json_double(part, &place[i++]));
    const double ours = (double)out[(size_t)place[0] * (size_t)bands + (size_t)place[1]];
    worst = fmax(worst, fabs(ours - place[2]));
  }
  EXPECT_LE_FOR(worst, 1e-5, "%s of %zu, %d bands", kind, count, bands);
  EXPECT_LE_FOR(fabs(sum - number_of(row, "sum")) / (MEL_ROWS * bands), 1e-6, "%s of %zu, %d bands",
                kind, count, bands);
  mel_free(mel);
  free(samples);
  free(out);
}

Test(mel, windows_are_those_of_transformers) {
  FILE *vectors = fopen("tests/vectors/mel.jsonl", "r");
  char *text = NULL;
  size_t capacity = 0;
  int count = 0;
  cr_assert_not_null(vectors);
  for (ssize_t length; (length = getline(&text, &capacity, vectors)) > 0; count++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    ASSERT_EQ(json_parse(text, (size_t)length, &json_limits_request, &doc, &error), 0);
    compare(json_root(doc));
    json_free(doc);
  }
  fclose(vectors);
  free(text);
  ASSERT_LE(32, count);
}

/* What lies behind 30 s is not read, and what is missing is silence. */
Test(mel, a_window_is_thirty_seconds) {
  mel_t *mel = mel_new(80);
  float *samples = signal_make("noise", MEL_SAMPLES + 1, 5, 0.5);
  const size_t bytes = (size_t)MEL_ROWS * 80 * sizeof(float);
  float *one = malloc(bytes), *two = malloc(bytes);
  cr_assert(mel != NULL && one != NULL && two != NULL);
  mel_window(mel, samples, MEL_SAMPLES, one);
  mel_window(mel, samples, MEL_SAMPLES + 1, two);
  EXPECT_EQ(memcmp(one, two, bytes), 0);
  mel_window(mel, samples, MEL_SAMPLES - 1, one);
  samples[MEL_SAMPLES - 1] = 0;
  mel_window(mel, samples, MEL_SAMPLES, two);
  EXPECT_EQ(memcmp(one, two, bytes), 0);
  free(samples);
  free(one);
  free(two);
  mel_free(mel);
}
