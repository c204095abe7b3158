/* errand.h: a request that the server sends to itself: an exchange without a connection.
 *
 * A handler does not see the difference: what it calls on the exchange reaches the errand's owner.
 * The owner fills in the exchange (server, key, tenant, source, request_id, seed), keeps the errand
 * until `ended`, and takes it back earlier with errand_stop. Loop thread.
 */
#ifndef INFERD_SERVER_HTTP_ERRAND_H
#define INFERD_SERVER_HTTP_ERRAND_H

#include "server/http/http.h"

typedef struct errand errand_t;

struct errand {
  exchange_t public; /* first */
  held_t body;       /* of the request, a NUL behind it; the handler takes it */
  /* The next bytes of a stream. False: they cannot be kept, and the errand is stopped. */
  bool (*wrote)(errand_t *errand, const char *bytes, size_t length);
  /* A stream has more in `pieces`: the owner prints them in turns of the loop. */
  void (*prints)(errand_t *errand);
  /* The handler has answered: NULL = with a 200 or the end of a stream. It uses the exchange no
   * more; `pieces` may have more to print, or with `keeps` the whole answer. */
  void (*ended)(errand_t *errand, const inferd_error_t *error);
  pieces_t pieces; /* print NULL = none */
  int status;      /* of an answer of another process; 0: `ended` says how it went */
  bool streams, overflowed;
  bool keeps; /* the owner wants the answer, which it prints from `pieces` */
};

/* Whether what was refused with this status may be tried again: the engine was full, a limit of the
 * key is used up, or the disk of the store fails. */
bool errand_comes_again(int status);
/* Tells the handler that nobody wants the answer any more; `ended` is not called. */
void errand_stop(errand_t *errand, const char *cause);
/* Frees what is left to print, and the body. */
void errand_free(errand_t *errand);

/* http_answer.c: what a handler calls on an exchange that is an errand. */
bool errand_take_body(exchange_t *public, held_t *out);
void errand_reply(exchange_t *public);
void errand_reply_text(exchange_t *public, int status, char *text, size_t length);
void errand_reply_pieces(exchange_t *public, pieces_t pieces);
void errand_fail(exchange_t *public, const inferd_error_t *error);
void errand_stream_pieces(exchange_t *public, pieces_t pieces);
bool errand_write(exchange_t *public, const char *bytes, size_t length);
void errand_stream_more(exchange_t *public);

#endif
