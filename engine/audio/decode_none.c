/* decode_none.c: in the place of libsndfile, in builds without it. Any thread. */
#include "engine/audio/audio.h"

void audio_open_library(void) {}

int audio_decode(const uint8_t *bytes, size_t size, float *out, uint64_t room, uint64_t *count,
                 audio_source_t *source, inferd_error_t *error) {
  (void)bytes, (void)size, (void)out, (void)room;
  *count = 0;
  *source = (audio_source_t){0};
  return error_set(error, ERR_INVALID_VALUE, NULL,
                   "sound cannot be read: this build of inferd has no libsndfile");
}
