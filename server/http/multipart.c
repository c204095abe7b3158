/* multipart.c: the parts of a body of multipart/form-data, see multipart.h.
 *
 * Any thread; allocates nothing and copies names alone.
 */
#include "server/http/multipart.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Bytes of the headers of a part: names are short. */
enum { HEADERS_MAX = 4096 };

static int fail(const multipart_pass_t *pass, const char *what, inferd_error_t *error) {
  return error_set(error, ERR_BAD_REQUEST, NULL, "The multipart body is malformed at byte %zu: %s.",
                   pass->at, what);
}

static bool takes(multipart_pass_t *pass, const char *text, size_t length) {
  if (pass->length - pass->at < length || memcmp(pass->body + pass->at, text, length) != 0)
    return false;
  pass->at += length;
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

static int read_header(multipart_pass_t *pass, size_t length, inferd_error_t *error) {
  static const char disposition[] = "content-disposition:", type[] = "content-type:";
  const char *line = pass->body + pass->at;
  multipart_part_t *part = &pass->part;
  if (length > sizeof type - 1 && strncasecmp(line, type, sizeof type - 1) == 0) return 0;
  bool is_it = length >= sizeof disposition - 1 &&
               strncasecmp(line, disposition, sizeof disposition - 1) == 0;
  if (!is_it)
    return fail(pass, "only Content-Disposition and Content-Type are headers of a part", error);
  const char *value = line + sizeof disposition - 1;
  size_t left = length - (sizeof disposition - 1);
  while (left > 0 && value[0] == ' ') value++, left--;
  if (left < 9 || strncasecmp(value, "form-data", 9) != 0)
    return fail(pass, "a part is not form-data", error);
  if (part->name[0] != '\0' || !parameter(value, left, "name", part->name, sizeof part->name) ||
      part->name[0] == '\0')
    return fail(pass, "a part needs one name of at most 255 bytes", error);
  bool has_file = memmem(value, left, "filename=", 9) != NULL;
  if (has_file && !parameter(value, left, "filename", part->file, sizeof part->file))
    return fail(pass, "a file name has at most 255 bytes and no control characters", error);
  return 0;
}

/* The headers of a part, up to the empty line. */
static int read_headers(multipart_pass_t *pass, inferd_error_t *error) {
  const size_t most = MIN(pass->at + HEADERS_MAX, pass->length);
  for (;;) {
    const char *line = pass->body + pass->at;
    const char *end = memmem(line, most - pass->at, "\r\n", 2);
    if (end == NULL && most < pass->length)
      return fail(pass, "the headers of a part have at most 4,096 bytes", error);
    if (end == NULL) return fail(pass, "a header does not end", error);
    size_t length = (size_t)(end - line);
    if (length == 0) break;
    int code = read_header(pass, length, error);
    if (code != 0) return code;
    pass->at += length + 2;
  }
  if (pass->part.name[0] == '\0') return fail(pass, "a part has no name", error);
  pass->at += 2;
  return 0;
}

/* "\r\n--BOUNDARY", of which the first line lacks the line feed. */
static int read_boundary(const char *type, char out[MULTIPART_BOUNDARY_MAX + 5],
                         inferd_error_t *error) {
  static const char form[] = "multipart/form-data";
  char boundary[MULTIPART_BOUNDARY_MAX + 1];
  bool is_form = type != NULL && strncasecmp(type, form, sizeof form - 1) == 0 &&
                 (type[sizeof form - 1] == ';' || type[sizeof form - 1] == ' ');
  if (!is_form)
    return error_set(error, ERR_UNSUPPORTED_MEDIA_TYPE, NULL,
                     "Content-Type must be multipart/form-data.");
  if (!parameter(type, strlen(type), "boundary", boundary, sizeof boundary) || boundary[0] == '\0')
    return error_set(error, ERR_BAD_REQUEST, NULL,
                     "Content-Type needs a boundary of 1 to %d bytes.", MULTIPART_BOUNDARY_MAX);
  snprintf(out, MULTIPART_BOUNDARY_MAX + 5, "\r\n--%s", boundary);
  return 0;
}

/* ---- part by part ---- */

int multipart_begin(const char *type, const char *body, size_t length, multipart_pass_t *out,
                    inferd_error_t *error) {
  *out = (multipart_pass_t){.body = body, .length = length};
  int code = read_boundary(type, out->boundary, error);
  if (code != 0) return code;
  out->boundary_length = strlen(out->boundary);
  if (!takes(out, out->boundary + 2, out->boundary_length - 2))
    return fail(out, "it begins with no boundary", error);
  return 0;
}

/* Behind a boundary: the headers of a part, or the end. */
static int begin_part(multipart_pass_t *pass, inferd_error_t *error) {
  if (takes(pass, "--", 2)) {
    (void)takes(pass, "\r\n", 2);
    return pass->at == pass->length ? 0 : fail(pass, "bytes follow the last boundary", error);
  }
  if (!takes(pass, "\r\n", 2)) return fail(pass, "a boundary does not end its line", error);
  if (pass->count++ == MULTIPART_PARTS_MAX) return fail(pass, "it has more than 16 parts", error);
  pass->part = (multipart_part_t){0};
  int code = read_headers(pass, error);
  if (code != 0) return code;
  pass->part.bytes = pass->body + pass->at;
  pass->in_part = true;
  return MULTIPART_MORE;
}

int multipart_step(multipart_pass_t *pass, size_t most, inferd_error_t *error) {
  if (!pass->in_part) {
    int code = begin_part(pass, error);
    if (code != MULTIPART_MORE) return code;
  }
  const char *from = pass->body + pass->at;
  const size_t left = pass->length - pass->at;
  /* No boundary begins where the last one was looked for: what is left of it is looked at again. */
  const size_t seen = MIN(left, most + pass->boundary_length - 1);
  const char *end = memmem(from, seen, pass->boundary, pass->boundary_length);
  if (end != NULL) {
    pass->part.length = (size_t)(end - pass->part.bytes);
    pass->at += (size_t)(end - from) + pass->boundary_length;
    pass->in_part = false;
    return MULTIPART_PART;
  }
  if (seen == left) {
    pass->at = (size_t)(pass->part.bytes - pass->body);
    return fail(pass, "a part does not end", error);
  }
  pass->at += most;
  return MULTIPART_MORE;
}

/* ---- the whole ---- */

/* Elements of a list come as parts of one name. */
static bool is_list(const char *name) {
  const size_t length = strlen(name);
  return length > 2 && strcmp(name + length - 2, "[]") == 0;
}

int multipart_read(const char *type, const char *body, size_t length, multipart_t *out,
                   inferd_error_t *error) {
  multipart_pass_t pass;
  *out = (multipart_t){0};
  int code = multipart_begin(type, body, length, &pass, error);
  if (code != 0) return code;
  while ((code = multipart_step(&pass, length, error)) == MULTIPART_PART) {
    if (!is_list(pass.part.name) && multipart_find(out, pass.part.name) != NULL)
      return fail(&pass, "a name is there twice", error);
    out->parts[out->count++] = pass.part;
  }
  return code;
}

const multipart_part_t *multipart_find(const multipart_t *form, const char *name) {
  for (int i = 0; i < form->count; i++) {
    if (strcmp(form->parts[i].name, name) == 0) return &form->parts[i];
  }
  return NULL;
}
