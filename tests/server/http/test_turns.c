/* test_turns.c: how many requests one turn of the loop reads, over real sockets. */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include "server/http/http_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

TestSuite(turns, .timeout = 60);

static const char *const small = "{\"mode\":\"reply\"}";

/* Holds the loop's thread up, so that what is sent meanwhile comes in one turn. */
static int nap(int ms) {
  char body[64];
  snprintf(body, sizeof body, "{\"mode\":\"nap\",\"ms\":%d}", ms);
  char *request = client_post_text("/v1/completions", "", body);
  int fd = client_connect(harness_port(0)), handled = atomic_load(&seen.handled);
  client_send(fd, request);
  free(request);
  cr_assert(wait_for(&seen.handled, handled + 1, 5000));
  return fd;
}

static long long most(void) {
  harness_stats();
  return atomic_load(&seen.requests_turn_max);
}

Test(turns, many_connections_at_once_share_turns) {
  enum { CLIENTS = 3 * READ_TURN_REQUESTS };
  harness_start((const char *[]){"--max-connections-per-ip=0", NULL});
  static int fd[CLIENTS];
  char *request = client_post_text("/v1/completions", "", small);
  for (int i = 0; i < CLIENTS; i++) fd[i] = client_connect(harness_port(0));
  for (int round = 0; round < 3; round++) {
    int sleeper = nap(150);
    for (int i = 0; i < CLIENTS; i++) client_send(fd[i], request);
    for (int i = 0; i < CLIENTS; i++) {
      char *answer = client_read(fd[i], "\"id\"", 10000);
      ASSERT_EQ(status_of(answer), 200);
      free(answer);
    }
    close(sleeper);
  }
  ASSERT_EQ(most(), READ_TURN_REQUESTS);
  free(request);
  for (int i = 0; i < CLIENTS; i++) close(fd[i]);
  harness_stop();
}

/* Those who wait to be read may leave, and bodies come in several reads. */
Test(turns, clients_leave_while_they_wait) {
  enum { CLIENTS = 2 * READ_TURN_REQUESTS, BODY = 200000 };
  harness_start((const char *[]){"--max-connections-per-ip=0", NULL});
  static int fd[CLIENTS];
  static char large[BODY + 1];
  snprintf(large, sizeof large, "%-*s", BODY, small);
  char *request = client_post_text("/v1/completions", "", small);
  char *upload = client_post_text("/v1/completions", "", large);
  for (int i = 0; i < CLIENTS; i++) fd[i] = client_connect(harness_port(0));
  int uploader = client_connect(harness_port(0));
  int sleeper = nap(150);
  for (int i = 0; i < CLIENTS; i++) client_send(fd[i], request);
  for (int i = 0; i < CLIENTS; i += 2) client_reset(fd[i]);
  client_send(uploader, upload);
  for (int i = 1; i < CLIENTS; i += 2) {
    char *answer = client_read(fd[i], "\"id\"", 10000);
    ASSERT_EQ(status_of(answer), 200);
    free(answer);
    close(fd[i]);
  }
  char *answer = client_read(uploader, "\"id\"", 10000);
  ASSERT_EQ(status_of(answer), 200);
  ASSERT_NE(strstr(answer, "\"length\":200000"), NULL);
  ASSERT_LE(most(), READ_TURN_REQUESTS);
  free(answer);
  free(request);
  free(upload);
  close(uploader);
  close(sleeper);
  harness_stop();
}

/* What one read brings is read whole: the next turn is for others. */
Test(turns, requests_behind_each_other_count) {
  enum { DEEP = 200 };
  harness_start(NULL);
  static char text[DEEP * 64];
  for (int i = 0; i < DEEP; i++) strcat(text, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  int deep = client_connect(harness_port(0)), other = client_connect(harness_port(0));
  int sleeper = nap(150);
  client_send(deep, text);
  client_send(other, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  char *answer = client_read(other, "HTTP/1.1 200", 5000);
  ASSERT_EQ(status_of(answer), 200);
  free(answer);
  ASSERT_GT(most(), READ_TURN_REQUESTS);
  ASSERT_LE(most(), READ_TURN_REQUESTS + DEEP);
  close(deep);
  close(other);
  close(sleeper);
  harness_stop();
}
