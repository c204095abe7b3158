/* tests.c: the tests that may follow `is`.
 *
 * The rendering thread only.
 */
#include "engine/base/util.h"
#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/library/methods.h"
#include "engine/template/run/run.h"

#include <string.h>

typedef enum test_number {
  T_DEFINED,
  T_UNDEFINED,
  T_NONE,
  T_BOOLEAN,
  T_TRUE,
  T_FALSE,
  T_INTEGER,
  T_FLOAT,
  T_NUMBER,
  T_STRING,
  T_MAPPING,
  T_SEQUENCE,
  T_ITERABLE,
  T_CALLABLE,
  T_ODD,
  T_EVEN,
  T_DIVISIBLEBY,
  T_LOWER,
  T_UPPER,
  T_SAMEAS,
  T_IN,
  T_EQ,
  T_NE,
  T_LT,
  T_LE,
  T_GT,
  T_GE,
  T_ESCAPED,
  T_FILTER,
  T_TEST
} test_number_t;

static const struct {
  const char *name;
  uint8_t number, arguments;
} rows[] = {{"defined", T_DEFINED, 0},
            {"undefined", T_UNDEFINED, 0},
            {"none", T_NONE, 0},
            {"boolean", T_BOOLEAN, 0},
            {"true", T_TRUE, 0},
            {"false", T_FALSE, 0},
            {"integer", T_INTEGER, 0},
            {"float", T_FLOAT, 0},
            {"number", T_NUMBER, 0},
            {"string", T_STRING, 0},
            {"mapping", T_MAPPING, 0},
            {"sequence", T_SEQUENCE, 0},
            {"iterable", T_ITERABLE, 0},
            {"callable", T_CALLABLE, 0},
            {"odd", T_ODD, 0},
            {"even", T_EVEN, 0},
            {"divisibleby", T_DIVISIBLEBY, 1},
            {"lower", T_LOWER, 0},
            {"upper", T_UPPER, 0},
            {"sameas", T_SAMEAS, 1},
            {"in", T_IN, 1},
            {"==", T_EQ, 1},
            {"eq", T_EQ, 1},
            {"equalto", T_EQ, 1},
            {"!=", T_NE, 1},
            {"ne", T_NE, 1},
            {"<", T_LT, 1},
            {"lt", T_LT, 1},
            {"lessthan", T_LT, 1},
            {"<=", T_LE, 1},
            {"le", T_LE, 1},
            {">", T_GT, 1},
            {"gt", T_GT, 1},
            {"greaterthan", T_GT, 1},
            {">=", T_GE, 1},
            {"ge", T_GE, 1},
            {"escaped", T_ESCAPED, 0},
            {"filter", T_FILTER, 0},
            {"test", T_TEST, 0}};

int library_test(const str_t *name, bool *known) {
  *known = false; /* every test of Jinja is here */
  for (size_t i = 0; i < ARRAY_LEN(rows); i++)
    if (str_is(name, rows[i].name)) return (int)i;
  return -1;
}

static bool is_remainder(run_t *run, const value_t *value, const value_t *by, int64_t wanted) {
  value_t rest = value_operate(run, OP_MOD, value, by), result = value_int(wanted);
  return value_equal(run, &rest, &result);
}

/* `is`: the same object. Values without identity of their own count as the same when Python would
 * share them: None, booleans, small integers. */
static bool same_object(run_t *run, const value_t *left, const value_t *right) {
  if (left->type != right->type) return false;
  switch (left->type) {
  case VALUE_NONE: return true;
  case VALUE_BOOL: return left->boolean == right->boolean;
  case VALUE_LIST:
  case VALUE_TUPLE: return left->list == right->list;
  case VALUE_DICT:
  case VALUE_NAMESPACE: return left->dict == right->dict;
  case VALUE_INT:
    if (left->integer != right->integer) return false;
    if (left->integer >= -5 && left->integer <= 256) return true;
    break;
  default: break;
  }
  run_fail(run, "sameas of two %s values is not supported", value_type_name(left));
}

static bool ask_string(run_t *run, test_number_t test, const value_t *value) {
  bool known;
  if (test == T_LOWER || test == T_UPPER)
    return string_is_cased(run, value_str(run, value), test == T_UPPER);
  if (value->type != VALUE_STRING) {
    if (!value_hashable(value)) run_fail(run, "unhashable type: %s", value_type_name(value));
    return false;
  }
  if (test == T_TEST) return library_test(value->string, &known) >= 0;
  return library_filter(value->string, &known) >= 0 || known;
}

static bool ask_type(test_number_t test, const value_t *value) {
  bool callable = value->type == VALUE_FUNCTION || value->type == VALUE_MACRO ||
                  value->type == VALUE_METHOD || value->type == VALUE_JOINER ||
                  value->type == VALUE_UNDEFINED || value->type == VALUE_LOOP;
  switch (test) {
  case T_DEFINED: return value->type != VALUE_UNDEFINED;
  case T_UNDEFINED: return value->type == VALUE_UNDEFINED;
  case T_NONE: return value->type == VALUE_NONE;
  case T_BOOLEAN: return value->type == VALUE_BOOL;
  case T_TRUE: return value->type == VALUE_BOOL && value->boolean;
  case T_FALSE: return value->type == VALUE_BOOL && !value->boolean;
  case T_INTEGER: return value->type == VALUE_INT || value->type == VALUE_BIGINT;
  case T_FLOAT: return value->type == VALUE_FLOAT;
  case T_NUMBER: return value_is_number(value) || value->type == VALUE_BIGINT;
  case T_STRING: return value->type == VALUE_STRING;
  case T_MAPPING: return value->type == VALUE_DICT;
  case T_SEQUENCE:
    return value->type == VALUE_UNDEFINED || value->type == VALUE_STRING ||
           value->type == VALUE_LIST || value->type == VALUE_TUPLE || value->type == VALUE_DICT ||
           value->type == VALUE_RANGE;
  case T_ITERABLE: return value_iterable(value);
  case T_ESCAPED: return value->type == VALUE_STRING && value->markup;
  default: return callable;
  }
}

static bool ask_pair(run_t *run, test_number_t test, const value_t *value, const value_t *other) {
  switch (test) {
  case T_DIVISIBLEBY: return is_remainder(run, value, other, 0);
  case T_SAMEAS: return same_object(run, value, other);
  case T_IN: return value_contains(run, value, other);
  case T_EQ: return value_equal(run, value, other);
  case T_NE: return !value_equal(run, value, other);
  case T_LT: return value_less(run, value, other);
  case T_GT: return value_less(run, other, value);
  case T_LE: return value_less(run, value, other) || value_equal(run, value, other);
  default: return value_less(run, other, value) || value_equal(run, value, other);
  }
}

bool test_apply(run_t *run, int test, const value_t *in, const arguments_t *arguments) {
  test_number_t number = (test_number_t)rows[test].number;
  value_t two = value_int(2);
  if (arguments->num_named > 0 || arguments->num_positional != rows[test].arguments)
    run_fail(run, "the test `%s` takes %u arguments", rows[test].name, rows[test].arguments);
  if (rows[test].arguments > 0) return ask_pair(run, number, in, &arguments->positional[0]);
  if (number == T_ODD) return is_remainder(run, in, &two, 1);
  if (number == T_EVEN) return is_remainder(run, in, &two, 0);
  if (number == T_LOWER || number == T_UPPER || number == T_FILTER || number == T_TEST)
    return ask_string(run, number, in);
  return ask_type(number, in);
}
