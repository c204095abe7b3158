/* format_string.c: the % operator and str.format.
 *
 * The rendering thread only. Widths and precisions are bounded before anything is allocated.
 */
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 100000, PRECISION_MAX = 100, GROUPED_MAX = 300 };

typedef struct spec {
  char fill[5]; /* one character, UTF-8 */
  char align;   /* '<' '>' '^' '=' or 0 */
  char sign;    /* '+' ' ' or 0 */
  bool alternate, zero, left;
  char grouping;            /* ',' '_' or 0 */
  int64_t width, precision; /* -1: none */
  char type;
} spec_t;

/* Appends `text` padded to the width, counted in code points. */
static void put_padded(run_t *run, sink_t *sink, const spec_t *spec, const str_t *text,
                       char fallback) {
  int64_t pad = spec->width - (int64_t)str_chars(text), before = 0;
  char align = spec->align != 0 ? spec->align : fallback;
  const str_t *fill = str_text(run, spec->fill[0] == '\0' ? " " : spec->fill);
  fill = str_copy(run, fill->bytes, fill->length, ORIGIN_TEMPLATE);
  if (pad < 0) pad = 0;
  if (align == '>' || align == '=') before = pad;
  if (align == '^') before = pad / 2;
  if (before > 0) sink_put_str(run, sink, str_repeat(run, fill, before));
  sink_put_str(run, sink, text);
  if (pad > before) sink_put_str(run, sink, str_repeat(run, fill, pad - before));
}

/* Digits of |n| in a base, most significant first. */
static size_t digits_of(uint64_t n, unsigned base, bool upper, char out[72]) {
  const char *letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  char reversed[72];
  size_t count = 0, i;
  do reversed[count++] = letters[n % base];
  while ((n /= base) != 0);
  for (i = 0; i < count; i++) out[i] = reversed[count - 1 - i];
  out[count] = '\0';
  return count;
}

/* Sign, prefix and body of a number, with zeros between prefix and body when asked. */
static void put_number(run_t *run, sink_t *sink, const spec_t *spec, bool negative,
                       const char *prefix, const char *body, bool request) {
  char head[8];
  snprintf(head, sizeof head, "%s%s",
           negative            ? "-"
           : spec->sign == '+' ? "+"
           : spec->sign == ' ' ? " "
                               : "",
           prefix);
  sink_t *number = sink_new(run);
  size_t used = strlen(head) + strlen(body);
  bool inside = spec->zero || spec->align == '=';
  sink_put(run, number, head, strlen(head), request);
  if (inside && spec->width > (int64_t)used) {
    const char *fill = spec->zero && spec->fill[0] == '\0' ? "0"
                       : spec->fill[0] == '\0'             ? " "
                                                           : spec->fill;
    sink_put_str(run, number,
                 str_repeat(run, str_copy(run, fill, strlen(fill), ORIGIN_TEMPLATE),
                            spec->width - (int64_t)used));
  }
  sink_put(run, number, body, strlen(body), request);
  put_padded(run, sink, spec, sink_str(run, number), spec->left ? '<' : '>');
}

static void group(run_t *run, char *text, size_t size, char mark) {
  char out[512];
  size_t digits = strspn(text, "0123456789"), n = 0, length = strlen(text);
  if (length > GROUPED_MAX)
    run_fail(run, "digits are grouped up to %d bytes, not in %zu", GROUPED_MAX, length);
  for (size_t i = 0; i < length && n + 2 < sizeof out && n + 2 < size; i++) {
    if (i > 0 && i < digits && (digits - i) % 3 == 0) out[n++] = mark;
    out[n++] = text[i];
  }
  out[n] = '\0';
  snprintf(text, size, "%s", out);
}

static void put_integer(run_t *run, sink_t *sink, const spec_t *spec, const value_t *value) {
  char body[512];
  int64_t n = 0;
  (void)value_integer(value, &n);
  bool upper = spec->type == 'X';
  unsigned base = spec->type == 'x' || upper ? 16
                  : spec->type == 'o'        ? 8
                  : spec->type == 'b'        ? 2
                                             : 10;
  uint64_t magnitude = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
  size_t count = digits_of(magnitude, base, upper, body);
  const char *prefix = "";
  if (spec->alternate)
    prefix = base == 16 ? (upper ? "0X" : "0x") : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (spec->precision > (int64_t)count) { /* only %: at least that many digits */
    size_t zeros = (size_t)spec->precision - count;
    memmove(body + zeros, body, count + 1);
    memset(body, '0', zeros);
  }
  if (spec->grouping != 0) {
    if (base != 10) run_fail(run, "grouping of digits in base %d is not supported", (int)base);
    if (spec->zero || spec->align == '=') run_fail(run, "grouping with zeros is not supported");
    group(run, body, sizeof body, spec->grouping);
  }
  put_number(run, sink, spec, n < 0, prefix, body, value->request);
}

