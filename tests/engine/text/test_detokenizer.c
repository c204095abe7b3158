/* test_detokenizer.c: text from ids, piece by piece: UTF-8, stop strings, holding back.
 *
 * The tokenizer has one token per byte (byte-level) and a few longer ones, so that every split of a
 * text into tokens can be made.
 */
#include "engine/base/utf8.h"
#include "engine/text/model/bpe.h"
#include "engine/text/stream/detokenizer.h"
#include "engine/text/unicode/unicode.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tokenizer_t *bytes_tokenizer; /* id = byte; 256 "END", 257 "xENDy", 258 <end> special */

static void make(void) {
  char json[16384];
  int n = snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
  for (int byte = 0; byte < 256; byte++) {
    char mapped[5] = {0};
    int length = utf8_write(mapped, bpe_byte_char((uint8_t)byte));
    const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
    n += snprintf(json + n, sizeof json - (size_t)n, "%s\"%s%.*s\":%d", byte ? "," : "", escape,
                  length, mapped, byte);
  }
  snprintf(
      json + n, sizeof json - (size_t)n,
      ",\"END\":256,\"xENDy\":257}},\"added_tokens\":[{\"content\":\"<end>\",\"special\":true}],"
      "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}");
  bytes_tokenizer = test_load(json);
}

static void unmake(void) {
  tokenizer_free(bytes_tokenizer);
}
TestSuite(detokenizer, .init = make, .fini = unmake);

typedef struct result {
  char text[8192];
  size_t length;
  int stop;
} result_t;

/* Feeds ids until a stop; every chunk must be well-formed UTF-8. */
static void feed_ids(const int32_t *ids, size_t count, const stop_set_t *stops, bool include,
                     bool skip, size_t min_tokens, result_t *r) {
  size_t room = detokenizer_out_max(bytes_tokenizer, stops);
  char *held = malloc(stop_set_hold_max(stops) + 1), *out = malloc(room);
  detokenizer_t d;
  r->length = 0, r->stop = -1;
  detokenizer_init(&d, bytes_tokenizer, stops, skip, include, held);
  for (size_t i = 0; i <= count && r->stop < 0; i++) {
    detokenized_t x = i < count ? detokenizer_feed(&d, ids[i], i >= min_tokens, out)
                                : detokenizer_finish(&d, out);
    ASSERT_LE(x.length, room);
    cr_assert(utf8_valid(x.text, x.length), "a chunk is not well-formed");
    memcpy(r->text + r->length, x.text, x.length);
    r->length += x.length, r->stop = x.stop_index;
  }
  r->text[r->length] = 0;
  free(held);
  free(out);
}

static void feed_bytes(const char *text, const stop_set_t *stops, bool include, result_t *r) {
  int32_t ids[1024];
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++) ids[i] = (uint8_t)text[i];
  feed_ids(ids, n, stops, include, true, 0, r);
}

static stop_set_t *stops_of(const char *const *strings, int count) {
  size_t lengths[STOP_STRINGS_MAX] = {0};
  stop_set_t *s = NULL;
  inferd_error_t error = {0};
  for (int i = 0; i < count; i++) lengths[i] = strlen(strings[i]);
  ASSERT_EQ_FOR(stop_set_new(strings, lengths, count, &s, &error), 0, "%s", error.message);
  return s;
}

Test(detokenizer, ill_formed_bytes_become_one_replacement_per_part) {
  result_t r;
  static const char *const cases[][2] = {{"\xF0\xE4\xB8"
                                          "a",
                                          "\uFFFD\uFFFDa"},
                                         {"\xE4\xE4\xB8\xAD", "\uFFFD中"},
                                         {"\xE4\xB8", "\uFFFD"},
                                         {"\xE4\xB8\xAD\xE4", "中\uFFFD"},
                                         {"\x80\xFF", "\uFFFD\uFFFD"},
                                         {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
                                         {"\xF0\x9F\x98\x80", "\U0001F600"},
                                         {"\xF0\x9F\x98", "\uFFFD"},
                                         {"\xC3(", "\uFFFD("},
                                         {"a\xF4\x90\x80", "a\uFFFD\uFFFD\uFFFD"}};
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    feed_bytes(cases[i][0], NULL, false, &r);
    EXPECT_STR_EQ_FOR(r.text, cases[i][1], "case %u: %s", i, r.text);
  }
}

