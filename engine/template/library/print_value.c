/* print_value.c: how Python prints values: str() and repr().
 *
 * The rendering thread only. Strings keep the marks of their origin through both.
 */
#include "engine/base/unicode_case.h"
#include "engine/base/utf8.h"
#include "engine/template/run/run.h"
#include "engine/template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shortest digits that read back as `number`: 15 digits always survive, 17 always suffice. */
static int shortest_digits(double number, char *digits, size_t size) {
  for (int precision = 14;; precision++) {
    snprintf(digits, size, "%.*e", precision, number);
    if (precision == 16 || strtod(digits, NULL) == number) break;
  }
  char *e = strchr(digits, 'e');
  int exponent = (int)strtol(e + 1, NULL, 10);
  char *last = e - 1;
  while (*last == '0') last--;
  last[1] = '\0';
  if (digits[1] == '.') memmove(digits + 1, digits + 2, strlen(digits + 2) + 1);
  return exponent;
}

void float_repr(run_t *run, sink_t *sink, double number, bool request) {
  char digits[40], out[64];
  if (isnan(number) || isinf(number)) {
    const char *name = isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
    sink_put(run, sink, name, strlen(name), request);
    return;
  }
  if (signbit(number)) sink_put(run, sink, "-", 1, request);
  number = fabs(number);
  int exponent = shortest_digits(number, digits, sizeof digits);
  int count = (int)strlen(digits);
  if (exponent < -4 || exponent >= 16) {
    snprintf(out, sizeof out, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "", digits + 1,
             exponent < 0 ? '-' : '+', abs(exponent));
  } else if (exponent < 0) {
    snprintf(out, sizeof out, "0.%.*s%s", -exponent - 1, "0000", digits);
  } else if (count <= exponent + 1) {
    snprintf(out, sizeof out, "%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
  } else {
    snprintf(out, sizeof out, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
  }
  sink_put(run, sink, out, strlen(out), request);
}

static void put_integer(run_t *run, sink_t *sink, const value_t *value) {
  char out[32];
  int length = snprintf(out, sizeof out, "%lld", (long long)value->integer);
  sink_put(run, sink, out, (size_t)length, value->request);
}

static void put_escape(run_t *run, sink_t *sink, uint32_t code, bool request) {
  char out[16];
  const char *format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  if (code == '\n' || code == '\r' || code == '\t')
    snprintf(out, sizeof out, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
  else
    snprintf(out, sizeof out, format, code);
  sink_put(run, sink, out, strlen(out), request);
}

static void repr_string(run_t *run, sink_t *sink, const str_t *str) {
  bool single = str->length > 0 && memchr(str->bytes, '\'', str->length) != NULL;
  bool twice = str->length > 0 && memchr(str->bytes, '"', str->length) != NULL;
  char quote = single && !twice ? '"' : '\'';
  bool request = str->origin != ORIGIN_TEMPLATE;
  size_t plain = 0; /* bytes before are written */
  sink_put(run, sink, &quote, 1, false);
  for (size_t at = 0; at < str->length;) {
    size_t begin = at;
    uint32_t code = str_next(str->bytes, &at);
    bool quoted = code == (uint32_t)quote || code == '\\';
    if (!quoted && (code == ' ' || (char_class(code) & CHAR_PRINTABLE))) continue;
    sink_put_part(run, sink, str, plain, begin);
    plain = at;
    if (quoted) {
      char escape[2] = {'\\', (char)code};
      sink_put(run, sink, escape, 2, request);
    } else {
      put_escape(run, sink, code, request);
    }
  }
  run_spend(run, str->length / 16);
  sink_put_part(run, sink, str, plain, str->length);
  sink_put(run, sink, &quote, 1, false);
}

static void repr_list(run_t *run, sink_t *sink, const value_list_t *list, const char *open,
                      const char *close, bool tuple) {
  sink_puts(run, sink, open);
  for (uint32_t i = 0; i < list->count; i++) {
    if (i > 0) sink_puts(run, sink, ", ");
    value_repr(run, sink, &list->items[i]);
  }
  if (tuple && list->count == 1) sink_puts(run, sink, ",");
  sink_puts(run, sink, close);
}

static void repr_dict(run_t *run, sink_t *sink, const dict_t *dict) {
  sink_puts(run, sink, "{");
  for (uint32_t i = 0; i < dict->count; i++) {
    if (i > 0) sink_puts(run, sink, ", ");
    value_repr(run, sink, &dict->entries[i].key);
    sink_puts(run, sink, ": ");
    value_repr(run, sink, &dict->entries[i].value);
  }
  sink_puts(run, sink, "}");
}

static void repr_range(run_t *run, sink_t *sink, const value_t *value) {
  char out[96];
  const value_range_t *range = value->range;
  int used = snprintf(out, sizeof out, "range(%lld, %lld", (long long)range->start,
                      (long long)range->stop);
  if (range->step != 1)
    used += snprintf(out + used, sizeof out - (size_t)used, ", %lld", (long long)range->step);
  snprintf(out + used, sizeof out - (size_t)used, ")");
  sink_puts(run, sink, out);
}

static void repr_container(run_t *run, sink_t *sink, const value_t *value) {
  static const char *const views[] = {
      [VIEW_ITEMS] = "dict_items([", [VIEW_KEYS] = "dict_keys([", [VIEW_VALUES] = "dict_values(["};
  switch (value->type) {
  case VALUE_LIST: repr_list(run, sink, value->list, "[", "]", false); break;
  case VALUE_TUPLE: repr_list(run, sink, value->list, "(", ")", true); break;
  case VALUE_DICT: repr_dict(run, sink, value->dict); break;
  case VALUE_VIEW:
    repr_list(run, sink, value_list(run, value), views[value->view->kind], "])", false);
    break;
  case VALUE_NAMESPACE:
    sink_puts(run, sink, "<Namespace ");
    repr_dict(run, sink, value->dict);
    sink_puts(run, sink, ">");
    break;
  case VALUE_RANGE: repr_range(run, sink, value); break;
  default: run_fail(run, "a %s cannot be printed", value_type_name(value));
  }
}

void value_repr(run_t *run, sink_t *sink, const value_t *value) {
  run_spend(run, 1);
  switch (value->type) {
  case VALUE_UNDEFINED: sink_puts(run, sink, "Undefined"); return;
  case VALUE_NONE: sink_puts(run, sink, "None"); return;
  case VALUE_BOOL: sink_puts(run, sink, value->boolean ? "True" : "False"); return;
  case VALUE_INT: put_integer(run, sink, value); return;
  case VALUE_BIGINT: sink_put_str(run, sink, value->string); return;
  case VALUE_FLOAT: float_repr(run, sink, value->number, value->request); return;
  case VALUE_STRING:
    if (value->markup) sink_puts(run, sink, "Markup(");
    repr_string(run, sink, value->string);
    if (value->markup) sink_puts(run, sink, ")");
    return;
  default: break;
  }
  run_enter(run);
  repr_container(run, sink, value);
  run_leave(run);
}

void value_print(run_t *run, sink_t *sink, const value_t *value) {
  if (value->type == VALUE_STRING)
    sink_put_str(run, sink, value->string);
  else if (value->type != VALUE_UNDEFINED)
    value_repr(run, sink, value);
}

const str_t *value_str(run_t *run, const value_t *value) {
  if (value->type == VALUE_STRING) return value->string;
  if (value->type == VALUE_UNDEFINED) return str_text(run, "");
  sink_t *sink = sink_new(run);
  value_repr(run, sink, value);
  return sink_str(run, sink);
}
