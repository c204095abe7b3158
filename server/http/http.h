/* http.h: stage 1 of 9, bytes -> request. The transport: libuv drives libmicrohttpd's epoll fd.
 *
 * Everything here runs on the loop thread. Handlers see exchanges only, never a libmicrohttpd
 * connection. An exchange is handed to its route's handler once its headers have passed every check
 * and its whole body has arrived; the handler answers at once or later, with one reply or one
 * stream. Next: server/api and server/completion.
 */
#ifndef INFERD_SERVER_HTTP_HTTP_H
#define INFERD_SERVER_HTTP_HTTP_H

#include "engine/base/error.h"
#include "server/ledger/ledger.h"
#include "server/observe/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server;
struct route;
struct buffer;
typedef struct exchange exchange_t;

enum { REQUEST_ID_MAX = 128 };

/* Whose words a path speaks in errors, headers and streams. */
typedef enum wire {
  WIRE_OPENAI,
  WIRE_ANTHROPIC, /* of a route with ROUTE_MESSAGES */
  WIRE_OLLAMA     /* below /api/: errors are one text, streams are lines of JSON */
} wire_t;

/* The part of an exchange (one request and its answer) that handlers see. http_exchange_t embeds it
 * as its first member. A handler may write `user`, `log`, `shows_rates`, `retry_after_s`,
 * `passed_on`, `on_gone` and `on_abort`, and only reads the rest. */
struct exchange {
  struct server *server;
  const struct route *route;
  const char *method;    /* "GET", "POST", "HEAD" ... */
  const char *path_tail; /* prefix routes: percent-decoded rest, e.g. a model id; else "" */
  const char *body;      /* whole body, then a NUL; NULL once taken or dropped */
  size_t body_length;
  uint64_t arrival_ns; /* monotonic: body complete */
  uint64_t tenant;     /* hash of the API key; 0 without keys */
  struct api_key *key; /* server/keys/api_key.h; NULL = the request has none */
  uint64_t source;     /* whose turns it uses: the key; without keys the peer, or the connection */
  char request_id[REQUEST_ID_MAX + 1];
  void *user;         /* the handler's own */
  exchange_log_t log; /* for the access line */
  wire_t wire;        /* of the path, whether it has a route or not */
  bool is_errand;     /* no client sent it: errand.h */
  bool best_effort;   /* it gets what all others leave: request_t */
  bool passed_on;     /* another process has answered it, and logs it */
  uint64_t seed;      /* of a request that gives none; 0 = draw one */
  bool shows_rates;   /* its answer has the x-ratelimit headers of the key */
  int retry_after_s;  /* Retry-After of an answer with 429 or 503; 0 = by the error's code */
  /* A handler that answers later must set it. The transport calls it at most once: when the client
   * disconnected, was too slow, or the server shuts down before the answer was complete. After the
   * call returns, the handler must not use the exchange. The transport does not call it after
   * exchange_reply or exchange_end. */
  void (*on_gone)(exchange_t *exchange, const char *cause);
  /* Called before on_gone when the transport itself ends a stream that has begun, at a shutdown:
   * writes the error in the format of the stream. NULL: the transport writes it as chat does. */
  void (*on_abort)(exchange_t *exchange, const inferd_error_t *error);
};

/* The value of a request header, or NULL. The name is case-insensitive. */
const char *exchange_request_header(const exchange_t *exchange, const char *name);
/* The value of a field of the query, percent-decoded, or NULL. */
const char *exchange_query(const exchange_t *exchange, const char *name);
/* Gives the body with its charge to the handler, which frees both with held_free, however long the
 * client stays; a NUL follows the last byte. Returns false if memory is short. A body that is not
 * taken is freed at the end of the exchange: without this call a long prompt would stay in memory
 * for the minutes that an answer may take. */
bool exchange_take_body(exchange_t *exchange, held_t *out);

/* Adds a response header; call before the reply or the stream begins. Values are copied. */
void exchange_header(exchange_t *exchange, const char *name, const char *value);

/* Answers with a whole body, which was malloc'ed and is the transport's now, as the exchange is.
 * HEAD sends the headers only. */
void exchange_reply(exchange_t *exchange, int status, const char *content_type, char *body,
                    size_t length);
/* The same with bytes that stay as they are until the program ends: no answer has a copy. */
void exchange_reply_fixed(exchange_t *exchange, int status, const char *type, const void *bytes,
                          size_t length);
/* The number of the loop's turn, from 1: answers of one turn may share what they print. */
uint64_t exchange_turn(const exchange_t *exchange);
/* Lets pieces go out uncounted while memory is short. False: SPARE_ANSWERS others do so already. */
bool exchange_spare(exchange_t *exchange);
/* Answers with the OpenAI error object and the headers that belong to the code (Retry-After, Allow,
 * WWW-Authenticate, x-should-retry). The one function that writes error bodies; see error_body. */
void exchange_error(exchange_t *exchange, const inferd_error_t *error);

/* An answer that is printed while it is sent: no turn prints, and no memory holds, all of it. */
typedef struct pieces {
  /* Prints on from where the last call ended: appends `room` bytes to `out`, or up to
   * PIECE_EXCESS_MAX more. Returns false when that was all. */
  bool (*print)(void *owner, struct buffer *out, size_t room);
  void (*free)(void *owner); /* once, all is printed or the client left: the owner's last use */
  void *owner;
} pieces_t;

