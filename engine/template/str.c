/* str.c: strings with origin, and sinks.
 *
 * The rendering thread only; every byte that is copied or searched costs fuel.
 */
#include "engine/template/str.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/template/run/run.h"

#include <string.h>

enum { SHARED_FROM = 128, MARKS_FIRST = 8, TEXT_BYTES_MAX = 64 << 20 };

str_t *str_wrap(run_t *run, const char *bytes, size_t length, str_origin_t origin) {
  if (length > STR_BYTES_MAX) run_fail(run, "a string is longer than %d bytes", STR_BYTES_MAX);
  str_t *str = run_take(run, sizeof *str, false);
  *str = (str_t){.bytes = bytes,
                 .length = (uint32_t)length,
                 .num_chars = STR_UNCOUNTED,
                 .origin = (uint8_t)origin};
  return str;
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

/* Returns the part of one origin that begins at `at`; `mark` advances over the list. */
static stretch_t stretch_at(const str_t *str, size_t at, size_t end, uint32_t *mark) {
  if (str->origin != ORIGIN_MIXED) return (stretch_t){at, end, str->origin == ORIGIN_REQUEST};
  size_t base = str->mark_base;
  while (*mark < str->num_marks && str->marks[*mark].end <= base + at) ++*mark;
  if (*mark == str->num_marks) return (stretch_t){at, end, false};
  size_t begin = str->marks[*mark].begin, stop = str->marks[*mark].end;
  if (begin > base + at) {
    size_t until = begin - base;
    return (stretch_t){at, MIN(until, end), false};
  }
  size_t until = stop - base;
  return (stretch_t){at, MIN(until, end), true};
}

/* Returns the first mark that ends after byte `at` of the string. */
static uint32_t mark_at(const str_t *str, size_t at) {
  uint32_t low = 0, high = str->num_marks;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (str->marks[middle].end <= str->mark_base + at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

str_t *str_part(run_t *run, const str_t *str, size_t begin, size_t end) {
  if (begin == 0 && end == str->length) {
    str_t *same = run_take(run, sizeof *same, false);
    *same = *str;
    return same;
  }
  str_t *part = str_wrap(run, str->bytes + begin, end - begin, (str_origin_t)str->origin);
  if (str->num_chars == str->length) part->num_chars = part->length;
  if (str->origin != ORIGIN_MIXED) return part;
  uint32_t low = mark_at(str, begin), mark = low;
  stretch_t first = stretch_at(str, begin, end, &mark);
  if (first.end == end || begin == end) {
    part->origin = first.request ? ORIGIN_REQUEST : ORIGIN_TEMPLATE;
    return part;
  }
  part->marks = str->marks + low;
  part->num_marks = str->num_marks - low;
  part->mark_base = str->mark_base + (uint32_t)begin;
  return part;
}

uint32_t str_chars(const str_t *str) {
  if (str->num_chars != STR_UNCOUNTED) return str->num_chars;
  uint32_t count = (uint32_t)utf8_count(str->bytes, str->length);
  /* A cache, so the cast is allowed: no str_t that is counted is a constant object. */
  ((str_t *)(uintptr_t)str)->num_chars = count;
  return count;
}

size_t str_offset(const str_t *str, uint32_t index) {
  uint32_t chars = str_chars(str);
  if (chars == str->length || index == 0) return index;
  if (index >= chars) return str->length;
  size_t at = 0;
  while (index > 0) {
    at++;
    while (at < str->length && utf8_continues((uint8_t)str->bytes[at])) at++;
    index--;
  }
  return at;
}

bool str_equal(const str_t *left, const str_t *right) {
  return left->length == right->length &&
         (left->length == 0 || memcmp(left->bytes, right->bytes, left->length) == 0);
}

bool str_is(const str_t *str, const char *literal) {
  return str->length == strlen(literal) && memcmp(str->bytes, literal, str->length) == 0;
}

/* Bytes of UTF-8 have the same order as code points. */
int str_compare(const str_t *left, const str_t *right) {
  uint32_t shared = MIN(left->length, right->length);
  int order = shared == 0 ? 0 : memcmp(left->bytes, right->bytes, shared);
  if (order != 0) return order;
  return left->length < right->length ? -1 : left->length > right->length;
}

int64_t str_find(run_t *run, const str_t *str, size_t from, size_t end, const str_t *part) {
  if (end < from || end - from < part->length) return -1;
  if (part->length == 0) return (int64_t)from;
  const char *hit = memmem(str->bytes + from, end - from, part->bytes, part->length);
  size_t walked = hit == NULL ? end - from : (size_t)(hit - str->bytes) - from;
  run_spend_bytes(run, walked + part->length);
  return hit == NULL ? -1 : (int64_t)(hit - str->bytes);
}

int64_t str_rfind(run_t *run, const str_t *str, size_t from, size_t end, const str_t *part) {
  if (end < from || end - from < part->length) return -1;
  if (part->length == 0) return (int64_t)end;
  const char last = part->bytes[part->length - 1];
  size_t stop = end; /* the match would end here */
  while (stop >= from + part->length) {
    const char *hit = memrchr(str->bytes + from, last, stop - from);
    if (hit == NULL) break;
    run_spend_bytes(run, (size_t)(str->bytes + stop - hit) + part->length);
    run_spend(run, 1);
    stop = (size_t)(hit - str->bytes) + 1;
    if (stop < from + part->length) break;
    if (memcmp(str->bytes + stop - part->length, part->bytes, part->length) == 0)
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
  size_t wanted = sink->length + more, twice = 2 * wanted;
  if (wanted > TEXT_BYTES_MAX) run_fail(run, "a text is longer than %d bytes", TEXT_BYTES_MAX);
  if (wanted <= sink->capacity) return;
  run_spend_bytes(run, sink->length);
  sink->data =
      run_grow(run, sink->data, sink->length, (uint32_t)MAX(128, twice), 1, &sink->capacity);
}

static void mark(run_t *run, sink_t *sink, size_t begin, size_t end) {
  if (sink->num_marks > 0 && sink->marks[sink->num_marks - 1].end == begin) {
    sink->marks[sink->num_marks - 1].end = end;
    return;
  }
  if (sink->num_marks == sink->marks_capacity) {
    uint32_t need = MAX(MARKS_FIRST, sink->num_marks + 1);
    sink->marks = run_grow(run, sink->marks, sink->num_marks, need, sizeof *sink->marks,
                           &sink->marks_capacity);
  }
  sink->marks[sink->num_marks++] = (byte_span_t){begin, end};
}

void sink_put(run_t *run, sink_t *sink, const char *bytes, size_t length, bool request) {
  if (length == 0) return;
  reserve(run, sink, length);
  run_spend_bytes(run, length);
  memcpy(sink->data + sink->length, bytes, length);
  if (request) mark(run, sink, sink->length, sink->length + length);
  sink->length += (uint32_t)length;
}

void sink_puts(run_t *run, sink_t *sink, const char *literal) {
  sink_put(run, sink, literal, strlen(literal), false);
}

void sink_put_part(run_t *run, sink_t *sink, const str_t *str, size_t begin, size_t end) {
  uint32_t walk = str->origin == ORIGIN_MIXED && begin > 0 ? mark_at(str, begin) : 0;
  while (begin < end) {
    stretch_t stretch = stretch_at(str, begin, end, &walk);
    sink_put(run, sink, str->bytes + begin, stretch.end - begin, stretch.request);
    begin = stretch.end;
  }
}

void sink_put_str(run_t *run, sink_t *sink, const str_t *str) {
  sink_put_part(run, sink, str, 0, str->length);
}

str_t *sink_str(run_t *run, sink_t *sink) {
  str_t *str = str_wrap(run, sink->data == NULL ? "" : sink->data, sink->length, ORIGIN_TEMPLATE);
  str->sink = sink;
  if (sink->num_marks == 0) return str;
  if (sink->marks[0].begin == 0 && sink->marks[0].end == sink->length) {
    str->origin = ORIGIN_REQUEST;
    return str;
  }
  str->origin = ORIGIN_MIXED;
  str->marks = sink->marks;
  str->num_marks = sink->num_marks;
  return str;
}

str_t *str_concat(run_t *run, const str_t *left, const str_t *right) {
  if (right->length == 0) return str_part(run, left, 0, left->length);
  if (left->length == 0) return str_part(run, right, 0, right->length);
  sink_t *sink = left->sink;
  size_t total = (size_t)left->length + right->length;
  /* `left` is the whole content of the sink, so the rest can be appended to it. */
  bool grows = sink != NULL && left->bytes == sink->data && left->length == sink->length;
  if (!grows) {
    sink = sink_new(run);
    if (total < SHARED_FROM) {
      sink->data = run_take(run, total, false);
      sink->capacity = (uint32_t)total;
    }
    sink_put_str(run, sink, left);
  }
  sink_put_str(run, sink, right);
  return sink_str(run, sink);
}
