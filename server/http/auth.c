/* auth.c: API keys as SHA-256 digests, compared in constant time.
 *
 * Loop thread. Never logs or keeps a key: only its digest, and the first 8 hex digits of that as a
 * name for the logs. The key file has one key a line; blank lines and lines starting with # are
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

typedef struct digest_entry {
  uint8_t digest[SHA256_BYTES];
} digest_entry_t;

struct auth {
  digest_entry_t *keys;
  int count;
};

/* Where a key stands, for messages: they never show the key. */
typedef struct key_place {
  const char *option;
  char text[320];
} key_place_t;

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
  digest_entry_t *keys = reallocarray(auth->keys, (size_t)auth->count + 1, sizeof *keys);
  if (keys == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  auth->keys = keys;
  sha256(text, length, keys[auth->count++].digest);
  return 0;
}

static int parse_key_file(auth_t *auth, const char *path, char *text, inferd_error_t *error) {
  char *rest = text;
  int number = 0;
  for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
    key_place_t place = {.option = "api_key_file"};
    snprintf(place.text, sizeof place.text, "api_key_file: line %d of %.280s", ++number, path);
    line += strspn(line, " \t\r");
    if (*line == '\0' || *line == '#') continue;
    int code = add_key(auth, line, strcspn(line, " \t\r"), &place, error);
    if (code != 0) return code;
  }
  return 0;
}

static int read_key_file(auth_t *auth, const char *path, inferd_error_t *error) {
  enum { FILE_BYTES_MAX = 4 << 20 };
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return error_set(error, ERR_IO, "api_key_file", "api_key_file: cannot open %s: %s", path,
                     strerror(errno));
  }
  struct stat info;
  int code = 0;
  char *text = NULL;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    code = error_set(error, ERR_IO, "api_key_file", "api_key_file: %s is not a regular file", path);
  } else if ((info.st_mode & 0137) != 0) {
    code = error_set(error, ERR_PERMISSION, "api_key_file",
                     "api_key_file: %s has mode %04o; it must be 0600 or 0640", path,
                     (unsigned)(info.st_mode & 07777));
  } else if (info.st_size > FILE_BYTES_MAX) {
    code = error_set(error, ERR_CONFIGURATION, "api_key_file",
                     "api_key_file: %s has %lld bytes, supported: at most %d", path,
                     (long long)info.st_size, FILE_BYTES_MAX);
  } else if ((text = calloc(1, (size_t)info.st_size + 1)) == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  } else if (read(fd, text, (size_t)info.st_size) != (ssize_t)info.st_size) {
    code = error_set(error, ERR_IO, "api_key_file", "api_key_file: cannot read %s: %s", path,
                     strerror(errno));
  } else if (strlen(text) != (size_t)info.st_size) {
    code = error_set(error, ERR_CONFIGURATION, "api_key_file", "api_key_file: %s holds a NUL byte",
                     path);
  } else {
    code = parse_key_file(auth, path, text, error);
  }
  if (text != NULL) explicit_bzero(text, (size_t)info.st_size);
  free(text);
  close(fd);
  return code;
}

int auth_new(const config_t *config, auth_t **out, inferd_error_t *error) {
  auth_t *auth = calloc(1, sizeof *auth);
  if (auth == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the API keys");
  int code = 0;
  for (int i = 0; i < config->api_key.count && code == 0; i++) {
    key_place_t place = {.option = "api_key"};
    snprintf(place.text, sizeof place.text, "api_key: key %d of %d", i + 1, config->api_key.count);
    code = add_key(auth, config->api_key.items[i], strlen(config->api_key.items[i]), &place, error);
  }
  if (code == 0 && config->api_key_file[0] != '\0') {
    int before = auth->count;
    code = read_key_file(auth, config->api_key_file, error);
    /* An empty file must not open the server to everybody. */
    if (code == 0 && auth->count == before) {
      code = error_set(error, ERR_CONFIGURATION, "api_key_file", "api_key_file: %s holds no key",
                       config->api_key_file);
    }
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
  return auth->count;
}

bool auth_check(const auth_t *auth, const char *authorization, uint64_t *tenant,
                char name[AUTH_KEY_NAME_BYTES]) {
  *tenant = 0;
  name[0] = '\0';
  if (auth->count == 0) return true;
  if (authorization == NULL || strncasecmp(authorization, "Bearer ", 7) != 0) return false;
  const char *key = authorization + 7 + strspn(authorization + 7, " ");
  size_t length = strlen(key);
  while (length > 0 && key[length - 1] == ' ') length--;

  uint8_t digest[SHA256_BYTES];
  sha256(key, length, digest);
  /* Every key is compared to its end, so the time says nothing about where a guess differed. */
  unsigned found = 0;
  for (int k = 0; k < auth->count; k++) {
    unsigned difference = 0;
    for (int i = 0; i < SHA256_BYTES; i++) difference |= auth->keys[k].digest[i] ^ digest[i];
    found |= (difference - 1) >> 31; /* 1 when difference is 0 */
  }
  if (found == 0) return false;
  for (int i = 0; i < 8; i++) *tenant = *tenant << 8 | digest[i];
  if (*tenant == 0) *tenant = 1;
  for (int i = 0; i < 4; i++) {
    name[2 * i] = hex_digit(digest[i] >> 4);
    name[2 * i + 1] = hex_digit(digest[i] & 15);
  }
  name[8] = '\0';
  return true;
}