Test(detokenizer, stops_across_tokens_and_characters) {
  static const char *const strings[] = {"END", "终止", "\n\n"};
  stop_set_t *s = stops_of(strings, 3);
  static const struct {
    const char *text, *want;
    int stop;
  } cases[] = {{"abcENDxyz", "abc", 0},
               {"EEND", "E", 0},
               {"ENEND", "EN", 0},
               {"ab终止x", "ab", 1},
               {"ab终终止", "ab终", 1},
               {"a\n\n\n", "a", 2},
               {"no stop EN", "no stop EN", -1},
               {"终", "终", -1},
               {"a\nb\nc", "a\nb\nc", -1}};
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    result_t r;
    feed_bytes(cases[i].text, s, false, &r);
    EXPECT_STR_EQ_FOR(r.text, cases[i].want, "case %u: %s", i, r.text);
    EXPECT_EQ_FOR(r.stop, cases[i].stop, "case %u", i);
  }
  stop_set_free(s);
}

Test(detokenizer, stop_inside_one_token_and_included) {
  static const char *const strings[] = {"END"};
  stop_set_t *s = stops_of(strings, 1);
  result_t r;
  int32_t ids[] = {'a', 257, 'b'};
  feed_ids(ids, 3, s, false, true, 0, &r);
  EXPECT_STR_EQ(r.text, "ax");
  feed_ids(ids, 3, s, true, true, 0, &r);
  EXPECT_STR_EQ(r.text, "axEND");
  EXPECT_EQ(r.stop, 0);
  stop_set_free(s);
}

Test(detokenizer, min_tokens_and_special_tokens) {
  static const char *const strings[] = {"END", "<end>"};
  stop_set_t *s = stops_of(strings, 2);
  result_t r;
  int32_t ids[] = {256, 'a', 256, 'b'};
  feed_ids(ids, 4, s, false, true, 1, &r);
  EXPECT_STR_EQ_FOR(r.text, "ENDa", "the first token is not searched");
  int32_t split[] = {'E', 'N', 'D', 'x'};
  feed_ids(split, 4, s, false, true, 2, &r);
  EXPECT_STR_EQ_FOR(r.text, "ENDx", "a stop string cannot begin before min_tokens");
  int32_t special[] = {'a', 258, 'b'};
  feed_ids(special, 3, s, false, true, 0, &r);
  EXPECT_STR_EQ_FOR(r.text, "ab", "a skipped token is not visible");
  EXPECT_EQ(r.stop, -1);
  feed_ids(special, 3, s, false, false, 0, &r);
  EXPECT_STR_EQ(r.text, "a");
  EXPECT_EQ(r.stop, 1);
  int32_t strange[] = {'a', -1, 1 << 30, 'b'};
  feed_ids(strange, 4, s, false, true, 0, &r);
  EXPECT_STR_EQ(r.text, "ab");
  stop_set_free(s);
}

Test(detokenizer, harmless_text_is_not_held_back) {
  static const char *const strings[] = {"aab"};
  stop_set_t *s = stops_of(strings, 1);
  char held[8], out[64];
  detokenizer_t d;
  detokenizer_init(&d, bytes_tokenizer, s, true, false, held);
  EXPECT_EQ(detokenizer_feed(&d, 'x', true, out).length, 1);
  EXPECT_EQ(detokenizer_feed(&d, 'a', true, out).length, 0);
  EXPECT_EQ(detokenizer_feed(&d, 'a', true, out).length, 0);
  EXPECT_EQ_FOR(detokenizer_feed(&d, 'a', true, out).length, 1, "the oldest a is safe");
  EXPECT_EQ(detokenizer_feed(&d, 'c', true, out).length, 3);
  stop_set_free(s);
}

/* The earliest end of any stop string; ties by list order. */
static int plain_search(const char *text, const char *const *strings, int count, size_t *cut) {
  for (size_t end = 1; end <= strlen(text); end++) {
    for (int i = 0; i < count; i++) {
      size_t n = strlen(strings[i]);
      if (end >= n && memcmp(text + end - n, strings[i], n) == 0) return *cut = end - n, i;
    }
  }
  return *cut = strlen(text), -1;
}

Test(detokenizer, agrees_with_a_plain_search) {
  uint64_t random = 77;
  for (int round = 0; round < 4000; round++) {
    char buffer[4][8], text[40];
    const char *strings[4];
    int count = 1 + (int)(test_random(&random) % 4);
    for (int i = 0; i < count; i++) {
      size_t n = 1 + test_random(&random) % 5;
      for (size_t j = 0; j < n; j++) buffer[i][j] = (char)('a' + test_random(&random) % 2);
      buffer[i][n] = 0, strings[i] = buffer[i];
    }
    size_t n = test_random(&random) % 30, cut;
    for (size_t j = 0; j < n; j++) text[j] = (char)('a' + test_random(&random) % 3);
    text[n] = 0;
    stop_set_t *s = stops_of(strings, count);
    int want = plain_search(text, strings, count, &cut);
    result_t r;
    feed_bytes(text, s, false, &r);
    ASSERT_EQ_FOR(r.stop, want, "round %d", round);
    cr_assert(r.length == cut && memcmp(r.text, text, cut) == 0, "round %d: %s", round, text);
    stop_set_free(s);
  }
}

