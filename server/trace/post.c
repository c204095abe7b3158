/* post.c: POST of JSON to a collector, by libcurl.
 *
 * Exporter thread. The daemon does not link libcurl: without an endpoint it is not even opened.
 */
#include "server/trace/post.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct post {
  void *library;
  CURL *handle;
  struct curl_slist *headers;
  char reason[CURL_ERROR_SIZE];
  CURLcode (*global_init)(long);
  CURL *(*easy_init)(void);
  CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
  CURLcode (*easy_perform)(CURL *);
  CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
  void (*easy_cleanup)(CURL *);
  struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
  void (*slist_free_all)(struct curl_slist *);
};

/* Fills in the functions; false if one is missing. */
static bool find_functions(post_t *post) {
  const struct {
    const char *name;
    void *place;
  } wanted[] = {
      {"curl_global_init", &post->global_init},   {"curl_easy_init", &post->easy_init},
      {"curl_easy_setopt", &post->easy_setopt},   {"curl_easy_perform", &post->easy_perform},
      {"curl_easy_getinfo", &post->easy_getinfo}, {"curl_easy_cleanup", &post->easy_cleanup},
      {"curl_slist_append", &post->slist_append}, {"curl_slist_free_all", &post->slist_free_all}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *function = dlsym(post->library, wanted[i].name);
    if (function == NULL) return false;
    memcpy(wanted[i].place, &function, sizeof function);
  }
  return true;
}

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
  struct curl_slist *more = post->slist_append(post->headers, line);
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
  CURLcode code = post->easy_setopt(handle, CURLOPT_URL, url);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_TIMEOUT_MS, timeout_ms);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_HTTPHEADER, post->headers);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_WRITEFUNCTION, drop);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_ERRORBUFFER, post->reason);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, progress);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_XFERINFODATA, stop);
  if (code == CURLE_OK) code = post->easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  return code == CURLE_OK;
}

int post_open(const char *url, const char *headers, long timeout_ms, const int *stop, post_t **out,
              inferd_error_t *error) {
  post_t *post = calloc(1, sizeof *post);
  if (post == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for traces");
  post->library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (post->library == NULL || !find_functions(post)) {
    post_close(post);
    return error_set(error, ERR_CONFIGURATION, "otlp_endpoint",
                     "otlp_endpoint: traces need libcurl.so.4, which this system does not have: "
                     "install libcurl4");
  }
  bool good = post->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  post->handle = good ? post->easy_init() : NULL;
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
  CURLcode code = post->easy_setopt(post->handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
  if (code == CURLE_OK) code = post->easy_setopt(post->handle, CURLOPT_POSTFIELDS, bytes);
  if (code == CURLE_OK) code = post->easy_perform(post->handle);
  if (code == CURLE_OK) (void)post->easy_getinfo(post->handle, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

const char *post_reason(const post_t *post) {
  return post->reason[0] != '\0' ? post->reason : "no answer";
}

/* The library stays open: its own libraries may have threads and handlers at the process's end. */
void post_close(post_t *post) {
  if (post == NULL) return;
  if (post->handle != NULL) post->easy_cleanup(post->handle);
  if (post->headers != NULL) post->slist_free_all(post->headers);
  free(post);
}
