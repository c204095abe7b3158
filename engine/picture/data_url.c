/* data_url.c: data: URLs of pictures and sounds. Any thread; no state. */
#include "engine/picture/data_url.h"

#include "engine/picture/work.h"
#include "engine/text/base64.h"

#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 128 }; /* bytes up to the comma: a type and its parameters */

const data_kind_t data_picture = {"picture",
                                  "a picture's URL must be data:image/TYPE;base64,...; of other "
                                  "hosts this server fetches pictures "
                                  "by https, if --allowed-media-hosts names them",
                                  PICTURE_FILE_MAX};

static size_t decoded_bytes(const char *text, size_t length) {
  size_t pads = 0;
  while (pads < 2 && pads < length && text[length - 1 - pads] == '=') pads++;
  return length / 4 * 3 - (length >= 4 ? pads : 0);
}

int data_base64_read(const data_kind_t *kind, const char *text, size_t length, buffer_t *out,
                     inferd_error_t *error) {
  const size_t bytes = decoded_bytes(text, length);
  if (bytes > kind->bytes_max)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the %s's file has %zu bytes; at most %zu",
                     kind->noun, bytes, kind->bytes_max);
  if (length == 0)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the %s has no bytes", kind->noun);
  if (!buffer_reserve(out, length))
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a %s", kind->noun);
  if (!base64_append(out, text, length))
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the bytes of a %s are not in base64 with its padding", kind->noun);
  return 0;
}

int data_url_read(const data_kind_t *kind, const char *url, size_t length, buffer_t *out,
                  inferd_error_t *error) {
  static const char scheme[] = "data:", end[] = ";base64";
  const size_t tail = sizeof end - 1;
  if (length < sizeof scheme - 1 || strncasecmp(url, scheme, sizeof scheme - 1) != 0)
    return error_set(error, ERR_INVALID_VALUE, NULL, "%s", kind->other_url);
  const char *comma = memchr(url, ',', length < HEAD_MAX ? length : HEAD_MAX);
  if (comma == NULL || (size_t)(comma - url) < sizeof scheme - 1 + tail ||
      strncasecmp(comma - tail, end, tail) != 0)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "a data: URL of a %s must have ;base64, before its bytes", kind->noun);
  const char *text = comma + 1;
  return data_base64_read(kind, text, length - (size_t)(text - url), out, error);
}
