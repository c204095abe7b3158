/* auth.c: API keys and admin keys as SHA-256 digests, compared in constant time.
 *
 * Loop thread. Never logs or keeps a key: only its digest, and the first 8 hex digits of that as a
 * name for the logs. A key file has one key a line; blank lines and lines starting with # are
 * skipped, and a word after the key is a label for the reader of the file.
 */
#include "server/http/auth.h"

#include "engine/base/hex.h"
#include "server/http/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEYS_MAX = 4096, KEY_BYTES_MAX = 512 };

typedef struct key_entry {
  uint8_t digest[SHA256_BYTES];
  bool admin;
} key_entry_t;

struct auth {
  key_entry_t *keys;
  int count, admin_count;
};

/* Where a key stands, for messages: they never show the key. */
typedef struct key_place {
  const char *option;
  bool admin; /* the option is one of admin keys */
  char text[320];
} key_place_t;

static int find_key(const auth_t *auth, const uint8_t digest[SHA256_BYTES]) {
  for (int k = 0; k < auth->count; k++) {
    if (memcmp(auth->keys[k].digest, digest, SHA256_BYTES) == 0) return k;
  }
  return -1;
}

static bool is_admin(const char *option) {
  return strncmp(option, "admin_", 6) == 0;
}

static int add_key(auth_t *auth, const char *text, size_t length, const key_place_t *place,
                   inferd_error_t *error) {
  if (length == 0 || length > KEY_BYTES_MAX) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: the key has %zu bytes, supported: 1..%d", place->text, length,
                     KEY_BYTES_MAX);
  }
  for (size_t i = 0; i < length; i++) {
    if (text[i] <= 0x20 || text[i] == 0x7f) {
      return error_set(error, ERR_CONFIGURATION, place->option,
                       "%s: byte %zu of the key is not allowed; a key is printable ASCII without "
                       "spaces",
                       place->text, i + 1);
    }
  }
  if (auth->count == KEYS_MAX) {
    return error_set(error, ERR_CONFIGURATION, place->option, "%s: more than %d keys", place->text,
                     KEYS_MAX);
  }
  key_entry_t entry = {.admin = place->admin};
  sha256(text, length, entry.digest);
  int same = find_key(auth, entry.digest);
  if (same >= 0 && auth->keys[same].admin != place->admin) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: an API key is an admin key too; clients would be operators", place->text);
  }
  key_entry_t *keys = reallocarray(auth->keys, (size_t)auth->count + 1, sizeof *keys);
  if (keys == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  auth->keys = keys;
  keys[auth->count++] = entry;
  auth->admin_count += place->admin;
  return 0;
}

static int parse_key_file(auth_t *auth, const char *option, const char *path, char *text,
                          inferd_error_t *error) {
  char *rest = text;
  int number = 0;
  for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
    key_place_t place = {.option = option, .admin = is_admin(option)};
    snprintf(place.text, sizeof place.text, "%s: line %d of %.270s", option, ++number, path);
    line += strspn(line, " \t\r");
    if (*line == '\0' || *line == '#') continue;
    int code = add_key(auth, line, strcspn(line, " \t\r"), &place, error);
    if (code != 0) return code;
  }
  return 0;
}

static int read_key_file(auth_t *auth, const char *option, const char *path,
                         inferd_error_t *error) {
  enum { FILE_BYTES_MAX = 4 << 20 };
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return error_set(error, ERR_IO, option, "%s: cannot open %s: %s", option, path,
                     strerror(errno));
  }
  struct stat info;
  int code = 0;
  char *text = NULL;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    code = error_set(error, ERR_IO, option, "%s: %s is not a regular file", option, path);
  } else if ((info.st_mode & 0137) != 0) {
    code = error_set(error, ERR_PERMISSION, option, "%s: %s has mode %04o; it must be 0600 or 0640",
                     option, path, (unsigned)(info.st_mode & 07777));
  } else if (info.st_size > FILE_BYTES_MAX) {
    code =
        error_set(error, ERR_CONFIGURATION, option, "%s: %s has %lld bytes, supported: at most %d",
                  option, path, (long long)info.st_size, FILE_BYTES_MAX);
  } else if ((text = calloc(1, (size_t)info.st_size + 1)) == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  } else if (read(fd, text, (size_t)info.st_size) != (ssize_t)info.st_size) {
    code =
        error_set(error, ERR_IO, option, "%s: cannot read %s: %s", option, path, strerror(errno));
  } else if (strlen(text) != (size_t)info.st_size) {
    code = error_set(error, ERR_CONFIGURATION, option, "%s: %s holds a NUL byte", option, path);
  } else {
    code = parse_key_file(auth, option, path, text, error);
  }
  if (text != NULL) explicit_bzero(text, (size_t)info.st_size);
  free(text);
  close(fd);
  return code;
}

