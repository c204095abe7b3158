/* operate.c: + - * / // % ** by Python's rules, and slices.
 *
 * The rendering thread only. Integers have 64 bits: what does not fit fails, it never wraps.
 */
#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <math.h>
#include <string.h>

enum { REPEATED_BYTES_MAX = 64 << 20 };

_Noreturn static void bad_operands(run_t *run, int op, const value_t *a, const value_t *b) {
  static const char *const signs[] = {
      [OP_ADD] = "+",    [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
      [OP_FLOOR] = "//", [OP_MOD] = "%", [OP_POW] = "**"};
  run_fail(run, "'%s' cannot take %s and %s", signs[op], value_type_name(a), value_type_name(b));
}

static const str_t *escaped(run_t *run, const value_t *v) {
  return v->markup ? v->string : string_escape(run, v->string);
}

static value_t add_strings(run_t *run, const value_t *a, const value_t *b) {
  bool markup = a->markup || b->markup;
  value_t v = value_string(markup ? str_concat(run, escaped(run, a), escaped(run, b))
                                  : str_concat(run, a->string, b->string));
  v.markup = markup;
  return v;
}

static value_t add_lists(run_t *run, const value_t *a, const value_t *b) {
  uint64_t total = (uint64_t)a->list->count + b->list->count;
  if (total > UINT32_MAX / 2) run_fail(run, "a list is too long");
  list_t *list = list_new(run, (uint32_t)total);
  run_spend(run, (size_t)total / 4);
  for (uint32_t i = 0; i < a->list->count; i++) list_push(run, list, a->list->items[i]);
  for (uint32_t i = 0; i < b->list->count; i++) list_push(run, list, b->list->items[i]);
  return VALUE_OF(a->type, list, list);
}

const str_t *str_repeat(run_t *run, const str_t *s, int64_t times) {
  if (times <= 0 || s->length == 0) return str_text(run, "");
  if (times > REPEATED_BYTES_MAX / (int64_t)s->length)
    run_fail(run, "a repeated string is too long");
  sink_t *sink = sink_new(run);
  run_spend(run, (size_t)times / 16);
  for (int64_t i = 0; i < times; i++) sink_put_str(run, sink, s);
  return sink_str(run, sink);
}

static value_t repeat(run_t *run, const value_t *v, int64_t times) {
  if (v->type == VALUE_STRING) {
    value_t out = value_string(str_repeat(run, v->string, times));
    out.markup = v->markup;
    return out;
  }
  const list_t *from = v->list;
  if (times > 0 && from->count > 0 && times > (int64_t)(1 << 24) / from->count)
    run_fail(run, "a repeated list is too long");
  list_t *list = list_new(run, 0);
  for (int64_t i = 0; i < times && from->count > 0; i++) {
    run_spend(run, from->count);
    for (uint32_t k = 0; k < from->count; k++) list_push(run, list, from->items[k]);
  }
  return VALUE_OF(v->type, list, list);
}

static bool is_sequence(const value_t *v) {
  return v->type == VALUE_STRING || v->type == VALUE_LIST || v->type == VALUE_TUPLE;
}

/* Python's float_divmod. */
static double float_mod(double a, double b, double *quotient) {
  double mod = fmod(a, b), div = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      div -= 1;
    }
  } else {
    mod = copysign(0.0, b);
  }
  double floored = floor(div);
  if (div != 0) {
    if (div - floored > 0.5) floored += 1;
  } else {
    floored = copysign(0.0, a / b);
  }
  *quotient = floored;
  return mod;
}

static value_t operate_floats(run_t *run, int op, double a, double b) {
  double quotient, result;
  if (b == 0 && (op == OP_DIV || op == OP_FLOOR || op == OP_MOD)) run_fail(run, "division by zero");
  switch (op) {
  case OP_ADD: return value_float(a + b);
  case OP_SUB: return value_float(a - b);
  case OP_MUL: return value_float(a * b);
  case OP_DIV: return value_float(a / b);
  case OP_FLOOR: (void)float_mod(a, b, &quotient); return value_float(quotient);
  case OP_MOD: return value_float(float_mod(a, b, &quotient));
  default: break;
  }
  if (a == 0 && b < 0) run_fail(run, "division by zero");
  if (a < 0 && isfinite(b) && b != floor(b)) run_fail(run, "complex numbers are not supported");
  result = pow(a, b);
  if (isinf(result) && isfinite(a) && isfinite(b)) run_fail(run, "a power is beyond floats");
  return value_float(result);
}

static value_t power(run_t *run, int64_t a, int64_t b) {
  if (b < 0) return operate_floats(run, OP_POW, (double)a, (double)b);
  int64_t result = 1;
  bool fits = true;
  if (a == 0 || a == 1 || a == -1) return value_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
  for (int64_t i = 0; i < b && fits; i++) fits = !__builtin_mul_overflow(result, a, &result);
  if (!fits) run_fail(run, "an integer is beyond 64 bits");
  return value_int(result);
}

