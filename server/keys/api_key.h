/* api_key.h: one key: its label, its limits, and what it uses of them.
 *
 * Loop thread only, but for what quota.h gives to the engine. auth.c makes an api_key_t for each
 * key of the key file, and is its first user; each request that has not ended is another. So a key
 * that a reload removes is freed by the api_key_release of its last request.
 */
#ifndef INFERD_SERVER_KEYS_API_KEY_H
#define INFERD_SERVER_KEYS_API_KEY_H

#include "engine/quota.h"
#include "server/keys/shared_rates.h"

#include <stdbool.h>
#include <stdint.h>

enum {
  KEY_LABEL_BYTES = 65, /* with the NUL */
  KEY_NAME_BYTES = 9,   /* first 8 hex digits of the key's digest, and a NUL */
  KEY_DIGEST_BYTES = 32
};

/* What the line of a key in the key file may say; 0 = no bound. */
typedef struct key_limits {
  int32_t max_waiting;                            /* requests that have not begun */
  int64_t max_tokens_waiting;                     /* prompt tokens of these */
  int32_t max_running;                            /* sequences at the same time */
  int32_t weight;                                 /* of its share; 0 = 1 */
  bool grammar_off;                               /* no constraint on the output */
  int64_t requests_per_minute, tokens_per_minute; /* tokens: of prompts and generated ones */
  int64_t tokens_per_day, tokens_per_month;       /* of UTC; server/tally counts them */
} key_limits_t;

typedef struct api_key {
  uint8_t digest[KEY_DIGEST_BYTES]; /* SHA-256 of the key */
  uint64_t tenant;                  /* of the digest; never 0 */
  char name[KEY_NAME_BYTES];        /* for logs */
  char label[KEY_LABEL_BYTES];      /* "" = none */
  bool admin;
  key_limits_t limits;
  quota_t quota;           /* lent to the engine with each request */
  key_rates_t own, *rates; /* rates: what counts: its own, or those of its place */
  int place;               /* that this process has taken in shared_rates.h; -1 = none */
  int usage;         /* place of its label in the metrics; -1 = not known yet (server/observe) */
  int32_t num_users; /* the table of keys, and requests */
} api_key_t;

/* Returns a key with one user and without limits; NULL if memory is short. */
api_key_t *api_key_new(const uint8_t digest[KEY_DIGEST_BYTES], bool admin);
/* What the key uses counts at a place of the parent from now on; -1 = here. */
void api_key_share(api_key_t *key, int place);
/* Sets label and limits; requests that wait already stay. */
void api_key_set(api_key_t *key, const char *label, const key_limits_t *limits, uint64_t now_ns);
api_key_t *api_key_use(api_key_t *key); /* one more user; NULL is allowed */
void api_key_release(api_key_t *key);   /* one user less; NULL is allowed */

/* Counts a request. Returns 0; or ERR_RATE_LIMITED, and sets *wait_s, the seconds until one more
 * may come. */
int api_key_take_request(api_key_t *key, uint64_t now_ns, int *wait_s, inferd_error_t *error);
/* Returns 0 if a request with so many prompt tokens may come now; else as above. Counts nothing. */
int api_key_check_tokens(api_key_t *key, int64_t tokens, uint64_t now_ns, int *wait_s,
                         inferd_error_t *error);
/* Counts tokens of a prompt, or generated ones; a negative number gives some back. NULL is allowed.
 */
void api_key_take_tokens(api_key_t *key, int64_t tokens, uint64_t now_ns);

#endif