enum {
  PIECE_EXCESS_MAX = 24 * 1024,
  REPLY_TURN_BYTES = 256 * 1024, /* of one answer in one turn of the loop */
  REPLIES_TURN_BYTES = 1 << 20   /* of all answers; small ones do not wait for the next turn */
};

/* Answers 200 with a body that is printed in pieces. If the first piece, up to REPLY_TURN_BYTES, is
 * all of it, it is sent with its Content-Length, else in chunks. Answers 503 if the memory for a
 * piece is more than the client may hold. The handler must not touch the exchange afterwards. */
void exchange_reply_pieces(exchange_t *exchange, const char *content_type, pieces_t pieces);

/* Begins a 200 answer of events, or of lines with WIRE_OLLAMA; bytes follow with exchange_write. */
void exchange_stream(exchange_t *exchange);
/* The same, or a stream from here on, with bytes that are printed when the client takes them: false
 * of `print` means nothing more until exchange_stream_more. `free` comes at its end. */
void exchange_stream_pieces(exchange_t *exchange, pieces_t pieces);
void exchange_stream_more(exchange_t *exchange);
/* Queues bytes for the client, sent at the end of the turn. Returns false if more than the buffer
 * holds has waited for a second, or 16 times as much waits: on_gone is called in the same turn. */
bool exchange_write(exchange_t *exchange, const char *bytes, size_t length);
/* Bytes of a stream that wait for the client. */
size_t exchange_pending(const exchange_t *exchange);
/* The socket to which another process may write chunks of this answer, behind exchange_when_sent;
 * -1: the client's HTTP has no chunks. */
int exchange_socket(const exchange_t *exchange);
/* Of a stream: calls `sent` once, as soon as the socket has taken all that was written so far. From
 * then until the next exchange_write or exchange_end nothing is written to it here. */
void exchange_when_sent(exchange_t *exchange, void (*sent)(exchange_t *exchange));
/* Of a stream: cuts the connection in this turn, so that the client sees an answer without an end.
 * on_gone follows, unless exchange_end was called. */
void exchange_break(exchange_t *exchange);
void exchange_end(exchange_t *exchange); /* behind the queued bytes; then the transport's */

/* {"error":{...}} as malloc'ed text, also inside a stream; NULL when memory is short. */
char *error_body(const inferd_error_t *error, bool numeric_code, size_t *length);
/* The same in the words of Anthropic, for routes with ROUTE_MESSAGES and inside their streams. */
char *error_body_messages(const inferd_error_t *error, const char *request_id, size_t *length);
/* {"error":"..."}, for WIRE_OLLAMA. */
char *error_body_ollama(const inferd_error_t *error, size_t *length);
/* The body of an error in the words of the route; malloc'ed, NULL when memory is short. */
char *exchange_error_body(const exchange_t *exchange, const inferd_error_t *error, size_t *length);

/* What a process and its parent say about a socket that the parent has lent (http_loan.c): the
 * first two on a line, in the place of a chunk's size; the parent's is a byte. */
enum {
  LOAN_ASK = '=',  /* the stream is here; what follows I write to the socket */
  LOAN_HALF = '<', /* from now on a chunk there may be half written, until I write here again; if
                    * this is the last, I have cut the stream */
  LOAN_GRANT = '=' /* the socket has taken all that came before */
};

typedef struct http http_t; /* the transport itself, used by serve.c */
int http_start(struct server *server, http_t **out, inferd_error_t *error);
/* Starts to drain; the caller has set server->phase. Requests in flight finish. New requests get
 * 503 and their connections close, but probes are still answered. Calls `drained` of the server
 * once, when no request is in flight. */
void http_drain(http_t *http);
/* Every listener takes connections. Returns 0 or the error of a port that was taken meanwhile. */
int http_ready(http_t *http, inferd_error_t *error);
void http_narrow(http_t *http); /* --refuse-unready: http_drain closes listeners in DOOR_MS */
void http_leave(http_t *http);  /* takes no new connection of the service manager's sockets */
/* Ends every exchange: calls on_gone with "shutdown", answers 503, or writes an error event. */
void http_abort(http_t *http);
void http_stop(http_t *http); /* call outside uv_run, then run the loop once for the callbacks */
/* The address of listener `index`: "127.0.0.1:8000", "[::1]:8000", "unix:/path"; NULL = none. */
const char *http_address(const http_t *http, int index);
bool http_is_open(const http_t *http); /* true if other machines can reach a listener */
void http_reload(http_t *http);        /* takes over max_connections_per_ip */
enum { HTTP_HOST_MAX = 256, HTTP_PORT_MAX = 6, DOOR_MS = 300 };
/* Splits "HOST:PORT", "[IPV6]:PORT", ":PORT" or "PORT"; no host: "". False: none of them. */
bool http_split_address(const char *text, char host[HTTP_HOST_MAX], char port[HTTP_PORT_MAX]);

typedef struct http_stats {
  int32_t connections_idle, connections_reading, connections_waiting, connections_streaming;
  uint64_t accepted, refused, tls_done, tls_failed, tls_late; /* tls_: handshakes */
  int64_t tls_expires; /* unix seconds, of the certificate; 0 = no TLS */
  /* Most in one turn of the loop: bytes printed, of one reply and of all; requests read. */
  size_t reply_turn_max, replies_turn_max, requests_turn_max;
  uint64_t sends_here, sends_by_thread,
      sends_short; /* of http_direct.c; short: a socket was full */
} http_stats_t;
void http_stats(const http_t *http, http_stats_t *out);

#endif
