/* test_resample.c: the bounds of resample.h, measured; pieces change nothing. */
#include "engine/audio/resample.h"
#include "tests/engine/audio/signals.h"
#include "tests/expect.h"

/* All of a signal; from malloc, *count of them. */
static float *resample(uint32_t rate, const float *in, size_t length, size_t piece, size_t *count) {
  resampler_t *resampler = resampler_new(rate);
  cr_assert_not_null(resampler);
  float *out =
      calloc((size_t)audio_samples(length, rate) + 2 * resampler_room(resampler), sizeof *out);
  cr_assert_not_null(out);
  *count = 0;
  for (size_t at = 0; at < length; at += piece) {
    const size_t some = length - at < piece ? length - at : piece;
    *count += resampler_push(resampler, in + at, some, out + *count);
  }
  *count += resampler_end(resampler, out + *count);
  resampler_free(resampler);
  return out;
}

static const uint32_t rates[] = {8000,  11025, 12000, 22050,  24000, 32000,
                                 44100, 48000, 96000, 192000, 16001, 44101};
enum { RATES = sizeof rates / sizeof *rates };

/* A tone of the file's rate: its level behind the filter, in the middle of what comes out. */
static double level_of(uint32_t rate, double hz, double heard_hz) {
  const size_t length = rate * 2;
  float *in = calloc(length, sizeof *in);
  size_t count;
  cr_assert_not_null(in);
  for (size_t i = 0; i < length; i++) in[i] = (float)sin(2 * SIGNAL_PI * hz * (double)i / rate);
  float *out = resample(rate, in, length, RESAMPLER_PIECE, &count);
  ASSERT_EQ(count, (size_t)AUDIO_RATE * 2);
  /* One second: whole periods of whole numbers of Hz. */
  const double level = signal_level(out + AUDIO_RATE / 2, AUDIO_RATE, heard_hz, AUDIO_RATE);
  free(in);
  free(out);
  return level;
}

Test(resample, what_is_kept_keeps_its_level, .timeout = 120) {
  for (int r = 0; r < RATES; r++) {
    const double half = fmin(rates[r], AUDIO_RATE) / 2;
    for (double part = 0.05; part < 0.91; part += 0.17) {
      const double hz = floor(half * part), level = level_of(rates[r], hz, hz);
      EXPECT_LE_FOR(fabs(20 * log10(level)), 0.005, "%u at %.0f Hz", rates[r], hz);
    }
  }
}

/* From above half of the new rate, heard where it would fold to. */
Test(resample, what_would_fold_is_gone, .timeout = 120) {
  for (int r = 0; r < RATES; r++) {
    if (rates[r] < 2 * AUDIO_RATE) continue;
    for (double hz = 8001; hz < rates[r] / 2.0; hz += 1777) {
      const double rest = fmod(hz, AUDIO_RATE), heard = rest > 8000 ? AUDIO_RATE - rest : rest;
      EXPECT_LE_FOR(20 * log10(level_of(rates[r], hz, heard) + 1e-12), -90.0, "%u at %.0f Hz",
                    rates[r], hz);
    }
  }
}

/* What half of a lower rate mirrors is gone, too. */
Test(resample, nothing_is_added_above_a_low_rate) {
  for (double hz = 101; hz < 3600; hz += 701)
    EXPECT_LE_FOR(20 * log10(level_of(8000, hz, 8000 - hz) + 1e-12), -90.0, "%.0f Hz", hz);
}

Test(resample, nothing_is_shifted) {
  for (int r = 0; r < RATES; r++) {
    const size_t length = rates[r];
    float *in = calloc(length, sizeof *in);
    size_t count, largest = 0;
    cr_assert_not_null(in);
    /* A smooth bump around the middle of the second. */
    for (size_t i = 0; i < length; i++) {
      const double from = ((double)i / rates[r] - 0.5) * 200;
      in[i] = (float)exp(-from * from);
    }
    float *out = resample(rates[r], in, length, RESAMPLER_PIECE, &count);
    for (size_t i = 0; i < count; i++) largest = out[i] > out[largest] ? i : largest;
    EXPECT_EQ_FOR(largest, (size_t)AUDIO_RATE / 2, "%u", rates[r]);
    free(in);
    free(out);
  }
}

Test(resample, pieces_change_no_bit) {
  for (int r = 0; r < RATES; r++) {
    float *in = signal_make("noise", 5000, r + 1, 1);
    size_t count, other;
    float *out = resample(rates[r], in, 5000, RESAMPLER_PIECE, &count);
    ASSERT_EQ(count, (size_t)audio_samples(5000, rates[r]));
    for (size_t piece = 1; piece < 3000; piece = piece * 3 + 1) {
      float *again = resample(rates[r], in, 5000, piece, &other);
      ASSERT_EQ(other, count);
      EXPECT_EQ_FOR(memcmp(out, again, count * sizeof *out), 0, "%u by %zu", rates[r], piece);
      free(again);
    }
    free(in);
    free(out);
  }
}

Test(resample, short_inputs_have_their_samples) {
  for (int r = 0; r < RATES; r++) {
    for (size_t length = 0; length < 40; length++) {
      float *in = signal_make("noise", length, 9, 1);
      size_t count;
      float *out = resample(rates[r], in, length, 7, &count);
      EXPECT_EQ_FOR(count, (size_t)audio_samples(length, rates[r]), "%zu at %u", length, rates[r]);
      free(in);
      free(out);
    }
  }
}