static value_t divide(run_t *run, int op, int64_t a, int64_t b) {
  if (b == 0) run_fail(run, "division by zero");
  if (op == OP_DIV) return value_float((double)((long double)a / (long double)b));
  if (b == -1) {
    if (op == OP_MOD) return value_int(0);
    if (a == INT64_MIN) run_fail(run, "an integer is beyond 64 bits");
    return value_int(-a);
  }
  int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient--;
    rest += b;
  }
  return value_int(op == OP_FLOOR ? quotient : rest);
}

static value_t operate_integers(run_t *run, int op, int64_t a, int64_t b) {
  int64_t result;
  bool overflow;
  switch (op) {
  case OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
  case OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
  case OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
  case OP_POW: return power(run, a, b);
  default: return divide(run, op, a, b);
  }
  if (overflow) run_fail(run, "an integer is beyond 64 bits");
  return value_int(result);
}

value_t value_operate(run_t *run, int op, const value_t *a, const value_t *b) {
  int64_t x, y;
  value_t result;
  if (value_is_number(a) && value_is_number(b)) {
    if (value_integer(a, &x) && value_integer(b, &y))
      result = operate_integers(run, op, x, y);
    else
      result = operate_floats(run, op, value_number(a), value_number(b));
    result.request = a->request || b->request;
    return result;
  }
  if (op == OP_ADD && a->type == b->type) {
    if (a->type == VALUE_STRING) return add_strings(run, a, b);
    if (a->type == VALUE_LIST || a->type == VALUE_TUPLE) return add_lists(run, a, b);
  }
  if (op == OP_MUL && is_sequence(a) && value_integer(b, &y)) return repeat(run, a, y);
  if (op == OP_MUL && is_sequence(b) && value_integer(a, &x)) return repeat(run, b, x);
  if (op == OP_MOD && a->type == VALUE_STRING) return format_percent(run, a, b);
  bad_operands(run, op, a, b);
}

/* ---- slices ---- */

/* Python's PySlice_AdjustIndices for one bound. */
static int64_t bound(const value_t *v, int64_t fallback, int64_t length, bool backwards) {
  int64_t i;
  if (v->type == VALUE_NONE || !value_integer(v, &i)) return fallback;
  if (i < 0) {
    i = i < -length ? -1 : i + length;
    if (i < 0) return backwards ? -1 : 0;
  }
  int64_t most = backwards ? length - 1 : length;
  return i > most ? most : i;
}

static bool slice_part(const value_t *v) {
  int64_t ignored;
  return v->type == VALUE_NONE || value_integer(v, &ignored);
}

static value_t slice_string(run_t *run, const value_t *v, int64_t start, int64_t count,
                            int64_t step) {
  const str_t *s = v->string;
  value_t out;
  if (step == 1 || count <= 1) {
    size_t begin = str_offset(s, (uint32_t)start);
    size_t end = str_offset(s, (uint32_t)(start + (count > 0 ? count : 0)));
    run_spend_bytes(run, end);
    out = value_string(count <= 0 ? str_text(run, "") : str_part(run, s, begin, end));
  } else {
    const list_t *chars = value_list(run, v);
    sink_t *sink = sink_new(run);
    for (int64_t i = 0; i < count; i++)
      sink_put_str(run, sink, chars->items[start + i * step].string);
    out = value_string(sink_str(run, sink));
  }
  out.markup = v->markup;
  return out;
}

value_t value_slice(run_t *run, const value_t *v, const value_t *start, const value_t *stop,
                    const value_t *step) {
  uint32_t length;
  int64_t stride = 1, count = 0;
  if (v->type == VALUE_UNDEFINED) run_fail(run, "an undefined value cannot be sliced");
  bool sliceable = is_sequence(v) || v->type == VALUE_RANGE;
  if (!sliceable || !slice_part(start) || !slice_part(stop) || !slice_part(step))
    run_fail(run, "such a slice of a %s is not supported", value_type_name(v));
  if (step->type != VALUE_NONE) (void)value_integer(step, &stride);
  if (stride == 0) run_fail(run, "the step of a slice is 0");
  if (stride < -INT64_MAX) stride = -INT64_MAX;
  (void)value_length(v, &length);
  bool backwards = stride < 0;
  int64_t from = bound(start, backwards ? (int64_t)length - 1 : 0, length, backwards);
  int64_t to = bound(stop, backwards ? -1 : (int64_t)length, length, backwards);
  if (!backwards && to > from) count = (to - from - 1) / stride + 1;
  if (backwards && from > to) count = (from - to - 1) / -stride + 1;
  if (v->type == VALUE_STRING) return slice_string(run, v, from, count, stride);
  if (v->type == VALUE_RANGE) {
    range_t *range = run_take(run, sizeof *range, false);
    const range_t *of = v->range;
    *range = (range_t){of->start + from * of->step, 0, of->start + to * of->step, (uint32_t)count};
    if (__builtin_mul_overflow(of->step, stride, &range->step))
      run_fail(run, "a range is beyond 64 bits");
    return VALUE_OF(VALUE_RANGE, range, range);
  }
  list_t *list = list_new(run, (uint32_t)count);
  run_spend(run, (size_t)count / 4);
  for (int64_t i = 0; i < count; i++) list_push(run, list, v->list->items[from + i * stride]);
  return VALUE_OF(v->type, list, list);
}
