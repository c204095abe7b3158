/* error.c: look-ups in the error table, and the writing of messages.
 *
 * Any thread; no function allocates or has state. This file does not decide what an error causes:
 * the server turns codes into responses, and serve.c turns them into exit statuses.
 */
#include "engine/base/error.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct error_entry {
  int code;
  int http_status, exit_status;
  const char *name;
  const char *openai_type;
  const char *openai_code;
} error_entry_t;

static const error_entry_t error_entries[] = {
#define ERROR(name, number, http_status, type, code, exit_status, help)                            \
  {(number), (http_status), (exit_status), #name, (type), (code)},
#include "engine/base/error.def"
#undef ERROR
};

/* Returns the row of a code. A code that is not in the table is a bug of the caller; it gets the
 * row of ERR_INTERNAL. */
static const error_entry_t *error_find(int code) {
  const error_entry_t *internal = NULL;
  for (size_t i = 0; i < ARRAY_LEN(error_entries); i++) {
    if (error_entries[i].code == code) return &error_entries[i];
    if (error_entries[i].code == ERR_INTERNAL) internal = &error_entries[i];
  }
  return internal;
}

const char *error_name(int code) {
  return error_find(code)->name;
}
int error_http_status(int code) {
  return error_find(code)->http_status;
}
const char *error_openai_type(int code) {
  return error_find(code)->openai_type;
}
const char *error_openai_code(int code) {
  return error_find(code)->openai_code;
}

int error_exit_code(int code) {
  return error_find(code)->exit_status;
}

/* Copies whole characters as long as they fit. Each ill-formed part and each control byte becomes
 * one '?'. `strict` also replaces quotes and backslashes, which could end a quoted insert. */
static void copy_printable(char *out, size_t capacity, const char *text, size_t length,
                           bool strict) {
  static const char mark[] = "...";
  size_t mark_at = 0; /* longest prefix that leaves room for the mark */
  size_t used = 0;
  for (size_t i = 0; i < length;) {
    int span = utf8_span(text + i, length - i);
    size_t take = (size_t)(span < 0 ? -span : span);
    unsigned char byte = (unsigned char)text[i];
    bool masked = span < 0 || byte < 0x20 || byte == 0x7F ||
                  (strict && (byte == '"' || byte == '\'' || byte == '\\')) ||
                  (byte == 0xC2 && (unsigned char)text[i + 1] < 0xA0); /* C1 controls */
    size_t put = masked ? 1 : take;
    if (used + put >= capacity) {
      size_t room = capacity - 1 - mark_at;
      memcpy(out + mark_at, mark, room < sizeof mark - 1 ? room : sizeof mark - 1);
      out[mark_at + (room < sizeof mark - 1 ? room : sizeof mark - 1)] = '\0';
      return;
    }
    if (masked) {
      out[used] = '?';
    } else {
      memmove(out + used, text + i, take);
    }
    used += put;
    i += take;
    if (used + sizeof mark <= capacity) mark_at = used;
  }
  out[used] = '\0';
}

const char *error_quote(char *out, unsigned capacity, const char *text, unsigned long length) {
  if (capacity > 0) copy_printable(out, capacity, text, length, true);
  return out;
}

int error_set(inferd_error_t *error, int code, const char *param, const char *format, ...) {
  if (error == NULL) return code;
  /* Some bytes longer than a message, so that copy_printable notices a cut even inside the last
   * character. Not error->message itself, because that may be one of the arguments. */
  char text[ERROR_MESSAGE_MAX + 8];
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t length = written < 0 ? 0 : strnlen(text, sizeof text - 1);
  copy_printable(error->message, sizeof error->message, text, length, false);
  char name[ERROR_PARAM_MAX] = "";
  if (param != NULL) copy_printable(name, sizeof name, param, strlen(param), false);
  memcpy(error->param, name, sizeof name);
  error->code = code;
  return code;
}

int error_within(inferd_error_t *error, int code, const char *place) {
  size_t length = strlen(place);
  if (code == 0 || error == NULL || strncmp(error->message, place, length) == 0) return code;
  bool cut = length > ERROR_PLACE_MAX;
  if (cut) place += length - ERROR_PLACE_MAX;
  char param[ERROR_PARAM_MAX];
  memcpy(param, error->param, sizeof param);
  return error_set(error, code, param, "%s%s: %s", cut ? "..." : "", place, error->message);
}

/* Names the user by name and number; a container often has users without a name. */
static int set_denied(inferd_error_t *error, const char *shown) {
  struct passwd entry, *found = NULL;
  char work[4096], name[64] = "";
  const long user = (long)geteuid();
  if (getpwuid_r((uid_t)user, &entry, work, sizeof work, &found) == 0 && found != NULL) {
    error_quote(name, sizeof name, entry.pw_name, strlen(entry.pw_name));
  }
  if (name[0] == '\0') snprintf(name, sizeof name, "%ld", user);
  return error_set(error, ERR_PERMISSION, NULL, "%.400s: permission denied for user %s (uid %ld)",
                   shown, name, user);
}

int error_system(inferd_error_t *error, const char *shown, int number) {
  if (number == EACCES || number == EPERM) return set_denied(error, shown);
  int code = number == ENOENT || number == ENOTDIR ? ERR_MODEL_MISSING : ERR_IO;
  return error_set(error, code, NULL, "%.400s: %s", shown, strerror(number));
}

int error_distance(const char *left, const char *right) {
  int row[ERROR_NEAR_MAX + 1];
  int width = (int)strnlen(right, ERROR_NEAR_MAX);
  for (int j = 0; j <= width; j++) row[j] = j;
  for (int i = 1; i <= ERROR_NEAR_MAX && left[i - 1] != '\0'; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= width; j++) {
      int substituted = diagonal + (left[i - 1] != right[j - 1]);
      diagonal = row[j];
      row[j] = MIN(substituted, MIN(row[j], row[j - 1]) + 1);
    }
  }
  return row[width];
}
