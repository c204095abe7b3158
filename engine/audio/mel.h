/* mel.h: samples -> a log-mel spectrogram, as WhisperFeatureExtractor of transformers makes it.
 *
 * A window of 30 s, silence behind what there is, becomes 3,000 rows of 10 ms: Hann window of 400
 * samples, their power at 201 frequencies, 80 or 128 bands of mel (Slaney's scale and areas, 0 to 8
 * kHz), log10 of at least 1e-10, at least 8 below the largest of the window, and (x + 4) / 4.
 * Computed in double, within 1e-5 of that class. Any thread; `mel_t` is constant.
 */
#ifndef INFERD_ENGINE_AUDIO_MEL_H
#define INFERD_ENGINE_AUDIO_MEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  MEL_SAMPLES = 480000, /* of a window: 30 s at AUDIO_RATE */
  MEL_HOP = 160,
  MEL_ROWS = MEL_SAMPLES / MEL_HOP,
  MEL_BANDS_MAX = 128
};

typedef struct mel mel_t;

/* `bands` is 1 to MEL_BANDS_MAX. Returns NULL if memory is short. */
mel_t *mel_new(int32_t bands);
/* The window that begins with samples[0 .. count); more than MEL_SAMPLES are not read. out:
 * (MEL_ROWS, bands). Values that are no numbers must not be among the samples. */
void mel_window(const mel_t *mel, const float *samples, size_t count, float *out);
/* The same of `windows` windows, one behind another, as one sound: a frame at the end of one sees
 * the next, and the largest value is that of all. out: (windows MEL_ROWS, bands). */
void mel_windows(const mel_t *mel, const float *samples, size_t count, size_t windows, float *out);
/* A sound as it is, mirrored at its own end, without silence behind it (Qwen3ASRFeatureExtractor):
 * mel_sound_rows(count) rows, of MEL_SOUND_MIN samples or more. out: (rows, bands). */
enum { MEL_SOUND_MIN = 201 }; /* its ends are mirrored */
static inline size_t mel_sound_rows(size_t count) {
  return count / MEL_HOP;
}
void mel_sound(const mel_t *mel, const float *samples, size_t count, float *out);
void mel_free(mel_t *mel);

#endif
