/* curl_api.c: finds libcurl on the machine. Main thread, at start. */
#include "server/curl/curl_api.h"

#include "engine/base/util.h"

#include <dlfcn.h>
#include <string.h>

int curl_api_open(const char *option, curl_api_t *out, inferd_error_t *error) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {
      {"curl_global_init", &out->global_init},
      {"curl_easy_init", &out->easy_init},
      {"curl_easy_setopt", &out->easy_setopt},
      {"curl_easy_perform", &out->easy_perform},
      {"curl_easy_getinfo", &out->easy_getinfo},
      {"curl_easy_cleanup", &out->easy_cleanup},
      {"curl_slist_append", &out->slist_append},
      {"curl_slist_free_all", &out->slist_free_all},
      {"curl_multi_init", &out->multi_init},
      {"curl_multi_add_handle", &out->multi_add_handle},
      {"curl_multi_remove_handle", &out->multi_remove_handle},
      {"curl_multi_perform", &out->multi_perform},
      {"curl_multi_poll", &out->multi_poll},
      {"curl_multi_wakeup", &out->multi_wakeup},
      {"curl_multi_info_read", &out->multi_info_read},
      {"curl_multi_cleanup", &out->multi_cleanup},
      {"curl_url", &out->url},
      {"curl_url_cleanup", &out->url_cleanup},
      {"curl_url_set", &out->url_set},
      {"curl_url_get", &out->url_get},
      {"curl_free", &out->free},
  };
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return error_set(error, ERR_CONFIGURATION, option,
                     "%s needs libcurl.so.4, which this system does not have: install libcurl4",
                     option);
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(library, functions[i].name);
    if (found == NULL)
      return error_set(error, ERR_CONFIGURATION, option,
                       "libcurl.so.4 has no %s: it is too old for %s", functions[i].name, option);
    memcpy(functions[i].to, &found, sizeof found);
  }
  if (out->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return 0;
  return error_set(error, ERR_CONFIGURATION, option, "%s: libcurl does not start", option);
}
