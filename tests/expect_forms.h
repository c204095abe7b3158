/* expect_forms.h: the macros of expect.h, one for each relation: a and b alone, or with what they
 * are for. Included by expect.h only.
 */
#ifndef INFERD_TESTS_EXPECT_FORMS_H
#define INFERD_TESTS_EXPECT_FORMS_H

#define ASSERT_EQ(a, b) EXPECT_COMPARE(cr_assert_fail, a, EXPECT_IS, b, #a " == " #b, "")
#define ASSERT_EQ_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, a, EXPECT_IS, b, #a " == " #b, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_NE(a, b) EXPECT_COMPARE(cr_assert_fail, a, EXPECT_NOT, b, #a " != " #b, "")
#define ASSERT_NE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, a, EXPECT_NOT, b, #a " != " #b, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_LT(a, b) EXPECT_COMPARE(cr_assert_fail, a, EXPECT_LESS, b, #a " < " #b, "")
#define ASSERT_LT_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, a, EXPECT_LESS, b, #a " < " #b, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_LE(a, b) EXPECT_COMPARE(cr_assert_fail, a, EXPECT_AT_MOST, b, #a " <= " #b, "")
#define ASSERT_LE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, a, EXPECT_AT_MOST, b, #a " <= " #b, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_GT(a, b) EXPECT_COMPARE(cr_assert_fail, b, EXPECT_LESS, a, #b " < " #a, "")
#define ASSERT_GT_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, b, EXPECT_LESS, a, #b " < " #a, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_GE(a, b) EXPECT_COMPARE(cr_assert_fail, b, EXPECT_AT_MOST, a, #b " <= " #a, "")
#define ASSERT_GE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_assert_fail, b, EXPECT_AT_MOST, a, #b " <= " #a, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_STR_EQ(a, b) EXPECT_COMPARE_STR(cr_assert_fail, a, true, b, #a " == " #b, "")
#define ASSERT_STR_EQ_FOR(a, b, ...)                                                               \
  EXPECT_COMPARE_STR(cr_assert_fail, a, true, b, #a " == " #b, EXPECT_NOTE(__VA_ARGS__))
#define ASSERT_STR_NE(a, b) EXPECT_COMPARE_STR(cr_assert_fail, a, false, b, #a " != " #b, "")
#define ASSERT_STR_NE_FOR(a, b, ...)                                                               \
  EXPECT_COMPARE_STR(cr_assert_fail, a, false, b, #a " != " #b, EXPECT_NOTE(__VA_ARGS__))

#define EXPECT_EQ(a, b) EXPECT_COMPARE(cr_expect_fail, a, EXPECT_IS, b, #a " == " #b, "")
#define EXPECT_EQ_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, a, EXPECT_IS, b, #a " == " #b, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_NE(a, b) EXPECT_COMPARE(cr_expect_fail, a, EXPECT_NOT, b, #a " != " #b, "")
#define EXPECT_NE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, a, EXPECT_NOT, b, #a " != " #b, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_LT(a, b) EXPECT_COMPARE(cr_expect_fail, a, EXPECT_LESS, b, #a " < " #b, "")
#define EXPECT_LT_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, a, EXPECT_LESS, b, #a " < " #b, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_LE(a, b) EXPECT_COMPARE(cr_expect_fail, a, EXPECT_AT_MOST, b, #a " <= " #b, "")
#define EXPECT_LE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, a, EXPECT_AT_MOST, b, #a " <= " #b, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_GT(a, b) EXPECT_COMPARE(cr_expect_fail, b, EXPECT_LESS, a, #b " < " #a, "")
#define EXPECT_GT_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, b, EXPECT_LESS, a, #b " < " #a, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_GE(a, b) EXPECT_COMPARE(cr_expect_fail, b, EXPECT_AT_MOST, a, #b " <= " #a, "")
#define EXPECT_GE_FOR(a, b, ...)                                                                   \
  EXPECT_COMPARE(cr_expect_fail, b, EXPECT_AT_MOST, a, #b " <= " #a, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_STR_EQ(a, b) EXPECT_COMPARE_STR(cr_expect_fail, a, true, b, #a " == " #b, "")
#define EXPECT_STR_EQ_FOR(a, b, ...)                                                               \
  EXPECT_COMPARE_STR(cr_expect_fail, a, true, b, #a " == " #b, EXPECT_NOTE(__VA_ARGS__))
#define EXPECT_STR_NE(a, b) EXPECT_COMPARE_STR(cr_expect_fail, a, false, b, #a " != " #b, "")
#define EXPECT_STR_NE_FOR(a, b, ...)                                                               \
  EXPECT_COMPARE_STR(cr_expect_fail, a, false, b, #a " != " #b, EXPECT_NOTE(__VA_ARGS__))

#endif
