/* http_connection.c: TCP and UNIX connections: disconnecting clients, deadlines, lingering close.
 *
 * Loop thread. While a connection is suspended libmicrohttpd does not read its socket, so it would
 * not notice a client that disconnects during a long prefill. One nested epoll set watches every
 * socket for EPOLLRDHUP, edge-triggered: two system calls per connection, none per token.
 */
#include "server/http/http_exchange.h"
#include "server/http/http_read.h"
#include "server/tls/tls.h"

#include "engine/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t config_ms(double seconds) {
  return (uint64_t)(seconds * 1000);
}

/* ---- lingering close ---- */

/* Closing a socket with unread bytes sends a reset, which can destroy an error response before the
 * client reads it. So we read the rest of a refused request, up to a bound, and drop it. */

static void linger_free(http_t *http, lingerer_t *lingerer) {
  if (lingerer->previous != NULL) {
    lingerer->previous->next = lingerer->next;
  } else {
    http->lingerers = lingerer->next;
  }
  if (lingerer->next != NULL) lingerer->next->previous = lingerer->previous;
  http->lingerer_count--;
  close(lingerer->fd);
  free(lingerer);
}

void linger_start(http_t *http, int fd) {
  lingerer_t *lingerer =
      http->lingerer_count < LINGERERS_MAX && !http->stopping ? calloc(1, sizeof *lingerer) : NULL;
  if (lingerer == NULL) {
    close(fd);
    return;
  }
  lingerer->kind = WATCH_LINGER;
  lingerer->fd = fd;
  lingerer->deadline_ms = uv_now(http->loop) + LINGER_MS;
  lingerer->next = http->lingerers;
  if (http->lingerers != NULL) http->lingerers->previous = lingerer;
  http->lingerers = lingerer;
  http->lingerer_count++;
  shutdown(fd, SHUT_WR);
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = lingerer};
  if (epoll_ctl(http->watch_epoll, EPOLL_CTL_ADD, fd, &event) != 0) linger_free(http, lingerer);
}

static void linger_read(http_t *http, lingerer_t *lingerer) {
  char waste[16 * 1024];
  for (;;) {
    ssize_t n = recv(lingerer->fd, waste, sizeof waste, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n > 0) lingerer->bytes += (size_t)n;
    if (n <= 0 || lingerer->bytes > LINGER_BYTES_MAX) {
      linger_free(http, lingerer);
      return;
    }
  }
}

/* ---- room for new connections ---- */

enum { ROOM_CLIENTS = 256, ROOM_MADE = 16, ROOM_IDLE_MS = 1000 };

/* Clients are told apart by a part of their hash. Connections that have shown no key, and those
 * whose request never came, are one client. */
static unsigned room_client(const connection_t *connection) {
  return connection->client == 0 ? 0 : 1 + (unsigned)(connection->client % (ROOM_CLIENTS - 1));
}

/* Nothing of a request has come, or not the whole head of it, for a second. */
static bool is_idle(const connection_t *connection) {
  const config_t *config = connection->http->server->config;
  double timeout_s =
      connection->request_begun ? config->header_timeout : config->keep_alive_timeout;
  uint64_t since_ms = connection->deadline_ms - config_ms(timeout_s);
  return connection->current == NULL && !connection->killed && !connection->unix_socket &&
         uv_now(connection->http->loop) - since_ms >= ROOM_IDLE_MS;
}

static void yield(connection_t *connection) {
  int unread = 0;
  if (ioctl(connection->fd, FIONREAD, &unread) != 0 || unread > 0) return; /* a request has come */
  connection->yields = true;
  connection->http->yielding++;
  connection_kill(connection);
}

/* Every connection that is open may serve its client again, so none is closed unless others are
 * shut out. Then the client that has most idle ones loses the oldest of them. A client with one
 * loses none. */
static void make_room(http_t *http) {
  int32_t counts[ROOM_CLIENTS] = {0};
  connection_t *oldest[ROOM_MADE];
  unsigned most = 0;
  size_t found = 0;
  for (connection_t *c = http->connections; c != NULL; c = c->next) {
    if (is_idle(c)) counts[room_client(c)]++;
  }
  for (unsigned i = 1; i < ROOM_CLIENTS; i++) most = counts[i] > counts[most] ? i : most;
  if (counts[most] < 2) return;
  for (connection_t *c = http->connections; c != NULL; c = c->next) {
    if (room_client(c) == most && is_idle(c)) oldest[found++ % ROOM_MADE] = c;
  }
  for (size_t i = 0; i < MIN(found, (size_t)ROOM_MADE); i++) yield(oldest[i]);
}

