/* sound_none.c: in the place of libsndfile, in builds without it. Any thread. */
#include "engine/audio/decoders.h"

void sound_open_library(void) {}

int sound_decode(const uint8_t *bytes, size_t size, audio_sink_t *sink) {
  (void)bytes, (void)size;
  return error_set(sink->error, ERR_INVALID_VALUE, NULL,
                   "sound cannot be read: this build of inferd has no libsndfile");
}
