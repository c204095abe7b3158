/* http_internal.h: what the http*.c files share. Nobody else includes it.
 *
 *   http.c             daemons of libmicrohttpd, the pump, start, drain, abort, stop
 *   http_listen.c      listeners, accept, connection limits
 *   http_connection.c  a TCP connection: peers that go away, deadlines, lingering close
 *   http_check.c       the order of checks that a request passes before its body is read
 *   http_exchange.c    request -> handler -> reply or stream
 *   http_error.c       error bodies and the headers that go with them
 *
 * Loop thread only: libmicrohttpd in external mode has no lock and no wake-up of its own.
 */
#ifndef INFERD_SERVER_HTTP_INTERNAL_H
#define INFERD_SERVER_HTTP_INTERNAL_H

#include "server/auth.h"
#include "server/limit.h"
#include "server/log.h"
#include "server/server.h"

#include <microhttpd.h>

enum {
  LISTENERS_MAX = 16,
  ADDRESS_BYTES = 128,
  HEADERS_MAX = 16,          /* response headers that a handler may add */
  LINGERERS_MAX = 256,       /* refused connections that are read to their end */
  LINGER_BYTES_MAX = 1 << 20,
  LINGER_MS = 2000,
  TICK_MS = 250
};

typedef struct connection connection_t;
typedef struct http_exchange http_exchange_t;

/* What the nested epoll watches: the first member of a connection and of a lingerer. */
typedef enum watch_kind { WATCH_CONNECTION, WATCH_LINGER } watch_kind_t;

typedef struct listener {
  struct http *http;
  int fd;
  bool unix_socket;
  char address[ADDRESS_BYTES];
  char path[108]; /* UNIX sockets: removed at the end */
  uv_poll_t poll; /* TCP: own accept */
  bool polling;
} listener_t;

/* One libmicrohttpd daemon: [0] takes the TCP connections, each UNIX socket has its own, because
 * 0.9.75 tries TCP options on every write of a UNIX connection that was added by hand. */
typedef struct daemon {
  struct MHD_Daemon *mhd;
  uv_poll_t poll;
  bool polling;
} daemon_t;

struct connection {
  watch_kind_t kind;
  struct http *http;
  int fd;
  connection_t *next, *previous;
  http_exchange_t *current;  /* NULL between requests */
  uint64_t deadline_ms;      /* loop time; of the headers, the body or the idle phase */
  peer_t peer;
  char peer_name[48];
  bool unix_socket;
  bool request_begun;        /* a request line has arrived */
  bool peer_closed;          /* the peer will send nothing more */
  bool killed;               /* shutdown() was called: libmicrohttpd closes it */
  bool linger;               /* refused before its body ended: read on after the close */
};

typedef struct lingerer {
  watch_kind_t kind;
  int fd;
  uint64_t deadline_ms;
  size_t bytes;
  struct lingerer *next, *previous;
} lingerer_t;

/* What may follow what is in http_exchange.c. */
typedef enum exchange_state {
  EXCHANGE_READING,   /* the body is arriving */
  EXCHANGE_HANDLING,  /* the handler owns the answer */
  EXCHANGE_ANSWERED,  /* a whole response exists */
  EXCHANGE_STREAMING, /* the handler writes */
  EXCHANGE_ENDING,    /* what was written is leaving */
  EXCHANGE_GONE       /* the client is, or will be, cut off */
} exchange_state_t;

typedef struct header {
  char *name, *value;
} header_t;