bool connections_have_room(http_t *http) {
  int32_t most = http->connections_max - http->handshakes;
  if (http->connection_count - http->yielding < most) return true;
  make_room(http);
  return http->connection_count - http->yielding < most;
}

/* ---- clients that disconnect ---- */

void connection_kill(connection_t *connection) {
  connection->killed = true;
  shutdown(connection->fd, SHUT_RDWR); /* libmicrohttpd sees the end of file and closes */
  http_mark(connection->http, true);
}

void connection_watch(connection_t *connection, bool writable) {
  struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = connection};
  const http_exchange_t *exchange = connection->current;
  if (writable) event.events |= EPOLLOUT;
  if (exchange != NULL && exchange->loan.state == LOAN_ASKED) event.events |= EPOLLIN;
  (void)epoll_ctl(connection->http->watch_epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

static void peer_event(connection_t *connection, uint32_t events) {
  if ((events & EPOLLOUT) != 0 && connection->current != NULL) {
    direct_writable(connection->current);
  }
  if ((events & EPOLLIN) != 0 && connection->current != NULL) loan_answer(connection->current);
  if ((events & ~(uint32_t)(EPOLLOUT | EPOLLIN)) == 0) return;
  connection->peer_closed = true;
  http_exchange_t *exchange = connection->current;
  if (exchange == NULL) return;
  bool broken = (events & (EPOLLHUP | EPOLLERR)) != 0;
  bool half_open = strcmp(connection->http->server->config->half_close, "allow") == 0;
  if (!broken && half_open) return;
  switch (exchange->state) {
  case EXCHANGE_HANDLING:
  case EXCHANGE_STREAMING:
  case EXCHANGE_ENDING: exchange_cut(exchange, "client_gone"); break;
  case EXCHANGE_READING:  /* libmicrohttpd reads the socket and notices by itself */
  case EXCHANGE_ANSWERED: /* the answer is being sent; a client that closed its sending side can
                             still read it */
  case EXCHANGE_GONE: break;
  }
}

static void on_watch(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  enum { EVENTS_MAX = 256 };
  http_t *http = poll->data;
  struct epoll_event ready[EVENTS_MAX];
  int n;
  do {
    n = epoll_wait(http->watch_epoll, ready, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
      /* No call here frees a connection (the pump does). A lingerer frees only itself. */
      void *watched = ready[i].data.ptr;
      switch (*(watch_kind_t *)watched) {
      case WATCH_LINGER: linger_read(http, watched); break;
      case WATCH_LOAN: direct_writable(((loan_t *)watched)->exchange); break;
      case WATCH_CONNECTION: peer_event(watched, ready[i].events); break;
      }
    }
  } while (n == EVENTS_MAX);
  http_mark(http, true);
}

int watch_open(http_t *http, inferd_error_t *error) {
  http->watch_epoll = epoll_create1(EPOLL_CLOEXEC);
  if (http->watch_epoll < 0 ||
      uv_poll_init(http->loop, &http->watch_poll, http->watch_epoll) != 0) {
    int code = error_set(error, ERR_IO, NULL, "cannot create an epoll set: %s", strerror(errno));
    watch_close(http);
    return code;
  }
  http->watch_poll.data = http;
  http->open_handles++;
  uv_poll_start(&http->watch_poll, UV_READABLE, on_watch);
  return 0;
}

void watch_close(http_t *http) {
  while (http->lingerers != NULL) linger_free(http, http->lingerers);
  if (http->watch_epoll >= 0) close(http->watch_epoll);
  http->watch_epoll = -1;
}

/* ---- life of a connection ---- */

static void peer_name_set(connection_t *connection, const struct sockaddr *address) {
  char *name = connection->peer_name;
  size_t size = sizeof connection->peer_name;
  if (address != NULL && address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, name,
              (socklen_t)size);
  } else if (address != NULL && address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, name,
              (socklen_t)size);
  } else {
    memcpy(name, "unix", 5);
    connection->unix_socket = true;
  }
}

