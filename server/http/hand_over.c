/* hand_over.c: gives the listening sockets to the next process, and takes them from the one before.
 *
 * Loop thread. A UNIX socket of mode 0600, and peers with our user id alone. The next process
 * connects and sends TAKE: it gets the descriptors of the TCP listeners (SCM_RIGHTS), and both have
 * them. When its model is loaded it accepts from them, connects again and sends READY; then this
 * process accepts no more and drains. A next process that dies before has changed nothing. The loop
 * waits for no visitor: it polls a few of them, and a further one takes the place of the first.
 */
#include "server/http/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Waits of a process that starts for the one before: for its descriptors, and at the end. */
enum { TAKE = 't', READY = 'r', START_PATIENCE_MS = 2000, PATIENCE_MS = 200 };

/* A connection whose byte has not come yet. */
struct visitor {
  uv_poll_t poll;
  http_t *http;
  int fd;
};

typedef union control { /* aligned for the header */
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * LISTENERS_MAX)];
} control_t;

/* Sets the path of the socket. Returns false if there is none. */
static bool find_path(const config_t *config, struct sockaddr_un *address) {
  const char *folder = getenv("RUNTIME_DIRECTORY");
  size_t room = sizeof address->sun_path;
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = 0;
  if (config->hand_over[0] != '\0') {
    length = snprintf(address->sun_path, room, "%s", config->hand_over);
  } else if (folder != NULL) {
    length = snprintf(address->sun_path, room, "%s/handover.sock", folder);
  }
  return length > 0 && (size_t)length < room;
}

