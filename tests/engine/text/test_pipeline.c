/* test_pipeline.c: places where the parts of a pipeline meet, as the reference resolves them.
 *
 * Every expectation was found by tests/parity/parity_pipelines.py, and is what `tokenizers` gives.
 */
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters a, b, x, a line feed and a space, and added tokens. */
static tokenizer_t *make(const char *added) {
  char json[1024];
  snprintf(json, sizeof json,
           "{\"added_tokens\":[%s],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
           "\"x\":2,\"\\n\":3,\" \":4},\"merges\":[]}}",
           added);
  return test_load(json);
}

static void expect_ids(const tokenizer_t *t, const char *text, size_t count, const int32_t *want) {
  size_t got;
  int32_t *ids = test_encode(t, text, strlen(text), &got);
  ASSERT_EQ_FOR(got, count, "%s: %zu ids", text, got);
  for (size_t i = 0; i < count; i++) EXPECT_EQ_FOR(ids[i], want[i], "%s: id %zu", text, i);
  free(ids);
}
#define EXPECT_IDS(t, text, ...)                                                                   \
  expect_ids(t, text, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[]){__VA_ARGS__})

Test(pipeline, a_word_beside_a_single_word_token_may_be_an_x) {
  tokenizer_t *t = make("{\"id\":5,\"content\":\"ab\",\"single_word\":true}");
  EXPECT_IDS(t, "ab ab", 5, 4, 5);
  EXPECT_IDS(t, "xab", 2, 0, 1);
  EXPECT_IDS(t, "abx", 0, 1, 2);
  tokenizer_free(t);
}

Test(pipeline, a_token_whose_text_another_one_took_is_gone_only_if_it_strips_to_the_left) {
  static const char left[] = "{\"id\":5,\"content\":\"<a>\",\"rstrip\":true},"
                             "{\"id\":6,\"content\":\"\\n\\n\",\"lstrip\":true}";
  static const char plain[] = "{\"id\":5,\"content\":\"<a>\",\"rstrip\":true},"
                              "{\"id\":6,\"content\":\"\\n\\n\"}";
  tokenizer_t *t = make(left);
  EXPECT_IDS(t, "<a>\n\nx", 5, 2);
  tokenizer_free(t);
  t = make(plain);
  EXPECT_IDS(t, "<a>\n\nx", 5, 6, 2);
  tokenizer_free(t);
}

/* The reference asks where in the raw text a piece begins. */
Test(pipeline, metaspace_first_is_refused_where_the_start_of_the_text_may_move) {
  static const char first[] = "{\"type\":\"Metaspace\",\"replacement\":\"_\","
                              "\"prepend_scheme\":\"first\",\"split\":false}";
  static const struct {
    const char *normalizer, *before; /* components */
    bool loads;
  } cases[] = {
      {"{\"type\":\"NFC\"}", "", true},
      {"{\"type\":\"NFC\"}", "{\"type\":\"Digits\"},", false},
      {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", "", true},
      {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}", "", true},
      {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}", "", true},
      {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", "", false},
      {"{\"type\":\"Prepend\",\"prepend\":\"_\"}", "", false},
      {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\"}", "", false},
      {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"xx\"},\"content\":\"a\"}", "", false},
      {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"ab\"}", "", false},
      {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"\"}", "", false},
      {"{\"type\":\"NFC\"}",
       "{\"type\":\"Metaspace\",\"replacement\":\"y\",\"prepend_scheme\":\"always\"},", false},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char json[1024];
    tokenizer_t *t;
    inferd_error_t error = {0};
    snprintf(
        json, sizeof json,
        "{\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s%s]},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        cases[i].normalizer, cases[i].before, first);
    int rc = test_load_text(json, strlen(json), &t, &error);
    EXPECT_EQ_FOR(rc == 0, cases[i].loads, "case %u: %s", i, error.message);
    if (rc == 0)
      tokenizer_free(t);
    else
      cr_expect_not_null(strstr(error.message, "Metaspace"), "case %u: %s", i, error.message);
  }
}
