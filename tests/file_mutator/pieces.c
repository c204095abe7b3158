/* pieces.c: see pieces.h. Formats as RFC 2083 (PNG), 3533 (Ogg), 9639 (FLAC), GIF89a, ISO 10918-1
 * (JPEG), 11172-3 (MP3) and 14496-12 (MP4) have them. */
#include "tests/file_mutator/pieces.h"

#include "engine/base/util.h"

#include <stdbool.h>
#include <string.h>

/* ---- numbers and sums ---- */

static size_t big(const uint8_t *bytes, size_t count) {
  size_t value = 0;
  for (size_t i = 0; i < count; i++) value = value << 8 | bytes[i];
  return value;
}

static size_t little(const uint8_t *bytes, size_t count) {
  size_t value = 0;
  while (count-- > 0) value = value << 8 | bytes[count];
  return value;
}

static void put(uint8_t *bytes, uint64_t value, size_t count, bool is_big) {
  for (size_t i = 0; i < count; i++)
    bytes[is_big ? count - 1 - i : i] = (uint8_t)(value >> (8 * i) & 0xff);
}

/* A remainder of `bits` by `poly`, the highest bit first. */
static uint32_t remainder_of(const uint8_t *bytes, size_t size, uint32_t poly, int bits) {
  const uint32_t top = 1u << (bits - 1), mask = top | (top - 1);
  uint32_t sum = 0;
  for (size_t i = 0; i < size; i++) {
    sum ^= (uint32_t)bytes[i] << (bits - 8);
    for (int k = 0; k < 8; k++) sum = (sum << 1 ^ (sum & top ? poly : 0)) & mask;
  }
  return sum;
}

