/* filters_text.c: filters over strings and numbers.
 *
 * The rendering thread only. Most take any value and convert it with str().
 */
#include "engine/base/unicode_case.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* soft_str: a string as it is, anything else printed. */
static value_t soft(run_t *run, const value_t *in) {
  return in->type == VALUE_STRING ? *in : value_string(value_str(run, in));
}

static value_t filter_string(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "string");
  return soft(run, in);
}

static value_t change_case(run_t *run, const value_t *in, const arguments_t *args, int kind) {
  arguments_refuse(run, args, "a filter of case");
  value_t value = soft(run, in);
  return string_case(run, &value, kind);
}

static value_t filter_upper(run_t *run, const value_t *in, const arguments_t *args) {
  return change_case(run, in, args, CASE_UPPER);
}
static value_t filter_lower(run_t *run, const value_t *in, const arguments_t *args) {
  return change_case(run, in, args, CASE_LOWER);
}
static value_t filter_capitalize(run_t *run, const value_t *in, const arguments_t *args) {
  return change_case(run, in, args, KIND_CAPITALIZE);
}
static value_t filter_title(run_t *run, const value_t *in, const arguments_t *args) {
  return change_case(run, in, args, KIND_FILTER_TITLE);
}

static value_t filter_trim(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"chars", NULL};
  value_t given[1], value = soft(run, in);
  arguments_bind(run, args, "trim", names, given);
  const str_t *chars = value_is_absent(&given[0]) ? NULL : argument_string(run, &given[0], "trim");
  return string_strip(run, &value, chars, true, true);
}

static value_t filter_replace(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"old", "new", "count", NULL};
  value_t given[3];
  arguments_bind(run, args, "replace", names, given);
  if (value_is_missing(&given[0]) || value_is_missing(&given[1]))
    run_fail(run, "replace needs two strings");
  if (given[2].type == VALUE_NONE) given[2] = value_missing();
  value_t value = value_string(value_str(run, in));
  return string_replace(run, &value, value_str(run, &given[0]), value_str(run, &given[1]),
                        argument_integer(run, &given[2], "the count", -1));
}

static value_t filter_safe(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "safe");
  value_t value = value_string(value_str(run, in));
  value.markup = true;
  return value;
}

static value_t escape(run_t *run, const value_t *in, bool force) {
  if (in->type == VALUE_STRING && in->markup && !force) return *in;
  value_t value = value_string(string_escape(run, value_str(run, in)));
  value.markup = true;
  return value;
}

static value_t filter_escape(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "escape");
  return escape(run, in, false);
}

static value_t filter_forceescape(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "forceescape");
  return escape(run, in, true);
}

static value_t filter_format(run_t *run, const value_t *in, const arguments_t *args) {
  value_t value = soft(run, in), with;
  if (args->num_named > 0 && args->num_positional > 0)
    run_fail(run, "format: positional and named arguments are mixed");
  if (args->num_named > 0) {
    dict_t *dict = dict_new(run, args->num_named);
    for (uint32_t i = 0; i < args->num_named; i++)
      dict_append(run, dict, value_string(args->names[i]), args->named[i]);
    with = VALUE_OF(VALUE_DICT, dict, dict);
  } else {
    value_list_t *list = list_new(run, args->num_positional);
    for (uint32_t i = 0; i < args->num_positional; i++) list_push(run, list, args->positional[i]);
    with = VALUE_OF(VALUE_TUPLE, list, list);
  }
  return format_percent(run, &value, &with);
}

static value_t filter_center(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"width", NULL};
  value_t given[1], value = soft(run, in);
  arguments_bind(run, args, "center", names, given);
  int64_t width = argument_integer(run, &given[0], "the width", 80),
          chars = str_chars(value.string);
  if (width <= chars) return value;
  if (width > STR_BYTES_MAX / 4) run_fail(run, "a width is too large");
  size_t pad = (size_t)(width - chars), left = pad / 2 + (pad & (size_t)width & 1);
  value_t out = value_string(string_pad(run, value.string, left, pad - left, str_text(run, " ")));
  out.markup = value.markup;
  return out;
}

/* The text before a line: `width` blanks, or a string. */
static const str_t *indention(run_t *run, const value_t *in, const value_t *width) {
  if (width->type != VALUE_STRING)
    return str_repeat(run, str_text(run, " "), argument_integer(run, width, "the width", 4));
  return in->markup && !width->markup ? string_escape(run, width->string) : width->string;
}

static value_t filter_indent(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"width", "first", "blank", NULL};
  value_t given[3];
  arguments_bind(run, args, "indent", names, given);
  if (in->type != VALUE_STRING) run_fail(run, "indent needs a string");
  const str_t *blanks =
      in->markup && given[0].type == VALUE_STRING ? given[0].string : indention(run, in, &given[0]);
  bool first = value_truth(&given[1]), blank = value_truth(&given[2]);
  const value_list_t *lines =
      string_lines(run, str_concat(run, in->string, str_text(run, "\n")), false);
  sink_t *sink = sink_new(run);
  for (uint32_t i = 0; i < lines->count; i++) {
    const str_t *line = lines->items[i].string;
    if (i > 0) sink_puts(run, sink, "\n");
    if (i == 0 ? first : blank || line->length > 0) sink_put_str(run, sink, blanks);
    sink_put_str(run, sink, line);
  }
  value_t out = value_string(sink_str(run, sink));
  out.markup = in->markup;
  return out;
}

