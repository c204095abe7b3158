/* client.c: one request of a running server.
 *
 * Main thread of a command. It asks in HTTP/1.0, so that the end of the connection is the end of
 * the answer and no chunks have to be read.
 */
#include "server/client.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/http/http.h"
#include "server/tls/client.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool set_path(client_target_t *target, const char *path) {
  int n = snprintf(target->path, sizeof target->path, "%s", path);
  snprintf(target->shown, sizeof target->shown, "unix:%s", target->path);
  return n > 0 && (size_t)n < sizeof target->path;
}

/* `address` is HOST:PORT, as http_split_address takes it. A server that listens on all addresses is
 * asked on loopback. */
static bool set_address(client_target_t *target, const char *address) {
  char host[HTTP_HOST_MAX], port[HTTP_PORT_MAX];
  if (!http_split_address(address, host, port)) return false;
  const char *asked = host;
  if (host[0] == '\0' || strcmp(host, "0.0.0.0") == 0) asked = "127.0.0.1";
  if (strcmp(host, "::") == 0) asked = "::1";
  snprintf(target->host, sizeof target->host, "%s", asked);
  snprintf(target->port, sizeof target->port, "%s", port);
  snprintf(target->shown, sizeof target->shown, "%s%.280s", target->tls ? "https://" : "", address);
  return true;
}

bool client_target_of(const config_t *config, client_target_t *out) {
  char text[HTTP_HOST_MAX + HTTP_PORT_MAX];
  *out = (client_target_t){.host = ""};
  /* A list of --listen takes the place of --host and --port, unless one of these was given. */
  bool named = config_given(config, OPTION_host) || config_given(config, OPTION_port);
  out->tls = config->tls_cert[0] != '\0';
  snprintf(text, sizeof text, "%.255s:%d", config->host, (int)config->port);
  const char *where = !named && config->listen.count > 0 ? config->listen.items[0] : text;
  const char *path = strncmp(where, "unix:", 5) == 0 ? where + 5 : NULL;
  if (config->uds[0] != '\0') path = config->uds;
  if (path != NULL ? set_path(out, path) : set_address(out, where)) return true;
  fputs("inferd: --host, --port, --uds and --listen name no address\n", stderr);
  return false;
}

/* HOST:PORT, http://HOST[:PORT][/ROOT], the same with https, or unix:PATH; false: no such form. */
static bool read_target(const char *url, client_target_t *out) {
  char address[HTTP_HOST_MAX + HTTP_PORT_MAX];
  *out = (client_target_t){.host = ""};
  if (strncmp(url, "unix:", 5) == 0) return set_path(out, url + 5);
  out->tls = out->verify = strncmp(url, "https://", 8) == 0;
  bool bare = !out->tls && strncmp(url, "http://", 7) != 0;    /* HOST:PORT */
  const char *authority = url + (out->tls ? 8 : bare ? 0 : 7); /* HOST or HOST:PORT */
  size_t length = strcspn(authority, "/");
  const char *prefix = authority + length;
  if (length == 0 || length >= HTTP_HOST_MAX) return false;
  bool has_port = authority[0] == '[' ? strstr(authority, "]:") != NULL
                                      : memchr(authority, ':', length) != NULL;
  if (bare && !has_port) return false;
  const char *usual_port = out->tls ? ":443" : ":80";
  snprintf(address, sizeof address, "%.*s%s", (int)length, authority, has_port ? "" : usual_port);
  int n = snprintf(out->prefix, sizeof out->prefix, "%s", prefix);
  while (n > 0 && n < (int)sizeof out->prefix && out->prefix[n - 1] == '/') out->prefix[--n] = '\0';
  return n < (int)sizeof out->prefix && set_address(out, address);
}

bool client_target_asked(const config_t *config, client_target_t *out) {
  /* A word that is no flag is the model where there is one. */
  const char *word = config->models.count > 0 ? config->models.items[0] : config->model;
  if (config->origin[OPTION_model].source != SOURCE_FLAG) return client_target_of(config, out);
  if (config->models.count == 0 && read_target(word, out)) return true;
  fprintf(stderr,
          "inferd: '%.200s' is no address of one server; accepted: HOST:PORT, "
          "http[s]://HOST[:PORT], unix:PATH\n",
          word);
  return false;
}

