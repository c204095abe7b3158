/* test_render.c: numbers, strings, logprobs and text offsets as they are printed. */
#include "engine/base/arena.h"
#include "server/completion/logprobs.h"
#include "server/fields/json_copy.h"
#include "server/observe/histogram.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(render, .timeout = 60);

static const token_style_t style = {NULL, false, true};

static void expect(buffer_t *buffer, const char *expected) {
  buffer_char(buffer, '\0');
  cr_assert(!buffer->failed);
  ASSERT_STR_EQ(buffer->data, expected);
  buffer_free(buffer);
}

static void expect_float(float value, const char *expected) {
  char text[FLOAT_TEXT_MAX];
  ASSERT_EQ_FOR(float_print(text, value), strlen(expected), "%s", text);
  ASSERT_STR_EQ(text, expected);
}

Test(render, floats) {
  expect_float(0, "0.0");
  expect_float(-1, "-1.0");
  expect_float(0.5f, "0.5");
  expect_float(-9999, "-9999.0");
  expect_float(0.1f, "0.1");
  expect_float(-0.30000001192092896f, "-0.3");
  expect_float(-1.0e-7f, "-1e-07");
  expect_float(16777216, "16777216.0");
  expect_float(3.4028235e38f, "3.4028235e+38");
  expect_float(1.401298464e-45f, "1.4013e-45");
}

/* Any float32 reads back as itself, as JSON, and no shorter decimal would. */
Test(render, floats_round_trip) {
  uint32_t bits = 12345;
  for (int i = 0; i < 300000; i++) {
    float value, back;
    bits = bits * 1664525 + 1013904223;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    char text[FLOAT_TEXT_MAX], shorter[FLOAT_TEXT_MAX];
    size_t length = float_print(text, value);
    ASSERT_LT(length, FLOAT_TEXT_MAX);
    ASSERT_EQ(text[length], '\0');
    back = strtof(text, NULL);
    ASSERT_EQ_FOR(memcmp(&value, &back, sizeof value), 0, "%s", text);
    int digits = 0;
    for (const char *p = text; *p != '\0' && *p != 'e'; p++) digits += *p >= '0' && *p <= '9';
    if (digits > 6 && strchr(text, 'e') != NULL) { /* an exponent: all digits count */
      snprintf(shorter, sizeof shorter, "%.*e", digits - 2, (double)value);
      ASSERT_NE_FOR(strtof(shorter, NULL), value, "%s is shorter than %s", shorter, text);
    }
  }
}

/* The same where logprobs live, against printf: it reads back and is never longer. */
Test(render, logprobs_round_trip) {
  uint32_t bits = 99;
  for (int i = 0; i < 400000; i++) {
    char text[FLOAT_TEXT_MAX], reference[32];
    bits = bits * 1664525 + 1013904223;
    float scale = powf(10, (float)(i % 12) - 4.9f);
    float value = i < 4096 ? -(float)i / 16 : -scale * (float)(bits >> 8) * 0x1p-24f;
    size_t length = float_print(text, value), digits = 6;
    do {
      snprintf(reference, sizeof reference, "%.*g", (int)digits, (double)value);
    } while (strtof(reference, NULL) != value && digits++ < 9);
    if (strpbrk(reference, ".e") == NULL) strcat(reference, ".0");
    ASSERT_EQ_FOR(strtof(text, NULL), value, "%s for %s", text, reference);
    ASSERT_EQ(length, strlen(text));
    cr_assert(text[length - 1] >= '0' && text[length - 1] <= '9', "%s", text);
    ASSERT_LE_FOR(length, strlen(reference), "%s is longer than %s", text, reference);
  }
}

Test(render, doubles) {
  char text[DOUBLE_TEXT_MAX];
  double_print(text, 3);
  ASSERT_STR_EQ(text, "3");
  double_print(text, 0.1);
  ASSERT_STR_EQ(text, "0.1");
  double_print(text, 1.0 / 3);
  ASSERT_EQ(strtod(text, NULL), 1.0 / 3);
  double_print(text, INFINITY);
  ASSERT_STR_EQ(text, "+Inf");
  double_print(text, 9007199254740991.0);
  ASSERT_STR_EQ(text, "9007199254740991");
}

