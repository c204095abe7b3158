/* value.h: the values that templates compute with, and Python's rules for them.
 *
 * A value is 16 bytes; what it points to belongs to the render (or to the compiled template, for
 * constants) and is never freed alone. The rendering thread only. Functions that can fail leave by
 * run_fail (run.h).
 */
#ifndef INFERD_ENGINE_TEMPLATE_VALUE_H
#define INFERD_ENGINE_TEMPLATE_VALUE_H

#include "engine/base/json.h"
#include "engine/template/str.h"

typedef enum value_type {
  VALUE_UNDEFINED,
  VALUE_NONE,
  VALUE_BOOL,
  VALUE_INT,
  VALUE_BIGINT, /* digits beyond 64 bits: printed, never computed with */
  VALUE_FLOAT,
  VALUE_STRING,
  VALUE_LIST,
  VALUE_TUPLE,
  VALUE_DICT,
  VALUE_VIEW, /* d.items(), d.keys(), d.values() */
  VALUE_RANGE,
  VALUE_ITERATOR, /* single use, without a length */
  VALUE_NAMESPACE,
  VALUE_LOOP,
  VALUE_MACRO,
  VALUE_METHOD,   /* bound to a value */
  VALUE_FUNCTION, /* a global function */
  VALUE_CYCLER,
  VALUE_JOINER
} value_type_t;

typedef struct value {
  uint8_t type; /* value_type_t */
  bool markup;  /* string: the result of safe or escape */
  bool request; /* number: printed digits come from the request */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const str_t *string; /* also the digits of a BIGINT */
    struct value_list *list;
    struct dict *dict; /* also the attributes of a NAMESPACE */
    struct view *view;
    struct value_range *range;
    struct iterator *iterator;
    struct loop *loop;
    struct macro *macro;
    struct method *method;
    struct cycler *cycler;
    int function; /* as function_find of library.h returns it */
  };
} value_t;

typedef struct value_list {
  value_t *items;
  uint32_t count, capacity;
  bool frozen;  /* from the request: methods must not change it */
  bool grouped; /* a pair of groupby: also .grouper and .list */
} value_list_t;

typedef struct dict_entry {
  value_t key, value;
} dict_entry_t;

typedef struct dict {
  dict_entry_t *entries; /* insertion order */
  uint32_t count, capacity;
  bool frozen;
} dict_t;

typedef struct view {
  dict_t *dict;
  enum { VIEW_ITEMS, VIEW_KEYS, VIEW_VALUES } kind;
} view_t;

typedef struct value_range {
  int64_t start, step, stop;
  uint32_t count;
} value_range_t;

typedef struct cycler {
  value_list_t *items; /* also of a JOINER: its separator */
  uint32_t at;
} cycler_t;

#define VALUE_OF(kind, member, content) ((value_t){.type = (kind), .member = (content)})
static inline value_t value_none(void) {
  return (value_t){.type = VALUE_NONE};
}
static inline value_t value_undefined(void) {
  return (value_t){.type = VALUE_UNDEFINED};
}
static inline value_t value_bool(bool truth) {
  return VALUE_OF(VALUE_BOOL, boolean, truth);
}
static inline value_t value_int(int64_t i) {
  return VALUE_OF(VALUE_INT, integer, i);
}
static inline value_t value_float(double real) {
  return VALUE_OF(VALUE_FLOAT, number, real);
}
static inline value_t value_string(const str_t *str) {
  return VALUE_OF(VALUE_STRING, string, str);
}

const char *value_type_name(const value_t *value); /* Python's: 'str', 'NoneType' */
bool value_truth(const value_t *value);
bool value_equal(struct run *run, const value_t *left, const value_t *right);
bool value_less(struct run *run, const value_t *left, const value_t *right); /* <, or fails */
bool value_contains(struct run *run, const value_t *item, const value_t *container);
bool value_is_number(const value_t *value);             /* bool, int, float */
bool value_integer(const value_t *value, int64_t *out); /* of bool and int */
double value_number(const value_t *value);
/* Sets the length that len() gives; returns false if the value has none. */
bool value_length(const value_t *value, uint32_t *out);

value_list_t *list_new(struct run *run, uint32_t capacity);
void list_push(struct run *run, value_list_t *list, value_t value);
dict_t *dict_new(struct run *run, uint32_t capacity);
value_t *dict_find(struct run *run, const dict_t *dict, const value_t *key); /* or NULL */
value_t *dict_find_text(struct run *run, const dict_t *dict, const str_t *key);
void dict_set(struct run *run, dict_t *dict, value_t key, value_t value);
void dict_append(struct run *run, dict_t *dict, value_t key, value_t value); /* key is known new */
bool value_hashable(const value_t *value);

/* Returns all elements in the order of iteration; fails if `value` cannot be iterated. The result
 * may be `value` itself: do not change it. */
value_list_t *value_list(struct run *run, const value_t *value);
bool value_iterable(const value_t *value);
value_t value_from_json(struct run *run, const json_t *json);

/* library/print_value.c: str(), repr() and json.dumps. */
const str_t *value_str(struct run *run, const value_t *value);
void value_print(struct run *run, sink_t *sink, const value_t *value); /* str() */
void value_repr(struct run *run, sink_t *sink, const value_t *value);
void float_repr(struct run *run, sink_t *sink, double number, bool request);

#endif
