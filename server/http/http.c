/* http.c: stage 1 of 9: bytes -> request. Next: server/api and server/completion.
 *
 * Loop thread. libuv drives libmicrohttpd in external mode: its epoll descriptor is one poll
 * handle. A pump runs libmicrohttpd once per loop iteration, so that all events of an iteration
 * (tokens of all streams, new connections, clients that disconnected) cost one pass. Callbacks only
 * record what happened and mark that a pump is due; prepare and check handles run the pump before
 * and after the loop sleeps.
 */
#include "engine/base/check.h"
#include "server/http/http_exchange.h"
#include "server/http/http_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  RUNS_PER_PUMP = 8,
  MANY_SUSPENDED = 1000, /* above this number a resume is costly: the library walks all of them */
  PUMP_INTERVAL_NS = 2000000 /* then streams are served at most this often, several at a time */
};

/* ---- the pump ---- */

void http_mark(http_t *http, bool urgent) {
  http->need_pump = true;
  http->urgent |= urgent;
}

/* Runs every libmicrohttpd daemon once. Returns true if one of them has more to do. Otherwise sets
 * *wait_ms to the nearest timeout, UINT64_MAX if there is none. */
static bool run_daemons(http_t *http, uint64_t *wait_ms) {
  bool busy = false;
  *wait_ms = UINT64_MAX;
  for (int i = 0; i < http->daemon_count; i++) {
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    read_run(http, http->daemons[i].mhd);
    if (MHD_get_timeout(http->daemons[i].mhd, &timeout) != MHD_YES) continue;
    if (timeout == 0) busy = true;
    if (timeout < *wait_ms) *wait_ms = timeout;
  }
  return busy;
}

static void on_pump_timer(uv_timer_t *timer);
static void on_idle(uv_idle_t *idle) {
  (void)idle;
}

static void pump(http_t *http) {
  uint64_t wait_ms = UINT64_MAX;
  int runs = 0;
  bool more;
  http->urgent = false;
  http->pumped_ns = uv_hrtime();
  pieces_begin_turn(http);
  read_begin_turn(http);
  direct_begin_turn(http);
  do {
    /* The timeout that the library reports does not cover a resume that happened inside its run
     * (need_pump). After a close the library needs one more run before it accepts again. */
    http->need_pump = http->closed_some = false;
    exchange_cut_doomed(http);
    read_resume_due(http);
    more = run_daemons(http, &wait_ms);
    more |= http->need_pump || http->closed_some;
  } while (more && ++runs < RUNS_PER_PUMP);
  if (more || http->next_turn != NULL || http->next_read != NULL) {
    http_mark(http, true);
    uv_idle_start(&http->idle, on_idle);
  } else {
    uv_idle_stop(&http->idle);
    if (wait_ms == UINT64_MAX) {
      uv_timer_stop(&http->pump_timer);
    } else {
      uv_timer_start(&http->pump_timer, on_pump_timer, wait_ms, 0);
    }
  }
  log_flush();
  if (http->server->phase >= SERVER_DRAINING && http->in_flight == 0 && !http->drained_told &&
      !http->stopping) {
    http->drained_told = true;
    if (http->server->drained != NULL) http->server->drained(http->server);
  }
}

static void on_pump_timer(uv_timer_t *timer) {
  pump(timer->data);
}

static void pump_if_needed(http_t *http) {
  if (!http->need_pump) return;
  uint64_t since_ns = uv_hrtime() - http->pumped_ns;
  if (!http->urgent && http->suspended > MANY_SUSPENDED && since_ns < PUMP_INTERVAL_NS) {
    uv_timer_start(&http->pump_timer, on_pump_timer, PUMP_INTERVAL_NS / 1000000, 0);
    return;
  }
  pump(http);
}

static void on_prepare(uv_prepare_t *prepare) {
  pump_if_needed(prepare->data);
}
static void on_check(uv_check_t *check) {
  pump_if_needed(check->data);
}
static void on_tick(uv_timer_t *timer) {
  connection_tick(timer->data);
}

static void on_daemon(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  http_mark(poll->data, true);
}

/* ---- start ---- */

