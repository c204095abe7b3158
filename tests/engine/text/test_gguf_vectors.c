/* test_gguf_vectors.c: tokenizers out of the metadata of GGUF files, against the reference's ids.
 *
 * scripts/vectors/tokenizer_gguf.py writes tests/vectors/tokenizer_gguf. The ids are those of the
 * same tokenizer under tests/vectors/tokenizer, but for texts that hold an added token with flags
 * that a GGUF file does not keep: those stand in NAME.json.
 */
#include "engine/text/tokenizer.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>

/* Returns the reference's ids of text `index`. */
static const json_t *expected_ids(const json_t *other, const json_t *list, int index) {
  char key[16];
  snprintf(key, sizeof key, "%d", index);
  const json_t *own = other != NULL ? json_get(other, key) : NULL;
  return own != NULL ? own : list;
}

static bool same_ids(const int32_t *ids, size_t count, const json_t *want) {
  size_t i = 0;
  if (count != want->count) return false;
  JSON_EACH(id, want) {
    int64_t value;
    cr_assert(json_int64(id, &value));
    if (ids[i++] != value) return false;
  }
  return true;
}

static int compare(const tokenizer_t *t, const json_t *texts, const json_t *lists,
                   const json_t *other, bool special) {
  int different = 0, index = 0;
  const json_t *list = json_first(lists);
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  tokenize_options_t options = {.add_special_tokens = special};
  for (const json_t *text = json_first(texts); text != NULL && list != NULL;
       text = json_next(text), list = json_next(list), index++) {
    inferd_error_t error = {0};
    int32_t *ids;
    size_t count;
    int code =
        tokenizer_encode(t, scratch, text->text, text->length, &options, &ids, &count, &error);
    ASSERT_EQ_FOR(code, 0, "%s", error.message);
    if (!same_ids(ids, count, expected_ids(other, list, index)) && different++ < 3)
      fprintf(stderr, "\"%.*s\": ids differ\n", (int)text->length, text->text);
    free(ids);
  }
  tokenizer_scratch_free(scratch);
  return different;
}

/* Returns the number of texts whose ids are not those of the tokenizer.json. */
static size_t check(const char *name, bool adds_bos) {
  char path[128];
  inferd_error_t error = {0};
  tokenizer_t *t;
  test_doc_t texts = test_parse("tests/vectors/tokenizer/texts.json");
  snprintf(path, sizeof path, "tests/vectors/tokenizer/%s/ids.json", name);
  test_doc_t ids = test_parse(path);
  snprintf(path, sizeof path, "tests/vectors/tokenizer_gguf/%s.json", name);
  test_doc_t other = test_parse(path);
  snprintf(path, sizeof path, "tests/vectors/tokenizer_gguf/%s.gguf", name);
  ASSERT_EQ_FOR(tokenizer_load(path, &t, &error), 0, "%s: %s", name, error.message);
  const json_t *root = json_root(ids.doc), *changed = json_root(other.doc);
  const json_t *plain = json_get(root, "plain");
  ASSERT_EQ(plain->count, json_root(texts.doc)->count);
  ASSERT_GT(plain->count, 200);
  EXPECT_EQ_FOR(compare(t, json_root(texts.doc), plain, changed, false), 0, "%s", name);
  if (adds_bos) {
    EXPECT_EQ_FOR(compare(t, json_root(texts.doc), json_get(root, "special"), changed, true), 0,
                  "%s with special tokens", name);
  } else {
    EXPECT_EQ_FOR(compare(t, json_root(texts.doc), plain, changed, true), 0, "%s adds none", name);
  }
  size_t count = changed->count;
  tokenizer_free(t);
  test_parse_free(&other);
  test_parse_free(&ids);
  test_parse_free(&texts);
  return count;
}

Test(gguf_vectors, byte_level_vocabularies_give_the_reference_ids) {
  static const char *const names[] = {"gpt2",         "smollm",         "llama3", "phi4",
                                      "qwen35",       "gpt_oss",        "tekken", "deepseek_v3",
                                      "deepseek_llm", "deepseek_coder", "falcon"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    ASSERT_EQ_FOR(check(names[i], false), 0, "%s", names[i]);
}

/* Names that no tokenizer.json of the tests stands for: their ids are in a file of their own. */
static void check_named(const char *name) {
  char path[128];
  inferd_error_t error = {0};
  tokenizer_t *t;
  test_doc_t texts = test_parse("tests/vectors/tokenizer/texts.json");
  snprintf(path, sizeof path, "tests/vectors/tokenizer_gguf/%s.json", name);
  test_doc_t ids = test_parse(path);
  snprintf(path, sizeof path, "tests/vectors/tokenizer_gguf/%s.gguf", name);
  ASSERT_EQ_FOR(tokenizer_load(path, &t, &error), 0, "%s: %s", name, error.message);
  ASSERT_EQ(json_root(ids.doc)->count, json_root(texts.doc)->count);
  ASSERT_EQ_FOR(compare(t, json_root(texts.doc), json_root(ids.doc), NULL, false), 0, "%s", name);
  tokenizer_free(t);
  test_parse_free(&ids);
  test_parse_free(&texts);
}

Test(gguf_vectors, names_of_pre_tokenizers_give_the_reference_ids) {
  static const char *const names[] = {"kimi_k2", "stablelm2", "bailingmoe", "minicpm5",
                                      "hunyuan_dense"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_named(names[i]);
}

/* Added tokens that strip spaces, want to stand alone, or are normalised. */
Test(gguf_vectors, flags_of_added_tokens_are_not_in_the_file) {
  ASSERT_EQ(check("qwen2", false), 24);
}

Test(gguf_vectors, merges_over_marked_spaces_give_the_reference_ids) {
  ASSERT_EQ(check("gemma", true), 0);
}

Test(gguf_vectors, scores_give_the_ids_of_sentencepiece) {
  ASSERT_EQ(check("spm_llama", true), 0);
  ASSERT_EQ(check("spm_gemma", true), 0);
}
