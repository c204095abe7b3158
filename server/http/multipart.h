/* multipart.h: the parts of a body of multipart/form-data, RFC 7578, read strictly.
 *
 * The whole body lies in memory, so parts are pointers into it. What browsers and SDKs write is
 * taken; a preamble, nested parts, transfer encodings, headers of more than 4,096 bytes, and names
 * that are repeated and do not end in [] are refused. Pure functions, any thread.
 */
#ifndef INFERD_SERVER_HTTP_MULTIPART_H
#define INFERD_SERVER_HTTP_MULTIPART_H

#include "engine/base/error.h"

#include <stdbool.h>
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

/* A pass over a body, which stays where it is, in steps: on the loop thread a body of many MiB
 * takes several turns. */
typedef struct multipart_pass {
  multipart_part_t part; /* that was read last, or is being read */
  const char *body;
  size_t length, at;
  char boundary[MULTIPART_BOUNDARY_MAX + 5];
  size_t boundary_length;
  int count; /* of parts */
  bool in_part;
} multipart_pass_t;

enum { MULTIPART_MORE = 1, MULTIPART_PART };

/* `type`, and errors, as below. Names may be repeated. */
int multipart_begin(const char *type, const char *body, size_t length, multipart_pass_t *out,
                    inferd_error_t *error);
/* Reads on: the headers of a part, or at most about `most` bytes (1..SIZE_MAX / 2) of what it has.
 * Returns MULTIPART_PART: pass->part is whole; MULTIPART_MORE; 0: that was the last one; or
 * ERR_BAD_REQUEST. */
int multipart_step(multipart_pass_t *pass, size_t most, inferd_error_t *error);

/* Reads a body. `type` is the value of Content-Type, NULL = the request has none. Returns 0; or
 * ERR_UNSUPPORTED_MEDIA_TYPE, or ERR_BAD_REQUEST with the place of what is wrong. */
int multipart_read(const char *type, const char *body, size_t length, multipart_t *out,
                   inferd_error_t *error);
/* The first part of this name; NULL = none. */
const multipart_part_t *multipart_find(const multipart_t *form, const char *name);

#endif