static bool is_our_user(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void limit_waits(int fd, int ms) {
  struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- to the next process ---- */

static void send_listeners(http_t *http, int fd) {
  control_t control = {0};
  char byte = TAKE;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  int fds[LISTENERS_MAX], count = 0;
  for (int i = 0; i < http->listener_count; i++) {
    const listener_t *listener = &http->listeners[i];
    if (!listener->unix_socket && listener->fd >= 0) fds[count++] = listener->fd;
  }
  if (count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * (size_t)count);
  }
  bool sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  log_line(sent ? LOG_INFO : LOG_WARN, "hand-over", "%d listening sockets %s", count,
           sent ? "lent to the next process" : "could not be sent to the next process");
}

/* From now on the next process accepts. */
static void give_listeners(http_t *http) {
  for (int i = 0; i < http->listener_count; i++) {
    if (!http->listeners[i].unix_socket) http->listeners[i].inherited = true;
  }
  http->hand_over.path[0] = '\0'; /* it is the next process's too */
  if (http->server->succeeded != NULL) http->server->succeeded(http->server);
}

/* Does what the visitor says. Returns false if it has not said anything yet. */
static bool listen_to(http_t *http, int fd) {
  char byte = 0;
  ssize_t count = recv(fd, &byte, 1, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count == 1 && http->server->phase == SERVER_SERVING) {
    if (byte == TAKE) send_listeners(http, fd);
    if (byte == READY && http->hand_over.path[0] != '\0') give_listeners(http);
  }
  return true;
}

static void on_visitor_closed(uv_handle_t *handle) {
  free(handle->data);
}

/* Ends the connection of visitor i. */
static void dismiss(hand_over_t *hand_over, int i) {
  visitor_t *visitor = hand_over->visitors[i];
  hand_over->num_visitors--;
  for (int k = i; k < hand_over->num_visitors; k++)
    hand_over->visitors[k] = hand_over->visitors[k + 1];
  uv_poll_stop(&visitor->poll);
  close(visitor->fd);
  uv_close((uv_handle_t *)&visitor->poll, on_visitor_closed);
}

static void on_visitor(uv_poll_t *poll, int status, int events) {
  (void)events;
  const visitor_t *visitor = poll->data;
  hand_over_t *hand_over = &visitor->http->hand_over;
  if (status == 0 && !listen_to(visitor->http, visitor->fd)) return;
  int i = 0;
  while (hand_over->visitors[i] != visitor) i++;
  dismiss(hand_over, i);
}

/* Waits for the byte of a visitor without holding the loop. Returns false if that is not possible.
 */
static bool keep_visitor(http_t *http, int fd) {
  hand_over_t *hand_over = &http->hand_over;
  if (hand_over->num_visitors == VISITORS_MAX) dismiss(hand_over, 0);
  visitor_t *visitor = calloc(1, sizeof *visitor);
  if (visitor == NULL) return false;
  visitor->http = http;
  visitor->fd = fd;
  if (uv_poll_init(http->loop, &visitor->poll, fd) != 0) {
    free(visitor);
    return false;
  }
  visitor->poll.data = visitor;
  uv_poll_start(&visitor->poll, UV_READABLE, on_visitor);
  hand_over->visitors[hand_over->num_visitors++] = visitor;
  return true;
}

static void on_successor(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  http_t *http = poll->data;
  int fd = accept4(http->hand_over.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (!is_our_user(fd)) {
    log_line(LOG_WARN, "hand-over", "a process of another user was refused");
  } else if (!listen_to(http, fd) && keep_visitor(http, fd)) {
    return;
  }
  close(fd);
}

/* Makes way for our socket, unless another process than the one before listens there. */
static bool make_way(const http_t *http, const struct sockaddr_un *address) {
  struct stat info;
  if (lstat(address->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return true;
  int fd = http->hand_over.taken ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool served = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
  if (fd >= 0) close(fd);
  errno = EADDRINUSE;
  return !served && unlink(address->sun_path) == 0;
}

static bool open_socket(http_t *http, const struct sockaddr_un *address) {
  if (!make_way(http, address)) return false;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t old = umask(0177); /* so that the socket has mode 0600 when bind creates it */
  bool ok = fd >= 0 && bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
  umask(old);
  ok = ok && listen(fd, 4) == 0 && uv_poll_init(http->loop, &http->hand_over.poll, fd) == 0;
  if (!ok && fd >= 0) close(fd);
  if (!ok) return false;
  http->hand_over.fd = fd;
  memcpy(http->hand_over.path, address->sun_path, sizeof http->hand_over.path);
  return true;
}

/* Tells the process before that this one accepts. */
static void tell_predecessor(const struct sockaddr_un *address) {
  char byte = READY;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
      send(fd, &byte, 1, MSG_NOSIGNAL) == 1) {
    limit_waits(fd, PATIENCE_MS);
    (void)recv(fd, &byte, 1, 0); /* it closes the connection when it has read the byte */
  } else {
    log_line(LOG_WARN, "hand-over", "the process before has gone already");
  }
  if (fd >= 0) close(fd);
}

void hand_over_ready(http_t *http) {
  struct sockaddr_un address;
  if (!find_path(http->server->config, &address) || http->hand_over.polling) return;
  if (http->hand_over.taken) tell_predecessor(&address);
  if (!open_socket(http, &address)) {
    log_line(LOG_WARN, "hand-over", "no next process can take over: cannot listen on %s: %s",
             address.sun_path, strerror(errno));
    return;
  }
  http->hand_over.poll.data = http;
  http->hand_over.polling = true;
  http->open_handles++;
  uv_poll_start(&http->hand_over.poll, UV_READABLE, on_successor);
}

void hand_over_close(http_t *http) {
  if (!http->hand_over.polling) return;
  while (http->hand_over.num_visitors > 0) dismiss(&http->hand_over, 0);
  if (http->hand_over.path[0] != '\0') unlink(http->hand_over.path);
  uv_poll_stop(&http->hand_over.poll);
  close(http->hand_over.fd);
}

/* ---- from the process before ---- */

/* Returns the number of descriptors, or -1 if no process answers. */
static int receive(const struct sockaddr_un *address, int fds[LISTENERS_MAX]) {
  control_t control = {0};
  char byte = TAKE;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  int count = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) limit_waits(fd, START_PATIENCE_MS);
  if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
      is_our_user(fd) && send(fd, &byte, 1, MSG_NOSIGNAL) == 1 &&
      recvmsg(fd, &message, MSG_CMSG_CLOEXEC) == 1) {
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    count = 0;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
      count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      memcpy(fds, CMSG_DATA(header), sizeof(int) * (size_t)count);
    }
  }
  if (fd >= 0) close(fd);
  return count;
}

int hand_over_take(http_t *http, int fds[LISTENERS_MAX], int *count, inferd_error_t *error) {
  const config_t *config = http->server->config;
  struct sockaddr_un address;
  *count = 0;
  if (!config->take_over) return 0;
  if (!find_path(config, &address)) {
    return error_set(error, ERR_CONFIGURATION, "take_over",
                     "take_over needs hand_over, the path of a UNIX socket of 1..%zu bytes",
                     sizeof address.sun_path - 1);
  }
  if (config->uds[0] != '\0') {
    return error_set(error, ERR_CONFIGURATION, "take_over",
                     "take_over: a UNIX socket (uds) cannot be handed over");
  }
  if (http->trial) return 0;
  int found = receive(&address, fds);
  if (found <= 0) {
    log_line(LOG_INFO, "hand-over", "no process answers at %s: nothing to take over",
             address.sun_path);
    return 0;
  }
  *count = found;
  http->hand_over.taken = true;
  return 0;
}