static void put_float(run_t *run, sink_t *sink, const spec_t *spec, const value_t *value) {
  char format[8] = "%.*f", body[512];
  double f = value_number(value);
  bool negative = signbit(f) && !isnan(f);
  int precision = spec->precision < 0 ? 6 : (int)spec->precision;
  format[3] = spec->type == '%' ? 'f' : spec->type;
  if (spec->alternate) run_fail(run, "# with floats is not supported");
  if (spec->type == '%') f *= 100;
  if ((spec->type == 'g' || spec->type == 'G') && precision == 0) precision = 1;
  if (!isfinite(f)) {
    snprintf(body, sizeof body, "%s", isnan(f) ? "nan" : "inf");
    if (spec->type >= 'A' && spec->type <= 'Z')
      snprintf(body, sizeof body, isnan(f) ? "NAN" : "INF");
  } else {
    snprintf(body, sizeof body, format, precision, fabs(f));
  }
  if (spec->grouping != 0) {
    if (spec->zero || spec->align == '=') run_fail(run, "grouping with zeros is not supported");
    group(run, body, sizeof body, spec->grouping);
  }
  if (spec->type == '%' && strlen(body) + 2 < sizeof body) memcpy(body + strlen(body), "%", 2);
  put_number(run, sink, spec, negative, "", body, value->request);
}

static int64_t read_number(run_t *run, const str_t *str, size_t *at, int64_t most) {
  int64_t n = 0;
  while (*at < str->length && str->bytes[*at] >= '0' && str->bytes[*at] <= '9') {
    n = n * 10 + (str->bytes[*at] - '0');
    if (n > most) run_fail(run, "a width or precision is larger than %lld", (long long)most);
    ++*at;
  }
  return n;
}

/* ---- the % operator ---- */

typedef struct percent {
  const value_t *arguments;
  const value_list_t *list; /* of a tuple */
  uint32_t used;
  bool named;
} percent_t;

static value_t next_argument(run_t *run, percent_t *percent) {
  if (percent->list != NULL) {
    if (percent->used >= percent->list->count)
      run_fail(run, "not enough arguments for the format: %u", percent->list->count);
    return percent->list->items[percent->used++];
  }
  if (percent->used++ > 0) run_fail(run, "not enough arguments for the format: 1");
  return *percent->arguments;
}

static int64_t star_or_number(run_t *run, percent_t *percent, const str_t *str, size_t *at,
                              int64_t most) {
  if (*at >= str->length || str->bytes[*at] != '*') return read_number(run, str, at, most);
  ++*at;
  value_t value = next_argument(run, percent);
  int64_t n = argument_integer(run, &value, "*", 0);
  if (n > most || n < -most)
    run_fail(run, "a width or precision is larger than %lld: %lld", (long long)most, (long long)n);
  return n;
}

static value_t named_argument(run_t *run, percent_t *percent, const str_t *str, size_t *at) {
  size_t begin = ++*at, open = 1;
  if (percent->arguments->type != VALUE_DICT)
    run_fail(run, "the format needs a mapping, not %s", value_type_name(percent->arguments));
  while (*at < str->length && open > 0) {
    open += str->bytes[*at] == '(';
    open -= str->bytes[*at] == ')';
    ++*at;
  }
  if (open > 0)
    run_fail(run, "a key does not end in the format `%s`", run_quote((char[64]){0}, str));
  value_t key = value_string(str_part(run, str, begin, *at - 1));
  const value_t *found = dict_find(run, percent->arguments->dict, &key);
  if (found == NULL)
    run_fail(run, "the format's key `%s` is not in the mapping",
             run_quote((char[64]){0}, key.string));
  percent->named = true;
  return *found;
}

