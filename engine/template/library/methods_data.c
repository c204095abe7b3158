/* methods_data.c: finding and calling methods; those of lists, dicts and cyclers.
 *
 * The rendering thread only. Methods that change a list or a dict work on what the template has
 * built; on values of the request they fail, so a template cannot change its input.
 */
#include "engine/template/library/methods.h"
#include "engine/template/run/eval.h"

#include <string.h>

typedef struct method_row {
  const char *name;
  int number;
} method_row_t;

#define X(name, spelling) {spelling, METHOD_##name},
static const method_row_t string_rows[] = {STRING_METHODS(X){NULL, 0}};
static const method_row_t list_rows[] = {LIST_METHODS(X){NULL, 0}};
static const method_row_t dict_rows[] = {DICT_METHODS(X){NULL, 0}};
#undef X
static const method_row_t cycler_rows[] = {
    {"next", METHOD_CYCLER_NEXT}, {"reset", METHOD_CYCLER_RESET}, {NULL, 0}};

static bool is_one_of(const str_t *name, const char *const *list) {
  for (; *list != NULL; list++)
    if (str_is(name, *list)) return true;
  return false;
}

int method_find(const value_t *value, const str_t *name) {
  static const char *const foreign_string[] = {
      "casefold", "encode",    "expandtabs", "format_map", "isidentifier", "isprintable", "istitle",
      "swapcase", "maketrans", "translate",  NULL};
  static const char *const foreign_markup[] = {"striptags", "unescape", "escape", NULL};
  const method_row_t *rows = NULL;
  switch (value->type) {
  case VALUE_STRING:
    rows = string_rows;
    if (is_one_of(name, foreign_string)) return -2;
    if (value->markup && is_one_of(name, foreign_markup)) return -2;
    break;
  case VALUE_LIST:
  case VALUE_TUPLE: rows = list_rows; break;
  case VALUE_DICT:
    rows = dict_rows;
    if (str_is(name, "fromkeys")) return -2;
    break;
  case VALUE_CYCLER: rows = cycler_rows; break;
  default: return -1;
  }
  for (; rows->name != NULL; rows++)
    if (str_is(name, rows->name)) {
      bool of_tuple = rows->number == METHOD_LIST_INDEX || rows->number == METHOD_LIST_COUNT;
      return value->type == VALUE_TUPLE && !of_tuple ? -1 : rows->number;
    }
  return -1;
}

static void bind(run_t *run, const arguments_t *args, uint32_t required, uint32_t most,
                 value_t *out) {
  if (args->num_named > 0) run_fail(run, "this method takes no named arguments");
  if (args->num_positional < required || args->num_positional > most)
    run_fail(run, "this method takes %u to %u arguments", required, most);
  for (uint32_t i = 0; i < most; i++)
    out[i] = i < args->num_positional ? args->positional[i] : value_missing();
}

/* ---- lists ---- */

static value_t list_search(run_t *run, const value_list_t *list, const arguments_t *args,
                           bool count) {
  value_t values[1];
  int64_t found = 0;
  bind(run, args, 1, 1, values);
  for (uint32_t i = 0; i < list->count; i++) {
    if (!value_equal(run, &list->items[i], &values[0])) continue;
    if (!count) return value_int(i);
    found++;
  }
  if (!count) run_fail(run, "index: the value is not in the list");
  return value_int(found);
}

/* Position for insert and pop: clamped, or checked. */
static uint32_t position(run_t *run, const value_list_t *list, const value_t *value, bool clamp) {
  int64_t at = argument_integer(run, value, "a position", (int64_t)list->count - 1);
  if (at < 0) at += list->count;
  if (clamp) return at < 0 ? 0 : at > list->count ? list->count : (uint32_t)at;
  if (at < 0 || at >= list->count) run_fail(run, "pop: the list is not that long");
  return (uint32_t)at;
}

static value_t list_take(run_t *run, value_list_t *list, uint32_t at) {
  value_t value = list->items[at];
  run_spend(run, list->count - at);
  list->count--;
  memmove(list->items + at, list->items + at + 1, (list->count - at) * sizeof *list->items);
  return value;
}

