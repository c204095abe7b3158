/* value.c: truth, equality, order, containers: Python's rules over template values.
 *
 * The rendering thread only; walks over data pay fuel and count their nesting.
 */
#include "engine/template/value.h"

#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *value_type_name(const value_t *v) {
  static const char *const names[] = {
      [VALUE_UNDEFINED] = "Undefined", [VALUE_NONE] = "None",
      [VALUE_BOOL] = "bool",           [VALUE_INT] = "int",
      [VALUE_BIGINT] = "int",          [VALUE_FLOAT] = "float",
      [VALUE_STRING] = "str",          [VALUE_LIST] = "list",
      [VALUE_TUPLE] = "tuple",         [VALUE_DICT] = "dict",
      [VALUE_VIEW] = "dict view",      [VALUE_RANGE] = "range",
      [VALUE_ITERATOR] = "generator",  [VALUE_NAMESPACE] = "Namespace",
      [VALUE_LOOP] = "loop",           [VALUE_MACRO] = "macro",
      [VALUE_METHOD] = "method",       [VALUE_FUNCTION] = "function",
      [VALUE_CYCLER] = "cycler",       [VALUE_JOINER] = "joiner"};
  return names[v->type];
}

bool value_length(const value_t *v, uint32_t *out) {
  switch (v->type) {
  case VALUE_UNDEFINED: *out = 0; return true;
  case VALUE_STRING: *out = str_chars(v->string); return true;
  case VALUE_LIST:
  case VALUE_TUPLE: *out = v->list->count; return true;
  case VALUE_DICT: *out = v->dict->count; return true;
  case VALUE_VIEW: *out = v->view->dict->count; return true;
  case VALUE_RANGE: *out = v->range->count; return true;
  case VALUE_LOOP: return false;
  default: return false;
  }
}

bool value_truth(const value_t *v) {
  uint32_t length;
  switch (v->type) {
  case VALUE_NONE: return false;
  case VALUE_BOOL: return v->boolean;
  case VALUE_INT: return v->integer != 0;
  case VALUE_FLOAT: return v->number != 0;
  case VALUE_STRING: return v->string->length > 0;
  default: return !value_length(v, &length) || length > 0;
  }
}

bool value_is_number(const value_t *v) {
  return v->type == VALUE_BOOL || v->type == VALUE_INT || v->type == VALUE_FLOAT;
}

bool value_integer(const value_t *v, int64_t *out) {
  if (v->type == VALUE_INT)
    *out = v->integer;
  else if (v->type == VALUE_BOOL)
    *out = v->boolean;
  else
    return false;
  return true;
}

double value_number(const value_t *v) {
  if (v->type == VALUE_FLOAT) return v->number;
  return v->type == VALUE_INT ? (double)v->integer : (double)v->boolean;
}

/* -1, 0, 1, or 2 when one is not a number. Python compares int and float exactly. */
static int compare_numbers(const value_t *a, const value_t *b) {
  int64_t x, y;
  if (value_integer(a, &x) && value_integer(b, &y)) return x < y ? -1 : x > y;
  if (a->type == VALUE_FLOAT && b->type == VALUE_FLOAT) {
    if (isnan(a->number) || isnan(b->number)) return 2;
    return a->number < b->number ? -1 : a->number > b->number;
  }
  if (a->type != VALUE_FLOAT) {
    int order = compare_numbers(b, a);
    return order == 2 ? 2 : -order;
  }
  (void)value_integer(b, &y);
  double f = a->number;
  if (isnan(f)) return 2;
  if (f >= 9223372036854775808.0) return 1;
  if (f < -9223372036854775808.0) return -1;
  int64_t whole = (int64_t)f;
  if (whole != y) return whole < y ? -1 : 1;
  double rest = f - (double)whole;
  return rest < 0 ? -1 : rest > 0;
}

static bool equal_lists(run_t *run, const list_t *a, const list_t *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++)
    if (!value_equal(run, &a->items[i], &b->items[i])) return false;
  return true;
}

