/* test_exchange.c: requests and answers over real sockets: framing, keep-alive, streams, refusals.
 */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(exchange, .timeout = 60);

#define POST_HEAD "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"

static int expect(const char *request) {
  char *answer = client_request(request);
  int status = status_of(answer);
  free(answer);
  return status;
}

Test(exchange, replies_and_keeps_the_connection) {
  harness_start(NULL);
  int fd = client_connect(harness_port(0));
  for (int i = 0; i < 3; i++) {
    char *text = client_post_text("/v1/completions", "X-Request-Id: abc.1\r\n", "{\"x\":1}");
    client_send(fd, text);
    free(text);
    char *answer = client_read(fd, "\"id\":\"abc.1\"}", 3000);
    ASSERT_EQ(status_of(answer), 200);
    cr_assert(strstr(answer, "{\"length\":7,") != NULL);
    cr_assert(strstr(answer, "x-request-id: abc.1\r\n") != NULL);
    cr_assert(strstr(answer, "openai-version: 2020-10-01\r\n") != NULL);
    cr_assert(strstr(answer, "openai-processing-ms: ") != NULL);
    free(answer);
  }
  close(fd);
  ASSERT_EQ(atomic_load(&seen.handled), 3);
  harness_stop();
}

Test(exchange, bad_request_ids_are_replaced) {
  harness_start(NULL);
  char *text = client_post_text("/completions", "X-Request-Id: a b\r\nConnection: close\r\n", "{}");
  char *answer = client_request(text);
  const char *id = strstr(answer, "x-request-id: ");
  cr_assert(id != NULL);
  ASSERT_EQ(strspn(id + 14, "0123456789abcdef"), 32);
  free(text);
  free(answer);
  harness_stop();
}

Test(exchange, pipelined_requests_are_answered_in_order) {
  harness_start(NULL);
  char *one = client_post_text("/v1/completions", "X-Request-Id: one\r\n", "{\"mode\":\"later\"}");
  char *two = client_post_text("/v1/completions", "", "{\"mode\":\"stream\",\"n\":3,\"ms\":2}");
  char *three =
      client_post_text("/v1/completions", "X-Request-Id: three\r\nConnection: close\r\n", "{}");
  int fd = client_connect(harness_port(0));
  client_send(fd, one);
  client_send(fd, two);
  client_send(fd, three);
  char *answer = client_read_all(fd, 5000);
  const char *first = strstr(answer, "{\"later\":true}");
  const char *second = strstr(answer, "[DONE]");
  const char *third = strstr(answer, "\"id\":\"three\"");
  cr_assert(first != NULL && second > first && third > second, "%s", answer);
  free(one), free(two), free(three), free(answer);
  close(fd);
  harness_stop();
}

Test(exchange, streams_chunked_and_ends) {
  harness_start(NULL);
  char *text = client_post_text("/v1/completions", "", "{\"mode\":\"stream\",\"n\":20,\"ms\":1}");
  int fd = client_connect(harness_port(0));
  for (int i = 0; i < 2; i++) { /* the connection survives a stream */
    client_send(fd, text);
    char *answer = client_read(fd, "\r\n0\r\n\r\n", 5000);
    ASSERT_EQ(status_of(answer), 200);
    cr_assert(strstr(answer, "Content-Type: text/event-stream; charset=utf-8\r\n") != NULL);
    cr_assert(strstr(answer, "Cache-Control: no-cache\r\n") != NULL);
    cr_assert(strstr(answer, "X-Accel-Buffering: no\r\n") != NULL);
    int events = 0;
    for (const char *p = answer; (p = strstr(p, "data: ")) != NULL; p++) events++;
    ASSERT_EQ(events, 21);
    free(answer);
  }
  free(text);
  close(fd);
  harness_stop();
}

/* A long stream gives memory of its connection back to the system. What it sends stays right, and
 * so does a request that has arrived behind it. */
Test(exchange, a_long_stream_keeps_what_it_needs) {
  enum { EVENTS = 60 };
  harness_start(NULL);
  char *one = client_post_text("/v1/completions", "",
                               "{\"mode\":\"stream\",\"n\":60,\"ms\":1,\"size\":300}");
  char *two = client_post_text("/v1/completions", "X-Request-Id: behind\r\n", "{}");
  int fd = client_connect(harness_port(0));
  for (int round = 0; round < 2; round++) {
    char both[2000];
    snprintf(both, sizeof both, "%s%s", one, two);
    client_send(fd, both);
    char *answer = client_read(fd, "\"id\":\"behind\"", 5000);
    const char *at = answer;
    for (int i = EVENTS; i > 0; i--) {
      at = strstr(at, "data: ");
      cr_assert(at != NULL && atoi(at + 6) == i, "event %d: %.300s", i, at);
      ASSERT_EQ_FOR(strspn(strchr(at + 6, ' '), " "), 299, "%.300s", at);
      at++;
    }
    cr_assert_not_null(strstr(at, "[DONE]"));
    free(answer);
  }
  free(one), free(two);
  close(fd);
  harness_stop();
}

