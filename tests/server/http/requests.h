/* requests.h: requests byte by byte, and what must become of each. */
#ifndef INFERD_TESTS_SERVER_HTTP_REQUESTS_H
#define INFERD_TESTS_SERVER_HTTP_REQUESTS_H

#include <stddef.h>

typedef struct raw_request {
  const char *name;
  const char *bytes;
  size_t length;
  const char *statuses; /* of all answers, in order: "100? 200"; with ? it may be missing */
  const char *message;  /* part of the last answer, behind which the connection is closed; NULL: it
                           is kept */
} raw_request_t;

extern const raw_request_t raw_requests[];
extern const size_t raw_request_count;

#endif
