/* header.c: the size of a picture without its pixels, and EXIF's turn. Any thread; no state. Sizes
 * stand as the formats say: PNG (W3C), JPEG (T.81, B.2.2), WebP (RFC 9649), GIF89a, Windows' BMP.
 */
#include "engine/picture/decoders.h"

#include <string.h>

/* Tag 274 of the first directory of a TIFF (TIFF 6, section 2). */
static uint32_t exif_orientation(const uint8_t *bytes, size_t size) {
  if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) {
    bytes += 6;
    size -= 6;
  }
  if (size < 8) return 1;
  const bool little = memcmp(bytes, "II*\0", 4) == 0;
  if (!little && memcmp(bytes, "MM\0*", 4) != 0) return 1;
  const size_t at = little ? little_32(bytes + 4) : big_32(bytes + 4);
  if (at > size - 2) return 1;
  const uint32_t count = little ? little_16(bytes + at) : big_16(bytes + at);
  for (size_t i = 0; i < count && at + 2 + (i + 1) * 12 <= size; i++) {
    const uint8_t *entry = bytes + at + 2 + i * 12;
    if ((little ? little_16(entry) : big_16(entry)) != 274) continue;
    const uint32_t value = little ? little_16(entry + 8) : big_16(entry + 8);
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

static bool png_size(file_bytes_t file, picture_header_t *out) {
  if (file.size < 33 || memcmp(file.data + 12, "IHDR", 4) != 0) return false;
  out->width = big_32(file.data + 16);
  out->height = big_32(file.data + 20);
  for (size_t at = 8; at + 12 <= file.size;) {
    const size_t length = big_32(file.data + at);
    if (length > file.size - at - 12) break;
    if (memcmp(file.data + at + 4, "eXIf", 4) == 0)
      out->orientation = exif_orientation(file.data + at + 8, length);
    at += length + 12;
  }
  return true;
}

/* Whether a marker begins a frame: SOF0 .. SOF15 but for DHT, JPG and DAC. */
static bool begins_frame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

static bool jpeg_size(file_bytes_t file, picture_header_t *out) {
  bool turned = false;
  for (size_t at = 2; at + 4 <= file.size;) {
    const uint8_t *segment = file.data + at;
    if (segment[0] != 0xFF) return false;
    if (segment[1] == 0xFF) { /* padding */
      at++;
      continue;
    }
    const size_t length = big_16(segment + 2);
    if (length < 2 || length > file.size - at - 2) return false;
    if (segment[1] == 0xE1 && length >= 8 && !turned && memcmp(segment + 4, "Exif\0\0", 6) == 0) {
      out->orientation = exif_orientation(segment + 4, length - 2);
      turned = true;
    }
    if (begins_frame(segment[1])) {
      if (length < 8) return false;
      out->height = big_16(segment + 5);
      out->width = big_16(segment + 7);
      return true;
    }
    if (segment[1] == 0xDA || segment[1] == 0xD9) return false;
    at += length + 2;
  }
  return false;
}

static uint32_t little_24(const uint8_t *at) {
  return little_16(at) | (uint32_t)at[2] << 16;
}

static bool webp_size(file_bytes_t file, picture_header_t *out) {
  if (file.size < 30) return false;
  const uint8_t *chunk = file.data + 12, *body = file.data + 20;
  if (memcmp(chunk, "VP8 ", 4) == 0) {
    if (memcmp(body + 3, "\x9d\x01\x2a", 3) != 0) return false;
    out->width = little_16(body + 6) & 0x3FFF;
    out->height = little_16(body + 8) & 0x3FFF;
    return true;
  }
  if (memcmp(chunk, "VP8L", 4) == 0) {
    if (body[0] != 0x2F) return false;
    const uint32_t bits = little_32(body + 1);
    out->width = (bits & 0x3FFF) + 1;
    out->height = (bits >> 14 & 0x3FFF) + 1;
    return true;
  }
  if (memcmp(chunk, "VP8X", 4) != 0) return false;
  out->width = little_24(body + 4) + 1;
  out->height = little_24(body + 7) + 1;
  for (size_t at = 12; at + 8 <= file.size;) {
    const size_t length = little_32(file.data + at + 4);
    if (length > file.size - at - 8) break;
    if (memcmp(file.data + at, "EXIF", 4) == 0)
      out->orientation = exif_orientation(file.data + at + 8, length);
    at += 8 + length + length % 2;
  }
  return true;
}

static bool gif_size(file_bytes_t file, picture_header_t *out) {
  if (file.size < 13) return false;
  out->width = little_16(file.data + 6);
  out->height = little_16(file.data + 8);
  return true;
}

static bool bmp_size(file_bytes_t file, picture_header_t *out) {
  if (file.size < 54 || little_32(file.data + 14) < 40) return false;
  const int32_t height = (int32_t)little_32(file.data + 22);
  out->width = little_32(file.data + 18);
  out->height = height < 0 ? 0u - (uint32_t)height : (uint32_t)height;
  return true;
}

static const struct magic {
  picture_format_t format;
  const char *name;
  size_t at, length;
  const char *bytes;
  bool (*size)(file_bytes_t file, picture_header_t *out);
} magics[] = {{PICTURE_PNG, "PNG", 0, 8, "\x89PNG\r\n\x1a\n", png_size},
              {PICTURE_JPEG, "JPEG", 0, 3, "\xFF\xD8\xFF", jpeg_size},
              {PICTURE_WEBP, "WebP", 8, 4, "WEBP", webp_size},
              {PICTURE_GIF, "GIF", 0, 6, "GIF89a", gif_size},
              {PICTURE_GIF, "GIF", 0, 6, "GIF87a", gif_size},
              {PICTURE_BMP, "BMP", 0, 2, "BM", bmp_size}};

int picture_damaged(inferd_error_t *error, const char *format, const char *what) {
  return error_set(error, ERR_INVALID_VALUE, NULL, "the picture is a %s that is damaged: %s",
                   format, what);
}

int picture_header(const uint8_t *bytes, size_t size, picture_header_t *out,
                   inferd_error_t *error) {
  const struct magic *found = NULL;
  for (size_t i = 0; i < sizeof magics / sizeof *magics && found == NULL; i++) {
    if (size >= magics[i].at + magics[i].length &&
        memcmp(bytes + magics[i].at, magics[i].bytes, magics[i].length) == 0)
      found = &magics[i];
  }
  if (found == NULL || (found->format == PICTURE_WEBP && memcmp(bytes, "RIFF", 4) != 0))
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the picture is no PNG, JPEG, WebP, GIF or BMP");
  *out = (picture_header_t){.format = found->format, .orientation = 1};
  if (!found->size((file_bytes_t){bytes, size}, out) || out->width == 0 || out->height == 0)
    return picture_damaged(error, found->name, "it has no size");
  if (out->width > PICTURE_SIDE_MAX || out->height > PICTURE_SIDE_MAX ||
      (uint64_t)out->width * out->height > PICTURE_PIXELS_MAX)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the picture has %u x %u pixels; at most %d a side and %d in all", out->width,
                     out->height, PICTURE_SIDE_MAX, PICTURE_PIXELS_MAX);
  if (out->orientation >= 5) {
    const uint32_t width = out->width;
    out->width = out->height;
    out->height = width;
  }
  return 0;
}
