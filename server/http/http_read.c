/* http_read.c: the bytes of a connection pass strict.c before libmicrohttpd sees them.
 *
 * Loop thread, called by libmicrohttpd through gate.c. If strict.c refuses a request, the library
 * never sees the byte that was wrong, and the error is the last answer of the connection. It is
 * written once all requests before it are answered, then the library reads the end of the file.
 */
#include "server/http/http_read.h"
#include "server/http/http_exchange.h"
#include "server/http/http_head.h"
#include "server/http/sockets/gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- turns ---- */

/* A connection that was not waiting may not pass those that wait. */
static bool may_read(const connection_t *connection) {
  const http_t *http = connection->http;
  return connection->read_turn ||
         (http->next_read == NULL && http->turn_requests < READ_TURN_REQUESTS &&
          http->turn_read_bytes < READ_TURN_BYTES);
}

static void wait_in_line(connection_t *connection) {
  http_t *http = connection->http;
  if (connection->read_link != NULL) return;
  connection->read_after = NULL;
  connection->read_link = http->next_read != NULL ? http->last_read : &http->next_read;
  *connection->read_link = connection;
  http->last_read = &connection->read_after;
}

static void leave_line(connection_t *connection) {
  connection_t *after = connection->read_after;
  if (connection->read_link == NULL) return;
  *connection->read_link = after;
  *(after != NULL ? &after->read_link : &connection->http->last_read) = connection->read_link;
  connection->read_link = NULL;
}

/* `requests`: those that began with these bytes; a body that goes on counts like one. */
static void count_read(connection_t *connection, uint64_t requests, size_t bytes) {
  http_t *http = connection->http;
  connection->read_turn = false;
  if (bytes == 0) return;
  http->turn_requests += MAX(requests, 1);
  http->turn_read_bytes += bytes;
  http->requests_turn_max = MAX(http->requests_turn_max, http->turn_requests);
}

void read_begin_turn(http_t *http) {
  http->turn_requests = 0;
  http->turn_read_bytes = 0;
}

/* ---- connections by descriptor ---- */

bool read_register(connection_t *connection) {
  http_t *http = connection->http;
  int fd = connection->fd;
  if (fd >= http->by_fd_size) {
    int size = http->by_fd_size > 0 ? http->by_fd_size : 64;
    while (size <= fd) size *= 2;
    connection_t **by_fd = reallocarray(http->by_fd, (size_t)size, sizeof *by_fd);
    if (by_fd == NULL) return false;
    memset(by_fd + http->by_fd_size, 0, (size_t)(size - http->by_fd_size) * sizeof *by_fd);
    http->by_fd = by_fd;
    http->by_fd_size = size;
  }
  http->by_fd[fd] = connection;
  return true;
}

void read_forget(connection_t *connection) {
  http_t *http = connection->http;
  if (connection->fd < http->by_fd_size) http->by_fd[connection->fd] = NULL;
  leave_line(connection);
  for (connection_t **link = &http->due; *link != NULL; link = &(*link)->next_due) {
    if (*link == connection) {
      *link = connection->next_due;
      break;
    }
  }
}

/* ---- refusals ---- */

static int refusal_of(const connection_t *connection, inferd_error_t *error) {
  const strict_t *strict = &connection->strict;
  if (strict->error == ERR_URI_TOO_LONG || strict->error == ERR_HEADERS_TOO_LARGE) {
    return error_set(error, strict->error, NULL,
                     "%s; request line and headers may take %zu bytes (--max-header-bytes), each "
                     "header %d more, and %d headers, query fields and cookies are allowed.",
                     strict->message, strict->bytes_max, STRICT_RECORD_BYTES, strict->records_max);
  }
  return error_set(error, strict->error, NULL, "%s", strict->message);
}

/* Returns true if every request before the refused one has been answered. */
static bool is_due(const connection_t *connection) {
  const strict_t *strict = &connection->strict;
  if (connection->current == NULL) return connection->requests == strict->requests;
  return connection->current->state == EXCHANGE_READING && connection->requests > strict->requests;
}

/* Writes the error of a request of which the library has seen a part or nothing. */
static void refuse_now(connection_t *connection) {
  inferd_error_t error = {0};
  http_exchange_t *exchange = connection->current;
  connection->refused = true;
  (void)refusal_of(connection, &error);
  connection->linger = true;
  const char *cause = connection->strict.tls ? "tls_to_plain_port" : "malformed";
  if (exchange != NULL) {
    exchange->cause = cause;
    (void)exchange_refuse_body(exchange, &error);
    return;
  }
  char id[REQUEST_ID_MAX + 1];
  request_id_draw(id);
  connection_raw_error(connection, &error, id);
  const exchange_log_t nothing = EXCHANGE_LOG_UNKNOWN;
  access_t access = {.id = id,
                     .peer = connection->peer_name,
                     .method = "OTHER",
                     .route = "other",
                     .code = error_openai_code(error.code),
                     .cause = cause,
                     .status = error_http_status(error.code),
                     .log = &nothing};
  log_access(&access);
  metrics_http(connection->http->server, access.route, access.method, access.status, 0);
}

