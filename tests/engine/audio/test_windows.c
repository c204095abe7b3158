/* test_windows.c: where long files are cut; the rule of vLLM again, by its words. */
#include "engine/audio/mel.h"
#include "engine/audio/windows.h"
#include "tests/engine/audio/signals.h"
#include "tests/expect.h"

/* SpeechToTextConfig of vLLM: clips of 30 s, 1 s searched in steps of 1,600 samples. */
static size_t as_vllm(const float *samples, size_t count) {
  if (count <= MEL_SAMPLES) return count;
  const size_t start = MEL_SAMPLES - 16000;
  double least = INFINITY;
  size_t best = 0;
  for (size_t i = 0; i < 16000 - 1600; i += 1600) {
    double sum = 0;
    for (size_t k = 0; k < 1600; k++)
      sum += (double)samples[start + i + k] * (double)samples[start + i + k];
    const double energy = sqrt(sum / 1600);
    if (energy < least) {
      least = energy;
      best = start + i;
    }
  }
  return best;
}

Test(windows, are_cut_where_vllm_cuts) {
  for (int seed = 1; seed < 6; seed++) {
    const size_t count = 1700000;
    float *samples = signal_make("noise", count, seed, 1);
    size_t at = 0, number = 0;
    /* Louder and softer, so that there is a quietest place. */
    for (size_t i = 0; i < count; i++) samples[i] *= (float)(1 + sin((double)i / (3000 + seed)));
    for (; at < count; number++) {
      const size_t length = window_length(samples + at, count - at);
      ASSERT_EQ(length, as_vllm(samples + at, count - at));
      at += length;
    }
    ASSERT_EQ(at, count);
    ASSERT_LE(number, windows_most(count));
    free(samples);
  }
}

Test(windows, of_thirty_seconds_are_whole) {
  float *samples = signal_make("silence", MEL_SAMPLES + 1, 0, 0);
  EXPECT_EQ(window_length(samples, 1), 1);
  EXPECT_EQ(window_length(samples, MEL_SAMPLES - 1), MEL_SAMPLES - 1);
  EXPECT_EQ(window_length(samples, MEL_SAMPLES), MEL_SAMPLES);
  EXPECT_EQ(window_length(samples, MEL_SAMPLES + 1), MEL_SAMPLES - 16000);
  for (size_t count = 1; count < 5000000; count = count * 3 / 2 + 1)
    EXPECT_LE(count / MEL_SAMPLES, windows_most(count));
  free(samples);
}
