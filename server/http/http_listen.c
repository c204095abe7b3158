/* http_listen.c: listeners, accept and connection limits.
 *
 * Loop thread. This file accepts TCP connections and hands them to libmicrohttpd, because the
 * library accepts ten connections per run and stops for good at its limit. Each UNIX socket has a
 * libmicrohttpd daemon of its own that accepts (http.c).
 */
#include "server/http/http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ACCEPTS_PER_EVENT = 128, BACKLOG = 4096, ACCEPT_PAUSE_MS = 100, ACCEPT_WARN_MS = 10000 };

/* ---- accept ---- */

static void set_option(int fd, int level, int name, int value) {
  (void)setsockopt(fd, level, name, &value,
                   sizeof value); /* an optimisation: a failure does not matter */
}

static void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  /* Without this limit the kernel buffers 2.8 MB of tokens before we notice a slow reader. */
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

/* Beyond a limit a client gets the reason in one packet instead of waiting in the backlog. `full`:
 * the limit is that of all connections, not that of an address. */
static void refuse(http_t *http, int fd, bool full) {
  inferd_error_t error = {0};
  error_set(&error, ERR_OVERLOADED, NULL, "Too many connections%s; at most %d are allowed (%s).",
            full ? "" : " of one address",
            full ? http->connections_max : (int)http->server->config->max_connections_per_ip,
            full ? "--max-connections" : "--max-connections-per-ip");
  http->refused++;
  if (http->tls != NULL) { /* a text would need a handshake */
    close(fd);
    return;
  }
  connection_t stranger = {.http = http, .fd = fd};
  connection_raw_error(&stranger, &error, NULL);
  linger_start(http, fd);
  if (!uv_is_active((uv_handle_t *)&http->tick_timer)) uv_timer_again(&http->tick_timer);
}

static void on_accept_resume(uv_timer_t *timer) {
  listen_start(timer->data);
}

/* Called when no descriptor is left: the listening socket stays readable, so polling it would spin.
 */
static void pause_accept(http_t *http) {
  uint64_t now_ms = uv_now(http->loop);
  if (now_ms - http->accept_warned_ms >= ACCEPT_WARN_MS || http->accept_warned_ms == 0) {
    log_line(LOG_WARN, "accept", "cannot accept connections: %s; pausing", strerror(errno));
    http->accept_warned_ms = now_ms;
  }
  for (int i = 0; i < http->listener_count; i++) {
    if (http->listeners[i].polling) uv_poll_stop(&http->listeners[i].poll);
  }
  uv_timer_start(&http->accept_timer, on_accept_resume, ACCEPT_PAUSE_MS, 0);
}

static void on_accept(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  listener_t *listener = poll->data;
  http_t *http = listener->http;
  for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd =
        accept4(listener->fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) pause_accept(http);
      return;
    }
    peer_t peer;
    peer_from((struct sockaddr *)&address, &peer);
    bool full = !connections_have_room(http);
    if (full || limit_peer_full(http->limit, &peer)) {
      refuse(http, fd, full);
      continue;
    }
    tune(fd);
    http->accepted++;
    if (http->tls != NULL) {
      http_tls_accept(http, fd, &peer, (struct sockaddr *)&address, length);
      continue;
    }
    (void)MHD_add_connection(http->daemons[0].mhd, fd, (struct sockaddr *)&address, length);
    http_mark(http, true);
  }
}

/* ---- opening ---- */

/* The option that named an address, for messages: "port" stands for host and port. */
static const char *words_for(const char *option) {
  return strcmp(option, "port") == 0 ? "host and port" : option;
}

/* What to do about an address that cannot be opened. `path`: it is that of a UNIX socket. */
static const char *cure_for(int number, bool path) {
  if (number == EADDRINUSE) return "; stop the process that listens there, or take another port";
  if (number == EADDRNOTAVAIL) return "; no interface of this machine has this address";
  if (number == ENOENT && path) return "; its directory does not exist";
  if ((number == EACCES || number == EPERM) && !path)
    return "; ports below 1024 need CAP_NET_BIND_SERVICE";
  return "";
}

