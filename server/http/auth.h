/* auth.h: API keys and admin keys. Loop thread only.
 *
 * API keys come from --api-key and --api-key-file, admin keys from --admin-key and
 * --admin-key-file. They are kept as SHA-256 digests; a presented key costs the same however many
 * there are, and the time says nothing about them. An admin key opens the routes of clients too.
 */
#ifndef INFERD_SERVER_HTTP_AUTH_H
#define INFERD_SERVER_HTTP_AUTH_H

#include "config/config.h"
#include "server/keys/api_key.h"

typedef struct auth auth_t;

/* Reads the keys of the configuration. Returns 0; ERR_CONFIGURATION for a key that an HTTP header
 * cannot carry, that is an API key and an admin key, or that has two different lines, and for a
 * line that key_line.h refuses; ERR_PERMISSION for a key file that other users of the machine may
 * read, or that this one may not; ERR_IO. The caller frees *out with auth_free. */
int auth_new(const config_t *config, auth_t **out, inferd_error_t *error);
/* Replaces the keys of `auth` by those of `fresh`, which is freed. A key that stays keeps its
 * api_key_t, so what it has used still counts. */
void auth_replace(auth_t *auth, auth_t *fresh);
void auth_free(auth_t *auth); /* NULL is allowed */

int auth_key_count(const auth_t *auth); /* API keys */
int auth_admin_count(const auth_t *auth);

typedef enum auth_role {
  AUTH_REFUSED, /* no key, or an unknown one, where an API key is needed */
  AUTH_OPEN,    /* the server has no API keys, and no admin key was presented */
  AUTH_CLIENT,
  AUTH_ADMIN
} auth_role_t;

/* Checks the value of an Authorization header (NULL = the request has none), "Bearer KEY". *key
 * is set for AUTH_CLIENT and AUTH_ADMIN, else NULL; it is borrowed until the next reload. */
auth_role_t auth_check(const auth_t *auth, const char *authorization, api_key_t **key);
/* The same for a key that stands alone in its header, as in x-api-key; NULL = none. */
auth_role_t auth_check_key(const auth_t *auth, const char *text, api_key_t **key);
/* The key of this digest, borrowed until the next reload; NULL = none. */
api_key_t *auth_find(const auth_t *auth, const uint8_t digest[KEY_DIGEST_BYTES]);
/* How many digests such a check compares. */
int auth_comparisons(const auth_t *auth, const char *text);

#endif
