/* webp_libwebp.c: WebP by libwebp; of an animation the first frame, on its canvas. Any thread. */
#include "engine/picture/decoders.h"

#include <string.h>
#include <webp/demux.h>

int decode_webp(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  const WebPData data = {file.data, file.size};
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options))
    return error_set(error, ERR_INVALID_VALUE, NULL, "libwebp is of another version");
  options.color_mode = MODE_RGBA;
  WebPAnimDecoder *decoder = WebPAnimDecoderNew(&data, &options);
  if (decoder == NULL) return picture_damaged(error, "WebP", "its parts do not fit");
  WebPAnimInfo info;
  uint8_t *frame = NULL;
  int when = 0, status = 0;
  if (!WebPAnimDecoderGetInfo(decoder, &info) || info.canvas_width != out->width ||
      info.canvas_height != out->height)
    status = picture_damaged(error, "WebP", "it has two sizes");
  else if (!WebPAnimDecoderGetNext(decoder, &frame, &when))
    status = picture_damaged(error, "WebP", "its pixels cannot be read");
  else
    status = canvas_make(out, 4, error);
  if (status == 0) memcpy(out->pixels, frame, (size_t)out->width * out->height * 4);
  WebPAnimDecoderDelete(decoder);
  return status;
}
