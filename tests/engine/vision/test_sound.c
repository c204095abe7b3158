/* test_sound.c: what a sound becomes in a prompt, beside transformers (tests/vectors/
 * sound_lengths.jsonl, which scripts/vectors/speech.py wrote), and the rows that a tower reads. */
#include "engine/base/util.h"
#include "engine/vision/sound.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sound_processor_t
    two_a_token = {.bands = 3, .merge = 2, .windows_max = 1},
    of_windows = {.bands = 3,
                  .merge = 4,
                  .windows_max = 60,
                  .silence = true,
                  .tokens_of_silence = true},
    until_the_end = {.bands = 3, .merge = 2, .windows_max = 20},
    whole_until_the_end = {.bands = 3, .merge = 4, .windows_max = 21, .silence = true},
    of_chunks = {.bands = 3, .merge = 1, .chunked = true, .samples_min = 8000},
    of_bare_chunks = {.bands = 3, .merge = 1, .chunked = true};

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

/* By the formulas of AudioFlamingo3Processor and GlmAsrProcessor, of all windows together. */
Test(sound, tokens_of_windows_end_with_the_sound) {
  static const uint64_t samples[] = {321,    961,    5000,   479999, 480000, 480001, 480160,
                                     480321, 480960, 480961, 700001, 960000, 960321, 3000000};
  for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
    const int32_t rows = (int32_t)DIV_UP(samples[i], 160), positions = (rows - 1) / 2 + 1;
    for (int kind = 0; kind < 2; kind++) {
      const sound_processor_t *processor = kind == 0 ? &until_the_end : &whole_until_the_end;
      vision_layout_t layout;
      int32_t windows, tokens = 0;
      inferd_error_t error = {0};
      const int code = sound_layout(processor, samples[i], &layout, &windows, &error);
      ASSERT_EQ_FOR(code, samples[i] == 321 && kind == 1 ? ERR_INVALID_VALUE : 0, "%llu samples",
                    (unsigned long long)samples[i]);
      for (int32_t w = 0; code == 0 && w < windows; w++) {
        layout = sound_window(processor, samples[i], w);
        ASSERT_LE(1, layout.tokens);
        ASSERT_EQ(layout.grid_width == 1500 || (kind == 0 && w == windows - 1), true);
        tokens += (int32_t)layout.tokens;
      }
      if (code == 0)
        EXPECT_EQ_FOR(tokens, positions / processor->merge, "%llu samples",
                      (unsigned long long)samples[i]);
    }
  }
}

/* By the formula of Qwen3ASRProcessor: 13 tokens a chunk of 100 rows, one for each eight rows of
 * the last one; silence up to half a second. */
Test(sound, chunks_are_those_of_transformers) {
  static const struct {
    uint64_t samples;
    int32_t windows, last; /* positions of the last window; 0 windows: refused */
  } rows[] = {{1, 1, 7},
              {8000, 1, 7},
              {8959, 1, 7},
              {8960, 1, 7},
              {9120, 1, 8},
              {15999, 1, 13},
              {16000, 1, 13},
              {16160, 1, 14},
              {112 * 16000, 1, 1456},
              {112 * 16000 + 159, 1, 1456},
              {112 * 16000 + 160, 2, 1},
              {1200 * 16000, 11, 80 * 13},
              {1200 * 16000 + 1, 0, 0}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    vision_layout_t layout;
    int32_t windows = 0;
    inferd_error_t error = {0};
    const int code = sound_layout(&of_chunks, rows[i].samples, &layout, &windows, &error);
    ASSERT_EQ_FOR(code, rows[i].windows > 0 ? 0 : ERR_INVALID_VALUE, "row %zu", i);
    if (code != 0) continue;
    ASSERT_EQ_FOR(windows, rows[i].windows, "row %zu", i);
    const vision_layout_t last = sound_window(&of_chunks, rows[i].samples, windows - 1);
    ASSERT_EQ_FOR(last.tokens, (uint32_t)rows[i].last, "row %zu", i);
    if (windows > 1) ASSERT_EQ_FOR(layout.tokens, 1456, "row %zu", i);
  }
}

/* Without silence a sound must be longer than what is mirrored. */
Test(sound, the_shortest_sound_of_chunks) {
  vision_layout_t layout;
  int32_t windows;
  inferd_error_t error = {0};
  ASSERT_EQ(sound_layout(&of_bare_chunks, 200, &layout, &windows, &error), ERR_INVALID_VALUE);
  ASSERT_EQ(sound_layout(&of_bare_chunks, 201, &layout, &windows, &error), 0);
  ASSERT_EQ(layout.tokens, 1);
  ASSERT_EQ(sound_layout(&of_bare_chunks, 1440, &layout, &windows, &error), 0);
  ASSERT_EQ(layout.tokens, 2);
}