static value_t filter_wordcount(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "wordcount");
  const str_t *str = value_str(run, in);
  int64_t words = 0;
  bool inside = false;
  run_spend(run, str->length);
  for (size_t at = 0; at < str->length;) {
    uint32_t code = str_next(str->bytes, &at);
    bool word = code == '_' || (char_class(code) & (CHAR_ALPHA | CHAR_NUMERIC | CHAR_DIGIT));
    words += word && !inside;
    inside = word;
  }
  return value_int(words);
}

static value_t filter_truncate(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"length", "killwords", "end", "leeway", NULL};
  value_t given[4], value = *in;
  arguments_bind(run, args, "truncate", names, given);
  uint32_t count;
  if (!value_length(in, &count)) run_fail(run, "truncate needs a string");
  int64_t length = argument_integer(run, &given[0], "the length", 255);
  const str_t *end = value_is_missing(&given[2]) ? str_text(run, "...")
                                                 : argument_string(run, &given[2], "the end");
  if (given[3].type == VALUE_NONE) given[3] = value_missing();
  int64_t leeway = argument_integer(run, &given[3], "leeway", 5), chars = count;
  if (length < (int64_t)str_chars(end))
    run_fail(run, "truncate: the length is %lld; the end alone has %u characters",
             (long long)length, str_chars(end));
  if (leeway < 0)
    run_fail(run, "truncate: leeway is %lld; it must be at least 0", (long long)leeway);
  if (leeway > STR_BYTES_MAX || length > STR_BYTES_MAX || chars <= length + leeway) return value;
  if (value.type != VALUE_STRING) run_fail(run, "truncate needs a string");
  if (value.markup) run_fail(run, "truncate of safe text is not supported");
  size_t cut = str_offset(value.string, (uint32_t)(length - str_chars(end)));
  if (!value_truth(&given[1])) {
    const str_t blank = {.bytes = " ", .length = 1};
    int64_t hit = str_rfind(run, value.string, 0, cut, &blank);
    if (hit >= 0) cut = (size_t)hit;
  }
  return value_string(str_concat(run, str_part(run, value.string, 0, cut), end));
}

/* ---- numbers ---- */

/* Python's float(): blanks around, underscores between digits, inf and nan. Returns false if the
 * value has another form. */
static bool read_float(run_t *run, const value_t *in, double *out) {
  if (value_is_number(in)) {
    *out = value_number(in);
    return true;
  }
  if (in->type != VALUE_STRING) return false;
  value_t value = string_strip(run, in, NULL, true, true);
  const str_t *str = value.string;
  char text[400], *end;
  size_t n = 0;
  if (str->length == 0) return false;
  if (str->length >= sizeof text) run_fail(run, "a number is too long");
  for (uint32_t i = 0; i < str->length; i++) {
    char c = str->bytes[i];
    if ((uint8_t)c >= 0x80 && (char_class(str_next(str->bytes, &(size_t){i})) & CHAR_DECIMAL))
      run_fail(run, "digits above ASCII are not supported");
    if (c == '_') {
      bool between = i > 0 && i + 1 < str->length && str->bytes[i - 1] >= '0' &&
                     str->bytes[i - 1] <= '9' && str->bytes[i + 1] >= '0' &&
                     str->bytes[i + 1] <= '9';
      if (!between) return false;
      continue;
    }
    if (c == 'x' || c == 'X' || c == '(' || c == ' ' || c == 'p' || c == 'P') return false;
    text[n++] = c;
  }
  text[n] = '\0';
  *out = strtod(text, &end);
  return end == text + n && end != text;
}

static value_t filter_float(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"default", NULL};
  value_t given[1];
  double f;
  arguments_bind(run, args, "float", names, given);
  if (in->type == VALUE_UNDEFINED) run_fail(run, "float of an undefined value");
  if (in->type == VALUE_BIGINT) run_fail(run, "an integer is beyond 64 bits");
  if (read_float(run, in, &f)) return value_float(f);
  return value_is_missing(&given[0]) ? value_float(0) : given[0];
}

static bool fits_integer(double number) {
  return number >= -9223372036854775808.0 && number < 9223372036854775808.0;
}

/* Python's int() of a string. Returns false if the string has another form. A number of more than
 * 64 bits ends the run. */