static int cannot(inferd_error_t *error, const char *option, const char *what,
                  const char *address) {
  int number = errno;
  bool path = address[0] == '/' || strchr(address, ':') == NULL;
  int code = number == EADDRINUSE                                              ? ERR_ADDRESS_IN_USE
             : number == EACCES || number == EPERM                             ? ERR_PERMISSION
             : number == EADDRNOTAVAIL || number == EINVAL || number == ENOENT ? ERR_CONFIGURATION
                                                                               : ERR_IO;
  if (number == EADDRNOTAVAIL && strcmp(option, "port") == 0) option = "host";
  return error_set(error, code, option, "%s: cannot %s %s: %s%s", words_for(option), what, address,
                   strerror(number), cure_for(number, path));
}

static int too_many(const char *option, const char *address, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, option,
                   "%s: %.100s is one address too many; the server listens on at most %d",
                   words_for(option), address, LISTENERS_MAX);
}

static listener_t *listener_add(http_t *http, int fd) {
  listener_t *listener = &http->listeners[http->listener_count++];
  listener->http = http;
  listener->fd = fd;
  return listener;
}

static int no_socket(const char *option, const char *path, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, option, "%s: %s exists and is not a socket", option,
                   path);
}

/* Removes a socket file that a crash left behind. Fails if a process still listens on it. */
static int remove_stale(const struct sockaddr_un *address, const char *option,
                        inferd_error_t *error) {
  struct stat info;
  if (lstat(address->sun_path, &info) != 0) return 0;
  if (!S_ISSOCK(info.st_mode)) return no_socket(option, address->sun_path, error);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool served = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
  if (fd >= 0) close(fd);
  if (served) {
    return error_set(error, ERR_ADDRESS_IN_USE, option, "%s: %s is in use by another process",
                     option, address->sun_path);
  }
  unlink(address->sun_path);
  return 0;
}

/* Whether a socket file could be made. */
static int try_unix(http_t *http, const char *option, const char *path, inferd_error_t *error) {
  struct stat info;
  char folder[sizeof(struct sockaddr_un)];
  if (lstat(path, &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) return no_socket(option, path, error);
  } else {
    snprintf(folder, sizeof folder, "%s", path);
    if (access(dirname(folder), W_OK | X_OK) != 0) return cannot(error, option, "listen on", path);
  }
  listener_add(http, -1)->unix_socket = true;
  return 0;
}

static int open_unix(http_t *http, const char *option, const char *path, inferd_error_t *error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path) {
    return error_set(error, ERR_CONFIGURATION, option,
                     "%s: the socket path '%.120s' has %zu bytes, supported: 1..%zu", option, path,
                     strlen(path), sizeof address.sun_path - 1);
  }
  memcpy(address.sun_path, path, strlen(path) + 1);
  if (http->trial) return try_unix(http, option, path, error);
  int code = remove_stale(&address, option, error);
  if (code != 0) return code;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return cannot(error, option, "open a socket for", path);
  /* So that bind creates the socket with this mode, and never with a wider one for a moment. */
  mode_t mode = (mode_t)strtol(http->server->config->uds_mode, NULL, 8);
  mode_t old = umask(0777 & ~mode);
  int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
  int bind_errno = errno;
  umask(old);
  errno = bind_errno;
  if (bound != 0 || listen(fd, BACKLOG) != 0) {
    code = cannot(error, option, "listen on", path);
    close(fd);
    return code;
  }
  listener_t *listener = listener_add(http, fd);
  listener->unix_socket = true;
  memcpy(listener->path, path, strlen(path) + 1);
  snprintf(listener->address, sizeof listener->address, "unix:%s", path);
  return 0;
}

static bool is_loopback(const struct sockaddr *address) {
  peer_t peer;
  peer_from(address, &peer);
  return !peer.counted;
}

