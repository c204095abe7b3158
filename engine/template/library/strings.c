/* strings.c: work on strings that filters and methods share.
 *
 * The rendering thread only. Parts of a string keep the origin of their bytes; text that is derived
 * from a string counts as text of the request if any part of the string was.
 */
#include "engine/base/unicode_case.h"
#include "engine/base/utf8.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <string.h>

static value_t like(const value_t *in, const str_t *str) {
  value_t value = value_string(str);
  value.markup = in->markup;
  return value;
}

static bool strips(const str_t *chars, const char *bytes, size_t begin, size_t end) {
  if (chars == NULL) {
    size_t at = begin;
    return (char_class(str_next(bytes, &at)) & CHAR_SPACE) != 0;
  }
  return end > begin && memmem(chars->bytes, chars->length, bytes + begin, end - begin) != NULL;
}

value_t string_strip(run_t *run, const value_t *in, const str_t *chars, bool left, bool right) {
  const str_t *str = in->string;
  size_t begin = 0, end = str->length;
  while (left && begin < end) {
    size_t next = begin;
    (void)str_next(str->bytes, &next);
    if (!strips(chars, str->bytes, begin, next)) break;
    begin = next;
    run_spend(run, 1 + (chars == NULL ? 0 : chars->length / 64));
  }
  while (right && end > begin) {
    size_t previous = str_previous(str->bytes, end);
    if (!strips(chars, str->bytes, previous, end)) break;
    end = previous;
    run_spend(run, 1 + (chars == NULL ? 0 : chars->length / 64));
  }
  return like(in, str_part(run, str, begin, end));
}

/* Whether the capital sigma at `at` ends a word: something cased before it, nothing cased after. */
static bool final_sigma(run_t *run, const str_t *str, size_t at, size_t behind) {
  bool before = false;
  for (size_t i = at; i > 0;) {
    size_t next = i = str_previous(str->bytes, i);
    unsigned bits = char_class(str_next(str->bytes, &next));
    run_spend(run, 1);
    if (bits & CHAR_IGNORABLE) continue;
    before = (bits & CHAR_CASED) != 0;
    break;
  }
  while (before && behind < str->length) {
    unsigned bits = char_class(str_next(str->bytes, &behind));
    run_spend(run, 1);
    if (bits & CHAR_IGNORABLE) continue;
    return (bits & CHAR_CASED) == 0;
  }
  return before;
}

/* Appends the character at begin .. end - 1 in another case. */
static void put_case(run_t *run, sink_t *sink, const str_t *str, size_t begin, size_t end,
                     case_kind_t kind, bool request) {
  uint32_t codes[3];
  char out[12];
  size_t used = 0, at = begin;
  uint32_t code = str_next(str->bytes, &at);
  unsigned count = char_case(code, kind, codes);
  if (code == 0x3A3 && kind == CASE_LOWER) {
    codes[0] = final_sigma(run, str, begin, end) ? 0x3C2 : 0x3C3;
    count = 1;
  }
  for (unsigned i = 0; i < count; i++) used += (size_t)utf8_write(out + used, codes[i]);
  sink_put(run, sink, out, used, request);
}

static bool is_ascii(const str_t *str) {
  return str_chars(str) == str->length;
}

/* ASCII stays byte for byte in place, and so do the marks. */
static str_t *ascii_case(run_t *run, const str_t *str, case_kind_t kind) {
  sink_t *sink = sink_new(run);
  sink_put_str(run, sink, str);
  for (size_t i = 0; i < sink->length; i++) {
    char c = sink->data[i];
    if (kind == CASE_UPPER && c >= 'a' && c <= 'z') sink->data[i] = (char)(c - 32);
    if (kind == CASE_LOWER && c >= 'A' && c <= 'Z') sink->data[i] = (char)(c + 32);
  }
  run_spend(run, str->length / 16);
  return sink_str(run, sink);
}

static bool splits_words(uint32_t code) {
  return (code < 0x80 && code != 0 && strchr("-({[<", (int)code) != NULL) ||
         (char_class(code) & CHAR_SPACE);
}

static str_t *convert(run_t *run, const str_t *str, int kind) {
  bool request = str->origin != ORIGIN_TEMPLATE, inside = false;
  sink_t *sink = sink_new(run);
  if (kind <= CASE_TITLE && is_ascii(str)) return ascii_case(run, str, (case_kind_t)kind);
  for (size_t at = 0; at < str->length;) {
    size_t begin = at;
    uint32_t code = str_next(str->bytes, &at);
    run_spend(run, 1);
    case_kind_t how = (case_kind_t)kind;
    if (kind == KIND_METHOD_TITLE) {
      how = inside ? CASE_LOWER : CASE_TITLE;
      inside = (char_class(code) & CHAR_CASED) != 0;
    } else if (kind == KIND_CAPITALIZE) {
      how = inside ? CASE_LOWER : CASE_TITLE;
      inside = true;
    }
    put_case(run, sink, str, begin, at, how, request);
  }
  return sink_str(run, sink);
}

