/* functions.c: the global functions range, dict, namespace, joiner, cycler, raise_exception and
 * strftime_now.
 *
 * The rendering thread only.
 */
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000 };

static value_t call_range(run_t *run, const arguments_t *args) {
  int64_t part[3] = {0, 0, 1}, count = 0;
  if (args->num_named > 0 || args->num_positional < 1 || args->num_positional > 3)
    run_fail(run, "range takes 1 to 3 integers without names, not %u arguments",
             args->num_positional + args->num_named);
  for (uint32_t i = 0; i < args->num_positional; i++)
    if (!value_integer(&args->positional[i], &part[i]))
      run_fail(run, "range takes integers, not %s", value_type_name(&args->positional[i]));
  if (args->num_positional == 1) {
    part[1] = part[0];
    part[0] = 0;
  }
  if (part[2] == 0) run_fail(run, "the step of range is 0");
  bool up = part[2] > 0;
  uint64_t distance =
      up ? (uint64_t)part[1] - (uint64_t)part[0] : (uint64_t)part[0] - (uint64_t)part[1];
  uint64_t stride = up ? (uint64_t)part[2] : 0 - (uint64_t)part[2];
  if (up ? part[1] > part[0] : part[0] > part[1]) {
    uint64_t steps = (distance - 1) / stride + 1;
    if (steps > RANGE_MAX)
      run_fail(run, "a range has more than %d elements: %llu", RANGE_MAX,
               (unsigned long long)steps);
    count = (int64_t)steps;
  }
  value_range_t *range = run_take(run, sizeof *range, false);
  *range = (value_range_t){part[0], part[2], part[1], (uint32_t)count};
  if (part[0] > INT64_MAX / 4 || part[0] < INT64_MIN / 4 || stride > INT64_MAX / (4 * RANGE_MAX))
    run_fail(run, "a range from %lld in steps of %lld is beyond 64 bits", (long long)part[0],
             (long long)part[2]);
  return VALUE_OF(VALUE_RANGE, range, range);
}

static void set_pair(run_t *run, dict_t *dict, const value_t *pair) {
  const value_list_t *items = value_list(run, pair);
  if (items->count != 2) run_fail(run, "dict needs pairs, not %u values", items->count);
  dict_set(run, dict, items->items[0], items->items[1]);
}

static dict_t *make_dict(run_t *run, const arguments_t *args, bool names_only) {
  dict_t *dict = dict_new(run, 0);
  if (args->num_positional > 1)
    run_fail(run, "dict takes one mapping, not %u arguments", args->num_positional);
  if (args->num_positional == 1 && args->positional[0].type == VALUE_DICT) {
    const dict_t *from = args->positional[0].dict;
    for (uint32_t i = 0; i < from->count; i++) {
      run_spend(run, 1);
      dict_append(run, dict, from->entries[i].key, from->entries[i].value);
    }
  } else if (args->num_positional == 1) {
    const value_list_t *pairs = value_list(run, &args->positional[0]);
    for (uint32_t i = 0; i < pairs->count; i++) set_pair(run, dict, &pairs->items[i]);
  }
  for (uint32_t i = 0; i < args->num_named; i++)
    dict_set(run, dict, value_string(args->names[i]), args->named[i]);
  for (uint32_t i = 0; i < dict->count && names_only; i++) {
    const value_t *key = &dict->entries[i].key;
    if (key->type == VALUE_STRING && key->string->length > 0 && key->string->bytes[0] == '_')
      run_fail(run, "a namespace takes no name that begins with _, such as `%s`",
               run_quote((char[64]){0}, key->string));
  }
  return dict;
}

static value_t call_cycler(run_t *run, const arguments_t *args, value_type_t type) {
  cycler_t *cycler = run_take(run, sizeof *cycler, true);
  cycler->items = list_new(run, args->num_positional);
  for (uint32_t i = 0; i < args->num_positional; i++)
    list_push(run, cycler->items, args->positional[i]);
  if (type == VALUE_JOINER) {
    static const char *const names[] = {"sep", NULL};
    value_t separator;
    arguments_bind(run, args, "joiner", names, &separator);
    if (value_is_missing(&separator)) separator = value_string(str_text(run, ", "));
    cycler->items->count = 0;
    list_push(run, cycler->items, separator);
  } else if (args->num_positional == 0 || args->num_named > 0) {
    run_fail(run, "cycler takes one value or more, without names");
  }
  return VALUE_OF(type, cycler, cycler);
}

static value_t call_strftime(run_t *run, const arguments_t *args) {
  static const char allowed[] = "aAbBcdDeFHIjmMnpRSTtuUVwWxXyY%";
  char format[128], out[512];
  struct tm now;
  time_t seconds = (time_t)run->input->now_seconds;
  static const char *const names[] = {"format", NULL};
  value_t given;
  arguments_bind(run, args, "strftime_now", names, &given);
  const str_t *wanted = argument_string(run, &given, "the format of strftime_now");
  if (wanted->length >= sizeof format)
    run_fail(run, "the format of strftime_now has %u bytes, at most %zu", wanted->length,
             sizeof format - 1);
  memcpy(format, wanted->bytes, wanted->length);
  format[wanted->length] = '\0';
  for (uint32_t i = 0; i < wanted->length; i++) {
    if (format[i] == '\0') run_fail(run, "strftime_now: a NUL in the format");
    if (format[i] != '%') continue;
    i++;
    bool dash = i < wanted->length && format[i] == '-'; /* glibc: no padding */
    if (dash) i++;
    if (i >= wanted->length || strchr(allowed, format[i]) == NULL)
      run_fail(run, "strftime_now: the format letter behind %% is not supported in `%s`",
               run_quote((char[64]){0}, wanted));
  }
  if (localtime_r(&seconds, &now) == NULL)
    run_fail(run, "strftime_now: the time %lld is out of range", (long long)seconds);
  size_t length = format[0] == '\0' ? 0 : strftime(out, sizeof out, format, &now);
  return value_string(str_copy(run, out, length, ORIGIN_TEMPLATE));
}

static value_t call_raise(run_t *run, const arguments_t *args) {
  static const char *const names[] = {"message", NULL};
  value_t message;
  arguments_bind(run, args, "raise_exception", names, &message);
  if (value_is_missing(&message)) run_fail(run, "raise_exception needs a message");
  run_raise(run, value_str(run, &message));
}

enum { F_RANGE, F_DICT, F_NAMESPACE, F_JOINER, F_CYCLER, F_RAISE, F_STRFTIME, F_COUNT };

int function_find(const str_t *name) {
  static const char *const names[F_COUNT] = {
      "range", "dict", "namespace", "joiner", "cycler", "raise_exception", "strftime_now"};
  for (int i = 0; i < F_COUNT; i++)
    if (str_is(name, names[i])) return i;
  return -1;
}

value_t function_call(run_t *run, int function, const arguments_t *arguments) {
  switch (function) {
  case F_RANGE: return call_range(run, arguments);
  case F_DICT: return VALUE_OF(VALUE_DICT, dict, make_dict(run, arguments, false));
  case F_NAMESPACE: return VALUE_OF(VALUE_NAMESPACE, dict, make_dict(run, arguments, true));
  case F_JOINER: return call_cycler(run, arguments, VALUE_JOINER);
  case F_CYCLER: return call_cycler(run, arguments, VALUE_CYCLER);
  case F_RAISE: return call_raise(run, arguments);
  default: return call_strftime(run, arguments);
  }
}
