/* test_connection.c: connections: clients that vanish, stall, flood or come in too great a number;
 * listeners; drain.
 */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(connection, .timeout = 120);

#define WAIT "{\"mode\":\"wait\"}"
#define GET_HEALTH "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

/* Starts a completion on a new connection and returns it once the handler has it. */
static int begin(const char *body) {
  int before = atomic_load(&seen.handled);
  int fd = client_connect(harness_port(0));
  char *text = client_post_text("/v1/completions", "", body);
  client_send(fd, text);
  free(text);
  cr_assert(wait_for(&seen.handled, before + 1, 3000));
  return fd;
}

static int health_status(void) {
  char *answer = client_request(GET_HEALTH);
  int status = status_of(answer);
  free(answer);
  return status;
}

static bool all_closed(void) {
  for (int i = 0; i < 6000; i++) {
    harness_stats();
    if (atomic_load(&seen.connections) == 0) return true;
    usleep(10000);
  }
  fprintf(stderr, "left: %d connections, %d streaming, %d waiting, live %d\n",
          atomic_load(&seen.connections), atomic_load(&seen.streaming), atomic_load(&seen.waiting),
          atomic_load(&seen.live));
  return false;
}

/* ---- clients that vanish ---- */

/* The promise is 50 ms; the bound here leaves room for a machine that is busy with other tests. */
static void expect_noticed(int fd, bool reset) {
  uint64_t start = now_ns();
  if (reset) {
    client_reset(fd);
  } else {
    close(fd);
  }
  cr_assert(wait_for(&seen.gone, 1, 3000), "nobody noticed");
  double ms = (double)(atomic_load(&seen.gone_ns) - start) / 1e6;
  EXPECT_LT_FOR(ms, 1000, "took %.1f ms", ms);
  EXPECT_STR_EQ(atomic_load(&seen.cause), "client_gone");
  cr_expect(wait_for(&seen.live, 0, 1000));
  cr_expect(all_closed());
}

Test(connection, killed_client_of_a_waiting_request_is_noticed) {
  harness_start(NULL);
  expect_noticed(begin(WAIT), false);
  harness_stop();
}

Test(connection, reset_client_of_a_waiting_request_is_noticed) {
  harness_start(NULL);
  expect_noticed(begin(WAIT), true);
  harness_stop();
}

Test(connection, killed_client_of_a_silent_stream_is_noticed) {
  harness_start(NULL);
  expect_noticed(begin("{\"mode\":\"stream\",\"n\":5,\"ms\":60000}"), false);
  harness_stop();
}

Test(connection, killed_client_of_a_busy_stream_is_noticed) {
  harness_start(NULL);
  expect_noticed(begin("{\"mode\":\"stream\",\"n\":100000,\"ms\":1}"), true);
  harness_stop();
}

Test(connection, half_closed_client_is_gone_or_served_as_configured) {
  harness_start(NULL);
  int fd = begin("{\"mode\":\"later\",\"ms\":200}");
  shutdown(fd, SHUT_WR);
  cr_expect(wait_for(&seen.gone, 1, 2000));
  close(fd);
  harness_stop();

  harness_start((const char *[]){"--half-close=allow", NULL});
  fd = begin("{\"mode\":\"later\",\"ms\":50}");
  shutdown(fd, SHUT_WR);
  char *answer = client_read_all(fd, 3000);
  cr_expect(strstr(answer, "{\"later\":true}") != NULL);
  EXPECT_EQ(atomic_load(&seen.gone), 0);
  free(answer);
  close(fd);
  harness_stop();
}

