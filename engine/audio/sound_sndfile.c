/* sound_sndfile.c: WAV, FLAC, MP3 and Ogg by libsndfile, piece by piece. One thread, in a process
 * without rights, which alone has opened the library: it and what it needs are 23 MB of addresses.
 */
#include "engine/audio/decoders.h"
#include "engine/base/util.h"

#include <dlfcn.h>
#include <sndfile.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

static struct {
  SNDFILE *(*open)(SF_VIRTUAL_IO *calls, int mode, SF_INFO *info, void *context);
  sf_count_t (*read)(SNDFILE *file, float *frames, sf_count_t count);
  int (*close)(SNDFILE *file);
  bool is_open;
} library;

void sound_open_library(void) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {{"sf_open_virtual", &library.open},
                   {"sf_readf_float", &library.read},
                   {"sf_close", &library.close}};
  void *handle = library.is_open ? NULL : dlopen("libsndfile.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return;
  library.is_open = true;
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(handle, functions[i].name);
    memcpy(functions[i].to, &found, sizeof found);
    library.is_open = library.is_open && found != NULL;
  }
}

/* ---- the file in memory ---- */

typedef struct sound_bytes {
  const uint8_t *bytes;
  sf_count_t size, at;
} sound_bytes_t;

static sf_count_t file_length(void *context) {
  return ((const sound_bytes_t *)context)->size;
}

static sf_count_t file_seek(sf_count_t offset, int whence, void *context) {
  sound_bytes_t *file = context;
  const sf_count_t from = whence == SEEK_CUR ? file->at : whence == SEEK_END ? file->size : 0;
  sf_count_t at;
  if (__builtin_add_overflow(from, offset, &at) || at < 0 || at > file->size) return -1;
  file->at = at;
  return at;
}

static sf_count_t file_read(void *out, sf_count_t wanted, void *context) {
  sound_bytes_t *file = context;
  const sf_count_t count = MAX(MIN(wanted, file->size - file->at), 0);
  memcpy(out, file->bytes + file->at, (size_t)count);
  file->at += count;
  return count;
}

static sf_count_t file_write(const void *bytes, sf_count_t count, void *context) {
  (void)bytes, (void)count, (void)context;
  return 0;
}

static sf_count_t file_tell(void *context) {
  return ((const sound_bytes_t *)context)->at;
}

/* ---- the whole ---- */

/* Codecs inside of WAV that nobody sends, and that libsndfile has code for, are left out. */
static bool is_read(const SF_INFO *info) {
  switch (info->format & SF_FORMAT_SUBMASK) {
  case SF_FORMAT_PCM_U8:
  case SF_FORMAT_PCM_S8:
  case SF_FORMAT_PCM_16:
  case SF_FORMAT_PCM_24:
  case SF_FORMAT_PCM_32:
  case SF_FORMAT_FLOAT:
  case SF_FORMAT_DOUBLE:
  case SF_FORMAT_ULAW:
  case SF_FORMAT_ALAW:
  case SF_FORMAT_VORBIS:
  case SF_FORMAT_OPUS:
  case SF_FORMAT_MPEG_LAYER_I:
  case SF_FORMAT_MPEG_LAYER_II:
  case SF_FORMAT_MPEG_LAYER_III: return true;
  default: return false;
  }
}

static int read_all(SNDFILE *file, audio_sink_t *sink) {
  float *frames = calloc((size_t)SINK_PIECE * sink->source->channels, sizeof *frames);
  if (frames == NULL) return error_set(sink->error, ERR_NO_MEMORY, NULL, "no memory for the sound");
  int code = 0;
  while (code == 0) {
    const sf_count_t got = library.read(file, frames, SINK_PIECE);
    if (got <= 0 || got > SINK_PIECE) break;
    code = sink_push(sink, frames, (size_t)got);
  }
  free(frames);
  return code == 0 ? sink_end(sink) : code;
}

int sound_decode(const uint8_t *bytes, size_t size, audio_sink_t *sink) {
  static SF_VIRTUAL_IO calls = {file_length, file_seek, file_read, file_write, file_tell};
  sound_bytes_t reading = {.bytes = bytes, .size = (sf_count_t)size};
  SF_INFO info = {0};
  sound_open_library();
  if (!library.is_open)
    return error_set(sink->error, ERR_INVALID_VALUE, NULL,
                     "sound cannot be read: libsndfile.so.1 is not on this machine");
  SNDFILE *file = library.open(&calls, SFM_READ, &info, &reading);
  if (file == NULL) return sink_refuse(sink, "is damaged: its header cannot be read");
  int code = is_read(&info) ? 0 : sink_refuse(sink, "has a codec that is not read");
  if (code == 0) code = sink_begin(sink, info.samplerate, info.channels);
  if (code == 0) code = read_all(file, sink);
  (void)library.close(file);
  return code;
}
