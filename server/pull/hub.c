/* hub.c: requests to the hub by libcurl, and what its refusals mean for the user.
 *
 * Main thread. One small request at a time; fetch.c has those that run side by side.
 */
#include "server/pull/hub.h"

#include "server/observe/priority.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

volatile sig_atomic_t hub_interrupted;

/* ---- headers ---- */

/* Copies the value of a header, without white space around it. */
static void take_value(const char *value, size_t length, char *out, size_t capacity) {
  while (length > 0 && (*value == ' ' || *value == '\t')) value++, length--;
  while (length > 0 && strchr(" \t\r\n", value[length - 1]) != NULL) length--;
  if (length >= capacity) length = 0;
  memcpy(out, value, length);
  out[length] = '\0';
}

/* An ETag without W/ and quotes. */
static void take_etag(const char *value, hub_answer_t *answer) {
  if (strncmp(value, "W/", 2) == 0) value += 2;
  size_t quoted = value[0] == '"' ? 1 : 0, length = strcspn(value + quoted, "\"");
  snprintf(answer->etag, sizeof answer->etag, "%.*s", (int)length, value + quoted);
  for (char *p = answer->etag; *p != '\0'; p++) {
    if (*p >= 'A' && *p <= 'F') *p = (char)(*p - 'A' + 'a');
  }
}

static int64_t take_number(const char *text) {
  char *end;
  long long value = strtoll(text, &end, 10);
  return end == text || value < 0 ? -1 : value;
}

static void take_header(const char *name, const char *value, hub_answer_t *answer) {
  if (strcasecmp(name, "X-Error-Code") == 0) {
    snprintf(answer->code, sizeof answer->code, "%.60s", value);
  } else if (strcasecmp(name, "X-Linked-Etag") == 0) {
    take_etag(value, answer);
    answer->linked = true;
  } else if (strcasecmp(name, "ETag") == 0 && !answer->linked) {
    take_etag(value, answer);
  } else if (strcasecmp(name, "X-Linked-Size") == 0) {
    answer->linked_size = take_number(value);
  } else if (strcasecmp(name, "Content-Length") == 0) {
    answer->length = take_number(value);
  } else if (strcasecmp(name, "Content-Range") == 0 && strncasecmp(value, "bytes ", 6) == 0) {
    const char *slash = strchr(value, '/');
    answer->range_at = take_number(value + 6);
    answer->range_of = slash != NULL ? take_number(slash + 1) : -1;
  }
}

static size_t on_header(char *text, size_t size, size_t count, void *context) {
  hub_answer_t *answer = context;
  size_t length = size * count;
  char name[64] = "", value[1024] = "";
  if (length > 5 && strncmp(text, "HTTP/", 5) == 0) { /* a new response of the chain */
    char *space = memchr(text, ' ', length);
    answer->status = space != NULL ? strtol(space, NULL, 10) : 0;
    answer->code[0] = '\0';
    answer->length = answer->range_at = answer->range_of = -1;
    if (!answer->linked) answer->etag[0] = '\0';
    return length;
  }
  const char *colon = memchr(text, ':', length);
  if (colon == NULL) return length;
  take_value(text, (size_t)(colon - text), name, sizeof name);
  take_value(colon + 1, length - (size_t)(colon - text) - 1, value, sizeof value);
  take_header(name, value, answer);
  return length;
}

/* ---- a request ---- */

void hub_prepare(CURL *easy, const pull_settings_t *settings, const char *url, bool to_hub,
                 hub_answer_t *answer) {
  enum { CONNECT_S = 20, SLOW_BYTES_PER_S = 100 };
  bool secure = strncmp(url, "https://", 8) == 0;
  *answer = (hub_answer_t){.linked_size = -1, .length = -1, .range_at = -1, .range_of = -1};
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, url);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "inferd/" INFERD_VERSION);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES_PER_S);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)settings->timeout_s);
  /* Several connections are faster than several streams of one. */
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)HUB_REDIRECTS_MAX);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, answer);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, answer->reason);
  const char *authorities = getenv("SSL_CERT_FILE"); /* of a proxy that looks into TLS */
  if (authorities != NULL && authorities[0] != '\0') {
    curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
  }
  if (to_hub && settings->token[0] != '\0') {
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
    curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, settings->token);
  }
}

/* Appends `text`, percent-encoded but for what RFC 3986 leaves as it is, and slashes if wanted. */
static bool append_encoded(char out[HUB_URL_MAX], size_t *used, const char *text, bool slashes) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  for (; *text != '\0'; text++) {
    bool keep = strchr(plain, *text) != NULL || (slashes && *text == '/');
    if (*used + 4 >= HUB_URL_MAX) return false;
    *used += (size_t)snprintf(out + *used, HUB_URL_MAX - *used, keep ? "%c" : "%%%02X",
                              (unsigned char)*text);
  }
  return true;
}

