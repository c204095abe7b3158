/* attribute.c: a.name, a[key] and calls.
 *
 * The rendering thread only. Attributes come before items for a.name, after them for a['name'].
 * An attribute that Python's types have and this interpreter lacks is refused when it is read.
 */
#include "engine/template/run/eval.h"

#include <string.h>

static bool dunder(const str_t *name) {
  return name->length >= 2 && name->bytes[0] == '_' && name->bytes[1] == '_';
}

/* Attributes of Python's numbers, ranges, generators and functions. */
static bool foreign_attribute(const value_t *value, const str_t *name) {
  static const char *const numbers[] = {
      "real",       "imag",      "numerator", "denominator", "bit_length",
      "bit_count",  "conjugate", "to_bytes",  "from_bytes",  "as_integer_ratio",
      "is_integer", "hex",       "fromhex",   NULL};
  static const char *const others[] = {
      "mapping",      "isdisjoint", "send", "throw", "close", "gi_code", "gi_frame", "gi_running",
      "gi_yieldfrom", "start",      "stop", "step",  "count", "index",   NULL};
  const char *const *list = NULL;
  if (value_is_number(value) || value->type == VALUE_BIGINT) list = numbers;
  if (value->type == VALUE_VIEW || value->type == VALUE_ITERATOR || value->type == VALUE_RANGE)
    list = others;
  if (value->type == VALUE_MACRO || value->type == VALUE_METHOD || value->type == VALUE_FUNCTION)
    return true;
  for (; list != NULL && *list != NULL; list++)
    if (str_is(name, *list)) return true;
  return false;
}

/* The attribute proper: true when there is one. */
static bool find_attribute(run_t *run, const value_t *value, const str_t *name, value_t *out) {
  if (value->type == VALUE_LOOP) {
    *out = loop_attribute(run, value->loop, name);
    return out->type != VALUE_UNDEFINED || str_is(name, "previtem") || str_is(name, "nextitem");
  }
  if (value->type == VALUE_NAMESPACE) {
    const value_t *found = dict_find_text(run, value->dict, name);
    if (found != NULL) *out = *found;
    return found != NULL;
  }
  if (value->type == VALUE_CYCLER && str_is(name, "current")) {
    *out = value->cycler->items->items[value->cycler->at];
    return true;
  }
  if (value->type == VALUE_TUPLE && value->list->grouped &&
      (str_is(name, "grouper") || str_is(name, "list"))) {
    *out = value->list->items[str_is(name, "list")];
    return true;
  }
  int number = method_find(value, name);
  if (number == -2 || (number < 0 && foreign_attribute(value, name))) {
    char shown[48];
    error_quote(shown, sizeof shown, name->bytes, name->length);
    run_fail(run, "`%s` of %s is not supported", shown, value_type_name(value));
  }
  if (number < 0) return false;
  method_t *method = run_take(run, sizeof *method, false);
  *method = (method_t){*value, number};
  *out = VALUE_OF(VALUE_METHOD, method, method);
  return true;
}

value_t value_attribute(run_t *run, const value_t *value, const str_t *name) {
  value_t out;
  char shown[48];
  if (value->type == VALUE_UNDEFINED) {
    error_quote(shown, sizeof shown, name->bytes, name->length);
    run_fail(run, "`%s` of an undefined value", shown);
  }
  if (value->type == VALUE_DICT) {
    /* A key is the common case; a method of the same name wins. */
    value_t *found = dict_find_text(run, value->dict, name);
    if (dunder(name)) return value_undefined();
    if (method_find(value, name) != -1 && find_attribute(run, value, name, &out)) return out;
    return found == NULL ? value_undefined() : *found;
  }
  if (dunder(name)) return value_undefined();
  return find_attribute(run, value, name, &out) ? out : value_undefined();
}

static bool item_of_list(const value_t *value, int64_t index, value_t *out) {
  int64_t count = value->type == VALUE_RANGE ? value->range->count : value->list->count;
  if (index < 0) index += count;
  if (index < 0 || index >= count) return false;
  if (value->type == VALUE_RANGE)
    *out = value_int(value->range->start + index * value->range->step);
  else
    *out = value->list->items[index];
  return true;
}

static bool item_of_string(run_t *run, const value_t *value, int64_t index, value_t *out) {
  int64_t count = str_chars(value->string);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return false;
  size_t begin = str_offset(value->string, (uint32_t)index), end = begin;
  run_spend_bytes(run, begin);
  (void)str_next(value->string->bytes, &end);
  *out = value_string(str_part(run, value->string, begin, end));
  out->markup = value->markup;
  return true;
}

value_t value_item(run_t *run, const value_t *value, const value_t *key) {
  value_t out;
  int64_t index;
  if (value->type == VALUE_UNDEFINED) run_fail(run, "an item of an undefined value");
  if (value->type == VALUE_DICT && value_hashable(key)) {
    const value_t *found = dict_find(run, value->dict, key);
    if (found != NULL) return *found;
  } else if (value_integer(key, &index)) {
    if (value->type == VALUE_LIST || value->type == VALUE_TUPLE || value->type == VALUE_RANGE)
      return item_of_list(value, index, &out) ? out : value_undefined();
    if (value->type == VALUE_STRING)
      return item_of_string(run, value, index, &out) ? out : value_undefined();
  }
  if (key->type != VALUE_STRING || dunder(key->string)) return value_undefined();
  return find_attribute(run, value, key->string, &out) ? out : value_undefined();
}

value_t value_call(run_t *run, const value_t *callee, const arguments_t *arguments) {
  switch (callee->type) {
  case VALUE_FUNCTION: return function_call(run, callee->function, arguments);
  case VALUE_MACRO: return macro_call(run, callee->macro, arguments);
  case VALUE_METHOD: return method_call(run, callee->method, arguments);
  case VALUE_JOINER: {
    cycler_t *joiner = callee->cycler;
    if (arguments->num_positional + arguments->num_named > 0)
      run_fail(run, "a joiner takes no arguments");
    if (joiner->at == 0) {
      joiner->at = 1;
      return value_string(str_text(run, ""));
    }
    return joiner->items->items[0];
  }
  case VALUE_UNDEFINED: run_fail(run, "an undefined value is called");
  default: run_fail(run, "%s cannot be called", value_type_name(callee));
  }
}
