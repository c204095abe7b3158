/* http_internal.h: what the files share that move a request from its bytes to its answer.
 *
 *   http.c             daemons of libmicrohttpd, the pump, start, drain, abort, stop
 *   http_listen.c      listeners, accept, connection limits (listen.h)
 *   hand_over.c        listeners from the process before, and for the next one
 *   http_tls.c         connections that speak TLS
 *   http_read.c        the bytes of a connection, checked before libmicrohttpd reads them
 *   http_connection.c  a connection: clients that disconnect, deadlines, lingering close
 *   http_check.c       the order of checks that a request passes before its body is read
 *   http_exchange.c    request -> handler, and the end of both (http_exchange.h)
 *   http_answer.c      handler -> reply or stream
 *   http_head.c        heads of streams, which go out with the first chunk
 *   http_direct.c      streams whose chunks go past libmicrohttpd
 *   http_loan.c        and to a socket that the parent of this process has lent
 *   http_pieces.c      replies that are printed while they are sent
 *   http_reply.c       responses with their headers
 *   http_error.c       error bodies and the headers that go with them
 *
 * Loop thread only: libmicrohttpd in external mode has no lock and no wake-up of its own.
 */
#ifndef INFERD_SERVER_HTTP_HTTP_INTERNAL_H
#define INFERD_SERVER_HTTP_HTTP_INTERNAL_H

#include "server/http/auth.h"
#include "server/http/http_direct.h"
#include "server/http/limit.h"
#include "server/http/listen.h"
#include "server/http/strict.h"
#include "server/observe/log.h"
#include "server/server.h"

#include <microhttpd.h>

enum {
  LINGERERS_MAX = 256, /* refused requests whose remaining bytes are read and dropped */
  LINGER_BYTES_MAX = 1 << 20,
  LINGER_MS = 2000,
  TICK_MS = 250
};

typedef struct connection connection_t;
typedef struct http_exchange http_exchange_t;

/* What the nested epoll watches: the first member of a connection, of a lingerer and of a loan. */
typedef enum watch_kind { WATCH_CONNECTION, WATCH_LINGER, WATCH_LOAN } watch_kind_t;

/* One libmicrohttpd daemon: [0] takes the TCP connections, each UNIX socket has its own, because
 * 0.9.75 tries TCP options on every write of a UNIX connection that was added by hand. */
typedef struct http_daemon {
  struct MHD_Daemon *mhd;
  uv_poll_t poll;
  bool polling;
} http_daemon_t;

struct connection {
  watch_kind_t kind;
  struct http *http;
  int fd;
  connection_t *next, *previous;
  http_exchange_t *current; /* NULL between requests */
  uint64_t number;          /* of all connections since the start */
  uint64_t deadline_ms;     /* loop time; of the headers, the body or the idle phase */
  peer_t peer;
  char peer_name[48];
  bool unix_socket;
  bool tls;            /* fd is one end of a pair, behind which tls.h speaks with the client */
  int lent_fd;         /* came with the bytes of the next request; -1 = none */
  bool request_begun;  /* a request line has arrived */
  bool peer_closed;    /* the peer will send nothing more */
  bool killed, yields; /* shutdown() was called: libmicrohttpd closes it; to make room */
  bool linger;         /* refused before its body ended: read on after the close */
  int unread;          /* UNIX sockets: bytes that were not read at the last look; */
  uint64_t moved;      /* the sum of their changes */
  strict_t strict;     /* where each request ends */
  bool refused;        /* the error of the request that strict refused has been written */
  bool read_turn;      /* has waited to be read, and may be read now */
  uint64_t requests, client; /* begun by libmicrohttpd; of the last: key, else peer; 0 = unknown */
  struct MHD_Connection *mhd;
  connection_t *next_due;
  connection_t *read_after, **read_link; /* in http->next_read; link NULL: not there */
};

typedef struct lingerer {
  watch_kind_t kind;
  int fd;
  uint64_t deadline_ms;
  size_t bytes;
  struct lingerer *next, *previous;
} lingerer_t;

struct http {
  server_t *server;
  uv_loop_t *loop;
  limit_t *limit;
  http_daemon_t daemons[LISTENERS_MAX + 1];
  int daemon_count;
  listener_t listeners[LISTENERS_MAX];
  int listener_count;
  hand_over_t hand_over;
  struct tls *tls; /* NULL = TCP connections are plain */
  uv_async_t tls_wake;
  int32_t handshakes;     /* connections that tls.h has, and that are counted by `limit` */
  uint64_t tls_looked_ns; /* when http_identity_refresh looked at the files, and what it saw: */
  uint64_t tls_seen, tls_read, tls_known; /* read: before the last read; known: served, refused */
  uint64_t tls_done, tls_failed, tls_late;
  bool check_host; /* every TCP listener is bound to loopback */
  bool trial;      /* listen_check: nothing is taken */
  int watch_epoll; /* reports EPOLLRDHUP: clients that disconnect */
  uv_poll_t watch_poll;
  uv_prepare_t prepare;
  uv_check_t check;
  uv_idle_t idle; /* active while a pump has work left: the loop must not sleep */
  uv_timer_t pump_timer, tick_timer, accept_timer;
  int open_handles;
  bool need_pump, urgent, closed_some, stopping, drained_told;
  uint64_t pumped_ns, accept_warned_ms;
  connection_t *connections;
  connection_t **by_fd; /* [by_fd_size] NULL where no connection has the descriptor */
  int by_fd_size;
  connection_t *due; /* their last answer is sent: the refusal of the next request may follow */
  connection_t *next_read, **last_read; /* connections that wait to be read, oldest first */
  int32_t connection_count, connections_max, yielding; /* yielding: how many yield */
  uint64_t connections_made, accepted, refused;
  int32_t in_flight; /* exchanges that a handler has seen and that have not ended */
  int32_t suspended, lingerer_count, spare_answers; /* spare: exchange_spare */
  http_exchange_t *doomed;
  uint64_t turn; /* of the loop: one pump, and what happens until the next */
  http_exchange_t *next_turn, **last_turn; /* replies that wait for a turn, oldest first */
  size_t turn_bytes, turn_requests, turn_read_bytes;          /* printed and read in this turn */
  size_t reply_turn_max, replies_turn_max, requests_turn_max; /* http_stats_t */
  int probe_status[3]; /* of the last answer about readiness, liveness, metrics; 0 = none yet */
  lingerer_t *lingerers;
  direct_t direct;
};

/* http.c */
void http_mark(http_t *http, bool urgent); /* pump before the loop sleeps again */

/* http_connection.c */
int watch_open(http_t *http, inferd_error_t *error);
void watch_close(http_t *http);
void connection_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
void *connection_request_line(void *context, const char *uri, struct MHD_Connection *mhd);
void connection_kill(connection_t *connection);
void connection_watch(connection_t *connection, bool writable); /* for direct_writable */
bool connections_have_room(http_t *http); /* may close idle ones of the client that has most */
/* Writes a whole error response to the socket, where libmicrohttpd can no longer do it. */
void connection_raw_error(connection_t *connection, const inferd_error_t *error,
                          const char *request_id);
void connection_tick(http_t *http);
void linger_start(http_t *http, int fd); /* owns the descriptor from now on */

#endif