/* Of a chunk of 100 rows position p has rows 8 p to 8 p + 7; the last one lacks four. */
Test(sound, patches_of_chunks_are_eight_rows) {
  vision_layout_t layout;
  int32_t windows;
  inferd_error_t error = {0};
  ASSERT_EQ(sound_layout(&of_chunks, 23 * 1600, &layout, &windows, &error), 0);
  const int32_t count = (int32_t)layout.grid_width, rows = sound_rows(&of_chunks, &layout);
  ASSERT_EQ(count, 26 + 4);
  ASSERT_EQ(rows, 300);
  float *values = calloc((size_t)rows * 3, sizeof *values);
  float *out = calloc((size_t)count * 24, sizeof *out);
  for (int32_t i = 0; i < rows * 3; i++) values[i] = (float)(i + 1);
  for (int32_t first = 0; first < count; first += 7)
    sound_patches(&of_chunks, &layout, values, first, MIN(7, count - first), out + first * 24);
  for (int32_t i = 0; i < count * 24; i++) {
    const int32_t at = i / 24 % 13 * 8 + i % 24 / 3, row = i / 24 / 13 * 100 + at;
    const float expected = at < 100 ? (float)(row * 3 + i % 3 + 1) : 0;
    ASSERT_EQ_FOR(out[i] == expected, true, "value %d", i);
  }
  free(values);
  free(out);
}

/* Of position p the rows 2 p - 2 to 2 p + 2, and zeros outside of the window. */
Test(sound, patches_are_rows_around_their_own) {
  static const uint64_t samples[] = {321, 960, 1120, 480000};
  for (size_t c = 0; c < ARRAY_LEN(samples); c++) {
    vision_layout_t layout;
    int32_t windows;
    inferd_error_t error = {0};
    ASSERT_EQ(sound_layout(&two_a_token, samples[c], &layout, &windows, &error), 0);
    const int32_t rows = sound_rows(&two_a_token, &layout), count = (int32_t)layout.grid_width;
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

typedef struct extractor {
  const char *text, *word; /* NULL: served */
} extractor_t;

static void check_extractors(const extractor_t *rows, size_t count, bool chunked) {
  for (size_t i = 0; i < count; i++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    sound_processor_t processor = {
        .merge = 2, .windows_max = 1, .chunked = chunked, .samples_min = 8000};
    ASSERT_EQ(json_parse(rows[i].text, strlen(rows[i].text), &json_limits_request, &doc, &error),
              0);
    const int code = sound_processor_read(json_root(doc), 128, &processor, &error);
    EXPECT_EQ_FOR(code, rows[i].word == NULL ? 0 : ERR_MODEL_MALFORMED, "%s", rows[i].text);
    if (rows[i].word != NULL)
      cr_expect(strstr(error.message, rows[i].word) != NULL, "%s", error.message);
    json_free(doc);
  }
}

Test(sound, extractors_are_refused_by_key) {
  static const extractor_t rows[] = {
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
      {"{\"feature_extractor_type\": \"ClapFeatureExtractor\"}", "feature_extractor_type"},
      {"{\"feature_size\": 128, \"feature_extractor_type\": \"Qwen3ASRFeatureExtractor\"}",
       "WhisperFeatureExtractor"}};
  check_extractors(rows, ARRAY_LEN(rows), false);
}

Test(sound, extractors_of_chunks_are_refused_by_key) {
  static const extractor_t rows[] = {
      {"{}", NULL},
      {"{\"feature_extractor_type\": \"Qwen3ASRFeatureExtractor\", \"n_window\": 50}", NULL},
      {"{\"feature_extractor_type\": \"WhisperFeatureExtractor\", \"feature_size\": 128}", NULL},
      {"{\"feature_extractor_type\": \"WhisperFeatureExtractor\"}", "feature_size"},
      {"{\"feature_extractor_type\": \"ClapFeatureExtractor\"}", "Qwen3ASRFeatureExtractor"},
      {"{\"n_window\": 49}", "n_window"},
      {"{\"min_length\": 0}", "min_length"}};
  check_extractors(rows, ARRAY_LEN(rows), true);
}
