/* expect.h: assertions that print the values which they compare.
 *
 * As in other test frameworks ASSERT_ ends the test and EXPECT_ goes on; both fail it. Each side is
 * evaluated once. The sides are numbers, enums, pointers, or strings (STR). The _FOR forms take a
 * printf format and its arguments, which say for what the comparison was made.
 *
 *   ASSERT_EQ(num_blocks(rig), 12)  ->  num_blocks(rig) == 12: left is 11, right is 12
 */
#ifndef INFERD_TESTS_EXPECT_H
#define INFERD_TESTS_EXPECT_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct expect_value {
  bool is_real;
  double real;
  intmax_t integer; /* or a pointer; a uint64_t above INT64_MAX is shown as negative */
} expect_value_t;

typedef enum expect_relation {
  EXPECT_IS,
  EXPECT_NOT,
  EXPECT_LESS,
  EXPECT_AT_MOST
} expect_relation_t;

#define EXPECT_VALUE(value)                                                                        \
  ((expect_value_t){.is_real = _Generic((value), float                                             \
                                        : true, double                                             \
                                        : true, default                                            \
                                        : false),                                                  \
                    .real = _Generic((value), float                                                \
                                     : (value), double                                             \
                                     : (value), default : 0.0),                                    \
                    .integer = (intmax_t) _Generic((value), float : 0, double : 0, default         \
                                                   : (value))})

static inline bool expect_holds(expect_value_t left, expect_relation_t relation,
                                expect_value_t right) {
  bool same = left.integer == right.integer, less = left.integer < right.integer;
  if (left.is_real || right.is_real) {
    double a = left.is_real ? left.real : (double)left.integer;
    double b = right.is_real ? right.real : (double)right.integer;
    same = a >= b && a <= b;
    less = a < b;
  }
  switch (relation) {
  case EXPECT_IS: return same;
  case EXPECT_NOT: return !same;
  case EXPECT_LESS: return less;
  case EXPECT_AT_MOST: return less || same;
  }
  return false;
}

static inline const char *expect_show(char out[64], expect_value_t value) {
  bool small = value.integer >= INT32_MIN && value.integer <= UINT32_MAX;
  if (value.is_real) {
    snprintf(out, 64, "%.17g", value.real);
  } else if (small) {
    snprintf(out, 64, "%jd", value.integer);
  } else {
    snprintf(out, 64, "%jd (0x%jx)", value.integer, (uintmax_t)value.integer);
  }
  return out;
}

/* "condition: left is 1, right is 2" */
static inline const char *expect_compared(const char *condition, expect_value_t left,
                                          expect_value_t right) {
  static _Thread_local char text[1024];
  char left_text[64], right_text[64];
  snprintf(text, sizeof text, "%s: left is %s, right is %s", condition,
           expect_show(left_text, left), expect_show(right_text, right));
  return text;
}

static inline const char *expect_compared_str(const char *condition, const char *left,
                                              const char *right) {
  static _Thread_local char text[16384];
  snprintf(text, sizeof text, "%s:\nleft is  \"%.7000s\"\nright is \"%.7000s\"", condition,
           left != NULL ? left : "(NULL)", right != NULL ? right : "(NULL)");
  return text;
}

static inline bool expect_same_text(const char *left, const char *right) {
  if (left == NULL || right == NULL) return left == right;
  return strcmp(left, right) == 0;
}

__attribute__((format(printf, 1, 2))) static inline const char *expect_note(const char *format,
                                                                            ...) {
  static _Thread_local char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

#define EXPECT_COMPARE(fail, left, relation, right, condition, note)                               \
  do {                                                                                             \
    const expect_value_t expect_left = EXPECT_VALUE(left), expect_right = EXPECT_VALUE(right);     \
    if (!expect_holds(expect_left, relation, expect_right))                                        \
      fail("%s%s", expect_compared(condition, expect_left, expect_right), note);                   \
  } while (false)
#define EXPECT_COMPARE_STR(fail, left, wanted, right, condition, note)                             \
  do {                                                                                             \
    const char *const expect_left = (left), *const expect_right = (right);                         \
    if (expect_same_text(expect_left, expect_right) != (wanted))                                   \
      fail("%s%s", expect_compared_str(condition, expect_left, expect_right), note);               \
  } while (false)
#define EXPECT_NOTE(...) expect_note("; " __VA_ARGS__)

#include "tests/expect_forms.h"

#endif
