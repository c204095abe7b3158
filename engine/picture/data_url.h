/* data_url.h: a picture's bytes from the URL in which a request brings them (RFC 2397). Any thread;
 * no state. */
#ifndef INFERD_ENGINE_PICTURE_DATA_URL_H
#define INFERD_ENGINE_PICTURE_DATA_URL_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"

/* Appends the bytes of `data:ANY/TYPE;base64,...` to *out. The type is a hint that is not believed:
 * picture_header looks at the bytes. Base64 is that of RFC 4648, section 4, padded. Returns 0;
 * ERR_INVALID_VALUE: another scheme, no base64, no bytes, or more than PICTURE_FILE_MAX, which is
 * found before anything is decoded; or ERR_NO_MEMORY. `param` is left to the caller. */
int data_url_read(const char *url, size_t length, buffer_t *out, inferd_error_t *error);

#endif