static void list_insert(run_t *run, value_list_t *list, uint32_t at, value_t value) {
  list_push(run, list, value);
  run_spend(run, list->count - at);
  memmove(list->items + at + 1, list->items + at, (list->count - 1 - at) * sizeof *list->items);
  list->items[at] = value;
}

static void list_sort(run_t *run, value_list_t *list, const arguments_t *args) {
  static const char *const names[] = {"reverse", NULL};
  value_t values[1];
  if (args->num_positional > 0) run_fail(run, "sort takes only named arguments");
  arguments_bind(run, args, "sort", names, values);
  value_t *keys = run_take_array(run, list->count + 1, sizeof *keys, false);
  if (list->count > 0) memcpy(keys, list->items, list->count * sizeof *keys);
  sort_values(run, keys, list->items, list->count, value_truth(&values[0]));
}

static value_list_t *list_copy(run_t *run, const value_list_t *from) {
  value_list_t *list = list_new(run, from->count);
  run_spend(run, from->count / 4);
  for (uint32_t i = 0; i < from->count; i++) list_push(run, list, from->items[i]);
  return list;
}

static value_t change_list(run_t *run, value_list_t *list, int number, const arguments_t *args) {
  value_t values[2];
  switch (number) {
  case METHOD_LIST_APPEND:
    bind(run, args, 1, 1, values);
    list_push(run, list, values[0]);
    break;
  case METHOD_LIST_EXTEND: {
    bind(run, args, 1, 1, values);
    const value_list_t *more = list_copy(run, value_list(run, &values[0]));
    for (uint32_t i = 0; i < more->count; i++) list_push(run, list, more->items[i]);
    break;
  }
  case METHOD_LIST_INSERT:
    bind(run, args, 2, 2, values);
    list_insert(run, list, position(run, list, &values[0], true), values[1]);
    break;
  case METHOD_LIST_POP:
    bind(run, args, 0, 1, values);
    return list_take(run, list, position(run, list, &values[0], false));
  case METHOD_LIST_REMOVE: {
    value_t at = list_search(run, list, args, false);
    (void)list_take(run, list, (uint32_t)at.integer);
    break;
  }
  case METHOD_LIST_CLEAR:
    bind(run, args, 0, 0, values);
    list->count = 0;
    break;
  case METHOD_LIST_REVERSE:
    bind(run, args, 0, 0, values);
    for (uint32_t i = 0; i < list->count / 2; i++) {
      value_t other = list->items[i];
      list->items[i] = list->items[list->count - 1 - i];
      list->items[list->count - 1 - i] = other;
    }
    break;
  default: list_sort(run, list, args); break;
  }
  return value_none();
}

static value_t method_of_list(run_t *run, const value_t *self, int number,
                              const arguments_t *args) {
  if (number == METHOD_LIST_INDEX) return list_search(run, self->list, args, false);
  if (number == METHOD_LIST_COUNT) return list_search(run, self->list, args, true);
  if (number == METHOD_LIST_COPY) return VALUE_OF(VALUE_LIST, list, list_copy(run, self->list));
  if (self->list->frozen) run_fail(run, "a list of the request cannot be changed");
  return change_list(run, self->list, number, args);
}

/* ---- dicts ---- */

static value_t *find_key(run_t *run, const dict_t *dict, const value_t *key) {
  if (!value_hashable(key)) run_fail(run, "unhashable type: %s", value_type_name(key));
  return dict_find(run, dict, key);
}

static value_t view_of(run_t *run, dict_t *dict, int kind) {
  view_t *view = run_take(run, sizeof *view, false);
  *view = (view_t){dict, (unsigned)kind};
  return VALUE_OF(VALUE_VIEW, view, view);
}

static value_t dict_take(run_t *run, dict_t *dict, const value_t *found) {
  value_t result = *found;
  size_t at = (size_t)((const dict_entry_t *)(const void *)((const char *)found -
                                                            offsetof(dict_entry_t, value)) -
                       dict->entries);
  run_spend(run, dict->count - at);
  dict->count--;
  memmove(dict->entries + at, dict->entries + at + 1, (dict->count - at) * sizeof *dict->entries);
  return result;
}

