/* str.h: strings that know which of their bytes come from a request, and growing texts (sinks).
 *
 * A string is immutable. Its origin is the template, the request, or mixed, with a list of the
 * parts from the request. A sink is a growing text. A string made from a sink shares its bytes.
 * Appending to that string appends to the same bytes, so `ns.text = ns.text + x` in a loop takes
 * linear time. All memory belongs to the render. The rendering thread only.
 */
#ifndef INFERD_ENGINE_TEMPLATE_STR_H
#define INFERD_ENGINE_TEMPLATE_STR_H

#include "engine/base/byte_span.h"
#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run;

typedef enum str_origin { ORIGIN_TEMPLATE, ORIGIN_REQUEST, ORIGIN_MIXED } str_origin_t;

typedef struct sink {
  char *data; /* grows in the render's arena, because strings keep pointers into it */
  uint32_t length, capacity;
  byte_span_t *marks; /* request's parts, ascending */
  uint32_t num_marks, marks_capacity;
} sink_t;

typedef struct str {
  const char *bytes;        /* valid UTF-8, not NUL-terminated */
  sink_t *sink;             /* where the bytes grew, NULL = nowhere */
  const byte_span_t *marks; /* ORIGIN_MIXED; the last may reach beyond length: clip */
  uint32_t length;          /* bytes */
  uint32_t num_chars;       /* code points; STR_UNCOUNTED until they are first counted */
  uint32_t num_marks;
  uint32_t mark_base; /* bytes of the marked text before this string */
  uint8_t origin;     /* str_origin_t */
} str_t;

enum { STR_BYTES_MAX = 1 << 28 };
#define STR_UNCOUNTED UINT32_MAX

/* Functions with a run end it (run_fail) if memory is short or a string gets too long. */

/* A string of these bytes, which must live as long as the render; str_copy copies them. */
str_t *str_wrap(struct run *run, const char *bytes, size_t length, str_origin_t origin);
str_t *str_copy(struct run *run, const char *bytes, size_t length, str_origin_t origin);
str_t *str_text(struct run *run, const char *literal); /* from a C string that is never freed */
/* Bytes begin .. end - 1 of `str`, on code point boundaries. */
str_t *str_part(struct run *run, const str_t *str, size_t begin, size_t end);
str_t *str_concat(struct run *run, const str_t *left, const str_t *right);
uint32_t str_chars(const str_t *str); /* code points */
/* Byte offset of code point `index`, 0 .. str_chars. */
size_t str_offset(const str_t *str, uint32_t index);
bool str_equal(const str_t *left, const str_t *right);
bool str_is(const str_t *str, const char *literal);
int str_compare(const str_t *left, const str_t *right);
/* First occurrence of `part` in bytes from .. end - 1, or -1. */
int64_t str_find(struct run *run, const str_t *str, size_t from, size_t end, const str_t *part);
int64_t str_rfind(struct run *run, const str_t *str, size_t from, size_t end, const str_t *part);

sink_t *sink_new(struct run *run);
/* Each appends to the sink. `request`: the bytes come from the request. */
void sink_put(struct run *run, sink_t *sink, const char *bytes, size_t length, bool request);
void sink_puts(struct run *run, sink_t *sink, const char *literal);
void sink_put_str(struct run *run, sink_t *sink, const str_t *str);
void sink_put_part(struct run *run, sink_t *sink, const str_t *str, size_t begin, size_t end);
str_t *sink_str(struct run *run, sink_t *sink); /* what was appended so far */

/* Reads the code point at *at and advances *at past it. Valid UTF-8. */
static inline uint32_t str_next(const char *bytes, size_t *at) {
  unsigned length;
  uint32_t code = utf8_read((const uint8_t *)bytes + *at, &length);
  *at += length;
  return code;
}
/* Start of the code point before `at`. */
static inline size_t str_previous(const char *bytes, size_t at) {
  return utf8_previous((const uint8_t *)bytes, at);
}

#endif