static bool equal_dicts(run_t *run, const dict_t *a, const dict_t *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++) {
    const value_t *other = dict_find(run, b, &a->entries[i].key);
    if (other == NULL || !value_equal(run, &a->entries[i].value, other)) return false;
  }
  return true;
}

static bool equal_views(run_t *run, const view_t *a, const view_t *b) {
  if (a == b) return true;
  if (a->kind == VIEW_VALUES || a->kind != b->kind) return false;
  if (a->kind == VIEW_ITEMS) return equal_dicts(run, a->dict, b->dict);
  if (a->dict->count != b->dict->count) return false;
  for (uint32_t i = 0; i < a->dict->count; i++)
    if (dict_find(run, b->dict, &a->dict->entries[i].key) == NULL) return false;
  return true;
}

static bool equal_same_type(run_t *run, const value_t *a, const value_t *b) {
  switch (a->type) {
  case VALUE_UNDEFINED:
  case VALUE_NONE: return true;
  case VALUE_BIGINT:
  case VALUE_STRING:
    if (a->string->length == b->string->length) run_spend_bytes(run, a->string->length);
    return str_equal(a->string, b->string);
  case VALUE_LIST:
  case VALUE_TUPLE: return equal_lists(run, a->list, b->list);
  case VALUE_DICT: return equal_dicts(run, a->dict, b->dict);
  case VALUE_VIEW: return equal_views(run, a->view, b->view);
  case VALUE_RANGE:
    return a->range->count == b->range->count &&
           (a->range->count == 0 || (a->range->start == b->range->start &&
                                     (a->range->count == 1 || a->range->step == b->range->step)));
  case VALUE_METHOD: run_fail(run, "methods cannot be compared");
  case VALUE_FUNCTION: return a->function == b->function;
  default: return a->dict == b->dict; /* identity */
  }
}

bool value_equal(run_t *run, const value_t *a, const value_t *b) {
  run_spend(run, 1);
  if (value_is_number(a) && value_is_number(b)) return compare_numbers(a, b) == 0;
  if (a->type != b->type) {
    if ((a->type == VALUE_BIGINT && value_is_number(b)) ||
        (b->type == VALUE_BIGINT && value_is_number(a)))
      run_fail(run, "integers beyond 64 bits cannot be compared");
    return false;
  }
  run_enter(run);
  bool same = equal_same_type(run, a, b);
  run_leave(run);
  return same;
}

static bool less_lists(run_t *run, const list_t *a, const list_t *b) {
  for (uint32_t i = 0; i < a->count && i < b->count; i++)
    if (!value_equal(run, &a->items[i], &b->items[i]))
      return value_less(run, &a->items[i], &b->items[i]);
  return a->count < b->count;
}

bool value_less(run_t *run, const value_t *a, const value_t *b) {
  run_spend(run, 1);
  if (value_is_number(a) && value_is_number(b)) return compare_numbers(a, b) == -1;
  if (a->type == VALUE_STRING && b->type == VALUE_STRING) {
    run_spend_bytes(run, a->string->length);
    return str_compare(a->string, b->string) < 0;
  }
  if (a->type == b->type && (a->type == VALUE_LIST || a->type == VALUE_TUPLE)) {
    run_enter(run);
    bool less = less_lists(run, a->list, b->list);
    run_leave(run);
    return less;
  }
  run_fail(run, "'<' cannot compare %s and %s", value_type_name(a), value_type_name(b));
}

bool value_contains(run_t *run, const value_t *item, const value_t *container) {
  if (container->type == VALUE_STRING) {
    if (item->type != VALUE_STRING)
      run_fail(run, "'in <string>' needs a string on its left, not %s", value_type_name(item));
    return str_find(run, container->string, 0, container->string->length, item->string) >= 0;
  }
  if (container->type == VALUE_DICT ||
      (container->type == VALUE_VIEW && container->view->kind == VIEW_KEYS)) {
    const dict_t *dict = container->type == VALUE_DICT ? container->dict : container->view->dict;
    if (!value_hashable(item)) run_fail(run, "unhashable type: %s", value_type_name(item));
    return dict_find(run, dict, item) != NULL;
  }
  const list_t *list = value_list(run, container);
  for (uint32_t i = 0; i < list->count; i++)
    if (value_equal(run, item, &list->items[i])) return true;
  return false;
}

