/* decoders.h: inside engine/picture: one function a format, each in a file of its own, and what
 * they share. `header` is that of the same bytes; a decoder that finds another size refuses. Each
 * returns 0 and pixels that the caller frees, ERR_INVALID_VALUE or ERR_NO_MEMORY. Any thread. */
#ifndef INFERD_ENGINE_PICTURE_DECODERS_H
#define INFERD_ENGINE_PICTURE_DECODERS_H

#include "engine/picture/picture.h"

/* Pixels as the file has them, before the turn. */
typedef struct canvas {
  uint8_t *pixels; /* (height, width, channels), from malloc */
  uint32_t width, height;
  uint32_t channels; /* 3, or 4 with alpha */
} canvas_t;

typedef struct file_bytes {
  const uint8_t *data;
  size_t size;
} file_bytes_t;

/* The size before the turn is at out->width and height. Allocates its pixels. */
int canvas_make(canvas_t *out, uint32_t channels, inferd_error_t *error);
int picture_damaged(inferd_error_t *error, const char *format, const char *what);

int decode_png(file_bytes_t file, canvas_t *out, inferd_error_t *error);
int decode_jpeg(file_bytes_t file, canvas_t *out, inferd_error_t *error);
int decode_webp(file_bytes_t file, canvas_t *out, inferd_error_t *error);
int decode_gif(file_bytes_t file, canvas_t *out, inferd_error_t *error);
int decode_bmp(file_bytes_t file, canvas_t *out, inferd_error_t *error);

static inline uint32_t little_16(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}
static inline uint32_t little_32(const uint8_t *at) {
  return little_16(at) | little_16(at + 2) << 16;
}
static inline uint32_t big_16(const uint8_t *at) {
  return (uint32_t)at[0] << 8 | (uint32_t)at[1];
}
static inline uint32_t big_32(const uint8_t *at) {
  return big_16(at) << 16 | big_16(at + 2);
}

#endif
