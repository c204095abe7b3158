/* test_named.c: tokens that only the files beside the vocabulary know.
 *
 * Expectations are what AutoTokenizer of transformers gives for the same files.
 */
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

static const char json[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"special\":true}],\"model\":{\"type\":"
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<x>\":3,\" \":4},\"merges\":[]}}";

/* Loads a directory of the named files; names and texts in turn, NULL ends. */
static int load(const char *const *files, tokenizer_t **out, inferd_error_t *error) {
  const char *dir = test_temp_dir();
  for (; files[0] != NULL; files += 2) test_write(dir, files[0], files[1], strlen(files[1]));
  int rc = tokenizer_load(dir, out, error);
  test_remove_dir(dir);
  return rc;
}

static void expect_ids(const char *const *files, const char *text, size_t count,
                       const int32_t *want) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  size_t got;
  ASSERT_EQ_FOR(load(files, &t, &error), 0, "%s", error.message);
  int32_t *ids = test_encode(t, text, strlen(text), &got);
  ASSERT_EQ_FOR(got, count, "%s: %zu ids", text, got);
  for (size_t i = 0; i < count; i++) EXPECT_EQ_FOR(ids[i], want[i], "%s: id %zu", text, i);
  free(ids);
  tokenizer_free(t);
}
#define EXPECT_IDS(files, text, ...)                                                               \
  expect_ids(files, text, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),                      \
             (int32_t[]){__VA_ARGS__})
#define WITH_CONFIG(config)                                                                        \
  ((const char *const[]){"tokenizer.json", json, "tokenizer_config.json", config, NULL})

Test(named, a_token_called_special_is_found_although_the_list_lacks_it) {
  EXPECT_IDS(WITH_CONFIG("{}"), "ab", 0, 1);
  EXPECT_IDS(WITH_CONFIG("{\"bos_token\":\"ab\"}"), "ab", 2);
  EXPECT_IDS(WITH_CONFIG("{\"additional_special_tokens\":[\"ab\"]}"), "ab", 2);
  EXPECT_IDS(WITH_CONFIG("{\"extra_special_tokens\":{\"image\":\"ab\"}}"), "ab", 2);
  EXPECT_IDS(WITH_CONFIG("{\"pad_token\":\"ba\"}"), "ba", 1, 0); /* it has no id */
}

Test(named, the_configuration_changes_and_continues_the_list) {
  EXPECT_IDS(WITH_CONFIG("{}"), "<x> a", 3, 4, 0);
  EXPECT_IDS(
      WITH_CONFIG("{\"added_tokens_decoder\":{\"3\":{\"content\":\"<x>\",\"rstrip\":true}}}"),
      "<x> a", 3, 0);
  EXPECT_IDS(WITH_CONFIG("{\"added_tokens_decoder\":{\"6\":{\"content\":\"bb\"},"
                         "\"5\":{\"content\":\"aa\"}}}"),
             "aabb", 5, 6);
}

Test(named, broken_lists_are_refused) {
  static const char *const configs[] = {
      "{\"added_tokens_decoder\":{\"7\":{\"content\":\"aa\"}}}",
      "{\"added_tokens_decoder\":{\"x\":{\"content\":\"aa\"}}}",
      "{\"added_tokens_decoder\":{\"5\":{\"content\":7}}}",
      "{\"added_tokens_decoder\":{\"5\":{\"content\":\"aa\",\"lstrip\":1}}}",
      "{\"added_tokens_decoder\":{\"99999999999999\":{\"content\":\"aa\"}}}",
  };
  for (unsigned i = 0; i < sizeof configs / sizeof configs[0]; i++) {
    tokenizer_t *t;
    inferd_error_t error = {0};
    EXPECT_EQ_FOR(load(WITH_CONFIG(configs[i]), &t, &error), ERR_MODEL_MALFORMED, "case %u", i);
    cr_expect_not_null(strstr(error.message, "tokenizer_config.json"), "%s", error.message);
  }
}

static const char vocab[] = "{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"\xC4\xA0"
                            "a\":3,\"<|endoftext|>\":4}";
static const char merges[] = "\xC4\xA0 a\n";
#define LEGACY(...)                                                                                \
  ((const char *const[]){"vocab.json", vocab, "merges.txt", merges, __VA_ARGS__, NULL})

Test(named, legacy_files_have_their_added_tokens_elsewhere) {
  EXPECT_IDS(LEGACY(NULL), "a a<|endoftext|>", 0, 3, 4);
  EXPECT_IDS(LEGACY("added_tokens.json", "{\"bb\":6,\"aa\":5}"), "aabb<|endoftext|>", 5, 6, 4);
  EXPECT_IDS(LEGACY("tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\","
                                             "\"add_prefix_space\":true}"),
             "a", 3);
}

Test(named, legacy_files_of_another_class_are_refused) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  const char *const *files =
      LEGACY("tokenizer_config.json", "{\"tokenizer_class\":\"Qwen2Tokenizer\"}");
  EXPECT_EQ(load(files, &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "Qwen2Tokenizer"), "%s", error.message);
  EXPECT_EQ(load(LEGACY("added_tokens.json", "{\"bb\":9}"), &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "added_tokens.json"), "%s", error.message);
}
