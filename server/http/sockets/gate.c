/* gate.c: defines recv, so that every byte is checked before libmicrohttpd reads it.
 *
 * Any thread. This file knows neither the library nor a connection; http_read.c does, and checks at
 * start that the library's reads really come through here.
 */
#include "server/http/sockets/gate.h"

#include <sys/socket.h>

static _Thread_local gate_read_t reader;
static _Thread_local void *reader_context;

void gate_open(gate_read_t read, void *context) {
  reader = read;
  reader_context = context;
}

void gate_close(void) {
  reader = NULL;
}

/* recvfrom without an address is recv. Sanitizers watch it, as they would watch recv. */
ssize_t gate_receive(int fd, char *bytes, size_t length, int flags) {
  return recvfrom(fd, bytes, length, flags, NULL, NULL);
}

/* The label makes it `recv` for the linker. A C function of that name would collide with the one
 * that _FORTIFY_SOURCE puts into sys/socket.h. */
ssize_t gate_entry(int fd, void *bytes, size_t length, int flags) __asm__("recv");
ssize_t gate_entry(int fd, void *bytes, size_t length, int flags) {
  if (reader == NULL) return gate_receive(fd, bytes, length, flags);
  return reader(reader_context, fd, bytes, length, flags);
}
