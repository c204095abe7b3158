/* gate.c: defines recv, so that every byte is checked before libmicrohttpd reads it, and send, so
 * that a head can wait for its first chunk.
 *
 * Any thread. This file knows neither the library nor a connection; http_read.c does, and checks at
 * start that the library's reads really come through here. Without its sends all goes out as well.
 */
#include "server/http/sockets/gate.h"

#include <sys/socket.h>

static _Thread_local gate_read_t reader;
static _Thread_local gate_write_t writer;
static _Thread_local void *gate_context;

void gate_open(gate_read_t read, gate_write_t write, void *context) {
  reader = read;
  writer = write;
  gate_context = context;
}

void gate_close(void) {
  reader = NULL;
  writer = NULL;
}

/* recvfrom without an address is recv. Sanitizers watch it, as they would watch recv. */
ssize_t gate_receive(int fd, char *bytes, size_t length, int flags) {
  return recvfrom(fd, bytes, length, flags, NULL, NULL);
}

ssize_t gate_send(int fd, const char *bytes, size_t length, int flags) {
  return sendto(fd, bytes, length, flags, NULL, 0);
}

/* The label makes it `recv` for the linker. A C function of that name would collide with the one
 * that _FORTIFY_SOURCE puts into sys/socket.h. */
ssize_t gate_entry(int fd, void *bytes, size_t length, int flags) __asm__("recv");
ssize_t gate_entry(int fd, void *bytes, size_t length, int flags) {
  if (reader == NULL) return gate_receive(fd, bytes, length, flags);
  return reader(gate_context, fd, bytes, length, flags);
}

ssize_t gate_exit(int fd, const void *bytes, size_t length, int flags) __asm__("send");
ssize_t gate_exit(int fd, const void *bytes, size_t length, int flags) {
  if (writer == NULL) return gate_send(fd, bytes, length, flags);
  return writer(gate_context, fd, bytes, length, flags);
}