static connection_t *connection_new(http_t *http, struct MHD_Connection *mhd) {
  connection_t *connection = calloc(1, sizeof *connection);
  if (connection == NULL) return NULL;
  connection->kind = WATCH_CONNECTION;
  connection->lent_fd = -1;
  connection->http = http;
  connection->mhd = mhd;
  connection->number = ++http->connections_made;
  connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  connection->deadline_ms = uv_now(http->loop) + config_ms(http->server->config->header_timeout);
  connection->request_begun = true; /* the header deadline of a new connection starts now */
  const struct sockaddr *address =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
  peer_from(address, &connection->peer);
  peer_name_set(connection, address);
  connection->tls = http->tls != NULL && !connection->unix_socket;
  limit_peer_add(http->limit, &connection->peer);
  connection->next = http->connections;
  if (http->connections != NULL) http->connections->previous = connection;
  http->connections = connection;
  http->connection_count++;
  size_t head_max = (size_t)http->server->config->max_header_bytes;
  strict_begin(&connection->strict, head_max, pool_records(head_max));
  struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = connection};
  if (!read_register(connection) ||
      epoll_ctl(http->watch_epoll, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
    /* Without the watch, the sequence of a client that disconnects would keep running: refuse it.
     */
    connection_kill(connection);
  }
  return connection;
}

static void connection_free(connection_t *connection) {
  http_t *http = connection->http;
  if (connection->previous != NULL) {
    connection->previous->next = connection->next;
  } else {
    http->connections = connection->next;
  }
  if (connection->next != NULL) connection->next->previous = connection->previous;
  http->connection_count--;
  http->yielding -= connection->yields;
  http->closed_some = true;
  limit_peer_remove(http->limit, &connection->peer);
  read_forget(connection);
  if (connection->lent_fd >= 0) close(connection->lent_fd);
  epoll_ctl(http->watch_epoll, EPOLL_CTL_DEL, connection->fd, NULL);
  bool unread = !connection->peer_closed || connection->strict.error != 0;
  if (connection->linger && unread && !connection->killed) {
    /* libmicrohttpd closes its descriptor right after this call; the duplicate keeps the socket
     * open. */
    int copy = fcntl(connection->fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) linger_start(http, copy);
  }
  free(connection);
}

void connection_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code) {
  http_t *http = context;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    *socket_context = connection_new(http, mhd);
    if (!uv_is_active((uv_handle_t *)&http->tick_timer)) {
      uv_timer_again(&http->tick_timer);
    }
  } else if (*socket_context != NULL) {
    connection_free(*socket_context);
    *socket_context = NULL;
  }
}

/* libmicrohttpd calls it for every request line: starts the deadline of the other headers. */
void *connection_request_line(void *context, const char *uri, struct MHD_Connection *mhd) {
  (void)uri;
  http_t *http = context;
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  connection_t *connection = info != NULL ? info->socket_context : NULL;
  if (connection != NULL && !connection->request_begun) {
    connection->request_begun = true;
    connection->deadline_ms = uv_now(http->loop) + config_ms(http->server->config->header_timeout);
  }
  return NULL; /* the request's context starts empty */
}

void connection_raw_error(connection_t *connection, const inferd_error_t *error,
                          const char *request_id) {
  bool numeric = strcmp(connection->http->server->config->error_code, "status") == 0;
  int status = error_http_status(error->code);
  size_t length = 0;
  const http_exchange_t *exchange = request_id != NULL ? connection->current : NULL;
  char *body = exchange != NULL ? exchange_error_body(&exchange->public, error, &length)
                                : error_body(error, numeric, &length);
  char *text = NULL;
  const char *reason = MHD_get_reason_phrase_for((unsigned)status);
  char ids[2 * (REQUEST_ID_MAX + 20)] = "";
  bool messages = exchange != NULL && exchange->public.wire == WIRE_ANTHROPIC;
  if (request_id != NULL) {
    snprintf(ids, sizeof ids, "x-request-id: %s\r\n%s%s%s", request_id,
             messages ? "request-id: " : "", messages ? request_id : "", messages ? "\r\n" : "");
  }
  int size = body == NULL ? -1
                          : asprintf(&text,
                                     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%s%s"
                                     "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                                     status, reason, status == 503 ? "Retry-After: 2\r\n" : "", ids,
                                     length, body);
  /* Nothing else was sent on this socket, so its buffer has room for these few hundred bytes. */
  if (size > 0) (void)!send(connection->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size >= 0) free(text);
  free(body);
}

/* ---- deadlines ---- */