/* The lowest bit first, as PNG has it. */
static uint32_t sum_of_png(const uint8_t *bytes, size_t size) {
  uint32_t sum = UINT32_MAX;
  for (size_t i = 0; i < size; i++) {
    sum ^= bytes[i];
    for (int k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum;
}

/* ---- sizes ---- */

container_t container_of_file(const uint8_t *bytes, size_t size) {
  static const struct {
    container_t container;
    size_t at, length;
    const char *bytes;
  } known[] = {{RIFF, 0, 4, "RIFF"},         {PNG, 0, 4, "\x89PNG"}, {GIF, 0, 4, "GIF8"},
               {JPEG, 0, 3, "\xff\xd8\xff"}, {OGG, 0, 4, "OggS"},    {FLAC, 0, 4, "fLaC"},
               {MPEG, 0, 3, "ID3"},          {MP4, 4, 4, "ftyp"}};
  for (size_t i = 0; i < ARRAY_LEN(known); i++)
    if (size >= known[i].at + known[i].length &&
        memcmp(bytes + known[i].at, known[i].bytes, known[i].length) == 0)
      return known[i].container;
  return size >= 4 && bytes[0] == 0xff && (bytes[1] & 0xe0) == 0xe0 ? MPEG : ANOTHER;
}

/* Blocks of a GIF: each its length and as many bytes; the last has none. */
static size_t gif_blocks(const uint8_t *bytes, size_t size, size_t at) {
  while (at < size && bytes[at] > 0) at += 1u + bytes[at];
  return at + 1;
}

static size_t gif_colours(uint8_t flags) {
  return flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0;
}

static size_t gif_size(const uint8_t *bytes, size_t size) {
  if (bytes[0] == 'G' && size >= 13) return 13 + gif_colours(bytes[10]);
  if (bytes[0] == 0x2c && size >= 10)
    return gif_blocks(bytes, size, 10 + gif_colours(bytes[9]) + 1);
  return bytes[0] == 0x21 ? gif_blocks(bytes, size, 2) : 1;
}

/* A scan goes to the next marker that is no restart. */
static size_t jpeg_size(const uint8_t *bytes, size_t size) {
  if (size < 4 || bytes[0] != 0xff || bytes[1] == 0xd8) return 2;
  size_t at = 2 + big(bytes + 2, 2);
  if (bytes[1] != 0xda) return at;
  while (at + 1 < size &&
         !(bytes[at] == 0xff && bytes[at + 1] != 0 && (bytes[at + 1] & 0xf8) != 0xd0))
    at++;
  return at;
}

static size_t ogg_size(const uint8_t *bytes, size_t size) {
  if (size < 27 || size < 27u + bytes[26]) return size;
  size_t all = 27u + bytes[26];
  for (size_t i = 0; i < bytes[26]; i++) all += bytes[27 + i];
  return all;
}

/* Of a frame of FLAC: the bytes of its head before their sum. 0: none begins here. */
static size_t flac_head(const uint8_t *bytes, size_t size) {
  if (size < 16 || bytes[0] != 0xff || (bytes[1] & 0xfe) != 0xf8) return 0;
  size_t length = 5;
  for (uint8_t lead = bytes[4]; (lead & 0xc0) == 0xc0 && length < 11; lead = (uint8_t)(lead << 1))
    length++;
  const int block = bytes[2] >> 4, rate = bytes[2] & 15;
  return length + (block == 6 ? 1u : block == 7 ? 2u : 0) + (rate == 12 ? 1u : rate > 12 ? 2u : 0);
}

static size_t flac_size(const uint8_t *bytes, size_t size) {
  if (size < 4 || bytes[0] == 'f') return 4;
  if (flac_head(bytes, size) == 0) return 4 + big(bytes + 1, 3);
  for (size_t at = 2; at < size; at++) {
    const size_t head = flac_head(bytes + at, size - at);
    if (head > 0 && remainder_of(bytes + at, head, 0x07, 8) == bytes[at + head]) return at;
  }
  return size;
}

static size_t mpeg_size(const uint8_t *bytes, size_t size) {
  if (size >= 10 && bytes[0] == 'I')
    return 10u +
           ((size_t)bytes[6] << 21 | (size_t)bytes[7] << 14 | (size_t)bytes[8] << 7 | bytes[9]);
  size_t at = 4;
  while (at + 3 < size && !(bytes[at] == bytes[0] && bytes[at + 1] == bytes[1] &&
                            ((bytes[at + 2] ^ bytes[2]) & 0x0c) == 0))
    at++;
  return at + 3 < size ? at : size;
}

static size_t mp4_size(const uint8_t *bytes, size_t size) {
  static const char names[][5] = {"moov", "trak", "mdia", "minf", "stbl", "edts", "udta"};
  if (size < 8) return size;
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    if (memcmp(bytes + 4, names[i], 4) == 0) return 8;
  return MAX(big(bytes, 4), 8);
}

size_t piece_size(container_t container, const uint8_t *bytes, size_t size, size_t at) {
  const uint8_t *piece = bytes + at;
  const size_t left = size - at;
  size_t wanted = left;
  switch (container) {
  case ANOTHER: break;
  case RIFF:
    if (at == 0)
      wanted = 12;
    else if (left >= 8)
      wanted = 8 + (little(piece + 4, 4) + 1) / 2 * 2;
    break;
  case PNG:
    if (at == 0)
      wanted = 8;
    else if (left >= 4)
      wanted = 12 + big(piece, 4);
    break;
  case GIF: wanted = gif_size(piece, left); break;
  case JPEG: wanted = jpeg_size(piece, left); break;
  case OGG: wanted = ogg_size(piece, left); break;
  case FLAC: wanted = flac_size(piece, left); break;
  case MPEG: wanted = mpeg_size(piece, left); break;
  case MP4: wanted = mp4_size(piece, left); break;
  }
  return MIN(MAX(wanted, 1), left);
}

/* ---- checksums ---- */

void piece_mend(container_t container, uint8_t *piece, size_t size) {
  if (container == PNG && size >= 12)
    put(piece + size - 4, sum_of_png(piece + 4, size - 8), 4, true);
  if (container == OGG && size >= 27 && memcmp(piece, "OggS", 4) == 0) {
    memset(piece + 22, 0, 4);
    put(piece + 22, remainder_of(piece, size, 0x04c11db7, 32), 4, false);
  }
  const size_t head = container == FLAC ? flac_head(piece, size) : 0;
  if (head > 0 && head + 3 < size) {
    piece[head] = (uint8_t)remainder_of(piece, head, 0x07, 8);
    put(piece + size - 2, remainder_of(piece, size - 2, 0x8005, 16), 2, true);
  }
}