/* Writes the address of a bound socket: "127.0.0.1:8000" or "[::1]:8000". */
static void address_text(int fd, char out[ADDRESS_BYTES]) {
  struct sockaddr_storage bound;
  socklen_t length = sizeof bound;
  char host[INET6_ADDRSTRLEN] = "?";
  if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0) bound.ss_family = AF_UNSPEC;
  if (bound.ss_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const void *)&bound;
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    snprintf(out, ADDRESS_BYTES, "[%s]:%u", host, ntohs(v6->sin6_port));
  } else {
    const struct sockaddr_in *v4 = (const void *)&bound;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    snprintf(out, ADDRESS_BYTES, "%s:%u", host, ntohs(v4->sin_port));
  }
}

/* Opens a listener on one address of a name. Returns 0, or the errno of the call that failed. */
static int open_address(http_t *http, const struct addrinfo *info, const char *option,
                        const char *host, const char *port, inferd_error_t *error) {
  char where[ADDRESS_BYTES];
  snprintf(where, sizeof where, "%s%.100s%s:%s", strchr(host, ':') != NULL ? "[" : "", host,
           strchr(host, ':') != NULL ? "]" : "", port);
  if (http->listener_count == LISTENERS_MAX) return too_many(option, where, error);
  int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return cannot(error, option, "open a socket for", where);
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  /* "::" accepts IPv4 too, as users expect, and ::ffff:127.0.0.1 is an address of IPv4; every other
   * IPv6 address accepts IPv6 only. */
  if (info->ai_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const void *)info->ai_addr;
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY,
               strcmp(host, "::") != 0 && !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr));
  }
  /* Bound, the port refuses connections. */
  bool later = http->trial || http->server->config->refuse_unready;
  if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || (!later && listen(fd, BACKLOG) != 0)) {
    int code = cannot(error, option, "listen on", where);
    close(fd);
    return code;
  }
  listener_t *listener = listener_add(http, fd);
  address_text(fd, listener->address);
  if (http->trial) snprintf(listener->address, sizeof listener->address, "%s", where);
  listener->shut = later;
  listener->beyond = !is_loopback(info->ai_addr);
  if (listener->beyond) http->check_host = false;
  return 0;
}

static int open_tcp(http_t *http, const char *option, const char *host, const char *port,
                    inferd_error_t *error) {
  struct addrinfo hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  /* A trial takes any free port of the address. */
  int status =
      getaddrinfo(host[0] != '\0' ? host : "127.0.0.1", http->trial ? "0" : port, &hints, &found);
  if (status != 0) {
    return error_set(error, ERR_CONFIGURATION, strcmp(option, "port") == 0 ? "host" : option,
                     "%s: cannot resolve %s:%s: %s", words_for(option), host, port,
                     gai_strerror(status));
  }
  /* A name may have an address that this machine lacks (localhost without IPv6): one listener is
   * enough then. An address that another process holds is an error in any case. */
  int code = 0, lacking = 0, opened = 0;
  for (const struct addrinfo *info = found; info != NULL && code == 0; info = info->ai_next) {
    code = open_address(http, info, option, host, port, error);
    if (code == 0) {
      opened++;
    } else if (code == ERR_CONFIGURATION || code == ERR_IO) {
      lacking = code;
      code = 0;
    }
  }
  freeaddrinfo(found);
  if (code != 0) return code;
  if (opened == 0) return lacking;
  if (error != NULL) *error = (inferd_error_t){0};
  return 0;
}

bool http_split_address(const char *text, char host[HTTP_HOST_MAX], char port[HTTP_PORT_MAX]) {
  const char *colon = strrchr(text, ':');
  const char *digits = colon != NULL ? colon + 1 : text;
  size_t length = colon != NULL ? (size_t)(colon - text) : 0;
  const char *from = text;
  if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
    from++;
    length -= 2;
  }
  if (length >= HTTP_HOST_MAX || digits[0] == '\0' || strlen(digits) >= HTTP_PORT_MAX ||
      strspn(digits, "0123456789") != strlen(digits) || atoi(digits) > 65535) {
    return false;
  }
  memcpy(host, from, length);
  host[length] = '\0';
  memcpy(port, digits, strlen(digits) + 1);
  return true;
}

