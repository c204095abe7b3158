/* str.c: strings with origin, and sinks.
 *
 * The rendering thread only; every byte copied or searched is paid for.
 */
#include "engine/template/str.h"

#include "engine/base/utf8.h"
#include "engine/template/run/run.h"

#include <string.h>

enum { SHARED_FROM = 128, MARKS_FIRST = 8, TEXT_BYTES_MAX = 64 << 20 };

str_t *str_wrap(run_t *run, const char *bytes, size_t length, str_origin_t origin) {
  if (length > STR_BYTES_MAX) run_fail(run, "a string is longer than %d bytes", STR_BYTES_MAX);
  str_t *s = run_take(run, sizeof *s, false);
  *s = (str_t){.bytes = bytes,
               .length = (uint32_t)length,
               .num_chars = STR_UNCOUNTED,
               .origin = (uint8_t)origin};
  return s;
}

str_t *str_copy(run_t *run, const char *bytes, size_t length, str_origin_t origin) {
  if (length > STR_BYTES_MAX) run_fail(run, "a string is longer than %d bytes", STR_BYTES_MAX);
  run_spend_bytes(run, length);
  char *copy = run_take(run, length, false);
  if (length > 0) memcpy(copy, bytes, length);
  return str_wrap(run, copy, length, origin);
}

str_t *str_text(run_t *run, const char *literal) {
  return str_wrap(run, literal, strlen(literal), ORIGIN_TEMPLATE);
}

/* Bytes of one origin. */
typedef struct stretch {
  size_t begin, end;
  bool request;
} stretch_t;

/* The stretch that begins at `at`; `mark` walks over the list. */
static stretch_t stretch_at(const str_t *s, size_t at, size_t end, uint32_t *mark) {
  if (s->origin != ORIGIN_MIXED) return (stretch_t){at, end, s->origin == ORIGIN_REQUEST};
  size_t base = s->mark_base;
  while (*mark < s->num_marks && s->marks[*mark].end <= base + at) ++*mark;
  if (*mark == s->num_marks) return (stretch_t){at, end, false};
  size_t begin = s->marks[*mark].begin, stop = s->marks[*mark].end;
  if (begin > base + at) {
    size_t until = begin - base;
    return (stretch_t){at, until < end ? until : end, false};
  }
  size_t until = stop - base;
  return (stretch_t){at, until < end ? until : end, true};
}

