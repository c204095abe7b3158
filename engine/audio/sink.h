/* sink.h: decoded frames, piece by piece -> one channel at AUDIO_RATE: the mean of the channels,
 * resampled, within bounds. One thread, in a process without rights. */
#ifndef INFERD_ENGINE_AUDIO_SINK_H
#define INFERD_ENGINE_AUDIO_SINK_H

#include "engine/audio/audio.h"
#include "engine/audio/resample.h"

enum { SINK_PIECE = RESAMPLER_PIECE };

typedef struct audio_sink {
  resampler_t *resampler; /* NULL = the file has the rate */
  float *mono, *made;     /* [SINK_PIECE]; of the resampler */
  float *out;             /* [room], `count` of them are made */
  uint64_t room, count;
  audio_source_t *source;
  inferd_error_t *error;
} audio_sink_t;

/* Sets *source and takes memory, whatever comes back to be freed by sink_free. `out`, `room`,
 * `source` and `error` are set before. Returns 0, ERR_INVALID_VALUE: a rate or channels outside the
 * bounds; or ERR_NO_MEMORY. */
int sink_begin(audio_sink_t *sink, int64_t rate, int64_t channels);
/* frames[count, channels], count at most SINK_PIECE. Returns 0 or ERR_INVALID_VALUE. */
int sink_push(audio_sink_t *sink, const float *frames, size_t count);
/* The same; nothing follows. */
int sink_end(audio_sink_t *sink);
/* ERR_INVALID_VALUE with "the sound " and these words. */
int sink_refuse(const audio_sink_t *sink, const char *what);
void sink_free(audio_sink_t *sink);

#endif