static spec_t read_percent(run_t *run, percent_t *percent, const str_t *str, size_t *at) {
  spec_t spec = {.width = -1, .precision = -1};
  for (; *at < str->length && str->bytes[*at] != '\0' && strchr("-+ #0", str->bytes[*at]) != NULL;
       ++*at) {
    char c = str->bytes[*at];
    spec.left |= c == '-';
    spec.zero |= c == '0';
    spec.alternate |= c == '#';
    if (c == '+' || (c == ' ' && spec.sign == 0)) spec.sign = c;
  }
  spec.width = star_or_number(run, percent, str, at, WIDTH_MAX);
  if (spec.width < 0) {
    spec.left = true;
    spec.width = -spec.width;
  }
  if (*at < str->length && str->bytes[*at] == '.') {
    ++*at;
    spec.precision = star_or_number(run, percent, str, at, PRECISION_MAX);
    if (spec.precision < 0) spec.precision = 0;
  }
  while (*at < str->length &&
         (str->bytes[*at] == 'l' || str->bytes[*at] == 'h' || str->bytes[*at] == 'L'))
    ++*at;
  if (*at >= str->length)
    run_fail(run, "the format `%s` is incomplete", run_quote((char[64]){0}, str));
  spec.type = str->bytes[(*at)++];
  if (spec.left) spec.zero = false;
  return spec;
}

static void percent_text(run_t *run, sink_t *sink, spec_t *spec, const value_t *value,
                         bool markup) {
  sink_t *text = sink_new(run);
  if (spec->type == 's') {
    value_t plain = *value;
    if (markup && !value->markup) plain = value_string(string_escape(run, value_str(run, value)));
    value_print(run, text, &plain);
  } else if (spec->type == 'r') {
    value_repr(run, text, value);
  } else {
    int64_t code;
    char bytes[4];
    if (value->type == VALUE_STRING && str_chars(value->string) == 1) {
      sink_put_str(run, text, value->string);
    } else if (value_integer(value, &code) && code >= 0 && code < 0x80) {
      bytes[0] = (char)code;
      sink_put(run, text, bytes, 1, value->request);
    } else {
      run_fail(run, "%%c needs a character, not %s", value_type_name(value));
    }
  }
  const str_t *str = sink_str(run, text);
  if (spec->precision >= 0 && spec->type != 'c' && spec->precision < (int64_t)str_chars(str))
    str = str_part(run, str, 0, str_offset(str, (uint32_t)spec->precision));
  spec->zero = false;
  put_padded(run, sink, spec, str, spec->left ? '<' : '>');
}

static void percent_number(run_t *run, sink_t *sink, spec_t *spec, const value_t *value) {
  bool real = strchr("eEfFgG", spec->type) != NULL;
  value_t number = *value;
  if (!value_is_number(value))
    run_fail(run, "%%%c needs a number, not %s", spec->type, value_type_name(value));
  if (real) {
    put_float(run, sink, spec, value);
    return;
  }
  if (value->type == VALUE_FLOAT) {
    if (strchr("xXo", spec->type) != NULL)
      run_fail(run, "%%%c needs an integer, not a float", spec->type);
    if (!isfinite(value->number) || fabs(value->number) >= 9.2e18)
      run_fail(run, "%%%c takes numbers of 64 bits, not %g", spec->type, value->number);
    number = value_int((int64_t)value->number);
  }
  put_integer(run, sink, spec, &number);
}

value_t format_percent(run_t *run, const value_t *format, const value_t *arguments) {
  const str_t *str = format->string;
  percent_t percent = {.arguments = arguments};
  sink_t *sink = sink_new(run);
  if (arguments->type == VALUE_TUPLE) percent.list = arguments->list;
  for (size_t at = 0; at < str->length;) {
    const char *hit = memchr(str->bytes + at, '%', str->length - at);
    size_t next = hit == NULL ? str->length : (size_t)(hit - str->bytes);
    sink_put_part(run, sink, str, at, next);
    at = next + 1;
    if (hit == NULL) break;
    run_spend(run, 4);
    bool has_key = at < str->length && str->bytes[at] == '(';
    value_t value = has_key ? named_argument(run, &percent, str, &at) : value_missing();
    spec_t spec = read_percent(run, &percent, str, &at);
    if (spec.type == '%') {
      sink_puts(run, sink, "%");
      continue;
    }
    if (spec.type == '\0' || strchr("srcdiuxXoeEfFgG", spec.type) == NULL)
      run_fail(run, "a character behind %% is not supported in the format `%s`",
               run_quote((char[64]){0}, str));
    if (!has_key) value = next_argument(run, &percent);
    if (strchr("src", spec.type) != NULL)
      percent_text(run, sink, &spec, &value, format->markup);
    else
      percent_number(run, sink, &spec, &value);
  }
  bool left_over = percent.list != NULL ? percent.used < percent.list->count : percent.used == 0;
  bool mapping = arguments->type == VALUE_DICT || arguments->type == VALUE_LIST ||
                 arguments->type == VALUE_RANGE || arguments->type == VALUE_UNDEFINED;
  if (left_over && !percent.named && (percent.list != NULL || !mapping))
    run_fail(run, "not all arguments of the format `%s` are used", run_quote((char[64]){0}, str));
  value_t out = value_string(sink_str(run, sink));
  out.markup = format->markup;
  return out;
}

