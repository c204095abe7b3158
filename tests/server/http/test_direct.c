/* test_direct.c: streams whose chunks go to the sockets past libmicrohttpd, by the loop thread or
 * by the one that sends. Every stream arrives whole and in order, whatever its socket takes.
 */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

enum { CROWD = 80 };

TestSuite(direct, .timeout = 120);

/* Streams of `n` events, one each `ms`, `size` bytes long. */
static void begin_crowd(int fds[CROWD], int n, int ms, int size) {
  char body[100];
  snprintf(body, sizeof body, "{\"mode\":\"stream\",\"n\":%d,\"ms\":%d,\"size\":%d}", n, ms, size);
  char *text = client_post_text("/v1/completions", "Connection: close\r\n", body);
  int before = atomic_load(&seen.handled);
  for (int i = 0; i < CROWD; i++) {
    fds[i] = client_connect(harness_port(0));
    client_send(fds[i], text);
  }
  cr_assert(wait_for(&seen.handled, before + CROWD, 10000));
  free(text);
}

/* Holds the loop up, so that the timers of all streams are due in one turn, then and later. */
static void align(void) {
  char *text =
      client_post_text("/v1/completions", "Connection: close\r\n", "{\"mode\":\"nap\",\"ms\":100}");
  free(client_request(text));
  free(text);
}

/* The stream of an answer is whole: events n to 1, then [DONE], and the last chunk. */
static void check_whole(char *answer, int n) {
  const char *cause = atomic_load(&seen.cause);
  ASSERT_EQ_FOR(atomic_load(&seen.gone), 0, "a stream was cut: %s", cause != NULL ? cause : "");
  char *body = strstr(answer, "\r\n\r\n");
  cr_assert_not_null(body, "%.300s", answer);
  client_join_chunks(body += 4);
  const char *at = body;
  for (int left = n; left > 0; left--) {
    char wanted[32];
    int length = snprintf(wanted, sizeof wanted, "data: %d ", left);
    cr_assert(strncmp(at, wanted, (size_t)length) == 0, "not event %d: %.60s", left, at);
    at = strstr(at, "\n\n");
    cr_assert_not_null(at);
    at += 2;
  }
  EXPECT_STR_EQ(at, "data: [DONE]\n\n");
}

static void expect_whole(const int fds[CROWD], int n) {
  for (int i = 0; i < CROWD; i++) {
    char *answer = client_read_all(fds[i], 30000);
    check_whole(answer, n);
    free(answer);
    close(fds[i]);
  }
}

static void expect_nothing_left(void) {
  cr_assert(wait_for(&seen.live, 0, 5000));
  harness_stats();
  EXPECT_EQ(atomic_load(&seen.held), 0);
}

Test(direct, a_crowd_goes_by_the_thread) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", NULL});
  begin_crowd(fds, 60, 20, 100);
  align();
  expect_whole(fds, 60);
  expect_nothing_left();
  EXPECT_GT(atomic_load(&seen.sends_by_thread), 30 * CROWD);
  harness_stop();
}

Test(direct, without_the_thread_the_loop_sends) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=off", NULL});
  begin_crowd(fds, 60, 20, 100);
  align();
  expect_whole(fds, 60);
  expect_nothing_left();
  EXPECT_EQ(atomic_load(&seen.sends_by_thread), 0);
  EXPECT_GT(atomic_load(&seen.sends_here), 30 * CROWD);
  harness_stop();
}

/* Every fourth turn has so many events that the thread is not through with them when the next turn
 * comes. That one has few, which the loop thread would send itself: those of the streams that stood
 * last in the turn before. */
Test(direct, an_event_never_passes_the_one_before) {
  enum { SLOW = 200, FAST = 30, EVENTS = 100 };
  int fds[SLOW + FAST], n[2] = {EVENTS, 4 * EVENTS};
  harness_start((const char *[]){"--send-thread=on", NULL});
  for (int i = 0; i < SLOW + FAST; i++) {
    char body[100];
    bool fast = i >= SLOW;
    snprintf(body, sizeof body, "{\"mode\":\"stream\",\"n\":%d,\"ms\":%d,\"size\":200}", n[fast],
             fast ? 1 : 4);
    char *text = client_post_text("/v1/completions", "Connection: close\r\n", body);
    client_send(fds[i] = client_connect(harness_port(0)), text);
    free(text);
  }
  cr_assert(wait_for(&seen.handled, SLOW + FAST, 10000));
  align();
  for (int i = 0; i < SLOW + FAST; i++) {
    char *answer = client_read_all(fds[i], 30000);
    check_whole(answer, n[i >= SLOW]);
    free(answer);
    close(fds[i]);
  }
  expect_nothing_left();
  EXPECT_GT(atomic_load(&seen.sends_by_thread), 0);
  EXPECT_GT(atomic_load(&seen.sends_here), 0);
  harness_stop();
}

