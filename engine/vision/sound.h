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
  SOUND_RATE = 16000, /* samples a second */
  SOUND_HOP = 160,    /* samples of a row of a spectrogram */
  SOUND_SECONDS = 30, /* of a window */
  SOUND_STRIDE = 2,   /* rows of a position */
  SOUND_POSITIONS = SOUND_SECONDS * SOUND_RATE / SOUND_HOP / SOUND_STRIDE,
  /* Of towers that hear chunk by chunk (Qwen3-ASR): rows and positions of a chunk, and of a window;
   * rows of a position. No position sees one of another window. */
  SOUND_CHUNK_ROWS = 100,
  SOUND_CHUNK_POSITIONS = 13,
  SOUND_CHUNK_STRIDE = 8,
  SOUND_CHUNKS = 112,
  SOUND_CHUNKED_SECONDS = 1200, /* of a sound */
  SOUND_SAMPLES_MIN = 201       /* of which there is a spectrogram then, silence among them */
};
_Static_assert(SOUND_CHUNKS *SOUND_CHUNK_POSITIONS <= SOUND_POSITIONS, "one size of runs");

typedef struct sound_processor {
  int32_t bands;       /* of a spectrogram */
  int32_t merge;       /* positions of a token */
  int32_t windows_max; /* of a sound; not of chunks */
  /* Windows are whole, with the silence behind a sound; else the tower sees no more than it lasts.
   * What it makes of silence may be tokens, too. */
  bool silence, tokens_of_silence;
  bool joined; /* windows are of one spectrogram (mel_windows); else each has its own */
  /* By chunks: windows are of a spectrogram of all of the sound (mel_sound), behind which silence
   * stands up to so many samples. */
  bool chunked;
  int32_t samples_min;
} sound_processor_t;

/* Of preprocessor_config.json, or of its part of processor_config.json: a WhisperFeatureExtractor
 * of 30 s, or for `chunked` also a Qwen3ASRFeatureExtractor. `bands` are those of the tower, and
 * become those of `out`, which has the rest. Returns 0, or ERR_MODEL_MALFORMED with the key. */
int sound_processor_read(const json_t *extractor, int32_t bands, sound_processor_t *out,
                         inferd_error_t *error);
/* Seconds of the longest sound. A longer one is refused; the reference cuts it off. */
int32_t sound_seconds_max(const sound_processor_t *processor);
/* Rows of a whole window. */
int32_t sound_window_rows(const sound_processor_t *processor);
/* What the first window of a sound of so many samples becomes, and how many windows there are that
 * have a token. Returns 0, or ERR_INVALID_VALUE: it is too short for one, or too long; the message
 * has the numbers, and `param` is left to the caller. */
int sound_layout(const sound_processor_t *processor, uint64_t samples, vision_layout_t *out,
                 int32_t *windows, inferd_error_t *error);
/* The same of its window `window`. `short_rows` of a sound that is shorter than a chunk, and has no
 * silence behind it: its rows, behind which the chunk ends, too. */
vision_layout_t sound_window(const sound_processor_t *processor, uint64_t samples, int32_t window);
/* Rows of the window's spectrogram that its positions are made of. */
int32_t sound_rows(const sound_processor_t *processor, const vision_layout_t *layout);
/* Patches [first, first + count) for a tower: of each the rows around its own, or of chunks its own
 * ones, zeros where the window has none, [count, their number * bands]. `rows`: (sound_rows,
 * bands).
 */
void sound_patches(const sound_processor_t *processor, const vision_layout_t *layout,
                   const float *rows, int32_t first, int32_t count, float *out);

#endif
