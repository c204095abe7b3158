/* tojson.c: the filter that prints JSON as Python's json.dumps does.
 *
 * The rendering thread only. Text of the request keeps its marks inside the JSON.
 */
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct dump {
  run_t *run;
  sink_t *sink;
  const str_t *indent; /* NULL: one line */
  const str_t *item_separator, *key_separator;
  bool ascii, sorted;
  uint32_t level;
} dump_t;

static void dump_value(dump_t *d, const value_t *v);

static void put_escaped(dump_t *d, uint32_t code, bool request) {
  static const char names[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
  char out[16];
  const char *name = code < 0x80 && code != 0 ? strchr(names, (int)code) : NULL;
  if (name != NULL) {
    snprintf(out, sizeof out, "\\%c", letters[name - names]);
  } else if (code >= 0x10000) {
    uint32_t rest = code - 0x10000;
    snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  } else {
    snprintf(out, sizeof out, "\\u%04x", code);
  }
  sink_put(d->run, d->sink, out, strlen(out), request);
}

static void dump_string(dump_t *d, const str_t *s) {
  bool request = s->origin != ORIGIN_TEMPLATE;
  size_t plain = 0;
  sink_puts(d->run, d->sink, "\"");
  for (size_t at = 0; at < s->length;) {
    size_t begin = at;
    uint8_t c = (uint8_t)s->bytes[at];
    if (c >= 0x20 && c != '"' && c != '\\' && (!d->ascii || c < 0x7F)) {
      at++; /* a byte of a longer character passes as it is */
      continue;
    }
    uint32_t code = str_next(s->bytes, &at);
    sink_put_part(d->run, d->sink, s, plain, begin);
    plain = at;
    put_escaped(d, code, request);
  }
  run_spend(d->run, s->length / 32);
  sink_put_part(d->run, d->sink, s, plain, s->length);
  sink_puts(d->run, d->sink, "\"");
}

static void dump_float(dump_t *d, double f, bool request) {
  if (isnan(f))
    sink_puts(d->run, d->sink, "NaN");
  else if (isinf(f))
    sink_puts(d->run, d->sink, f > 0 ? "Infinity" : "-Infinity");
  else
    float_repr(d->run, d->sink, f, request);
}

static void new_line(dump_t *d) {
  if (d->indent == NULL) return;
  sink_puts(d->run, d->sink, "\n");
  for (uint32_t i = 0; i < d->level; i++) sink_put_str(d->run, d->sink, d->indent);
}

static void dump_list(dump_t *d, const list_t *list) {
  if (list->count == 0) {
    sink_puts(d->run, d->sink, "[]");
    return;
  }
  sink_puts(d->run, d->sink, "[");
  d->level++;
  for (uint32_t i = 0; i < list->count; i++) {
    if (i > 0) sink_put_str(d->run, d->sink, d->item_separator);
    new_line(d);
    dump_value(d, &list->items[i]);
  }
  d->level--;
  new_line(d);
  sink_puts(d->run, d->sink, "]");
}

static void dump_key(dump_t *d, const value_t *key) {
  value_t text = *key;
  if (key->type == VALUE_BOOL)
    text = value_string(str_text(d->run, key->boolean ? "true" : "false"));
  if (key->type == VALUE_NONE) text = value_string(str_text(d->run, "null"));
  if (key->type == VALUE_INT || key->type == VALUE_BIGINT || key->type == VALUE_FLOAT)
    text = value_string(value_str(d->run, key));
  if (text.type != VALUE_STRING)
    run_fail(d->run, "tojson: a key is %s, not a string", value_type_name(key));
  dump_string(d, text.string);
}

static void dump_dict(dump_t *d, const dict_t *dict) {
  if (dict->count == 0) {
    sink_puts(d->run, d->sink, "{}");
    return;
  }
  const dict_entry_t *entries = dict->entries;
  if (d->sorted) entries = sort_entries(d->run, dict);
  sink_puts(d->run, d->sink, "{");
  d->level++;
  for (uint32_t i = 0; i < dict->count; i++) {
    if (i > 0) sink_put_str(d->run, d->sink, d->item_separator);
    new_line(d);
    dump_key(d, &entries[i].key);
    sink_put_str(d->run, d->sink, d->key_separator);
    dump_value(d, &entries[i].value);
  }
  d->level--;
  new_line(d);
  sink_puts(d->run, d->sink, "}");
}

static void dump_value(dump_t *d, const value_t *v) {
  run_spend(d->run, 1);
  run_enter(d->run);
  switch (v->type) {
  case VALUE_NONE: sink_puts(d->run, d->sink, "null"); break;
  case VALUE_BOOL: sink_puts(d->run, d->sink, v->boolean ? "true" : "false"); break;
  case VALUE_INT:
  case VALUE_BIGINT: value_repr(d->run, d->sink, v); break;
  case VALUE_FLOAT: dump_float(d, v->number, v->request); break;
  case VALUE_STRING: dump_string(d, v->string); break;
  case VALUE_LIST:
  case VALUE_TUPLE: dump_list(d, v->list); break;
  case VALUE_DICT: dump_dict(d, v->dict); break;
  default: run_fail(d->run, "tojson: a %s is not JSON serializable", value_type_name(v));
  }
  run_leave(d->run);
}

static const str_t *separator(run_t *run, const value_t *pair, uint32_t index) {
  const list_t *list = value_list(run, pair);
  if (list->count != 2) run_fail(run, "tojson: separators must be two strings");
  if (list->items[index].type != VALUE_STRING)
    run_fail(run, "tojson: separators must be two strings");
  return list->items[index].string;
}

value_t filter_tojson(run_t *run, const value_t *in, const arguments_t *arguments) {
  static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
  value_t given[4];
  arguments_bind(run, arguments, "tojson", names, given);
  dump_t d = {.run = run, .sink = sink_new(run)};
  d.ascii = value_truth(&given[0]);
  d.sorted = value_truth(&given[3]);
  int64_t width;
  if (given[1].type == VALUE_STRING) {
    d.indent = given[1].string;
  } else if (value_integer(&given[1], &width)) {
    d.indent = str_repeat(run, str_text(run, " "), width);
  } else if (given[1].type != VALUE_NONE && given[1].type != VALUE_UNDEFINED) {
    run_fail(run, "tojson: indent must be a number or a string");
  }
  d.item_separator = str_text(run, d.indent == NULL ? ", " : ",");
  d.key_separator = str_text(run, ": ");
  if (given[2].type != VALUE_NONE && given[2].type != VALUE_UNDEFINED) {
    d.item_separator = separator(run, &given[2], 0);
    d.key_separator = separator(run, &given[2], 1);
  }
  dump_value(&d, in);
  return value_string(sink_str(run, d.sink));
}