static void time_out(connection_t *connection, const char *message) {
  inferd_error_t error = {0};
  error_set(&error, ERR_REQUEST_TIMEOUT, NULL, "%s", message);
  http_exchange_t *exchange = connection->current;
  connection_raw_error(connection, &error, exchange != NULL ? exchange->public.request_id : NULL);
  if (exchange != NULL) {
    exchange->status = error_http_status(error.code);
    exchange->code = error_openai_code(error.code);
    exchange_cut(exchange, "body_timeout");
  } else {
    connection_kill(connection);
  }
}

/* The bytes that the client has taken of what was sent: for TCP those that its system has
 * acknowledged. A UNIX socket tells only how much is not read; the sum of the changes will do. */
static uint64_t bytes_taken(connection_t *connection) {
  int unread = 0, fd = connection->fd;
  const loan_t *loan = &connection->current->loan;
  bool plain = !connection->unix_socket;
  if (connection->tls) return tls_acknowledged(connection->http->tls, fd);
  if (loan->state == LOAN_TAKEN) {
    fd = loan->fd;
    plain = pace_acknowledged(fd) > 0; /* the head of the answer has come by it, if it is TCP */
  }
  if (plain) return pace_acknowledged(fd);
  if (ioctl(fd, SIOCOUTQ, &unread) == 0) {
    connection->moved += (uint64_t)abs(unread - connection->unread);
    connection->unread = unread;
  }
  return connection->moved + connection->current->given;
}

/* Cuts an answer that waits for its client if the client takes nothing for the time of an option,
 * or less than 1 KiB a second for 10 seconds. */
static void check_reader(connection_t *connection, uint64_t now_ms) {
  http_exchange_t *exchange = connection->current;
  double timeout = connection->http->server->config->slow_reader_timeout;
  bool answering = exchange->state == EXCHANGE_ANSWERED || exchange->state == EXCHANGE_STREAMING ||
                   exchange->state == EXCHANGE_ENDING;
  if (!answering) return;
  bool idle = exchange->suspended && exchange->framed == 0;
  if (idle || exchange->response != NULL) {
    exchange->pace = (pace_t){0}; /* nothing waits */
    return;
  }
  uint64_t taken = bytes_taken(connection);
  if (taken != exchange->taken) exchange->progress_ms = now_ms;
  exchange->taken = taken;
  if (pace_is_slow(&exchange->pace, now_ms, taken) ||
      now_ms - exchange->progress_ms >= config_ms(timeout)) {
    exchange_cut(exchange, "slow_reader");
  } else if (now_ms - exchange->progress_ms >= 5000) {
    direct_writable(exchange);         /* in case that epoll, */
    http_mark(connection->http, true); /* or the library overlooks a connection that is ready */
  }
}

static void check_connection(connection_t *connection, uint64_t now_ms) {
  http_exchange_t *exchange = connection->current;
  if (connection->killed) return;
  if (connection->peer_closed && (exchange == NULL || exchange->state == EXCHANGE_READING)) {
    /* A FIN that arrives together with data makes no epoll edge of its own, and libmicrohttpd stops
     * after a short read. This call makes an edge; the bytes that have arrived stay readable. */
    shutdown(connection->fd, SHUT_RD);
    http_mark(connection->http, true);
  }
  if (exchange == NULL) {
    if (now_ms < connection->deadline_ms) return;
    if (connection->request_begun) {
      time_out(connection, "The request's headers did not arrive in time.");
    } else {
      connection_kill(connection); /* idle between requests; a client could take a 408 for the
                                      answer to its next request */
    }
    return;
  }
  if (exchange->state == EXCHANGE_READING) {
    bool slow = pace_is_slow(&exchange->body_pace, now_ms, exchange->body.length);
    if (slow || now_ms >= connection->deadline_ms) {
      time_out(connection, "The request's body did not arrive in time.");
    }
  } else {
    check_reader(connection, now_ms);
  }
}

void connection_tick(http_t *http) {
  uint64_t now_ms = uv_now(http->loop);
  for (connection_t *connection = http->connections; connection != NULL;
       connection = connection->next)
    check_connection(connection, now_ms);
  for (lingerer_t *lingerer = http->lingerers, *next; lingerer != NULL; lingerer = next) {
    next = lingerer->next;
    if (now_ms >= lingerer->deadline_ms) linger_free(http, lingerer);
  }
  if (http->connections == NULL && http->lingerers == NULL) uv_timer_stop(&http->tick_timer);
}