Test(render, buffers) {
  buffer_t buffer = {0};
  buffer_int(&buffer, INT64_MIN);
  buffer_char(&buffer, ' ');
  buffer_uint(&buffer, UINT64_MAX);
  buffer_quote(&buffer, "a\"\x01\xff", 4);
  buffer_ids(&buffer, (int32_t[]){1, -2}, 2);
  expect(&buffer, "-9223372036854775808 18446744073709551615\"a\\\"\\u0001\xef\xbf\xbd\"[1,-2]");
  char many[500];
  memset(many, 1, sizeof many);
  for (size_t length = 0; length < sizeof many; length += 7) { /* every size of first room */
    buffer_t grown = {0};
    buffer_escape(&grown, many, length);
    ASSERT_EQ(grown.length, 6 * length);
    buffer_free(&grown);
  }
  cr_assert(!buffer_reserve(&buffer, SIZE_MAX / 2));
  cr_assert(buffer.failed);
  size_t length;
  ASSERT_EQ(buffer_detach(&buffer, &length), NULL);
}

Test(render, values_outlive_their_document) {
  static const char text[] = "[0,{\"a\":[\"x\\u00e9\",1.5,null,[]],\"\":{},\"b\":\"\"},true]";
  arena_t arena = {0};
  json_doc_t *doc = NULL;
  char *body = strdup(text);
  ASSERT_EQ(json_parse(body, strlen(body), &json_limits_request, &doc, NULL), 0);
  const json_t *copy = json_copy(&arena, json_next(json_first(json_root(doc))));
  json_free(doc);
  memset(body, 'x', strlen(body));
  free(body);
  cr_assert(copy != NULL);
  ASSERT_EQ(copy->type, JSON_OBJECT);
  ASSERT_EQ(json_next(copy), NULL);
  const json_t *a = json_get(copy, "a");
  ASSERT_EQ(a->count, 4);
  cr_assert(json_equals(json_first(a), "x\xc3\xa9"));
  double number;
  cr_assert(json_double(json_next(json_first(a)), &number));
  ASSERT_EQ(number, 1.5);
  ASSERT_EQ(json_get(copy, "")->type, JSON_OBJECT);
  cr_assert(json_equals(json_get(copy, "b"), ""));
  ASSERT_EQ(json_next(json_get(copy, "b")), NULL);
  ASSERT_EQ(json_copy(&arena, NULL), NULL);
  arena_free(&arena);
}

static void add(logprob_text_t *text, int32_t id, float logprob, const token_logprob_t *top,
                int32_t num_top, int32_t num_best) {
  logprob_entry_t entry = {.id = id,
                           .has_logprob = true,
                           .logprob = logprob,
                           .rank = 1,
                           .num_best = num_best,
                           .num_asked = num_best,
                           .num_top = num_top,
                           .top = top};
  logprob_text_add(text, &style, &entry, NULL);
}

static void expect_tops(logprob_text_t *text, const char *expected) {
  buffer_char(&text->tops, '\0');
  ASSERT_STR_EQ(text->tops.data, expected);
  logprob_text_free(text);
}

Test(render, top_logprobs) {
  token_logprob_t top[] = {{'a', -0.5f}, {'b', -1}, {'c', -2}};
  logprob_text_t text = {0};
  add(&text, 'a', -0.5f, top, 3, 3); /* the sampled one is among them */
  expect_tops(&text, "{\"a\":-0.5,\"b\":-1.0,\"c\":-2.0}");
  text = (logprob_text_t){0};
  add(&text, 'z', -7, top, 3, 3); /* it is not: k + 1 entries */
  expect_tops(&text, "{\"z\":-7.0,\"a\":-0.5,\"b\":-1.0,\"c\":-2.0}");
  text = (logprob_text_t){0};
  add(&text, 'z', -7, top, 0, 0); /* logprobs 0: exactly the sampled one */
  add(&text, 'b', -INFINITY, top, 0, 0);
  expect_tops(&text, "{\"z\":-7.0},{\"b\":-9999.0}");
}

/* Parts of characters have the same string: the sampled one stays, else the likelier. */
Test(render, equal_strings_collapse) {
  token_logprob_t top[] = {{0x80, -0.5f}, {0x81, -0.25f}, {'b', -1}, {0x82, -3}};
  logprob_text_t text = {0};
  add(&text, 'b', -1, top, 4, 4);
  expect_tops(&text, "{\"b\":-1.0,\"\xef\xbf\xbd\":-0.25}");
  text = (logprob_text_t){0};
  add(&text, 0x82, -3, top, 4, 4);
  expect_tops(&text, "{\"\xef\xbf\xbd\":-3.0,\"b\":-1.0}");
}

