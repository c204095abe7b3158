/* filters_data.c: Jinja's filters over lists and mappings, and the sorting that they use.
 *
 * The rendering thread only. filter_NAME is Jinja's built-in filter NAME, with the same parameters
 * in the same order. A filter does not change its input `in`, except that it uses up an iterator.
 * Its result belongs to the render. It leaves by run_fail where Python would raise. Sorting is
 * stable, as Python's is. Sort keys ignore the case of strings unless case_sensitive is true.
 */
#include "engine/base/unicode_case.h"
#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <string.h>

static value_t as_list(value_list_t *list) {
  return VALUE_OF(VALUE_LIST, list, list);
}

/* Returns a new list of all elements, which the caller may change. */
static value_list_t *copy_list(run_t *run, const value_t *value) {
  const value_list_t *from = value_list(run, value);
  value_list_t *list = list_new(run, from->count);
  run_spend(run, from->count / 4);
  for (uint32_t i = 0; i < from->count; i++) list_push(run, list, from->items[i]);
  return list;
}

/* ---- sorting ---- */

/* Merge sort of keys[count] and values[count] together, by the keys. With `reverse`, larger keys
 * come first; equal keys keep their order in both directions, as in Python. spare[2 * count] is
 * work memory. */
static void merge_sort(run_t *run, value_t *keys, value_t *values, value_t *spare, uint32_t count,
                       bool reverse) {
  if (count < 2) return;
  uint32_t half = count / 2, left = 0, right = half;
  merge_sort(run, keys, values, spare, half, reverse);
  merge_sort(run, keys + half, values + half, spare, count - half, reverse);
  for (uint32_t i = 0; i < count; i++) {
    bool take_right = left == half;
    if (!take_right && right < count)
      take_right = reverse ? value_less(run, &keys[left], &keys[right])
                           : value_less(run, &keys[right], &keys[left]);
    uint32_t from = take_right ? right++ : left++;
    spare[2 * i] = keys[from];
    spare[2 * i + 1] = values[from];
  }
  for (uint32_t i = 0; i < count; i++) {
    keys[i] = spare[2 * i];
    values[i] = spare[2 * i + 1];
  }
}

void sort_values(run_t *run, value_t *keys, value_t *values, uint32_t count, bool reverse) {
  value_t *spare = run_take_array(run, 2 * (size_t)count + 1, sizeof *spare, false);
  merge_sort(run, keys, values, spare, count, reverse);
}

const dict_entry_t *sort_entries(run_t *run, const dict_t *dict) {
  value_t *keys = run_take_array(run, dict->count, sizeof *keys, false);
  value_t *order = run_take_array(run, dict->count, sizeof *order, false);
  dict_entry_t *sorted = run_take_array(run, dict->count, sizeof *sorted, false);
  for (uint32_t i = 0; i < dict->count; i++) {
    keys[i] = dict->entries[i].key;
    order[i] = value_int(i);
  }
  sort_values(run, keys, order, dict->count, false);
  for (uint32_t i = 0; i < dict->count; i++) sorted[i] = dict->entries[order[i].integer];
  return sorted;
}

/* Returns the key that comparisons use: a string in lower case, unless case_sensitive. */
static value_t fold(run_t *run, value_t key, bool case_sensitive) {
  return key.type == VALUE_STRING && !case_sensitive ? string_case(run, &key, CASE_LOWER) : key;
}

/* Returns the key of `sort`: a list with one value for each attribute in "a,b.c". Lists are
 * compared item by item. */
static value_t sort_key(run_t *run, const value_t *value, const value_t *attribute,
                        bool sensitive) {
  value_t none = value_missing();
  value_list_t *key = list_new(run, 1);
  const str_t comma = {.bytes = ",", .length = 1};
  if (attribute->type != VALUE_STRING) {
    list_push(run, key, fold(run, attribute_path(run, value, attribute, &none), sensitive));
    return as_list(key);
  }
  for (size_t begin = 0;;) {
    const str_t *str = attribute->string;
    int64_t hit = str_find(run, str, begin, str->length, &comma);
    size_t end = hit < 0 ? str->length : (size_t)hit;
    value_t path = value_string(str_part(run, str, begin, end));
    list_push(run, key, fold(run, attribute_path(run, value, &path, &none), sensitive));
    if (hit < 0) return as_list(key);
    begin = end + 1;
  }
}

static value_t filter_sort(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"reverse", "case_sensitive", "attribute", NULL};
  value_t given[3];
  arguments_bind(run, args, "sort", names, given);
  if (value_is_absent(&given[2])) given[2] = value_none();
  value_list_t *list = copy_list(run, in);
  value_t *keys = run_take_array(run, list->count, sizeof *keys, false);
  for (uint32_t i = 0; i < list->count; i++)
    keys[i] = sort_key(run, &list->items[i], &given[2], value_truth(&given[1]));
  sort_values(run, keys, list->items, list->count, value_truth(&given[0]));
  return as_list(list);
}

