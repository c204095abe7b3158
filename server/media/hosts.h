/* hosts.h: from which hosts pictures and sounds may be fetched (--allowed-media-hosts), and what
 * their URLs are. Immutable once made; any thread. */
#ifndef INFERD_SERVER_MEDIA_HOSTS_H
#define INFERD_SERVER_MEDIA_HOSTS_H

#include "config/config.h"
#include "server/curl/curl_api.h"

enum { MEDIA_URL_MAX = 8192, MEDIA_HOST_MAX = 256 };

typedef struct media_hosts {
  const curl_api_t *curl;
  const config_list_t *list; /* HOST or HOST:PORT, checked; borrowed */
} media_hosts_t;

/* A URL that may be fetched. */
typedef struct media_url {
  CURLU *parsed;             /* libcurl connects by this, so no other reading of the URL counts */
  char host[MEDIA_HOST_MAX]; /* HOST:PORT, as messages name it */
  bool is_address;           /* the list has the address itself: it need not be public */
} media_url_t;

/* Reads an https URL whose host and port are in the list. Returns 0 and *out, freed with
 * media_url_free; ERR_INVALID_VALUE with the host; or ERR_NO_MEMORY. `param` is left to the
 * caller. `noun`: what it is of, in messages. */
int media_url_read(const media_hosts_t *hosts, const char *noun, const char *text, size_t length,
                   media_url_t *out, inferd_error_t *error);
void media_url_free(const media_hosts_t *hosts, media_url_t *url);

#endif
