/* filters.c: the table of filters, and those that are lazy in Python, such as map and select.
 *
 * The rendering thread only. A lazy filter stores its source and arguments and is evaluated when
 * it is first iterated. It can be used once, has no length and is always true.
 */
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <string.h>

static const char *const refused_filters[] = {
    "attr",      "filesizeformat", "pprint",   "random",  "striptags",
    "urlencode", "urlize",         "wordwrap", "xmlattr", NULL};

enum { FILTERS_DATA_FROM = 128 };

static int find_row(const filter_row_t *rows, const str_t *name) {
  for (int i = 0; rows[i].name != NULL; i++)
    if (str_is(name, rows[i].name)) return i;
  return -1;
}

int library_filter(const str_t *name, bool *known) {
  int number = find_row(filters_text, name);
  *known = true;
  if (number >= 0) return number;
  number = find_row(filters_data, name);
  if (number >= 0) return FILTERS_DATA_FROM + number;
  *known = false;
  for (const char *const *r = refused_filters; *r != NULL; r++)
    if (str_is(name, *r)) *known = true;
  return -1;
}

value_t filter_apply(run_t *run, int filter, const value_t *in, const arguments_t *arguments) {
  const filter_row_t *row = filter >= FILTERS_DATA_FROM ? &filters_data[filter - FILTERS_DATA_FROM]
                                                        : &filters_text[filter];
  return row->function(run, in, arguments);
}

/* ---- lazy filters ---- */

value_t iterator_new(run_t *run, int kind, const value_t *source, const arguments_t *arguments) {
  iterator_t *iterator = run_take(run, sizeof *iterator, true);
  arguments_t *kept = run_take(run, sizeof *kept, false);
  *kept = *arguments; /* the arrays belong to the run already */
  iterator->kind = (unsigned)kind;
  iterator->source = *source;
  iterator->arguments = kept;
  return VALUE_OF(VALUE_ITERATOR, iterator, iterator);
}

/* Arguments without the first `drop` positional ones. */
static arguments_t without(const arguments_t *args, uint32_t drop) {
  arguments_t rest = *args;
  rest.positional += drop;
  rest.num_positional -= drop;
  return rest;
}

static int named_filter(run_t *run, const value_t *name, bool filter) {
  bool known;
  const str_t *str = argument_string(run, name, "the name of a filter or test");
  int number = filter ? library_filter(str, &known) : library_test(str, &known);
  char shown[48];
  if (number >= 0) return number;
  error_quote(shown, sizeof shown, str->bytes, str->length);
  run_fail(run, "no %s named `%s`", filter ? "filter" : "test", shown);
}

static void evaluate_map(run_t *run, const iterator_t *it, const value_list_t *source,
                         value_list_t *out) {
  const arguments_t *args = it->arguments;
  static const char *const names[] = {"attribute", "default", NULL};
  bool by_attribute = false;
  for (uint32_t i = 0; i < args->num_named; i++)
    by_attribute |= str_is(args->names[i], "attribute");
  if (args->num_positional == 0 && by_attribute) {
    value_t given[2];
    arguments_bind(run, args, "map", names, given);
    if (given[1].type == VALUE_NONE) given[1] = value_missing();
    for (uint32_t i = 0; i < source->count; i++)
      list_push(run, out, attribute_path(run, &source->items[i], &given[0], &given[1]));
    return;
  }
  if (args->num_positional == 0) run_fail(run, "map needs a filter");
  int number = named_filter(run, &args->positional[0], true);
  arguments_t rest = without(args, 1);
  for (uint32_t i = 0; i < source->count; i++)
    list_push(run, out, filter_apply(run, number, &source->items[i], &rest));
}

static void evaluate_select(run_t *run, const iterator_t *it, const value_list_t *source,
                            value_list_t *out) {
  arguments_t rest = *it->arguments;
  bool attribute = it->kind == ITERATE_SELECTATTR || it->kind == ITERATE_REJECTATTR;
  bool wanted = it->kind == ITERATE_SELECT || it->kind == ITERATE_SELECTATTR;
  value_t path = value_missing(), none = value_missing();
  int test = -1;
  if (attribute) {
    if (rest.num_positional == 0) run_fail(run, "selectattr needs an attribute");
    path = rest.positional[0];
    rest = without(&rest, 1);
  }
  if (rest.num_positional > 0) {
    test = named_filter(run, &rest.positional[0], false);
    rest = without(&rest, 1);
  }
  for (uint32_t i = 0; i < source->count; i++) {
    value_t value = source->items[i];
    if (attribute) value = attribute_path(run, &value, &path, &none);
    bool yes = test < 0 ? value_truth(&value) : test_apply(run, test, &value, &rest);
    if (yes == wanted) list_push(run, out, source->items[i]);
  }
}

static void evaluate_items(run_t *run, const iterator_t *it, value_list_t *out) {
  if (it->source.type == VALUE_UNDEFINED) return;
  if (it->source.type != VALUE_DICT) run_fail(run, "items needs a mapping");
  view_t view = {it->source.dict, VIEW_ITEMS};
  value_t value = VALUE_OF(VALUE_VIEW, view, &view);
  *out = *value_list(run, &value);
}

static void evaluate_unique(run_t *run, const iterator_t *it, value_list_t *out) {
  static const char *const names[] = {"case_sensitive", "attribute", NULL};
  value_t given[2], none = value_missing();
  const value_list_t *source = value_list(run, &it->source);
  arguments_bind(run, it->arguments, "unique", names, given);
  dict_t *seen = dict_new(run, 0);
  for (uint32_t i = 0; i < source->count; i++) {
    value_t key = source->items[i];
    if (given[1].type != VALUE_NONE && given[1].type != VALUE_UNDEFINED)
      key = attribute_path(run, &key, &given[1], &none);
    if (key.type == VALUE_STRING && !value_truth(&given[0])) key = string_case(run, &key, 1);
    if (!value_hashable(&key)) run_fail(run, "unique: unhashable type");
    if (dict_find(run, seen, &key) != NULL) continue;
    dict_append(run, seen, key, value_none());
    list_push(run, out, source->items[i]);
  }
}

