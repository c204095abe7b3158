/* test_error.c: the error table, messages and the masking of untrusted text. */
#include "engine/base/checked.h"
#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *quote(const char *text) {
  static char out[64];
  return error_quote(out, sizeof out, text, strlen(text));
}

Test(error, the_table_answers_for_every_code) {
  ASSERT_STR_EQ(error_name(ERR_QUEUE_FULL), "QUEUE_FULL");
  ASSERT_EQ(error_http_status(ERR_QUEUE_FULL), 429);
  ASSERT_STR_EQ(error_openai_type(ERR_QUEUE_FULL), "rate_limit_error");
  ASSERT_STR_EQ(error_openai_code(ERR_QUEUE_FULL), "queue_full");
  cr_assert_null(error_openai_code(ERR_BAD_REQUEST));
  ASSERT_EQ(error_http_status(ERR_OK), 200);
  ASSERT_EQ(error_http_status(ERR_DEVICE_FAILED), 500);
  ASSERT_EQ(error_http_status(ERR_ENGINE_FAILED), 503);
}

Test(error, an_unknown_code_is_an_internal_error) {
  ASSERT_STR_EQ(error_name(-12345), "INTERNAL");
  ASSERT_EQ(error_http_status(7), 500);
}

Test(error, exit_codes_are_those_of_sysexits) {
  ASSERT_EQ(error_exit_code(ERR_OK), 0);
  ASSERT_EQ(error_exit_code(ERR_USAGE), 64);
  ASSERT_EQ(error_exit_code(ERR_MODEL_MALFORMED), 65);
  ASSERT_EQ(error_exit_code(ERR_MODEL_MISSING), 66);
  ASSERT_EQ(error_exit_code(ERR_ADDRESS_IN_USE), 69);
  ASSERT_EQ(error_exit_code(ERR_IO), 74);
  ASSERT_EQ(error_exit_code(ERR_PERMISSION), 77);
  ASSERT_EQ(error_exit_code(ERR_CONFIGURATION), 78);
  ASSERT_EQ(error_exit_code(ERR_NO_MEMORY), 78);
  ASSERT_EQ(error_exit_code(ERR_INTERNAL), 70);
}

Test(error, numbers_names_and_codes_are_unique) {
  static const int codes[] = {
#define ERROR(name, number, ...) (number),
#include "engine/base/error.def"
#undef ERROR
  };
  size_t count = sizeof codes / sizeof codes[0];
  for (size_t i = 0; i < count; i++) {
    for (size_t j = i + 1; j < count; j++) {
      ASSERT_NE(codes[i], codes[j]);
      ASSERT_STR_NE(error_name(codes[i]), error_name(codes[j]));
    }
  }
}

Test(error, set_returns_the_code_and_fills_every_field) {
  inferd_error_t error = {0};
  ASSERT_EQ(error_set(&error, ERR_INVALID_VALUE, "top_p", "top_p is %d.", 7), ERR_INVALID_VALUE);
  ASSERT_EQ(error.code, ERR_INVALID_VALUE);
  ASSERT_STR_EQ(error.param, "top_p");
  ASSERT_STR_EQ(error.message, "top_p is 7.");
  ASSERT_EQ(error_set(&error, ERR_IO, NULL, "x"), ERR_IO);
  ASSERT_STR_EQ(error.param, "");
  ASSERT_EQ(error_set(NULL, ERR_IO, "p", "nobody listens"), ERR_IO);
}

Test(error, a_message_may_wrap_the_message_before_it) {
  inferd_error_t error = {0};
  error_set(&error, ERR_IO, "inner", "disk");
  error_set(&error, ERR_MODEL_MALFORMED, error.param, "model: %s", error.message);
  ASSERT_STR_EQ(error.message, "model: disk");
  ASSERT_STR_EQ(error.param, "inner");
}

Test(error, a_long_message_is_cut_at_a_character_and_marked) {
  char text[2000];
  for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "\xE4\xB8\xAD", 3);
  for (int shift = 0; shift < 3; shift++) {
    inferd_error_t error = {0};
    error_set(&error, ERR_IO, NULL, "%.*s%.*s", shift, "abc", 1200, text);
    size_t length = strlen(error.message);
    ASSERT_GT(length, (size_t)ERROR_MESSAGE_MAX - 8);
    ASSERT_STR_EQ(error.message + length - 3, "...");
    for (size_t i = 0; i < length;) {
      int span = utf8_span(error.message + i, length - i);
      ASSERT_GT(span, 0);
      i += (size_t)span;
    }
  }
}

Test(error, a_message_is_one_line) {
  inferd_error_t error = {0};
  error_set(&error, ERR_IO, NULL, "%s", "a\r\nb\x1b[31m\xFF");
  ASSERT_STR_EQ(error.message, "a??b?[31m?");
}

Test(error, quote_masks_what_could_break_out) {
  ASSERT_STR_EQ(quote("plain"), "plain");
  ASSERT_STR_EQ(quote("a\"b'c\\d"), "a?b?c?d");
  ASSERT_STR_EQ(quote("x\ty\x7F"), "x?y?");
  ASSERT_STR_EQ(quote("\xC2\x85z"), "?z"); /* a C1 control */
  ASSERT_STR_EQ(quote("\xE4\xB8\xAD\xC3\xA9"), "\xE4\xB8\xAD\xC3\xA9");
  ASSERT_STR_EQ(quote("\xED\xA0\x80"), "???"); /* a surrogate is three bad bytes */
  ASSERT_STR_EQ(quote("\xE4\xB8"), "?");       /* one broken character */
  char out[8];
  ASSERT_STR_EQ(error_quote(out, sizeof out, "a\0b", 3), "a?b");
}

