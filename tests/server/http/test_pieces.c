/* test_pieces.c: replies that are printed while they are sent, over real sockets. */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

enum { LINE_BYTES = 31, LINES_MANY = 200000 /* 6 MB */ };

TestSuite(pieces, .timeout = 60);

/* Lines in bursts of `burst`, as a stream; of 0: as a reply. */
static int ask_bursts(const char *version, int lines, int burst) {
  char text[400], body[100];
  const char *mode = burst > 0 ? "bursts" : "pieces";
  snprintf(body, sizeof body, "{\"mode\":\"%s\",\"n\":%d,\"size\":%d}", mode, lines, burst);
  snprintf(text, sizeof text,
           "POST /v1/completions HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           "Content-Length: %zu\r\n\r\n%s",
           version, strlen(body), body);
  int fd = client_connect(harness_port(0));
  ASSERT_GE(fd, 0);
  client_send(fd, text);
  return fd;
}

static int ask(const char *version, int lines) {
  return ask_bursts(version, lines, 0);
}

static void check_lines(const char *body, size_t length, int lines) {
  ASSERT_EQ(length, (size_t)lines * LINE_BYTES);
  for (int i = 0; i < lines; i++) ASSERT_EQ(atoi(body + (size_t)i * LINE_BYTES), lines - i);
}

/* `small`: bytes of replies that were begun although the turn had none left. */
static void check_turns(long long small) {
  harness_stats();
  ASSERT_GT(atomic_load(&seen.reply_turn_max), 0);
  ASSERT_LE(atomic_load(&seen.reply_turn_max), REPLY_TURN_BYTES);
  ASSERT_LE(atomic_load(&seen.replies_turn_max), REPLIES_TURN_BYTES + small);
}

static char *body_of(char *answer) {
  char *end = strstr(answer, "\r\n\r\n");
  cr_assert_not_null(end, "%.300s", answer);
  return end + 4;
}

static void check_nothing_left(void) {
  cr_assert(wait_for(&seen.live, 0, 5000), "a reply was not freed");
  harness_stats();
  ASSERT_EQ(atomic_load(&seen.held), 0);
}

Test(pieces, a_short_reply_has_a_length) {
  harness_start(NULL);
  int fd = ask("1.1", 100);
  char *answer = client_read(fd, "\n1 ", 3000);
  cr_assert_not_null(strstr(answer, "Content-Length: 3100\r\n"), "%.300s", answer);
  cr_assert_null(strstr(answer, "chunked"));
  free(answer);
  close(fd);
  check_turns(0);
  check_nothing_left();
  harness_stop();
}

Test(pieces, a_long_reply_comes_in_chunks) {
  harness_start(NULL);
  int fd = ask("1.1", LINES_MANY);
  char *answer = client_read(fd, "\r\n0\r\n\r\n", 20000);
  cr_assert_not_null(strstr(answer, "Transfer-Encoding: chunked\r\n"), "%.300s", answer);
  char *body = body_of(answer);
  check_lines(body, client_join_chunks(body), LINES_MANY);
  /* the connection goes on */
  char *text = client_post_text("/v1/completions", "", "{}");
  client_send(fd, text);
  char *next = client_read(fd, "}", 3000);
  ASSERT_EQ(status_of(next), 200);
  free(answer), free(text), free(next);
  close(fd);
  check_turns(0);
  check_nothing_left();
  harness_stop();
}

Test(pieces, http_1_0_ends_with_the_connection) {
  harness_start(NULL);
  int fd = ask("1.0", LINES_MANY);
  char *answer = client_read_all(fd, 20000);
  cr_assert_null(strstr(answer, "chunked"), "%.300s", answer);
  char *body = body_of(answer);
  check_lines(body, strlen(body), LINES_MANY);
  free(answer);
  close(fd);
  check_turns(0);
  check_nothing_left();
  harness_stop();
}

