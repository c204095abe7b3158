/* transfer.c: one file on its way, see transfer.h. Never waits: libcurl's multi handle calls
 * what stands here. */
#include "server/media/transfer.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/media/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- what libcurl calls ---- */

/* Opens the socket to the very address that is connected to next. */
static curl_socket_t on_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
  transfer_t *transfer = context;
  if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
  if (!transfer->url.is_address && !media_address_is_public(&address->addr)) {
    transfer->closed = true;
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_header(char *bytes, size_t size, size_t count, void *context) {
  transfer_t *transfer = context;
  (void)bytes;
  transfer->headers += size * count;
  return transfer->headers <= MEDIA_HEADERS_MAX ? size * count : 0;
}

static int fail(transfer_t *transfer, const char *what) {
  return error_set(&transfer->error, ERR_INVALID_VALUE, NULL, "%.200s %s", transfer->url.host,
                   what);
}

/* Charges the largest room that the buffer may take before it takes it. */
static size_t on_bytes(char *bytes, size_t size, size_t count, void *context) {
  transfer_t *transfer = context;
  buffer_t *out = &transfer->bytes;
  const size_t length = size * count, capacity = out->capacity;
  if (length > transfer->kind.bytes_max - out->length) {
    transfer->code = error_set(&transfer->error, ERR_INVALID_VALUE, NULL,
                               "the %s's file at %.200s has more than %zu bytes",
                               transfer->kind.noun, transfer->url.host, transfer->kind.bytes_max);
    return 0;
  }
  if (capacity - out->length < length) {
    const size_t room = capacity + MAX(capacity / 2, length);
    if (!charge_resize(transfer->charge, transfer->charge->bytes + MAX(room, 64) - capacity)) {
      transfer->code = ledger_refuse(transfer->charge, &transfer->error);
      return 0;
    }
  }
  if (buffer_append(out, bytes, length)) return length;
  transfer->code =
      error_set(&transfer->error, ERR_NO_MEMORY, NULL, "no memory for a %s", transfer->kind.noun);
  return 0;
}

/* ---- the handle ---- */

static bool set_options(transfer_t *transfer, long left_ms) {
  const curl_api_t *curl = transfer->hosts->curl;
  CURL *easy = transfer->easy;
  const char *authorities = getenv("SSL_CERT_FILE");
  CURLcode code = curl->easy_setopt(easy, CURLOPT_CURLU, transfer->url.parsed);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_PROXY, "");
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_PRIVATE, transfer);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->reason);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms);
  if (code == CURLE_OK) code = curl->easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
  if (code == CURLE_OK && authorities != NULL && authorities[0] != '\0')
    code = curl->easy_setopt(easy, CURLOPT_CAINFO, authorities);
  if (code != CURLE_OK) return false;
  (void)curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  (void)curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  (void)curl->easy_setopt(easy, CURLOPT_USERAGENT, "inferd/" INFERD_VERSION);
#if LIBCURL_VERSION_NUM >= 0x075700
  /* A name that is still looked up when the time is over is left to its thread. */
  (void)curl->easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
  return true;
}

bool transfer_prepare(transfer_t *transfer) {
  const uint64_t now_ns = clock_now_ns();
  if (transfer->easy == NULL) {
    transfer->easy = transfer->hosts->curl->easy_init();
    transfer->due_ns = now_ns + (uint64_t)MEDIA_MS_MAX * 1000000u;
  }
  const int64_t left_ms = ((int64_t)transfer->due_ns - (int64_t)now_ns) / 1000000;
  transfer->headers = transfer->bytes.length = 0;
  transfer->closed = false;
  if (transfer->easy != NULL && set_options(transfer, (long)MAX(left_ms, 1))) return true;
  transfer->code =
      error_set(&transfer->error, ERR_NO_MEMORY, NULL, "no memory for a %s", transfer->kind.noun);
  transfer_close(transfer);
  return false;
}

static int refuse(transfer_t *transfer, CURLcode result) {
  char text[CURL_ERROR_SIZE + 64];
  if (transfer->code != 0) return transfer->code;
  if (transfer->closed)
    return fail(transfer, "has no public address: those of loopback, of private and of link-local "
                          "networks and their like are not connected to");
  if (transfer->headers > MEDIA_HEADERS_MAX) return fail(transfer, "answers with too many headers");
  if (result == CURLE_OPERATION_TIMEDOUT) {
    snprintf(text, sizeof text, "did not send the %s within %d ms", transfer->kind.noun,
             MEDIA_MS_MAX);
    return fail(transfer, text);
  }
  snprintf(text, sizeof text, "cannot be asked for the %s: %s", transfer->kind.noun,
           transfer->reason[0] != '\0' ? transfer->reason : "no answer");
  return fail(transfer, text);
}

/* Where a redirect leads; 0 = it may be followed. */
static int follow(transfer_t *transfer, const char *where) {
  media_url_t url;
  char text[64];
  if (transfer->redirects++ == MEDIA_REDIRECTS_MAX) {
    snprintf(text, sizeof text, "redirects more than %d times", MEDIA_REDIRECTS_MAX);
    return fail(transfer, text);
  }
  int code = media_url_read(transfer->hosts, transfer->kind.noun, where, strlen(where), &url,
                            &transfer->error);
  if (code != 0) return code;
  media_url_free(transfer->hosts, &transfer->url);
  transfer->url = url;
  return 0;
}

bool transfer_end(transfer_t *transfer, CURLcode result) {
  const curl_api_t *curl = transfer->hosts->curl;
  long status = 0;
  char *where = NULL, text[64];
  if (result != CURLE_OK) {
    transfer->code = refuse(transfer, result);
  } else {
    (void)curl->easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl->easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &where);
    if (where != NULL) {
      transfer->code = follow(transfer, where);
      if (transfer->code == 0) return true;
    } else if (status != 200) {
      snprintf(text, sizeof text, "answers %ld and sends no %s", status, transfer->kind.noun);
      transfer->code = fail(transfer, text);
    }
  }
  transfer_close(transfer);
  return false;
}

void transfer_close(transfer_t *transfer) {
  if (transfer->easy != NULL) transfer->hosts->curl->easy_cleanup(transfer->easy);
  transfer->easy = NULL;
}

void transfer_free(transfer_t *transfer) {
  transfer_close(transfer);
  media_url_free(transfer->hosts, &transfer->url);
  buffer_free(&transfer->bytes);
}
