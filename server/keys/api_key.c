/* api_key.c: one key: its label, its limits, and what it uses of them. Loop thread; api_key.h. */
#include "server/keys/api_key.h"

#include "engine/base/check.h"
#include "engine/base/hex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

api_key_t *api_key_new(const uint8_t digest[KEY_DIGEST_BYTES], bool admin) {
  api_key_t *key = calloc(1, sizeof *key);
  if (key == NULL) return NULL;
  memcpy(key->digest, digest, KEY_DIGEST_BYTES);
  for (int i = 0; i < 8; i++) key->tenant = key->tenant << 8 | digest[i];
  if (key->tenant == 0) key->tenant = 1;
  for (int i = 0; i < 4; i++) {
    key->name[2 * i] = hex_digit(digest[i] >> 4);
    key->name[2 * i + 1] = hex_digit(digest[i] & 15);
  }
  key->admin = admin;
  key->num_users = 1;
  key->usage = -1;
  key->rates = &key->own;
  key->place = shared_rates_take();
  api_key_share(key, key->place);
  return key;
}

void api_key_share(api_key_t *key, int place) {
  key_rates_t *shared = shared_rates_at(place);
  key->rates = shared != NULL ? shared : &key->own;
}

void api_key_set(api_key_t *key, const char *label, const key_limits_t *limits, uint64_t now_ns) {
  if (strcmp(key->label, label) != 0) key->usage = -1;
  snprintf(key->label, sizeof key->label, "%s", label);
  key->limits = *limits;
  key->quota.max_waiting = limits->max_waiting;
  key->quota.max_tokens_waiting = limits->max_tokens_waiting;
  atomic_store(&key->quota.weight, limits->weight);
  atomic_store(&key->quota.max_running, limits->max_running);
  /* The bounds of a place are those of the process that has taken it. */
  key_rates_t *rates = key->place >= 0 ? key->rates : &key->own;
  rate_set(&rates->requests, limits->requests_per_minute, now_ns);
  rate_set(&rates->tokens, limits->tokens_per_minute, now_ns);
}

static int limited(const char *name, const rate_t *rate, int64_t amount, uint64_t now_ns,
                   int *wait_s, inferd_error_t *error) {
  double wait = rate_wait_s(rate, amount, now_ns);
  *wait_s = wait < 1 ? 1 : (int)ceil(wait - 1e-6);
  return error_set(error, ERR_RATE_LIMITED, NULL,
                   "This API key has used up its limit of %s=%lld; try again in %d s.", name,
                   (long long)atomic_load(&rate->per_minute), *wait_s);
}

int api_key_take_request(api_key_t *key, uint64_t now_ns, int *wait_s, inferd_error_t *error) {
  rate_t *rate = &key->rates->requests;
  if (rate_try(rate, 1, now_ns)) return 0;
  return limited("requests_per_minute", rate, 1, now_ns, wait_s, error);
}

int api_key_check_tokens(api_key_t *key, int64_t tokens, uint64_t now_ns, int *wait_s,
                         inferd_error_t *error) {
  const rate_t *rate = &key->rates->tokens;
  if (rate_allows(rate, tokens, now_ns)) return 0;
  return limited("tokens_per_minute", rate, tokens, now_ns, wait_s, error);
}

void api_key_take_tokens(api_key_t *key, int64_t tokens, uint64_t now_ns) {
  if (key != NULL) rate_take(&key->rates->tokens, tokens, now_ns);
}

api_key_t *api_key_use(api_key_t *key) {
  if (key != NULL) key->num_users++;
  return key;
}

void api_key_release(api_key_t *key) {
  if (key == NULL) return;
  CHECK_GT(key->num_users, 0);
  if (--key->num_users > 0) return;
  CHECK_EQ(atomic_load(&key->quota.waiting), 0);
  shared_rates_give(key->place);
  free(key);
}
