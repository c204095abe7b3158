/* hosts.c: the URLs of pictures and sounds on other hosts, see hosts.h. Any thread. */
#include "server/media/hosts.h"

#include "engine/base/util.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HTTPS_PORT = 443 };

static int refuse(inferd_error_t *error, const char *noun, const char *what) {
  return error_set(error, ERR_INVALID_VALUE, NULL, "the URL of a %s %s", noun, what);
}

/* A part of the URL; "" = it has none, or one that is longer than `room` takes. */
static const char *part_of(const media_hosts_t *hosts, CURLU *url, CURLUPart part, char *out,
                           size_t room) {
  char *text = NULL;
  out[0] = '\0';
  if (hosts->curl->url_get(url, part, &text, 0) != CURLUE_OK || text == NULL) return out;
  if (strlen(text) < room) memcpy(out, text, strlen(text) + 1);
  hosts->curl->free(text);
  return out;
}

static bool is_address(const char *host) {
  struct in_addr address;
  return host[0] == '[' || inet_pton(AF_INET, host, &address) == 1;
}

/* The port behind an entry's host; that of https if it has none. */
static unsigned split_entry(const char *entry, size_t *host_length) {
  const char *end = entry[0] == '[' ? strchr(entry, ']') : NULL;
  const char *colon = strchr(end != NULL ? end : entry, ':');
  *host_length = colon != NULL ? (size_t)(colon - entry) : strlen(entry);
  return colon != NULL ? (unsigned)strtoul(colon + 1, NULL, 10) : HTTPS_PORT;
}

static bool is_listed(const media_hosts_t *hosts, const char *host, unsigned port) {
  for (int i = 0; i < hosts->list->count; i++) {
    const char *entry = hosts->list->items[i];
    size_t length;
    const unsigned own = split_entry(entry, &length);
    if (own == port && strlen(host) == length && strncasecmp(host, entry, length) == 0) return true;
  }
  return false;
}

static int check(const media_hosts_t *hosts, const char *noun, media_url_t *url,
                 inferd_error_t *error) {
  char host[MEDIA_HOST_MAX - 8], port_text[8], text[16];
  CURLU *parsed = url->parsed;
  if (strcasecmp(part_of(hosts, parsed, CURLUPART_SCHEME, text, sizeof text), "https") != 0)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "of the URLs of %ss only data: and https: are read", noun);
  if (part_of(hosts, parsed, CURLUPART_HOST, host, sizeof host)[0] == '\0')
    return refuse(error, noun, "has no host");
  char *user = NULL;
  const bool named = hosts->curl->url_get(parsed, CURLUPART_USER, &user, 0) == CURLUE_OK;
  if (user != NULL) hosts->curl->free(user);
  if (named) return refuse(error, noun, "must not have a user and a password");
  part_of(hosts, parsed, CURLUPART_PORT, port_text, sizeof port_text);
  const unsigned port = port_text[0] != '\0' ? (unsigned)strtoul(port_text, NULL, 10) : HTTPS_PORT;
  snprintf(url->host, sizeof url->host, "%s:%u", host, port);
  url->is_address = is_address(host);
  if (is_listed(hosts, host, port)) return 0;
  return error_set(error, ERR_INVALID_VALUE, NULL,
                   "%ss of '%.200s' are not fetched: it is none of --allowed-media-hosts", noun,
                   url->host);
}

int media_url_read(const media_hosts_t *hosts, const char *noun, const char *text, size_t length,
                   media_url_t *out, inferd_error_t *error) {
  char plain[MEDIA_URL_MAX + 1];
  *out = (media_url_t){0};
  if (length > MEDIA_URL_MAX)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the URL of a %s has %zu bytes; at most %d",
                     noun, length, MEDIA_URL_MAX);
  if (memchr(text, '\0', length) != NULL) return refuse(error, noun, "has a NUL in it");
  memcpy(plain, text, length);
  plain[length] = '\0';
  out->parsed = hosts->curl->url();
  if (out->parsed == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the URL of a %s", noun);
  const CURLUcode read = hosts->curl->url_set(out->parsed, CURLUPART_URL, plain, 0);
  int code =
      read != CURLUE_OK ? refuse(error, noun, "cannot be read") : check(hosts, noun, out, error);
  if (code != 0) media_url_free(hosts, out);
  return code;
}

void media_url_free(const media_hosts_t *hosts, media_url_t *url) {
  if (url->parsed != NULL) hosts->curl->url_cleanup(url->parsed);
  url->parsed = NULL;
}