static int open_text(http_t *http, const char *text, inferd_error_t *error) {
  if (strncmp(text, "unix:", 5) == 0) return open_unix(http, "listen", text + 5, error);
  char host[HTTP_HOST_MAX], port[HTTP_PORT_MAX];
  if (http_split_address(text, host, port)) return open_tcp(http, "listen", host, port, error);
  return error_set(error, ERR_CONFIGURATION, "listen",
                   "listen: '%.100s' is not HOST:PORT with a port of 0 to 65535, [IPV6]:PORT or "
                   "unix:PATH",
                   text);
}

/* The first address that other machines can reach, for messages. */
static const char *open_address_text(const http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    if (http->listeners[i].beyond) return http->listeners[i].address;
  }
  return "an address";
}

/* Takes a socket of the service manager. */
static int inherit(http_t *http, int fd, inferd_error_t *error) {
  struct sockaddr_storage bound;
  struct sockaddr_un unix_address;
  socklen_t length = sizeof bound, size = sizeof(int);
  int type = 0, listens = 0;
  bool ok = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 1 &&
            getsockname(fd, (struct sockaddr *)&bound, &length) == 0;
  int family = ok ? bound.ss_family : AF_UNSPEC;
  if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) {
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "descriptor %d of LISTEN_FDS is not a listening TCP or UNIX stream socket",
                     fd);
  }
  (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  listener_t *listener = listener_add(http, fd);
  listener->inherited = true;
  if (family == AF_UNIX) {
    memcpy(&unix_address, &bound, sizeof unix_address);
    listener->unix_socket = true;
    snprintf(listener->address, sizeof listener->address, "unix:%.107s", unix_address.sun_path);
    return 0;
  }
  address_text(fd, listener->address);
  listener->beyond = !is_loopback((struct sockaddr *)&bound);
  if (listener->beyond) http->check_host = false;
  return 0;
}

/* Takes the sockets that the service manager holds for this process (sd_listen_fds(3)), in place of
 * those that the configuration names. Children must not take them for theirs. */
static int inherit_all(http_t *http, inferd_error_t *error) {
  enum { FIRST = 3 };
  const char *pid = getenv("LISTEN_PID"), *text = getenv("LISTEN_FDS");
  long count = text != NULL ? strtol(text, NULL, 10) : 0;
  bool ours = pid != NULL && strtol(pid, NULL, 10) == (long)getpid();
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  if (!ours || count <= 0) return 0;
  if (count > LISTENERS_MAX) {
    return error_set(error, ERR_CONFIGURATION, NULL, "LISTEN_FDS is %ld, supported: 1..%d", count,
                     LISTENERS_MAX);
  }
  int code = 0;
  for (int i = 0; i < (int)count && code == 0; i++) code = inherit(http, FIRST + i, error);
  return code;
}

/* Both processes have these sockets; this one accepts when its model is loaded. */
static int take_over(http_t *http, inferd_error_t *error) {
  int fds[LISTENERS_MAX], count = 0;
  int code = hand_over_take(http, fds, &count, error);
  for (int i = 0; i < count && code == 0; i++) {
    code = inherit(http, fds[i], error);
    if (code != 0) continue;
    http->listeners[i].inherited = false;
    http->listeners[i].shut = true;
  }
  return code;
}

/* Opens what --listen, --uds, --host and --port name. */
static int open_configured(http_t *http, inferd_error_t *error) {
  const config_t *config = http->server->config;
  int code = 0;
  for (int i = 0; i < config->listen.count && code == 0; i++) {
    if (http->listener_count == LISTENERS_MAX) {
      return too_many("listen", config->listen.items[i], error);
    }
    code = open_text(http, config->listen.items[i], error);
  }
  if (code == 0 && config->uds[0] != '\0') code = open_unix(http, "uds", config->uds, error);
  bool elsewhere = config->listen.count > 0 || config->uds[0] != '\0';
  bool asked = config_given(config, OPTION_host) || config_given(config, OPTION_port);
  if (code == 0 && (!elsewhere || (asked && config->uds[0] == '\0'))) {
    char port[8];
    snprintf(port, sizeof port, "%d", (int)config->port);
    code = open_tcp(http, "port", config->host, port, error);
  }
  return code;
}

