/* fuzz_sound.c: a file of sound. What is read must be numbers within their bound, as many as the
 * frames make at the new rate, and no more than the room that was given. */
#include "engine/audio/audio.h"
#include "tests/fuzz/targets.h"

#include <math.h>
#include <stdlib.h>

enum { ROOM = 4 * AUDIO_RATE };

void fuzz_sound(const uint8_t *data, size_t size) {
  static float out[ROOM];
  audio_format_t format;
  audio_source_t source;
  uint64_t count = 0;
  inferd_error_t error = {0};
  const int known = audio_format(data, size, &format, &error);
  const int code = audio_decode(data, size, out, ROOM, &count, &source, &error);
  if (code != 0 && error.message[0] == 0) abort();
  if (known != 0 && code == 0) abort();
  if (count > ROOM) abort();
  if (code != 0) return;
  if (count == 0 || count != audio_samples(source.frames, source.rate)) abort();
  for (uint64_t i = 0; i < count; i++)
    if (!(fabsf(out[i]) <= 2 * AUDIO_SAMPLE_MAX)) abort();
}
