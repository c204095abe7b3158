/* methods.c: the methods of strings.
 *
 * The rendering thread only. Indices and widths count code points, as in Python.
 */
#include "engine/template/library/methods.h"

#include "engine/base/unicode_case.h"
#include "engine/base/util.h"
#include "engine/template/run/eval.h"

#include <string.h>

static value_t like(const value_t *in, const str_t *str) {
  value_t value = value_string(str);
  value.markup = in->markup;
  return value;
}

static void bind(run_t *run, const arguments_t *args, const char *method, uint32_t required,
                 uint32_t most, value_t *out) {
  if (args->num_named > 0) run_fail(run, "%s takes no named arguments here", method);
  if (args->num_positional < required || args->num_positional > most)
    run_fail(run, "%s takes %u to %u arguments", method, required, most);
  for (uint32_t i = 0; i < most; i++)
    out[i] = i < args->num_positional ? args->positional[i] : value_missing();
}

static const str_t *text_of(run_t *run, const value_t *value, const char *method) {
  return argument_string(run, value, method);
}

/* The part of `str` that start and end (code points, like slice bounds) leave; false: beyond. */
static bool window(run_t *run, const str_t *str, const value_t *start, const value_t *end,
                   size_t *from, size_t *to) {
  int64_t chars = str_chars(str), bounds[2] = {0, chars};
  const value_t *given_bounds[2] = {start, end};
  for (int i = 0; i < 2; i++) {
    int64_t n;
    if (value_is_absent(given_bounds[i])) continue;
    if (!value_integer(given_bounds[i], &n)) run_fail(run, "an index must be an integer");
    if (n < 0) n = MAX(0, n + chars);
    bounds[i] = n;
  }
  if (bounds[0] > chars) return false;
  if (bounds[1] > chars) bounds[1] = chars;
  if (bounds[0] > bounds[1]) return false;
  *from = str_offset(str, (uint32_t)bounds[0]);
  *to = str_offset(str, (uint32_t)bounds[1]);
  run_spend_bytes(run, *to);
  return true;
}

/* ---- split and friends ---- */

static void push_part(run_t *run, value_list_t *list, const value_t *in, size_t begin, size_t end) {
  run_spend(run, 1);
  list_push(run, list, like(in, str_part(run, in->string, begin, end)));
}

static void split_blanks(run_t *run, const value_t *in, int64_t most, value_list_t *list) {
  const str_t *str = in->string;
  size_t at = 0;
  for (;;) {
    size_t begin = at, next = at;
    while (begin < str->length) { /* blanks before the word */
      next = begin;
      if (!(char_class(str_next(str->bytes, &next)) & CHAR_SPACE)) break;
      begin = next;
    }
    if (begin >= str->length) return;
    if (most >= 0 && list->count >= (uint64_t)most) {
      push_part(run, list, in, begin, str->length);
      return;
    }
    size_t end = begin;
    while (end < str->length) {
      next = end;
      if (char_class(str_next(str->bytes, &next)) & CHAR_SPACE) break;
      end = next;
    }
    push_part(run, list, in, begin, end);
    at = end;
  }
}

static void rsplit_blanks(run_t *run, const value_t *in, int64_t most, value_list_t *list) {
  const str_t *str = in->string;
  size_t at = str->length;
  for (;;) {
    size_t end = at;
    while (end > 0) {
      size_t previous = str_previous(str->bytes, end), next = previous;
      if (!(char_class(str_next(str->bytes, &next)) & CHAR_SPACE)) break;
      end = previous;
    }
    if (end == 0) return;
    if (most >= 0 && list->count >= (uint64_t)most) {
      push_part(run, list, in, 0, end);
      return;
    }
    size_t begin = end;
    while (begin > 0) {
      size_t previous = str_previous(str->bytes, begin), next = previous;
      if (char_class(str_next(str->bytes, &next)) & CHAR_SPACE) break;
      begin = previous;
    }
    push_part(run, list, in, begin, end);
    at = begin;
  }
}

static void reverse(value_list_t *list) {
  for (uint32_t i = 0; i < list->count / 2; i++) {
    value_t swapped = list->items[i];
    list->items[i] = list->items[list->count - 1 - i];
    list->items[list->count - 1 - i] = swapped;
  }
}

