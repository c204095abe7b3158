/* mp4.h: an MP4 file -> where the frames of its sound lie (ISO 14496-12; esds: 14496-14, 14496-1).
 *
 * The bytes come from a client, so this is called in a process without rights alone (work.h). Of
 * the tracks, the first one with sound is read; files in fragments (moof) are refused. One thread;
 * no allocation: everything points into the bytes.
 */
#ifndef INFERD_ENGINE_AUDIO_MP4_H
#define INFERD_ENGINE_AUDIO_MP4_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the file, or of a box in it. */
typedef struct mp4_span {
  const uint8_t *bytes;
  size_t size;
} mp4_span_t;

typedef struct mp4_track {
  mp4_span_t setup;   /* AudioSpecificConfig of AAC; not empty */
  uint32_t timescale; /* units a second of `skip` and `length`; at least 1 */
  /* What is heard, by the edit list: codecs begin with some samples that are not. `length` 0 = all
   * that follow. */
  uint64_t skip, length;
  /* The rest belongs to mp4.c. */
  mp4_span_t file, sizes, chunks, runs; /* entries of stsz, stco or co64, stsc */
  uint32_t sample_size, num_samples, num_chunks, num_runs;
  bool wide;                         /* co64 */
  uint32_t sample, chunk, run, left; /* the next ones; samples left in the chunk */
  uint64_t at;                       /* of the next sample in the file */
  uint64_t unread;                   /* bytes that frames may still have: each byte is of one */
} mp4_track_t;

/* Returns 0, or ERR_INVALID_VALUE: no sound, another codec than AAC, or damaged. */
int mp4_open(const uint8_t *bytes, size_t size, mp4_track_t *out, inferd_error_t *error);
/* The next frame, of at least one byte. Returns false at the end, where the file ends early, and
 * when frames have had as many bytes as the file has. */
bool mp4_next(mp4_track_t *track, mp4_span_t *out);

#endif
