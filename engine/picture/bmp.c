/* bmp.c: BMP of 8, 24 and 32 bits without compression. Any thread; no state.
 * Source: BITMAPINFOHEADER and its successors in Windows' documentation. */
#include "engine/picture/decoders.h"

#include <string.h>

enum { HEADER_MIN = 40, BITFIELDS = 3 };

/* 32 bits with masks: those of BGRA alone, as every writer of alpha has them. */
static bool known_masks(const uint8_t *info, uint32_t header) {
  return header >= 56 && little_32(info + 40) == 0xFF0000 && little_32(info + 44) == 0xFF00 &&
         little_32(info + 48) == 0xFF && little_32(info + 52) == 0xFF000000;
}

static void read_line(const uint8_t *from, const uint8_t *palette, uint32_t colours, uint32_t bits,
                      const canvas_t *out, uint8_t *to) {
  static const uint8_t black[4];
  for (uint32_t x = 0; x < out->width; x++, to += out->channels) {
    const uint8_t *pixel = from + x * (bits / 8);
    if (bits == 8) pixel = *pixel < colours ? palette + (size_t)*pixel * 4 : black;
    to[0] = pixel[2];
    to[1] = pixel[1];
    to[2] = pixel[0];
    if (out->channels == 4) to[3] = pixel[3];
  }
}

int decode_bmp(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  const uint8_t *info = file.data + 14;
  const uint32_t begin = little_32(file.data + 10), header = little_32(info);
  const uint32_t bits = little_16(info + 14), packing = little_32(info + 16);
  if (header < HEADER_MIN || header > file.size - 14)
    return picture_damaged(error, "BMP", "its header is cut off");
  const bool alpha = bits == 32 && packing == BITFIELDS && known_masks(info, header);
  if ((bits != 8 && bits != 24 && bits != 32) || (packing != 0 && !alpha))
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the picture is a BMP of %u bits, compression %u; only 8, 24 and 32 bits "
                     "without compression are read",
                     bits, packing);
  uint32_t colours = little_32(info + 32);
  if (colours == 0 || colours > 256) colours = 256;
  const size_t palette = (size_t)14 + header;
  if (bits == 8 && (file.size < palette || file.size - palette < (size_t)colours * 4))
    return picture_damaged(error, "BMP", "its palette is cut off");
  const size_t line = ((size_t)out->width * (bits / 8) + 3) / 4 * 4;
  if (begin > file.size || (file.size - begin) / line < out->height)
    return picture_damaged(error, "BMP", "it ends too early");
  int status = canvas_make(out, alpha ? 4 : 3, error);
  const bool top_down = (int32_t)little_32(info + 8) < 0;
  for (uint32_t y = 0; status == 0 && y < out->height; y++) {
    const uint32_t at = top_down ? y : out->height - 1 - y;
    read_line(file.data + begin + at * line, file.data + palette, colours, bits, out,
              out->pixels + (size_t)y * out->width * out->channels);
  }
  return status;
}
