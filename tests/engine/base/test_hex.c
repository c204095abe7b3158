/* test_hex.c: every byte is the digit that it should be, or none. */
#include "engine/base/hex.h"

#include <criterion/criterion.h>
#include <string.h>

Test(hex, digits_of_both_cases_and_nothing_else) {
  static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
  for (int byte = -128; byte < 256; byte++) {
    char digit = (char)byte;
    const char *at = digit == 0 ? NULL : strchr(lower, digit);
    int expected = at != NULL ? (int)(at - lower) : -1;
    at = digit == 0 ? NULL : strchr(upper, digit);
    if (at != NULL) expected = (int)(at - upper);
    cr_assert_eq(hex_value(digit), expected, "byte %d", byte);
  }
  for (uint32_t value = 0; value < 64; value++) {
    cr_assert_eq(hex_digit(value), lower[value % 16], "%u", value);
  }
}