/* What is printed later, from gaps, is what is printed at once. */
Test(render, alternatives_in_gaps) {
  enum { COUNT = 120, POSITIONS = 3 };
  static token_logprob_t top[COUNT];
  static const int32_t sampled[POSITIONS] = {'a', 0x82, 'z'}; /* the last is not among the best */
  uint32_t slots[1 << 8];
  seen_tokens_t seen = {slots, seen_tokens_slots(COUNT) - 1};
  score_row_t rows[3 * POSITIONS];
  logprob_text_t now = {0}, later = {0}, chat_now = {0}, chat_later = {0};
  buffer_t prompt_now = {0}, prompt_later = {0}, gaps = {0};
  ASSERT_LT(seen.mask, ARRAY_LEN(slots));
  /* the letters to 'w', and parts of characters, which all have one string */
  for (int i = 0; i < COUNT; i++) {
    top[i] = (token_logprob_t){i % 2 ? 0x80 + i / 2 : 'w' - i / 2, -(float)i};
  }
  for (int i = 0; i < 3 * POSITIONS; i++) rows[i].seen = &seen;
  for (int i = 0; i < POSITIONS; i++) {
    logprob_entry_t entry = {.id = sampled[i],
                             .has_logprob = true,
                             .logprob = -7,
                             .rank = 3,
                             .num_best = COUNT - 20,
                             .num_asked = COUNT,
                             .num_top = COUNT,
                             .top = top};
    logprob_text_add(&now, &style, &entry, NULL);
    logprob_text_add(&later, &style, &entry, &rows[i]);
    logprob_text_add_chat(&chat_now, &style, &entry, NULL);
    logprob_text_add_chat(&chat_later, &style, &entry, &rows[POSITIONS + i]);
    prompt_logprob_add(&prompt_now, &gaps, &style, &entry, NULL);
    ASSERT_EQ(gaps.length, (size_t)i * sizeof(gap_t));
    prompt_logprob_add(&prompt_later, &gaps, &style, &entry, &rows[2 * POSITIONS + i]);
  }
  static const logprob_text_t none = {0};
  for (int flat = 0; flat <= 1; flat++) {
    for (size_t room = 1; room < 5000; room = room * 3 + 1) {
      cord_t cords[6] = {{.flat = flat}, {.flat = flat}, {.flat = flat}, {.flat = flat}};
      buffer_t out[6] = {0};
      logprob_text_object(&none, &now, &cords[0]);
      logprob_text_object(&none, &later, &cords[1]);
      logprob_text_chat_object(&chat_now, &cords[2]);
      logprob_text_chat_object(&chat_later, &cords[3]);
      cord_bytes(&cords[4], prompt_now.data, prompt_now.length);
      logprob_splice(&cords[5], &prompt_later, &gaps);
      for (int i = 0; i < 6; i++) {
        while (cord_print(&cords[i], &out[i], room)) continue;
        buffer_char(&out[i], '\0');
        cord_free(&cords[i]);
      }
      for (int i = 0; i < 6; i += 2) {
        ASSERT_STR_EQ(out[i + 1].data, out[i].data);
        buffer_free(&out[i]), buffer_free(&out[i + 1]);
      }
    }
  }
  logprob_text_free(&now), logprob_text_free(&later);
  logprob_text_free(&chat_now), logprob_text_free(&chat_later);
  buffer_free(&prompt_now), buffer_free(&prompt_later), buffer_free(&gaps);
}

/* logprob_token_ids stand behind the best ones and are reported whatever k is. */
Test(render, extra_ids) {
  token_logprob_t top[] = {{'a', -0.5f}, {'b', -1}, {'x', -8}, {'y', -9}};
  logprob_entry_t entry = {.id = 'a',
                           .has_logprob = true,
                           .logprob = -0.5f,
                           .num_best = 1,
                           .num_asked = 2,
                           .num_top = 4,
                           .top = top};
  logprob_text_t text = {0};
  logprob_text_add(&text, &style, &entry, NULL);
  expect_tops(&text, "{\"a\":-0.5,\"x\":-8.0,\"y\":-9.0}");
}

