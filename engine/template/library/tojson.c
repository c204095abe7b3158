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

static void dump_value(dump_t *dump, const value_t *value);

static void put_escaped(dump_t *dump, uint32_t code, bool request) {
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
  sink_put(dump->run, dump->sink, out, strlen(out), request);
}

static void dump_string(dump_t *dump, const str_t *str) {
  bool request = str->origin != ORIGIN_TEMPLATE;
  size_t plain = 0;
  sink_puts(dump->run, dump->sink, "\"");
  for (size_t at = 0; at < str->length;) {
    size_t begin = at;
    uint8_t c = (uint8_t)str->bytes[at];
    if (c >= 0x20 && c != '"' && c != '\\' && (!dump->ascii || c < 0x7F)) {
      at++; /* a byte of a longer character passes as it is */
      continue;
    }
    uint32_t code = str_next(str->bytes, &at);
    sink_put_part(dump->run, dump->sink, str, plain, begin);
    plain = at;
    put_escaped(dump, code, request);
  }
  run_spend(dump->run, str->length / 32);
  sink_put_part(dump->run, dump->sink, str, plain, str->length);
  sink_puts(dump->run, dump->sink, "\"");
}

static void dump_float(dump_t *dump, double number, bool request) {
  if (isnan(number))
    sink_puts(dump->run, dump->sink, "NaN");
  else if (isinf(number))
    sink_puts(dump->run, dump->sink, number > 0 ? "Infinity" : "-Infinity");
  else
    float_repr(dump->run, dump->sink, number, request);
}

static void new_line(dump_t *dump) {
  if (dump->indent == NULL) return;
  sink_puts(dump->run, dump->sink, "\n");
  for (uint32_t i = 0; i < dump->level; i++) sink_put_str(dump->run, dump->sink, dump->indent);
}

static void dump_list(dump_t *dump, const value_list_t *list) {
  if (list->count == 0) {
    sink_puts(dump->run, dump->sink, "[]");
    return;
  }
  sink_puts(dump->run, dump->sink, "[");
  dump->level++;
  for (uint32_t i = 0; i < list->count; i++) {
    if (i > 0) sink_put_str(dump->run, dump->sink, dump->item_separator);
    new_line(dump);
    dump_value(dump, &list->items[i]);
  }
  dump->level--;
  new_line(dump);
  sink_puts(dump->run, dump->sink, "]");
}

static void dump_key(dump_t *dump, const value_t *key) {
  value_t text = *key;
  if (key->type == VALUE_BOOL)
    text = value_string(str_text(dump->run, key->boolean ? "true" : "false"));
  if (key->type == VALUE_NONE) text = value_string(str_text(dump->run, "null"));
  if (key->type == VALUE_INT || key->type == VALUE_BIGINT || key->type == VALUE_FLOAT)
    text = value_string(value_str(dump->run, key));
  if (text.type != VALUE_STRING)
    run_fail(dump->run, "tojson: a key is %s, not a string", value_type_name(key));
  dump_string(dump, text.string);
}

static void dump_dict(dump_t *dump, const dict_t *dict) {
  if (dict->count == 0) {
    sink_puts(dump->run, dump->sink, "{}");
    return;
  }
  const dict_entry_t *entries = dict->entries;
  if (dump->sorted) entries = sort_entries(dump->run, dict);
  sink_puts(dump->run, dump->sink, "{");
  dump->level++;
  for (uint32_t i = 0; i < dict->count; i++) {
    if (i > 0) sink_put_str(dump->run, dump->sink, dump->item_separator);
    new_line(dump);
    dump_key(dump, &entries[i].key);
    sink_put_str(dump->run, dump->sink, dump->key_separator);
    dump_value(dump, &entries[i].value);
  }
  dump->level--;
  new_line(dump);
  sink_puts(dump->run, dump->sink, "}");
}

static void dump_value(dump_t *dump, const value_t *value) {
  run_spend(dump->run, 1);
  run_enter(dump->run);
  switch (value->type) {
  case VALUE_NONE: sink_puts(dump->run, dump->sink, "null"); break;
  case VALUE_BOOL: sink_puts(dump->run, dump->sink, value->boolean ? "true" : "false"); break;
  case VALUE_INT:
  case VALUE_BIGINT: value_repr(dump->run, dump->sink, value); break;
  case VALUE_FLOAT: dump_float(dump, value->number, value->request); break;
  case VALUE_STRING: dump_string(dump, value->string); break;
  case VALUE_LIST:
  case VALUE_TUPLE: dump_list(dump, value->list); break;
  case VALUE_DICT: dump_dict(dump, value->dict); break;
  default: run_fail(dump->run, "tojson: a %s is not JSON serializable", value_type_name(value));
  }
  run_leave(dump->run);
}

static const str_t *separator(run_t *run, const value_t *pair, uint32_t index) {
  const value_list_t *list = value_list(run, pair);
  if (list->count != 2) run_fail(run, "tojson: separators must be two strings");
  if (list->items[index].type != VALUE_STRING)
    run_fail(run, "tojson: separators must be two strings");
  return list->items[index].string;
}

value_t filter_tojson(run_t *run, const value_t *in, const arguments_t *arguments) {
  static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
  value_t given[4];
  arguments_bind(run, arguments, "tojson", names, given);
  dump_t dump = {.run = run, .sink = sink_new(run)};
  dump.ascii = value_truth(&given[0]);
  dump.sorted = value_truth(&given[3]);
  int64_t width;
  if (given[1].type == VALUE_STRING) {
    dump.indent = given[1].string;
  } else if (value_integer(&given[1], &width)) {
    dump.indent = str_repeat(run, str_text(run, " "), width);
  } else if (given[1].type != VALUE_NONE && given[1].type != VALUE_UNDEFINED) {
    run_fail(run, "tojson: indent must be a number or a string");
  }
  dump.item_separator = str_text(run, dump.indent == NULL ? ", " : ",");
  dump.key_separator = str_text(run, ": ");
  if (given[2].type != VALUE_NONE && given[2].type != VALUE_UNDEFINED) {
    dump.item_separator = separator(run, &given[2], 0);
    dump.key_separator = separator(run, &given[2], 1);
  }
  dump_value(&dump, in);
  return value_string(sink_str(run, dump.sink));
}