/* http_check.c checks and decodes paths: the decoder of the library ends a path at %00. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text) {
  (void)context, (void)mhd;
  return strlen(text);
}

static void on_mhd_log(void *context, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void on_mhd_log(void *context, const char *format, va_list arguments) {
  (void)context;
  char text[256];
  vsnprintf(text, sizeof text, format, arguments);
  text[strcspn(text, "\r\n")] = '\0';
  log_line(LOG_DEBUG, "http", "libmicrohttpd: %s", text);
}

static void on_mhd_panic(void *context, const char *file, unsigned line, const char *reason) {
  (void)context;
  log_line(LOG_ERROR, "http", "libmicrohttpd panics at %s:%u: %s", file, line,
           reason != NULL ? reason : "no reason given");
  abort();
}

/* Starts one daemon. listen_fd < 0: http_listen.c accepts the connections and adds them. On success
 * the daemon owns the descriptor.
 *
 * About half of the memory that a connection may use is touched by every stream, so a larger limit
 * costs memory with each of them. Headers of 16 KiB are the default, as in Node.js; longer ones get
 * 431. */
static int daemon_start(http_t *http, int listen_fd, inferd_error_t *error) {
  const config_t *config = http->server->config;
  struct MHD_OptionItem options[] = {
      {MHD_OPTION_CONNECTION_LIMIT, http->connections_max + LINGERERS_MAX, NULL},
      {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)config->max_header_bytes + POOL_MORE_BYTES,
       NULL},
      {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(config->keep_alive_timeout + 1), NULL},
      {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
      {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connection_notify, http},
      {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)exchange_completed, http},
      {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)connection_request_line, http},
      {listen_fd >= 0 ? MHD_OPTION_LISTEN_SOCKET : MHD_OPTION_END, listen_fd, NULL},
      {MHD_OPTION_END, 0, NULL}};
  unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  if (listen_fd < 0) flags |= MHD_USE_NO_LISTEN_SOCKET;
  http_daemon_t *daemon = &http->daemons[http->daemon_count];
  daemon->mhd =
      MHD_start_daemon(flags, 0, NULL, NULL, exchange_access, http, MHD_OPTION_EXTERNAL_LOGGER,
                       on_mhd_log, NULL, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
  if (daemon->mhd == NULL) {
    return error_set(error, ERR_IO, NULL, "libmicrohttpd does not start: %s", strerror(errno));
  }
  http->daemon_count++;
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon->mhd, MHD_DAEMON_INFO_EPOLL_FD);
  if (info == NULL || uv_poll_init(http->loop, &daemon->poll, info->epoll_fd) != 0) {
    return error_set(error, ERR_IO, NULL, "cannot watch libmicrohttpd's epoll set");
  }
  daemon->polling = true;
  daemon->poll.data = http;
  http->open_handles++;
  uv_poll_start(&daemon->poll, UV_READABLE, on_daemon);
  return 0;
}

static void start_handles(http_t *http) {
  uv_prepare_init(http->loop, &http->prepare);
  uv_check_init(http->loop, &http->check);
  uv_idle_init(http->loop, &http->idle);
  uv_timer_init(http->loop, &http->pump_timer);
  uv_timer_init(http->loop, &http->tick_timer);
  uv_timer_init(http->loop, &http->accept_timer);
  http->open_handles += 6;
  http->prepare.data = http->check.data = http->idle.data = http;
  http->pump_timer.data = http->tick_timer.data = http->accept_timer.data = http;
  uv_prepare_start(&http->prepare, on_prepare);
  uv_check_start(&http->check, on_check);
  uv_timer_start(&http->tick_timer, on_tick, TICK_MS,
                 TICK_MS); /* stops while no client is connected */
}

