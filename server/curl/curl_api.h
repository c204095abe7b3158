/* curl_api.h: the functions of libcurl that the daemon needs. The library is opened by name when an
 * option asks for it; inferd is not linked with it. Their contracts: curl_easy_perform(3), ... */
#ifndef INFERD_SERVER_CURL_CURL_API_H
#define INFERD_SERVER_CURL_CURL_API_H

#include "engine/base/error.h"

#include <curl/curl.h>

typedef struct curl_api {
  CURLcode (*global_init)(long flags);
  CURL *(*easy_init)(void);
  CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
  CURLcode (*easy_perform)(CURL *handle);
  CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
  void (*easy_cleanup)(CURL *handle);
  struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
  void (*slist_free_all)(struct curl_slist *list);
  CURLM *(*multi_init)(void);
  CURLMcode (*multi_add_handle)(CURLM *multi, CURL *handle);
  CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *handle);
  CURLMcode (*multi_perform)(CURLM *multi, int *running);
  CURLMcode (*multi_poll)(CURLM *multi, struct curl_waitfd *more, unsigned count, int timeout_ms,
                          int *ready);
  CURLMcode (*multi_wakeup)(CURLM *multi);
  CURLMsg *(*multi_info_read)(CURLM *multi, int *left);
  CURLMcode (*multi_cleanup)(CURLM *multi);
  CURLU *(*url)(void);
  void (*url_cleanup)(CURLU *url);
  CURLUcode (*url_set)(CURLU *url, CURLUPart part, const char *text, unsigned flags);
  CURLUcode (*url_get)(CURLU *url, CURLUPart part, char **text, unsigned flags);
  void (*free)(void *text); /* of url_get */
} curl_api_t;

/* Opens the library and starts it. It stays open: its own libraries may have threads and handlers
 * at the process's end. `option` is what asks for it. Main thread, before other threads exist.
 * Returns 0, or ERR_CONFIGURATION: it is not there, or too old. */
int curl_api_open(const char *option, curl_api_t *out, inferd_error_t *error);

#endif
