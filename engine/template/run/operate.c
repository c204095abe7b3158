/* operate.c: + - * / // % ** by Python's rules, and slices.
 *
 * The rendering thread only. Integers have 64 bits: what does not fit fails, it never wraps.
 */
#include "engine/base/util.h"
#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <string.h>

enum { REPEATED_BYTES_MAX = 64 << 20 };

_Noreturn static void bad_operands(run_t *run, int op, const value_t *left, const value_t *right) {
  static const char *const signs[] = {
      [OP_ADD] = "+",    [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
      [OP_FLOOR] = "//", [OP_MOD] = "%", [OP_POW] = "**"};
  run_fail(run, "'%s' cannot take %s and %s", signs[op], value_type_name(left),
           value_type_name(right));
}

static const str_t *escaped(run_t *run, const value_t *value) {
  return value->markup ? value->string : string_escape(run, value->string);
}

static value_t add_strings(run_t *run, const value_t *left, const value_t *right) {
  bool markup = left->markup || right->markup;
  value_t value = value_string(markup ? str_concat(run, escaped(run, left), escaped(run, right))
                                      : str_concat(run, left->string, right->string));
  value.markup = markup;
  return value;
}

static value_t add_lists(run_t *run, const value_t *left, const value_t *right) {
  uint64_t total = (uint64_t)left->list->count + right->list->count;
  if (total > UINT32_MAX / 2) run_fail(run, "a list is too long");
  value_list_t *list = list_new(run, (uint32_t)total);
  run_spend(run, (size_t)total / 4);
  for (uint32_t i = 0; i < left->list->count; i++) list_push(run, list, left->list->items[i]);
  for (uint32_t i = 0; i < right->list->count; i++) list_push(run, list, right->list->items[i]);
  return VALUE_OF(left->type, list, list);
}

const str_t *str_repeat(run_t *run, const str_t *str, int64_t times) {
  if (times <= 0 || str->length == 0) return str_text(run, "");
  if (times > REPEATED_BYTES_MAX / (int64_t)str->length)
    run_fail(run, "a repeated string is too long");
  sink_t *sink = sink_new(run);
  run_spend(run, (size_t)times / 16);
  for (int64_t i = 0; i < times; i++) sink_put_str(run, sink, str);
  return sink_str(run, sink);
}

static value_t repeat(run_t *run, const value_t *value, int64_t times) {
  if (value->type == VALUE_STRING) {
    value_t out = value_string(str_repeat(run, value->string, times));
    out.markup = value->markup;
    return out;
  }
  const value_list_t *from = value->list;
  if (times > 0 && from->count > 0 && times > (int64_t)(1 << 24) / from->count)
    run_fail(run, "a repeated list is too long");
  value_list_t *list = list_new(run, 0);
  for (int64_t i = 0; i < times && from->count > 0; i++) {
    run_spend(run, from->count);
    for (uint32_t k = 0; k < from->count; k++) list_push(run, list, from->items[k]);
  }
  return VALUE_OF(value->type, list, list);
}

static bool is_sequence(const value_t *value) {
  return value->type == VALUE_STRING || value->type == VALUE_LIST || value->type == VALUE_TUPLE;
}

/* Python's float_divmod. */
static double float_mod(double left, double right, double *quotient) {
  double mod = fmod(left, right), div = (left - mod) / right;
  if (mod != 0) {
    if ((right < 0) != (mod < 0)) {
      mod += right;
      div -= 1;
    }
  } else {
    mod = copysign(0.0, right);
  }
  double floored = floor(div);
  if (div != 0) {
    if (div - floored > 0.5) floored += 1;
  } else {
    floored = copysign(0.0, left / right);
  }
  *quotient = floored;
  return mod;
}

static value_t operate_floats(run_t *run, int op, double left, double right) {
  double quotient, result;
  if (right == 0 && (op == OP_DIV || op == OP_FLOOR || op == OP_MOD))
    run_fail(run, "division by zero");
  switch (op) {
  case OP_ADD: return value_float(left + right);
  case OP_SUB: return value_float(left - right);
  case OP_MUL: return value_float(left * right);
  case OP_DIV: return value_float(left / right);
  case OP_FLOOR: (void)float_mod(left, right, &quotient); return value_float(quotient);
  case OP_MOD: return value_float(float_mod(left, right, &quotient));
  default: break;
  }
  if (left == 0 && right < 0) run_fail(run, "division by zero");
  if (left < 0 && isfinite(right) && right != floor(right))
    run_fail(run, "complex numbers are not supported");
  result = pow(left, right);
  if (isinf(result) && isfinite(left) && isfinite(right)) run_fail(run, "a power is beyond floats");
  return value_float(result);
}

static value_t power(run_t *run, int64_t left, int64_t right) {
  if (right < 0) return operate_floats(run, OP_POW, (double)left, (double)right);
  int64_t result = 1;
  bool fits = true;
  if (left == 0 || left == 1 || left == -1)
    return value_int(right == 0 ? 1 : left == -1 && right % 2 == 0 ? 1 : left);
  for (int64_t i = 0; i < right && fits; i++) fits = !__builtin_mul_overflow(result, left, &result);
  if (!fits) run_fail(run, "an integer is beyond 64 bits");
  return value_int(result);
}

static value_t divide(run_t *run, int op, int64_t left, int64_t right) {
  if (right == 0) run_fail(run, "division by zero");
  if (op == OP_DIV) return value_float((double)((long double)left / (long double)right));
  if (right == -1) {
    if (op == OP_MOD) return value_int(0);
    if (left == INT64_MIN) run_fail(run, "an integer is beyond 64 bits");
    return value_int(-left);
  }
  int64_t quotient = left / right, rest = left % right;
  if (rest != 0 && (rest < 0) != (right < 0)) {
    quotient--;
    rest += right;
  }
  return value_int(op == OP_FLOOR ? quotient : rest);
}

static value_t operate_integers(run_t *run, int op, int64_t left, int64_t right) {
  int64_t result;
  bool overflow;
  switch (op) {
  case OP_ADD: overflow = __builtin_add_overflow(left, right, &result); break;
  case OP_SUB: overflow = __builtin_sub_overflow(left, right, &result); break;
  case OP_MUL: overflow = __builtin_mul_overflow(left, right, &result); break;
  case OP_POW: return power(run, left, right);
  default: return divide(run, op, left, right);
  }
  if (overflow) run_fail(run, "an integer is beyond 64 bits");
  return value_int(result);
}

value_t value_operate(run_t *run, int op, const value_t *left, const value_t *right) {
  int64_t x, y;
  value_t result;
  if (value_is_number(left) && value_is_number(right)) {
    if (value_integer(left, &x) && value_integer(right, &y))
      result = operate_integers(run, op, x, y);
    else
      result = operate_floats(run, op, value_number(left), value_number(right));
    result.request = left->request || right->request;
    return result;
  }
  if (op == OP_ADD && left->type == right->type) {
    if (left->type == VALUE_STRING) return add_strings(run, left, right);
    if (left->type == VALUE_LIST || left->type == VALUE_TUPLE) return add_lists(run, left, right);
  }
  if (op == OP_MUL && is_sequence(left) && value_integer(right, &y)) return repeat(run, left, y);
  if (op == OP_MUL && is_sequence(right) && value_integer(left, &x)) return repeat(run, right, x);
  if (op == OP_MOD && left->type == VALUE_STRING) return format_percent(run, left, right);
  bad_operands(run, op, left, right);
}

/* ---- slices ---- */

/* Python's PySlice_AdjustIndices for one bound. */
static int64_t bound(const value_t *value, int64_t fallback, int64_t length, bool backwards) {
  int64_t i;
  if (value->type == VALUE_NONE || !value_integer(value, &i)) return fallback;
  if (i < 0) {
    i = i < -length ? -1 : i + length;
    if (i < 0) return backwards ? -1 : 0;
  }
  int64_t most = backwards ? length - 1 : length;
  return MIN(most, i);
}

static bool slice_part(const value_t *value) {
  int64_t ignored;
  return value->type == VALUE_NONE || value_integer(value, &ignored);
}

static value_t slice_string(run_t *run, const value_t *value, int64_t start, int64_t count,
                            int64_t step) {
  const str_t *str = value->string;
  value_t out;
  if (step == 1 || count <= 1) {
    size_t begin = str_offset(str, (uint32_t)start);
    size_t end = str_offset(str, (uint32_t)(start + MAX(count, 0)));
    run_spend_bytes(run, end);
    out = value_string(count <= 0 ? str_text(run, "") : str_part(run, str, begin, end));
  } else {
    const value_list_t *chars = value_list(run, value);
    sink_t *sink = sink_new(run);
    for (int64_t i = 0; i < count; i++)
      sink_put_str(run, sink, chars->items[start + i * step].string);
    out = value_string(sink_str(run, sink));
  }
  out.markup = value->markup;
  return out;
}

value_t value_slice(run_t *run, const value_t *value, const value_t *start, const value_t *stop,
                    const value_t *step) {
  uint32_t length;
  int64_t stride = 1, count = 0;
  if (value->type == VALUE_UNDEFINED) run_fail(run, "an undefined value cannot be sliced");
  bool sliceable = is_sequence(value) || value->type == VALUE_RANGE;
  if (!sliceable || !slice_part(start) || !slice_part(stop) || !slice_part(step))
    run_fail(run, "such a slice of a %s is not supported", value_type_name(value));
  if (step->type != VALUE_NONE) (void)value_integer(step, &stride);
  if (stride == 0) run_fail(run, "the step of a slice is 0");
  if (stride < -INT64_MAX) stride = -INT64_MAX;
  (void)value_length(value, &length);
  bool backwards = stride < 0;
  int64_t from = bound(start, backwards ? (int64_t)length - 1 : 0, length, backwards);
  int64_t to = bound(stop, backwards ? -1 : (int64_t)length, length, backwards);
  if (!backwards && to > from) count = (to - from - 1) / stride + 1;
  if (backwards && from > to) count = (from - to - 1) / -stride + 1;
  if (value->type == VALUE_STRING) return slice_string(run, value, from, count, stride);
  if (value->type == VALUE_RANGE) {
    value_range_t *range = run_take(run, sizeof *range, false);
    const value_range_t *of = value->range;
    *range =
        (value_range_t){of->start + from * of->step, 0, of->start + to * of->step, (uint32_t)count};
    if (__builtin_mul_overflow(of->step, stride, &range->step))
      run_fail(run, "a range is beyond 64 bits");
    return VALUE_OF(VALUE_RANGE, range, range);
  }
  value_list_t *list = list_new(run, (uint32_t)count);
  run_spend(run, (size_t)count / 4);
  for (int64_t i = 0; i < count; i++) list_push(run, list, value->list->items[from + i * stride]);
  return VALUE_OF(value->type, list, list);
}
