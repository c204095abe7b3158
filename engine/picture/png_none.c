/* png_none.c: in the place of libpng, in builds without it. Any thread. */
#include "engine/picture/decoders.h"

int decode_png(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  (void)file;
  (void)out;
  return error_set(error, ERR_INVALID_VALUE, NULL,
                   "the picture is a PNG, and this build of inferd has no libpng");
}
