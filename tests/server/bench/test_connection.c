/* test_connection.c: URLs, requests, and connections to a small server in this process. */
#include "server/bench/connection.c"

#include <criterion/criterion.h>
#include <pthread.h>

typedef struct url_case {
  const char *url, *host, *port, *path, *authority; /* host NULL = refused */
} url_case_t;

Test(connection, urls_are_split) {
  static const url_case_t cases[] = {
      {"http://127.0.0.1:8000", "127.0.0.1", "8000", "", "127.0.0.1:8000"},
      {"http://127.0.0.1:8000/", "127.0.0.1", "8000", "", "127.0.0.1:8000"},
      {"http://host/v1", "host", "80", "", "host:80"},
      {"http://host:1/v1/", "host", "1", "", "host:1"},
      {"http://host/proxy/a/v1", "host", "80", "/proxy/a", "host:80"},
      {"http://[::1]:8000/v1", "::1", "8000", "", "[::1]:8000"},
      {"https://host", NULL, NULL, NULL, NULL},
      {"host:8000", NULL, NULL, NULL, NULL},
      {"http://", NULL, NULL, NULL, NULL},
      {"http://host:", NULL, NULL, NULL, NULL},
      {"http://host:x", NULL, NULL, NULL, NULL},
      {"http://host?x", NULL, NULL, NULL, NULL},
      {"http://user@host", NULL, NULL, NULL, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const url_case_t *want = &cases[i];
    server_address_t got;
    cr_assert_eq(address_split(want->url, &got), want->host != NULL, "%s", want->url);
    if (want->host == NULL) continue;
    cr_assert_str_eq(got.host, want->host, "%s: %s", want->url, got.host);
    cr_assert_str_eq(got.port, want->port, "%s: %s", want->url, got.port);
    cr_assert_str_eq(got.path, want->path, "%s: %s", want->url, got.path);
    cr_assert_str_eq(got.authority, want->authority, "%s: %s", want->url, got.authority);
  }
}

Test(connection, a_request_says_where_who_and_how_long) {
  server_address_t address;
  size_t length;
  cr_assert(address_split("http://host:8000/p/v1", &address));
  char *request = connection_request(&address, "POST", "/v1/completions", "key", "{}", &length);
  cr_assert_str_eq(request, "POST /p/v1/completions HTTP/1.1\r\nHost: host:8000\r\n"
                            "Authorization: Bearer key\r\nContent-Type: application/json\r\n"
                            "Content-Length: 2\r\n\r\n{}");
  cr_assert_eq(length, strlen(request));
  free(request);
  request = connection_request(&address, "GET", "/v1/models", NULL, NULL, &length);
  cr_assert_str_eq(request, "GET /p/v1/models HTTP/1.1\r\nHost: host:8000\r\n\r\n");
  free(request);
}

/* Answers two requests on the second connection that comes (the first one only looks whether
 * anybody is there), then closes it. */
typedef struct server {
  int listener;
  char url[64];
  char seen[2][256];
} server_t;

static void serve_one(server_t *server, int fd, int index) {
  static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes";
  size_t length = 0;
  while (strstr(server->seen[index], "\r\n\r\n") == NULL) {
    ssize_t got =
        recv(fd, server->seen[index] + length, sizeof server->seen[index] - 1 - length, 0);
    if (got <= 0) return;
    length += (size_t)got;
  }
  (void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
}

static void *serve(void *context) {
  server_t *server = context;
  close(accept(server->listener, NULL, NULL));
  int fd = accept(server->listener, NULL, NULL);
  for (int i = 0; i < 2; i++) serve_one(server, fd, i);
  close(fd);
  return NULL;
}

static void listen_here(server_t *server) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  *server = (server_t){.listener = socket(AF_INET, SOCK_STREAM, 0)};
  struct sockaddr *generic = (struct sockaddr *)(void *)&address;
  cr_assert_eq(bind(server->listener, generic, length), 0);
  cr_assert_eq(listen(server->listener, 4), 0);
  cr_assert_eq(getsockname(server->listener, generic, &length), 0);
  snprintf(server->url, sizeof server->url, "http://localhost:%d", ntohs(address.sin_port));
}

static void count_bytes(void *context, const char *bytes, size_t count) {
  (void)bytes;
  *(size_t *)context += count;
}

Test(connection, carries_one_request_after_the_other_until_the_server_closes) {
  server_t server;
  server_address_t address;
  client_connection_t connection;
  pthread_t thread;
  size_t length, received = 0;
  listen_here(&server);
  cr_assert_eq(pthread_create(&thread, NULL, serve, &server), 0);
  cr_assert_eq(address_find(server.url, &address), 0); /* localhost may be ::1 first */
  char *request = connection_request(&address, "GET", "/v1/models", NULL, NULL, &length);
  cr_assert(connection_open(&connection, &address));
  for (int i = 0; i < 2; i++) {
    connection_begin(&connection, request, length, count_bytes, &received);
    cr_assert_eq(connection.was_used, i > 0);
    cr_assert_eq(connection_wait(&connection, 10000), CONNECTION_DONE, "%s", connection.error);
    cr_assert_eq(connection.response.status, 200);
    cr_assert(connection.response.keeps_alive);
    cr_assert_eq(received, 3u * (unsigned)(i + 1));
    cr_assert_str_eq(server.seen[i], request);
  }
  pthread_join(thread, NULL);
  connection_begin(&connection, request, length, count_bytes, &received);
  cr_assert_eq(connection_wait(&connection, 10000), CONNECTION_FAILED);
  cr_assert(!connection.heard);
  connection_close(&connection);
  close(server.listener);
  free(request);
}

Test(connection, nobody_there_is_an_error_with_an_exit_code) {
  server_t server;
  server_address_t address;
  listen_here(&server);
  close(server.listener);
  cr_assert_eq(address_find(server.url, &address), 69);
  cr_assert_eq(address_find("https://localhost", &address), 64);
}