static void split_at(run_t *run, const value_t *in, const str_t *separator, int64_t most,
                     bool from_right, value_list_t *list) {
  const str_t *str = in->string;
  size_t begin = 0, end = str->length;
  if (separator->length == 0) run_fail(run, "split: the separator is empty");
  while (most < 0 || list->count < (uint64_t)most) {
    int64_t hit = from_right ? str_rfind(run, str, 0, end, separator)
                             : str_find(run, str, begin, str->length, separator);
    if (hit < 0) break;
    if (from_right) {
      push_part(run, list, in, (size_t)hit + separator->length, end);
      end = (size_t)hit;
    } else {
      push_part(run, list, in, begin, (size_t)hit);
      begin = (size_t)hit + separator->length;
    }
  }
  push_part(run, list, in, begin, end);
}

static value_t call_split(run_t *run, const value_t *in, const arguments_t *args, bool from_right) {
  static const char *const names[] = {"sep", "maxsplit", NULL};
  value_t values[2];
  arguments_bind(run, args, "split", names, values);
  int64_t most = argument_integer(run, &values[1], "maxsplit", -1);
  value_list_t *list = list_new(run, 0);
  if (!value_is_absent(&values[0]))
    split_at(run, in, text_of(run, &values[0], "the separator of split"), most, from_right, list);
  else if (from_right)
    rsplit_blanks(run, in, most, list);
  else
    split_blanks(run, in, most, list);
  if (from_right) reverse(list);
  return VALUE_OF(VALUE_LIST, list, list);
}

static value_t call_partition(run_t *run, const value_t *in, const arguments_t *args, bool right) {
  value_t values[1];
  const str_t *str = in->string;
  bind(run, args, "partition", 1, 1, values);
  const str_t *separator = text_of(run, &values[0], "the separator of partition");
  if (separator->length == 0) run_fail(run, "partition: the separator is empty");
  int64_t hit = right ? str_rfind(run, str, 0, str->length, separator)
                      : str_find(run, str, 0, str->length, separator);
  size_t begin = hit < 0 ? (right ? 0 : str->length) : (size_t)hit;
  size_t end = hit < 0 ? begin : begin + separator->length;
  value_list_t *list = list_new(run, 3);
  push_part(run, list, in, 0, begin);
  push_part(run, list, in, begin, end);
  push_part(run, list, in, end, str->length);
  return VALUE_OF(VALUE_TUPLE, list, list);
}

/* ---- questions ---- */

static value_t call_find(run_t *run, const value_t *in, const arguments_t *args, bool right,
                         bool must) {
  value_t values[3];
  size_t from, to;
  const str_t *str = in->string;
  bind(run, args, "find", 1, 3, values);
  const str_t *part = text_of(run, &values[0], "the argument of find");
  int64_t hit = -1;
  if (window(run, str, &values[1], &values[2], &from, &to))
    hit = right ? str_rfind(run, str, from, to, part) : str_find(run, str, from, to, part);
  if (hit < 0 && must) run_fail(run, "index: the substring is not there");
  if (hit < 0) return value_int(-1);
  str_t before = {.bytes = str->bytes, .length = (uint32_t)hit, .num_chars = STR_UNCOUNTED};
  return value_int(str_chars(&before));
}

static value_t call_count(run_t *run, const value_t *in, const arguments_t *args) {
  value_t values[3];
  size_t from, to;
  int64_t count = 0;
  bind(run, args, "count", 1, 3, values);
  const str_t *part = text_of(run, &values[0], "the argument of count");
  if (!window(run, in->string, &values[1], &values[2], &from, &to)) return value_int(0);
  if (part->length == 0) {
    str_t inside = {.bytes = in->string->bytes + from,
                    .length = (uint32_t)(to - from),
                    .num_chars = STR_UNCOUNTED};
    return value_int((int64_t)str_chars(&inside) + 1);
  }
  for (int64_t hit; (hit = str_find(run, in->string, from, to, part)) >= 0; count++) {
    run_spend(run, 1);
    from = (size_t)hit + part->length;
  }
  return value_int(count);
}

static bool begins(const str_t *str, size_t from, size_t to, const str_t *part, bool at_end) {
  if (to - from < part->length) return false;
  const char *at = str->bytes + (at_end ? to - part->length : from);
  return part->length == 0 || memcmp(at, part->bytes, part->length) == 0;
}