/* Adds the keys of one pair of options: a list, and a file ("" = none). */
static int add_keys(auth_t *auth, const char *option, const config_list_t *list,
                    const char *file_option, const char *path, inferd_error_t *error) {
  int code = 0, before = auth->count + list->count;
  for (int i = 0; i < list->count && code == 0; i++) {
    key_place_t place = {.option = option, .admin = is_admin(option)};
    snprintf(place.text, sizeof place.text, "%s: key %d of %d", option, i + 1, list->count);
    code = add_key(auth, list->items[i], strlen(list->items[i]), &place, error);
  }
  if (code != 0 || path[0] == '\0') return code;
  code = read_key_file(auth, file_option, path, error);
  if (code != 0 || auth->count > before) return code;
  /* An empty file must not open the server to everybody. */
  return error_set(error, ERR_CONFIGURATION, file_option, "%s: %s holds no key", file_option, path);
}

int auth_new(const config_t *config, auth_t **out, inferd_error_t *error) {
  auth_t *auth = calloc(1, sizeof *auth);
  if (auth == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  int code =
      add_keys(auth, "api_key", &config->api_key, "api_key_file", config->api_key_file, error);
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

int auth_reload(auth_t *auth, const config_t *config, inferd_error_t *error) {
  auth_t *fresh = NULL;
  int code = auth_new(config, &fresh, error);
  if (code != 0) return code;
  free(auth->keys);
  *auth = *fresh;
  free(fresh);
  return 0;
}

void auth_free(auth_t *auth) {
  if (auth == NULL) return;
  free(auth->keys);
  free(auth);
}

int auth_key_count(const auth_t *auth) {
  return auth->count - auth->admin_count;
}

int auth_admin_count(const auth_t *auth) {
  return auth->admin_count;
}

/* Returns the key of this digest, or NULL. Every key is compared to its end, so the time says
 * nothing about where a guess differed. */
static const key_entry_t *match(const auth_t *auth, const uint8_t digest[SHA256_BYTES]) {
  const key_entry_t *found = NULL;
  for (int k = 0; k < auth->count; k++) {
    unsigned difference = 0;
    for (int i = 0; i < SHA256_BYTES; i++) difference |= auth->keys[k].digest[i] ^ digest[i];
    if (difference == 0) found = &auth->keys[k];
  }
  return found;
}

auth_role_t auth_check(const auth_t *auth, const char *authorization, uint64_t *tenant,
                       char name[AUTH_KEY_NAME_BYTES]) {
  *tenant = 0;
  name[0] = '\0';
  auth_role_t stranger = auth_key_count(auth) == 0 ? AUTH_OPEN : AUTH_REFUSED;
  if (auth->count == 0 || authorization == NULL) return stranger;
  if (strncasecmp(authorization, "Bearer ", 7) != 0) return stranger;
  const char *key = authorization + 7 + strspn(authorization + 7, " ");
  size_t length = strlen(key);
  while (length > 0 && key[length - 1] == ' ') length--;

  uint8_t digest[SHA256_BYTES];
  sha256(key, length, digest);
  const key_entry_t *entry = match(auth, digest);
  if (entry == NULL) return stranger;
  for (int i = 0; i < 8; i++) *tenant = *tenant << 8 | digest[i];
  if (*tenant == 0) *tenant = 1;
  for (int i = 0; i < 4; i++) {
    name[2 * i] = hex_digit(digest[i] >> 4);
    name[2 * i + 1] = hex_digit(digest[i] & 15);
  }
  name[8] = '\0';
  return entry->admin ? AUTH_ADMIN : AUTH_CLIENT;
}
