/* post.c: POST of JSON to a collector, by libcurl.
 *
 * Exporter thread. The daemon does not link libcurl: without an endpoint it is not even opened.
 */
#include "server/trace/post.h"

#include "server/curl/curl_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct post {
  curl_api_t curl;
  CURL *handle;
  struct curl_slist *headers;
  char reason[CURL_ERROR_SIZE];
};

void post_unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from != '\0'; to++) {
    unsigned value = 0;
    int used = 0;
    if (from[0] == '%' && sscanf(from + 1, "%2x%n", &value, &used) == 1 && used == 2) {
      *to = (char)value;
      from += 3;
    } else {
      *to = *from++;
    }
  }
  *to = '\0';
}

static bool add_header(post_t *post, const char *line) {
  struct curl_slist *more = post->curl.slist_append(post->headers, line);
  if (more != NULL) post->headers = more;
  return more != NULL;
}

/* NAME=VALUE,NAME=VALUE. What has no name, or a line end in it, is left out. */
static bool add_headers(post_t *post, const char *headers) {
  char *copy = strdup(headers), *rest = copy, line[2048];
  bool good = copy != NULL;
  for (char *item; good && (item = strsep(&rest, ",")) != NULL;) {
    item += strspn(item, " ");
    char *value = strchr(item, '=');
    if (value == NULL || value == item) continue;
    *value++ = '\0';
    post_unescape(value);
    if (strpbrk(item, "\r\n") != NULL || strpbrk(value, "\r\n") != NULL) continue;
    snprintf(line, sizeof line, "%s: %s", item, value);
    good = add_header(post, line);
  }
  free(copy);
  return good;
}

static size_t drop(char *bytes, size_t size, size_t count, void *context) {
  (void)bytes, (void)context;
  return size * count;
}

static int progress(void *context, curl_off_t down, curl_off_t down_now, curl_off_t up,
                    curl_off_t up_now) {
  (void)down, (void)down_now, (void)up, (void)up_now;
  return __atomic_load_n((const int *)context, __ATOMIC_ACQUIRE) >= 2; /* 1 ends the request */
}

/* The URL was checked to be of HTTP, and redirects are not followed. */
static bool set_options(post_t *post, const char *url, long timeout_ms, const int *stop) {
  CURL *handle = post->handle;
  CURLcode code = post->curl.easy_setopt(handle, CURLOPT_URL, url);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_TIMEOUT_MS, timeout_ms);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_HTTPHEADER, post->headers);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, drop);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_ERRORBUFFER, post->reason);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, progress);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_XFERINFODATA, stop);
  if (code == CURLE_OK) code = post->curl.easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  return code == CURLE_OK;
}

int post_open(const char *url, const char *headers, long timeout_ms, const int *stop, post_t **out,
              inferd_error_t *error) {
  post_t *post = calloc(1, sizeof *post);
  if (post == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for traces");
  int code = curl_api_open("otlp_endpoint", &post->curl, error);
  if (code != 0) {
    free(post);
    return code;
  }
  post->handle = post->curl.easy_init();
  if (post->handle == NULL || !add_header(post, "Content-Type: application/json") ||
      !add_header(post, "Expect:") || !add_header(post, "User-Agent: inferd/" INFERD_VERSION) ||
      !add_headers(post, headers) || !set_options(post, url, timeout_ms, stop)) {
    post_close(post);
    return error_set(error, ERR_CONFIGURATION, "otlp_endpoint",
                     "otlp_endpoint: libcurl cannot send to %.200s", url);
  }
  *out = post;
  return 0;
}

long post_send(post_t *post, const char *bytes, size_t length) {
  long status = 0;
  post->reason[0] = '\0';
  CURLcode code =
      post->curl.easy_setopt(post->handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
  if (code == CURLE_OK) code = post->curl.easy_setopt(post->handle, CURLOPT_POSTFIELDS, bytes);
  if (code == CURLE_OK) code = post->curl.easy_perform(post->handle);
  if (code == CURLE_OK)
    (void)post->curl.easy_getinfo(post->handle, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

const char *post_reason(const post_t *post) {
  return post->reason[0] != '\0' ? post->reason : "no answer";
}

void post_close(post_t *post) {
  if (post == NULL) return;
  if (post->handle != NULL) post->curl.easy_cleanup(post->handle);
  if (post->headers != NULL) post->curl.slist_free_all(post->headers);
  free(post);
}