Test(connection, five_thousand_random_ends_leave_nothing) {
  harness_start((const char *[]){"--max-body-bytes=64KiB", NULL});
  static const char *const requests[] = {
      "{\"mode\":\"wait\"}", "{\"mode\":\"stream\",\"n\":100,\"ms\":1,\"size\":2000}",
      "{\"mode\":\"later\",\"ms\":3}", "{\"mode\":\"flood\",\"n\":300,\"ms\":1,\"size\":4000}",
      "{}"};
  unsigned state = 12345;
  for (int i = 0; i < 5000; i++) {
    state = state * 1664525u + 1013904223u;
    unsigned draw = state >> 8;
    int fd = client_connect(harness_port(0));
    ASSERT_GE(fd, 0);
    char *text = client_post_text("/v1/completions", "", requests[draw % 5]);
    size_t length = strlen(text);
    if (draw % 7 == 0) length = draw % length; /* a request that never completes */
    client_send_bytes(fd, text, length);
    if (draw % 11 == 0) client_send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n\x01garbage");
    free(text);
    if (draw % 3 == 0) {
      char *some = client_read(fd, "}", (int)(draw % 3));
      free(some);
    }
    if (draw % 13 == 0) shutdown(fd, SHUT_WR);
    if (draw % 2 == 0) {
      client_reset(fd);
    } else {
      close(fd);
    }
  }
  cr_expect(all_closed());
  cr_expect(wait_for(&seen.live, 0, 3000));
  EXPECT_EQ(health_status(), 200);
  harness_stop();
}

/* ---- clients that stall ---- */