static value_t call_begins(run_t *run, const value_t *in, const arguments_t *args, bool at_end) {
  value_t values[3];
  size_t from, to;
  bind(run, args, at_end ? "endswith" : "startswith", 1, 3, values);
  bool inside = window(run, in->string, &values[1], &values[2], &from, &to);
  if (values[0].type != VALUE_TUPLE) {
    const str_t *part = text_of(run, &values[0], "the argument of startswith or endswith");
    run_spend_bytes(run, part->length);
    return value_bool(inside && begins(in->string, from, to, part, at_end));
  }
  for (uint32_t i = 0; i < values[0].list->count; i++) {
    const str_t *part = text_of(run, &values[0].list->items[i], "startswith or endswith");
    run_spend_bytes(run, part->length);
    if (inside && begins(in->string, from, to, part, at_end)) return value_bool(true);
  }
  return value_bool(false);
}

static value_t call_is(run_t *run, const value_t *in, const arguments_t *args, unsigned bits,
                       bool ascii) {
  const str_t *str = in->string;
  bind(run, args, "a test of characters", 0, 0, NULL);
  run_spend(run, str->length);
  for (size_t at = 0; at < str->length;) {
    uint32_t code = str_next(str->bytes, &at);
    if (ascii ? code >= 0x80 : !(char_class(code) & bits)) return value_bool(false);
  }
  return value_bool(ascii || str->length > 0);
}

/* islower and isupper: something cased, and nothing of the other case. */
bool string_is_cased(run_t *run, const str_t *str, bool upper) {
  bool any = false;
  run_spend(run, str->length);
  for (size_t at = 0; at < str->length;) {
    unsigned bits = char_class(str_next(str->bytes, &at));
    if (bits & ((upper ? CHAR_LOWER : CHAR_UPPER) | CHAR_TITLE)) return false;
    any = any || (bits & (upper ? CHAR_UPPER : CHAR_LOWER));
  }
  return any;
}

/* ---- others ---- */

static value_t call_strip(run_t *run, const value_t *in, const arguments_t *args, int sides) {
  value_t values[1];
  bind(run, args, "strip", 0, 1, values);
  const str_t *chars =
      !value_is_absent(&values[0]) ? text_of(run, &values[0], "the characters of strip") : NULL;
  return string_strip(run, in, chars, sides != 1, sides != 0);
}

static value_t call_replace(run_t *run, const value_t *in, const arguments_t *args) {
  value_t values[3];
  bind(run, args, "replace", 2, 3, values);
  const str_t *from = text_of(run, &values[0], "the first argument of replace");
  const str_t *to = text_of(run, &values[1], "the second argument of replace");
  if (in->markup && !values[1].markup) to = string_escape(run, to);
  return string_replace(run, in, from, to, argument_integer(run, &values[2], "the count", -1));
}

static value_t call_join(run_t *run, const value_t *in, const arguments_t *args) {
  value_t values[1];
  bind(run, args, "join", 1, 1, values);
  const value_list_t *list = value_list(run, &values[0]);
  sink_t *sink = sink_new(run);
  for (uint32_t i = 0; i < list->count; i++) {
    const value_t *item = &list->items[i];
    const str_t *text = text_of(run, item, "an item of join");
    if (in->markup && !item->markup) text = string_escape(run, text);
    if (i > 0) sink_put_str(run, sink, in->string);
    sink_put_str(run, sink, text);
  }
  return like(in, sink_str(run, sink));
}

static value_t call_pad(run_t *run, const value_t *in, const arguments_t *args, int number) {
  value_t values[2];
  bind(run, args, "a method that pads", 1, 2, values);
  int64_t width = argument_integer(run, &values[0], "a width", 0), chars = str_chars(in->string);
  const str_t *fill =
      !value_is_absent(&values[1]) ? text_of(run, &values[1], "the fill") : str_text(run, " ");
  if (str_chars(fill) != 1) run_fail(run, "the fill must be one character");
  if (width <= chars) return *in;
  if (width > STR_BYTES_MAX / 4) run_fail(run, "a width is too large");
  size_t pad = (size_t)(width - chars), left = 0;
  if (number == METHOD_CENTER) left = pad / 2 + (pad & (size_t)width & 1);
  if (number == METHOD_RJUST) left = pad;
  return like(in, string_pad(run, in->string, left, pad - left, fill));
}

static value_t call_zfill(run_t *run, const value_t *in, const arguments_t *args) {
  value_t values[1];
  const str_t *str = in->string;
  bind(run, args, "zfill", 1, 1, values);
  int64_t width = argument_integer(run, &values[0], "a width", 0), chars = str_chars(str);
  if (width <= chars) return *in;
  if (width > STR_BYTES_MAX / 4) run_fail(run, "a width is too large");
  size_t sign = str->length > 0 && (str->bytes[0] == '+' || str->bytes[0] == '-');
  sink_t *sink = sink_new(run);
  sink_put_part(run, sink, str, 0, sign);
  sink_put_str(run, sink, str_repeat(run, str_text(run, "0"), width - chars));
  sink_put_part(run, sink, str, sign, str->length);
  return like(in, sink_str(run, sink));
}