struct http_exchange {
  exchange_t public; /* first: handlers hold a pointer to this */
  struct http *http;
  connection_t *connection;
  struct MHD_Connection *mhd;
  exchange_state_t state;
  struct MHD_Response *response; /* made, not yet queued */
  int status;
  bool in_handler;
  bool suspended; /* by us: resuming a connection that is not suspended aborts the process */
  bool counted;   /* in http->in_flight */
  bool close;     /* the connection ends with this answer */
  const char *cause;    /* why it ended early; static text */
  const char *doom;     /* to be cut at the start of the next pump */
  http_exchange_t *next_doomed;
  const char *code;     /* error code for the log */
  char *tail;
  const char *allow;    /* of a 405 and of OPTIONS */
  const char *origin;   /* Origin header that CORS allows; points into the connection's memory */
  char key_name[AUTH_KEY_NAME_BYTES];
  uint64_t start_ns;    /* headers complete */
  char *body;
  size_t body_used, body_capacity, body_limit, body_budget;
  uint64_t body_window_ms; /* start of the present rate window */
  size_t body_window_bytes;
  header_t headers[HEADERS_MAX];
  int header_count;
  char *out; /* stream: bytes out_start..out_end wait for the socket */
  size_t out_start, out_end, out_capacity;
  uint64_t progress_ms; /* last time the socket took something */
  uint64_t bytes_out;
};

struct http {
  server_t *server;
  uv_loop_t *loop;
  limit_t *limit;
  daemon_t daemons[LISTENERS_MAX + 1];
  int daemon_count;
  listener_t listeners[LISTENERS_MAX];
  int listener_count;
  bool check_host;   /* every TCP listener is bound to loopback */
  int watch_epoll;   /* peers that go away: EPOLLRDHUP of every connection */
  uv_poll_t watch_poll;
  uv_prepare_t prepare;
  uv_check_t check;
  uv_idle_t idle;    /* active while a pump could not finish: keeps the loop from sleeping */
  uv_timer_t pump_timer, tick_timer, accept_timer;
  int open_handles;
  bool need_pump, urgent, closed_some, stopping, drained_told, accept_paused;
  uint64_t pumped_ns;
  connection_t *connections;
  int32_t connection_count, connections_max;
  int32_t in_flight;  /* exchanges that a handler has seen and that have not ended */
  int32_t suspended;
  http_exchange_t *doomed;
  lingerer_t *lingerers;
  int32_t lingerer_count;
  uint64_t accepted, refused;
};

/* http.c */
void http_mark(http_t *http, bool urgent); /* pump before the loop sleeps again */

/* http_listen.c */
int listen_open(http_t *http, error_t *error);
void listen_start(http_t *http);
void listen_close(http_t *http);

/* http_connection.c */
int watch_open(http_t *http, error_t *error);
void watch_close(http_t *http);
void connection_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
void *connection_request_line(void *context, const char *uri, struct MHD_Connection *mhd);
void connection_kill(connection_t *connection);
/* Writes a whole error response past libmicrohttpd, where that can no longer send one itself. */
void connection_raw_error(connection_t *connection, const error_t *error, const char *request_id);
void connection_tick(http_t *http);
void linger_start(http_t *http, int fd); /* takes the descriptor */

/* http_check.c: 0, or the ERR_ of the first check that failed. Sets route, tail, tenant, body_limit. */
int check_request(http_exchange_t *exchange, const char *path, const char *version, error_t *error);
/* Server state again when the body is complete: loading, failed, draining. */
int check_state(const http_exchange_t *exchange, error_t *error);
/* Does the request announce a body? */
bool check_has_body(const http_exchange_t *exchange);

/* http_exchange.c */
enum MHD_Result exchange_access(void *context, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_size, void **request_context);
void exchange_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                        enum MHD_RequestTerminationCode how);
void exchange_cut(http_exchange_t *exchange, const char *cause);
void exchange_cut_doomed(http_t *http);
void exchange_shutdown(http_exchange_t *exchange); /* http_abort of one exchange */

/* http_reply.c: the response with every header that belongs to it; false when memory is short */
bool reply_make(http_exchange_t *exchange, int status, const char *content_type, char *body,
                size_t length);
bool reply_make_stream(http_exchange_t *exchange, MHD_ContentReaderCallback reader);
bool reply_make_error(http_exchange_t *exchange, const error_t *error);

#endif
