/* methods.h: numbers of the methods that values have.
 *
 * The rendering thread only.
 */
#ifndef INFERD_ENGINE_TEMPLATE_LIBRARY_METHODS_H
#define INFERD_ENGINE_TEMPLATE_LIBRARY_METHODS_H

#include "engine/template/library/library.h"

/* X(NAME, "spelling") */
#define STRING_METHODS(X)                                                                          \
  X(SPLIT, "split")                                                                                \
  X(RSPLIT, "rsplit")                                                                              \
  X(PARTITION, "partition")                                                                        \
  X(RPARTITION, "rpartition")                                                                      \
  X(STRIP, "strip")                                                                                \
  X(LSTRIP, "lstrip")                                                                              \
  X(RSTRIP, "rstrip")                                                                              \
  X(STARTSWITH, "startswith")                                                                      \
  X(ENDSWITH, "endswith")                                                                          \
  X(REPLACE, "replace")                                                                            \
  X(JOIN, "join")                                                                                  \
  X(FIND, "find")                                                                                  \
  X(RFIND, "rfind")                                                                                \
  X(INDEX, "index")                                                                                \
  X(RINDEX, "rindex")                                                                              \
  X(COUNT, "count")                                                                                \
  X(UPPER, "upper")                                                                                \
  X(LOWER, "lower")                                                                                \
  X(TITLE, "title")                                                                                \
  X(CAPITALIZE, "capitalize")                                                                      \
  X(FORMAT, "format")                                                                              \
  X(SPLITLINES, "splitlines")                                                                      \
  X(REMOVEPREFIX, "removeprefix")                                                                  \
  X(REMOVESUFFIX, "removesuffix")                                                                  \
  X(CENTER, "center")                                                                              \
  X(LJUST, "ljust")                                                                                \
  X(RJUST, "rjust")                                                                                \
  X(ZFILL, "zfill")                                                                                \
  X(ISDIGIT, "isdigit")                                                                            \
  X(ISALPHA, "isalpha")                                                                            \
  X(ISALNUM, "isalnum")                                                                            \
  X(ISDECIMAL, "isdecimal")                                                                        \
  X(ISNUMERIC, "isnumeric")                                                                        \
  X(ISSPACE, "isspace")                                                                            \
  X(ISASCII, "isascii")                                                                            \
  X(ISLOWER, "islower")                                                                            \
  X(ISUPPER, "isupper")

#define LIST_METHODS(X)                                                                            \
  X(LIST_INDEX, "index")                                                                           \
  X(LIST_COUNT, "count")                                                                           \
  X(LIST_COPY, "copy")                                                                             \
  X(LIST_APPEND, "append")                                                                         \
  X(LIST_EXTEND, "extend")                                                                         \
  X(LIST_INSERT, "insert")                                                                         \
  X(LIST_POP, "pop")                                                                               \
  X(LIST_REMOVE, "remove")                                                                         \
  X(LIST_CLEAR, "clear")                                                                           \
  X(LIST_REVERSE, "reverse")                                                                       \
  X(LIST_SORT, "sort")

#define DICT_METHODS(X)                                                                            \
  X(DICT_GET, "get")                                                                               \
  X(DICT_ITEMS, "items")                                                                           \
  X(DICT_KEYS, "keys")                                                                             \
  X(DICT_VALUES, "values")                                                                         \
  X(DICT_COPY, "copy")                                                                             \
  X(DICT_POP, "pop")                                                                               \
  X(DICT_UPDATE, "update")                                                                         \
  X(DICT_SETDEFAULT, "setdefault")                                                                 \
  X(DICT_POPITEM, "popitem")                                                                       \
  X(DICT_CLEAR, "clear")

enum method_number {
#define X(name, spelling) METHOD_##name,
  STRING_METHODS(X) LIST_METHODS(X) DICT_METHODS(X)
#undef X
      METHOD_CYCLER_NEXT,
  METHOD_CYCLER_RESET
};

value_t method_of_string(struct run *run, const value_t *in, int number, const arguments_t *args);
bool string_is_cased(struct run *run, const str_t *str, bool upper);

#endif