/* ---- lists and dicts ---- */

list_t *list_new(run_t *run, uint32_t capacity) {
  list_t *list = run_take(run, sizeof *list, true);
  list->capacity = capacity;
  if (capacity > 0) list->items = run_take_array(run, capacity, sizeof *list->items, false);
  return list;
}

void list_push(run_t *run, list_t *list, value_t v) {
  if (list->count == list->capacity) {
    uint32_t capacity = list->capacity == 0 ? 4 : 2 * list->capacity;
    value_t *items = run_take_array(run, capacity, sizeof *items, false);
    run_spend(run, list->count / 4);
    if (list->count > 0) memcpy(items, list->items, list->count * sizeof *items);
    list->items = items;
    list->capacity = capacity;
  }
  list->items[list->count++] = v;
}

dict_t *dict_new(run_t *run, uint32_t capacity) {
  dict_t *dict = run_take(run, sizeof *dict, true);
  dict->capacity = capacity;
  if (capacity > 0) dict->entries = run_take_array(run, capacity, sizeof *dict->entries, false);
  return dict;
}

value_t *dict_find_text(run_t *run, const dict_t *dict, const str_t *key) {
  run_spend(run, dict->count / 8);
  for (uint32_t i = 0; i < dict->count; i++) {
    const value_t *k = &dict->entries[i].key;
    if (k->type == VALUE_STRING && str_equal(k->string, key)) return &dict->entries[i].value;
  }
  return NULL;
}

value_t *dict_find(run_t *run, const dict_t *dict, const value_t *key) {
  if (key->type == VALUE_STRING) return dict_find_text(run, dict, key->string);
  for (uint32_t i = 0; i < dict->count; i++)
    if (value_equal(run, &dict->entries[i].key, key)) return &dict->entries[i].value;
  return NULL;
}

bool value_hashable(const value_t *v) {
  if (v->type == VALUE_LIST || v->type == VALUE_DICT || v->type == VALUE_VIEW) return false;
  if (v->type == VALUE_TUPLE)
    for (uint32_t i = 0; i < v->list->count; i++)
      if (!value_hashable(&v->list->items[i])) return false;
  return true;
}

void dict_append(run_t *run, dict_t *dict, value_t key, value_t v) {
  if (dict->count == dict->capacity) {
    uint32_t capacity = dict->capacity == 0 ? 4 : 2 * dict->capacity;
    dict_entry_t *entries = run_take_array(run, capacity, sizeof *entries, false);
    run_spend(run, dict->count / 2);
    if (dict->count > 0) memcpy(entries, dict->entries, dict->count * sizeof *entries);
    dict->entries = entries;
    dict->capacity = capacity;
  }
  dict->entries[dict->count++] = (dict_entry_t){key, v};
}

void dict_set(run_t *run, dict_t *dict, value_t key, value_t v) {
  if (!value_hashable(&key)) run_fail(run, "unhashable type: %s", value_type_name(&key));
  value_t *old = dict_find(run, dict, &key);
  if (old != NULL)
    *old = v;
  else
    dict_append(run, dict, key, v);
}

/* ---- iteration ---- */

bool value_iterable(const value_t *v) {
  switch (v->type) {
  case VALUE_UNDEFINED:
  case VALUE_STRING:
  case VALUE_LIST:
  case VALUE_TUPLE:
  case VALUE_DICT:
  case VALUE_VIEW:
  case VALUE_RANGE:
  case VALUE_ITERATOR:
  case VALUE_LOOP: return true;
  default: return false;
  }
}

