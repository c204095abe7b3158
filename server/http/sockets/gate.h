/* gate.h: replaces recv, the one call by which libmicrohttpd reads sockets, and send.
 *
 * The library has no hook before its parser, and none behind its printer. The executable defines
 * recv and send, so the dynamic linker resolves the library's calls to these definitions (gate.c).
 * They are the plain ones, but for a thread that is between gate_open and gate_close. Any thread.
 */
#ifndef INFERD_SERVER_HTTP_GATE_H
#define INFERD_SERVER_HTTP_GATE_H

#include <stddef.h>
#include <sys/types.h>

/* As recv: returns what it put into `bytes`; 0 is the end of file, -1 sets errno. */
typedef ssize_t (*gate_read_t)(void *context, int fd, char *bytes, size_t length, int flags);

/* As send: returns how many bytes it took; -1 sets errno. */
typedef ssize_t (*gate_write_t)(void *context, int fd, const char *bytes, size_t length, int flags);

/* Until gate_close, each call of recv by this thread is a call of `read`, and each of send one of
 * `write` (NULL: the plain one). One gate per thread. The caller keeps `context` alive for as long.
 */
void gate_open(gate_read_t read, gate_write_t write, void *context);
void gate_close(void);
/* The system's recv and send, gate or not. */
ssize_t gate_receive(int fd, char *bytes, size_t length, int flags);
ssize_t gate_send(int fd, const char *bytes, size_t length, int flags);

#endif