static int connect_unix(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -1;
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static int connect_tcp(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
  int fd = -1;
  for (const struct addrinfo *info = found; info != NULL && fd < 0; info = info->ai_next) {
    fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) != 0) {
      close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  return fd;
}

static bool send_request(int fd, tls_link_t *link, const client_target_t *target, const char *path,
                         const char *key, const char *post) {
  char *text = NULL, content[96] = "";
  if (post != NULL)
    snprintf(content, sizeof content, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
             strlen(post));
  bool v6 = strchr(target->host, ':') != NULL;
  int n = asprintf(&text, "%s %s%s HTTP/1.0\r\nHost: %s%s%s%s%s\r\n%s%s%s%s\r\n%s",
                   post != NULL ? "POST" : "GET", target->prefix, path, v6 ? "[" : "",
                   target->path[0] != '\0' ? "localhost" : target->host, v6 ? "]" : "",
                   target->path[0] != '\0' ? "" : ":", target->port,
                   key != NULL ? "Authorization: Bearer " : "", key != NULL ? key : "",
                   key != NULL ? "\r\n" : "", content, post != NULL ? post : "");
  ssize_t done = n <= 0         ? -1
                 : link != NULL ? tls_link_send(link, text, (size_t)n)
                                : send(fd, text, (size_t)n, MSG_NOSIGNAL);
  bool sent = n > 0 && done == n;
  if (n >= 0) free(text);
  return sent;
}

/* Reads to the end of the connection; NULL if that does not come within CLIENT_TIMEOUT_MS, or the
 * answer is longer than CLIENT_BODY_BYTES_MAX, or there is no memory for it. */
static char *receive(int fd, tls_link_t *link) {
  uint64_t end_ns = clock_now_ns() + (uint64_t)CLIENT_TIMEOUT_MS * 1000000;
  size_t used = 0, capacity = 64 * 1024;
  char *text = calloc(1, capacity);
  struct pollfd state = {.fd = fd, .events = POLLIN};
  while (text != NULL && clock_now_ns() < end_ns) {
    int left_ms = (int)((end_ns - clock_now_ns()) / 1000000);
    bool more = link != NULL && tls_link_has_more(link);
    if (!more && poll(&state, 1, left_ms) != 1) continue;
    size_t room = capacity - 1 - used;
    ssize_t got =
        link != NULL ? tls_link_receive(link, text + used, room) : recv(fd, text + used, room, 0);
    if (got < 0) break;
    used += (size_t)got;
    text[used] = '\0';
    if (got == 0) return text;
    if (used < capacity - 1) continue;
    char *larger = capacity < CLIENT_BODY_BYTES_MAX ? reallocarray(text, capacity, 2) : NULL;
    if (larger == NULL) break;
    text = larger;
    capacity *= 2;
  }
  free(text);
  return NULL;
}

int client_ask(const client_target_t *target, const char *path, const char *key, const char *post,
               char **body, const char **why) {
  *body = NULL;
  *why = NULL;
  tls_link_t *link = NULL;
  char *text = NULL;
  int fd = target->path[0] != '\0' ? connect_unix(target->path)
                                   : connect_tcp(target->host, target->port);
  if (fd < 0) return 0;
  if (target->tls) {
    link = tls_link_open(fd, target->verify ? target->host : NULL, CLIENT_TIMEOUT_MS, why);
  }
  if ((!target->tls || link != NULL) && send_request(fd, link, target, path, key, post)) {
    text = receive(fd, link);
  }
  tls_link_close(link);
  close(fd);
  char *end = text != NULL ? strstr(text, "\r\n\r\n") : NULL;
  bool is_http = end != NULL && strncmp(text, "HTTP/1.", 7) == 0;
  int status = is_http ? atoi(text + strlen("HTTP/1.1 ")) : -1;
  if (status < 100) {
    free(text);
    return -1;
  }
  memmove(text, end + 4, strlen(end + 4) + 1);
  *body = text;
  return status;
}

int client_get(const client_target_t *target, const char *path, const char *key, char **body,
               const char **why) {
  return client_ask(target, path, key, NULL, body, why);
}
