/* data_url.h: the bytes of a picture or a sound from the URL in which a request brings them
 * (RFC 2397). Any thread; no state. */
#ifndef INFERD_ENGINE_PICTURE_DATA_URL_H
#define INFERD_ENGINE_PICTURE_DATA_URL_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"

/* What a URL brings. */
typedef struct data_kind {
  const char *noun;      /* "picture" */
  const char *other_url; /* what is said of a URL that is none of data: */
  size_t bytes_max;      /* of a file */
} data_kind_t;

extern const data_kind_t data_picture; /* of at most PICTURE_FILE_MAX */

/* Appends the bytes of `data:ANY/TYPE;base64,...` to *out. The type is a hint that is not believed:
 * who reads the file looks at the bytes. Base64 is that of RFC 4648, section 4, padded. Returns 0;
 * ERR_INVALID_VALUE: another scheme, no base64, no bytes, or more than bytes_max, which is found
 * before anything is decoded; or ERR_NO_MEMORY. `param` is left to the caller. */
int data_url_read(const data_kind_t *kind, const char *url, size_t length, buffer_t *out,
                  inferd_error_t *error);
/* The same of the base64 alone. */
int data_base64_read(const data_kind_t *kind, const char *text, size_t length, buffer_t *out,
                     inferd_error_t *error);

#endif