/* ---- str.format ---- */

static spec_t read_spec(run_t *run, const str_t *str) {
  spec_t spec = {.width = -1, .precision = -1};
  size_t at = 0, next = 0;
  if (str->length == 0) return spec;
  (void)str_next(str->bytes, &next);
  if (next < str->length && strchr("<>^=", str->bytes[next]) != NULL && str->bytes[next] != '\0') {
    memcpy(spec.fill, str->bytes, next);
    spec.align = str->bytes[next];
    at = next + 1;
  } else if (strchr("<>^=", str->bytes[0]) != NULL && str->bytes[0] != '\0') {
    spec.align = str->bytes[0];
    at = 1;
  }
  if (at < str->length && (str->bytes[at] == '+' || str->bytes[at] == '-' || str->bytes[at] == ' '))
    spec.sign = str->bytes[at++];
  if (at < str->length && str->bytes[at] == '#') spec.alternate = str->bytes[at++] == '#';
  if (at < str->length && str->bytes[at] == '0') {
    at++;
    if (spec.align == 0) spec.align = '=';
    if (spec.fill[0] == '\0') spec.fill[0] = '0';
  }
  spec.width = read_number(run, str, &at, WIDTH_MAX);
  if (at < str->length && (str->bytes[at] == ',' || str->bytes[at] == '_'))
    spec.grouping = str->bytes[at++];
  if (at < str->length && str->bytes[at] == '.') {
    at++;
    if (at >= str->length || str->bytes[at] < '0' || str->bytes[at] > '9')
      run_fail(run, "the format `%s` has no precision after the point",
               run_quote((char[64]){0}, str));
    spec.precision = read_number(run, str, &at, PRECISION_MAX);
  }
  if (at < str->length) spec.type = str->bytes[at++];
  if (at < str->length) run_fail(run, "the format `%s` is invalid", run_quote((char[64]){0}, str));
  return spec;
}

static void put_formatted(run_t *run, sink_t *sink, const str_t *format, const value_t *value) {
  spec_t spec = read_spec(run, format);
  if (value->type == VALUE_STRING) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != 0 || spec.alternate ||
        spec.align == '=' || spec.grouping != 0)
      run_fail(run, "the format `%s` is not for strings", run_quote((char[64]){0}, format));
    const str_t *str = value->string;
    if (spec.precision >= 0 && spec.precision < (int64_t)str_chars(str))
      str = str_part(run, str, 0, str_offset(str, (uint32_t)spec.precision));
    put_padded(run, sink, &spec, str, '<');
  } else if (!value_is_number(value)) {
    if (format->length > 0)
      run_fail(run, "the format `%s` is not for %s", run_quote((char[64]){0}, format),
               value_type_name(value));
    value_print(run, sink, value);
  } else if (format->length == 0) {
    value_print(run, sink, value);
  } else if (spec.type != 0 && strchr("eEfFgG%", spec.type) != NULL) {
    put_float(run, sink, &spec, value);
  } else if (value->type == VALUE_FLOAT || value->type == VALUE_BOOL) {
    if (value->type == VALUE_BOOL && spec.type != 0 && strchr("dxXob", spec.type) != NULL)
      put_integer(run, sink, &spec, value);
    else
      run_fail(run, "the format `%s` of a %s is not supported", run_quote((char[64]){0}, format),
               value_type_name(value));
  } else {
    if (spec.precision >= 0 || (spec.type != 0 && strchr("dxXob", spec.type) == NULL))
      run_fail(run, "the format `%s` is not for integers", run_quote((char[64]){0}, format));
    put_integer(run, sink, &spec, value);
  }
}