Test(connection, slow_headers_end_at_the_deadline) {
  harness_start((const char *[]){"--header-timeout=500ms", NULL});
  int fd = client_connect(harness_port(0));
  uint64_t start = now_ns();
  client_send(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: ");
  char *answer = NULL;
  for (int i = 0; i < 40; i++) { /* a byte now and then keeps an idle timer alive for ever */
    client_send(fd, "a");
    free(answer);
    answer = client_read(fd, "request_timeout", 100);
    if (strstr(answer, "request_timeout") != NULL) break;
  }
  EXPECT_EQ(status_of(answer), 408);
  cr_expect(client_closed(fd, 1000));
  EXPECT_LT(now_ns() - start, 3000000000u);
  free(answer);
  close(fd);
  harness_stop();
}

Test(connection, slow_body_ends_at_the_deadline) {
  harness_start((const char *[]){"--body-timeout=500ms", NULL});
  int fd = client_connect(harness_port(0));
  client_send(fd,
              "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  char *answer = client_read_all(fd, 4000);
  EXPECT_EQ_FOR(status_of(answer), 408, "%s", answer);
  free(answer);
  cr_expect(wait_for(&seen.metrics, 1, 1000));
  EXPECT_EQ(atomic_load(&seen.last_status), 408);
  close(fd);
  harness_stop();
}

/* Anthropic's clients read `request-id`, also of an error that the library cannot send. */
Test(connection, errors_written_to_the_socket_have_the_ids_of_their_route) {
  static const struct {
    const char *request;
    int status;
    bool own_name;
  } rows[] = {{"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n"
               "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
               408, true},
              {"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n"
               "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
               "800\r\n",
               413, true},
              {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n"
               "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
               408, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    harness_start((const char *[]){"--body-timeout=500ms", "--max-body-bytes=1024", NULL});
    int fd = client_connect(harness_port(0));
    client_send(fd, rows[i].request);
    for (int line = 0; line < 32 && rows[i].status == 413; line++) {
      client_send(fd, "                                                               \n");
    }
    char *answer = client_read_all(fd, 4000);
    EXPECT_EQ_FOR(status_of(answer), rows[i].status, "%s", answer);
    cr_expect(strstr(answer, "\r\nx-request-id: mine\r\n") != NULL, "%s", answer);
    cr_expect((strstr(answer, "\r\nrequest-id: mine\r\n") != NULL) == rows[i].own_name, "%s",
              answer);
    free(answer);
    close(fd);
    harness_stop();
  }
}

Test(connection, idle_keep_alive_ends_silently) {
  harness_start((const char *[]){"--keep-alive-timeout=1s", NULL});
  int fd = client_connect(harness_port(0));
  client_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  char *answer = client_read_all(fd, 5000);
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(strstr(answer, "408"), NULL);
  free(answer);
  close(fd);
  harness_stop();
}

Test(connection, slow_reader_is_cut_at_the_buffer_limit) {
  harness_start((const char *[]){"--stream-buffer-bytes=64KiB", NULL});
  int fd = begin("{\"mode\":\"flood\",\"n\":100000000,\"ms\":1,\"size\":4000}");
  cr_expect(wait_for(&seen.gone, 1, 5000));
  EXPECT_STR_EQ(atomic_load(&seen.cause), "slow_reader");
  EXPECT_EQ(atomic_load(&seen.refused_writes), 1);
  cr_expect(wait_for(&seen.live, 0, 1000));
  close(fd);
  cr_expect(all_closed());
  harness_stop();
}

/* The loop's thread is late: more than the buffer holds is there before a byte was offered to the
 * client, before the stream's head or behind it. */
Test(connection, reader_of_a_late_loop_is_not_cut) {
  const char *const when[] = {"\"now\":1", "\"ms\":30"};
  for (size_t i = 0; i < ARRAY_LEN(when); i++) {
    harness_start((const char *[]){"--stream-buffer-bytes=64KiB", NULL});
    char body[128];
    snprintf(body, sizeof body, "{\"mode\":\"flood\",\"n\":60,\"size\":4000,%s}", when[i]);
    int fd = begin(body);
    char *answer = client_read(fd, "\r\n0\r\n\r\n", 5000);
    EXPECT_EQ_FOR(status_of(answer), 200, "%s", when[i]);
    EXPECT_EQ_FOR(atomic_load(&seen.refused_writes), 0, "%s", when[i]);
    cr_expect(strstr(answer, "[DONE]") != NULL, "%s", when[i]);
    EXPECT_GT(strlen(answer), 60 * 4000);
    free(answer);
    close(fd);
    harness_stop();
  }
}

Test(connection, reader_that_takes_nothing_is_cut_in_time) {
  harness_start(
      (const char *[]){"--slow-reader-timeout=600ms", "--stream-buffer-bytes=64MiB", NULL});
  int fd = begin("{\"mode\":\"stream\",\"n\":1000000,\"ms\":1,\"size\":8000}");
  cr_expect(wait_for(&seen.gone, 1, 20000));
  EXPECT_STR_EQ(atomic_load(&seen.cause), "slow_reader");
  close(fd);
  cr_expect(all_closed());
  harness_stop();
}

/* ---- too many clients ---- */

Test(connection, one_client_at_a_time_never_stalls) {
  harness_start((const char *[]){"--max-connections=1", NULL});
  for (int i = 0; i < 20; i++) {
    int status = 0;
    for (int k = 0; k < 100 && status != 200;
         k++) { /* the last one's close may still be under way */
      status = health_status();
      if (status != 200) usleep(5000);
    }
    ASSERT_EQ(status, 200);
  }
  int fd = client_connect(harness_port(0));
  client_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  free(client_read(fd, "}", 2000));
  char *answer = client_request(GET_HEALTH);
  EXPECT_EQ_FOR(status_of(answer), 503, "%s", answer);
  cr_expect(strstr(answer, "Retry-After: ") != NULL);
  cr_expect(strstr(answer, "\"code\":\"overloaded\"") != NULL);
  cr_expect(strstr(answer, "at most 1 are allowed (--max-connections)") != NULL, "%s", answer);
  free(answer);
  close(fd);
  harness_stop();
}

Test(connection, running_out_of_descriptors_pauses_and_recovers) {
  harness_start(NULL);
  ASSERT_EQ(health_status(), 200);
  int held[64], count = 0;
  for (; count < 8; count++) held[count] = client_connect(harness_port(0));
  usleep(50000);
  struct rlimit old, tight;
  getrlimit(RLIMIT_NOFILE, &old);
  tight = old;
  int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  tight.rlim_cur = (rlim_t)spare + 1; /* room for the client's socket, none for the server's */
  close(spare);
  setrlimit(RLIMIT_NOFILE, &tight);
  int fd = client_connect(harness_port(0)); /* the kernel completes it; accept fails */
  ASSERT_GE(fd, 0);
  client_send(fd, GET_HEALTH);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  usleep(400000);
  getrusage(RUSAGE_SELF, &after);
  long cpu_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
                after.ru_stime.tv_usec - before.ru_stime.tv_usec;
  EXPECT_LT_FOR(cpu_us, 200000, "spun for %ld us of 400000", cpu_us);
  setrlimit(RLIMIT_NOFILE, &old);
  char *answer = client_read_all(fd, 3000);
  EXPECT_EQ(status_of(answer), 200);
  free(answer);
  close(fd);
  while (count > 0) close(held[--count]);
  harness_stop();
}

/* ---- listeners ---- */

Test(connection, ipv4_ipv6_and_several_listeners) {
  harness_start((const char *[]){"--listen=127.0.0.1:0", "--listen=[::1]:0", "--listen=:0", NULL});
  EXPECT_EQ(strncmp(harness_address(0), "127.0.0.1:", 10), 0);
  EXPECT_EQ(strncmp(harness_address(1), "[::1]:", 6), 0);
  static const char *const hosts[] = {"127.0.0.1", "::1", "127.0.0.1"};
  for (int i = 0; i < 3; i++) {
    int fd = client_connect_address(hosts[i], harness_port(i));
    ASSERT_GE_FOR(fd, 0, "%s", hosts[i]);
    client_send(fd, GET_HEALTH);
    char *answer = client_read_all(fd, 2000);
    EXPECT_EQ(status_of(answer), 200);
    free(answer);
    close(fd);
  }
  harness_stop();
}

Test(connection, unix_socket) {
  char path[64], flag[80];
  snprintf(path, sizeof path, "/tmp/inferd-test-%d.sock", (int)getpid());
  snprintf(flag, sizeof flag, "--uds=%s", path);
  harness_start((const char *[]){flag, NULL});
  struct stat info;
  ASSERT_EQ(stat(path, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660);
  for (int i = 0; i < 3; i++) {
    int fd = client_connect_unix(path);
    ASSERT_GE(fd, 0);
    /* Any Host is fine here: no web page can reach a UNIX socket. */
    char *text = client_post_text("/v1/completions", "Connection: close\r\n",
                                  "{\"mode\":\"stream\",\"n\":10,\"ms\":1}");
    memcpy(strstr(text, "localhost"), "elsewhere", 9);
    client_send(fd, text);
    char *answer = client_read_all(fd, 3000);
    cr_expect(strstr(answer, "[DONE]") != NULL);
    free(text), free(answer);
    close(fd);
  }
  harness_stop();
  EXPECT_EQ(access(path, F_OK), -1);
}

/* The parent of several models reads such streams, and each piece would wake it. */
Test(connection, a_head_comes_with_its_first_chunk_to_a_unix_socket) {
  char path[64], flag[80];
  snprintf(path, sizeof path, "/tmp/inferd-head-%d.sock", (int)getpid());
  snprintf(flag, sizeof flag, "--uds=%s", path);
  harness_start((const char *[]){flag, NULL});
  int fd = client_connect_unix(path);
  ASSERT_GE(fd, 0);
  for (int i = 0; i < 200; i++) {
    char first[4096] = "";
    char *text = client_post_text("/v1/completions", "",
                                  "{\"mode\":\"stream\",\"now\":1,\"n\":1,\"size\":100}");
    client_send(fd, text);
    ssize_t got = recv(fd, first, sizeof first - 1, 0);
    ASSERT_GT(got, 0);
    cr_assert(strncmp(first, "HTTP/1.1 200 ", 13) == 0, "%s", first);
    cr_assert(strstr(first, "\r\n\r\n") != NULL && strstr(first, "data: 1 ") != NULL,
              "stream %d begins with this alone:\n%s", i, first);
    if (strstr(first, "\r\n0\r\n\r\n") == NULL) free(client_read(fd, "0\r\n\r\n", 3000));
    free(text);
  }
  close(fd);
  harness_stop();
}

/* A live server's socket is not stolen, a dead one's is taken over, another file is left alone. */
Test(connection, unix_socket_paths_in_the_way) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char flag[128];
  inferd_error_t error = {0};
  snprintf(address.sun_path, sizeof address.sun_path, "/tmp/inferd-way-%d.sock", (int)getpid());
  snprintf(flag, sizeof flag, "--uds=%s", address.sun_path);
  int holder = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(holder, (struct sockaddr *)&address, sizeof address), 0);
  ASSERT_EQ(listen(holder, 1), 0);
  EXPECT_EQ(harness_try((const char *[]){flag, NULL}, &error), ERR_ADDRESS_IN_USE);
  EXPECT_EQ(strncmp(error.message, "uds: /tmp/inferd-way-", 21), 0);
  EXPECT_EQ(access(address.sun_path, F_OK), 0);
  close(holder);
  EXPECT_EQ(access(address.sun_path, F_OK), 0);
  harness_start((const char *[]){flag, NULL});
  harness_stop();
  EXPECT_EQ(access(address.sun_path, F_OK), -1);
  FILE *file = fopen(address.sun_path, "w");
  fclose(file);
  EXPECT_EQ(harness_try((const char *[]){flag, NULL}, &error), ERR_CONFIGURATION);
  EXPECT_EQ(access(address.sun_path, F_OK), 0);
  unlink(address.sun_path);
}

static inferd_error_t start_error;

static void expect_no_start(const char *flag, int code, const char *part) {
  start_error = (inferd_error_t){0};
  int found = harness_try((const char *[]){flag, NULL}, &start_error);
  EXPECT_EQ_FOR(found, code, "%s: %s", flag, start_error.message);
  cr_expect(strstr(start_error.message, part) != NULL, "%s: '%s' is not in '%s'", flag, part,
            start_error.message);
}

Test(connection, start_errors_have_reasons) {
  inferd_error_t error = {0};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  char flag[40];
  int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(holder, (struct sockaddr *)&address, length), 0);
  ASSERT_EQ(listen(holder, 1), 0);
  getsockname(holder, (struct sockaddr *)&address, &length);
  snprintf(flag, sizeof flag, "--listen=127.0.0.1:%d", ntohs(address.sin_port));
  EXPECT_EQ(harness_try((const char *[]){flag, NULL}, &error), ERR_ADDRESS_IN_USE);
  cr_expect(strstr(error.message, flag + strlen("--listen=")) != NULL, "%s", error.message);
  expect_no_start("--host=192.0.2.1", ERR_CONFIGURATION, "host: cannot listen on 192.0.2.1:0: ");
  EXPECT_STR_EQ(start_error.param, "host");
  close(holder);
  expect_no_start("--listen=0.0.0.0:0", ERR_CONFIGURATION, "listen: 0.0.0.0:");
  expect_no_start("--listen=0.0.0.0:0", ERR_CONFIGURATION, "--allow-unauthenticated");
  expect_no_start("--host=0.0.0.0", ERR_CONFIGURATION, "host: 0.0.0.0:");
  expect_no_start("--listen=no.such.host.invalid:1", ERR_CONFIGURATION,
                  "listen: cannot resolve no.such.host.invalid:1: ");
  expect_no_start("--listen=127.0.0.1:99999", ERR_CONFIGURATION,
                  "listen: '127.0.0.1:99999' is not HOST:PORT with a port of 0 to 65535");
  expect_no_start("--listen=192.0.2.1:0", ERR_CONFIGURATION,
                  "listen: cannot listen on 192.0.2.1:0: ");
  char path[160] = "--uds=/tmp/";
  memset(path + strlen(path), 's', 108);
  expect_no_start(path, ERR_CONFIGURATION, "ss' has 113 bytes, supported: 1..107");
  harness_start((const char *[]){"--listen=0.0.0.0:0", "--allow-unauthenticated", NULL});
  EXPECT_EQ(health_status(), 200);
  harness_stop();
}

/* ---- sites ---- */

Test(connection, hosts_and_origins) {
  harness_start((const char *[]){"--cors-origin=https://app.example", "--allowed-host=box.local",
                                 "--api-key=k", NULL});
#define WITH(headers) "GET /metrics HTTP/1.1\r\n" headers "Connection: close\r\n\r\n"
  static const struct {
    const char *request;
    int status;
  } cases[] = {
      {WITH("Host: localhost:8000\r\n"), 200},
      {WITH("Host: [::1]:1\r\n"), 200},
      {WITH("Host: box.local\r\n"), 200},
      {WITH("Host: evil.example\r\n"), 403},
      {WITH("Host: localhost.evil.example\r\n"), 403},
      {WITH("Host: localhost\r\nOrigin: https://evil.example\r\n"), 403},
      {WITH("Host: localhost\r\nOrigin: null\r\n"), 403},
      {WITH("Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n"), 200},
      {WITH("Host: localhost\r\nOrigin: https://app.example\r\n"), 200},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *answer = client_request(cases[i].request);
    EXPECT_EQ_FOR(status_of(answer), cases[i].status, "%s", cases[i].request);
    free(answer);
  }
  /* A preflight has no key; what follows it needs one. */
  char *answer = client_request(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_EQ(status_of(answer), 204);
  cr_expect(strstr(answer, "Access-Control-Allow-Origin: https://app.example\r\n") != NULL);
  cr_expect(strstr(answer, "Access-Control-Allow-Headers: "
                           "authorization,content-type,x-stainless-os\r\n") != NULL);
  free(answer);
  answer = client_request("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                          "Connection: close\r\n\r\n");
  EXPECT_EQ(status_of(answer), 401);
  free(answer);
  answer = client_request("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                          "Origin: https://app.example\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(status_of(answer), 401);
  free(answer);
  /* A form cannot name a JSON type, and a page without any type is a form. */
  answer = client_request("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
                          "Bearer k\r\nOrigin: https://app.example\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(status_of(answer), 415);
  free(answer);
  harness_stop();
}

static void expect_answer(const char *request, int status, const char *words) {
  char *answer = client_request(request);
  EXPECT_EQ_FOR(status_of(answer), status, "%s", request);
  cr_expect(strstr(answer, words) != NULL, "%s: %s", words, answer);
  free(answer);
}

/* Behind nginx the Host is by default the name of the upstream. A foreign page has no key, so where
 * one is needed the name does not matter; probes take any name too. */
Test(connection, a_proxy_may_send_another_host) {
#define UPSTREAM "Host: llm_upstream\r\nConnection: close\r\n"
#define COMPLETION "POST /v1/completions HTTP/1.1\r\n" UPSTREAM "Content-Length: 2\r\n"
  harness_start((const char *[]){NULL});
  expect_answer("GET /health HTTP/1.1\r\n" UPSTREAM "\r\n", 200, "");
  expect_answer(COMPLETION "\r\n{}", 403, "The Host header names llm_upstream,");
  expect_answer(COMPLETION "\r\n{}", 403, "`proxy_set_header Host localhost`");
  expect_answer("GET /metrics HTTP/1.1\r\n" UPSTREAM "\r\n", 403, "--allowed-host NAME");
  harness_stop();
  harness_start((const char *[]){"--api-key=k", NULL});
  expect_answer("GET /health HTTP/1.1\r\n" UPSTREAM "\r\n", 200, "");
  expect_answer(COMPLETION "Authorization: Bearer k\r\n\r\n{}", 200, "");
  expect_answer(COMPLETION "\r\n{}", 401, "");
  expect_answer("GET /metrics HTTP/1.1\r\n" UPSTREAM "\r\n", 403, "host_not_allowed");
  harness_stop();
  harness_start((const char *[]){"--api-key=k", "--metrics-auth=on", NULL});
  expect_answer("GET /metrics HTTP/1.1\r\n" UPSTREAM "Authorization: Bearer k\r\n\r\n", 200, "");
  harness_stop();
}

static void expect_origin(const char *origin, int status) {
  char text[300], header[200];
  snprintf(text, sizeof text, WITH("Host: 127.0.0.1:9\r\nOrigin: %s\r\n"), origin);
  snprintf(header, sizeof header, "Access-Control-Allow-Origin: %s\r\n", origin);
  char *answer = client_request(text);
  EXPECT_EQ_FOR(status_of(answer), status, "%s", origin);
  EXPECT_EQ_FOR(strstr(answer, header) != NULL, status == 200, "%s: %s", origin, answer);
  free(answer);
}

/* Pages that this machine serves may call by default, while the listener is on loopback. */
Test(connection, origins_of_this_machine) {
  static const char *const local[] = {"http://localhost:3000", "http://localhost",
                                      "https://127.0.0.1:8443", "http://[::1]:5173",
                                      "HTTP://LocalHost:1"};
  static const char *const foreign[] = {"http://localhost.evil.example",
                                        "http://evil.example",
                                        "http://localhost:3000.evil.example",
                                        "http://[::1",
                                        "ftp://localhost",
                                        "null",
                                        "http://localhost:",
                                        "http://127.0.0.2:80",
                                        "http://localhost@evil.example"};
  harness_start((const char *[]){NULL});
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) expect_origin(local[i], 200);
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) expect_origin(foreign[i], 403);
  harness_stop();
  harness_start((const char *[]){"--cors-origin=none", NULL});
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) expect_origin(local[i], 403);
  harness_stop();
  harness_start((const char *[]){"--host=0.0.0.0", "--allow-unauthenticated", NULL});
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) expect_origin(local[i], 403);
  harness_stop();
}

/* ---- routes that are refused by name ---- */

/* The body of such a request is megabytes of a picture. It is neither asked for nor waited for, and
 * the key comes first. */
Test(connection, unserved_routes_end_before_the_body) {
#define SPEECH(headers)                                                                            \
  "POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: "                      \
  "multipart/form-data; boundary=x\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n" headers \
  "\r\n"
  harness_start((const char *[]){"--api-key=k", NULL});
  char *answer = client_request(SPEECH(""));
  EXPECT_EQ(status_of(answer), 401);
  free(answer);
  answer = client_request(SPEECH("Authorization: Bearer k\r\n"));
  EXPECT_EQ_FOR(status_of(answer), 404, "%s", answer);
  cr_expect(strstr(answer, "100 Continue") == NULL, "%s", answer);
  cr_expect(strstr(answer, "Connection: close\r\n") != NULL, "%s", answer);
  cr_expect(strstr(answer, "does not serve images (/v1/images/generations).") != NULL, "%s",
            answer);
  cr_expect(strstr(answer, "\"code\":\"unsupported_endpoint\"") != NULL, "%s", answer);
  free(answer);
  harness_stop();
}

Test(connection, a_prefix_of_paths_is_removed) {
  harness_start((const char *[]){"--root-path=/in/ferd", NULL});
  static const struct {
    const char *path;
    int status;
  } rows[] = {{"/in/ferd/health", 200},
              {"/health", 200},
              {"/in/ferd/v1/xyz", 404},
              {"/in/ferdx/health", 404},
              {"/in/health", 404}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[200];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
             rows[i].path);
    char *answer = client_request(text);
    EXPECT_EQ_FOR(status_of(answer), rows[i].status, "%s", rows[i].path);
    free(answer);
  }
  harness_stop();
}

