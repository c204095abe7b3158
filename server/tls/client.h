/* client.h: the client's side of TLS, for `inferd health` and `inferd top`.
 *
 * Blocks; for commands, never for the daemon.
 */
#ifndef INFERD_SERVER_TLS_CLIENT_H
#define INFERD_SERVER_TLS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct tls_link tls_link_t;

/* Makes a session over a connected socket, which stays the caller's. `host` is the name that the
 * server's certificate must have, signed by an authority that the system trusts; NULL: any
 * certificate will do. Returns NULL, with *why a static text or one that the next call overwrites,
 * if that fails or takes longer than `timeout_ms`. */
tls_link_t *tls_link_open(int fd, const char *host, unsigned timeout_ms, const char **why);
/* As send and recv. */
ssize_t tls_link_send(tls_link_t *link, const char *bytes, size_t size);
ssize_t tls_link_receive(tls_link_t *link, char *bytes, size_t size);
bool tls_link_has_more(tls_link_t *link); /* tls_link_receive has bytes without the socket */
void tls_link_close(tls_link_t *link);    /* NULL is allowed */

#endif