static value_t call_remove(run_t *run, const value_t *in, const arguments_t *args, bool at_end) {
  value_t values[1];
  const str_t *str = in->string;
  bind(run, args, "removeprefix or removesuffix", 1, 1, values);
  const str_t *part = text_of(run, &values[0], "the affix");
  if (!begins(str, 0, str->length, part, at_end)) return *in;
  if (at_end) return like(in, str_part(run, str, 0, str->length - part->length));
  return like(in, str_part(run, str, part->length, str->length));
}

static value_t call_lines(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"keepends", NULL};
  value_t values[1];
  arguments_bind(run, args, "splitlines", names, values);
  value_list_t *list = string_lines(run, in->string, value_truth(&values[0]));
  for (uint32_t i = 0; i < list->count; i++) list->items[i].markup = in->markup;
  return VALUE_OF(VALUE_LIST, list, list);
}

static value_t call_case(run_t *run, const value_t *in, const arguments_t *args, int kind) {
  bind(run, args, "a change of case", 0, 0, NULL);
  return string_case(run, in, kind);
}

value_t method_of_string(run_t *run, const value_t *in, int number, const arguments_t *args) {
  switch (number) {
  case METHOD_SPLIT:
  case METHOD_RSPLIT: return call_split(run, in, args, number == METHOD_RSPLIT);
  case METHOD_PARTITION:
  case METHOD_RPARTITION: return call_partition(run, in, args, number == METHOD_RPARTITION);
  case METHOD_STRIP: return call_strip(run, in, args, 2);
  case METHOD_LSTRIP: return call_strip(run, in, args, 0);
  case METHOD_RSTRIP: return call_strip(run, in, args, 1);
  case METHOD_STARTSWITH: return call_begins(run, in, args, false);
  case METHOD_ENDSWITH: return call_begins(run, in, args, true);
  case METHOD_REPLACE: return call_replace(run, in, args);
  case METHOD_JOIN: return call_join(run, in, args);
  case METHOD_FIND: return call_find(run, in, args, false, false);
  case METHOD_RFIND: return call_find(run, in, args, true, false);
  case METHOD_INDEX: return call_find(run, in, args, false, true);
  case METHOD_RINDEX: return call_find(run, in, args, true, true);
  case METHOD_COUNT: return call_count(run, in, args);
  case METHOD_UPPER: return call_case(run, in, args, CASE_UPPER);
  case METHOD_LOWER: return call_case(run, in, args, CASE_LOWER);
  case METHOD_TITLE: return call_case(run, in, args, KIND_METHOD_TITLE);
  case METHOD_CAPITALIZE: return call_case(run, in, args, KIND_CAPITALIZE);
  case METHOD_FORMAT: return format_braces(run, in, args);
  case METHOD_SPLITLINES: return call_lines(run, in, args);
  case METHOD_REMOVEPREFIX: return call_remove(run, in, args, false);
  case METHOD_REMOVESUFFIX: return call_remove(run, in, args, true);
  case METHOD_CENTER:
  case METHOD_LJUST:
  case METHOD_RJUST: return call_pad(run, in, args, number);
  case METHOD_ZFILL: return call_zfill(run, in, args);
  case METHOD_ISDIGIT: return call_is(run, in, args, CHAR_DIGIT, false);
  case METHOD_ISALPHA: return call_is(run, in, args, CHAR_ALPHA, false);
  case METHOD_ISALNUM: return call_is(run, in, args, CHAR_ALPHA | CHAR_NUMERIC | CHAR_DIGIT, false);
  case METHOD_ISDECIMAL: return call_is(run, in, args, CHAR_DECIMAL, false);
  case METHOD_ISNUMERIC: return call_is(run, in, args, CHAR_NUMERIC, false);
  case METHOD_ISSPACE: return call_is(run, in, args, CHAR_SPACE, false);
  case METHOD_ISASCII: return call_is(run, in, args, 0, true);
  default:
    bind(run, args, "islower or isupper", 0, 0, NULL);
    return value_bool(string_is_cased(run, in->string, number == METHOD_ISUPPER));
  }
}
