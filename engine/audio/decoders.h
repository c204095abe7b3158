/* decoders.h: the libraries that decode, one function each. Where a build lacks one there is
 * another file with the same functions, which say so. One thread, in a process without rights.
 *
 * `open` opens the library, which stays in memory. `decode` begins the sink, pushes all frames and
 * ends it; returns 0, ERR_INVALID_VALUE or ERR_NO_MEMORY.
 */
#ifndef INFERD_ENGINE_AUDIO_DECODERS_H
#define INFERD_ENGINE_AUDIO_DECODERS_H

#include "engine/audio/sink.h"

/* sound_sndfile.c, sound_none.c: WAV, FLAC, MP3 and Ogg by libsndfile. */
void sound_open_library(void);
int sound_decode(const uint8_t *bytes, size_t size, audio_sink_t *sink);

/* aac.c: MP4 with AAC by libfaad. */
void aac_open_library(void);
int aac_decode(const uint8_t *bytes, size_t size, audio_sink_t *sink);

#endif
