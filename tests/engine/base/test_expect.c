/* test_expect.c: what a failing assertion of tests/expect.h prints: both values and their purpose.
 *
 * The failures are planted: `record` stands in for Criterion's macros and keeps the message.
 */
#include "tests/expect.h"

static char printed[32768];

#define record(...) (void)snprintf(printed, sizeof printed, __VA_ARGS__)

static int calls;

static int counted(int value) {
  calls++;
  return value;
}

TestSuite(expect, .timeout = 30);

Test(expect, a_failure_prints_both_values) {
  const int64_t large = (int64_t)1 << 40;
  EXPECT_COMPARE(record, 1 + 1, EXPECT_IS, 3, "1 + 1 == 3", "");
  ASSERT_STR_EQ(printed, "1 + 1 == 3: left is 2, right is 3");
  EXPECT_COMPARE(record, -1, EXPECT_NOT, -1, "a != b", "");
  ASSERT_STR_EQ(printed, "a != b: left is -1, right is -1");
  EXPECT_COMPARE(record, 5, EXPECT_LESS, 5, "a < b", "");
  ASSERT_STR_EQ(printed, "a < b: left is 5, right is 5");
  EXPECT_COMPARE(record, large, EXPECT_AT_MOST, 7, "a <= b", "");
  ASSERT_STR_EQ(printed, "a <= b: left is 1099511627776 (0x10000000000), right is 7");
  EXPECT_COMPARE(record, 0.5, EXPECT_IS, 1, "half == 1", "");
  ASSERT_STR_EQ(printed, "half == 1: left is 0.5, right is 1");
  EXPECT_COMPARE_STR(record, "left", true, NULL, "a == b", "");
  ASSERT_STR_EQ(printed, "a == b:\nleft is  \"left\"\nright is \"(NULL)\"");
}

Test(expect, a_failure_prints_what_it_is_for) {
  EXPECT_COMPARE(record, 1, EXPECT_IS, 2, "a == b", EXPECT_NOTE("row %d", 7));
  ASSERT_STR_EQ(printed, "a == b: left is 1, right is 2; row 7");
}

Test(expect, a_comparison_that_holds_prints_nothing) {
  printed[0] = '\0';
  EXPECT_COMPARE(record, 2, EXPECT_IS, 2, "", "");
  EXPECT_COMPARE(record, 2, EXPECT_NOT, 3, "", "");
  EXPECT_COMPARE(record, 2, EXPECT_LESS, 2.5, "", "");
  EXPECT_COMPARE(record, -1, EXPECT_AT_MOST, -1, "", "");
  EXPECT_COMPARE_STR(record, "a", true, "a", "", "");
  EXPECT_COMPARE_STR(record, "a", false, "b", "", "");
  ASSERT_STR_EQ(printed, "");
}

Test(expect, each_side_is_evaluated_once) {
  EXPECT_COMPARE(record, counted(1), EXPECT_IS, counted(2), "", "");
  ASSERT_EQ(calls, 2);
}