/* Any split of the bytes into tokens gives the text of the whole. */
Test(detokenizer, every_split_gives_the_same_text) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  ASSERT_EQ(tokenizer_load("tests/vectors/tokenizer/qwen2", &t, &error), 0);
  static const char text[] = "naïve 中文 😀 e\u0301 \"quoted\" END";
  size_t count;
  int32_t *ids = test_encode(t, text, strlen(text), &count);
  char whole[256], out[2048];
  for (int bytes = 0; bytes < 2; bytes++) {
    size_t length = 0;
    detokenizer_t d;
    detokenizer_init(&d, t, NULL, true, false, NULL);
    for (size_t i = 0; i < count; i++) {
      size_t n;
      const char *raw = tokenizer_bytes(t, ids[i], &n);
      for (size_t j = 0; bytes && j < n; j++) {
        char mapped[4];
        int m = utf8_write(mapped, bpe_byte_char((uint8_t)raw[j]));
        detokenized_t x = detokenizer_feed(&d, tokenizer_id(t, mapped, (size_t)m), true, out);
        memcpy(whole + length, x.text, x.length), length += x.length;
      }
      if (bytes) continue;
      detokenized_t x = detokenizer_feed(&d, ids[i], true, out);
      memcpy(whole + length, x.text, x.length), length += x.length;
    }
    whole[length] = 0;
    EXPECT_STR_EQ(whole, "naïve 中文 😀 \u00e9 \"quoted\" END");
  }
  free(ids);
  tokenizer_free(t);
}

Test(detokenizer, stop_sets_are_checked) {
  char longest[STOP_STRING_BYTES_MAX + 2];
  memset(longest, 'a', sizeof longest);
  const char *strings[STOP_STRINGS_MAX + 1] = {longest};
  size_t lengths[STOP_STRINGS_MAX + 1];
  stop_set_t *s;
  inferd_error_t error = {0};
  for (int i = 0; i <= STOP_STRINGS_MAX; i++) strings[i] = longest, lengths[i] = 3;
  EXPECT_EQ(stop_set_new(strings, lengths, STOP_STRINGS_MAX + 1, &s, &error), ERR_ABOVE_MAX);
  EXPECT_EQ(stop_set_new(strings, (size_t[]){0}, 1, &s, &error), ERR_INVALID_VALUE);
  EXPECT_EQ(stop_set_new(strings, (size_t[]){STOP_STRING_BYTES_MAX + 1}, 1, &s, &error),
            ERR_ABOVE_MAX);
  EXPECT_EQ(stop_set_new((const char *[]){"\xE4"}, (size_t[]){1}, 1, &s, &error),
            ERR_INVALID_VALUE);
  EXPECT_EQ(stop_set_new(strings, lengths, 0, &s, &error), 0);
  cr_expect_null(s);
  EXPECT_EQ(stop_set_hold_max(NULL), 0);
  for (int i = 0; i < STOP_STRINGS_MAX; i++) lengths[i] = (size_t)(STOP_STRING_BYTES_MAX - i);
  ASSERT_EQ(stop_set_new(strings, lengths, STOP_STRINGS_MAX, &s, &error), 0);
  EXPECT_EQ(stop_set_hold_max(s), STOP_STRING_BYTES_MAX);
  size_t length;
  EXPECT_EQ(stop_set_string(s, 2, &length)[0], 'a');
  EXPECT_EQ(length, STOP_STRING_BYTES_MAX - 2);
  cr_expect_null(stop_set_string(s, STOP_STRINGS_MAX, &length));
  stop_set_free(s);
}

/* Special tokens that a request wants to see are text like any other; the others are skipped. */
Test(detokenizer, shown_special_tokens) {
  static const int32_t shown[] = {7, 258};
  char out[64];
  for (int num_shown = 0; num_shown <= 2; num_shown++) {
    detokenizer_t d;
    detokenizer_init(&d, bytes_tokenizer, NULL, true, false, NULL);
    d.shown_ids = shown;
    d.num_shown_ids = num_shown;
    detokenized_t text = detokenizer_feed(&d, 258, true, out);
    ASSERT_EQ(text.length, num_shown == 2 ? strlen("<end>") : 0);
    text = detokenizer_feed(&d, 'a', true, out);
    ASSERT_EQ(text.length, 1);
  }
}