Test(error, quote_cuts_at_every_capacity) {
  const char *text = "\xF0\x9F\x98\x80zzzz\xE4\xB8\xAD";
  for (unsigned capacity = 1; capacity < 20; capacity++) {
    char *out = malloc(capacity); /* exact, so that the sanitizer sees one byte too many */
    error_quote(out, capacity, text, strlen(text));
    ASSERT_LT(strlen(out), (size_t)capacity);
    if (capacity > strlen(text)) {
      ASSERT_STR_EQ(out, text);
    } else if (capacity >= 4) {
      ASSERT_STR_EQ(out + strlen(out) - 3, "...");
    }
    free(out);
  }
  char untouched = 'x';
  error_quote(&untouched, 0, text, strlen(text));
  ASSERT_EQ(untouched, 'x');
}

Test(checked, overflow_is_reported_and_leaves_the_result_alone) {
  size_t size = 1;
  int64_t number = 1;
  cr_assert(checked_add(SIZE_MAX - 1, 1, &size));
  ASSERT_EQ(size, SIZE_MAX);
  cr_assert_not(checked_add(SIZE_MAX, 1, &size));
  cr_assert(checked_mul(1u << 16, 1u << 16, &size));
  ASSERT_EQ(size, (size_t)1 << 32);
  cr_assert_not(checked_mul((size_t)1 << 33, (size_t)1 << 31, &size));
  ASSERT_EQ(size, (size_t)1 << 32);
  cr_assert(checked_align(65, 64, &size));
  ASSERT_EQ(size, 128);
  cr_assert(checked_align(128, 64, &size));
  ASSERT_EQ(size, 128);
  cr_assert_not(checked_align(SIZE_MAX - 3, 64, &size));
  cr_assert_not(checked_align(5, 3, &size));
  cr_assert_not(checked_align(5, 0, &size));
  cr_assert(checked_add_int64(INT64_MAX, -1, &number));
  ASSERT_EQ(number, INT64_MAX - 1);
  cr_assert_not(checked_add_int64(INT64_MIN, -1, &number));
  cr_assert(checked_mul_int64(INT64_MIN, 1, &number));
  ASSERT_EQ(number, INT64_MIN);
  cr_assert_not(checked_mul_int64(INT64_MIN, -1, &number));
}

Test(error, within_adds_the_place_once) {
  inferd_error_t error = {0};
  error_set(&error, ERR_MODEL_MALFORMED, "key", "tensor %s is missing", "a");
  ASSERT_EQ(error_within(&error, error.code, "/models/m"), ERR_MODEL_MALFORMED);
  ASSERT_STR_EQ(error.message, "/models/m: tensor a is missing");
  ASSERT_STR_EQ(error.param, "key");
  error_within(&error, error.code, "/models/m");
  ASSERT_STR_EQ(error.message, "/models/m: tensor a is missing");
  ASSERT_EQ(error_within(&error, 0, "/other"), 0);
  ASSERT_EQ(error_within(NULL, ERR_IO, "/other"), ERR_IO);
  ASSERT_STR_EQ(error.message, "/models/m: tensor a is missing");
  char path[601] = "";
  memset(path, 'd', 600);
  memcpy(path + 595, "/tail", 5);
  error_within(&error, error.code, path); /* of a long place the end is kept, and the message */
  cr_assert_not_null(strstr(error.message, "d/tail: /models/m: tensor a is missing"), "%s",
                     error.message);
  ASSERT_EQ(strncmp(error.message, "...d", 4), 0);
}

/* Every two-, three- and four-byte start against the definition by code points. */
Test(utf8, exactly_the_encodings_of_scalar_values_are_well_formed) {
  uint32_t valid = 0;
  for (uint32_t a = 0x80; a < 0x100; a++) {
    for (uint32_t b = 0; b < 0x100; b++) {
      char two[2] = {(char)a, (char)b};
      if (utf8_span(two, 2) == 2) valid++;
      for (uint32_t c = 0; c < 0x100; c++) {
        char three[3] = {(char)a, (char)b, (char)c};
        if (utf8_span(three, 3) == 3) valid++;
      }
    }
  }
  ASSERT_EQ(valid, 0x10000 - 0x80 - 0x800); /* U+0080..U+FFFF without surrogates */
  for (uint32_t code = 0; code <= 0x10FFFF; code++) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    char text[4];
    int length = utf8_write(text, code);
    ASSERT_EQ(utf8_span(text, (size_t)length), length);
    for (int cut = 1; cut < length; cut++) ASSERT_EQ(utf8_span(text, (size_t)cut), -cut);
  }
  ASSERT_EQ(utf8_span("\xF4\x90\x80\x80", 4), -1); /* U+110000 */
  ASSERT_EQ(utf8_span("\xF0\x8F\xBF\xBF", 4), -1); /* overlong */
  ASSERT_EQ(utf8_span("\xF5\x80\x80\x80", 4), -1);
}

Test(error, distance_of_texts) {
  EXPECT_EQ(error_distance("", ""), 0);
  EXPECT_EQ(error_distance("port", ""), 4);
  EXPECT_EQ(error_distance("kitten", "sitting"), 3);
  EXPECT_EQ(error_distance("flaw", "lawn"), 2);
  char left[ERROR_NEAR_MAX + 50], right[ERROR_NEAR_MAX + 50];
  memset(left, 'a', sizeof left - 1);
  memset(right, 'b', sizeof right - 1);
  left[sizeof left - 1] = right[sizeof right - 1] = '\0';
  EXPECT_EQ(error_distance(left, right), ERROR_NEAR_MAX);
}
