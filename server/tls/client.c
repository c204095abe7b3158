/* client.c: the client's side of TLS, for `inferd health` and `inferd top`.
 *
 * Main thread of a command.
 */
#include "server/tls/client.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls_link {
  gnutls_session_t gnutls;
  gnutls_certificate_credentials_t credentials;
};

/* What is wrong with the server's certificate, in one line. */
static const char *verification(gnutls_session_t gnutls) {
  static char text[300];
  gnutls_datum_t words = {0};
  unsigned status = gnutls_session_get_verify_cert_status(gnutls);
  if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &words, 0) != 0) {
    return "its certificate is not trusted";
  }
  snprintf(text, sizeof text, "%s", (const char *)words.data);
  gnutls_free(words.data);
  return text;
}

tls_link_t *tls_link_open(int fd, const char *host, unsigned timeout_ms, const char **why) {
  tls_link_t *link = calloc(1, sizeof *link);
  if (link == NULL) {
    *why = "no memory";
    return NULL;
  }
  int status = gnutls_certificate_allocate_credentials(&link->credentials);
  if (status == 0) status = gnutls_init(&link->gnutls, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL);
  if (status == 0) status = gnutls_set_default_priority(link->gnutls);
  if (status == 0) {
    status = gnutls_credentials_set(link->gnutls, GNUTLS_CRD_CERTIFICATE, link->credentials);
  }
  if (status == 0 && host != NULL) {
    (void)gnutls_certificate_set_x509_system_trust(link->credentials);
    (void)gnutls_server_name_set(link->gnutls, GNUTLS_NAME_DNS, host, strlen(host));
    gnutls_session_set_verify_cert(link->gnutls, host, 0);
  }
  if (status == 0) {
    gnutls_transport_set_int(link->gnutls, fd);
    gnutls_handshake_set_timeout(link->gnutls, timeout_ms);
    do {
      status = gnutls_handshake(link->gnutls);
    } while (status < 0 && gnutls_error_is_fatal(status) == 0);
  }
  if (status == 0) return link;
  *why = status == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR ? verification(link->gnutls)
                                                           : gnutls_strerror(status);
  tls_link_close(link);
  return NULL;
}

ssize_t tls_link_send(tls_link_t *link, const char *bytes, size_t size) {
  return gnutls_record_send(link->gnutls, bytes, size);
}

ssize_t tls_link_receive(tls_link_t *link, char *bytes, size_t size) {
  for (;;) {
    ssize_t got = gnutls_record_recv(link->gnutls, bytes, size);
    if (got >= 0) return got;
    if (gnutls_error_is_fatal((int)got) != 0) return -1; /* else tickets and their like */
  }
}

bool tls_link_has_more(tls_link_t *link) {
  return gnutls_record_check_pending(link->gnutls) > 0;
}

void tls_link_close(tls_link_t *link) {
  if (link == NULL) return;
  if (link->gnutls != NULL) gnutls_deinit(link->gnutls);
  if (link->credentials != NULL) gnutls_certificate_free_credentials(link->credentials);
  free(link);
}
