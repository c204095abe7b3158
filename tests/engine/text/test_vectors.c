/* test_vectors.c: the ids and texts that the reference library gave for tests/vectors/tokenizer.
 *
 * scripts/vectors/tokenizer.py writes the vectors. Every directory is a pipeline; a difference in
 * any id of any text fails the test with the pipeline's name.
 */
#include "engine/base/json.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char root[] = "tests/vectors/tokenizer";

static const char *const names[] = {"gpt2",
                                    "gpt2_alias",
                                    "smollm",
                                    "prefix_space",
                                    "llama3",
                                    "llama3_alias",
                                    "phi4",
                                    "cl100k",
                                    "qwen2",
                                    "qwen2_alias",
                                    "qwen35",
                                    "gpt_oss",
                                    "minimax",
                                    "tekken",
                                    "deepseek_v3",
                                    "deepseek_llm",
                                    "deepseek_coder",
                                    "falcon",
                                    "llama2",
                                    "llama2_odd",
                                    "mistral",
                                    "gemma",
                                    "metaspace_split",
                                    "unk_single",
                                    "no_unk",
                                    "unigram",
                                    "unigram_t5",
                                    "unigram_bytes",
                                    "regex_newlines",
                                    "regex_thousands",
                                    "regex_stops",
                                    "unigram_map",
                                    "legacy",
                                    "spm_llama",
                                    "spm_gemma",
                                    "spm_plain",
                                    "spm_unigram",
                                    "spm_unigram_unk",
                                    "tekken_file",
                                    "bert",
                                    "bert_cased",
                                    "bert_odd",
                                    "roberta",
                                    "xlmr"};

enum { NUM_NAMES = sizeof names / sizeof names[0] };

/* Compares one list of ids; returns how many texts differ. */
static int compare(const char *name, const tokenizer_t *t, tokenizer_scratch_t *s,
                   const json_t *texts, const json_t *lists, bool special) {
  int different = 0;
  const json_t *list = json_first(lists);
  for (const json_t *text = json_first(texts); text != NULL && list != NULL;
       text = json_next(text), list = json_next(list)) {
    tokenize_options_t options = {.add_special_tokens = special};
    inferd_error_t error = {0};
    int32_t *ids;
    size_t count, i = 0;
    ASSERT_EQ(tokenizer_encode(t, s, text->text, text->length, &options, &ids, &count, &error), 0);
    bool same = count == list->count;
    for (const json_t *id = json_first(list); same && id != NULL; id = json_next(id)) {
      int64_t want;
      cr_assert(json_int64(id, &want));
      same = ids[i++] == want;
    }
    if (!same && different++ < 3)
      fprintf(stderr, "%s: \"%.*s\": ids differ\n", name, (int)text->length, text->text);
    free(ids);
  }
  return different;
}

/* Decodes the reference's ids: 0 = the text itself, null = not compared, else the string. */
static int compare_decoded(const tokenizer_t *t, const json_t *texts, const json_t *lists,
                           const json_t *decoded) {
  int different = 0;
  const json_t *text = json_first(texts), *list = json_first(lists);
  for (const json_t *want = json_first(decoded); want != NULL; want = json_next(want)) {
    const json_t *expected = want->type == JSON_NUMBER ? text : want;
    int32_t *ids = malloc((list->count + 1) * sizeof *ids);
    size_t count = 0, length;
    for (const json_t *id = json_first(list); id != NULL; id = json_next(id)) {
      int64_t value = -1;
      cr_assert(json_int64(id, &value));
      ids[count++] = (int32_t)value;
    }
    char *out;
    inferd_error_t error = {0};
    ASSERT_EQ(tokenizer_decode(t, ids, count, true, &out, &length, &error), 0);
    if (expected->type == JSON_STRING &&
        (length != expected->length || memcmp(out, expected->text, length) != 0))
      different++;
    free(out);
    free(ids);
    text = json_next(text), list = json_next(list);
  }
  return different;
}

/* Encodes without special tokens. */
static int32_t *encode_bare(const tokenizer_t *t, tokenizer_scratch_t *s, const json_t *text,
                            size_t *count) {
  tokenize_options_t options = {0};
  inferd_error_t error = {0};
  int32_t *ids;
  ASSERT_EQ(tokenizer_encode(t, s, text->text, text->length, &options, &ids, count, &error), 0);
  return ids;
}

/* Joins neighbouring texts; `pairs` are [ids, types]. Returns how many pairs differ. */
static int compare_pairs(const tokenizer_t *t, tokenizer_scratch_t *s, const json_t *texts,
                         const json_t *pairs) {
  int different = 0;
  const json_t *text = json_first(texts);
  const char *why;
  int32_t extra = tokenizer_pair_extra(t, &why);
  ASSERT_GE(extra, 0);
  JSON_EACH(want, pairs) {
    const json_t *id = json_first(json_first(want)),
                 *type = json_first(json_next(json_first(want)));
    token_pair_t pair;
    int32_t *first = encode_bare(t, s, text, &pair.num_first);
    text = json_next(text);
    int32_t *second = encode_bare(t, s, text, &pair.num_second);
    size_t count = pair.num_first + pair.num_second + (size_t)extra;
    int32_t *out = malloc((count + 1) * sizeof *out);
    pair.first = first, pair.second = second;
    int64_t typed = tokenizer_join(t, &pair, out);
    bool same = json_first(want)->count == count;
    for (size_t i = 0; i < count && same; i++, id = json_next(id), type = json_next(type)) {
      int64_t want_id = -1, want_type = -1;
      same = json_int64(id, &want_id) && want_id == out[i] && json_int64(type, &want_type) &&
             want_type == (typed >= 0 && (int64_t)i >= typed);
    }
    different += !same;
    free(first);
    free(second);
    free(out);
  }
  return different;
}