Test(direct, few_streams_do_not_wait_for_the_thread) {
  harness_start((const char *[]){"--send-thread=on", NULL});
  char *text = client_post_text("/v1/completions", "Connection: close\r\n",
                                "{\"mode\":\"stream\",\"n\":40,\"ms\":2,\"size\":100}");
  char *answer = client_request(text);
  check_whole(answer, 40);
  harness_stats();
  EXPECT_EQ(atomic_load(&seen.sends_by_thread), 0);
  EXPECT_GT(atomic_load(&seen.sends_here), 20);
  free(answer), free(text);
  harness_stop();
}

/* The clients read nothing until the last byte is written. What a full socket leaves, waits for it;
 * what is written behind that becomes longer than a parcel, and libmicrohttpd sends it. */
static void read_late(const char *thread, int size) {
  int fds[CROWD];
  harness_start((const char *[]){thread, "--stream-buffer-bytes=64MiB", NULL});
  begin_crowd(fds, 160000 / size, 2, size);
  align();
  cr_assert(wait_for(&seen.live, 0, 30000)); /* all is written */
  harness_stats();
  EXPECT_GT(atomic_load(&seen.sends_short), 0);
  EXPECT_GT(atomic_load(&seen.held), 0);
  expect_whole(fds, 160000 / size);
  expect_nothing_left();
  harness_stop();
}

Test(direct, full_sockets_of_the_thread_lose_nothing) {
  read_late("--send-thread=on", 500);
}

Test(direct, full_sockets_of_the_loop_lose_nothing) {
  read_late("--send-thread=off", 500);
}

/* Some read a little now and then, so their sockets are full, writable and full again. */
Test(direct, slow_readers_beside_fast_ones) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", "--stream-buffer-bytes=64MiB", NULL});
  begin_crowd(fds, 150, 3, 1500);
  align();
  char *parts[CROWD][20];
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < CROWD; i++) {
      char bytes[8192];
      ssize_t n = i % 2 == 0 ? recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT) : 0;
      parts[i][round] = strndup(bytes, n > 0 ? (size_t)n : 0);
    }
    usleep(20000);
  }
  for (int i = 0; i < CROWD; i++) {
    char *rest = client_read_all(fds[i], 30000), *answer = malloc(strlen(rest) + 20 * 8192 + 1);
    answer[0] = '\0';
    for (int round = 0; round < 20; round++) {
      strcat(answer, parts[i][round]);
      free(parts[i][round]);
    }
    strcat(answer, rest);
    check_whole(answer, 150);
    free(rest), free(answer);
    close(fds[i]);
  }
  expect_nothing_left();
  EXPECT_GT(atomic_load(&seen.sends_short), 0);
  harness_stop();
}

Test(direct, clients_leave_while_their_chunks_are_on_the_way) {
  harness_start((const char *[]){"--send-thread=on", NULL});
  for (int round = 0; round < 10; round++) {
    int fds[CROWD];
    begin_crowd(fds, 100000, 1, 500);
    align();
    for (int i = 0; i < CROWD; i++) {
      if (i % 3 == 0) {
        client_reset(fds[i]);
      } else {
        close(fds[i]);
      }
      if (i % 16 == 0) usleep(1000);
    }
    cr_assert(wait_for(&seen.live, 0, 10000));
  }
  expect_nothing_left();
  EXPECT_GT(atomic_load(&seen.sends_by_thread), 0);
  EXPECT_STR_EQ(atomic_load(&seen.cause), "client_gone");
  harness_stop();
}

/* What a stream got before it was cut is the beginning of what it would have got. */
static void check_beginning(const char *answer, int n) {
  const char *at = strstr(answer, "\r\n\r\n");
  cr_assert_not_null(at, "%.300s", answer);
  for (at += 4; n > 0;) {
    char *end;
    size_t length = strtoul(at, &end, 16);
    const char *event = end + 2, *last = event + length;
    if (strlen(end) < 2 + length + 2) return; /* cut within a chunk */
    for (; event < last; event = strstr(event, "\n\n") + 2, n--) {
      if (strncmp(event, "data: {", 7) == 0) return; /* the error of the abort */
      ASSERT_EQ_FOR(atoi(event + strlen("data: ")), n, "%.60s", event);
    }
    at = last + 2;
  }
}

/* The ledger has room for the buffers of all streams, and for no larger one. The sockets fill up
 * while naps hold the loop up; in each nap some of the clients make room for one event. So a socket
 * is full when the thread writes, and has room again when its parcel cannot be taken back. Bodies
 * and buffers are multiples of 1 KiB: the slack always remains, and the naps' bodies fit. */