static list_t *list_of_chars(run_t *run, const str_t *s) {
  list_t *list = list_new(run, str_chars(s));
  for (size_t at = 0; at < s->length;) {
    size_t begin = at;
    (void)str_next(s->bytes, &at);
    list_push(run, list, value_string(str_part(run, s, begin, at)));
  }
  run_spend(run, list->count);
  return list;
}

static list_t *list_of_view(run_t *run, const dict_t *dict, int kind) {
  list_t *list = list_new(run, dict->count);
  run_spend(run, dict->count / 4);
  for (uint32_t i = 0; i < dict->count; i++) {
    const dict_entry_t *entry = &dict->entries[i];
    if (kind == VIEW_ITEMS) {
      list_t *pair = list_new(run, 2);
      list_push(run, pair, entry->key);
      list_push(run, pair, entry->value);
      list_push(run, list, VALUE_OF(VALUE_TUPLE, list, pair));
    } else {
      list_push(run, list, kind == VIEW_KEYS ? entry->key : entry->value);
    }
  }
  return list;
}

list_t *value_list(run_t *run, const value_t *v) {
  switch (v->type) {
  case VALUE_UNDEFINED: return list_new(run, 0);
  case VALUE_STRING: return list_of_chars(run, v->string);
  case VALUE_LIST:
  case VALUE_TUPLE: return v->list;
  case VALUE_DICT: return list_of_view(run, v->dict, VIEW_KEYS);
  case VALUE_VIEW: return list_of_view(run, v->view->dict, v->view->kind);
  case VALUE_ITERATOR: return iterator_list(run, v->iterator);
  case VALUE_RANGE: {
    list_t *list = list_new(run, v->range->count);
    run_spend(run, v->range->count / 4);
    for (uint32_t i = 0; i < v->range->count; i++)
      list_push(run, list, value_int(v->range->start + (int64_t)i * v->range->step));
    return list;
  }
  default: run_fail(run, "%s cannot be iterated", value_type_name(v));
  }
}

/* ---- JSON ---- */

static value_t from_number(run_t *run, const json_t *json) {
  int64_t whole;
  double f;
  bool integral = true;
  for (uint32_t i = 0; i < json->length; i++)
    if (strchr(".eE", json->text[i]) != NULL) integral = false;
  value_t v = value_none();
  if (integral && json_int64(json, &whole)) {
    v = value_int(whole);
  } else if (integral) {
    v = VALUE_OF(VALUE_BIGINT, string, str_wrap(run, json->text, json->length, ORIGIN_REQUEST));
  } else {
    if (!json_double(json, &f)) run_fail(run, "a number is beyond the range of floats");
    v = value_float(f);
  }
  v.request = true;
  return v;
}

value_t value_from_json(run_t *run, const json_t *json) {
  run_spend(run, 1);
  switch ((json_type_t)json->type) {
  case JSON_NULL: return value_none();
  case JSON_FALSE: return value_bool(false);
  case JSON_TRUE: return value_bool(true);
  case JSON_NUMBER: return from_number(run, json);
  case JSON_STRING:
    run->input_bytes += json->length;
    return value_string(str_wrap(run, json->text, json->length, ORIGIN_REQUEST));
  case JSON_ARRAY: {
    list_t *list = list_new(run, json->count);
    JSON_EACH(item, json) list_push(run, list, value_from_json(run, item));
    list->frozen = true;
    return VALUE_OF(VALUE_LIST, list, list);
  }
  case JSON_OBJECT: {
    dict_t *dict = dict_new(run, json->count);
    JSON_EACH(item, json) {
      str_t *key = str_wrap(run, item->key, item->key_length, ORIGIN_REQUEST);
      run->input_bytes += item->key_length;
      dict_append(run, dict, value_string(key), value_from_json(run, item));
    }
    dict->frozen = true;
    return VALUE_OF(VALUE_DICT, dict, dict);
  }
  }
  return value_none();
}
