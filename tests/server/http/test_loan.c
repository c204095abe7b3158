/* test_loan.c: streams that go to a socket which the parent of the process has lent; the test is
 * the parent.
 */
#include "tests/expect.h"
#include "tests/server/http/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

TestSuite(loan, .timeout = 120);

typedef struct parent {
  char path[32], uds[64];
  int fd;     /* to the process */
  int client; /* the other end of the socket that is lent */
  char *text; /* of the request */
} parent_t;

/* Sends the request with one end of a pair, as channel.c does. */
static void send_with(int fd, const char *text, int lent) {
  union {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof lent)];
  } control = {0};
  struct iovec data = {(void *)(uintptr_t)text, strlen(text)};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(sizeof lent);
  memcpy(CMSG_DATA(&control.header), &lent, sizeof lent);
  ASSERT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Begins a stream of 2,000 events and grants the socket. */
static parent_t begin(int size) {
  parent_t parent = {.path = "/tmp/inferd-loan-XXXXXX"};
  char flag[96], body[100];
  int pair[2];
  cr_assert_not_null(mkdtemp(parent.path));
  snprintf(parent.uds, sizeof parent.uds, "%s/s", parent.path);
  snprintf(flag, sizeof flag, "--uds=%s", parent.uds);
  snprintf(body, sizeof body, "{\"mode\":\"stream\",\"n\":2000,\"ms\":5,\"size\":%d}", size);
  atomic_store(&fake_behind, true);
  harness_start((const char *[]){"--send-thread=off", flag, NULL});
  parent.fd = client_connect_unix(parent.uds);
  parent.text = client_post_text("/v1/completions", "", body);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  send_with(parent.fd, parent.text, pair[1]);
  close(pair[1]);
  parent.client = pair[0];
  char *asked = client_read(parent.fd, "\r\n=\r\n", 10000);
  cr_assert_not_null(strstr(asked, "\r\n=\r\n"), "%s", asked);
  free(asked);
  client_send(parent.fd, "=");
  char *chunks = client_read(parent.client, "\n\n", 10000);
  cr_assert_not_null(strstr(chunks, "data: "), "%s", chunks);
  free(chunks);
  return parent;
}

static void end(parent_t *parent) {
  close(parent->fd);
  free(parent->text);
  cr_assert(wait_for(&seen.live, 0, 5000));
  harness_stop();
  rmdir(parent->path);
  atomic_store(&fake_behind, false);
}

/* The client has left, and the process lives: the parent must not take the end of the connection
 * for the end of the process, behind which it would tell its client an error. */
Test(loan, who_cuts_a_stream_says_so_before_the_connection_ends) {
  parent_t parent = begin(100);
  close(parent.client);
  char *said = client_read_all(parent.fd, 10000);
  EXPECT_STR_EQ(said, "<\r\n");
  EXPECT_STR_EQ(atomic_load(&seen.cause), "client_gone");
  free(said);
  end(&parent);
}

/* Nor is it told twice: the first chunk of which the socket took a part has said it. */
Test(loan, a_full_socket_is_told_once) {
  parent_t parent = begin(1000);
  char *said = client_read(parent.fd, "<\r\n", 30000);
  EXPECT_STR_EQ(said, "<\r\n");
  close(parent.client);
  char *more = client_read_all(parent.fd, 10000);
  EXPECT_STR_EQ(more, "");
  free(said), free(more);
  end(&parent);
}