static value_t filter_dictsort(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"case_sensitive", "by", "reverse", NULL};
  value_t given[3];
  arguments_bind(run, args, "dictsort", names, given);
  uint32_t by = 0;
  if (!value_is_missing(&given[1])) {
    const str_t *str = argument_string(run, &given[1], "dictsort: by");
    by = str_is(str, "value");
    if (by == 0 && !str_is(str, "key")) run_fail(run, "dictsort: by is key or value");
  }
  if (in->type != VALUE_DICT) run_fail(run, "dictsort needs a mapping");
  view_t view = {in->dict, VIEW_ITEMS};
  value_t items = VALUE_OF(VALUE_VIEW, view, &view);
  value_list_t *list = value_list(run, &items);
  value_t *keys = run_take_array(run, list->count, sizeof *keys, false);
  for (uint32_t i = 0; i < list->count; i++)
    keys[i] = fold(run, list->items[i].list->items[by], value_truth(&given[0]));
  sort_values(run, keys, list->items, list->count, value_truth(&given[2]));
  return as_list(list);
}

/* min and max: of equal elements the first one. Undefined if there is none. */
static value_t extreme(run_t *run, const value_t *in, const arguments_t *args, bool largest) {
  static const char *const names[] = {"case_sensitive", "attribute", NULL};
  value_t given[2], none = value_missing(), best_key = value_undefined();
  arguments_bind(run, args, "min or max", names, given);
  if (value_is_absent(&given[1])) given[1] = value_none();
  const value_list_t *list = value_list(run, in);
  value_t best = value_undefined();
  for (uint32_t i = 0; i < list->count; i++) {
    value_t key = attribute_path(run, &list->items[i], &given[1], &none);
    key = fold(run, key, value_truth(&given[0]));
    bool better =
        i == 0 || (largest ? value_less(run, &best_key, &key) : value_less(run, &key, &best_key));
    if (!better) continue;
    best = list->items[i];
    best_key = key;
  }
  return best;
}

static value_t filter_min(run_t *run, const value_t *in, const arguments_t *args) {
  return extreme(run, in, args, false);
}
static value_t filter_max(run_t *run, const value_t *in, const arguments_t *args) {
  return extreme(run, in, args, true);
}

/* Returns tuples (key, members) in the order of the keys. Groups are formed by the folded key; the
 * tuple holds the key of the first member as it is. */
static value_t filter_groupby(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"attribute", "default", "case_sensitive", NULL};
  value_t given[3];
  arguments_bind(run, args, "groupby", names, given);
  if (value_is_missing(&given[0])) run_fail(run, "groupby needs an attribute");
  if (given[1].type == VALUE_NONE) given[1] = value_missing();
  value_list_t *list = copy_list(run, in), *groups = list_new(run, 0), *members = NULL;
  value_t *keys = run_take_array(run, list->count, sizeof *keys, false);
  for (uint32_t i = 0; i < list->count; i++)
    keys[i] = fold(run, attribute_path(run, &list->items[i], &given[0], &given[1]),
                   value_truth(&given[2]));
  sort_values(run, keys, list->items, list->count, false);
  for (uint32_t i = 0; i < list->count; i++) {
    if (i == 0 || !value_equal(run, &keys[i - 1], &keys[i])) {
      value_list_t *pair = list_new(run, 2);
      members = list_new(run, 0);
      pair->grouped = true;
      list_push(run, pair, attribute_path(run, &list->items[i], &given[0], &given[1]));
      list_push(run, pair, as_list(members));
      list_push(run, groups, VALUE_OF(VALUE_TUPLE, list, pair));
    }
    list_push(run, members, list->items[i]);
  }
  return as_list(groups);
}

/* ---- pieces of lists ---- */

static value_t filter_length(run_t *run, const value_t *in, const arguments_t *args) {
  uint32_t length;
  arguments_refuse(run, args, "length");
  if (!value_length(in, &length)) run_fail(run, "a %s has no length", value_type_name(in));
  return value_int(length);
}

static value_t filter_list(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "list");
  return as_list(copy_list(run, in));
}

static value_t filter_first(run_t *run, const value_t *in, const arguments_t *args) {
  value_t value;
  arguments_refuse(run, args, "first");
  if (in->type == VALUE_ITERATOR)
    return iterator_next(run, in->iterator, &value) ? value : value_undefined();
  if (in->type == VALUE_STRING) {
    value = value_int(0);
    return value_item(run, in, &value);
  }
  const value_list_t *list = value_list(run, in);
  return list->count == 0 ? value_undefined() : list->items[0];
}

