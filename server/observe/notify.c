/* notify.c: one datagram per message to NOTIFY_SOCKET (sd_notify(3)).
 *
 * Loop thread. Keeps no state. libsystemd is not used: it would add three compression libraries.
 */
#include "server/observe/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *format, ...) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path == NULL || (path[0] != '/' && path[0] != '@')) return;
  size_t length = strlen(path);
  if (length < 2 || length >= sizeof address.sun_path) return;
  char text[NOTIFY_BYTES_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0'; /* abstract: a leading NUL, no trailing one */
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
  close(fd);
}

void notify_loading(double progress) {
  const int more_s = progress < 1 ? 30 : 600;
  notify_send("STATUS=Loading weights %.0f%%\nEXTEND_TIMEOUT_USEC=%d000000", progress * 100,
              more_s);
}

uint64_t notify_watchdog_ns(void) {
  const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
  if (interval == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid())) return 0;
  uint64_t usec = strtoull(interval, NULL, 10);
  return usec < UINT64_MAX / 1000 ? usec * 1000 : 0;
}