Test(render, tokens_as_ids) {
  token_style_t ids = {NULL, true, true};
  buffer_t buffer = {0};
  token_quote(&buffer, &ids, 17);
  token_quote(&buffer, &style, FAKE_THE);
  token_quote(&buffer, &style, 0xc3);
  expect(&buffer, "\"token_id:17\"\" the\"\"\xef\xbf\xbd\"");
}

/* Counting in pieces equals counting at once, wherever the cuts fall. */
Test(render, text_offsets_do_not_depend_on_cuts) {
  static const char text[] = "a\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80z\xff\xc3(\xe4\xbd\xf0\x9f\x98q";
  size_t length = sizeof text - 1;
  text_offset_t whole = {0};
  text_offset_bytes(&whole, text, length);
  /* five characters, FF, C3, '(', E4 BD, F0 9F 98 and q */
  ASSERT_EQ(whole.code_points, 11);
  for (size_t first = 0; first <= length; first++) {
    for (size_t second = first; second <= length; second++) {
      text_offset_t cut = {0};
      text_offset_bytes(&cut, text, first);
      text_offset_bytes(&cut, text + first, second - first);
      text_offset_bytes(&cut, text + second, length - second);
      ASSERT_EQ_FOR(cut.code_points, whole.code_points, "%zu %zu", first, second);
    }
  }
}

Test(render, text_offsets_of_tokens) {
  text_offset_t offset = {0};
  text_offset_token(&offset, &style, FAKE_EOS); /* skipped: takes no place */
  ASSERT_EQ(offset.code_points, 0);
  text_offset_token(&offset, &style, 0xc3);
  ASSERT_EQ(offset.code_points, 0);
  text_offset_token(&offset, &style, 0xa9);
  ASSERT_EQ(offset.code_points, 1);
  text_offset_token(&offset, &style, FAKE_THE);
  ASSERT_EQ(offset.code_points, 5);
  token_style_t shown = {NULL, false, false};
  text_offset_token(&offset, &shown, FAKE_EOS);
  ASSERT_EQ(offset.code_points, 9);
}

/* An unfinished character counts before a token that does not continue it. */
Test(render, text_offsets_behind_broken_characters) {
  static const struct {
    int32_t id;
    int64_t before;
  } tokens[] = {{0xe4, 0}, {'a', 1},  {0xe4, 2}, {0xbd, 2}, {0xa0, 2},    {0x80, 3},
                {0xff, 4}, {0xc3, 5}, {0xc3, 6}, {0xa9, 6}, {FAKE_THE, 7}};
  text_offset_t offset = {0};
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
    ASSERT_EQ_FOR(text_offset_before(&offset, &style, tokens[i].id), tokens[i].before, "token %zu",
                  i);
    text_offset_token(&offset, &style, tokens[i].id);
  }
}

Test(render, text_offsets_of_prompts) {
  static const char prompt[] = "the\xc3\xa9<s>x";
  static const struct {
    int32_t id;
    int64_t before;
  } tokens[] = {{FAKE_BOS, 0}, {FAKE_THE, 0}, {0xc3, 3}, {0xa9, 3}, {FAKE_BOS, 4}, {'x', 7}};
  text_offset_t offset = {0};
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
    ASSERT_EQ_FOR(offset.code_points, tokens[i].before, "token %zu", i);
    text_offset_prompt(&offset, &style, tokens[i].id, prompt, sizeof prompt - 1);
  }
  ASSERT_EQ(offset.code_points, 8);
  text_offset_prompt(&offset, &style, FAKE_THE, prompt, sizeof prompt - 1); /* beyond the end */
  ASSERT_EQ(offset.code_points, 8);
}

Test(render, histograms) {
  histogram_t histogram;
  histogram_init(&histogram, &bounds_itl, &bounds_itl_vllm);
  for (int i = 1; i < histogram.num_bounds; i++) {
    ASSERT_LT(histogram.bounds[i - 1], histogram.bounds[i]);
  }
  for (int i = 0; i < 1000; i++) histogram_observe(&histogram, (double)i * 0.001);
  ASSERT_EQ_FOR(histogram_at_most(&histogram, 0.01), 11, "a bound belongs to its bucket");
  ASSERT_EQ(histogram_at_most(&histogram, 80), 1000);
  histogram_observe(&histogram, 1e9);
  ASSERT_EQ(histogram.count, 1001);
  ASSERT_EQ(histogram_at_most(&histogram, 80), 1000);
}
