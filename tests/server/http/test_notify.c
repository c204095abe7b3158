/* test_notify.c: what a service manager hears. */
#include "server/observe/notify.h"
#include "tests/expect.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(notify, .timeout = 30);

/* A manager's socket at `path` (a leading @ is abstract); NOTIFY_SOCKET names it. */
static int manager(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  ASSERT_EQ(bind(fd, (struct sockaddr *)&address, size), 0);
  setenv("NOTIFY_SOCKET", path, 1);
  return fd;
}

static void expect_message(int fd, const char *wanted) {
  char text[600];
  ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
  ASSERT_GT(n, 0);
  text[n] = '\0';
  EXPECT_STR_EQ(text, wanted);
}

Test(notify, path_and_abstract_sockets) {
  char path[64];
  for (int abstract = 0; abstract <= 1; abstract++) {
    snprintf(path, sizeof path, "%s/tmp/inferd-notify-%d", abstract ? "@" : "", (int)getpid());
    int fd = manager(path);
    notify_send("READY=1\nSTATUS=%d blocks", 7);
    expect_message(fd, "READY=1\nSTATUS=7 blocks");
    close(fd);
    if (!abstract) unlink(path);
  }
}

Test(notify, a_missing_or_odd_socket_is_no_failure) {
  unsetenv("NOTIFY_SOCKET");
  notify_send("READY=1");
  setenv("NOTIFY_SOCKET", "/tmp/inferd-no-such-socket", 1);
  notify_send("READY=1");
  setenv("NOTIFY_SOCKET", "vsock:2:1234", 1);
  notify_send("READY=1");
  char path[300];
  memset(path, 'x', sizeof path - 1);
  path[0] = '/';
  path[sizeof path - 1] = '\0';
  setenv("NOTIFY_SOCKET", path, 1);
  notify_send("READY=1");
}

/* A manager that stopped reading must not stop the server. */
Test(notify, a_full_socket_does_not_block) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/inferd-notify-%d", (int)getpid());
  int fd = manager(path);
  for (int i = 0; i < 5000; i++) notify_send("WATCHDOG=1");
  expect_message(fd, "WATCHDOG=1");
  close(fd);
  unlink(path);
}

Test(notify, watchdog_interval) {
  char pid[16];
  unsetenv("WATCHDOG_USEC"), unsetenv("WATCHDOG_PID");
  EXPECT_EQ(notify_watchdog_ns(), 0);
  setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(notify_watchdog_ns(), 30000000000u);
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(notify_watchdog_ns(), 0);
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  setenv("WATCHDOG_PID", pid, 1);
  EXPECT_EQ(notify_watchdog_ns(), 30000000000u);
}
