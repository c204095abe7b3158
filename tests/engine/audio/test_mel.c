/* test_mel.c: spectrograms against transformers (tests/vectors/mel.jsonl and mel_sounds.jsonl,
 * which scripts/vectors/speech.py wrote), and what no reference is needed for. */
#include "engine/audio/mel.h"
#include "engine/base/json.h"
#include "tests/engine/audio/signals.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

static double number_of(const json_t *row, const char *name) {
  double value = 0;
  cr_assert(json_double(json_get(row, name), &value), "%s", name);
  return value;
}

/* `whole`: of a sound without silence behind it, else of a window. */
static void compare(const json_t *row, bool whole) {
  char kind[16];
  const json_t *named = json_get(row, "kind");
  snprintf(kind, sizeof kind, "%.*s", (int)named->length, named->text);
  const size_t count = (size_t)number_of(row, "count");
  const int32_t bands = (int32_t)number_of(row, "bands");
  float *samples =
      signal_make(kind, count, (int64_t)number_of(row, "number"), number_of(row, "level"));
  const size_t values = (whole ? mel_sound_rows(count) : MEL_ROWS) * (size_t)bands;
  float *out = calloc(values, sizeof *out);
  mel_t *mel = mel_new(bands);
  cr_assert(out != NULL && mel != NULL);
  if (whole)
    mel_sound(mel, samples, count, out);
  else
    mel_window(mel, samples, count, out);
  double sum = 0, worst = 0;
  for (size_t i = 0; i < values; i++) sum += (double)out[i];
  JSON_EACH(value, json_get(row, "values")) {
    double place[3];
    int i = 0;
    JSON_EACH(part, value) cr_assert(json_double(part, &place[i++]));
    const double ours = (double)out[(size_t)place[0] * (size_t)bands + (size_t)place[1]];
    worst = fmax(worst, fabs(ours - place[2]));
  }
  EXPECT_LE_FOR(worst, 1e-5, "%s of %zu, %d bands", kind, count, bands);
  EXPECT_LE_FOR(fabs(sum - number_of(row, "sum")) / (double)values, 1e-6, "%s of %zu, %d bands",
                kind, count, bands);
  mel_free(mel);
  free(samples);
  free(out);
}

static int compare_all(const char *name, bool whole) {
  FILE *vectors = fopen(name, "r");
  char *text = NULL;
  size_t capacity = 0;
  int count = 0;
  cr_assert_not_null(vectors);
  for (ssize_t length; (length = getline(&text, &capacity, vectors)) > 0; count++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    ASSERT_EQ(json_parse(text, (size_t)length, &json_limits_request, &doc, &error), 0);
    compare(json_root(doc), whole);
    json_free(doc);
  }
  fclose(vectors);
  free(text);
  return count;
}

Test(mel, windows_are_those_of_transformers) {
  ASSERT_LE(32, compare_all("tests/vectors/mel.jsonl", false));
}

/* Mirrored at their own end: the last frame sees it. */
Test(mel, sounds_are_those_of_transformers) {
  ASSERT_LE(10, compare_all("tests/vectors/mel_sounds.jsonl", true));
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

/* Of silence behind a tone in the first window: rows away from the ends are those of windows by
 * themselves, but no lower than 8 below the largest of all. */
Test(mel, windows_of_one_sound_share_their_largest_value) {
  enum { BANDS = 80, FAR = 3 };
  mel_t *mel = mel_new(BANDS);
  float *samples = signal_make("noise", 2 * MEL_SAMPLES, 5, 0.5);
  const size_t values = (size_t)MEL_ROWS * BANDS;
  float *both = calloc(2 * values, sizeof *both), *one = calloc(values, sizeof *one);
  cr_assert(mel != NULL && both != NULL && one != NULL);
  for (size_t i = MEL_SAMPLES; i < 2 * (size_t)MEL_SAMPLES; i++) samples[i] *= 1e-6f;
  mel_windows(mel, samples, 2 * (size_t)MEL_SAMPLES, 2, both);
  mel_window(mel, samples, MEL_SAMPLES, one);
  ASSERT_EQ(memcmp(both, one, (values - FAR * BANDS) * sizeof *one), 0);
  float top = -10;
  for (size_t i = 0; i < values; i++) top = one[i] > top ? one[i] : top;
  for (size_t i = FAR * BANDS; i < values; i++)
    ASSERT_EQ_FOR(both[values + i] == top - 2, true, "value %zu", i);
  mel_free(mel);
  free(samples);
  free(both);
  free(one);
}