static void evaluate_batch(run_t *run, const iterator_t *it, value_list_t *out) {
  static const char *const names[] = {"linecount", "fill_with", NULL};
  value_t given[2];
  value_list_t *row = NULL;
  const value_list_t *source = value_list(run, &it->source);
  arguments_bind(run, it->arguments, "batch", names, given);
  if (!value_is_number(&given[0])) run_fail(run, "batch needs a number");
  int64_t width = argument_integer(run, &given[0], "the width of batch", 0);
  bool fill = given[1].type != VALUE_NONE && !value_is_missing(&given[1]);
  for (uint32_t i = 0; i < source->count; i++) {
    if (row == NULL || row->count == width) {
      row = list_new(run, 0);
      list_push(run, out, VALUE_OF(VALUE_LIST, list, row));
      if (width == 0 && i == 0) out->items[0] = VALUE_OF(VALUE_LIST, list, list_new(run, 0));
      if (width == 0 && i == 0) list_push(run, out, VALUE_OF(VALUE_LIST, list, row));
    }
    list_push(run, row, source->items[i]);
  }
  if (row != NULL && fill && width > 100000) run_fail(run, "batch is too wide");
  while (row != NULL && fill && row->count < width) list_push(run, row, given[1]);
}

static void evaluate_slice(run_t *run, const iterator_t *it, value_list_t *out) {
  static const char *const names[] = {"slices", "fill_with", NULL};
  value_t given[2];
  const value_list_t *source = value_list(run, &it->source);
  arguments_bind(run, it->arguments, "slice", names, given);
  int64_t slices = argument_integer(run, &given[0], "slices", 0), offset = 0;
  if (slices == 0) run_fail(run, "division by zero");
  if (slices > 100000) run_fail(run, "too many slices");
  if (slices < 0) return;
  bool fill = given[1].type != VALUE_NONE && !value_is_missing(&given[1]);
  int64_t width = source->count / slices, extra = source->count % slices;
  for (int64_t i = 0; i < slices; i++) {
    int64_t start = offset + i * width;
    if (i < extra) offset++;
    int64_t end = offset + (i + 1) * width;
    value_list_t *part = list_new(run, 0);
    run_spend(run, 1);
    for (int64_t k = start; k < end; k++) list_push(run, part, source->items[k]);
    if (fill && i >= extra) list_push(run, part, given[1]);
    list_push(run, out, VALUE_OF(VALUE_LIST, list, part));
  }
}

static void evaluate(run_t *run, iterator_t *it) {
  value_list_t *out = list_new(run, 0);
  run_enter(run);
  if (it->kind <= ITERATE_REJECTATTR && it->kind >= ITERATE_MAP) {
    if (value_truth(&it->source)) {
      const value_list_t *source = value_list(run, &it->source);
      if (it->kind == ITERATE_MAP)
        evaluate_map(run, it, source, out);
      else
        evaluate_select(run, it, source, out);
    }
  } else if (it->kind == ITERATE_ITEMS) {
    evaluate_items(run, it, out);
  } else if (it->kind == ITERATE_UNIQUE) {
    evaluate_unique(run, it, out);
  } else if (it->kind == ITERATE_BATCH) {
    evaluate_batch(run, it, out);
  } else if (it->kind == ITERATE_SLICE) {
    evaluate_slice(run, it, out);
  } else {
    out = value_list(run, &it->source);
  }
  run_leave(run);
  it->list = out;
}

value_list_t *iterator_list(run_t *run, iterator_t *it) {
  if (it->list == NULL) evaluate(run, it);
  value_list_t *rest = it->list;
  if (it->at > 0) {
    rest = list_new(run, 0);
    for (uint32_t i = it->at; i < it->list->count; i++) list_push(run, rest, it->list->items[i]);
  }
  it->at = it->list->count;
  return rest;
}

bool iterator_next(run_t *run, iterator_t *it, value_t *out) {
  if (it->list == NULL) evaluate(run, it);
  if (it->at >= it->list->count) return false;
  *out = it->list->items[it->at++];
  return true;
}

/* make_attrgetter: a dotted path, an index, or None for the value itself. */
value_t attribute_path(run_t *run, const value_t *value, const value_t *path,
                       const value_t *fallback) {
  value_t at = *value;
  if (path->type == VALUE_NONE || value_is_missing(path)) return at;
  if (path->type != VALUE_STRING) {
    at = value_item(run, &at, path);
    return at.type == VALUE_UNDEFINED && !value_is_missing(fallback) ? *fallback : at;
  }
  const str_t *str = path->string, dot = {.bytes = ".", .length = 1};
  for (size_t begin = 0;;) {
    int64_t hit = str_find(run, str, begin, str->length, &dot);
    size_t end = hit < 0 ? str->length : (size_t)hit;
    value_t key = value_string(str_part(run, str, begin, end));
    int64_t index = 0;
    bool digits = end > begin && end - begin < 18;
    for (size_t i = begin; i < end && digits; i++) {
      digits = str->bytes[i] >= '0' && str->bytes[i] <= '9';
      index = index * 10 + (str->bytes[i] - '0');
    }
    if (digits) key = value_int(index);
    at = value_item(run, &at, &key);
    if (at.type == VALUE_UNDEFINED && !value_is_missing(fallback)) at = *fallback;
    if (hit < 0) return at;
    begin = end + 1;
  }
}
