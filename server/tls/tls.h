/* tls.h: TLS in front of the transport, on two threads of its own.
 *
 * The loop thread gives each TCP connection that it has accepted to tls_accept. The thread of
 * handshakes makes it a TLS session; the thread of relays then moves the bytes between this session
 * and one end of a socket pair. The transport serves the other end as it serves a plain connection:
 * its reader checks what was decrypted, and its limits, deadlines and disconnects are the same.
 * No handshake and no cipher runs on the loop thread, and a flood of handshakes does not delay the
 * bytes of clients that are connected.
 *
 * All functions are for the loop thread. This folder alone knows GnuTLS.
 */
#ifndef INFERD_SERVER_TLS_TLS_H
#define INFERD_SERVER_TLS_TLS_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A certificate chain with its key, read and checked, and how sessions with it are made. Counted:
 * sessions keep the one that they began with. */
typedef struct tls_identity tls_identity_t;

/* Reads files of PEM. `client_ca`: "" = clients need no certificate; else they need one that an
 * authority of this file has signed. Returns 0, or an error whose param is the option: a file that
 * is missing or unreadable, is no PEM, or a key that is not that of the certificate. */
int tls_identity_read(const char *certificate, const char *key, const char *client_ca,
                      tls_identity_t **out, inferd_error_t *error);
void tls_identity_free(tls_identity_t *identity); /* NULL is allowed */
/* "CN=llm.example.com, valid until 2027-03-01" */
const char *tls_identity_text(const tls_identity_t *identity);
/* What a client will complain about: it has expired, or is not valid yet; else NULL. */
const char *tls_identity_warning(const tls_identity_t *identity);
int64_t tls_identity_expires(const tls_identity_t *identity); /* unix seconds */

typedef struct tls tls_t;

/* A handshake that has ended. */
typedef struct tls_client {
  int fd; /* the transport's end of the pair, the caller's now; -1: there is no session */
  struct sockaddr_storage address; /* of the client */
  socklen_t address_length;
  const char *why; /* fd < 0: the reason, static text */
  bool late;       /* fd < 0: the client did not end the handshake in time */
} tls_client_t;

/* Starts the threads. They call `wake` when tls_next has something, from a thread of their own.
 * Takes over the identity, but not on error. */
int tls_start(tls_identity_t *identity, void (*wake)(void *), void *context, tls_t **out,
              inferd_error_t *error);
/* New connections get this identity, which is the callee's from now on. */
void tls_replace(tls_t *tls, tls_identity_t *identity);
const tls_identity_t *tls_present(const tls_t *tls);
/* Takes over a non-blocking TCP socket; tls_next returns it once, within `timeout_ms` or a little
 * later. Returns false, and the caller keeps the socket, if memory is short. */
bool tls_accept(tls_t *tls, int fd, const struct sockaddr *address, socklen_t length,
                uint64_t timeout_ms);
bool tls_next(tls_t *tls, tls_client_t *out);
/* How many bytes of the session behind `fd` the client's system has acknowledged; 0 if it is gone.
 * It is called with the descriptor of a connection that tls_next gave and that is still open. */
uint64_t tls_acknowledged(tls_t *tls, int fd);
/* Ends the threads. What the transport has written before it closed its ends still leaves, for
 * at most TLS_STOP_MS. NULL is allowed. */
void tls_stop(tls_t *tls);

enum { TLS_STOP_MS = 1000 };

#endif
