/* identity.c: the certificate and the key of this server, read from files of PEM.
 *
 * Read on the loop thread, at start and at a reload; shared with the threads of tls.c. The key of
 * session tickets belongs to the identity: no session that began with an old certificate is resumed
 * after a reload.
 */
#include "server/tls/session.h"

#include "config/option_file.h"

#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FILE_BYTES_MAX = 1 << 20 };

/* TLS 1.2 and 1.3, forward secrecy and authenticated ciphers alone. */
static const char priorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:"
    "+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305";

tls_identity_t *tls_identity_share(tls_identity_t *identity) {
  __atomic_add_fetch(&identity->references, 1, __ATOMIC_RELAXED);
  return identity;
}

void tls_identity_free(tls_identity_t *identity) {
  if (identity == NULL || __atomic_sub_fetch(&identity->references, 1, __ATOMIC_ACQ_REL) > 0) {
    return;
  }
  if (identity->credentials != NULL) gnutls_certificate_free_credentials(identity->credentials);
  if (identity->priority != NULL) gnutls_priority_deinit(identity->priority);
  gnutls_free(identity->tickets.data);
  free(identity);
}

const char *tls_identity_text(const tls_identity_t *identity) {
  return identity->text;
}

const char *tls_identity_warning(const tls_identity_t *identity) {
  return identity->warning[0] != '\0' ? identity->warning : NULL;
}

int64_t tls_identity_expires(const tls_identity_t *identity) {
  return identity->expires;
}

/* ---- checks ---- */

/* Sets text, expires and warning from the first certificate. */
static void describe(tls_identity_t *identity, gnutls_x509_crt_t first) {
  char name[192] = "", day[32] = "";
  size_t size = sizeof name;
  time_t now = time(NULL), until = gnutls_x509_crt_get_expiration_time(first);
  time_t from = gnutls_x509_crt_get_activation_time(first);
  struct tm tm;
  if (gnutls_x509_crt_get_dn(first, name, &size) != 0 || name[0] == '\0') {
    snprintf(name, sizeof name, "a certificate without a name");
  }
  if (gmtime_r(&until, &tm) != NULL) strftime(day, sizeof day, "%Y-%m-%d", &tm);
  identity->expires = (int64_t)until;
  snprintf(identity->text, sizeof identity->text, "%s, valid until %s", name, day);
  if (until < now) {
    snprintf(identity->warning, sizeof identity->warning, "has expired on %s", day);
  } else if (from > now && gmtime_r(&from, &tm) != NULL) {
    strftime(day, sizeof day, "%Y-%m-%d", &tm);
    snprintf(identity->warning, sizeof identity->warning, "is not valid before %s", day);
  }
}

/* What GnuTLS says of a pair of files, as an error that names the right one of them. */
static int refuse(int status, const char *certificate, const char *key, inferd_error_t *error) {
  if (status == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) {
    return error_set(error, ERR_CONFIGURATION, "tls_key",
                     "tls_key: the key in %.200s is not that of the certificate in %.200s", key,
                     certificate);
  }
  return error_set(error, ERR_CONFIGURATION, "tls_cert", "tls_cert: cannot use %.200s: %s",
                   certificate, gnutls_strerror(status));
}

/* The bytes of a file, as GnuTLS takes them. */
static gnutls_datum_t datum_of(const option_file_t *file) {
  return (gnutls_datum_t){(unsigned char *)file->text, (unsigned)file->size};
}

static int check_certificate(const char *path, const gnutls_datum_t *file, tls_identity_t *identity,
                             inferd_error_t *error) {
  gnutls_x509_crt_t *chain = NULL;
  unsigned count = 0;
  int status = gnutls_x509_crt_list_import2(&chain, &count, file, GNUTLS_X509_FMT_PEM,
                                            GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
  if (status < 0) {
    return error_set(error, ERR_CONFIGURATION, "tls_cert",
                     "tls_cert: %.200s holds no chain of certificates in PEM, the server's first: "
                     "%s",
                     path, gnutls_strerror(status));
  }
  describe(identity, chain[0]);
  for (unsigned i = 0; i < count; i++) gnutls_x509_crt_deinit(chain[i]);
  gnutls_free(chain);
  return 0;
}

static int check_key(const char *path, const gnutls_datum_t *file, inferd_error_t *error) {
  gnutls_x509_privkey_t key = NULL;
  int status = gnutls_x509_privkey_init(&key);
  if (status == 0) status = gnutls_x509_privkey_import2(key, file, GNUTLS_X509_FMT_PEM, NULL, 0);
  if (key != NULL) gnutls_x509_privkey_deinit(key);
  if (status == 0) return 0;
  bool locked = status == GNUTLS_E_DECRYPTION_FAILED;
  return error_set(error, ERR_CONFIGURATION, "tls_key", "tls_key: %.200s %s%s", path,
                   locked ? "needs a passphrase, which inferd cannot ask for"
                          : "holds no private key in PEM: ",
                   locked ? "" : gnutls_strerror(status));
}

static int trust(tls_identity_t *identity, const char *path, inferd_error_t *error) {
  option_file_t file;
  int code = option_file_read(&file, "tls_client_ca", path, FILE_BYTES_MAX, 0, error);
  if (code != 0) return code;
  gnutls_datum_t text = datum_of(&file);
  int count =
      gnutls_certificate_set_x509_trust_mem(identity->credentials, &text, GNUTLS_X509_FMT_PEM);
  option_file_free(&file);
  identity->asks_client = true;
  if (count > 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "tls_client_ca",
                   "tls_client_ca: %.200s holds no certificate in PEM", path);
}

int tls_identity_read(const char *certificate, const char *key, const char *client_ca,
                      tls_identity_t **out, inferd_error_t *error) {
  option_file_t files[2] = {0};
  gnutls_datum_t chain, secret;
  tls_identity_t *identity = calloc(1, sizeof *identity);
  if (identity == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for TLS");
  identity->references = 1;
  int code = option_file_read(&files[0], "tls_cert", certificate, FILE_BYTES_MAX, 0, error);
  chain = datum_of(&files[0]);
  if (code == 0) code = check_certificate(certificate, &chain, identity, error);
  if (code == 0) code = option_file_read(&files[1], "tls_key", key, FILE_BYTES_MAX, 0, error);
  secret = datum_of(&files[1]);
  if (code == 0) code = check_key(key, &secret, error);
  if (code == 0) {
    int status = gnutls_certificate_allocate_credentials(&identity->credentials);
    if (status == 0) {
      status = gnutls_certificate_set_x509_key_mem2(identity->credentials, &chain, &secret,
                                                    GNUTLS_X509_FMT_PEM, NULL, 0);
    }
    if (status >= 0) status = gnutls_priority_init(&identity->priority, priorities, NULL);
    if (status >= 0) status = gnutls_session_ticket_key_generate(&identity->tickets);
    if (status < 0) code = refuse(status, certificate, key, error);
  }
  if (code == 0 && client_ca[0] != '\0') code = trust(identity, client_ca, error);
  option_file_free(&files[0]);
  option_file_free(&files[1]);
  if (code != 0) {
    tls_identity_free(identity);
  } else {
    *out = identity;
  }
  return code;
}
