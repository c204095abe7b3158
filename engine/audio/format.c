/* format.c: which format a file of sound has, by its first bytes. Any thread; no state. Signatures
 * stand as the formats say: RIFF (Microsoft, 1991), FLAC (RFC 9639), Ogg (RFC 3533), MPEG audio
 * (ISO 11172-3, 2.4.1.3), ID3 (id3.org, 2.4.0), ISO base media (ISO 14496-12), Matroska (RFC 9559).
 */
#include "engine/audio/audio.h"

#include <stdbool.h>
#include <string.h>

#define READ                                                                                       \
  "WAV, FLAC, MP3, Ogg with Vorbis or Opus, and MP4 with AAC (.wav, .flac, .mp3, .mpga, .mpeg, "   \
  ".ogg, .m4a, .mp4)"

typedef struct signature {
  audio_format_t format; /* UNKNOWN: refused by the name */
  size_t at, length;
  const char *bytes, *name;
} signature_t;

static const signature_t signatures[] = {
    {AUDIO_FLAC, 0, 4, "fLaC", "FLAC"},
    {AUDIO_OGG, 0, 4, "OggS", "Ogg"},
    {AUDIO_MP3, 0, 3, "ID3", "MP3"},
    {AUDIO_MP4, 4, 4, "ftyp", "MP4"},
    {AUDIO_UNKNOWN, 0, 4, "\x1A\x45\xDF\xA3", "WebM or Matroska"},
    {AUDIO_UNKNOWN, 0, 4, "RF64", "RF64"},
    {AUDIO_UNKNOWN, 0, 4, "FORM", "AIFF"},
    {AUDIO_UNKNOWN, 0, 4, "caff", "CAF"}};

static bool has(const uint8_t *bytes, size_t size, size_t at, const char *wanted, size_t length) {
  return size >= at + length && memcmp(bytes + at, wanted, length) == 0;
}

/* A frame of MPEG audio begins: 11 bits of ones, a version and a layer that exist, a rate that is
 * not "bad". */
static bool is_mpeg(const uint8_t *bytes, size_t size) {
  return size >= 4 && bytes[0] == 0xFF && (bytes[1] & 0xE0) == 0xE0 && (bytes[1] & 0x18) != 0x08 &&
         (bytes[1] & 0x06) != 0 && (bytes[2] & 0xF0) != 0xF0 && (bytes[2] & 0x0C) != 0x0C;
}

int audio_format(const uint8_t *bytes, size_t size, audio_format_t *out, inferd_error_t *error) {
  *out = AUDIO_UNKNOWN;
  if (has(bytes, size, 0, "RIFF", 4) && has(bytes, size, 8, "WAVE", 4)) *out = AUDIO_WAV;
  for (size_t i = 0; i < sizeof signatures / sizeof *signatures && *out == AUDIO_UNKNOWN; i++) {
    const signature_t *row = &signatures[i];
    if (!has(bytes, size, row->at, row->bytes, row->length)) continue;
    *out = row->format;
    if (*out == AUDIO_UNKNOWN)
      return error_set(error, ERR_INVALID_VALUE, NULL, "the file is %s; read are " READ, row->name);
  }
  if (*out == AUDIO_UNKNOWN && is_mpeg(bytes, size)) *out = AUDIO_MP3;
  if (*out != AUDIO_UNKNOWN) return 0;
  return error_set(error, ERR_INVALID_VALUE, NULL, "the file is no sound; read are " READ);
}

uint64_t audio_samples(uint64_t frames, uint32_t rate) {
  return frames / rate * AUDIO_RATE + (frames % rate * AUDIO_RATE + rate - 1) / rate;
}