static void check(const char *name, const json_t *texts) {
  char dir[128], path[160];
  inferd_error_t error = {0};
  tokenizer_t *t;
  snprintf(dir, sizeof dir, "%s/%s", root, name);
  snprintf(path, sizeof path, "%s/ids.json", dir);
  ASSERT_EQ_FOR(tokenizer_load(dir, &t, &error), 0, "%s: %s", name, error.message);
  test_doc_t ids = test_parse(path);
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  const json_t *plain = json_get(json_root(ids.doc), "plain");
  const json_t *special = json_get(json_root(ids.doc), "special");
  ASSERT_EQ(plain->count, texts->count);
  ASSERT_EQ(special->count, 12);
  EXPECT_EQ_FOR(compare(name, t, s, texts, plain, false), 0, "%s", name);
  EXPECT_EQ_FOR(compare(name, t, s, texts, special, true), 0, "%s with special tokens", name);
  /* Again with a full word cache. */
  EXPECT_EQ_FOR(compare(name, t, s, texts, plain, false), 0, "%s again", name);
  const json_t *decoded = json_get(json_root(ids.doc), "decoded");
  ASSERT_EQ(decoded->count, texts->count);
  EXPECT_EQ_FOR(compare_decoded(t, texts, plain, decoded), 0, "%s decoded", name);
  const json_t *pairs = json_get(json_root(ids.doc), "pairs");
  if (pairs != NULL) EXPECT_EQ_FOR(compare_pairs(t, s, texts, pairs), 0, "%s pairs", name);
  tokenizer_scratch_free(s);
  tokenizer_free(t);
  test_parse_free(&ids);
}

Test(vectors, every_pipeline_gives_the_reference_ids) {
  test_doc_t texts = test_parse("tests/vectors/tokenizer/texts.json");
  ASSERT_GT(json_root(texts.doc)->count, 200);
  for (int i = 0; i < NUM_NAMES; i++) check(names[i], json_root(texts.doc));
  test_parse_free(&texts);
}

/* deepseek_v3 has the pattern as published files spell it, with CR and LF as themselves. */
Test(vectors, the_pattern_of_deepseek_has_a_scanner) {
  static const char *const dirs[] = {"tests/vectors/tokenizer/deepseek_v3",
                                     "tests/vectors/tokenizer/regex_newlines"};
  for (int i = 0; i < 2; i++) {
    tokenizer_t *t;
    inferd_error_t error = {0};
    ASSERT_EQ(tokenizer_load(dirs[i], &t, &error), 0);
    EXPECT_EQ(tokenizer_interprets_patterns(t), i == 1);
    tokenizer_free(t);
  }
}

Test(vectors, opt_files_say_bos_and_lengths) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  ASSERT_EQ(tokenizer_load("tests/vectors/tokenizer/legacy", &t, &error), 0);
  EXPECT_EQ(tokenizer_bos_id(t), 2);
  EXPECT_EQ(tokenizer_eos_id(t), 2);
  EXPECT_EQ(tokenizer_model_max_length(t), 2048);
  EXPECT_EQ(tokenizer_id(t, "</s>", 4), 2);
  EXPECT_EQ(tokenizer_id(t, "<none>", 6), -1);
  EXPECT_EQ(tokenizer_flags(t, 2), TOKEN_SPECIAL | TOKEN_ADDED | TOKEN_WHOLE);
  EXPECT_EQ(tokenizer_flags(t, 5), TOKEN_WHOLE);
  EXPECT_EQ(tokenizer_flags(t, -1), 0);
  size_t length = 1;
  tokenizer_bytes(t, tokenizer_vocab_size(t), &length);
  EXPECT_EQ(length, 0);
  tokenizer_free(t);
}

Test(vectors, ids_max_cuts_and_invalid_text_is_refused) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  int32_t *ids;
  size_t count;
  ASSERT_EQ(tokenizer_load("tests/vectors/tokenizer/llama2", &t, &error), 0);
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  tokenize_options_t options = {.add_special_tokens = true, .ids_max = 3};
  ASSERT_EQ(tokenizer_encode(t, s, "one two three four", 18, &options, &ids, &count, &error), 0);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(ids[0], tokenizer_id(t, "<s>", 3));
  free(ids);
  EXPECT_EQ(tokenizer_encode(t, s, "a\xE4\xB8", 3, &options, &ids, &count, &error),
            ERR_INVALID_VALUE);
  atomic_bool cancelled = true;
  size_t size = 1 << 20;
  char *text = malloc(size);
  memset(text, 'a', size);
  options = (tokenize_options_t){.cancelled = &cancelled};
  EXPECT_EQ(tokenizer_encode(t, s, text, size, &options, &ids, &count, &error),
            ERR_REQUEST_TIMEOUT);
  free(text);
  tokenizer_scratch_free(s);
  tokenizer_free(t);
}
