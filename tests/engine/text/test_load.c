/* test_load.c: broken tokenizer files are refused with the file's and the component's name.
 *
 * Every case changes one place of a good file. Then the good file is cut at many places and has
 * bytes changed at random: it must load or be refused, never crash (run under ASan by make check).
 */
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char good[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
    "\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
    "\"individual_digits\":true},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},"
    "\"behavior\":\"Isolated\",\"invert\":false}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[5],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
    "\"String\":"
    "\"_\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
    "\",\"start\":1,"
    "\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
    "\"byte_fallback\":false,\"vocab\":{\"a\":0,\"b\":1,\"_\":2,\"ab\":3,\"_ab\":4},"
    "\"merges\":[\"a b\",[\"_\",\"ab\"]]}}";

typedef struct broken {
  const char *from, *to; /* the first `from` of the good file becomes `to` */
  const char *component; /* must be in the message */
} broken_t;

static const broken_t broken[] = {
    {"\"version\":\"1.0\"", "\"version\":1.", "JSON"},
    {"{\"version\"", "[{\"version\"", "JSON"},
    {"\"merges\":[", "\"merges\":[\"a b\",", NULL}, /* a repeated pair is allowed */
    {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model"},
    {"\"type\":\"BPE\"", "\"type\":7", "model"},
    {"\"dropout\":null", "\"dropout\":0.1", "model"},
    {"\"dropout\":null", "\"dropout\":\"x\"", "model"},
    {"\"unk_token\":null", "\"unk_token\":3", "model"},
    {"\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"", "model"},
    {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "model"},
    {"\"fuse_unk\":false", "\"fuse_unk\":1", "model"},
    {"\"a\":0", "\"a\":1", "model.vocab"},
    {"\"a\":0", "\"a\":-1", "model.vocab"},
    {"\"a\":0", "\"a\":1.5", "model.vocab"},
    {"\"a\":0", "\"a\":16000000", "model.vocab"},
    {"\"a\":0", "\"a\":1e300", "model.vocab"},
    {"\"a\":0", "\"a\":\"0\"", "model.vocab"},
    {"\"a\":0", "\"c\":0", "model.merges"},
    {"\"ab\":3", "\"ac\":3", "model.merges"},
    {"\"vocab\":{", "\"vocab\":[],\"x\":{", "model.vocab"},
    {"\"a b\"", "\"ab\"", "model.merges"},
    {"\"a b\"", "\"a b \"", "model.merges"},
    {"\"a b\"", "7", "model.merges"},
    {"[\"_\",\"ab\"]", "[\"_\"]", "model.merges"},
    {"[\"_\",\"ab\"]", "[\"_\",\"a\",\"b\"]", "model.merges"},
    {"[\"_\",\"ab\"]", "[1,2]", "model.merges"},
    {"\"merges\":[", "\"merges\":7,\"x\":[", "model.merges"},
    {"\"type\":\"NFC\"", "\"type\":\"NFKD\"", "normalizer"},
    {"\"type\":\"NFC\"", "\"type\":null", "normalizer"},
    {"\"type\":\"NFC\"", "\"type\":\"Prepend\"", "normalizer"},
    {"{\"String\":\" \"}", "{\"Regex\":\" +\"}", "normalizer"},
    {"{\"String\":\" \"}", "{\"String\":\"\"}", "normalizer"},
    {"{\"String\":\" \"}", "{}", "normalizer"},
    {"\"normalizers\":[", "\"normalizers\":3,\"x\":[", "normalizer"},
    {"\"type\":\"Digits\"", "\"type\":\"UnicodeScripts\"", "pre_tokenizer"},
    {"\"individual_digits\":true", "\"individual_digits\":\"yes\"", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "\\\\bx", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "(?<=x)y", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "[a[b]]", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "[a&&b]", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "a*", "pre_tokenizer"},
    {"\\\\p{N}{1,3}", "(a", "pre_tokenizer"},
    {"{\"Regex\":\"\\\\p{N}{1,3}\"}", "{\"String\":\"\"}", "pre_tokenizer"},
    {"\"Digits\",\"individual_digits\":true},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{"
     "1,3}",
     "\"ByteLevel\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^x]+y", "pre_tokenizer"},
    {"\"behavior\":\"Isolated\"", "\"behavior\":\"isolated\"", "pre_tokenizer"},
    {"\"behavior\":\"Isolated\",", "", "pre_tokenizer"},
    {"\"type\":\"Digits\"", "\"type\":\"Metaspace\",\"replacement\":\"ab\"", "pre_tokenizer"},
    {"\"pretokenizers\":[", "\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"},",
     "pre_tokenizer"},
    {"\"type\":\"TemplateProcessing\"", "\"type\":\"Template\"", "post_processor"},
    {"\"ids\":[5]", "\"ids\":[6]", "post_processor"},
    {"\"ids\":[5]", "\"ids\":[-5]", "post_processor"},
    {"\"ids\":[5]", "\"ids\":5", "post_processor"},
    {"\"<s>\":{\"id\"", "\"<t>\":{\"id\"", "post_processor"},
    {"\"id\":\"A\"", "\"id\":\"B\"", "post_processor"},
    {"{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "{\"SpecialToken\":{\"id\":\"<s>\"}}",
     "post_processor"},
    {"\"single\":[", "\"single\":[{\"Sequence\":{\"id\":\"A\"}},", "post_processor"},
    {"\"post_processor\":{",
     "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\","
     "\"cls\":[\"a\",0],\"sep\":[\"b\",1]},{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],"
     "\"sep\":[\"b\",1]}]},\"x\":{",
     "post_processor"},
    {"\"type\":\"Fuse\"", "\"type\":\"CTC\"", "decoder"},
    {"{\"type\":\"Fuse\"},", "{\"type\":\"ByteFallback\"},", "decoder"},
    {"{\"type\":\"Fuse\"},", "{\"type\":\"ByteLevel\"},", NULL}, /* joins the tokens as Fuse does */
    {"{\"type\":\"Fuse\"},",
     "{\"type\":\"ByteLevel\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
     "\"content\":\"\"},",
     "decoder"},
    {"\"start\":1", "\"start\":-1", "decoder"},
    {"\"stop\":0", "\"stop\":1", "decoder"},
    {"\"decoders\":[", "\"decoders\":[{\"type\":\"Fuse\"},", "decoder"},
    {"{\"String\":\"_\"}", "{\"Regex\":\"_\"}", "decoder"},
    {"\"content\":\"<s>\"", "\"content\":\"\"", "added_tokens"},
    {"\"normalized\":false,\"special\":true}],\"normalizer\":{",
     "\"normalized\":true,\"special\":true}],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{"
     "\"String\":\"<s>\"},\"content\":\"\"},\"x\":{",
     "added_tokens"},
    {"\"content\":\"<s>\",", "", "added_tokens"},
    {"\"id\":5", "\"id\":-1", "added_tokens"},
    {"\"id\":5", "\"id\":99999999999", "added_tokens"},
    {"\"special\":true", "\"special\":\"true\"", "added_tokens"},
    {"\"added_tokens\":[", "\"added_tokens\":{},\"x\":[", "added_tokens"},
};

static char *replaced(const char *from, const char *to) {
  const char *at = strstr(good, from);
  cr_assert_not_null(at, "%s", from);
  char *out = malloc(sizeof good + strlen(to));
  snprintf(out, sizeof good + strlen(to), "%.*s%s%s", (int)(at - good), good, to,
           at + strlen(from));
  return out;
}

Test(load, the_good_file_loads) {
  tokenizer_t *t = test_load(good);
  size_t count;
  int32_t *ids = test_encode(t, "<s>ab ab", 8, &count);
  ASSERT_EQ(count, 3);
  EXPECT_EQ(ids[0], 5);
  EXPECT_EQ(ids[1], 3);
  EXPECT_EQ(ids[2], 4);
  free(ids);
  char *text;
  size_t length;
  inferd_error_t error;
  ASSERT_EQ(tokenizer_decode(t, (int32_t[]){5, 4, 4}, 3, true, &text, &length, &error), 0);
  EXPECT_EQ_FOR(length, 5, "one leading space is stripped");
  cr_expect(memcmp(text, "ab ab", 5) == 0, "one leading space is stripped");
  free(text);
  const char *bytes = tokenizer_bytes(t, 4, &length);
  EXPECT_EQ(length, 3);
  cr_expect(memcmp(bytes, " ab", 3) == 0);
  const uint8_t *spelling = tokenizer_spelling(t, 4, &length);
  EXPECT_EQ(length, 3);
  cr_expect(memcmp(spelling, "_ab", 3) == 0);
  cr_expect(tokenizer_spelling(t, 6, &length) == NULL && length == 0);
  EXPECT_EQ(tokenizer_vocab_size(t), 6);
  EXPECT_EQ(tokenizer_longest_token(t), 3);
  tokenizer_free(t);
}

Test(load, broken_files_are_refused_with_the_component) {
  for (unsigned i = 0; i < sizeof broken / sizeof broken[0]; i++) {
    char *json = replaced(broken[i].from, broken[i].to);
    tokenizer_t *t = NULL;
    inferd_error_t error = {0};
    int rc = test_load_text(json, strlen(json), &t, &error);
    if (broken[i].component == NULL) {
      EXPECT_EQ_FOR(rc, 0, "case %u: %s", i, error.message);
    } else {
      EXPECT_EQ_FOR(rc, ERR_MODEL_MALFORMED, "case %u: %s -> %s", i, broken[i].from, broken[i].to);
      cr_expect_not_null(strstr(error.message, "tokenizer.json: "), "case %u: %s", i,
                         error.message);
      cr_expect_not_null(strstr(error.message, broken[i].component), "case %u: %s", i,
                         error.message);
    }
    if (rc == 0) tokenizer_free(t);
    free(json);
  }
}

/* The reference library may miss a score by its last bit, and that bit decides between two orders
 * of the same pieces. */
Test(load, scores_are_read_with_the_last_bit_of_the_reference) {
  static const char json[] =
      "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],"
      "[\"=\",-6.579107711012892],[\"============\",-10.806861784609325],"
      "[\"_========\",-12.290635249319141]]}}";
  static const char text[] = "_=====================";
  tokenizer_t *t = test_load(json);
  size_t count;
  int32_t *ids = test_encode(t, text, sizeof text - 1, &count);
  ASSERT_EQ(count, 3u);
  cr_expect(ids[0] == 3 && ids[1] == 2 && ids[2] == 1, "%d %d %d", ids[0], ids[1], ids[2]);
  free(ids);
  tokenizer_free(t);
}

Test(load, deep_sequences_are_refused) {
  char *json = malloc(1 << 16);
  int n = snprintf(json, 1 << 16,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":");
  for (int i = 0; i < 17; i++)
    n += snprintf(json + n, (1 << 16) - (size_t)n, "{\"type\":\"Sequence\",\"pretokenizers\":[");
  n += snprintf(json + n, (1 << 16) - (size_t)n, "{\"type\":\"Digits\"}");
  for (int i = 0; i < 17; i++) n += snprintf(json + n, (1 << 16) - (size_t)n, "]}");
  n += snprintf(json + n, (1 << 16) - (size_t)n, "}");
  tokenizer_t *t;
  inferd_error_t error = {0};
  EXPECT_EQ(test_load_text(json, (size_t)n, &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "nested"), "%s", error.message);
  free(json);
}

Test(load, many_steps_are_refused) {
  char *json = malloc(1 << 16);
  int n = snprintf(json, 1 << 16,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":"
                   "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"}");
  for (int i = 0; i < 40; i++)
    n += snprintf(json + n, (1 << 16) - (size_t)n, ",{\"type\":\"Digits\"}");
  n += snprintf(json + n, (1 << 16) - (size_t)n, "]}}");
  tokenizer_t *t;
  inferd_error_t error = {0};
  EXPECT_EQ(test_load_text(json, (size_t)n, &t, &error), ERR_MODEL_MALFORMED);
  free(json);
}

Test(load, a_missing_directory_is_missing) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  EXPECT_EQ(tokenizer_load("/nonexistent", &t, &error), ERR_MODEL_MISSING);
  const char *dir = test_temp_dir();
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  test_write(dir, "vocab.json", pointer, sizeof pointer - 1);
  EXPECT_EQ(tokenizer_load(dir, &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "vocab.json: file: a pointer of Git LFS"));
  test_write(dir, "vocab.json", "{}", 2);
  EXPECT_EQ(tokenizer_load(dir, &t, &error), ERR_MODEL_MISSING);
  test_write(dir, "merges.txt", "a b\n", 4);
  EXPECT_EQ(tokenizer_load(dir, &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "merges.txt"), "%s", error.message);
  test_remove_dir(dir);
}

/* Loads what may be broken and uses it when it loads. */
static void try_load(const char *json, size_t length) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  int rc = test_load_text(json, length, &t, &error);
  if (rc != 0) {
    EXPECT_EQ_FOR(rc, ERR_MODEL_MALFORMED, "%s", error.message);
    return;
  }
  static const char text[] = "<s> ab12 b_a\u00e9 e\u0301 \U0001F600<s>x";
  size_t count;
  free(test_encode(t, text, sizeof text - 1, &count));
  tokenizer_free(t);
}

Test(load, cut_files_never_crash) {
  for (size_t n = 0; n < sizeof good - 1; n += 7) try_load(good, n);
}

Test(load, changed_files_never_crash) {
  static const char letters[] = "{}[]\",:0123456789eE-+.truefalsn\\ \x80\xC3 abA_";
  uint64_t random = 3;
  char *json = malloc(sizeof good);
  for (int round = 0; round < 600; round++) {
    memcpy(json, good, sizeof good);
    for (uint64_t i = 0; i <= test_random(&random) % 3; i++)
      json[test_random(&random) % (sizeof good - 1)] =
          letters[test_random(&random) % (sizeof letters - 1)];
    try_load(json, sizeof good - 1);
  }
  free(json);
}

Test(load, a_real_file_with_changed_bytes_never_crashes) {
  static const char *const names[] = {"qwen2", "llama2_odd", "deepseek_llm", "falcon"};
  uint64_t random = 9;
  for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[128];
    size_t length;
    snprintf(path, sizeof path, "tests/vectors/tokenizer/%s/tokenizer.json", names[i]);
    char *json = test_read(path, &length);
    for (int round = 0; round < 40; round++) {
      size_t at = test_random(&random) % length;
      char before = json[at];
      json[at] = (char)('0' + test_random(&random) % 75);
      try_load(json, length);
      json[at] = before;
      try_load(json, test_random(&random) % length);
    }
    free(json);
  }
}