static value_t filter_last(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "last");
  if (in->type == VALUE_ITERATOR) run_fail(run, "last: a generator cannot be reversed");
  const value_list_t *list = value_list(run, in);
  return list->count == 0 ? value_undefined() : list->items[list->count - 1];
}

static value_t filter_reverse(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "reverse");
  const value_list_t *list = value_list(run, in);
  value_list_t *reversed = list_new(run, list->count);
  for (uint32_t i = list->count; i-- > 0;) list_push(run, reversed, list->items[i]);
  value_t value = as_list(reversed);
  if (in->type == VALUE_STRING) {
    sink_t *sink = sink_new(run);
    for (uint32_t i = 0; i < reversed->count; i++)
      sink_put_str(run, sink, reversed->items[i].string);
    value = value_string(sink_str(run, sink));
    value.markup = in->markup;
    return value;
  }
  if (in->type == VALUE_ITERATOR) return value; /* Python cannot reverse a generator: a list */
  return iterator_new(run, ITERATE_LIST, &value, args);
}

static value_t filter_join(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"d", "attribute", NULL};
  value_t given[2], none = value_missing();
  arguments_bind(run, args, "join", names, given);
  const str_t *between = value_str(run, &given[0]);
  const value_list_t *list = value_list(run, in);
  sink_t *sink = sink_new(run);
  for (uint32_t i = 0; i < list->count; i++) {
    value_t value = list->items[i];
    if (!value_is_absent(&given[1])) value = attribute_path(run, &value, &given[1], &none);
    if (i > 0) sink_put_str(run, sink, between);
    value_print(run, sink, &value);
  }
  return value_string(sink_str(run, sink));
}

static value_t filter_default(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"default_value", "boolean", NULL};
  value_t given[2];
  arguments_bind(run, args, "default", names, given);
  bool takes = in->type == VALUE_UNDEFINED || (value_truth(&given[1]) && !value_truth(in));
  if (!takes) return *in;
  return value_is_missing(&given[0]) ? value_string(str_text(run, "")) : given[0];
}

static value_t filter_sum(run_t *run, const value_t *in, const arguments_t *args) {
  static const char *const names[] = {"attribute", "start", NULL};
  value_t given[2], none = value_missing();
  arguments_bind(run, args, "sum", names, given);
  value_t total = value_is_missing(&given[1]) ? value_int(0) : given[1];
  if (total.type == VALUE_STRING) run_fail(run, "sum cannot add strings");
  const value_list_t *list = value_list(run, in);
  for (uint32_t i = 0; i < list->count; i++) {
    value_t value = list->items[i];
    if (!value_is_absent(&given[0])) value = attribute_path(run, &value, &given[0], &none);
    total = value_operate(run, OP_ADD, &total, &value);
  }
  return total;
}

/* Filters that are generators in Jinja: filters.c evaluates them, and checks their arguments, at
 * the first iteration. */
#define LAZY(name, kind)                                                                           \
  static value_t name(run_t *run, const value_t *in, const arguments_t *args) {                    \
    return iterator_new(run, kind, in, args);                                                      \
  }
LAZY(filter_map, ITERATE_MAP)
LAZY(filter_select, ITERATE_SELECT)
LAZY(filter_reject, ITERATE_REJECT)
LAZY(filter_selectattr, ITERATE_SELECTATTR)
LAZY(filter_rejectattr, ITERATE_REJECTATTR)
LAZY(filter_unique, ITERATE_UNIQUE)
LAZY(filter_batch, ITERATE_BATCH)
LAZY(filter_slice, ITERATE_SLICE)

static value_t filter_items(run_t *run, const value_t *in, const arguments_t *args) {
  arguments_refuse(run, args, "items");
  return iterator_new(run, ITERATE_ITEMS, in, args);
}

const filter_row_t filters_data[] = {{"length", filter_length},
                                     {"count", filter_length},
                                     {"list", filter_list},
                                     {"join", filter_join},
                                     {"default", filter_default},
                                     {"d", filter_default},
                                     {"first", filter_first},
                                     {"last", filter_last},
                                     {"map", filter_map},
                                     {"select", filter_select},
                                     {"reject", filter_reject},
                                     {"selectattr", filter_selectattr},
                                     {"rejectattr", filter_rejectattr},
                                     {"items", filter_items},
                                     {"dictsort", filter_dictsort},
                                     {"sort", filter_sort},
                                     {"reverse", filter_reverse},
                                     {"unique", filter_unique},
                                     {"min", filter_min},
                                     {"max", filter_max},
                                     {"sum", filter_sum},
                                     {"groupby", filter_groupby},
                                     {"batch", filter_batch},
                                     {"slice", filter_slice},
                                     {NULL, NULL}};
