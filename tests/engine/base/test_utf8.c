/* test_utf8.c: every code point is written, spanned and read back; what is ill formed is not. */
#include "engine/base/utf8.h"
#include "tests/expect.h"

#include <string.h>

Test(utf8, every_code_point_goes_there_and_back) {
  for (uint32_t code = 0; code <= 0x10FFFF; code++) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    char text[5] = {0};
    int length = utf8_write(text, code);
    unsigned read;
    ASSERT_EQ_FOR(length, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, "%x", code);
    ASSERT_EQ_FOR(utf8_span(text, (size_t)length), length, "%x", code);
    ASSERT_EQ_FOR(utf8_read((const uint8_t *)text, &read), code, "%x", code);
    ASSERT_EQ_FOR(read, (unsigned)length, "%x", code);
    ASSERT_EQ_FOR(utf8_length((uint8_t)text[0]), (unsigned)length, "%x", code);
    ASSERT_EQ_FOR(utf8_previous((const uint8_t *)text, (size_t)length), 0, "%x", code);
    ASSERT_EQ_FOR(utf8_count(text, (size_t)length), 1, "%x", code);
    for (int cut = 1; cut < length; cut++) {
      ASSERT_EQ_FOR(utf8_span(text, (size_t)cut), -cut, "%x cut to %d bytes", code, cut);
    }
  }
}

Test(utf8, steps_over_a_text) {
  static const char text[] = "a\u00e9\u4e2d\U0010ffffz";
  static const size_t starts[] = {0, 1, 3, 6, 10, 11};
  const uint8_t *bytes = (const uint8_t *)text;
  ASSERT_EQ(utf8_count(text, 11), 5);
  for (size_t i = 1; i < 6; i++) ASSERT_EQ(utf8_previous(bytes, starts[i]), starts[i - 1]);
  for (size_t i = 0, next = 0; i < 11; i++) {
    ASSERT_EQ_FOR(utf8_continues(bytes[i]), i != starts[next], "byte %zu", i);
    next += i == starts[next];
  }
}

Test(utf8, whole_texts_are_validated) {
  static const char *const bad[] = {
      "\x80", "\xC0\xAF",          "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
      "\xF5", "abcdefghi\xE4\xB8", "\xFF"};
  for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
    cr_expect_not(utf8_valid(bad[i], strlen(bad[i])), "case %u", i);
  cr_expect(utf8_valid("abcdefgh\u00e9\u4e2d\U0010ffff", 17));
  cr_expect(utf8_valid("", 0));
}