static void dict_update(run_t *run, dict_t *dict, const arguments_t *args) {
  if (args->num_positional > 1) run_fail(run, "update takes one mapping");
  value_t more = function_call(run, function_find(&(str_t){.bytes = "dict", .length = 4}), args);
  for (uint32_t i = 0; i < more.dict->count; i++)
    dict_set(run, dict, more.dict->entries[i].key, more.dict->entries[i].value);
}

static value_t change_dict(run_t *run, dict_t *dict, int number, const arguments_t *args) {
  value_t values[2], *found;
  switch (number) {
  case METHOD_DICT_POP:
    bind(run, args, 1, 2, values);
    found = find_key(run, dict, &values[0]);
    if (found != NULL) return dict_take(run, dict, found);
    if (value_is_missing(&values[1])) run_fail(run, "pop: the key is not there");
    return values[1];
  case METHOD_DICT_UPDATE: dict_update(run, dict, args); return value_none();
  case METHOD_DICT_SETDEFAULT:
    bind(run, args, 1, 2, values);
    found = find_key(run, dict, &values[0]);
    if (found != NULL) return *found;
    if (value_is_missing(&values[1])) values[1] = value_none();
    dict_set(run, dict, values[0], values[1]);
    return values[1];
  case METHOD_DICT_POPITEM: {
    bind(run, args, 0, 0, values);
    if (dict->count == 0) run_fail(run, "popitem: the dict is empty");
    value_list_t *pair = list_new(run, 2);
    dict->count--;
    list_push(run, pair, dict->entries[dict->count].key);
    list_push(run, pair, dict->entries[dict->count].value);
    return VALUE_OF(VALUE_TUPLE, list, pair);
  }
  default:
    bind(run, args, 0, 0, values);
    dict->count = 0;
    return value_none();
  }
}

static value_t method_of_dict(run_t *run, const value_t *self, int number,
                              const arguments_t *args) {
  value_t values[2];
  dict_t *dict = self->dict;
  if (number == METHOD_DICT_GET) {
    bind(run, args, 1, 2, values);
    const value_t *found = find_key(run, dict, &values[0]);
    if (found != NULL) return *found;
    return value_is_missing(&values[1]) ? value_none() : values[1];
  }
  if (number <= METHOD_DICT_VALUES) bind(run, args, 0, 0, values);
  if (number == METHOD_DICT_ITEMS) return view_of(run, dict, VIEW_ITEMS);
  if (number == METHOD_DICT_KEYS) return view_of(run, dict, VIEW_KEYS);
  if (number == METHOD_DICT_VALUES) return view_of(run, dict, VIEW_VALUES);
  if (number == METHOD_DICT_COPY) {
    bind(run, args, 0, 0, values);
    dict_t *copy = dict_new(run, dict->count);
    run_spend(run, dict->count / 2);
    for (uint32_t i = 0; i < dict->count; i++)
      dict_append(run, copy, dict->entries[i].key, dict->entries[i].value);
    return VALUE_OF(VALUE_DICT, dict, copy);
  }
  if (dict->frozen) run_fail(run, "a mapping of the request cannot be changed");
  return change_dict(run, dict, number, args);
}

value_t method_call(run_t *run, const method_t *method, const arguments_t *arguments) {
  const value_t *self = &method->self;
  value_t values[1];
  switch (self->type) {
  case VALUE_STRING: return method_of_string(run, self, method->number, arguments);
  case VALUE_LIST:
  case VALUE_TUPLE: return method_of_list(run, self, method->number, arguments);
  case VALUE_DICT: return method_of_dict(run, self, method->number, arguments);
  case VALUE_LOOP: return loop_method(run, self->loop, method->number, arguments);
  default: break;
  }
  bind(run, arguments, 0, 0, values);
  cycler_t *cycler = self->cycler;
  if (method->number == METHOD_CYCLER_RESET) {
    cycler->at = 0;
    return value_none();
  }
  value_t now = cycler->items->items[cycler->at];
  cycler->at = (cycler->at + 1) % cycler->items->count;
  return now;
}
