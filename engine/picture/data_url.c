/* data_url.c: data: URLs of pictures. Any thread; no state. */
#include "engine/picture/data_url.h"

#include "engine/picture/work.h"
#include "engine/text/base64.h"

#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 128 }; /* bytes up to the comma: a type and its parameters */

static int refuse(inferd_error_t *error, const char *what) {
  return error_set(error, ERR_INVALID_VALUE, NULL, "%s", what);
}

static size_t decoded_bytes(const char *text, size_t length) {
  size_t pads = 0;
  while (pads < 2 && pads < length && text[length - 1 - pads] == '=') pads++;
  return length / 4 * 3 - (length >= 4 ? pads : 0);
}

int data_url_read(const char *url, size_t length, buffer_t *out, inferd_error_t *error) {
  static const char scheme[] = "data:", end[] = ";base64";
  const size_t tail = sizeof end - 1;
  if (length < sizeof scheme - 1 || strncasecmp(url, scheme, sizeof scheme - 1) != 0)
    return refuse(error, "a picture's URL must be data:image/TYPE;base64,...; of other hosts this "
                         "server fetches pictures by https, if --allowed-media-hosts names them");
  const char *comma = memchr(url, ',', length < HEAD_MAX ? length : HEAD_MAX);
  if (comma == NULL || (size_t)(comma - url) < sizeof scheme - 1 + tail ||
      strncasecmp(comma - tail, end, tail) != 0)
    return refuse(error, "a data: URL of a picture must have ;base64, before its bytes");
  const char *text = comma + 1;
  const size_t count = length - (size_t)(text - url), bytes = decoded_bytes(text, count);
  if (bytes > PICTURE_FILE_MAX)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the picture's file has %zu bytes; at most %d",
                     bytes, PICTURE_FILE_MAX);
  if (count == 0) return refuse(error, "a data: URL of a picture has no bytes");
  if (!buffer_reserve(out, count))
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a picture");
  if (!base64_append(out, text, count))
    return refuse(error, "the bytes of a data: URL are not in base64 with its padding");
  return 0;
}
