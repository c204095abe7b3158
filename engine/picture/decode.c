/* decode.c: bytes -> the decoder of their format -> alpha on white -> turned upright. Any thread;
 * no state. */
#include "engine/picture/decoders.h"

#include "engine/base/checked.h"

#include <stdlib.h>
#include <string.h>

int canvas_make(canvas_t *out, uint32_t channels, inferd_error_t *error) {
  size_t bytes;
  out->channels = channels;
  out->pixels = NULL;
  if (checked_mul((size_t)out->width * channels, out->height, &bytes))
    out->pixels = calloc(bytes, 1);
  if (out->pixels == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the picture's pixels");
  return 0;
}

/* Pillow's paste of a colour with a mask on white, rounded. */
static uint8_t on_white(uint32_t colour, uint32_t alpha) {
  const uint32_t sum = 255 * (255 - alpha) + colour * alpha + 128;
  return (uint8_t)((sum + (sum >> 8)) >> 8);
}

/* In place: the pixels become three bytes each. */
static void lay_on_white(canvas_t *canvas) {
  const size_t count = (size_t)canvas->width * canvas->height;
  uint8_t *to = canvas->pixels;
  for (size_t i = 0; canvas->channels == 4 && i < count; i++) {
    const uint8_t *from = canvas->pixels + i * 4;
    const uint32_t alpha = from[3];
    for (int k = 0; k < 3; k++) *to++ = on_white(from[k], alpha);
  }
  canvas->channels = 3;
}

/* Where the pixel (across, down) of the upright picture is in the file: EXIF's eight orientations.
 */
static size_t source(const canvas_t *file, uint32_t orientation, uint32_t across, uint32_t down) {
  const uint32_t right = file->width - 1, bottom = file->height - 1;
  const bool swapped = orientation >= 5;
  uint32_t column = swapped ? down : across, line = swapped ? across : down;
  if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
    column = right - column;
  if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
    line = bottom - line;
  return ((size_t)line * file->width + column) * 3;
}

static int turn(const canvas_t *file, const picture_header_t *header, picture_t *out,
                inferd_error_t *error) {
  canvas_t upright = {.width = header->width, .height = header->height};
  if (canvas_make(&upright, 3, error) != 0) return ERR_NO_MEMORY;
  uint8_t *to = upright.pixels;
  for (uint32_t y = 0; y < header->height; y++) {
    for (uint32_t x = 0; x < header->width; x++, to += 3)
      memcpy(to, file->pixels + source(file, header->orientation, x, y), 3);
  }
  *out = (picture_t){upright.pixels, header->width, header->height};
  return 0;
}

int picture_decode(const uint8_t *bytes, size_t size, picture_t *out, inferd_error_t *error) {
  static int (*const decoders[])(file_bytes_t, canvas_t *,
                                 inferd_error_t *) = {[PICTURE_PNG] = decode_png,
                                                      [PICTURE_JPEG] = decode_jpeg,
                                                      [PICTURE_WEBP] = decode_webp,
                                                      [PICTURE_GIF] = decode_gif,
                                                      [PICTURE_BMP] = decode_bmp};
  picture_header_t header;
  int status = picture_header(bytes, size, &header, error);
  if (status != 0) return status;
  const bool swapped = header.orientation >= 5;
  canvas_t canvas = {.width = swapped ? header.height : header.width,
                     .height = swapped ? header.width : header.height};
  status = decoders[header.format]((file_bytes_t){bytes, size}, &canvas, error);
  if (status == 0) lay_on_white(&canvas);
  if (status == 0 && header.orientation == 1) {
    *out = (picture_t){canvas.pixels, canvas.width, canvas.height};
    return 0;
  }
  if (status == 0) status = turn(&canvas, &header, out, error);
  free(canvas.pixels);
  return status;
}