/* ---- drain and abort ---- */

Test(connection, drain_finishes_what_runs_and_refuses_the_rest) {
  harness_start(NULL);
  int idle = client_connect(harness_port(0));
  client_send(idle, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  free(client_read(idle, "}", 2000));
  int stream = begin("{\"mode\":\"stream\",\"n\":40,\"ms\":20}");
  int later = begin("{\"mode\":\"later\",\"ms\":400}");
  harness_drain();
  char *text = client_post_text("/v1/completions", "", "{}");
  client_send(idle, text);
  char *answer = client_read_all(idle, 3000);
  EXPECT_EQ(status_of(answer), 503);
  cr_expect(strstr(answer, "\"code\":\"draining\"") != NULL);
  cr_expect(strstr(answer, "Connection: close\r\n") != NULL);
  free(answer);
  answer = client_request(text);
  EXPECT_EQ(status_of(answer), 503);
  free(answer);
  EXPECT_EQ(health_status(), 200); /* the fake's answer: the probe still reaches the handler */
  EXPECT_EQ(atomic_load(&seen.drained), 0);
  answer = client_read(stream, "[DONE]", 5000);
  cr_expect(strstr(answer, "[DONE]") != NULL);
  free(answer);
  answer = client_read(later, "{\"later\":true}", 5000);
  cr_expect(strstr(answer, "{\"later\":true}") != NULL);
  free(answer);
  cr_expect(wait_for(&seen.drained, 1, 2000));
  EXPECT_EQ(atomic_load(&seen.gone), 0);
  free(text);
  close(idle), close(stream), close(later);
  harness_stop();
}

Test(connection, abort_tells_everybody) {
  harness_start(NULL);
  int stream = begin("{\"mode\":\"stream\",\"n\":4000,\"ms\":20}");
  int waiting = begin(WAIT);
  usleep(50000);
  harness_drain();
  harness_abort();
  char *answer = client_read(stream, "data: [DONE]\n\n", 3000);
  const char *error = strstr(answer, "data: {\"error\":{\"message\":");
  cr_expect(error != NULL);
  cr_expect(error != NULL);
  cr_expect(strstr(error, "}}\n\ndata: [DONE]\n\n") != NULL);
  free(answer);
  answer = client_read_all(waiting, 3000);
  EXPECT_EQ(status_of(answer), 503);
  free(answer);
  cr_expect(wait_for(&seen.gone, 2, 1000));
  EXPECT_STR_EQ(atomic_load(&seen.cause), "shutdown");
  cr_expect(wait_for(&seen.drained, 1, 2000));
  close(stream), close(waiting);
  harness_stop();
}

Test(connection, stop_with_suspended_connections_is_clean) {
  harness_start(NULL);
  int fds[20];
  for (int i = 0; i < 20; i++) fds[i] = begin(i % 2 ? WAIT : "{\"mode\":\"stream\",\"ms\":60000}");
  harness_stop();
  for (int i = 0; i < 20; i++) {
    cr_expect(client_closed(fds[i], 1000));
    close(fds[i]);
  }
}

/* ---- many streams ---- */

Test(connection, two_hundred_streams_arrive_whole) {
  harness_start(NULL);
  enum { STREAMS = 200, EVENTS = 20 };
  int fds[STREAMS];
  char *text = client_post_text("/v1/completions", "Connection: close\r\n",
                                "{\"mode\":\"stream\",\"n\":20,\"ms\":10}");
  for (int i = 0; i < STREAMS; i++) {
    fds[i] = client_connect(harness_port(0));
    client_send(fds[i], text);
  }
  for (int i = 0; i < STREAMS; i++) {
    char *answer = client_read_all(fds[i], 20000);
    int events = 0;
    for (const char *p = answer; (p = strstr(p, "data: ")) != NULL; p++) events++;
    ASSERT_EQ(events, EVENTS + 1);
    cr_assert(strstr(answer, "\r\n0\r\n\r\n") != NULL);
    free(answer);
    close(fds[i]);
  }
  free(text);
  harness_stop();
}
