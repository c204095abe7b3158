/* value.c: truth, equality, order, containers: the rules of Python for template values.
 *
 * The rendering thread only. Walks over data cost fuel and count their nesting.
 */
#include "engine/template/value.h"

#include "engine/base/util.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *value_type_name(const value_t *value) {
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
  return names[value->type];
}

bool value_length(const value_t *value, uint32_t *out) {
  switch (value->type) {
  case VALUE_UNDEFINED: *out = 0; return true;
  case VALUE_STRING: *out = str_chars(value->string); return true;
  case VALUE_LIST:
  case VALUE_TUPLE: *out = value->list->count; return true;
  case VALUE_DICT: *out = value->dict->count; return true;
  case VALUE_VIEW: *out = value->view->dict->count; return true;
  case VALUE_RANGE: *out = value->range->count; return true;
  default: return false;
  }
}

bool value_truth(const value_t *value) {
  uint32_t length;
  switch (value->type) {
  case VALUE_NONE: return false;
  case VALUE_BOOL: return value->boolean;
  case VALUE_INT: return value->integer != 0;
  case VALUE_FLOAT: return value->number != 0;
  case VALUE_STRING: return value->string->length > 0;
  default: return !value_length(value, &length) || length > 0;
  }
}

bool value_is_number(const value_t *value) {
  return value->type == VALUE_BOOL || value->type == VALUE_INT || value->type == VALUE_FLOAT;
}

bool value_integer(const value_t *value, int64_t *out) {
  if (value->type == VALUE_INT)
    *out = value->integer;
  else if (value->type == VALUE_BOOL)
    *out = value->boolean;
  else
    return false;
  return true;
}

double value_number(const value_t *value) {
  if (value->type == VALUE_FLOAT) return value->number;
  return value->type == VALUE_INT ? (double)value->integer : (double)value->boolean;
}

/* -1, 0, 1 as in strcmp, or 2 if either is NaN. As in Python an int and a float are compared
 * exactly: not rounded to a float first. */
static int compare_numbers(const value_t *left, const value_t *right) {
  int64_t x, y;
  if (value_integer(left, &x) && value_integer(right, &y)) return x < y ? -1 : x > y;
  if (left->type == VALUE_FLOAT && right->type == VALUE_FLOAT) {
    if (isnan(left->number) || isnan(right->number)) return 2;
    return left->number < right->number ? -1 : left->number > right->number;
  }
  if (left->type != VALUE_FLOAT) {
    int order = compare_numbers(right, left);
    return order == 2 ? 2 : -order;
  }
  (void)value_integer(right, &y);
  double f = left->number;
  if (isnan(f)) return 2;
  if (f >= 9223372036854775808.0) return 1;
  if (f < -9223372036854775808.0) return -1;
  int64_t whole = (int64_t)f;
  if (whole != y) return whole < y ? -1 : 1;
  double rest = f - (double)whole;
  return rest < 0 ? -1 : rest > 0;
}

static bool equal_lists(run_t *run, const value_list_t *left, const value_list_t *right) {
  if (left->count != right->count) return false;
  for (uint32_t i = 0; i < left->count; i++)
    if (!value_equal(run, &left->items[i], &right->items[i])) return false;
  return true;
}

static bool equal_dicts(run_t *run, const dict_t *left, const dict_t *right) {
  if (left->count != right->count) return false;
  for (uint32_t i = 0; i < left->count; i++) {
    const value_t *other = dict_find(run, right, &left->entries[i].key);
    if (other == NULL || !value_equal(run, &left->entries[i].value, other)) return false;
  }
  return true;
}

static bool equal_views(run_t *run, const view_t *left, const view_t *right) {
  if (left == right) return true;
  if (left->kind == VIEW_VALUES || left->kind != right->kind) return false;
  if (left->kind == VIEW_ITEMS) return equal_dicts(run, left->dict, right->dict);
  if (left->dict->count != right->dict->count) return false;
  for (uint32_t i = 0; i < left->dict->count; i++)
    if (dict_find(run, right->dict, &left->dict->entries[i].key) == NULL) return false;
  return true;
}

