/* test_error.c: the error table, messages and the masking of untrusted text. */
#include "engine/base/checked.h"
#include "engine/base/error.h"
#include "engine/base/utf8.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *quote(const char *text) {
  static char out[64];
  return error_quote(out, sizeof out, text, strlen(text));
}

Test(error, the_table_answers_for_every_code) {
  cr_assert_str_eq(error_name(ERR_QUEUE_FULL), "QUEUE_FULL");
  cr_assert_eq(error_http_status(ERR_QUEUE_FULL), 429);
  cr_assert_str_eq(error_openai_type(ERR_QUEUE_FULL), "rate_limit_error");
  cr_assert_str_eq(error_openai_code(ERR_QUEUE_FULL), "queue_full");
  cr_assert_null(error_openai_code(ERR_BAD_REQUEST));
  cr_assert_eq(error_http_status(ERR_OK), 200);
  cr_assert_eq(error_http_status(ERR_DEVICE_FAILED), 500);
  cr_assert_eq(error_http_status(ERR_ENGINE_FAILED), 503);
}

Test(error, an_unknown_code_is_an_internal_error) {
  cr_assert_str_eq(error_name(-12345), "INTERNAL");
  cr_assert_eq(error_http_status(7), 500);
}

Test(error, exit_codes_are_those_of_sysexits) {
  cr_assert_eq(error_exit_code(ERR_OK), 0);
  cr_assert_eq(error_exit_code(ERR_USAGE), 64);
  cr_assert_eq(error_exit_code(ERR_MODEL_MALFORMED), 65);
  cr_assert_eq(error_exit_code(ERR_MODEL_MISSING), 66);
  cr_assert_eq(error_exit_code(ERR_ADDRESS_IN_USE), 69);
  cr_assert_eq(error_exit_code(ERR_IO), 74);
  cr_assert_eq(error_exit_code(ERR_PERMISSION), 77);
  cr_assert_eq(error_exit_code(ERR_CONFIGURATION), 78);
  cr_assert_eq(error_exit_code(ERR_NO_MEMORY), 78);
  cr_assert_eq(error_exit_code(ERR_INTERNAL), 70);
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
      cr_assert_neq(codes[i], codes[j]);
      cr_assert_str_neq(error_name(codes[i]), error_name(codes[j]));
    }
  }
}

Test(error, set_returns_the_code_and_fills_every_field) {
  error_t error = {0};
  cr_assert_eq(error_set(&error, ERR_INVALID_VALUE, "top_p", "top_p is %d.", 7), ERR_INVALID_VALUE);
  cr_assert_eq(error.code, ERR_INVALID_VALUE);
  cr_assert_str_eq(error.param, "top_p");
  cr_assert_str_eq(error.message, "top_p is 7.");
  cr_assert_eq(error_set(&error, ERR_IO, NULL, "x"), ERR_IO);
  cr_assert_str_eq(error.param, "");
  cr_assert_eq(error_set(NULL, ERR_IO, "p", "nobody listens"), ERR_IO);
}

Test(error, a_message_may_wrap_the_message_before_it) {
  error_t error = {0};
  error_set(&error, ERR_IO, "inner", "disk");
  error_set(&error, ERR_MODEL_MALFORMED, error.param, "model: %s", error.message);
  cr_assert_str_eq(error.message, "model: disk");
  cr_assert_str_eq(error.param, "inner");
}

Test(error, a_long_message_is_cut_at_a_character_and_marked) {
  char text[2000];
  for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "\xE4\xB8\xAD", 3);
  for (int shift = 0; shift < 3; shift++) {
    error_t error = {0};
    error_set(&error, ERR_IO, NULL, "%.*s%.*s", shift, "abc", 1200, text);
    size_t length = strlen(error.message);
    cr_assert_gt(length, (size_t)ERROR_MESSAGE_MAX - 8);
    cr_assert_str_eq(error.message + length - 3, "...");
    for (size_t i = 0; i < length;) {
      int span = utf8_span(error.message + i, length - i);
      cr_assert_gt(span, 0);
      i += (size_t)span;
    }
  }
}

