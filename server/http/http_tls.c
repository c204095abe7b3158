/* http_tls.c: TCP connections that speak TLS, on their way to tls.h and back.
 *
 * Loop thread. A connection is counted, for all and for its address, from its accept on; a
 * handshake may take as long as the headers of a request may (--header-timeout), and then ends
 * without a trace.
 */
#include "server/http/http_internal.h"

#include "server/tls/tls.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Loop thread: handshakes have ended. */
static void on_wake(uv_async_t *async) {
  http_t *http = async->data;
  tls_client_t client;
  while (tls_next(http->tls, &client)) {
    const struct sockaddr *address = (const struct sockaddr *)&client.address;
    peer_t peer;
    peer_from(address, &peer);
    limit_peer_remove(http->limit, &peer);
    http->handshakes--;
    if (client.fd < 0) {
      http->tls_late += client.late;
      http->tls_failed += !client.late;
      log_line(LOG_DEBUG, "tls", "handshake: %s", client.why);
      continue;
    }
    http->tls_done++;
    (void)MHD_add_connection(http->daemons[0].mhd, client.fd, address, client.address_length);
    http_mark(http, true);
  }
}

/* A thread of tls.c. */
static void wake(void *context) {
  http_t *http = context;
  uv_async_send(&http->tls_wake);
}

static void say(const tls_identity_t *identity) {
  const char *warning = tls_identity_warning(identity);
  log_line(LOG_INFO, "tls", "certificate: %s", tls_identity_text(identity));
  if (warning != NULL) log_line(LOG_WARN, "tls", "the certificate %s: clients refuse it", warning);
}

static int read_identity(const config_t *config, tls_identity_t **out, inferd_error_t *error) {
  const char *key = config->tls_key[0] != '\0' ? config->tls_key : config->tls_cert;
  return tls_identity_read(config->tls_cert, key, config->tls_client_ca, out, error);
}

int http_tls_check(const config_t *config, inferd_error_t *error) {
  tls_identity_t *identity = NULL;
  int code = config->tls_cert[0] != '\0' ? read_identity(config, &identity, error) : 0;
  if (code == 0) tls_identity_free(identity);
  return code;
}

/* A number that changes with the files: of inode, size and time of each. */
static uint64_t look_at_files(const config_t *config) {
  const char *const paths[] = {config->tls_cert, config->tls_key, config->tls_client_ca};
  uint64_t sum = 0;
  for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
    struct stat file;
    if (paths[i][0] == '\0' || stat(paths[i], &file) != 0) continue;
    const uint64_t parts[] = {i, (uint64_t)file.st_ino, (uint64_t)file.st_size,
                              (uint64_t)file.st_mtim.tv_sec, (uint64_t)file.st_mtim.tv_nsec};
    for (size_t j = 0; j < ARRAY_LEN(parts); j++) sum = (sum ^ parts[j]) * 0x100000001b3U;
  }
  return sum;
}

int http_tls_start(http_t *http, inferd_error_t *error) {
  const config_t *config = http->server->config;
  tls_identity_t *identity = NULL;
  if (config->tls_cert[0] == '\0') return 0;
  http->tls_known = http->tls_seen = look_at_files(config);
  int code = read_identity(config, &identity, error);
  if (code != 0) return code;
  if (uv_async_init(http->loop, &http->tls_wake, on_wake) != 0) {
    tls_identity_free(identity);
    return error_set(error, ERR_IO, NULL, "cannot make a handle for TLS");
  }
  http->tls_wake.data = http;
  http->open_handles++;
  code = tls_start(identity, wake, http, &http->tls, error);
  if (code == 0) {
    say(identity);
    return 0;
  }
  tls_identity_free(identity);
  return code;
}

void http_tls_accept(http_t *http, int fd, const peer_t *peer, const struct sockaddr *address,
                     socklen_t length) {
  double timeout_s = http->server->config->header_timeout;
  if (!tls_accept(http->tls, fd, address, length, (uint64_t)(timeout_s * 1000))) {
    http->tls_failed++;
    close(fd);
    return;
  }
  limit_peer_add(http->limit, peer);
  http->handshakes++;
}

int64_t http_tls_expires(const http_t *http) {
  return http->tls != NULL ? tls_identity_expires(tls_present(http->tls)) : 0;
}

void http_tls_stop(http_t *http) {
  tls_stop(http->tls);
  http->tls = NULL;
}

bool http_has_tls(const http_t *http) {
  return http->tls != NULL;
}

int http_identity_read(http_t *http, const config_t *config, tls_identity_t **out,
                       inferd_error_t *error) {
  *out = NULL;
  if (http->tls == NULL || config->tls_cert[0] == '\0') return 0;
  http->tls_read = look_at_files(config);
  return read_identity(config, out, error);
}

void http_identity_replace(http_t *http, tls_identity_t *identity) {
  http->tls_known = http->tls_read;
  tls_replace(http->tls, identity);
  say(identity);
}

/* Certificate and key are two files: they are read when nothing has changed since the last look. */
void http_identity_refresh(http_t *http, uint64_t now_ns) {
  const config_t *config = http->server->config;
  uint64_t every_ns = (uint64_t)(config->tls_refresh * 1e9);
  if (http->tls == NULL || every_ns == 0 || now_ns - http->tls_looked_ns < every_ns) return;
  uint64_t before = http->tls_seen;
  http->tls_looked_ns = now_ns;
  http->tls_seen = look_at_files(config);
  if (http->tls_seen != before || before == http->tls_known) return;
  tls_identity_t *identity = NULL;
  inferd_error_t error = {0};
  if (http_identity_read(http, config, &identity, &error) == 0) {
    http_identity_replace(http, identity);
  } else {
    http->tls_known = before;
    log_line(LOG_ERROR, "tls", "%s; the old certificate stays", error.message);
  }
}
