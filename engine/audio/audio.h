/* audio.h: files of sound -> samples: WAV, FLAC, MP3, Ogg with Vorbis or Opus, MP4 with AAC.
 *
 * The bytes come from a client, so nothing in them is believed. audio_format is code of our own
 * that the daemon calls to refuse by name what is not read. audio_decode runs the libraries
 * (decoders.h), and only in a process without rights (work.h); of the formats that they know, only
 * the ones above are handed to them.
 *
 * What comes out is one channel of AUDIO_RATE samples a second: the mean of the channels, resampled
 * (resample.h) unless the file has this rate. Whole numbers of b bits become values of [-1, 1) by
 * 2^(1 - b); floats are taken as they are. Any thread; no state.
 */
#ifndef INFERD_ENGINE_AUDIO_AUDIO_H
#define INFERD_ENGINE_AUDIO_AUDIO_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
  AUDIO_RATE = 16000, /* samples a second of what is decoded */
  AUDIO_RATE_MIN = 8000,
  AUDIO_RATE_MAX = 192000, /* of a file */
  AUDIO_CHANNELS_MAX = 8
};
/* Largest absolute value of a sample: floats of files that have the range of 16 bits, too. */
static const float AUDIO_SAMPLE_MAX = 65536;

typedef enum audio_format {
  AUDIO_UNKNOWN,
  AUDIO_WAV,
  AUDIO_FLAC,
  AUDIO_MP3,
  AUDIO_OGG,
  AUDIO_MP4
} audio_format_t;

/* What a file was before it became samples. */
typedef struct audio_source {
  uint64_t frames; /* decoded, at `rate` */
  uint32_t rate, channels;
} audio_source_t;

/* The format, by the first bytes. Returns 0, or ERR_INVALID_VALUE: none of those above; the message
 * lists them. `param` is left to the caller. */
int audio_format(const uint8_t *bytes, size_t size, audio_format_t *out, inferd_error_t *error);

/* The samples that `frames` of a rate become. */
uint64_t audio_samples(uint64_t frames, uint32_t rate);

/* Opens the libraries, which stay in memory. A process that decodes calls it before it gives up its
 * rights; nothing else has them in its memory. Without one audio_decode says so. */
void audio_open_library(void);

/* Decodes all of a file to at most `room` samples; one that has more is refused. Returns 0, *count
 * and *source; ERR_INVALID_VALUE: of no known format, damaged, outside the bounds above, or with
 * values that are no numbers; or ERR_NO_MEMORY. A file that ends early has the samples before its
 * end. Where this build lacks a library, the message says so. */
int audio_decode(const uint8_t *bytes, size_t size, float *out, uint64_t room, uint64_t *count,
                 audio_source_t *source, inferd_error_t *error);

#endif
