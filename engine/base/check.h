/* check.h: assertions that stay in release builds. Any thread.
 *
 * For bugs of inferd only: no request and no model file may make a CHECK fail. A CHECK that fails
 * prints a line to standard error and aborts the process.
 */
#ifndef INFERD_ENGINE_BASE_CHECK_H
#define INFERD_ENGINE_BASE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) check_failed(#condition, __FILE__, __LINE__);                                \
  } while (false)

/* A CHECK of two integers or two pointers that prints both values when it fails. Each side is
 * evaluated once and compared as intmax_t: the order of unsigned numbers above INT64_MAX is wrong.
 */
#define CHECK_EQ(left, right) CHECK_COMPARE(left, ==, right, #left " == " #right)
#define CHECK_NE(left, right) CHECK_COMPARE(left, !=, right, #left " != " #right)
#define CHECK_LT(left, right) CHECK_COMPARE(left, <, right, #left " < " #right)
#define CHECK_LE(left, right) CHECK_COMPARE(left, <=, right, #left " <= " #right)
#define CHECK_GT(left, right) CHECK_COMPARE(left, >, right, #left " > " #right)
#define CHECK_GE(left, right) CHECK_COMPARE(left, >=, right, #left " >= " #right)
/* first <= value < end. */
#define CHECK_RANGE(value, first, end)                                                             \
  do {                                                                                             \
    const intmax_t check_value = (intmax_t)(value);                                                \
    CHECK_COMPARE(check_value, >=, first, #value " >= " #first);                                   \
    CHECK_COMPARE(check_value, <, end, #value " < " #end);                                         \
  } while (false)

#define CHECK_COMPARE(left, operator, right, text)                                                 \
  do {                                                                                             \
    _Static_assert(CHECK_IS_EXACT(left) && CHECK_IS_EXACT(right), "integers and pointers only");   \
    const intmax_t check_left = (intmax_t)(left), check_right = (intmax_t)(right);                 \
    if (!(check_left operator check_right))                                                        \
      check_values_failed(text, __FILE__, __LINE__, check_left, check_right);                      \
  } while (false)
#define CHECK_IS_EXACT(value) _Generic((value), float : 0, double : 0, long double : 0, default : 1)

_Noreturn void check_failed(const char *condition, const char *file, int line);
/* Values that do not fit in 32 bits may be pointers, so they are printed in hexadecimal too. */
_Noreturn void check_values_failed(const char *condition, const char *file, int line, intmax_t left,
                                   intmax_t right);

#endif
