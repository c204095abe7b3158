/* signals.h: signals by their names, as scripts/vectors/speech.py draws them. */
#ifndef INFERD_TESTS_ENGINE_AUDIO_SIGNALS_H
#define INFERD_TESTS_ENGINE_AUDIO_SIGNALS_H

#include "engine/audio/audio.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SIGNAL_PI = 3.14159265358979323846;

/* From malloc; at least one. */
static inline float *signal_make(const char *kind, size_t count, int64_t number, double level) {
  float *out = calloc(count + 1, sizeof *out);
  uint32_t state = (uint32_t)number;
  cr_assert_not_null(out);
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    if (strcmp(kind, "tone") == 0)
      out[i] = (float)(level * sin(2 * SIGNAL_PI * (double)number * (double)i / AUDIO_RATE));
    else if (strcmp(kind, "noise") == 0)
      out[i] = (float)level * (float)((double)(state >> 8) / (1 << 23) - 1);
    else if (strcmp(kind, "impulse") == 0)
      out[i] = (int64_t)i == number ? (float)level : 0;
  }
  return out;
}

/* The amplitude of a frequency in the samples. */
static inline double signal_level(const float *samples, size_t count, double hz, double rate) {
  double re = 0, im = 0;
  for (size_t i = 0; i < count; i++) {
    const double turn = 2 * SIGNAL_PI * hz * (double)i / rate;
    re += (double)samples[i] * cos(turn);
    im += (double)samples[i] * sin(turn);
  }
  return 2 * sqrt(re * re + im * im) / (double)count;
}

#endif