Test(exchange, http_1_0_gets_no_chunks) {
  harness_start(NULL);
  char *answer = client_request("POST /v1/completions HTTP/1.0\r\nContent-Length: 31\r\n\r\n"
                                "{\"mode\":\"stream\",\"n\":3,\"ms\":1}\n");
  cr_assert(strstr(answer, " 200 OK\r\n") != NULL);
  ASSERT_EQ(strstr(answer, "chunked"), NULL);
  const char *body = strstr(answer, "\r\n\r\n");
  cr_assert(body != NULL);
  cr_assert(strncmp(body + 4, "data: 3", 7) == 0);
  cr_assert(strstr(answer, "data: [DONE]\n\n") != NULL);
  free(answer);
  harness_stop();
}

Test(exchange, chunked_upload_in_single_bytes) {
  harness_start(NULL);
  int fd = client_connect(harness_port(0));
  client_send(fd, POST_HEAD "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 50; i++) client_send(fd, "1\r\nx\r\n");
  client_send(fd, "0\r\nTrailer: yes\r\n\r\n");
  char *answer = client_read(fd, "}", 3000);
  cr_assert(strstr(answer, "{\"length\":50,") != NULL, "%s", answer);
  free(answer);
  close(fd);
  harness_stop();
}

Test(exchange, ambiguous_framing_is_refused) {
  harness_start(NULL);
  EXPECT_EQ(expect(POST_HEAD "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Transfer-Encoding: xchunked\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Transfer-Encoding: identity\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "Content-Length : 2\r\n\r\n{}"), 400);
  EXPECT_EQ(expect(POST_HEAD "X: a\x01"
                             "b\r\nContent-Length: 2\r\n\r\n{}"),
            400);
  EXPECT_EQ(expect(POST_HEAD "Host: other\r\nContent-Length: 2\r\n\r\n{}"), 400);
  EXPECT_EQ(expect("POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"), 400);
  EXPECT_EQ(expect("GET /v1/models/a%00b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
            400);
  EXPECT_EQ(expect("GET /v1/models/a%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
            400);
  EXPECT_EQ(atomic_load(&seen.handled), 0);
  EXPECT_EQ(expect(POST_HEAD "Connection: close\r\nContent-Length: 2\r\n\r\n{}"), 200);
  harness_stop();
}

Test(exchange, refuses_before_the_body) {
  harness_start((const char *[]){"--api-key=secret", "--max-body-bytes=1MiB", NULL});
  /* Only headers are sent: the answer must not wait for the body. */
  EXPECT_EQ(expect(POST_HEAD "Content-Length: 100\r\n\r\n"), 401);
  EXPECT_EQ(expect(POST_HEAD "Authorization: Bearer wrong\r\nContent-Length: 100\r\n\r\n"), 401);
#define KEYED POST_HEAD "Authorization: bearer secret\r\n"
  EXPECT_EQ(expect(KEYED "Content-Type: text/plain\r\nContent-Length: 100\r\n\r\n"), 415);
  EXPECT_EQ(expect(KEYED "Content-Type: application/json; charset=latin1\r\n"
                         "Content-Length: 100\r\n\r\n"),
            415);
  EXPECT_EQ(expect(KEYED "Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n"), 415);
  EXPECT_EQ(expect(KEYED "Content-Length: 1048577\r\n\r\n"), 413);
  EXPECT_EQ(expect(KEYED "Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"), 413);
  EXPECT_EQ(expect("GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 401);
  EXPECT_EQ(atomic_load(&seen.handled), 0);
  EXPECT_EQ(expect(KEYED
                   "Connection: close\r\nContent-Type: application/vnd.x+json; charset=UTF-8\r\n"
                   "Content-Length: 2\r\n\r\n{}"),
            200);
  harness_stop();
}

/* Below /api/ errors are one text, and a client that is no web page may send the type of a form, as
 * curl does unless it is told otherwise. A page of another site may not: it would need no
 * preflight.
 */
Test(exchange, ollamas_words_below_api) {
  static const struct {
    const char *request;
    int status;
    const char *part;
  } rows[] = {
#define FORM "Content-Type: application/x-www-form-urlencoded\r\n"
#define HEAD(path) "POST " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      {HEAD("/api/chat") FORM "Content-Length: 2\r\n\r\n{}", 400, "{\"error\":\"Not yet.\"}"},
      {HEAD("//api/chat/") "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n", 415,
       "{\"error\":\"Content-Type must be"},
      {HEAD("/api/chat") FORM "Origin: http://localhost:3000\r\nContent-Length: 2\r\n\r\n", 415,
       "{\"error\":\"Content-Type must be"},
      {HEAD("/v1/chat/completions") FORM "Content-Length: 2\r\n\r\n", 415, "\"param\":null"},
      {"GET /api/chat HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
       "{\"error\":\"Method not allowed"},
      {HEAD("/api/create") "Content-Length: 0\r\n\r\n", 404, "{\"error\":\"inferd does not serve"},
      {"GET /api/zebra HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404,
       "{\"error\":\"Unknown request URL"},
      {"GET /apis HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404,
       "\"code\":\"unknown_url\""}};
  harness_start((const char *[]){"--cors-origin=localhost", NULL});
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *answer = client_request(rows[i].request);
    EXPECT_EQ_FOR(status_of(answer), rows[i].status, "%s", rows[i].request);
    cr_expect(strstr(answer, rows[i].part) != NULL, "%s", answer);
    free(answer);
  }
  harness_stop();
}

#define LOAD_HEAD                                                                                  \
  "POST /v1/load_lora_adapter HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"                \
  "Content-Type: application/json\r\nContent-Length: 2\r\n"

/* The answer to a request on a connection of its own: its status, and whether `part` is in it. */
static void expect_on(int fd, const char *text, int status, const char *part) {
  client_send(fd, text);
  char *answer = client_read_all(fd, 4000);
  EXPECT_EQ_FOR(status_of(answer), status, "%s: %s", text, answer);
  cr_expect(strstr(answer, part) != NULL, "'%s' is not in %s", part, answer);
  free(answer);
  close(fd);
}

static void expect_over_tcp(const char *text, int status, const char *part) {
  expect_on(client_connect(harness_port(0)), text, status, part);
}

/* The handler behind the route answers 400 unsupported_endpoint. */
Test(exchange, operators_need_an_admin_key) {
  harness_start((const char *[]){"--api-key=client", "--admin-key=root", NULL});
  for (int i = 0; i < 4; i++) {
    static const char *const paths[] = {"/v1/load_lora_adapter", "/load_lora_adapter",
                                        "/v1/unload_lora_adapter", "//unload_lora_adapter/"};
    char text[300];
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Connection: close\r\nAuthorization: Bearer client\r\nContent-Length: 2\r\n\r\n{}",
             paths[i]);
    expect_over_tcp(text, 403, "\"code\":\"admin_key_required\"}}");
  }
  expect_over_tcp(LOAD_HEAD "\r\n{}", 401, "invalid_api_key");
  expect_over_tcp(LOAD_HEAD "Authorization: Bearer x\r\n\r\n{}", 401, "invalid_api_key");
  expect_over_tcp(LOAD_HEAD "Authorization: Bearer client\r\n\r\n{}", 403, "(--admin-key)");
  expect_over_tcp(LOAD_HEAD "Authorization: Bearer root\r\n\r\n{}", 400, "unsupported_endpoint");
  /* An admin key opens the routes of clients too. */
  EXPECT_EQ(expect(POST_HEAD "Connection: close\r\nAuthorization: Bearer root\r\n"
                             "Content-Length: 2\r\n\r\n{}"),
            200);
  harness_stop();
}

Test(exchange, operators_without_api_keys) {
  harness_start((const char *[]){"--admin-key=root", "--metrics-auth=admin", NULL});
  expect_over_tcp(LOAD_HEAD "\r\n{}", 401, "You didn't provide an admin key.");
  expect_over_tcp(LOAD_HEAD "Authorization: Bearer x\r\n\r\n{}", 401, "Incorrect admin key");
  expect_over_tcp(LOAD_HEAD "Authorization: Bearer root\r\n\r\n{}", 400, "unsupported_endpoint");
#define METRICS_HEAD "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
  expect_over_tcp(METRICS_HEAD "\r\n", 401, "invalid_api_key");
  expect_over_tcp(METRICS_HEAD "Authorization: Bearer root\r\n\r\n", 200, "x 1");
  EXPECT_EQ(expect(POST_HEAD "Connection: close\r\nContent-Length: 2\r\n\r\n{}"), 200);
  harness_stop();
  harness_start(
      (const char *[]){"--api-key=client", "--admin-key=root", "--metrics-auth=admin", NULL});
  expect_over_tcp(METRICS_HEAD "Authorization: Bearer client\r\n\r\n", 403, "admin_key_required");
  harness_stop();
}

Test(exchange, without_an_admin_key_a_unix_socket_is_needed) {
  char path[64], flag[80];
  snprintf(path, sizeof path, "/tmp/inferd-admin-%d.sock", (int)getpid());
  snprintf(flag, sizeof flag, "--listen=unix:%s", path);
  harness_start((const char *[]){"--listen=127.0.0.1:0", flag, "--api-key=client", NULL});
#define KEYED_LOAD LOAD_HEAD "Authorization: Bearer client\r\n\r\n{}"
  expect_over_tcp(KEYED_LOAD, 403, "see --admin-key and --uds.");
  expect_over_tcp(LOAD_HEAD "\r\n{}", 401, "invalid_api_key");
  expect_on(client_connect_unix(path), KEYED_LOAD, 400, "unsupported_endpoint");
  expect_on(client_connect_unix(path), LOAD_HEAD "\r\n{}", 401, "invalid_api_key");
  harness_stop();
  /* With an admin key the UNIX socket is no exception. */
  harness_start((const char *[]){"--listen=127.0.0.1:0", flag, "--admin-key=root", NULL});
  expect_on(client_connect_unix(path), LOAD_HEAD "\r\n{}", 401, "admin key");
  harness_stop();
}

Test(exchange, early_refusal_survives_a_client_that_keeps_sending) {
  harness_start((const char *[]){"--api-key=secret", NULL});
  char *body = malloc(600001);
  memset(body, 'x', 600000);
  body[600000] = '\0';
  for (int i = 0; i < 20; i++) {
    char *text = client_post_text("/v1/completions", "", body);
    char *answer = client_request(text);
    ASSERT_EQ(status_of(answer), 401);
    cr_assert(strstr(answer, "\"code\":\"invalid_api_key\"}}") != NULL);
    cr_assert(strstr(answer, "WWW-Authenticate: Bearer\r\n") != NULL);
    free(text);
    free(answer);
  }
  free(body);
  harness_stop();
}

Test(exchange, chunked_overflow_in_the_middle_is_413) {
  harness_start((const char *[]){"--max-body-bytes=100000", NULL});
  int fd = client_connect(harness_port(0));
  client_send(fd, POST_HEAD "Transfer-Encoding: chunked\r\n\r\n");
  char piece[4096 + 16];
  memset(piece, 'x', sizeof piece);
  memcpy(piece, "1000\r\n", 6);
  memcpy(piece + 6 + 4096, "\r\n", 2);
  for (int i = 0; i < 40; i++) client_send_bytes(fd, piece, 6 + 4096 + 2);
  char *answer = client_read_all(fd, 4000);
  ASSERT_EQ_FOR(status_of(answer), 413, "%s", answer);
  cr_assert(strstr(answer, "body_too_large") != NULL);
  free(answer);
  close(fd);
  ASSERT_EQ(atomic_load(&seen.handled), 0);
  cr_assert(wait_for(&seen.metrics, 1, 1000));
  ASSERT_EQ(atomic_load(&seen.last_status), 413);
  harness_stop();
}

/* Adapter requests are parsed on the loop thread, so their bodies are small. */
Test(exchange, adapter_bodies_are_small) {
  static const char *const paths[] = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                                      "/load_lora_adapter", "/unload_lora_adapter"};
  harness_start((const char *[]){"--admin-key=boss", NULL});
  for (int i = 0; i < 4; i++) {
    for (int length = 65536; length <= 65537; length++) {
      char *text = NULL;
      ASSERT_GT(asprintf(&text,
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Authorization: Bearer boss\r\nContent-Type: application/json\r\n"
                         "Content-Length: %d\r\n\r\n%*s",
                         paths[i], length, length, "{}"),
                0);
      char *answer = client_request(text);
      ASSERT_EQ_FOR(status_of(answer), length == 65536 ? 400 : 413, "%s", answer);
      if (length > 65536) cr_assert_not_null(strstr(answer, "larger than 65536 bytes"));
      free(answer), free(text);
    }
  }
  harness_stop();
}

Test(exchange, all_bodies_together_are_bounded) {
  harness_start((const char *[]){"--max-body-bytes=1MiB", "--max-request-memory=1MiB", NULL});
  char *block = malloc(800000);
  memset(block, 'x', 800000);
  int fd[2];
  for (int i = 0; i < 2; i++) {
    fd[i] = client_connect(harness_port(0));
    client_send(fd[i], POST_HEAD "Content-Length: 800001\r\n\r\n");
    client_send_bytes(fd[i], block, 800000);
  }
  char *answer = client_read_all(fd[1], 2000);
  char *first = client_read(fd[0], "\r\n\r\n", 50);
  cr_assert(status_of(answer) == 503 || status_of(first) == 503);
  free(answer), free(first), free(block);
  close(fd[0]), close(fd[1]);
  usleep(100000);
  ASSERT_EQ(expect(POST_HEAD "Connection: close\r\nContent-Length: 2\r\n\r\n{}"), 200);
  harness_stop();
}

/* A long prompt counts while it is read, not for as long as its answer takes. */
Test(exchange, a_dropped_body_is_not_counted) {
  harness_start((const char *[]){"--max-body-bytes=1MiB", "--max-request-memory=1MiB", NULL});
  char *padding = malloc(800001), *body = NULL;
  memset(padding, ' ', 800000);
  padding[800000] = '\0';
  const char *const modes[] = {"\"wait\",\"drop\":1", "\"wait\"", "\"reply\""};
  const int wanted[] = {0, 0, 503}; /* 0: no answer yet */
  int fd[3];
  for (int i = 0; i < 3; i++) {
    ASSERT_GT(asprintf(&body, "{\"mode\":%s}%s", modes[i], padding), 0);
    char *text = client_post_text("/v1/completions", "", body);
    fd[i] = client_connect(harness_port(0));
    client_send(fd[i], text);
    char *answer = client_read(fd[i], "\r\n\r\n", wanted[i] == 0 ? 50 : 2000);
    ASSERT_EQ_FOR(status_of(answer), wanted[i], "%d: %s", i, answer);
    cr_assert(wanted[i] != 0 || wait_for(&seen.live, i + 1, 2000));
    free(answer), free(text), free(body);
  }
  for (int i = 0; i < 3; i++) close(fd[i]);
  free(padding);
  harness_stop();
}

/* The clients leave at once, and the job still has their bodies: these count until it frees them.
 */
Test(exchange, a_body_counts_as_long_as_it_is_held) {
  enum { CLIENTS = 5, BODY_BYTES = 200000 };
  harness_start((const char *[]){"--max-body-bytes=1MiB", "--max-request-memory=1MiB", NULL});
  char *body = malloc(BODY_BYTES + 1);
  memset(body, ' ', BODY_BYTES);
  memcpy(body, "{\"mode\":\"wait\",\"keep\":1}", 24);
  body[BODY_BYTES] = '\0';
  char *text = client_post_text("/v1/completions", "", body);
  for (int i = 0; i < CLIENTS; i++) {
    int fd = client_connect(harness_port(0));
    client_send(fd, text);
    cr_assert(wait_for(&seen.handled, i + 1, 2000));
    close(fd);
    cr_assert(wait_for(&seen.gone, i + 1, 2000));
    harness_stats();
    ASSERT_EQ(atomic_load(&seen.kept), (i + 1) * (BODY_BYTES + 1));
    ASSERT_EQ(atomic_load(&seen.held), atomic_load(&seen.kept));
  }
  char *answer = client_request(text);
  ASSERT_EQ_FOR(status_of(answer), 503, "%s", answer);
  cr_assert(strstr(answer, "max_request_memory, 1048576 bytes") != NULL, "%s", answer);
  cr_assert(strstr(answer, "Retry-After: ") != NULL, "%s", answer);
  free(answer), free(text), free(body);
  harness_let_go();
  harness_stats();
  ASSERT_EQ(atomic_load(&seen.held), 0);
  ASSERT_EQ(expect(POST_HEAD "Connection: close\r\nContent-Length: 2\r\n\r\n{}"), 200);
  harness_stop();
}

Test(exchange, expect_continue_is_honoured_after_the_checks) {
  harness_start(NULL);
  int fd = client_connect(harness_port(0));
  client_send(fd, POST_HEAD "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  char *go = client_read(fd, "\r\n\r\n", 2000);
  cr_assert(strstr(go, "100 Continue") != NULL);
  client_send(fd, "{}");
  char *answer = client_read(fd, "}", 2000);
  ASSERT_EQ(status_of(answer), 200);
  free(go), free(answer);
  close(fd);
  harness_stop();
}

Test(exchange, methods_and_routes) {
  harness_start(NULL);
#define PLAIN(method, path)                                                                        \
  method " " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
  char *answer = client_request(PLAIN("GET", "/v1/completions"));
  EXPECT_EQ(status_of(answer), 405);
  cr_expect(strstr(answer, "Allow: POST, OPTIONS\r\n") != NULL);
  free(answer);
  answer = client_request(PLAIN("HEAD", "/health"));
  EXPECT_EQ(status_of(answer), 200);
  cr_expect(strstr(answer, "Content-Length: 15\r\n") != NULL);
  EXPECT_EQ(strstr(answer, "status"), NULL);
  free(answer);
  answer = client_request(PLAIN("OPTIONS", "/ping"));
  EXPECT_EQ(status_of(answer), 204);
  cr_expect(strstr(answer, "Allow: GET, HEAD, POST, OPTIONS\r\n") != NULL);
  free(answer);
  answer = client_request(PLAIN("GET", "/v1/responses/resp_1"));
  EXPECT_EQ(status_of(answer), 404);
  cr_expect(strstr(answer, "\"code\":\"unsupported_endpoint\"") != NULL);
  cr_expect(strstr(answer, "x-should-retry: false\r\n") != NULL);
  free(answer);
  answer = client_request(PLAIN("GET", "//v1/models/org%2Fname/?x=1"));
  EXPECT_EQ(status_of(answer), 200);
  cr_expect(strstr(answer, "{\"id\":\"org/name\"}") != NULL);
  free(answer);
  EXPECT_EQ(expect(PLAIN("BREW", "/v1/models")), 405);
  EXPECT_EQ(expect(PLAIN("GET", "http://localhost/version")), 200);
  harness_stop();
}

Test(exchange, body_less_refusals_keep_the_connection) {
  harness_start(NULL);
  int fd = client_connect(harness_port(0));
  for (int i = 0; i < 3; i++) {
    client_send(fd, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
    char *answer = client_read(fd, "}}", 2000);
    ASSERT_EQ(status_of(answer), 404);
    free(answer);
  }
  close(fd);
  harness_stop();
}

/* The engine's thread says that it is ready a moment before the loop has done what follows. */
Test(exchange, no_request_is_taken_before_the_start_has_ended) {
  atomic_store(&fake_starting, true);
  harness_start(NULL);
  char *text = client_post_text("/v1/completions", "Connection: close\r\n", "{}");
  char *answer = client_request(text);
  EXPECT_EQ(status_of(answer), 503);
  cr_expect(strstr(answer, "\"code\":\"model_loading\"") != NULL);
  free(answer);
  free(text);
  harness_stop();
}

Test(exchange, state_of_the_engine_decides) {
  atomic_store(&fake_engine_state, ENGINE_LOADING);
  harness_start(NULL);
  char *text = client_post_text("/v1/completions", "Connection: close\r\n", "{}");
  char *answer = client_request(text);
  EXPECT_EQ(status_of(answer), 503);
  cr_expect(strstr(answer, "\"code\":\"model_loading\"") != NULL);
  cr_expect(strstr(answer, "Retry-After: ") != NULL);
  cr_expect(strstr(answer, "retry-after-ms: ") != NULL);
  free(answer);
  EXPECT_EQ(expect("GET /livez HTTP/1.0\r\n\r\n") +
                expect("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
            200 + 200);
  atomic_store(&fake_engine_state, ENGINE_FAILED);
  answer = client_request(text);
  EXPECT_EQ(status_of(answer), 503);
  cr_expect(strstr(answer, "device_failed") != NULL);
  free(answer);
  atomic_store(&fake_engine_state, ENGINE_READY);
  free(text);
  text = client_post_text("/v1/completions", "Connection: close\r\n", "{\"mode\":\"full\"}");
  answer = client_request(text);
  EXPECT_EQ(status_of(answer), 429);
  cr_expect(strstr(answer, "Retry-After: 7\r\n") != NULL);
  cr_expect(strstr(answer, "retry-after-ms: 7000\r\n") != NULL);
  EXPECT_EQ(strstr(answer, "x-should-retry"), NULL);
  free(answer);
  free(text);
  harness_stop();
}
