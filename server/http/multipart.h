/* multipart.h: the parts of a body of multipart/form-data, RFC 7578, read strictly.
 *
 * The whole body lies in memory, so parts are pointers into it. What browsers and SDKs write is
 * taken; a preamble, nested parts, transfer encodings, and names that are
 * repeated and do not end in [] are refused. Pure
 * functions, any thread.
 */
#ifndef INFERD_SERVER_HTTP_MULTIPART_H
#define INFERD_SERVER_HTTP_MULTIPART_H

#include "engine/base/error.h"

#include <stddef.h>

enum { MULTIPART_PARTS_MAX = 16, MULTIPART_NAME_MAX = 256, MULTIPART_BOUNDARY_MAX = 70 };

typedef struct multipart_part {
  char name[MULTIPART_NAME_MAX], file[MULTIPART_NAME_MAX]; /* file: "" = it is no file */
  const char *bytes;                                       /* in the body */
  size_t length;
} multipart_part_t;

typedef struct multipart {
  multipart_part_t parts[MULTIPART_PARTS_MAX];
  int count;
} multipart_t;

/* Reads a body. `type` is the value of Content-Type, NULL = the request has none. Returns 0; or
 * ERR_UNSUPPORTED_MEDIA_TYPE, or ERR_BAD_REQUEST with the place of what is wrong. */
int multipart_read(const char *type, const char *body, size_t length, multipart_t *out,
                   inferd_error_t *error);
/* The first part of this name; NULL = none. */
const multipart_part_t *multipart_find(const multipart_t *form, const char *name);

#endif
