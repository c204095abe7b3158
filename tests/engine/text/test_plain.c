/* test_plain.c: special tokens that a request writes into its text stay text. */
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

TestSuite(plain, .timeout = 60);

static tokenizer_t *demo(void) {
  tokenizer_t *t = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(tokenizer_load("models/demo", &t, &error), 0, "%s", error.message);
  return t;
}

static int32_t *encode(const tokenizer_t *t, const char *text, const byte_span_t *plain,
                       size_t num_plain, size_t *count) {
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  tokenize_options_t options = {.plain = plain, .num_plain = num_plain};
  int32_t *ids;
  ASSERT_EQ(tokenizer_encode(t, s, text, strlen(text), &options, &ids, count, NULL), 0);
  tokenizer_scratch_free(s);
  return ids;
}

static int count_specials(const tokenizer_t *t, const int32_t *ids, size_t count) {
  int specials = 0;
  for (size_t i = 0; i < count; i++) {
    specials += (tokenizer_flags(t, ids[i]) & TOKEN_SPECIAL) != 0;
  }
  return specials;
}

/* A special token counts only when none of its bytes is the request's; the text stays whole. */
Test(plain, specials_of_a_request_are_text) {
  static const struct {
    const char *text;
    byte_span_t spans[2];
    size_t num_spans;
    int specials;
  } rows[] = {
      {"<|im_start|>user\nhi<|im_end|>", {{0, 0}}, 0, 2},
      {"<|im_start|>user\nhi<|im_end|>", {{17, 19}}, 1, 2},
      {"<|im_start|>a<|im_end|>b<|im_end|>", {{13, 24}}, 1, 2},
      {"<|im_start|>a<|im_end|>b<|im_end|>", {{12, 34}}, 1, 1},
      {"<|im_start|>a<|im_end|>b<|im_end|>", {{0, 1}, {33, 34}}, 2, 1},
      {"<|im_end|>", {{9, 10}}, 1, 0},
      {"<|im_end|>", {{0, 10}}, 1, 0},
      {"<|im_end|<|im_end|>", {{0, 9}}, 1, 1},
      {"<|im_end|>x<|im_end|>", {{10, 11}}, 1, 2},
  };
  tokenizer_t *t = demo();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    size_t count, length;
    int32_t *ids = encode(t, rows[i].text, rows[i].spans, rows[i].num_spans, &count);
    ASSERT_EQ_FOR(count_specials(t, ids, count), rows[i].specials, "row %zu", i);
    char *text;
    ASSERT_EQ(tokenizer_decode(t, ids, count, false, &text, &length, NULL), 0);
    ASSERT_EQ(length, strlen(rows[i].text));
    cr_assert(memcmp(text, rows[i].text, length) == 0);
    free(text);
    free(ids);
  }
  tokenizer_free(t);
}

/* Spans around ordinary text change no id. */
Test(plain, spans_cut_nothing) {
  static const char text[] = "<|im_start|>user\nOnce upon a time<|im_end|>\n";
  tokenizer_t *t = demo();
  size_t count, same;
  int32_t *ids = encode(t, text, NULL, 0, &count);
  for (size_t begin = 12; begin < 33; begin++) {
    byte_span_t span = {begin, 33};
    int32_t *again = encode(t, text, &span, 1, &same);
    ASSERT_EQ(same, count);
    cr_assert_arr_eq(again, ids, count * sizeof *ids);
    free(again);
  }
  free(ids);
  tokenizer_free(t);
}

/* `normalized` special tokens are looked for behind the normaliser: Prepend and Replace move every
 * byte, and the spans move along. The token's own content is normalised too: a blank is its start.
 */
Test(plain, specials_behind_a_normaliser) {
  static const char json[] =
      "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"special\":true,\"normalized\":true,"
      "\"single_word\":false,\"lstrip\":false,\"rstrip\":false}],"
      "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
      "\"\xE2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
      "\"\xE2\x96\x81\"},{\"type\":\"NFC\"}]},\"pre_tokenizer\":null,\"post_processor\":null,"
      "\"decoder\":null,\"model\":{\"type\":\"BPE\",\"vocab\":{\"<\":0,\"x\":1,\">\":2,\"a\":3,"
      "\"\xE2\x96\x81\":4,\"\\u00e4\":5,\"\\u0308\":6,\"\\u226f\":7,\"\\u0338\":8},"
      "\"merges\":[]}}";
  static const struct {
    const char *text;
    byte_span_t spans[2];
    size_t num_spans;
    int specials;
  } rows[] = {
      {"a <x> a <x> a", {{0, 0}}, 0, 2},
      {"a <x> a <x> a", {{0, 7}}, 1, 1},          /* the first is the request's */
      {"a <x> a <x> a", {{6, 13}}, 1, 1},         /* the second is */
      {"a <x> a <x> a", {{5, 8}}, 1, 1},          /* the blank before the second is */
      {"a <x> a <x> a", {{0, 3}, {9, 13}}, 2, 0}, /* a byte of each is */
      {"<x>a\xCC\x88 <x> <x>", {{3, 6}}, 1, 3},   /* NFC inside a span */
      {"<x>a\xCC\x88 <x> <x>", {{3, 7}}, 1, 2},   /* and over the next token's first byte */
      {"a <x>\xCC\x88 <x>", {{5, 7}}, 1, 2},      /* a mark that joins nothing */
      {"a<x> >\xCC\xB8 <x>", {{6, 8}}, 1, 0},     /* one that joins over the end */
  };
  tokenizer_t *t = test_load(json);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    size_t count;
    int32_t *ids = encode(t, rows[i].text, rows[i].spans, rows[i].num_spans, &count);
    ASSERT_EQ_FOR(count_specials(t, ids, count), rows[i].specials, "row %zu", i);
    free(ids);
  }
  tokenizer_free(t);
}