int listen_open(http_t *http, inferd_error_t *error) {
  const config_t *config = http->server->config;
  http->check_host = true;
  int code = inherit_all(http, error);
  if (code == 0 && http->listener_count == 0) code = take_over(http, error);
  if (code == 0 && http->listener_count == 0) code = open_configured(http, error);
  if (code == 0 && !http->check_host && auth_key_count(http->server->auth) == 0 &&
      !config->allow_unauthenticated) {
    code = error_set(error, ERR_CONFIGURATION, config->listen.count > 0 ? "listen" : "host",
                     "%s: %.100s is open to other machines, but there is no API key: set --api-key "
                     "or --api-key-file, or say --allow-unauthenticated",
                     config->listen.count > 0 ? "listen" : "host", open_address_text(http));
  }
  return code;
}

int listen_check(config_t *config, auth_t *auth, inferd_error_t *error) {
  server_t server = {.config = config, .auth = auth};
  http_t http = {.server = &server, .trial = true};
  int code = http_tls_check(config, error);
  if (code == 0) code = listen_open(&http, error);
  for (int i = 0; i < http.listener_count; i++) {
    if (http.listeners[i].fd >= 0) close(http.listeners[i].fd);
  }
  return code;
}

int listen_ready(http_t *http, inferd_error_t *error) {
  for (int i = 0; i < http->listener_count; i++) {
    listener_t *listener = &http->listeners[i];
    if (!listener->shut) continue;
    if (listen(listener->fd, BACKLOG) != 0) {
      return cannot(error, "port", "listen on", listener->address);
    }
    listener->shut = false;
  }
  listen_start(http);
  return 0;
}

/* Drops packets that open a connection: their senders try again after a second, when the socket is
 * closed. One that is closed while connections arrive resets those that are not accepted yet. */
static void drop_opening(int fd) {
  enum { FLAGS = 13, SYN = 2, ACK = 16, DROP = 0, KEEP = INT32_MAX }; /* of the TCP header */
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS),
                               BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SYN | ACK),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYN, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, DROP), BPF_STMT(BPF_RET | BPF_K, KEEP)};
  struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
  (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void listen_narrow(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    const listener_t *listener = &http->listeners[i];
    if (!listener->unix_socket && !listener->inherited) drop_opening(listener->fd);
  }
}

void listen_shut(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    listener_t *listener = &http->listeners[i];
    if (listener->unix_socket || listener->inherited || listener->fd < 0) continue;
    if (listener->polling) uv_poll_stop(&listener->poll);
    close(listener->fd);
    listener->fd = -1;
  }
}

/* What comes to a socket of the service manager waits there while no process can serve it. */
static bool may_accept(const http_t *http, const listener_t *listener) {
  const server_t *server = http->server;
  if (!listener->inherited) return true;
  if (server->phase != SERVER_SERVING) return false;
  if (server->models != NULL) return true; /* requests wait for their models */
  return server->engine != NULL && engine_state(server->engine) == ENGINE_READY &&
         !server->starting;
}

void listen_start(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    listener_t *listener = &http->listeners[i];
    if (listener->unix_socket || listener->shut || listener->fd < 0) continue;
    if (!may_accept(http, listener)) continue;
    if (!listener->polling) {
      if (uv_poll_init(http->loop, &listener->poll, listener->fd) != 0) continue;
      listener->poll.data = listener;
      listener->polling = true;
      http->open_handles++;
    }
    uv_poll_start(&listener->poll, UV_READABLE, on_accept);
  }
}

void listen_hand_on(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    listener_t *listener = &http->listeners[i];
    if (listener->inherited && listener->polling) uv_poll_stop(&listener->poll);
  }
}

void listen_close(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    listener_t *listener = &http->listeners[i];
    if (listener->unix_socket && !listener->inherited) unlink(listener->path);
    if (listener->fd >= 0)
      close(listener->fd); /* the descriptor of a UNIX socket belongs to its daemon */
    listener->fd = -1;
  }
}
