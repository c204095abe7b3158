/* library.h: filters, tests, methods and global functions, and how they get their arguments.
 *
 * The rendering thread only. Every function leaves by run_fail when Python would raise.
 */
#ifndef INFERD_ENGINE_TEMPLATE_LIBRARY_LIBRARY_H
#define INFERD_ENGINE_TEMPLATE_LIBRARY_LIBRARY_H

#include "engine/template/value.h"

struct ast_node;

enum { LIBRARY_UNKNOWN = 255, ARGUMENTS_MAX = 8 };

typedef struct arguments {
  value_t *positional;
  uint32_t num_positional;
  const str_t **names; /* keyword arguments */
  value_t *named;
  uint32_t num_named;
} arguments_t;

extern const arguments_t arguments_none;

/* Fills values[i] for names[i] (NULL-terminated list): positional first, then by keyword. What was
 * not given is value_missing(). Fails on too many and on unknown names. */
void arguments_bind(struct run *run, const arguments_t *arguments, const char *function,
                    const char *const *names, value_t *values);
/* Fails if any argument was given. */
void arguments_refuse(struct run *run, const arguments_t *arguments, const char *function);
static inline value_t value_missing(void) {
  return (value_t){.type = VALUE_UNDEFINED, .markup = true};
}
static inline bool value_is_missing(const value_t *value) {
  return value->type == VALUE_UNDEFINED && value->markup;
}
/* True if an argument was not given, or is None. */
static inline bool value_is_absent(const value_t *value) {
  return value_is_missing(value) || value->type == VALUE_NONE;
}
/* Integer argument with a default; bool is an integer. */
int64_t argument_integer(struct run *run, const value_t *value, const char *what, int64_t fallback);
const str_t *argument_string(struct run *run, const value_t *value, const char *what);

typedef value_t (*filter_t)(struct run *run, const value_t *in, const arguments_t *arguments);

/* Number of a filter or test by name, or -1; *known then says whether Jinja has it. */
int library_filter(const str_t *name, bool *known);
int library_test(const str_t *name, bool *known);
value_t filter_apply(struct run *run, int filter, const value_t *in, const arguments_t *arguments);
bool test_apply(struct run *run, int test, const value_t *in, const arguments_t *arguments);

value_t filter_tojson(struct run *run, const value_t *in, const arguments_t *arguments);
/* filters_data.c: returns a copy of the dict->count entries, sorted by key. The render owns the
 * copy. */
const dict_entry_t *sort_entries(struct run *run, const dict_t *dict);
/* Sorts keys[count] and values[count] together in place, by key. The sort is stable; `reverse` puts
 * larger keys first. Fails if two keys cannot be compared. */
void sort_values(struct run *run, value_t *keys, value_t *values, uint32_t count, bool reverse);

/* filters_text.c and filters_data.c; the table is in filters.c */
typedef struct filter_row {
  const char *name;
  filter_t function;
} filter_row_t;
extern const filter_row_t filters_text[], filters_data[]; /* end with name NULL */

/* Lazy filters: evaluated at the first iteration. */
typedef struct iterator {
  value_list_t *list; /* NULL: not evaluated yet */
  uint32_t at;        /* consumed before */
  enum {
    ITERATE_LIST,
    ITERATE_MAP,
    ITERATE_SELECT,
    ITERATE_REJECT,
    ITERATE_SELECTATTR,
    ITERATE_REJECTATTR,
    ITERATE_ITEMS,
    ITERATE_UNIQUE,
    ITERATE_BATCH,
    ITERATE_SLICE
  } kind;
  value_t source;
  const arguments_t *arguments;
} iterator_t;

value_t iterator_new(struct run *run, int kind, const value_t *source,
                     const arguments_t *arguments);
value_list_t *iterator_list(struct run *run,
                            iterator_t *iterator); /* what is left; it is used up then */
bool iterator_next(struct run *run, iterator_t *iterator, value_t *out);

/* Follows "a.b.0", an index or None; `fallback` (or value_missing) stands for what is undefined. */
value_t attribute_path(struct run *run, const value_t *value, const value_t *path,
                       const value_t *fallback);

/* a.name and a[key], by Python's and Jinja's rules. */
value_t value_attribute(struct run *run, const value_t *value, const str_t *name);
value_t value_item(struct run *run, const value_t *value, const value_t *key);
value_t value_slice(struct run *run, const value_t *value, const value_t *start,
                    const value_t *stop, const value_t *step);

/* Methods bound to a value. */
typedef struct method {
  value_t self;
  int number;
} method_t;
/* Number of the method of v's type, or -1; -2: Python has it, this interpreter does not. */
int method_find(const value_t *value, const str_t *name);
value_t method_call(struct run *run, const method_t *method, const arguments_t *arguments);

/* String work shared by filters and methods. `in` is a string value; a markup bit is kept. */
value_t string_strip(struct run *run, const value_t *in, const str_t *chars, bool left, bool right);
enum { KIND_METHOD_TITLE = 10, KIND_FILTER_TITLE, KIND_CAPITALIZE };
value_t string_case(struct run *run, const value_t *in, int kind); /* or a case_kind_t */
value_t string_replace(struct run *run, const value_t *in, const str_t *from, const str_t *to,
                       int64_t count);
value_list_t *string_lines(struct run *run, const str_t *str, bool keep_ends);
const str_t *str_repeat(struct run *run, const str_t *str, int64_t times);
const str_t *string_escape(struct run *run, const str_t *str);
const str_t *string_pad(struct run *run, const str_t *str, size_t left, size_t right,
                        const str_t *fill);

/* format_string.c */
value_t format_percent(struct run *run, const value_t *format, const value_t *arguments);
value_t format_braces(struct run *run, const value_t *format, const arguments_t *arguments);

/* Global functions; names are looked up after all variables. */
int function_find(const str_t *name); /* -1: none */
value_t function_call(struct run *run, int function, const arguments_t *arguments);
value_t value_call(struct run *run, const value_t *callee, const arguments_t *arguments);
value_t value_operate(struct run *run, int op, const value_t *left,
                      const value_t *right); /* OP_ADD .. OP_POW */

#endif