static bool equal_same_type(run_t *run, const value_t *left, const value_t *right) {
  switch (left->type) {
  case VALUE_UNDEFINED:
  case VALUE_NONE: return true;
  case VALUE_BIGINT:
  case VALUE_STRING:
    if (left->string->length == right->string->length) run_spend_bytes(run, left->string->length);
    return str_equal(left->string, right->string);
  case VALUE_LIST:
  case VALUE_TUPLE: return equal_lists(run, left->list, right->list);
  case VALUE_DICT: return equal_dicts(run, left->dict, right->dict);
  case VALUE_VIEW: return equal_views(run, left->view, right->view);
  case VALUE_RANGE:
    return left->range->count == right->range->count &&
           (left->range->count == 0 ||
            (left->range->start == right->range->start &&
             (left->range->count == 1 || left->range->step == right->range->step)));
  case VALUE_METHOD: run_fail(run, "methods cannot be compared");
  case VALUE_FUNCTION: return left->function == right->function;
  default: return left->dict == right->dict; /* identity */
  }
}

bool value_equal(run_t *run, const value_t *left, const value_t *right) {
  run_spend(run, 1);
  if (value_is_number(left) && value_is_number(right)) return compare_numbers(left, right) == 0;
  if (left->type != right->type) {
    if ((left->type == VALUE_BIGINT && value_is_number(right)) ||
        (right->type == VALUE_BIGINT && value_is_number(left)))
      run_fail(run, "integers beyond 64 bits cannot be compared");
    return false;
  }
  run_enter(run);
  bool same = equal_same_type(run, left, right);
  run_leave(run);
  return same;
}

static bool less_lists(run_t *run, const value_list_t *left, const value_list_t *right) {
  for (uint32_t i = 0; i < left->count && i < right->count; i++)
    if (!value_equal(run, &left->items[i], &right->items[i]))
      return value_less(run, &left->items[i], &right->items[i]);
  return left->count < right->count;
}

bool value_less(run_t *run, const value_t *left, const value_t *right) {
  run_spend(run, 1);
  if (value_is_number(left) && value_is_number(right)) return compare_numbers(left, right) == -1;
  if (left->type == VALUE_STRING && right->type == VALUE_STRING) {
    run_spend_bytes(run, left->string->length);
    return str_compare(left->string, right->string) < 0;
  }
  if (left->type == right->type && (left->type == VALUE_LIST || left->type == VALUE_TUPLE)) {
    run_enter(run);
    bool less = less_lists(run, left->list, right->list);
    run_leave(run);
    return less;
  }
  run_fail(run, "'<' cannot compare %s and %s", value_type_name(left), value_type_name(right));
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
  const value_list_t *list = value_list(run, container);
  for (uint32_t i = 0; i < list->count; i++)
    if (value_equal(run, item, &list->items[i])) return true;
  return false;
}

/* ---- lists and dicts ---- */

value_list_t *list_new(run_t *run, uint32_t capacity) {
  value_list_t *list = run_take(run, sizeof *list, true);
  list->capacity = capacity;
  if (capacity > 0) list->items = run_take_array(run, capacity, sizeof *list->items, false);
  return list;
}

void list_push(run_t *run, value_list_t *list, value_t value) {
  if (list->count == list->capacity) {
    run_spend(run, list->count / 4);
    list->items = run_grow(run, list->items, list->count, MAX(4, list->count + 1),
                           sizeof *list->items, &list->capacity);
  }
  list->items[list->count++] = value;
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
    const value_t *value = &dict->entries[i].key;
    if (value->type == VALUE_STRING && str_equal(value->string, key))
      return &dict->entries[i].value;
  }
  return NULL;
}

value_t *dict_find(run_t *run, const dict_t *dict, const value_t *key) {
  if (key->type == VALUE_STRING) return dict_find_text(run, dict, key->string);
  for (uint32_t i = 0; i < dict->count; i++)
    if (value_equal(run, &dict->entries[i].key, key)) return &dict->entries[i].value;
  return NULL;
}

