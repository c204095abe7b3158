/* windows.c: see windows.h. Any thread; no state. */
#include "engine/audio/windows.h"

#include "engine/audio/audio.h"
#include "engine/audio/mel.h"

enum { SEARCHED = AUDIO_RATE, STRETCH = AUDIO_RATE / 10 };

size_t window_length(const float *samples, size_t count) {
  if (count <= MEL_SAMPLES) return count;
  const size_t begin = MEL_SAMPLES - SEARCHED;
  double least = -1;
  size_t cut = begin;
  /* The last stretch of the second is not looked at, as there. */
  for (size_t at = begin; at + STRETCH < MEL_SAMPLES; at += STRETCH) {
    double sum = 0;
    for (size_t i = at; i < at + STRETCH; i++) sum += (double)samples[i] * (double)samples[i];
    if (least >= 0 && sum >= least) continue;
    least = sum;
    cut = at;
  }
  return cut;
}

size_t windows_most(size_t count) {
  return count <= MEL_SAMPLES ? 1 : 1 + (count - MEL_SAMPLES) / (MEL_SAMPLES - SEARCHED) + 1;
}
