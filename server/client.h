/* client.h: one request of a running server, for `inferd health`, `top`, `usage`, `ps`, `load` and
 * `unload`.
 *
 * Blocks; for commands, never for the daemon. No redirects.
 */
#ifndef INFERD_SERVER_CLIENT_H
#define INFERD_SERVER_CLIENT_H

#include "config/config.h"

enum { CLIENT_TIMEOUT_MS = 5000, CLIENT_BODY_BYTES_MAX = 16 * 1024 * 1024 };

/* Where a server is: a path of a UNIX socket, or host and port. */
typedef struct client_target {
  char host[256]; /* a name or an address, "[v6]" without the brackets; "" with a path */
  char port[6];
  char path[128];   /* of a UNIX socket; else "" */
  char prefix[128]; /* in front of the paths of requests: "" or "/root" */
  char shown[300];  /* for messages */
  bool tls, verify; /* verify: the certificate must be that of `host`, and be trusted */
} client_target_t;

/* Fills in the first address on which a server with this configuration listens. Its certificate is
 * not verified: it is that of a name, and the address is that of this host. Returns false after a
 * message: that is no address. */
bool client_target_of(const config_t *config, client_target_t *out);
/* For a command: the address that a word of its command line is (HOST:PORT,
 * http://HOST[:PORT][/ROOT], the same with https, or unix:PATH), else that of client_target_of.
 * Returns false after a message: the word has no such form, or there are two of them. */
bool client_target_asked(const config_t *config, client_target_t *out);

/* Sends GET `path`, or POST with the JSON `post` unless it is NULL, with `key` unless it is NULL,
 * and waits up to CLIENT_TIMEOUT_MS for the whole answer. Returns the HTTP status and sets *body to
 * the text of the answer, which the caller frees; 0 if nothing listens there, -1 if no whole answer
 * came. *why is then set if more is known. */
int client_ask(const client_target_t *target, const char *path, const char *key, const char *post,
               char **body, const char **why);
/* The same without `post`. */
int client_get(const client_target_t *target, const char *path, const char *key, char **body,
               const char **why);

#endif