typedef struct braces {
  const arguments_t *arguments;
  int64_t next;   /* automatic numbering; -1: manual */
  bool automatic; /* has been used */
} braces_t;

static value_t field_base(run_t *run, braces_t *braces, const str_t *name) {
  size_t at = 0;
  if (name->length == 0) {
    if (braces->next < 0) run_fail(run, "format: automatic and manual numbers are mixed");
    braces->automatic = true;
    if (braces->next >= braces->arguments->num_positional)
      run_fail(run, "format: argument %lld is missing", (long long)braces->next);
    return braces->arguments->positional[braces->next++];
  }
  if (name->bytes[0] >= '0' && name->bytes[0] <= '9') {
    int64_t index = read_number(run, name, &at, 1000);
    if (at < name->length)
      run_fail(run, "format: the field name `%s` is invalid", run_quote((char[64]){0}, name));
    if (braces->automatic) run_fail(run, "format: automatic and manual numbers are mixed");
    braces->next = -1;
    if (index >= braces->arguments->num_positional)
      run_fail(run, "format: argument %lld is missing", (long long)index);
    return braces->arguments->positional[index];
  }
  for (uint32_t i = 0; i < braces->arguments->num_named; i++)
    if (str_equal(braces->arguments->names[i], name)) return braces->arguments->named[i];
  run_fail(run, "format: the argument `%s` is missing", run_quote((char[64]){0}, name));
}

/* begin .. end - 1 is a replacement field without its braces. */
static void put_field(run_t *run, sink_t *sink, braces_t *braces, const value_t *format,
                      size_t begin, size_t end) {
  const str_t *str = format->string;
  size_t at = begin;
  while (at < end && str->bytes[at] != '!' && str->bytes[at] != ':') {
    if (strchr(".[{", str->bytes[at]) != NULL && str->bytes[at] != '\0')
      run_fail(run, "format: fields of fields are not supported: `%s`",
               run_quote((char[64]){0}, str_part(run, str, begin, end)));
    at++;
  }
  value_t value = field_base(run, braces, str_part(run, str, begin, at));
  bool escape = format->markup && !value.markup;
  if (at < end && str->bytes[at] == '!') {
    if (at + 1 >= end || (str->bytes[at + 1] != 'r' && str->bytes[at + 1] != 's') ||
        (at + 2 < end && str->bytes[at + 2] != ':'))
      run_fail(run, "format: the conversion of `%s` is not supported",
               run_quote((char[64]){0}, str_part(run, str, begin, end)));
    sink_t *text = sink_new(run);
    if (str->bytes[at + 1] == 'r')
      value_repr(run, text, &value);
    else
      value_print(run, text, &value);
    value = value_string(sink_str(run, text));
    at += 2;
  }
  const str_t *spec = str_part(run, str, at < end ? at + 1 : end, end);
  if (spec->length > 0 && memchr(spec->bytes, '{', spec->length) != NULL)
    run_fail(run, "format: fields in a specifier are not supported: `%s`",
             run_quote((char[64]){0}, spec));
  sink_t *text = escape ? sink_new(run) : sink;
  put_formatted(run, text, spec, &value);
  if (escape) sink_put_str(run, sink, string_escape(run, sink_str(run, text)));
}

value_t format_braces(run_t *run, const value_t *format, const arguments_t *arguments) {
  const str_t *str = format->string;
  braces_t braces = {.arguments = arguments};
  sink_t *sink = sink_new(run);
  size_t plain = 0;
  for (size_t at = 0; at < str->length; at++) {
    char c = str->bytes[at];
    if (c != '{' && c != '}') continue;
    run_spend(run, 4);
    bool doubled = at + 1 < str->length && str->bytes[at + 1] == c;
    sink_put_part(run, sink, str, plain, at + doubled);
    if (doubled) {
      at++;
      plain = at + 1;
      continue;
    }
    if (c == '}') run_fail(run, "format: a single } stands alone at byte %zu", at);
    const char *close = memchr(str->bytes + at, '}', str->length - at);
    if (close == NULL) run_fail(run, "format: a single { stands alone at byte %zu", at);
    size_t end = (size_t)(close - str->bytes);
    put_field(run, sink, &braces, format, at + 1, end);
    at = end;
    plain = end + 1;
  }
  sink_put_part(run, sink, str, plain, str->length);
  value_t out = value_string(sink_str(run, sink));
  out.markup = format->markup;
  return out;
}