Test(error, a_message_is_one_line) {
  error_t error = {0};
  error_set(&error, ERR_IO, NULL, "%s", "a\r\nb\x1b[31m\xFF");
  cr_assert_str_eq(error.message, "a??b?[31m?");
}

Test(error, quote_masks_what_could_break_out) {
  cr_assert_str_eq(quote("plain"), "plain");
  cr_assert_str_eq(quote("a\"b'c\\d"), "a?b?c?d");
  cr_assert_str_eq(quote("x\ty\x7F"), "x?y?");
  cr_assert_str_eq(quote("\xC2\x85z"), "?z"); /* a C1 control */
  cr_assert_str_eq(quote("\xE4\xB8\xAD\xC3\xA9"), "\xE4\xB8\xAD\xC3\xA9");
  cr_assert_str_eq(quote("\xED\xA0\x80"), "???"); /* a surrogate is three bad bytes */
  cr_assert_str_eq(quote("\xE4\xB8"), "?");       /* one broken character */
  char out[8];
  cr_assert_str_eq(error_quote(out, sizeof out, "a\0b", 3), "a?b");
}

Test(error, quote_cuts_at_every_capacity) {
  const char *text = "\xF0\x9F\x98\x80zzzz\xE4\xB8\xAD";
  for (unsigned capacity = 1; capacity < 20; capacity++) {
    char *out = malloc(capacity); /* exact, so that the sanitizer sees one byte too many */
    error_quote(out, capacity, text, strlen(text));
    cr_assert_lt(strlen(out), (size_t)capacity);
    if (capacity > strlen(text)) {
      cr_assert_str_eq(out, text);
    } else if (capacity >= 4) {
      cr_assert_str_eq(out + strlen(out) - 3, "...");
    }
    free(out);
  }
  char untouched = 'x';
  error_quote(&untouched, 0, text, strlen(text));
  cr_assert_eq(untouched, 'x');
}

Test(checked, overflow_is_reported_and_leaves_the_result_alone) {
  size_t size = 1;
  int64_t number = 1;
  cr_assert(checked_add(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
  cr_assert_not(checked_add(SIZE_MAX, 1, &size));
  cr_assert(checked_mul(1u << 16, 1u << 16, &size) && size == (size_t)1 << 32);
  cr_assert_not(checked_mul((size_t)1 << 33, (size_t)1 << 31, &size));
  cr_assert_eq(size, (size_t)1 << 32);
  cr_assert(checked_align(65, 64, &size) && size == 128);
  cr_assert(checked_align(128, 64, &size) && size == 128);
  cr_assert_not(checked_align(SIZE_MAX - 3, 64, &size));
  cr_assert_not(checked_align(5, 3, &size));
  cr_assert_not(checked_align(5, 0, &size));
  cr_assert(checked_add_int64(INT64_MAX, -1, &number) && number == INT64_MAX - 1);
  cr_assert_not(checked_add_int64(INT64_MIN, -1, &number));
  cr_assert(checked_mul_int64(INT64_MIN, 1, &number) && number == INT64_MIN);
  cr_assert_not(checked_mul_int64(INT64_MIN, -1, &number));
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
  cr_assert_eq(valid, 0x10000 - 0x80 - 0x800); /* U+0080..U+FFFF without surrogates */
  for (uint32_t code = 0; code <= 0x10FFFF; code++) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    char text[4];
    int length = utf8_write(text, code);
    cr_assert_eq(utf8_span(text, (size_t)length), length);
    for (int cut = 1; cut < length; cut++) cr_assert_eq(utf8_span(text, (size_t)cut), -cut);
  }
  cr_assert_eq(utf8_span("\xF4\x90\x80\x80", 4), -1); /* U+110000 */
  cr_assert_eq(utf8_span("\xF0\x8F\xBF\xBF", 4), -1); /* overlong */
  cr_assert_eq(utf8_span("\xF5\x80\x80\x80", 4), -1);
}
