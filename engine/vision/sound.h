/* sound.h: from a sound to what a tower that hears reads, as transformers' processors do it.
 *
 * A sound is a picture of one line: its layout has a row of patches, the positions that the tower
 * makes of its spectrogram (engine/audio/mel.h), and as many tokens as the tower makes rows. All
 * that a prompt has of it is known by the number of its samples.
 * Pure functions and plain data: any thread, no allocation.
 */
#ifndef INFERD_ENGINE_VISION_SOUND_H
#define INFERD_ENGINE_VISION_SOUND_H

#include "engine/vision/processor.h"

enum {
  SOUND_RATE = 16000,     /* samples a second */
  SOUND_HOP = 160,        /* samples of a row of a spectrogram */
  SOUND_SECONDS = 30,     /* of a window */
  SOUND_WINDOWS_MAX = 60, /* of a sound */
  SOUND_STRIDE = 2,       /* rows of a position */
  SOUND_POSITIONS = SOUND_SECONDS * SOUND_RATE / SOUND_HOP / SOUND_STRIDE
};

typedef struct sound_processor {
  int32_t bands; /* of a spectrogram */
  int32_t merge; /* positions of a token */
  /* Windows are whole, with the silence behind a sound, and a sound may have several; else it has
   * one, and the tower sees no more than it lasts. */
  bool silence;
} sound_processor_t;

/* Of preprocessor_config.json, or of its part of processor_config.json: a WhisperFeatureExtractor
 * of 30 s. `bands` are those of the tower. Returns 0, or ERR_MODEL_MALFORMED with the key. */
int sound_processor_read(const json_t *extractor, int32_t bands, int32_t merge, bool silence,
                         sound_processor_t *out, inferd_error_t *error);
/* Windows, and seconds, of the longest sound. */
int32_t sound_windows_max(const sound_processor_t *processor);
/* What each of the windows of a sound of so many samples becomes, and how many there are. Returns
 * 0, or ERR_INVALID_VALUE: it is too short for a token, or too long; the message has the numbers,
 * and `param` is left to the caller. */
int sound_layout(const sound_processor_t *processor, uint64_t samples, vision_layout_t *out,
                 int32_t *windows, inferd_error_t *error);
/* Rows of the window's spectrogram that its positions are made of. */
int32_t sound_rows(const vision_layout_t *layout);
/* Patches [first, first + count) for a tower: of each the rows around its own, zeros where the
 * window has none, [count, span * bands]. `rows`: (sound_rows, bands). */
void sound_patches(const sound_processor_t *processor, const vision_layout_t *layout,
                   const float *rows, int32_t first, int32_t count, float *out);

#endif