bool hub_file_url(const pull_settings_t *settings, const char *commit, const char *name,
                  char out[HUB_URL_MAX]) {
  int n = snprintf(out, HUB_URL_MAX, "%s/%s/resolve/%s/", settings->endpoint, settings->id, commit);
  size_t used = (size_t)n;
  return append_encoded(out, &used, name, true);
}

/* ---- failures ---- */

static bool is_passing_status(long status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501);
}

static bool is_passing_result(CURLcode result) {
  switch (result) {
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_RESOLVE_PROXY:
  case CURLE_COULDNT_CONNECT:
  case CURLE_OPERATION_TIMEDOUT:
  case CURLE_PARTIAL_FILE:
  case CURLE_GOT_NOTHING:
  case CURLE_SEND_ERROR:
  case CURLE_RECV_ERROR:
  case CURLE_SSL_CONNECT_ERROR:
  case CURLE_BAD_CONTENT_ENCODING:
  case CURLE_WEIRD_SERVER_REPLY: return true;
  default: return false;
  }
}

long hub_pause_ms(const pull_settings_t *settings, CURL *easy, CURLcode result,
                  const hub_answer_t *answer, int tries) {
  enum { FIRST_MS = 500, DOUBLINGS_MAX = 6 };
  bool passing = result == CURLE_OK ? is_passing_status(answer->status) || answer->status < 300
                                    : is_passing_result(result);
  if (!passing || tries >= settings->retries) return -1;
  curl_off_t asked_s = 0;
  (void)curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &asked_s);
  if (asked_s > HUB_WAIT_MAX_S) return -1;
  long pause = FIRST_MS << (tries < DOUBLINGS_MAX ? tries : DOUBLINGS_MAX);
  return asked_s * 1000 > pause ? (long)asked_s * 1000 : pause;
}

static int refuse_access(const pull_settings_t *settings, const hub_answer_t *answer,
                         inferd_error_t *error) {
  const char *id = settings->id, *hub = settings->endpoint;
  if (strcmp(answer->code, "GatedRepo") == 0) {
    return error_set(error, ERR_PERMISSION, "model",
                     "%s: is gated (status %ld); accept its terms on %s/%s, then %s", id,
                     answer->status, hub, id,
                     settings->token[0] != '\0' ? "pull again; the token that is set has no access "
                                                  "yet"
                                                : "give a token of that account by HF_TOKEN or "
                                                  "--token-file");
  }
  if (answer->status == 403 || (answer->status == 401 && answer->code[0] == '\0')) {
    return error_set(error, ERR_PERMISSION, "model",
                     "%s: the hub at %s denies access (status %ld); %s", id, hub, answer->status,
                     settings->token[0] != '\0' ? "the token is wrong or has no right to read it"
                                                : "give a token by HF_TOKEN or --token-file");
  }
  return error_set(error, ERR_MODEL_MISSING, "model",
                   "%s: no such model at %s (status %ld); check the name; a private one needs a "
                   "token of its owner, by HF_TOKEN or --token-file",
                   id, hub, answer->status);
}

static int refuse_status(const pull_settings_t *settings, const char *file,
                         const hub_answer_t *answer, inferd_error_t *error) {
  const char *id = settings->id;
  long status = answer->status;
  if (strcmp(answer->code, "RevisionNotFound") == 0) {
    return error_set(error, ERR_MODEL_MISSING, "revision",
                     "%s: has no branch, tag or commit '%.100s' (status %ld)", id,
                     settings->revision, status);
  }
  if (file != NULL && status == 404) {
    return error_set(error, ERR_MODEL_MISSING, "model",
                     "%s: %.100s is listed, but cannot be had (status 404 %s); try again, the "
                     "repository may have changed",
                     id, file, answer->code);
  }
  if (status == 401 || status == 403 || status == 404)
    return refuse_access(settings, answer, error);
  return error_set(error, ERR_IO, NULL, "%s: %s%.100s%sthe server answered %ld%s", id,
                   file != NULL ? "" : settings->endpoint, file != NULL ? file : "", ": ", status,
                   status == 429 ? " (too many requests); pull again later, what is there is kept; "
                                   "a token raises the limit"
                   : status >= 500 ? "; pull again later, what is there is kept"
                                   : "; is HF_ENDPOINT a hub of Hugging Face?");
}

int hub_refusal(const pull_settings_t *settings, const char *file, CURLcode result,
                const hub_answer_t *answer, inferd_error_t *error) {
  if (hub_interrupted) return error_set(error, ERR_IO, NULL, "interrupted");
  if (result == CURLE_OK) return refuse_status(settings, file, answer, error);
  const char *what = file != NULL ? file : settings->endpoint;
  if (result == CURLE_TOO_MANY_REDIRECTS) {
    return error_set(error, ERR_IO, NULL,
                     "%s: %.100s: more than %d redirects (status %ld), the last ones in a circle; "
                     "is HF_ENDPOINT right?",
                     settings->id, what, HUB_REDIRECTS_MAX, answer->status);
  }
  return error_set(error, ERR_IO, NULL, "%s: %.100s: %.150s; %s", settings->id, what,
                   answer->reason[0] != '\0' ? answer->reason : curl_easy_strerror(result),
                   result == CURLE_PEER_FAILED_VERIFICATION
                       ? "install the package ca-certificates, or name a file of authorities by "
                         "SSL_CERT_FILE"
                       : "pull again, what is there is kept");
}

