/* api_key.c: one key: its label, its limits, and what it uses of them. Loop thread; api_key.h. */
#include "server/keys/api_key.h"

#include "engine/base/check.h"
#include "engine/base/hex.h"

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
  return key;
}

void api_key_set(api_key_t *key, const char *label, const key_limits_t *limits) {
  snprintf(key->label, sizeof key->label, "%s", label);
  key->limits = *limits;
  key->quota.max_waiting = limits->max_waiting;
  key->quota.max_tokens_waiting = limits->max_tokens_waiting;
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
  free(key);
}