/* Returns 0, the end of the file, once the error is written; until then -1 with EAGAIN. */
static ssize_t read_refused(connection_t *connection) {
  if (!connection->refused && !is_due(connection)) {
    errno = EAGAIN;
    return -1;
  }
  if (!connection->refused) refuse_now(connection);
  return 0;
}

void read_answered(connection_t *connection) {
  http_t *http = connection->http;
  if (connection->strict.error == 0 || connection->refused || !is_due(connection)) return;
  connection->next_due = http->due;
  http->due = connection;
  http_mark(http, true);
}

/* After a short read the library looks at a socket again only when new bytes come, or when the
 * connection is resumed. */
static void look_again(connection_t *connection) {
  MHD_suspend_connection(connection->mhd);
  MHD_resume_connection(connection->mhd);
  http_mark(connection->http, true);
}

static void resume_line(http_t *http) {
  for (size_t read = http->turn_requests; http->next_read != NULL && read < READ_TURN_REQUESTS &&
                                          http->turn_read_bytes < READ_TURN_BYTES;
       read++) {
    connection_t *connection = http->next_read;
    leave_line(connection);
    connection->read_turn = true;
    /* One that is suspended is read when it is resumed. */
    if (connection->current == NULL || !connection->current->suspended) look_again(connection);
  }
}

void read_resume_due(http_t *http) {
  while (http->due != NULL) {
    connection_t *connection = http->due;
    http->due = connection->next_due;
    look_again(connection);
  }
  resume_line(http);
}

/* ---- reading ---- */

/* Reads and checks until `bytes` is full or the socket is empty. strict.c drops some blanks, so a
 * full read may become a short one; the library would then wait for bytes that are already there.
 * Therefore the loop reads again. */
static ssize_t read_checked(connection_t *connection, char *bytes, size_t length, int flags) {
  strict_t *strict = &connection->strict;
  size_t used = 0, whole = 0;
  while (used < length) {
    size_t room = length - used;
    ssize_t n = connection->http->server->behind
                    ? loan_receive(connection, bytes + used, room, flags)
                    : gate_receive(connection->fd, bytes + used, room, flags);
    if (n <= 0) return used > 0 ? (ssize_t)used : n;
    size_t kept = strict_read(strict, bytes + used, (size_t)n);
    if (strict->whole > 0) whole = used + strict->whole;
    if (strict->error != 0) return whole > 0 ? (ssize_t)whole : read_refused(connection);
    used += kept;
    if (used > 0 && (size_t)n < room) break;
  }
  return (ssize_t)used;
}

static ssize_t connection_read(void *context, int fd, char *bytes, size_t length, int flags) {
  http_t *http = context;
  connection_t *connection = fd >= 0 && fd < http->by_fd_size ? http->by_fd[fd] : NULL;
  if (connection == NULL) return 0; /* no strict_t could check its bytes: report the end of file */
  if (connection->strict.error != 0) return read_refused(connection);
  if (!may_read(connection)) {
    wait_in_line(connection);
    errno = EAGAIN;
    return -1;
  }
  uint64_t heads = connection->strict.heads;
  ssize_t n = read_checked(connection, bytes, length, flags);
  int code = errno;
  count_read(connection, connection->strict.heads - heads, n > 0 ? (size_t)n : 0);
  errno = code;
  return n;
}

void read_run(http_t *http, struct MHD_Daemon *mhd) {
  gate_open(connection_read, head_send, http);
  (void)MHD_run(mhd);
  gate_close();
}

/* ---- does the library read through the gate? ---- */

static ssize_t probe_read(void *context, int fd, char *bytes, size_t length, int flags) {
  (void)fd, (void)bytes, (void)length, (void)flags;
  *(bool *)context = true;
  return 0;
}

static enum MHD_Result probe_access(void *context, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_size, void **request_context) {
  (void)context, (void)mhd, (void)url, (void)method, (void)version, (void)upload;
  (void)upload_size, (void)request_context;
  return MHD_NO;
}

int read_check(inferd_error_t *error) {
  bool seen = false;
  int pair[2] = {-1, -1};
  struct sockaddr_in nowhere = {.sin_family = AF_INET};
  struct MHD_Daemon *mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
                                            probe_access, NULL, MHD_OPTION_END);
  if (mhd == NULL ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    if (mhd != NULL) MHD_stop_daemon(mhd);
    return error_set(error, ERR_IO, NULL, "cannot try libmicrohttpd: %s", strerror(errno));
  }
  gate_open(probe_read, NULL, &seen);
  (void)!send(pair[1], "x", 1, MSG_NOSIGNAL);
  (void)MHD_add_connection(mhd, pair[0], (const struct sockaddr *)&nowhere, sizeof nowhere);
  for (int i = 0; i < 4 && !seen; i++) (void)MHD_run(mhd);
  MHD_stop_daemon(mhd); /* closes pair[0] */
  gate_close();
  close(pair[1]);
  if (seen) return 0;
  return error_set(error, ERR_INTERNAL, NULL,
                   "this libmicrohttpd (%s) does not read its sockets by the recv of this program, "
                   "so requests cannot be checked before it reads them; use the library that the "
                   "program was built for",
                   MHD_get_version());
}
