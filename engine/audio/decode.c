/* decode.c: which library decodes a file. One thread, in a process without rights. */
#include "engine/audio/decoders.h"

void audio_open_library(void) {
  sound_open_library();
  aac_open_library();
}

int audio_decode(const uint8_t *bytes, size_t size, float *out, uint64_t room, uint64_t *count,
                 audio_source_t *source, inferd_error_t *error) {
  audio_format_t format;
  audio_sink_t sink = {.out = out, .room = room, .source = source, .error = error};
  *source = (audio_source_t){0};
  int code = audio_format(bytes, size, &format, error);
  if (code == 0)
    code = format == AUDIO_MP4 ? aac_decode(bytes, size, &sink) : sound_decode(bytes, size, &sink);
  *count = sink.count;
  sink_free(&sink);
  return code;
}