/* ---- small requests ---- */

typedef struct body {
  buffer_t bytes;
  size_t bytes_max;
} body_t;

static size_t on_body(char *bytes, size_t size, size_t count, void *context) {
  body_t *body = context;
  size_t length = size * count;
  if (body->bytes.length + length > body->bytes_max) return 0;
  return buffer_append(&body->bytes, bytes, length) ? length : 0;
}

/* Prepares one try. A HEAD stops at a redirect that tells the sum: where it leads to is a content
 * network, which signs its URLs for GET alone. Without the sum it is the new name of a repository,
 * and `follow` is set for the next try. */
static void prepare_try(CURL *easy, const pull_settings_t *settings, const char *url, body_t *body,
                        bool follow, hub_answer_t *answer) {
  hub_prepare(easy, settings, url, true, answer);
  curl_easy_setopt(easy, CURLOPT_NOBODY, body == NULL ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, body != NULL || follow ? 1L : 0L);
  if (body == NULL) return;
  buffer_clear(&body->bytes);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, body);
  curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, ""); /* whatever libcurl can unpack */
}

/* Does one request, again after a failure that may pass. `body` NULL: HEAD. */
static int request(const pull_settings_t *settings, const char *url, const char *file, body_t *body,
                   hub_answer_t *answer, inferd_error_t *error) {
  CURL *easy = curl_easy_init();
  if (easy == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a request");
  CURLcode result = CURLE_OK;
  bool good = false, follow = false;
  for (int tries = 0; !hub_interrupted; tries++) {
    prepare_try(easy, settings, url, body, follow, answer);
    result = curl_easy_perform(easy);
    bool redirect = result == CURLE_OK && answer->status >= 300 && answer->status < 400;
    good = result == CURLE_OK && (answer->status == 200 || (redirect && answer->linked));
    if (redirect && !good && !follow) {
      follow = true;
      continue;
    }
    long pause = good ? -1 : hub_pause_ms(settings, easy, result, answer, tries);
    if (pause < 0) break;
    fprintf(stderr, "%sinferd: %s: %s; next try in %.1f s\n", log_priority(LOG_WARN), settings->id,
            result == CURLE_OK ? "the hub is busy" : curl_easy_strerror(result),
            (double)pause / 1000);
    (void)poll(NULL, 0, (int)pause); /* a signal ends it */
  }
  curl_easy_cleanup(easy);
  return good ? 0 : hub_refusal(settings, file, result, answer, error);
}

int hub_list(const pull_settings_t *settings, repo_t *out, inferd_error_t *error) {
  char url[HUB_URL_MAX];
  int n = snprintf(url, sizeof url, "%s/api/models/%s/revision/", settings->endpoint, settings->id);
  size_t used = (size_t)n;
  if (!append_encoded(url, &used, settings->revision, false) || used + 12 > sizeof url) {
    return error_set(error, ERR_USAGE, "revision", "the revision is too long");
  }
  snprintf(url + used, sizeof url - used, "?blobs=true");
  body_t body = {.bytes_max = REPO_ANSWER_MAX};
  hub_answer_t answer = {.linked_size = -1};
  inferd_error_t why = {0};
  int code = request(settings, url, NULL, &body, &answer, error);
  if (code == 0 && body.bytes.failed) code = error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  if (code == 0 && (code = repo_parse(body.bytes.data, body.bytes.length, out, &why)) != 0) {
    error_set(error, code, NULL, "%s: %s: %s", settings->id, settings->endpoint, why.message);
  }
  buffer_free(&body.bytes);
  return code;
}

int hub_describe(const pull_settings_t *settings, const char *commit, repo_file_t *file,
                 inferd_error_t *error) {
  char url[HUB_URL_MAX];
  hub_answer_t answer = {.linked_size = -1};
  if (!hub_file_url(settings, commit, file->name, url)) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%.100s...: the name is too long",
                     file->name);
  }
  int code = request(settings, url, file->name, NULL, &answer, error);
  if (code != 0) return code;
  int64_t size = answer.linked_size;
  if (size < 0 && answer.status == 200) size = answer.length;
  if (!repo_is_sum(answer.etag) || size < 0) {
    char shown[80];
    return error_set(error, ERR_IO, NULL,
                     "%s: %.100s: the server tells no %s (ETag '%s'), so a download could not be "
                     "checked; is HF_ENDPOINT a hub of Hugging Face?",
                     settings->id, file->name, size < 0 ? "size" : "sha256 or git sha1",
                     error_quote(shown, sizeof shown, answer.etag, strlen(answer.etag)));
  }
  memcpy(file->sum, answer.etag, strlen(answer.etag) + 1);
  file->size = size;
  return 0;
}
