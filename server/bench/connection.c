/* connection.c: see connection.h. */
#include "server/bench/connection.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 65536, CONNECT_TIMEOUT_MS = 10000, EXIT_USAGE = 64, EXIT_HOST = 68 };
enum { EXIT_UNAVAILABLE = 69 };

/* ---- addresses ---- */

bool address_split(const char *url, server_address_t *out) {
  int used = 0, port_length = 0;
  *out = (server_address_t){.port = "80"};
  bool is_v6 = sscanf(url, "http://[%255[0-9a-fA-F:.]]%n", out->host, &used) == 1 && used > 0;
  if (!is_v6 && sscanf(url, "http://%255[^][:/?#@]%n", out->host, &used) != 1) return false;
  const char *rest = url + used;
  if (rest[0] == ':') {
    if (sscanf(rest, ":%5[0-9]%n", out->port, &port_length) != 1) return false;
    rest += port_length;
  }
  size_t length = strlen(rest);
  if ((length > 0 && rest[0] != '/') || length >= sizeof out->path) return false;
  memcpy(out->path, rest, length + 1);
  while (length > 0 && out->path[length - 1] == '/') out->path[--length] = '\0';
  if (length >= 3 && strcmp(out->path + length - 3, "/v1") == 0) out->path[length - 3] = '\0';
  snprintf(out->authority, sizeof out->authority, is_v6 ? "[%s]:%s" : "%s:%s", out->host,
           out->port);
  return true;
}

/* Whether a connection comes about; *why is an errno if not. */
static bool answers(const server_address_t *address, int *why) {
  client_connection_t probe;
  socklen_t size = sizeof *why;
  *why = 0;
  if (!connection_open(&probe, address)) {
    *why = errno;
  } else {
    struct pollfd wait = {.fd = probe.fd, .events = POLLOUT};
    if (poll(&wait, 1, CONNECT_TIMEOUT_MS) != 1) {
      *why = ETIMEDOUT;
    } else if (getsockopt(probe.fd, SOL_SOCKET, SO_ERROR, why, &size) != 0) {
      *why = errno;
    }
  }
  connection_close(&probe);
  return *why == 0;
}

int address_find(const char *url, server_address_t *out) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  if (!address_split(url, out)) {
    fprintf(stderr, "inferd-bench: '%s' is not http://HOST[:PORT][/PATH]\n", url);
    return EXIT_USAGE;
  }
  int code = getaddrinfo(out->host, out->port, &hints, &list), why = 0;
  if (code != 0) {
    fprintf(stderr, "inferd-bench: %s: %s\n", out->host, gai_strerror(code));
    return EXIT_HOST;
  }
  bool found = false;
  for (const struct addrinfo *one = list; one != NULL && !found; one = one->ai_next) {
    memcpy(&out->socket, one->ai_addr, one->ai_addrlen);
    out->socket_length = one->ai_addrlen;
    found = answers(out, &why);
  }
  freeaddrinfo(list);
  if (found) return 0;
  fprintf(stderr, "inferd-bench: %s: cannot connect: %s\n", url, strerror(why));
  return EXIT_UNAVAILABLE;
}

/* ---- requests ---- */

char *connection_request(const server_address_t *address, const char *method, const char *path,
                         const char *api_key, const char *body, size_t *length) {
  char *request = NULL, content[96] = "";
  if (body != NULL) {
    snprintf(content, sizeof content, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
             strlen(body));
  }
  int count =
      asprintf(&request, "%s %s%s HTTP/1.1\r\nHost: %s\r\n%s%s%s%s\r\n%s", method, address->path,
               path, address->authority, api_key != NULL ? "Authorization: Bearer " : "",
               api_key != NULL ? api_key : "", api_key != NULL ? "\r\n" : "", content,
               body != NULL ? body : "");
  if (count < 0) abort();
  *length = (size_t)count;
  return request;
}

/* ---- connections ---- */

bool connection_open(client_connection_t *connection, const server_address_t *address) {
  const struct sockaddr *socket_address = (const struct sockaddr *)(const void *)&address->socket;
  int one = 1;
  *connection = (client_connection_t){
      .fd = socket(socket_address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  bool open = connection->fd >= 0 &&
              (connect(connection->fd, socket_address, address->socket_length) == 0 ||
               errno == EINPROGRESS);
  if (!open) connection->error = strerror(errno);
  if (open) (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return open;
}

void connection_close(client_connection_t *connection) {
  if (connection->fd >= 0) close(connection->fd);
  connection->fd = -1;
}

void connection_begin(client_connection_t *connection, const char *request, size_t length,
                      void (*on_body)(void *, const char *, size_t), void *context) {
  connection->was_used = connection->request != NULL;
  connection->request = request;
  connection->length = length;
  connection->sent = 0;
  connection->heard = false;
  connection->error = NULL;
  response_begin(&connection->response, on_body, context);
}

static connection_progress_t fail(client_connection_t *connection, const char *why) {
  connection->error = why;
  return CONNECTION_FAILED;
}

connection_progress_t connection_send(client_connection_t *connection) {
  if (!connection_is_sending(connection)) return CONNECTION_WAITS;
  ssize_t put = send(connection->fd, connection->request + connection->sent,
                     connection->length - connection->sent, MSG_NOSIGNAL);
  if (put >= 0) connection->sent += (size_t)put;
  if (put >= 0 || errno == EAGAIN || errno == EINTR) return CONNECTION_WAITS;
  return fail(connection, strerror(errno));
}

connection_progress_t connection_receive(client_connection_t *connection) {
  static char buffer[READ_BYTES];
  response_t *response = &connection->response;
  ssize_t got = recv(connection->fd, buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return CONNECTION_WAITS;
  if (got < 0) return fail(connection, strerror(errno));
  if (got == 0) {
    return response_close(response) ? CONNECTION_DONE : fail(connection, response->error);
  }
  connection->heard = true;
  if (!response_feed(response, buffer, (size_t)got)) return fail(connection, response->error);
  return response_is_done(response) ? CONNECTION_DONE : CONNECTION_WAITS;
}

connection_progress_t connection_wait(client_connection_t *connection, int timeout_ms) {
  connection_progress_t progress = CONNECTION_WAITS;
  while (progress == CONNECTION_WAITS) {
    bool sends = connection_is_sending(connection);
    struct pollfd wait = {.fd = connection->fd, .events = (short)(POLLIN | (sends ? POLLOUT : 0))};
    if (poll(&wait, 1, timeout_ms) != 1) return fail(connection, "no answer in time");
    if (wait.revents & POLLOUT) progress = connection_send(connection);
    bool readable = (wait.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (progress == CONNECTION_WAITS && readable) progress = connection_receive(connection);
  }
  return progress;
}
