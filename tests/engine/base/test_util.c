/* test_util.c: the macros at their edges, also inside larger expressions. */
#include "engine/base/util.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

Test(util, smaller_and_larger) {
  cr_assert_eq(MIN(3, -4), -4);
  cr_assert_eq(MAX(3, -4), 3);
  cr_assert_eq(MIN(INT64_MIN, INT64_MAX), INT64_MIN);
  cr_assert_eq(2 * MAX(1 + 1, 3 - 2) + 1, 5);
  cr_assert(isnan(MIN(1.0f, NAN)) && MIN(NAN, 1.0f) == 1.0f, "the second when not smaller");
}

Test(util, divisions_and_multiples) {
  for (int64_t by = 1; by < 70; by++) {
    for (int64_t value = 0; value < 300; value++) {
      int64_t parts = value / by + (value % by != 0);
      cr_assert_eq(DIV_UP(value, by), parts, "%lld / %lld", (long long)value, (long long)by);
      cr_assert_eq(ROUND_UP(value, by), parts * by);
    }
  }
  cr_assert_eq(ROUND_UP(3 + 2, 2 + 2) / DIV_UP(8, 4), 4);
}

Test(util, lengths_of_arrays) {
  struct {
    uint64_t inner[7];
  } outer[3];
  cr_assert_eq(ARRAY_LEN(outer), 3);
  cr_assert_eq(ARRAY_LEN(outer->inner), 7);
}
