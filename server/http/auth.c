/* auth.c: API keys and admin keys as SHA-256 digests, found by a keyed hash of the digest.
 *
 * Loop thread. Never logs or keeps a key: only its digest, and the first 8 hex digits of that as a
 * name for the logs. A key file has one key a line (server/keys/key_line.h). A reload reads all of
 * it before it changes anything; keys that stay keep their api_key_t.
 */
#include "server/http/auth.h"

#include "config/option_file.h"
#include "engine/base/clock.h"
#include "engine/base/siphash.h"
#include "engine/base/util.h"
#include "server/keys/key_line.h"
#include "server/keys/sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum { KEYS_MAX = 4096, KEY_BYTES_MAX = 512, SLOTS = 2 * KEYS_MAX };
_Static_assert((int)SHA256_BYTES == (int)KEY_DIGEST_BYTES, "a key has its whole digest");

struct auth {
  api_key_t **slots;    /* [SLOTS], NULL where free; one user each */
  uint64_t hash_key[2]; /* random: no client can know which keys share a slot */
  int count, admin_count;
  bool stores; /* --store: what is used is known after a restart */
};

static bool is_admin(const char *option) {
  return strncmp(option, "admin_", 6) == 0;
}

/* Compares to the end, so the time says nothing about where two digests differ. */
static bool same_digest(const uint8_t *left, const uint8_t *right) {
  unsigned difference = 0;
  for (int i = 0; i < SHA256_BYTES; i++) difference |= left[i] ^ right[i];
  return difference == 0;
}

/* Returns the slot of the key of this digest, or the free slot where it would stand. How many
 * digests are compared (added to *compared) depends on hash_key, so the time does not tell a client
 * how near its guess is. */
static api_key_t **slot_of(const auth_t *auth, const uint8_t digest[SHA256_BYTES], int *compared) {
  siphash_t hash = siphash_begin(auth->hash_key);
  uint64_t words[SHA256_BYTES / sizeof(uint64_t)];
  memcpy(words, digest, sizeof words);
  for (size_t i = 0; i < ARRAY_LEN(words); i++) siphash_word(&hash, words[i], 2);
  for (uint64_t at = siphash_end(&hash, 2);; at++) {
    api_key_t **slot = &auth->slots[at % SLOTS];
    if (*slot == NULL) return slot;
    (*compared)++;
    if (same_digest((*slot)->digest, digest)) return slot;
  }
}

static bool same_limits(const key_limits_t *left, const key_limits_t *right) {
  return left->max_waiting == right->max_waiting &&
         left->max_tokens_waiting == right->max_tokens_waiting &&
         left->tokens_per_day == right->tokens_per_day &&
         left->tokens_per_month == right->tokens_per_month &&
         left->max_running == right->max_running && left->weight == right->weight &&
         left->requests_per_minute == right->requests_per_minute &&
         left->tokens_per_minute == right->tokens_per_minute &&
         left->grammar_off == right->grammar_off;
}

/* A key that comes again. */
static int check_same(const api_key_t *key, const key_line_t *line, const key_place_t *place,
                      inferd_error_t *error) {
  if (key->admin != is_admin(place->option)) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: an API key is an admin key too; clients would be operators", place->text);
  }
  if (strcmp(key->label, line->label) == 0 && same_limits(&key->limits, &line->limits)) return 0;
  return error_set(error, ERR_CONFIGURATION, place->option,
                   "%s: the key was given before, with another label or other limits", place->text);
}

static int check_key_text(const char *text, const key_place_t *place, inferd_error_t *error) {
  size_t length = strlen(text);
  if (length == 0 || length > KEY_BYTES_MAX) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: the key has %zu bytes, supported: 1..%d", place->text, length,
                     KEY_BYTES_MAX);
  }
  for (size_t i = 0; i < length; i++) {
    if (text[i] > 0x20 && text[i] != 0x7f) continue;
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: byte %zu of the key is not allowed; a key is printable ASCII without "
                     "spaces",
                     place->text, i + 1);
  }
  return 0;
}

static int add_key(auth_t *auth, const key_line_t *line, const key_place_t *place,
                   inferd_error_t *error) {
  int code = check_key_text(line->key, place, error);
  if (code != 0) return code;
  uint8_t digest[SHA256_BYTES];
  sha256(line->key, strlen(line->key), digest);
  int compared = 0;
  api_key_t **slot = slot_of(auth, digest, &compared);
  if (*slot != NULL) return check_same(*slot, line, place, error);
  if (is_admin(place->option) && line->limited) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: an admin key has no limits; leave them out", place->text);
  }
  if (!auth->stores && (line->limits.tokens_per_day | line->limits.tokens_per_month) != 0) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: tokens_per_day and tokens_per_month need --store, which keeps what is "
                     "used",
                     place->text);
  }
  if (auth->count == KEYS_MAX) {
    return error_set(error, ERR_CONFIGURATION, place->option, "%s: more than %d keys", place->text,
                     KEYS_MAX);
  }
  api_key_t *key = api_key_new(digest, is_admin(place->option));
  if (key == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  api_key_set(key, line->label, &line->limits, clock_now_ns());
  *slot = key;
  auth->count++;
  auth->admin_count += key->admin;
  return 0;
}

