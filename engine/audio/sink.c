/* sink.c: see sink.h. */
#include "engine/audio/sink.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int sink_refuse(const audio_sink_t *sink, const char *what) {
  return error_set(sink->error, ERR_INVALID_VALUE, NULL, "the sound %s", what);
}

static bool make_room(audio_sink_t *sink) {
  sink->mono = calloc(SINK_PIECE, sizeof *sink->mono);
  if (sink->mono == NULL) return false;
  if (sink->source->rate == AUDIO_RATE) return true;
  sink->resampler = resampler_new(sink->source->rate);
  if (sink->resampler == NULL) return false;
  sink->made = calloc(resampler_room(sink->resampler), sizeof *sink->made);
  return sink->made != NULL;
}

int sink_begin(audio_sink_t *sink, int64_t rate, int64_t channels) {
  if (rate < AUDIO_RATE_MIN || rate > AUDIO_RATE_MAX)
    return error_set(sink->error, ERR_INVALID_VALUE, NULL,
                     "the sound has %lld samples a second; %d to %d are read", (long long)rate,
                     AUDIO_RATE_MIN, AUDIO_RATE_MAX);
  if (channels < 1 || channels > AUDIO_CHANNELS_MAX)
    return error_set(sink->error, ERR_INVALID_VALUE, NULL,
                     "the sound has %lld channels; at most %d are read", (long long)channels,
                     AUDIO_CHANNELS_MAX);
  sink->source->rate = (uint32_t)rate;
  sink->source->channels = (uint32_t)channels;
  if (make_room(sink)) return 0;
  return error_set(sink->error, ERR_NO_MEMORY, NULL, "no memory for the sound");
}

static int take(audio_sink_t *sink, const float *samples, size_t count) {
  if (count > sink->room - sink->count)
    return error_set(sink->error, ERR_INVALID_VALUE, NULL,
                     "the sound is longer than %.0f s, which is the most that is taken",
                     (double)sink->room / AUDIO_RATE);
  memcpy(sink->out + sink->count, samples, count * sizeof *samples);
  sink->count += count;
  return 0;
}

/* The mean of the channels. False: one of them is no number, or out of bounds. */
static bool mix(audio_sink_t *sink, const float *from, size_t frames) {
  const size_t channels = sink->source->channels;
  for (size_t i = 0; i < frames; i++) {
    float sum = 0;
    for (size_t c = 0; c < channels; c++, from++) {
      if (!(fabsf(*from) <= AUDIO_SAMPLE_MAX)) return false;
      sum += *from;
    }
    sink->mono[i] = channels > 1 ? sum / (float)channels : sum;
  }
  return true;
}

int sink_push(audio_sink_t *sink, const float *frames, size_t count) {
  sink->source->frames += count;
  if (!mix(sink, frames, count))
    return sink_refuse(sink, "has samples that are no numbers, or too large");
  if (sink->resampler == NULL) return take(sink, sink->mono, count);
  return take(sink, sink->made, resampler_push(sink->resampler, sink->mono, count, sink->made));
}

int sink_end(audio_sink_t *sink) {
  int code = 0;
  if (sink->resampler != NULL)
    code = take(sink, sink->made, resampler_end(sink->resampler, sink->made));
  return code == 0 && sink->count == 0 ? sink_refuse(sink, "has no samples") : code;
}

void sink_free(audio_sink_t *sink) {
  resampler_free(sink->resampler);
  free(sink->mono);
  free(sink->made);
}