static bool read_integer(run_t *run, const value_t *in, int base, int64_t *out) {
  value_t value = string_strip(run, in, NULL, true, true);
  const str_t *str = value.string;
  char text[80];
  size_t n = 0;
  if (str->length == 0) return false;
  if (str->length >= sizeof text) run_fail(run, "a number is too long");
  for (uint32_t i = 0; i < str->length; i++) {
    bool edge = i == 0 || i + 1 == str->length || str->bytes[i - 1] == '_';
    if (str->bytes[i] == '_' && edge) return false;
    if ((uint8_t)str->bytes[i] >= 0x80 &&
        (char_class(str_next(str->bytes, &(size_t){i})) & CHAR_DECIMAL))
      run_fail(run, "digits above ASCII are not supported");
    if (str->bytes[i] != '_') text[n++] = str->bytes[i];
  }
  text[n] = '\0';
  size_t sign = text[0] == '+' || text[0] == '-';
  if (text[sign] == '+' || text[sign] == '-' || text[sign] == '\0' || text[sign] == ' ' ||
      (text[sign] >= '\t' && text[sign] <= '\r'))
    return false;
  char kind = text[sign] == '0' ? (char)(text[sign + 1] | 32) : '\0';
  if (kind == 'b' || kind == 'o' || kind == 'x') {
    int wanted = kind == 'b' ? 2 : kind == 'o' ? 8 : 16;
    bool digit = wanted == base && base != 10;
    if (base == 0) run_fail(run, "int: base 0 is not supported");
    if (digit && base != 16) memmove(text + sign, text + sign + 2, strlen(text + sign + 2) + 1);
    if (!digit && base == 10) return false;
  }
  char *end;
  errno = 0;
  *out = strtoll(text, &end, base);
  if (errno == ERANGE && *end == '\0') run_fail(run, "an integer is beyond 64 bits");
  return *end == '\0' && end != text + sign;
}

static value_t filter_int(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"default", "base", NULL};
  value_t given[2];
  int64_t n;
  double f;
  arguments_bind(run, args, "int", names, given);
  value_t fallback = value_is_missing(&given[0]) ? value_int(0) : given[0];
  int64_t base = argument_integer(run, &given[1], "the base", 10);
  if (in->type == VALUE_UNDEFINED) run_fail(run, "int of an undefined value");
  if (in->type == VALUE_BIGINT) return *in;
  if (value_integer(in, &n)) return value_int(n);
  if (in->type == VALUE_STRING) {
    if (base < 2 || base > 36) run_fail(run, "int: this base is not supported");
    if (read_integer(run, in, (int)base, &n)) return value_int(n);
  }
  if (in->type == VALUE_FLOAT && isinf(in->number)) run_fail(run, "int of infinity");
  if (!read_float(run, in, &f) || isnan(f) || isinf(f)) return fallback;
  if (!fits_integer(f)) run_fail(run, "an integer is beyond 64 bits");
  return value_int((int64_t)f);
}

static value_t filter_abs(run_t *run, const value_t *in, const arguments_t *args) {
  int64_t n;
  arguments_refuse(run, args, "abs");
  if (in->type == VALUE_FLOAT) return value_float(fabs(in->number));
  if (!value_integer(in, &n) || n == INT64_MIN) run_fail(run, "abs needs a number");
  return value_int(n < 0 ? -n : n);
}

/* Python's round(): the decimal that printf rounds to is exact, half to even. */
static double round_to(double number, int64_t digits) {
  char text[512];
  if (!isfinite(number) || digits > 300) return number;
  if (digits >= 0) {
    snprintf(text, sizeof text, "%.*f", (int)digits, number);
    return strtod(text, NULL);
  }
  return number;
}

static value_t filter_round(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"precision", "method", NULL};
  value_t given[2];
  int64_t n;
  arguments_bind(run, args, "round", names, given);
  int64_t digits = argument_integer(run, &given[0], "the precision", 0);
  const str_t *method = value_is_missing(&given[1]) ? str_text(run, "common")
                                                    : argument_string(run, &given[1], "the method");
  bool ceiling = str_is(method, "ceil"), down = str_is(method, "floor");
  if (!ceiling && !down && !str_is(method, "common"))
    run_fail(run, "round: the method is common, ceil or floor");
  if (!value_is_number(in)) run_fail(run, "round needs a number");
  if (digits < 0 || digits > 15) run_fail(run, "round: this precision is not supported");
  if (!ceiling && !down)
    return value_integer(in, &n) ? value_int(n) : value_float(round_to(in->number, digits));
  double scale = 1;
  for (int64_t i = 0; i < digits; i++) scale *= 10;
  double f = value_number(in) * scale;
  if (!isfinite(f)) run_fail(run, "round of infinity");
  return value_float((ceiling ? ceil(f) : floor(f)) / scale);
}

const filter_row_t filters_text[] = {
    {"tojson", filter_tojson},     {"trim", filter_trim},
    {"string", filter_string},     {"upper", filter_upper},
    {"lower", filter_lower},       {"capitalize", filter_capitalize},
    {"title", filter_title},       {"replace", filter_replace},
    {"safe", filter_safe},         {"escape", filter_escape},
    {"e", filter_escape},          {"forceescape", filter_forceescape},
    {"format", filter_format},     {"center", filter_center},
    {"indent", filter_indent},     {"wordcount", filter_wordcount},
    {"truncate", filter_truncate}, {"float", filter_float},
    {"int", filter_int},           {"abs", filter_abs},
    {"round", filter_round},       {NULL, NULL}};
