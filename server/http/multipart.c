/* multipart.c: the parts of a body of multipart/form-data, see multipart.h.
 *
 * Any thread; allocates nothing and copies names alone.
 */
#include "server/http/multipart.h"

#include "engine/base/util.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct form_cursor {
  const char *at, *end, *begin;
  inferd_error_t *error;
} form_cursor_t;

static int fail(const form_cursor_t *cursor, const char *what) {
  return error_set(cursor->error, ERR_BAD_REQUEST, NULL,
                   "The multipart body is malformed at byte %zu: %s.",
                   (size_t)(cursor->at - cursor->begin), what);
}

static bool takes(form_cursor_t *cursor, const char *text, size_t length) {
  if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length) != 0)
    return false;
  cursor->at += length;
  return true;
}

/* Copies the value of a parameter, `name="value"` or `name=value`, of a header's value. Returns
 * false if there is none, it does not fit or has a control character. */
static bool parameter(const char *value, size_t length, const char *name, char *out,
                      size_t capacity) {
  size_t wanted = strlen(name), n = 0;
  for (size_t i = 0; i < length;) {
    while (i < length && value[i] != ';') i++;
    if (i < length) i++;
    while (i < length && (value[i] == ' ' || value[i] == '\t')) i++;
    bool is_it = length - i > wanted && strncasecmp(value + i, name, wanted) == 0 &&
                 value[i + wanted] == '=';
    while (i < length && value[i] != '=' && value[i] != ';') i++;
    if (i == length || value[i] == ';') continue;
    bool quoted = ++i < length && value[i] == '"';
    for (i += quoted; i < length && (quoted ? value[i] != '"' : value[i] != ';'); i++) {
      bool escaped = quoted && value[i] == '\\' && i + 1 < length;
      i += escaped;
      bool plain = (unsigned char)value[i] >= 0x20 && value[i] != 0x7f;
      if (is_it && (!plain || n + 1 >= capacity)) return false;
      if (is_it) out[n++] = value[i];
    }
    if (quoted && i == length) return false;
    i += quoted;
    if (!is_it) continue;
    while (!quoted && n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
    return true;
  }
  return false;
}

static int read_header(form_cursor_t *cursor, multipart_part_t *part, size_t length) {
  static const char disposition[] = "content-disposition:", type[] = "content-type:";
  const char *line = cursor->at;
  if (length > sizeof type - 1 && strncasecmp(line, type, sizeof type - 1) == 0) return 0;
  bool is_it = length >= sizeof disposition - 1 &&
               strncasecmp(line, disposition, sizeof disposition - 1) == 0;
  if (!is_it)
    return fail(cursor, "only Content-Disposition and Content-Type are headers of a part");
  const char *value = line + sizeof disposition - 1;
  size_t left = length - (sizeof disposition - 1);
  while (left > 0 && value[0] == ' ') value++, left--;
  if (left < 9 || strncasecmp(value, "form-data", 9) != 0)
    return fail(cursor, "a part is not form-data");
  if (part->name[0] != '\0' || !parameter(value, left, "name", part->name, sizeof part->name) ||
      part->name[0] == '\0')
    return fail(cursor, "a part needs one name of at most 255 bytes");
  bool has_file = memmem(value, left, "filename=", 9) != NULL;
  if (has_file && !parameter(value, left, "filename", part->file, sizeof part->file))
    return fail(cursor, "a file name has at most 255 bytes and no control characters");
  return 0;
}

/* The headers of a part, up to the empty line. */
static int read_headers(form_cursor_t *cursor, multipart_part_t *part) {
  for (;;) {
    const char *end = memmem(cursor->at, (size_t)(cursor->end - cursor->at), "\r\n", 2);
    if (end == NULL) return fail(cursor, "a header does not end");
    size_t length = (size_t)(end - cursor->at);
    if (length == 0) break;
    int code = read_header(cursor, part, length);
    if (code != 0) return code;
    cursor->at = end + 2;
  }
  if (part->name[0] == '\0') return fail(cursor, "a part has no name");
  cursor->at += 2;
  return 0;
}

/* "\r\n--BOUNDARY", of which the first line lacks the line feed. */
static int read_boundary(const char *type, char out[MULTIPART_BOUNDARY_MAX + 5],
                         form_cursor_t *cursor) {
  static const char form[] = "multipart/form-data";
  char boundary[MULTIPART_BOUNDARY_MAX + 1];
  bool is_form = type != NULL && strncasecmp(type, form, sizeof form - 1) == 0 &&
                 (type[sizeof form - 1] == ';' || type[sizeof form - 1] == ' ');
  if (!is_form)
    return error_set(cursor->error, ERR_UNSUPPORTED_MEDIA_TYPE, NULL,
                     "Content-Type must be multipart/form-data.");
  if (!parameter(type, strlen(type), "boundary", boundary, sizeof boundary) || boundary[0] == '\0')
    return error_set(cursor->error, ERR_BAD_REQUEST, NULL,
                     "Content-Type needs a boundary of 1 to %d bytes.", MULTIPART_BOUNDARY_MAX);
  snprintf(out, MULTIPART_BOUNDARY_MAX + 5, "\r\n--%s", boundary);
  return 0;
}

/* Elements of a list come as parts of one name. */
static bool is_list(const char *name) {
  const size_t length = strlen(name);
  return length > 2 && strcmp(name + length - 2, "[]") == 0;
}

int multipart_read(const char *type, const char *body, size_t length, multipart_t *out,
                   inferd_error_t *error) {
  form_cursor_t cursor = {.at = body, .end = body + length, .begin = body, .error = error};
  char boundary[MULTIPART_BOUNDARY_MAX + 5];
  *out = (multipart_t){0};
  int code = read_boundary(type, boundary, &cursor);
  if (code != 0) return code;
  size_t size = strlen(boundary);
  if (!takes(&cursor, boundary + 2, size - 2)) return fail(&cursor, "it begins with no boundary");
  while (!takes(&cursor, "--", 2)) {
    if (!takes(&cursor, "\r\n", 2)) return fail(&cursor, "a boundary does not end its line");
    if (out->count == MULTIPART_PARTS_MAX) return fail(&cursor, "it has more than 16 parts");
    multipart_part_t *part = &out->parts[out->count];
    if ((code = read_headers(&cursor, part)) != 0) return code;
    if (!is_list(part->name) && multipart_find(out, part->name) != NULL)
      return fail(&cursor, "a name is there twice");
    const char *end = memmem(cursor.at, (size_t)(cursor.end - cursor.at), boundary, size);
    if (end == NULL) return fail(&cursor, "a part does not end");
    part->bytes = cursor.at;
    part->length = (size_t)(end - cursor.at);
    out->count++;
    cursor.at = end + size;
  }
  (void)takes(&cursor, "\r\n", 2);
  return cursor.at == cursor.end ? 0 : fail(&cursor, "bytes follow the last boundary");
}

const multipart_part_t *multipart_find(const multipart_t *form, const char *name) {
  for (int i = 0; i < form->count; i++) {
    if (strcmp(form->parts[i].name, name) == 0) return &form->parts[i];
  }
  return NULL;
}
