/* decode_sndfile.c: WAV, FLAC, MP3 and Ogg by libsndfile, piece by piece. One thread, in a process
 * without rights, which alone has opened the library: it and what it needs are 23 MB of addresses.
 */
#include "engine/audio/audio.h"
#include "engine/audio/resample.h"
#include "engine/base/util.h"

#include <dlfcn.h>
#include <math.h>
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

void audio_open_library(void) {
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

/* ---- pieces ---- */

typedef struct decoding {
  SNDFILE *file;
  SF_INFO info;
  resampler_t *resampler;      /* NULL = the file has the rate */
  float *frames, *mono, *made; /* (PIECE, channels); [PIECE]; of the resampler */
  float *out;
  uint64_t room, count;
  inferd_error_t *error;
} decoding_t;

enum { PIECE = RESAMPLER_PIECE };

static int refuse(const decoding_t *decoding, const char *what) {
  return error_set(decoding->error, ERR_INVALID_VALUE, NULL, "the sound %s", what);
}

static int take(decoding_t *decoding, const float *samples, size_t count) {
  if (count > decoding->room - decoding->count)
    return error_set(decoding->error, ERR_INVALID_VALUE, NULL,
                     "the sound is longer than %.0f s, which is the most that is taken",
                     (double)decoding->room / AUDIO_RATE);
  memcpy(decoding->out + decoding->count, samples, count * sizeof *samples);
  decoding->count += count;
  return 0;
}

/* The mean of the channels. False: one of them is no number, or out of bounds. */
static bool mix(decoding_t *decoding, size_t frames) {
  const size_t channels = (size_t)decoding->info.channels;
  const float *from = decoding->frames;
  for (size_t i = 0; i < frames; i++) {
    float sum = 0;
    for (size_t c = 0; c < channels; c++, from++) {
      if (!(fabsf(*from) <= AUDIO_SAMPLE_MAX)) return false;
      sum += *from;
    }
    decoding->mono[i] = channels > 1 ? sum / (float)channels : sum;
  }
  return true;
}

static int read_all(decoding_t *decoding, audio_source_t *source) {
  for (;;) {
    const sf_count_t got = library.read(decoding->file, decoding->frames, PIECE);
    const size_t frames = got > 0 && got <= PIECE ? (size_t)got : 0;
    if (frames == 0) break;
    source->frames += frames;
    if (!mix(decoding, frames))
      return refuse(decoding, "has samples that are no numbers, or too large");
    const float *made = decoding->mono;
    size_t count = frames;
    if (decoding->resampler != NULL) {
      count = resampler_push(decoding->resampler, decoding->mono, frames, decoding->made);
      made = decoding->made;
    }
    const int code = take(decoding, made, count);
    if (code != 0) return code;
  }
  if (decoding->resampler == NULL) return 0;
  return take(decoding, decoding->made, resampler_end(decoding->resampler, decoding->made));
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

static int check(decoding_t *decoding, sound_bytes_t *reading, audio_source_t *source) {
  static SF_VIRTUAL_IO calls = {file_length, file_seek, file_read, file_write, file_tell};
  const SF_INFO *info = &decoding->info;
  decoding->file = library.open(&calls, SFM_READ, &decoding->info, reading);
  if (decoding->file == NULL) return refuse(decoding, "is damaged: its header cannot be read");
  if (!is_read(info)) return refuse(decoding, "has a codec that is not read");
  if (info->samplerate < AUDIO_RATE_MIN || info->samplerate > AUDIO_RATE_MAX)
    return error_set(decoding->error, ERR_INVALID_VALUE, NULL,
                     "the sound has %d samples a second; %d to %d are read", info->samplerate,
                     AUDIO_RATE_MIN, AUDIO_RATE_MAX);
  if (info->channels < 1 || info->channels > AUDIO_CHANNELS_MAX)
    return error_set(decoding->error, ERR_INVALID_VALUE, NULL,
                     "the sound has %d channels; at most %d are read", info->channels,
                     AUDIO_CHANNELS_MAX);
  source->rate = (uint32_t)info->samplerate;
  source->channels = (uint32_t)info->channels;
  return 0;
}

static bool make_room(decoding_t *decoding, const audio_source_t *source) {
  decoding->frames = calloc((size_t)PIECE * source->channels, sizeof *decoding->frames);
  decoding->mono = calloc(PIECE, sizeof *decoding->mono);
  if (decoding->frames == NULL || decoding->mono == NULL) return false;
  if (source->rate == AUDIO_RATE) return true;
  decoding->resampler = resampler_new(source->rate);
  if (decoding->resampler == NULL) return false;
  decoding->made = calloc(resampler_room(decoding->resampler), sizeof *decoding->made);
  return decoding->made != NULL;
}

int audio_decode(const uint8_t *bytes, size_t size, float *out, uint64_t room, uint64_t *count,
                 audio_source_t *source, inferd_error_t *error) {
  audio_format_t format;
  sound_bytes_t reading = {.bytes = bytes, .size = (sf_count_t)size};
  decoding_t decoding = {.out = out, .room = room, .error = error};
  *count = 0;
  *source = (audio_source_t){0};
  int code = audio_format(bytes, size, &format, error);
  audio_open_library();
  if (code == 0 && !library.is_open)
    code = error_set(error, ERR_INVALID_VALUE, NULL,
                     "sound cannot be read: libsndfile.so.1 is not on this machine");
  if (code == 0) code = check(&decoding, &reading, source);
  if (code == 0 && !make_room(&decoding, source))
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the sound");
  if (code == 0) code = read_all(&decoding, source);
  if (code == 0 && decoding.count == 0) code = refuse(&decoding, "has no samples");
  *count = decoding.count;
  if (decoding.file != NULL) (void)library.close(decoding.file);
  resampler_free(decoding.resampler);
  free(decoding.frames);
  free(decoding.mono);
  free(decoding.made);
  return code;
}