Test(load, configuration_adds_bos_and_is_checked) {
  const char *dir = test_temp_dir();
  tokenizer_t *t;
  inferd_error_t error = {0};
  static const char config[] =
      "{\"add_bos_token\":true,\"bos_token\":\"ab\",\"eos_token\":"
      "{\"content\":\"b\"},\"add_eos_token\":true,\"model_max_length\":1e30,"
      "\"truncation_side\":\"left\"}";
  test_write(dir, "tokenizer.json", good, sizeof good - 1);
  test_write(dir, "tokenizer_config.json", config, sizeof config - 1);
  ASSERT_EQ_FOR(tokenizer_load(dir, &t, &error), 0, "%s", error.message);
  EXPECT_EQ(tokenizer_bos_id(t), 3);
  EXPECT_EQ(tokenizer_eos_id(t), 1);
  EXPECT_EQ(tokenizer_model_max_length(t), 1e30);
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  tokenize_options_t options = {.add_special_tokens = true};
  int32_t *ids;
  size_t count;
  ASSERT_EQ(tokenizer_encode(t, s, "a", 1, &options, &ids, &count, &error), 0);
  ASSERT_EQ(count, 4);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 5);
  EXPECT_EQ(ids[2], 0);
  EXPECT_EQ(ids[3], 1);
  free(ids);
  tokenizer_scratch_free(s);
  tokenizer_free(t);
  test_write(dir, "tokenizer_config.json", "{\"add_bos_token\":\"x\"}", 21);
  EXPECT_EQ(tokenizer_load(dir, &t, &error), ERR_MODEL_MALFORMED);
  cr_expect_not_null(strstr(error.message, "tokenizer_config.json"), "%s", error.message);
  test_write(dir, "tokenizer_config.json", "[]", 2);
  EXPECT_EQ(tokenizer_load(dir, &t, &error), ERR_MODEL_MALFORMED);
  test_remove_dir(dir);
}