int http_start(server_t *server, http_t **out, inferd_error_t *error) {
  const config_t *config = server->config;
  http_t *http = calloc(1, sizeof *http);
  if (http == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the transport");
  http->server = server;
  http->loop = server->loop;
  http->watch_epoll = -1;
  http->connections_max = limit_connections(config);
  http->limit = limit_new(http->connections_max, (int32_t)config->max_connections_per_ip);
  MHD_set_panic_func(on_mhd_panic, NULL);
  start_handles(http);
  int code = http->limit != NULL ? watch_open(http, error)
                                 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for limits");
  if (code == 0) code = read_check(error);
  if (code == 0) code = http_tls_start(http, error);
  if (code == 0) code = direct_start(http, error);
  if (code == 0) code = listen_open(http, error);
  if (code == 0) code = daemon_start(http, -1, error);
  for (int i = 0; i < http->listener_count && code == 0; i++) {
    if (!http->listeners[i].unix_socket) continue;
    code = daemon_start(http, http->listeners[i].fd, error);
    if (code == 0) http->listeners[i].fd = -1;
  }
  if (code != 0) {
    http_stop(http);
    return code;
  }
  listen_start(http);
  http_mark(http, true);
  *out = http;
  return 0;
}

const char *http_address(const http_t *http, int index) {
  return index < http->listener_count ? http->listeners[index].address : NULL;
}

bool http_is_open(const http_t *http) {
  return !http->check_host;
}

void http_reload(http_t *http) {
  limit_set(http->limit, (int32_t)http->server->config->max_connections_per_ip);
}

/* ---- end ---- */

int http_ready(http_t *http, inferd_error_t *error) {
  int code = listen_ready(http, error);
  if (code == 0) hand_over_ready(http);
  return code;
}

void http_narrow(http_t *http) {
  listen_narrow(http);
}

void http_leave(http_t *http) {
  CHECK(http->server->phase >= SERVER_LEAVING);
  listen_hand_on(http);
}

void http_drain(http_t *http) {
  CHECK(http->server->phase >= SERVER_DRAINING);
  if (http->server->config->refuse_unready) listen_shut(http);
  http_mark(http, true); /* the pump reports when nothing is in flight */
}

void http_abort(http_t *http) {
  for (connection_t *connection = http->connections; connection != NULL;
       connection = connection->next) {
    if (connection->current != NULL) exchange_shutdown(connection->current);
  }
  http_mark(http, true);
}

static void on_closed(uv_handle_t *handle) {
  http_t *http = handle->data;
  if (--http->open_handles == 0) free(http);
}

static void close_handle(void *handle) {
  uv_close(handle, on_closed);
}

void http_stop(http_t *http) {
  http->stopping = true;
  direct_stop(http);
  /* The library aborts the process if it is stopped while a connection is suspended. */
  for (connection_t *connection = http->connections; connection != NULL;
       connection = connection->next) {
    if (connection->current != NULL) exchange_cut(connection->current, "shutdown");
  }
  for (int i = 0; i < RUNS_PER_PUMP; i++) {
    uint64_t wait_ms;
    run_daemons(http, &wait_ms);
  }
  listen_close(http);
  hand_over_close(http);
  if (http->hand_over.polling) close_handle(&http->hand_over.poll);
  for (int i = 0; i < http->daemon_count; i++) {
    if (http->daemons[i].polling) close_handle(&http->daemons[i].poll);
    MHD_stop_daemon(http->daemons[i].mhd);
  }
  for (int i = 0; i < http->listener_count; i++) {
    if (http->listeners[i].polling) close_handle(&http->listeners[i].poll);
    http->listeners[i].poll.data = http;
  }
  if (http->watch_epoll >= 0) {
    close_handle(&http->watch_poll);
    watch_close(http);
  }
  http_tls_stop(http);
  limit_free(http->limit);
  free(http->by_fd);
  http->by_fd = NULL;
  http->by_fd_size = 0;
  log_flush();
  if (http->tls_wake.data != NULL) close_handle(&http->tls_wake);
  if (http->direct.wake.data != NULL) close_handle(&http->direct.wake);
  close_handle(&http->prepare);
  close_handle(&http->check);
  close_handle(&http->idle);
  close_handle(&http->pump_timer);
  close_handle(&http->tick_timer);
  close_handle(&http->accept_timer);
}

void http_stats(const http_t *http, http_stats_t *out) {
  *out = (http_stats_t){.accepted = http->accepted,
                        .refused = http->refused,
                        .tls_done = http->tls_done,
                        .tls_failed = http->tls_failed,
                        .tls_late = http->tls_late,
                        .tls_expires = http_tls_expires(http),
                        .reply_turn_max = http->reply_turn_max,
                        .replies_turn_max = http->replies_turn_max,
                        .requests_turn_max = http->requests_turn_max,
                        .sends_here = http->direct.sends_here,
                        .sends_by_thread = http->direct.sends_by_thread,
                        .sends_short = http->direct.sends_short};
  for (const connection_t *connection = http->connections; connection != NULL;
       connection = connection->next) {
    if (connection->current == NULL) {
      out->connections_idle++;
    } else if (connection->current->state == EXCHANGE_READING) {
      out->connections_reading++;
    } else if (connection->current->state == EXCHANGE_STREAMING ||
               connection->current->state == EXCHANGE_ENDING) {
      out->connections_streaming++;
    } else {
      out->connections_waiting++;
    }
  }
}