static int parse_key_file(auth_t *auth, const char *option, const char *path, char *text,
                          inferd_error_t *error) {
  char *rest = text;
  int number = 0;
  for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
    key_place_t place = {.option = option};
    key_line_t parsed;
    snprintf(place.text, sizeof place.text, "%s: line %d of %.270s", option, ++number, path);
    int code = key_line_parse(line, &place, &parsed, error);
    if (code == 0 && parsed.key != NULL) code = add_key(auth, &parsed, &place, error);
    if (code != 0) return code;
  }
  return 0;
}

static int read_key_file(auth_t *auth, const char *option, const char *path,
                         inferd_error_t *error) {
  enum { FILE_BYTES_MAX = 4 << 20, MODE_FORBIDDEN = 0137 };
  option_file_t file;
  int code = option_file_read(&file, option, path, FILE_BYTES_MAX, MODE_FORBIDDEN, error);
  if (code != 0) return code;
  code = strlen(file.text) == file.size
             ? parse_key_file(auth, option, path, file.text, error)
             : error_set(error, ERR_CONFIGURATION, option, "%s: %s holds a NUL byte", option, path);
  option_file_free(&file);
  return code;
}

/* Adds the keys of one pair of options: a list, and a file ("" = none). */
static int add_keys(auth_t *auth, const char *option, const config_list_t *list,
                    const char *file_option, const char *path, inferd_error_t *error) {
  int code = 0;
  for (int i = 0; i < list->count && code == 0; i++) {
    key_place_t place = {.option = option};
    key_line_t line = {.key = list->items[i], .label = ""};
    snprintf(place.text, sizeof place.text, "%s: key %d of %d", option, i + 1, list->count);
    code = add_key(auth, &line, &place, error);
  }
  if (code != 0 || path[0] == '\0') return code;
  int before = auth->count;
  code = read_key_file(auth, file_option, path, error);
  if (code != 0 || auth->count > before) return code;
  /* An empty file must not open the server to everybody. */
  return error_set(error, ERR_CONFIGURATION, file_option, "%s: %s holds no key", file_option, path);
}

int auth_new(const config_t *config, auth_t **out, inferd_error_t *error) {
  auth_t *auth = calloc(1, sizeof *auth);
  if (auth == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  int code = 0;
  auth->stores = config->store[0] != '\0';
  auth->slots = calloc(SLOTS, sizeof(api_key_t *));
  if (auth->slots == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  } else if (getrandom(auth->hash_key, sizeof auth->hash_key, 0) != sizeof auth->hash_key) {
    code = error_set(error, ERR_IO, NULL, "getrandom gives no random numbers: %s", strerror(errno));
  }
  if (code == 0) {
    code = add_keys(auth, "api_key", &config->api_key, "api_key_file", config->api_key_file, error);
  }
  if (code == 0) {
    code = add_keys(auth, "admin_key", &config->admin_key, "admin_key_file", config->admin_key_file,
                    error);
  }
  if (code != 0) {
    auth_free(auth);
    return code;
  }
  *out = auth;
  return 0;
}

void auth_replace(auth_t *auth, auth_t *fresh) {
  for (int i = 0; i < SLOTS; i++) {
    int compared = 0;
    api_key_t *key = fresh->slots[i];
    api_key_t *old = key != NULL ? *slot_of(auth, key->digest, &compared) : NULL;
    if (old == NULL || old->admin != key->admin) continue;
    api_key_set(old, key->label, &key->limits, clock_now_ns());
    api_key_release(key);
    fresh->slots[i] = api_key_use(old);
  }
  auth_t previous = *auth;
  *auth = *fresh;
  *fresh = previous;
  auth_free(fresh);
}

void auth_free(auth_t *auth) {
  if (auth == NULL) return;
  for (int i = 0; i < SLOTS && auth->slots != NULL; i++) api_key_release(auth->slots[i]);
  free(auth->slots);
  free(auth);
}

int auth_key_count(const auth_t *auth) {
  return auth->count - auth->admin_count;
}

int auth_admin_count(const auth_t *auth) {
  return auth->admin_count;
}

/* The key that a client has presented; NULL = it is unknown. */
static api_key_t *find_key(const auth_t *auth, const char *text, size_t length, int *compared) {
  uint8_t digest[SHA256_BYTES];
  sha256(text, length, digest);
  return *slot_of(auth, digest, compared);
}

api_key_t *auth_find(const auth_t *auth, const uint8_t digest[KEY_DIGEST_BYTES]) {
  int compared = 0;
  return *slot_of(auth, digest, &compared);
}

int auth_comparisons(const auth_t *auth, const char *text) {
  int compared = 0;
  find_key(auth, text, strlen(text), &compared);
  return compared;
}

auth_role_t auth_check_key(const auth_t *auth, const char *text, api_key_t **key) {
  *key = NULL;
  auth_role_t stranger = auth_key_count(auth) == 0 ? AUTH_OPEN : AUTH_REFUSED;
  if (auth->count == 0 || text == NULL) return stranger;
  size_t length = strlen(text);
  while (length > 0 && text[length - 1] == ' ') length--;
  int compared = 0;
  *key = find_key(auth, text, length, &compared);
  if (*key == NULL) return stranger;
  return (*key)->admin ? AUTH_ADMIN : AUTH_CLIENT;
}

auth_role_t auth_check(const auth_t *auth, const char *authorization, api_key_t **key) {
  const char *text = NULL;
  if (authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
    text = authorization + 7 + strspn(authorization + 7, " ");
  }
  return auth_check_key(auth, text, key);
}
