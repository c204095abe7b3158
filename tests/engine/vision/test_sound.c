/* test_sound.c: what a sound becomes in a prompt, beside transformers (tests/vectors/
 * sound_lengths.jsonl, which scripts/vectors/speech.py wrote), and the rows that a tower reads. */
#include "engine/base/util.h"
#include "engine/vision/sound.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sound_processor_t two_a_token = {.bands = 3, .merge = 2},
                               of_windows = {.bands = 3, .merge = 4, .silence = true};

static void compare(const json_t *row) {
  int64_t samples, positions, tokens;
  vision_layout_t layout;
  int32_t windows;
  inferd_error_t error = {0};
  cr_assert(json_int64(json_get(row, "samples"), &samples));
  cr_assert(json_int64(json_get(row, "positions"), &positions));
  cr_assert(json_int64(json_get(row, "tokens"), &tokens));
  const int code = sound_layout(&two_a_token, (uint64_t)samples, &layout, &windows, &error);
  EXPECT_EQ_FOR(code, tokens > 0 ? 0 : ERR_INVALID_VALUE, "%lld samples", (long long)samples);
  if (code != 0) return;
  EXPECT_EQ_FOR(layout.grid_width, positions, "%lld samples", (long long)samples);
  EXPECT_EQ_FOR(layout.tokens, tokens, "%lld samples", (long long)samples);
}

Test(sound, lengths_are_those_of_transformers) {
  FILE *vectors = fopen("tests/vectors/sound_lengths.jsonl", "r");
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
  ASSERT_LE(50, count);
}

Test(sound, longer_than_a_window_is_refused) {
  vision_layout_t layout;
  int32_t windows;
  inferd_error_t error = {0};
  ASSERT_EQ(sound_layout(&two_a_token, 480000, &layout, &windows, &error), 0);
  ASSERT_EQ(layout.tokens, 750);
  ASSERT_EQ(sound_layout(&two_a_token, 480001, &layout, &windows, &error), ERR_INVALID_VALUE);
  cr_expect(strstr(error.message, "30 s") != NULL, "%s", error.message);
}

/* Silence fills the last window. */
Test(sound, long_sounds_are_windows) {
  static const struct {
    uint64_t samples;
    int32_t windows; /* 0: refused */
  } rows[] = {{1, 1},      {480000, 1},       {480001, 2},         {960000, 2},
              {960001, 3}, {480000 * 60, 60}, {480000 * 60 + 1, 0}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    vision_layout_t layout;
    int32_t windows = 0;
    inferd_error_t error = {0};
    const int code = sound_layout(&of_windows, rows[i].samples, &layout, &windows, &error);
    ASSERT_EQ_FOR(code, rows[i].windows > 0 ? 0 : ERR_INVALID_VALUE, "row %zu", i);
    if (code != 0) continue;
    ASSERT_EQ(windows, rows[i].windows);
    ASSERT_EQ(layout.grid_width, 1500);
    ASSERT_EQ(layout.tokens, 375);
  }
}

/* Of position p the rows 2 p - 2 to 2 p + 2, and zeros outside of the window. */
Test(sound, patches_are_rows_around_their_own) {
  static const uint64_t samples[] = {321, 960, 1120, 480000};
  for (size_t c = 0; c < ARRAY_LEN(samples); c++) {
    vision_layout_t layout;
    int32_t windows;
    inferd_error_t error = {0};
    ASSERT_EQ(sound_layout(&two_a_token, samples[c], &layout, &windows, &error), 0);
    const int32_t rows = sound_rows(&layout), count = (int32_t)layout.grid_width;
    ASSERT_EQ(rows, MIN(2 * count + 1, 3000));
    float *values = calloc((size_t)rows * 3, sizeof *values);
    float *out = calloc((size_t)count * 15, sizeof *out);
    for (int32_t i = 0; i < rows * 3; i++) values[i] = (float)(i + 1);
    for (int32_t first = 0; first < count; first += 7)
      sound_patches(&two_a_token, &layout, values, first, MIN(7, count - first), out + first * 15);
    for (int32_t i = 0; i < count * 15; i++) {
      const int32_t row = 2 * (i / 15) - 2 + i % 15 / 3;
      const float expected = row >= 0 && row < rows ? (float)(row * 3 + i % 3 + 1) : 0;
      ASSERT_EQ_FOR(out[i] == expected, true, "value %d of %lld samples", i, (long long)samples[c]);
    }
    free(values);
    free(out);
  }
}

Test(sound, extractors_are_refused_by_key) {
  static const struct {
    const char *text, *word; /* NULL: served */
  } rows[] = {
      {"{\"feature_size\": 128}", NULL},
      {"{\"feature_size\": 128, \"feature_extractor_type\": \"WhisperFeatureExtractor\"}", NULL},
      {"{\"feature_size\": 128, \"dither\": 0.0, \"chunk_length\": null}", NULL},
      {"{}", "feature_size"},
      {"{\"feature_size\": 80}", "feature_size"},
      {"{\"feature_size\": \"128\"}", "feature_size"},
      {"{\"feature_size\": 128, \"sampling_rate\": 8000}", "sampling_rate"},
      {"{\"feature_size\": 128, \"hop_length\": 161}", "hop_length"},
      {"{\"feature_size\": 128, \"n_fft\": 512}", "n_fft"},
      {"{\"feature_size\": 128, \"chunk_length\": 8}", "chunk_length"},
      {"{\"feature_size\": 128, \"dither\": 0.5}", "dither"},
      {"{\"feature_extractor_type\": \"ClapFeatureExtractor\"}", "feature_extractor_type"}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    sound_processor_t processor;
    ASSERT_EQ(json_parse(rows[i].text, strlen(rows[i].text), &json_limits_request, &doc, &error),
              0);
    const int code = sound_processor_read(json_root(doc), 128, 2, false, &processor, &error);
    EXPECT_EQ_FOR(code, rows[i].word == NULL ? 0 : ERR_MODEL_MALFORMED, "%s", rows[i].text);
    if (rows[i].word != NULL)
      cr_expect(strstr(error.message, rows[i].word) != NULL, "%s", error.message);
    json_free(doc);
  }
}
