/* session.c: one client that speaks TLS: its handshake, then its bytes in both directions.
 *
 * Thread of handshakes, then thread of relays (tls.c). Back pressure: a direction whose receiver
 * has no room keeps at most one record and reads nothing more. GnuTLS reads from the socket no
 * further than the record that it decrypts, so epoll always knows whether more can be read.
 */
#include "server/tls/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- handshake ---- */

bool session_begin(session_t *session) {
  enum { HANDSHAKE_BYTES_MAX = 32 * 1024 };
  const tls_identity_t *identity = session->identity;
  static const gnutls_datum_t protocols[] = {{(unsigned char *)"http/1.1", 8},
                                             {(unsigned char *)"http/1.0", 8}};
  if (gnutls_init(&session->gnutls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) != 0) {
    session->gnutls = NULL;
    return false;
  }
  gnutls_session_t gnutls = session->gnutls;
  gnutls_handshake_set_timeout(gnutls, GNUTLS_INDEFINITE_TIMEOUT); /* the deadline is ours */
  gnutls_handshake_set_max_packet_length(gnutls, HANDSHAKE_BYTES_MAX);
  if (gnutls_priority_set(gnutls, identity->priority) != 0 ||
      gnutls_credentials_set(gnutls, GNUTLS_CRD_CERTIFICATE, identity->credentials) != 0 ||
      gnutls_alpn_set_protocols(gnutls, protocols, 2, GNUTLS_ALPN_MANDATORY) != 0) {
    return false;
  }
  if (identity->asks_client) {
    gnutls_certificate_server_set_request(gnutls, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_cert(gnutls, NULL, 0);
  } else if (gnutls_session_ticket_enable_server(gnutls, &identity->tickets) != 0) {
    return false;
  }
  gnutls_transport_set_int(gnutls, session->outer.fd);
  return true;
}

/* A client that speaks HTTP without TLS gets an answer that it can read. */
static void answer_plainly(int fd) {
  static const char body[] =
      "{\"error\":{\"message\":\"This port speaks TLS: use https in the URL.\","
      "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"tls_required\"}}";
  char text[512], waste[4096];
  int length = snprintf(text, sizeof text,
                        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                        "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                        sizeof body - 1, body);
  /* A socket that is closed with unread bytes sends a reset, which can overtake the answer. */
  for (int i = 0; i < 16 && recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0; i++) {
  }
  (void)!send(fd, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)shutdown(fd, SHUT_WR);
}

/* Returns true if the first byte is that of a method; a handshake begins with 22. */
static bool speaks_http(session_t *session) {
  char first = 0;
  if (session->began || recv(session->outer.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
    return false;
  }
  session->began = true;
  return first >= 'A' && first <= 'Z';
}

session_step_t session_shake(session_t *session, const char **why) {
  if (speaks_http(session)) {
    answer_plainly(session->outer.fd);
    *why = "the client does not speak TLS";
    return SESSION_FAILED;
  }
  int code = gnutls_handshake(session->gnutls);
  if (code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED) return SESSION_WAITS;
  if (code == 0) return SESSION_DONE;
  if (gnutls_error_is_fatal(code) == 0) return SESSION_WAITS;
  (void)gnutls_alert_send_appropriate(session->gnutls, code);
  *why = gnutls_strerror(code);
  return SESSION_FAILED;
}

/* ---- bytes ---- */

/* Keeps bytes that had no room. Returns false if memory is short. */
static bool stock_keep(stock_t *stock, const char *bytes, size_t size) {
  if (stock->bytes != NULL) return true; /* they are those of the stock */
  stock->bytes = malloc(size);
  if (stock->bytes == NULL) return false;
  memcpy(stock->bytes, bytes, size);
  stock->at = 0;
  stock->size = size;
  return true;
}

static void stock_clear(stock_t *stock) {
  free(stock->bytes);
  *stock = (stock_t){0};
}

/* Encrypts and sends. After a call that would block, GnuTLS wants the same bytes again. */
static session_step_t send_out(session_t *session, const char *bytes, size_t size,
                               uint64_t now_ms) {
  size_t at = 0;
  while (at < size) {
    ssize_t sent = gnutls_record_send(session->gnutls, bytes + at, size - at);
    if (sent == GNUTLS_E_INTERRUPTED) continue;
    if (sent == GNUTLS_E_AGAIN) {
      if (session->out.bytes != NULL) {
        session->out.at += at;
      } else if (!stock_keep(&session->out, bytes + at, size - at)) {
        return SESSION_FAILED;
      }
      return SESSION_WAITS;
    }
    if (sent < 0) return SESSION_FAILED;
    at += (size_t)sent;
    if (session->deadline_ms != 0) session->deadline_ms = now_ms + FLUSH_MS;
  }
  stock_clear(&session->out);
  return SESSION_DONE;
}

/* Ends the direction to the client, once all was sent. */
static session_step_t say_bye(session_t *session) {
  int code = gnutls_bye(session->gnutls, GNUTLS_SHUT_WR);
  if (code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED) return SESSION_WAITS;
  session->said_bye = true;
  if (code != 0) return SESSION_FAILED;
  (void)shutdown(session->outer.fd, SHUT_WR);
  return SESSION_DONE;
}

static session_step_t relay_out(session_t *session, char *scratch, uint64_t now_ms) {
  stock_t *out = &session->out;
  for (int i = 0; i < RECORDS_PER_TURN && !session->said_bye; i++) {
    if (out->bytes != NULL) {
      session_step_t step = send_out(session, out->bytes + out->at, out->size - out->at, now_ms);
      if (step != SESSION_DONE) return step;
    }
    if (session->server_ended) return say_bye(session);
    ssize_t got = recv(session->inner.fd, scratch, RECORD_BYTES, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return SESSION_WAITS;
    if (got <= 0) {
      session->server_ended = true;
      session->deadline_ms = now_ms + FLUSH_MS;
      continue;
    }
    session_step_t step = send_out(session, scratch, (size_t)got, now_ms);
    if (step != SESSION_DONE) return step;
  }
  return SESSION_WAITS;
}

/* Hands decrypted bytes to the transport. One that has closed its end wants them no more. */
static session_step_t send_in(session_t *session, const char *bytes, size_t size) {
  size_t at = 0;
  while (at < size && !session->server_gone) {
    ssize_t sent = send(session->inner.fd, bytes + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      if (session->in.bytes != NULL) {
        session->in.at += at;
      } else if (!stock_keep(&session->in, bytes + at, size - at)) {
        return SESSION_FAILED;
      }
      return SESSION_WAITS;
    }
    if (sent < 0) {
      session->server_gone = true;
    } else {
      at += (size_t)sent;
    }
  }
  stock_clear(&session->in);
  return SESSION_DONE;
}

static session_step_t relay_in(session_t *session, char *scratch) {
  stock_t *in = &session->in;
  for (int i = 0; i < RECORDS_PER_TURN && !session->client_ended; i++) {
    if (in->bytes != NULL) {
      session_step_t step = send_in(session, in->bytes + in->at, in->size - in->at);
      if (step != SESSION_DONE) return step;
    }
    if (session->server_gone) return SESSION_WAITS;
    ssize_t got = gnutls_record_recv(session->gnutls, scratch, RECORD_BYTES);
    if (got == GNUTLS_E_AGAIN) return SESSION_WAITS;
    if (got == 0 || got == GNUTLS_E_PREMATURE_TERMINATION) {
      session->client_ended = true;
      (void)shutdown(session->inner.fd, SHUT_WR);
    } else if (got == GNUTLS_E_REHANDSHAKE || (got < 0 && gnutls_error_is_fatal((int)got) != 0)) {
      (void)gnutls_alert_send_appropriate(session->gnutls, (int)got);
      return SESSION_FAILED;
    } else if (got > 0) {
      session_step_t step = send_in(session, scratch, (size_t)got);
      if (step != SESSION_DONE) return step;
    }
  }
  return SESSION_WAITS;
}

session_step_t session_relay(session_t *session, char *scratch, uint64_t now_ms) {
  if (relay_in(session, scratch) == SESSION_FAILED) return SESSION_FAILED;
  if (relay_out(session, scratch, now_ms) == SESSION_FAILED) return SESSION_FAILED;
  if (!session->said_bye) return SESSION_WAITS;
  return session->client_ended || session->server_gone ? SESSION_DONE : SESSION_WAITS;
}

uint32_t session_wants_outer(const session_t *session) {
  if (session->inner.fd < 0) {
    return gnutls_record_get_direction(session->gnutls) == 1 ? EPOLLOUT : EPOLLIN;
  }
  bool reads = !session->client_ended && !session->server_gone && session->in.bytes == NULL;
  /* The inner end is watched no more when it is gone, but what it sent may still be there. */
  bool writes = session->out.bytes != NULL || (session->server_ended && !session->said_bye) ||
                (session->server_gone && !session->server_ended);
  return (reads ? (uint32_t)EPOLLIN : 0) | (writes ? (uint32_t)EPOLLOUT : 0);
}

uint32_t session_wants_inner(const session_t *session) {
  bool reads = !session->server_ended && session->out.bytes == NULL;
  bool writes = session->in.bytes != NULL;
  return (reads ? (uint32_t)EPOLLIN : 0) | (writes ? (uint32_t)EPOLLOUT : 0);
}

void session_close(session_t *session) {
  if (session->gnutls != NULL) gnutls_deinit(session->gnutls);
  session->gnutls = NULL;
  if (session->inner.fd >= 0) close(session->inner.fd);
  if (session->outer.fd >= 0) close(session->outer.fd);
  session->inner.fd = session->outer.fd = -1;
  stock_clear(&session->in);
  stock_clear(&session->out);
  tls_identity_free(session->identity);
  session->identity = NULL;
}
