/* response.h: one HTTP/1.1 answer, read as its bytes arrive.
 *
 * Knows nothing of sockets. A body has a length, is in chunks, or ends with the connection; answers
 * with status 1xx are skipped. An answer belongs to one thread.
 */
#ifndef INFERD_SERVER_BENCH_RESPONSE_H
#define INFERD_SERVER_BENCH_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESPONSE_LINE_MAX = 256 }; /* kept of a line; nothing that matters is longer */

typedef enum response_state {
  RESPONSE_STATUS,
  RESPONSE_HEADER,
  RESPONSE_BODY,        /* `left` bytes */
  RESPONSE_BODY_TO_END, /* of the connection */
  RESPONSE_CHUNK_SIZE,
  RESPONSE_CHUNK, /* `left` bytes */
  RESPONSE_CHUNK_END,
  RESPONSE_TRAILER,
  RESPONSE_DONE
} response_state_t;

typedef struct response {
  void (*on_body)(void *context, const char *bytes, size_t count); /* NULL = not wanted */
  void *context;
  int status;        /* of HTTP; 0 = not known yet */
  bool keeps_alive;  /* once done: the connection takes another request */
  const char *error; /* why the bytes are no answer; NULL = they are, so far */
  response_state_t state;
  bool chunked, has_length;
  uint64_t left;
  char line[RESPONSE_LINE_MAX];
  size_t line_length;
} response_t;

void response_begin(response_t *response, void (*on_body)(void *, const char *, size_t),
                    void *context);
/* Parses the next bytes of the answer. Returns false if they are no HTTP answer; `error` says why.
 */
bool response_feed(response_t *response, const char *bytes, size_t count);
/* Says that the connection has ended. Returns false if the answer is not complete. */
bool response_close(response_t *response);
static inline bool response_is_done(const response_t *response) {
  return response->state == RESPONSE_DONE;
}

#endif