Test(pieces, head_has_no_body) {
  harness_start(NULL);
  char *answer =
      client_request("HEAD /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  ASSERT_EQ_FOR(strncmp(answer, "HTTP/1.0 200 ", 13), 0, "%s", answer);
  ASSERT_EQ_FOR(*body_of(answer), '\0', "%s", answer);
  cr_assert_null(strstr(answer, "Content-Length"), "%s", answer);
  free(answer);
  check_nothing_left();
  harness_stop();
}

/* Many long replies at once: a turn of the loop prints its share of each and not more in all. */
Test(pieces, turns_are_shared) {
  enum { CLIENTS = 24, LINES = 40000 };
  harness_start((const char *[]){"--max-request-memory=64MiB", NULL});
  int fd[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) fd[i] = ask("1.0", LINES);
  for (int i = 0; i < CLIENTS; i++) {
    char *answer = client_read_all(fd[i], 20000), *body = body_of(answer);
    check_lines(body, strlen(body), LINES);
    free(answer);
    close(fd[i]);
  }
  check_turns((long long)CLIENTS * (16 * 1024 + LINE_BYTES));
  check_nothing_left();
  harness_stop();
}

/* Clients leave in the middle: what they were to get is freed. */
Test(pieces, clients_leave) {
  enum { CLIENTS = 8 };
  harness_start(NULL);
  for (int i = 0; i < CLIENTS; i++) {
    int fd = ask("1.1", 10 * LINES_MANY);
    free(client_read(fd, "\r\n\r\n", 3000));
    if (i % 2 == 0) {
      client_reset(fd);
    } else {
      close(fd);
    }
  }
  check_nothing_left();
  check_turns(0);
  harness_stop();
}

/* A piece takes memory, which may not be had. */
Test(pieces, no_memory_for_a_piece) {
  harness_start((const char *[]){"--max-request-memory=100KiB", "--max-body-bytes=1KiB", NULL});
  int fd = ask("1.1", 10);
  char *answer = client_read(fd, "}}", 3000);
  ASSERT_EQ_FOR(status_of(answer), 503, "%s", answer);
  cr_assert_not_null(strstr(answer, "max_request_memory"));
  free(answer);
  close(fd);
  check_nothing_left();
  harness_stop();
}

/* The client reads nothing of a long reply: it is cut, and its memory is free. */
static void check_slow_reader(int fd, const char *body) {
  char *text = client_post_text("/v1/completions", "", body);
  client_send(fd, text);
  free(text);
  cr_assert(wait_for(&seen.live, 1, 3000));
  check_nothing_left();
  cr_assert(wait_for(&seen.last_status, 499, 3000));
  close(fd);
}

Test(pieces, slow_reader) {
  harness_start((const char *[]){"--slow-reader-timeout=400ms", NULL});
  check_slow_reader(client_connect(harness_port(0)), "{\"mode\":\"pieces\",\"n\":2000000}");
  harness_stop();
}

Test(pieces, slow_reader_of_a_unix_socket) {
  char path[] = "/tmp/inferd-pieces-XXXXXX", flag[96], uds[64];
  cr_assert_not_null(mkdtemp(path));
  snprintf(uds, sizeof uds, "%s/s", path);
  snprintf(flag, sizeof flag, "--uds=%s", uds);
  harness_start((const char *[]){"--slow-reader-timeout=400ms", flag, NULL});
  check_slow_reader(client_connect_unix(uds), "{\"mode\":\"pieces\",\"n\":2000000}");
  harness_stop();
  rmdir(path);
}

/* A stream may have more to send than its buffer holds: it is printed as the client takes it. */
Test(pieces, a_stream_in_bursts) {
  static const int bursts[] = {1000000, 20000, 100};
  harness_start((const char *[]){"--stream-buffer-bytes=4KiB", NULL});
  for (size_t i = 0; i < sizeof bursts / sizeof bursts[0]; i++) {
    int lines = bursts[i] > 1000 ? LINES_MANY : 5000;
    int fd = ask_bursts("1.1", lines, bursts[i]);
    char *answer = client_read(fd, "\r\n0\r\n\r\n", 20000), *body = body_of(answer);
    cr_assert_not_null(strstr(answer, "text/event-stream"), "%.300s", answer);
    check_lines(body, client_join_chunks(body), lines);
    free(answer);
    close(fd);
  }
  check_turns(0);
  check_nothing_left();
  harness_stop();
}

Test(pieces, many_streams_share_the_turns) {
  enum { CLIENTS = 24, LINES = 40000 };
  harness_start((const char *[]){"--max-request-memory=64MiB", NULL});
  int fd[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) fd[i] = ask_bursts("1.0", LINES, 7000);
  for (int i = 0; i < CLIENTS; i++) {
    char *answer = client_read_all(fd[i], 20000), *body = body_of(answer);
    check_lines(body, strlen(body), LINES);
    free(answer);
    close(fd[i]);
  }
  check_turns(0);
  check_nothing_left();
  harness_stop();
}

Test(pieces, clients_of_streams_leave_or_do_not_read) {
  enum { CLIENTS = 8 };
  harness_start((const char *[]){"--slow-reader-timeout=400ms", NULL});
  for (int i = 0; i < CLIENTS; i++) {
    int fd = ask_bursts("1.1", 10 * LINES_MANY, i % 3 == 0 ? 10 * LINES_MANY : 100000);
    free(client_read(fd, "\r\n\r\n", 3000));
    if (i % 2 == 0) {
      client_reset(fd);
    } else {
      close(fd);
    }
  }
  check_nothing_left();
  check_slow_reader(client_connect(harness_port(0)),
                    "{\"mode\":\"bursts\",\"n\":2000000,\"size\":2000000}");
  check_turns(0);
  harness_stop();
}

/* The server stops in the middle of such a stream. */
Test(pieces, a_stop_ends_a_stream) {
  harness_start(NULL);
  int fd = ask_bursts("1.1", 10 * LINES_MANY, 1000000);
  free(client_read(fd, "\r\n\r\n", 3000));
  harness_stop();
  ASSERT_EQ(atomic_load(&seen.live), 0);
  close(fd);
}
