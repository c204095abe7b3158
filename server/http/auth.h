/* auth.h: API keys and admin keys. Loop thread only.
 *
 * API keys come from --api-key and --api-key-file, admin keys from --admin-key and
 * --admin-key-file. They are kept as SHA-256 digests; a presented key is compared with all of them
 * in constant time. An admin key opens the routes of clients too.
 */
#ifndef INFERD_SERVER_HTTP_AUTH_H
#define INFERD_SERVER_HTTP_AUTH_H

#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct auth auth_t;

enum { AUTH_KEY_NAME_BYTES = 9 }; /* first 8 hex digits of the key's digest, and a NUL */

/* Reads the keys of the configuration. Returns 0; ERR_CONFIGURATION for a key that an HTTP header
 * cannot carry, or that is an API key and an admin key; ERR_PERMISSION for a key file that other
 * users of the machine may read; ERR_IO. The caller frees *out with auth_free. */
int auth_new(const config_t *config, auth_t **out, inferd_error_t *error);
/* Reads the key files again. Returns as auth_new does; after an error the old keys stay valid. */
int auth_reload(auth_t *auth, const config_t *config, inferd_error_t *error);
void auth_free(auth_t *auth); /* NULL is allowed */

int auth_key_count(const auth_t *auth); /* API keys */
int auth_admin_count(const auth_t *auth);

typedef enum auth_role {
  AUTH_REFUSED, /* no key, or an unknown one, where an API key is needed */
  AUTH_OPEN,    /* the server has no API keys, and no admin key was presented */
  AUTH_CLIENT,
  AUTH_ADMIN
} auth_role_t;

/* Checks the value of an Authorization header (NULL = the request has none), "Bearer KEY". For
 * AUTH_CLIENT and AUTH_ADMIN *tenant (never 0) and `name` identify the key; else they are 0 and
 * "". */
auth_role_t auth_check(const auth_t *auth, const char *authorization, uint64_t *tenant,
                       char name[AUTH_KEY_NAME_BYTES]);

#endif