/* First mark that ends behind byte `at` of the string. */
static uint32_t mark_at(const str_t *s, size_t at) {
  uint32_t low = 0, high = s->num_marks;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (s->marks[middle].end <= s->mark_base + at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

str_t *str_part(run_t *run, const str_t *s, size_t begin, size_t end) {
  if (begin == 0 && end == s->length) {
    str_t *same = run_take(run, sizeof *same, false);
    *same = *s;
    return same;
  }
  str_t *part = str_wrap(run, s->bytes + begin, end - begin, (str_origin_t)s->origin);
  if (s->num_chars == s->length) part->num_chars = part->length;
  if (s->origin != ORIGIN_MIXED) return part;
  uint32_t low = mark_at(s, begin), mark = low;
  stretch_t first = stretch_at(s, begin, end, &mark);
  if (first.end == end || begin == end) {
    part->origin = first.request ? ORIGIN_REQUEST : ORIGIN_TEMPLATE;
    return part;
  }
  part->marks = s->marks + low;
  part->num_marks = s->num_marks - low;
  part->mark_base = s->mark_base + (uint32_t)begin;
  return part;
}

uint32_t str_chars(const str_t *s) {
  if (s->num_chars != STR_UNCOUNTED) return s->num_chars;
  uint32_t count = 0;
  for (uint32_t i = 0; i < s->length; i++) count += ((uint8_t)s->bytes[i] & 0xC0) != 0x80;
  ((str_t *)(uintptr_t)s)->num_chars = count;
  return count;
}

size_t str_offset(const str_t *s, uint32_t index) {
  uint32_t chars = str_chars(s);
  if (chars == s->length || index == 0) return index;
  if (index >= chars) return s->length;
  size_t at = 0;
  while (index > 0) {
    at++;
    while (at < s->length && ((uint8_t)s->bytes[at] & 0xC0) == 0x80) at++;
    index--;
  }
  return at;
}

bool str_equal(const str_t *a, const str_t *b) {
  return a->length == b->length && (a->length == 0 || memcmp(a->bytes, b->bytes, a->length) == 0);
}

bool str_is(const str_t *s, const char *literal) {
  return s->length == strlen(literal) && memcmp(s->bytes, literal, s->length) == 0;
}

/* UTF-8 orders as code points do. */
int str_compare(const str_t *a, const str_t *b) {
  uint32_t shared = a->length < b->length ? a->length : b->length;
  int order = shared == 0 ? 0 : memcmp(a->bytes, b->bytes, shared);
  if (order != 0) return order;
  return a->length < b->length ? -1 : a->length > b->length;
}

int64_t str_find(run_t *run, const str_t *s, size_t from, size_t end, const str_t *part) {
  if (end < from || end - from < part->length) return -1;
  if (part->length == 0) return (int64_t)from;
  const char *hit = memmem(s->bytes + from, end - from, part->bytes, part->length);
  size_t walked = hit == NULL ? end - from : (size_t)(hit - s->bytes) - from;
  run_spend_bytes(run, walked + part->length);
  return hit == NULL ? -1 : (int64_t)(hit - s->bytes);
}

int64_t str_rfind(run_t *run, const str_t *s, size_t from, size_t end, const str_t *part) {
  if (end < from || end - from < part->length) return -1;
  if (part->length == 0) return (int64_t)end;
  const char last = part->bytes[part->length - 1];
  size_t stop = end; /* the match would end here */
  while (stop >= from + part->length) {
    const char *hit = memrchr(s->bytes + from, last, stop - from);
    if (hit == NULL) break;
    run_spend_bytes(run, (size_t)(s->bytes + stop - hit) + part->length);
    run_spend(run, 1);
    stop = (size_t)(hit - s->bytes) + 1;
    if (stop < from + part->length) break;
    if (memcmp(s->bytes + stop - part->length, part->bytes, part->length) == 0)
      return (int64_t)(stop - part->length);
    stop--;
  }
  return -1;
}

/* ---- sinks ---- */

sink_t *sink_new(run_t *run) {
  return run_take(run, sizeof(sink_t), true);
}

static void reserve(run_t *run, sink_t *sink, size_t more) {
  size_t wanted = sink->length + more;
  if (wanted > TEXT_BYTES_MAX) run_fail(run, "a text is longer than %d bytes", TEXT_BYTES_MAX);
  if (wanted <= sink->capacity) return;
  size_t capacity = 2 * wanted < 128 ? 128 : 2 * wanted;
  char *data = run_take(run, capacity, false);
  run_spend_bytes(run, sink->length);
  if (sink->length > 0) memcpy(data, sink->data, sink->length);
  sink->data = data;
  sink->capacity = capacity;
}

static void mark(run_t *run, sink_t *sink, size_t begin, size_t end) {
  if (sink->num_marks > 0 && sink->marks[sink->num_marks - 1].end == begin) {
    sink->marks[sink->num_marks - 1].end = end;
    return;
  }
  if (sink->num_marks == sink->marks_capacity) {
    uint32_t capacity = sink->marks_capacity == 0 ? MARKS_FIRST : 2 * sink->marks_capacity;
    byte_span_t *marks = run_take_array(run, capacity, sizeof *marks, false);
    if (sink->num_marks > 0) memcpy(marks, sink->marks, sink->num_marks * sizeof *marks);
    sink->marks = marks;
    sink->marks_capacity = capacity;
  }
  sink->marks[sink->num_marks++] = (byte_span_t){begin, end};
}

void sink_put(run_t *run, sink_t *sink, const char *bytes, size_t length, bool request) {
  if (length == 0) return;
  reserve(run, sink, length);
  run_spend_bytes(run, length);
  memcpy(sink->data + sink->length, bytes, length);
  if (request) mark(run, sink, sink->length, sink->length + length);
  sink->length += length;
}

void sink_puts(run_t *run, sink_t *sink, const char *literal) {
  sink_put(run, sink, literal, strlen(literal), false);
}

void sink_put_part(run_t *run, sink_t *sink, const str_t *s, size_t begin, size_t end) {
  uint32_t walk = s->origin == ORIGIN_MIXED && begin > 0 ? mark_at(s, begin) : 0;
  while (begin < end) {
    stretch_t stretch = stretch_at(s, begin, end, &walk);
    sink_put(run, sink, s->bytes + begin, stretch.end - begin, stretch.request);
    begin = stretch.end;
  }
}

void sink_put_str(run_t *run, sink_t *sink, const str_t *s) {
  sink_put_part(run, sink, s, 0, s->length);
}

str_t *sink_str(run_t *run, sink_t *sink) {
  str_t *s = str_wrap(run, sink->data == NULL ? "" : sink->data, sink->length, ORIGIN_TEMPLATE);
  s->sink = sink;
  if (sink->num_marks == 0) return s;
  if (sink->marks[0].begin == 0 && sink->marks[0].end == sink->length) {
    s->origin = ORIGIN_REQUEST;
    return s;
  }
  s->origin = ORIGIN_MIXED;
  s->marks = sink->marks;
  s->num_marks = sink->num_marks;
  return s;
}

str_t *str_concat(run_t *run, const str_t *a, const str_t *b) {
  if (b->length == 0) return str_part(run, a, 0, a->length);
  if (a->length == 0) return str_part(run, b, 0, b->length);
  sink_t *sink = a->sink;
  size_t total = (size_t)a->length + b->length;
  /* `a` is all that the sink holds, so what follows may stand behind it. */
  bool grows = sink != NULL && a->bytes == sink->data && a->length == sink->length;
  if (!grows) {
    sink = sink_new(run);
    if (total < SHARED_FROM) {
      sink->data = run_take(run, total, false);
      sink->capacity = total;
    }
    sink_put_str(run, sink, a);
  }
  sink_put_str(run, sink, b);
  return sink_str(run, sink);
}

uint32_t str_next(const char *bytes, size_t *at) {
  const uint8_t *p = (const uint8_t *)bytes + *at;
  if (p[0] < 0x80) {
    *at += 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    *at += 2;
    return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
  }
  if (p[0] < 0xF0) {
    *at += 3;
    return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
  }
  *at += 4;
  return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
         (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

size_t str_previous(const char *bytes, size_t at) {
  do at--;
  while (((uint8_t)bytes[at] & 0xC0) == 0x80);
  return at;
}
