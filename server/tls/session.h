/* session.h: one client that speaks TLS: its handshake, then its bytes in both directions.
 *
 * A session belongs to one thread at a time: first that of handshakes, then that of relays (tls.c).
 * No call blocks, and none does more than a turn's work.
 */
#ifndef INFERD_SERVER_TLS_SESSION_H
#define INFERD_SERVER_TLS_SESSION_H

#include "server/tls/tls.h"

#include <gnutls/gnutls.h>

enum {
  RECORD_BYTES = 16384, /* of plain text, the most that a record may have */
  RECORDS_PER_TURN = 16,
  FLUSH_MS = 30000 /* a client that takes nothing of the last bytes for this long is dropped */
};

/* identity.c; any thread. */
struct tls_identity {
  gnutls_certificate_credentials_t credentials;
  gnutls_priority_t priority;
  gnutls_datum_t tickets; /* key of session tickets; none where clients have certificates */
  bool asks_client;
  int64_t expires;
  char text[320], warning[160];
  int references; /* atomic */
};
tls_identity_t *tls_identity_share(tls_identity_t *identity);

/* Bytes that their receiver had no room for; `bytes` NULL = none. */
typedef struct stock {
  char *bytes;
  size_t at, size;
} stock_t;

/* What epoll reports: one end of a session. */
typedef struct session_end {
  struct session *session;
  int fd;
  uint32_t watched; /* events; UINT32_MAX = not in the set */
} session_end_t;

typedef struct session {
  gnutls_session_t gnutls; /* NULL until session_begin */
  tls_identity_t *identity;
  session_end_t outer; /* the client's TCP connection */
  session_end_t inner; /* our end of the socket pair; fd -1 until the handshake is done */
  int transport_fd;    /* the other end: a name, not ours */
  stock_t out, in;     /* to the client, to the transport */
  bool began;          /* its first byte has come */
  bool client_ended;   /* nothing more comes from the client */
  bool server_ended;   /* nothing more comes from the transport, all was read */
  bool server_gone;    /* the transport has closed its end */
  bool said_bye;       /* the end has been sent to the client */
  bool freed;
  uint64_t deadline_ms; /* 0 = none */
  struct done *done;    /* tls.c: for the report of its handshake, NULL once that is made */
  struct session *next, *previous;
  struct sockaddr_storage address;
  socklen_t address_length;
} session_t;

typedef enum session_step { SESSION_WAITS, SESSION_DONE, SESSION_FAILED } session_step_t;

/* Makes the TLS session. Returns false if memory is short. */
bool session_begin(session_t *session);
/* Goes on with the handshake. FAILED sets *why to static text. */
session_step_t session_shake(session_t *session, const char **why);
/* Moves bytes in both directions; `scratch` has RECORD_BYTES. DONE and FAILED: free it. */
session_step_t session_relay(session_t *session, char *scratch, uint64_t now_ms);
/* The events of epoll that the session waits for, of each end. */
uint32_t session_wants_outer(const session_t *session);
uint32_t session_wants_inner(const session_t *session);
/* Closes both ends and frees all but the struct itself. */
void session_close(session_t *session);

#endif