/* The filter: the first character of each word upper, what follows lower by itself. */
static str_t *title_words(run_t *run, const str_t *str) {
  sink_t *sink = sink_new(run);
  for (size_t at = 0; at < str->length;) {
    size_t first = at, rest, end;
    bool separates = splits_words(str_next(str->bytes, &at));
    rest = end = at;
    while (end < str->length) {
      size_t next = end;
      if (splits_words(str_next(str->bytes, &next)) != separates) break;
      end = next;
    }
    run_spend(run, 1 + (end - first) / 8);
    put_case(run, sink, str, first, rest, CASE_UPPER, str->origin != ORIGIN_TEMPLATE);
    sink_put_str(run, sink, convert(run, str_part(run, str, rest, end), CASE_LOWER));
    at = end;
  }
  return sink_str(run, sink);
}

value_t string_case(run_t *run, const value_t *in, int kind) {
  if (kind == KIND_FILTER_TITLE) return like(in, title_words(run, in->string));
  return like(in, convert(run, in->string, kind));
}

value_t string_replace(run_t *run, const value_t *in, const str_t *from, const str_t *to,
                       int64_t count) {
  const str_t *str = in->string;
  sink_t *sink = sink_new(run);
  size_t at = 0;
  if (from->length == 0) { /* between all characters */
    while (count != 0 && at <= str->length) {
      size_t begin = at;
      run_spend(run, 1);
      sink_put_str(run, sink, to);
      count -= count > 0;
      if (at == str->length) return like(in, sink_str(run, sink));
      (void)str_next(str->bytes, &at);
      sink_put_part(run, sink, str, begin, at);
    }
    sink_put_part(run, sink, str, at, str->length);
    return like(in, sink_str(run, sink));
  }
  while (count != 0) {
    int64_t hit = str_find(run, str, at, str->length, from);
    if (hit < 0) break;
    run_spend(run, 1);
    sink_put_part(run, sink, str, at, (size_t)hit);
    sink_put_str(run, sink, to);
    at = (size_t)hit + from->length;
    count -= count > 0;
  }
  if (at == 0) return *in;
  sink_put_part(run, sink, str, at, str->length);
  return like(in, sink_str(run, sink));
}

/* Python's line boundaries for str.splitlines. */
static bool ends_line(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

value_list_t *string_lines(run_t *run, const str_t *str, bool keep_ends) {
  value_list_t *list = list_new(run, 0);
  size_t line = 0;
  for (size_t at = 0; at < str->length;) {
    size_t begin = at;
    uint32_t code = str_next(str->bytes, &at);
    if (!ends_line(code)) continue;
    if (code == '\r' && at < str->length && str->bytes[at] == '\n') at++;
    list_push(run, list, value_string(str_part(run, str, line, keep_ends ? at : begin)));
    run_spend(run, 1);
    line = at;
  }
  run_spend(run, str->length / 32);
  if (line < str->length) list_push(run, list, value_string(str_part(run, str, line, str->length)));
  return list;
}

const str_t *string_escape(run_t *run, const str_t *str) {
  sink_t *sink = sink_new(run);
  size_t plain = 0;
  for (size_t at = 0; at < str->length; at++) {
    const char *entity = NULL;
    switch (str->bytes[at]) {
    case '&': entity = "&amp;"; break;
    case '<': entity = "&lt;"; break;
    case '>': entity = "&gt;"; break;
    case '\'': entity = "&#39;"; break;
    case '"': entity = "&#34;"; break;
    default: continue;
    }
    sink_put_part(run, sink, str, plain, at);
    sink_put(run, sink, entity, strlen(entity), str->origin != ORIGIN_TEMPLATE);
    plain = at + 1;
  }
  run_spend(run, str->length / 32);
  sink_put_part(run, sink, str, plain, str->length);
  return sink_str(run, sink);
}

const str_t *string_pad(run_t *run, const str_t *str, size_t left, size_t right,
                        const str_t *fill) {
  sink_t *sink = sink_new(run);
  sink_put_str(run, sink, str_repeat(run, fill, (int64_t)left));
  sink_put_str(run, sink, str);
  sink_put_str(run, sink, str_repeat(run, fill, (int64_t)right));
  return sink_str(run, sink);
}
