/* aac.c: the AAC of MP4 files, frame by frame, by libfaad, where it is installed. One thread, in a
 * process without rights, which alone has opened the library.
 *
 * libfaad has the licence GPL and inferd has not, so nothing here is of its files and nothing is
 * linked with it: what is called is declared below, by the interface of its version 2.
 */
#include "engine/audio/decoders.h"
#include "engine/audio/mp4.h"
#include "engine/base/util.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libfaad.so.2"
#define PACKAGE "libfaad2"

/* ---- the library ---- */

typedef struct faad faad_t;

/* How a decoder works; it owns this. */
typedef struct faad_settings {
  unsigned char object_type;
  unsigned long rate;
  unsigned char output;
  unsigned char mix_down, old_adts;
  unsigned char keep_rate; /* that of the header, unless a frame has bands above it */
} faad_settings_t;

enum { FAAD_FLOATS = 4 };

/* What came of a frame. `rest` is of no use here; the library writes less than there is. */
typedef struct faad_frame {
  unsigned long bytes, samples; /* samples of all channels */
  unsigned char channels, error;
  unsigned long rate;
  unsigned char rest[256];
} faad_frame_t;

static struct {
  faad_t *(*open)(void);
  faad_settings_t *(*settings)(faad_t *faad);
  unsigned char (*set)(faad_t *faad, faad_settings_t *settings);
  signed char (*begin)(faad_t *faad, const unsigned char *setup, unsigned long size,
                       unsigned long *rate, unsigned char *channels);
  const float *(*decode)(faad_t *faad, faad_frame_t *frame, const unsigned char *bytes,
                         unsigned long size);
  void (*close)(faad_t *faad);
  bool is_open;
} faad_library;

void aac_open_library(void) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {{"NeAACDecOpen", &faad_library.open},
                   {"NeAACDecGetCurrentConfiguration", &faad_library.settings},
                   {"NeAACDecSetConfiguration", &faad_library.set},
                   {"NeAACDecInit2", &faad_library.begin},
                   {"NeAACDecDecode", &faad_library.decode},
                   {"NeAACDecClose", &faad_library.close}};
  void *handle = faad_library.is_open ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return;
  faad_library.is_open = true;
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(handle, functions[i].name);
    memcpy(functions[i].to, &found, sizeof found);
    faad_library.is_open = faad_library.is_open && found != NULL;
  }
}

/* ---- frames ---- */

typedef struct aac {
  faad_t *faad;
  mp4_track_t track;
  audio_sink_t *sink;
  uint64_t skip, left; /* frames that are not heard yet, and that are still to be heard */
  bool begun;
} aac_t;

/* Frames of `rate` that some units of the track are. */
static uint64_t frames_of(const mp4_track_t *track, uint64_t units, uint32_t rate) {
  return (uint64_t)MIN((double)units * rate / track->timescale + 0.5, 1e15);
}

static int push(aac_t *aac, const float *frames, uint64_t count) {
  const size_t channels = aac->sink->source->channels;
  const uint64_t skipped = MIN(aac->skip, count);
  aac->skip -= skipped;
  count = MIN(count - skipped, aac->left);
  aac->left -= count;
  frames += skipped * channels;
  while (count > 0) {
    const size_t piece = (size_t)MIN(count, SINK_PIECE);
    const int code = sink_push(aac->sink, frames, piece);
    if (code != 0) return code;
    frames += piece * channels;
    count -= piece;
  }
  return 0;
}

/* The library has no samples for the first frame, half of which the next one completes: `silent`
 * such frames of `length` have silence here, as other decoders have it. */
static int begin(aac_t *aac, const faad_frame_t *frame, uint64_t silent, uint64_t length) {
  static const float nothing[SINK_PIECE * AUDIO_CHANNELS_MAX];
  int code = sink_begin(aac->sink, (int64_t)MIN(frame->rate, INT32_MAX), frame->channels);
  if (code != 0) return code;
  const uint32_t rate = aac->sink->source->rate;
  aac->skip = frames_of(&aac->track, aac->track.skip, rate);
  aac->left = aac->track.length > 0 ? frames_of(&aac->track, aac->track.length, rate) : UINT64_MAX;
  aac->begun = true;
  for (; silent > 0 && code == 0; silent--) code = push(aac, nothing, MIN(length, SINK_PIECE));
  return code;
}

static int read_all(aac_t *aac) {
  audio_sink_t *sink = aac->sink;
  uint64_t silent = 0;
  mp4_span_t bytes;
  while ((aac->left > 0 || !aac->begun) && mp4_next(&aac->track, &bytes)) {
    faad_frame_t frame = {0};
    const float *made = faad_library.decode(aac->faad, &frame, bytes.bytes, bytes.size);
    if (frame.error != 0) return sink_refuse(sink, "is damaged: a frame cannot be decoded");
    if (frame.channels == 0 || frame.samples == 0 || made == NULL) {
      silent++;
      continue;
    }
    const uint64_t count = frame.samples / frame.channels;
    int code = aac->begun ? 0 : begin(aac, &frame, silent, count);
    if (code != 0) return code;
    if (frame.rate != sink->source->rate || frame.channels != sink->source->channels)
      return sink_refuse(sink, "changes its rate or its channels");
    code = push(aac, made, count);
    if (code != 0) return code;
  }
  return aac->begun ? sink_end(sink) : sink_refuse(sink, "has no samples");
}

static int open_decoder(aac_t *aac) {
  unsigned long rate = 0;
  unsigned char channels = 0;
  aac->faad = faad_library.open();
  if (aac->faad == NULL)
    return error_set(aac->sink->error, ERR_NO_MEMORY, NULL, "no memory for the sound");
  faad_settings_t *settings = faad_library.settings(aac->faad);
  settings->output = FAAD_FLOATS;
  settings->keep_rate = 1;
  if (faad_library.set(aac->faad, settings) != 0 &&
      faad_library.begin(aac->faad, aac->track.setup.bytes, aac->track.setup.size, &rate,
                         &channels) >= 0)
    return 0;
  return sink_refuse(aac->sink, "has a kind of AAC that is not read");
}

int aac_decode(const uint8_t *bytes, size_t size, audio_sink_t *sink) {
  aac_t aac = {.sink = sink};
  aac_open_library();
  int code = mp4_open(bytes, size, &aac.track, sink->error);
  if (code == 0 && !faad_library.is_open)
    code = error_set(sink->error, ERR_INVALID_VALUE, NULL,
                     "MP4 with AAC (.m4a, .mp4) is read where " LIBRARY
                     " is installed, which is not on this machine (package " PACKAGE ")");
  if (code == 0) code = open_decoder(&aac);
  if (code == 0) code = read_all(&aac);
  if (aac.faad != NULL) faad_library.close(aac.faad);
  return code;
}