bool value_hashable(const value_t *value) {
  if (value->type == VALUE_LIST || value->type == VALUE_DICT || value->type == VALUE_VIEW)
    return false;
  if (value->type == VALUE_TUPLE)
    for (uint32_t i = 0; i < value->list->count; i++)
      if (!value_hashable(&value->list->items[i])) return false;
  return true;
}

void dict_append(run_t *run, dict_t *dict, value_t key, value_t value) {
  if (dict->count == dict->capacity) {
    run_spend(run, dict->count / 2);
    dict->entries = run_grow(run, dict->entries, dict->count, MAX(4, dict->count + 1),
                             sizeof *dict->entries, &dict->capacity);
  }
  dict->entries[dict->count++] = (dict_entry_t){key, value};
}

void dict_set(run_t *run, dict_t *dict, value_t key, value_t value) {
  if (!value_hashable(&key)) run_fail(run, "unhashable type: %s", value_type_name(&key));
  value_t *old = dict_find(run, dict, &key);
  if (old != NULL)
    *old = value;
  else
    dict_append(run, dict, key, value);
}

/* ---- iteration ---- */

bool value_iterable(const value_t *value) {
  switch (value->type) {
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

static value_list_t *list_of_chars(run_t *run, const str_t *str) {
  value_list_t *list = list_new(run, str_chars(str));
  for (size_t at = 0; at < str->length;) {
    size_t begin = at;
    (void)str_next(str->bytes, &at);
    list_push(run, list, value_string(str_part(run, str, begin, at)));
  }
  run_spend(run, list->count);
  return list;
}

static value_list_t *list_of_view(run_t *run, const dict_t *dict, int kind) {
  value_list_t *list = list_new(run, dict->count);
  run_spend(run, dict->count / 4);
  for (uint32_t i = 0; i < dict->count; i++) {
    const dict_entry_t *entry = &dict->entries[i];
    if (kind == VIEW_ITEMS) {
      value_list_t *pair = list_new(run, 2);
      list_push(run, pair, entry->key);
      list_push(run, pair, entry->value);
      list_push(run, list, VALUE_OF(VALUE_TUPLE, list, pair));
    } else {
      list_push(run, list, kind == VIEW_KEYS ? entry->key : entry->value);
    }
  }
  return list;
}

value_list_t *value_list(run_t *run, const value_t *value) {
  switch (value->type) {
  case VALUE_UNDEFINED: return list_new(run, 0);
  case VALUE_STRING: return list_of_chars(run, value->string);
  case VALUE_LIST:
  case VALUE_TUPLE: return value->list;
  case VALUE_DICT: return list_of_view(run, value->dict, VIEW_KEYS);
  case VALUE_VIEW: return list_of_view(run, value->view->dict, value->view->kind);
  case VALUE_ITERATOR: return iterator_list(run, value->iterator);
  case VALUE_RANGE: {
    value_list_t *list = list_new(run, value->range->count);
    run_spend(run, value->range->count / 4);
    for (uint32_t i = 0; i < value->range->count; i++)
      list_push(run, list, value_int(value->range->start + (int64_t)i * value->range->step));
    return list;
  }
  default: run_fail(run, "%s cannot be iterated", value_type_name(value));
  }
}

/* ---- JSON ---- */

static value_t from_number(run_t *run, const json_t *json) {
  int64_t whole;
  double f;
  bool integral = true;
  for (uint32_t i = 0; i < json->length; i++)
    if (strchr(".eE", json->text[i]) != NULL) integral = false;
  value_t value = value_none();
  if (integral && json_int64(json, &whole)) {
    value = value_int(whole);
  } else if (integral) {
    value = VALUE_OF(VALUE_BIGINT, string, str_wrap(run, json->text, json->length, ORIGIN_REQUEST));
  } else {
    if (!json_double(json, &f)) run_fail(run, "a number is beyond the range of floats");
    value = value_float(f);
  }
  value.request = true;
  return value;
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
    value_list_t *list = list_new(run, json->count);
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
