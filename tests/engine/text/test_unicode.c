/* test_unicode.c: versions and counts of the generated tables, and NFC against known forms. */
#include "engine/text/normalize/normalizer.h"
#include "engine/text/unicode/unicode.h"
#include "tests/expect.h"

#include <ctype.h>
#include <string.h>

static unsigned count_class(uint8_t bit) {
  unsigned n = 0;
  for (uint32_t c = 0; c < 0x110000; c++) n += (unicode_class(c) & bit) != 0;
  return n;
}

static unsigned count_extra(uint8_t bit) {
  unsigned n = 0;
  for (uint32_t c = 0; c < 0x110000; c++) n += (unicode_extra(c) & bit) != 0;
  return n;
}

Test(unicode, classes_are_those_of_version_16) {
  EXPECT_EQ(count_class(CLASS_LETTER), 141028);
  EXPECT_EQ(count_class(CLASS_NUMBER), 1911);
  EXPECT_EQ(count_class(CLASS_MARK), 2501);
  EXPECT_EQ(count_class(CLASS_PUNCTUATION), 855);
  EXPECT_EQ(count_class(CLASS_SYMBOL), 8514);
  EXPECT_EQ(count_class(CLASS_SPACE), 25);
  unsigned upper = 0, lower = 0, both = 0;
  for (uint32_t c = 0; c < 0x110000; c++) {
    uint8_t k = unicode_class(c);
    upper += (k & CLASS_UPPER) && !(k & CLASS_LOWER);
    lower += (k & CLASS_LOWER) && !(k & CLASS_UPPER);
    both += (k & CLASS_UPPER) && (k & CLASS_LOWER);
  }
  EXPECT_EQ(upper, 1858 + 31);          /* Lu and Lt */
  EXPECT_EQ(lower, 2258);               /* Ll */
  EXPECT_EQ(both, 404 + 136477 + 2501); /* Lm, Lo and M */
}

Test(unicode, other_tables_have_pins_of_their_own) {
  EXPECT_EQ(count_extra(EXTRA_DIGIT), 1924);
  EXPECT_EQ(count_extra(EXTRA_PUNCT), 726);
  cr_expect(unicode_extra(0x11DE0) & EXTRA_DIGIT, "a digit of Unicode 17");
  cr_expect_not(unicode_class(0x11DE0) & CLASS_NUMBER);
  cr_expect(unicode_extra('$') & EXTRA_PUNCT);
  cr_expect_not(unicode_extra(0x2E43) & EXTRA_PUNCT, "punctuation since Unicode 9");
  cr_expect(unicode_extra(0x200D) & EXTRA_WORD);
  for (uint32_t c = 0; c < 128; c++)
    EXPECT_EQ_FOR((unicode_extra(c) & EXTRA_WORD) != 0, c == '_' || isalnum((int)c), "%c", (int)c);
  cr_expect_not(unicode_class(0x180E) & CLASS_SPACE);
  cr_expect(unicode_class(0x85) & CLASS_SPACE);
  EXPECT_EQ_FOR(unicode_ccc(0x1E94A), 7, "in Unicode 9");
  EXPECT_EQ_FOR(unicode_ccc(0x1DF9), 0, "a mark of Unicode 10 is not reordered");
}

static void expect_nfc(const char *text, const char *want) {
  buffer_t chars = {0}, out = {0};
  bool changed = false;
  cr_assert(nfc_append((const uint8_t *)text, strlen(text), &chars, &out, &changed));
  const char *got = changed ? (const char *)out.data : text;
  size_t length = changed ? out.length : strlen(text);
  cr_expect(length == strlen(want) && memcmp(got, want, length) == 0, "NFC of \"%s\"", text);
  buffer_free(&chars);
  buffer_free(&out);
}

Test(unicode, nfc_composes_orders_and_leaves_the_rest) {
  expect_nfc("plain text", "plain text");
  expect_nfc("caf\u00e9", "caf\u00e9");
  expect_nfc("cafe\u0301", "caf\u00e9");
  expect_nfc("e\u0301\u0327x", "\u0229\u0301x");
  expect_nfc("\u212b", "\u00c5");
  expect_nfc("\u1100\u1161\u11a8", "\uac01");
  expect_nfc("\uac00\u11a8", "\uac01");
  expect_nfc("\u0958", "\u0915\u093c"); /* composition exclusion */
  expect_nfc("\u1e9b\u0323", "\u1e9b\u0323");
  expect_nfc("\u0344", "\u0308\u0301");
  expect_nfc("\u0301a", "\u0301a");
  expect_nfc("a\u0301\u0301b\u0323\u0307", "\u00e1\u0301\u1e05\u0307");
  expect_nfc("\u1e63\u0307", "\u1e69"); /* s with dot below and above */
}

Test(unicode, nfc_sorts_long_runs_of_marks_stably) {
  enum { N = 5000 };
  char text[2 + 4 * N], want[2 + 4 * N];
  size_t n = 0, m = 0;
  text[n++] = want[m++] = '-';
  for (int i = 0; i < N; i++) memcpy(text + n, i % 2 ? "\u0327" : "\u0301", 2), n += 2;
  for (int i = 0; i < N; i++) memcpy(want + m, i < N / 2 ? "\u0327" : "\u0301", 2), m += 2;
  text[n] = want[m] = 0;
  expect_nfc(text, want);
}
