/* gate.h: replaces recv, the one call by which libmicrohttpd reads sockets.
 *
 * The library has no hook before its parser. The executable defines recv, so the dynamic linker
 * resolves the library's call to that definition (gate.c). It is the plain recv, but for a thread
 * that is between gate_open and gate_close. Any thread.
 */
#ifndef INFERD_SERVER_HTTP_GATE_H
#define INFERD_SERVER_HTTP_GATE_H

#include <stddef.h>
#include <sys/types.h>

/* As recv: returns what it put into `bytes`; 0 is the end of file, -1 sets errno. */
typedef ssize_t (*gate_read_t)(void *context, int fd, char *bytes, size_t length, int flags);

/* Until gate_close, each call of recv by this thread is a call of `read`. One gate per thread. The
 * caller keeps `context` alive for as long. */
void gate_open(gate_read_t read, void *context);
void gate_close(void);
/* The system's recv, gate or not. */
ssize_t gate_receive(int fd, char *bytes, size_t length, int flags);

#endif
