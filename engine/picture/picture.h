/* picture.h: files of pictures -> pixels: PNG, JPEG, WebP, GIF and BMP.
 *
 * The bytes come from a client, so nothing in them is believed. picture_header is code of our own
 * that reads no pixels: the daemon calls it to know size and cost. picture_decode runs the
 * libraries (libpng, libjpeg-turbo, libwebp; GIF and BMP are read here), and only in a process
 * without rights (work.h); the header's limits hold before a library sees a byte.
 *
 * The pixels are Pillow's, and that of its users who lay pictures on white: the first frame, turned
 * as EXIF says, 8 bits a colour, transparency on white, no colour profile. 16-bit grey is cut off
 * at 255, as Pillow does; inks of CMYK are taken as inverted, as Adobe writes them. Any thread; no
 * state.
 */
#ifndef INFERD_ENGINE_PICTURE_PICTURE_H
#define INFERD_ENGINE_PICTURE_PICTURE_H

#include "engine/base/error.h"
#include "engine/vision/processor.h"

typedef enum picture_format {
  PICTURE_UNKNOWN,
  PICTURE_PNG,
  PICTURE_JPEG,
  PICTURE_WEBP,
  PICTURE_GIF,
  PICTURE_BMP
} picture_format_t;

typedef struct picture_header {
  picture_format_t format;
  uint32_t width, height; /* as the picture is shown: behind the turn */
  uint32_t orientation;   /* of EXIF, 1 .. 8; 1 where there is none */
} picture_header_t;

/* The file's size, from its first bytes and its metadata. Returns 0, or ERR_INVALID_VALUE: of no
 * known format, damaged, or larger than PICTURE_SIDE_MAX and PICTURE_PIXELS_MAX allow; the message
 * says which and `param` is left to the caller. */
int picture_header(const uint8_t *bytes, size_t size, picture_header_t *out, inferd_error_t *error);

/* All pixels. Returns 0 and a picture of the header's size, whose rgb the caller frees with free();
 * else ERR_INVALID_VALUE, or ERR_NO_MEMORY. Where this build lacks the library of a format, the
 * message says so. */
int picture_decode(const uint8_t *bytes, size_t size, picture_t *out, inferd_error_t *error);

#endif