Test(direct, what_cannot_be_taken_back_ends_its_stream) {
  enum { EVENTS = 999, EVENT_BYTES = 900, BODY_BYTES = 1024, OUT_BYTES = 1024, SLACK = 600 };
  const char *nap = "{\"mode\":\"nap\",\"ms\":16}";
  char path[] = "/tmp/inferd-direct-XXXXXX", uds[64], flag[96], memory[64], part[1000];
  char fields[100], body[BODY_BYTES];
  cr_assert_not_null(mkdtemp(path));
  snprintf(uds, sizeof uds, "%s/s", path);
  snprintf(flag, sizeof flag, "--uds=%s", uds);
  snprintf(fields, sizeof fields, "{\"mode\":\"stream\",\"n\":%d,\"ms\":10,\"size\":%d}", EVENTS,
           EVENT_BYTES);
  snprintf(body, sizeof body, "%-*s", BODY_BYTES - 1, fields);
  snprintf(memory, sizeof memory, "--max-request-memory=%d",
           CROWD * (OUT_BYTES + BODY_BYTES) + SLACK);
  harness_start((const char *[]){"--send-thread=on", "--max-body-bytes=1KiB", flag, memory, NULL});
  char *text = client_post_text("/v1/completions", "Connection: close\r\n", body);
  char *nap_text = client_post_text("/v1/completions", "", nap);
  int fds[CROWD], napper = client_connect_unix(uds);
  for (int i = 0; i < CROWD; i++) client_send(fds[i] = client_connect_unix(uds), text);
  cr_assert(wait_for(&seen.handled, CROWD, 10000));
  char *answers[CROWD];
  size_t used[CROWD] = {0};
  for (int i = 0; i < CROWD; i++) answers[i] = malloc(EVENTS * sizeof part);
  for (int round = 0; atomic_load(&seen.gone) < CROWD / 2; round++) {
    ASSERT_LT(round, 8 * EVENTS); /* a turn has up to 8 naps */
    int before = atomic_load(&seen.handled);
    client_send(napper, nap_text);
    cr_assert(wait_for(&seen.handled, before + 1, 10000));
    usleep(6000);
    for (int i = round % 4; i < CROWD; i += 4) {
      ssize_t n = recv(fds[i], answers[i] + used[i], EVENT_BYTES + 20, MSG_DONTWAIT);
      if (n > 0) used[i] += (size_t)n;
    }
    free(client_read(napper, "\"}", 10000));
  }
  EXPECT_STR_EQ(atomic_load(&seen.cause), "no_memory");
  harness_abort();
  for (int i = 0; i < CROWD; i++) {
    char *rest = client_read_all(fds[i], 10000);
    strcpy(answers[i] + used[i], rest);
    check_beginning(answers[i], EVENTS);
    free(rest), free(answers[i]);
    close(fds[i]);
  }
  expect_nothing_left();
  free(text), free(nap_text);
  close(napper);
  harness_stop();
  rmdir(path);
}

/* Small events: what is cut is a stream whose socket was full when the thread wrote. */
Test(direct, readers_that_take_nothing_are_cut_in_time) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", "--slow-reader-timeout=600ms",
                                 "--stream-buffer-bytes=64MiB", NULL});
  begin_crowd(fds, 1000000, 2, 1000);
  align();
  cr_assert(wait_for(&seen.gone, CROWD, 30000));
  EXPECT_STR_EQ(atomic_load(&seen.cause), "slow_reader");
  expect_nothing_left();
  EXPECT_GT(atomic_load(&seen.sends_short), 0);
  for (int i = 0; i < CROWD; i++) close(fds[i]);
  harness_stop();
}

Test(direct, a_buffer_that_is_full_ends_its_stream) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", "--stream-buffer-bytes=4KiB", NULL});
  begin_crowd(fds, 1000000, 2, 1000);
  align();
  cr_assert(wait_for(&seen.gone, CROWD, 30000));
  EXPECT_STR_EQ(atomic_load(&seen.cause), "slow_reader");
  expect_nothing_left();
  for (int i = 0; i < CROWD; i++) close(fds[i]);
  harness_stop();
}

Test(direct, an_abort_ends_every_stream_with_its_error) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", NULL});
  begin_crowd(fds, 100000, 5, 100);
  align();
  harness_abort();
  for (int i = 0; i < CROWD; i++) {
    char *answer = client_read_all(fds[i], 10000);
    size_t length = strlen(answer);
    const char *end = answer + (length > 300 ? length - 300 : 0);
    cr_expect_not_null(strstr(end, "The server is shutting down."), "%s", end);
    cr_expect_not_null(strstr(end, "data: [DONE]\n\n\r\n0\r\n\r\n"), "%s", end);
    free(answer);
    close(fds[i]);
  }
  expect_nothing_left();
  harness_stop();
}

Test(direct, a_stop_with_chunks_on_the_way_is_clean) {
  int fds[CROWD];
  harness_start((const char *[]){"--send-thread=on", NULL});
  begin_crowd(fds, 100000, 1, 500);
  align();
  harness_stop();
  for (int i = 0; i < CROWD; i++) close(fds[i]);
}
