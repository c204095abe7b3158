/* test_repo.c: what the hub says of a repository, and which of its files are chosen. */
#include "server/pull/repo.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

#define COMMIT "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"
#define SHA256 "82b4dd13240884e643ac5883c655eb5d8f4acf986c35b097b4ef986d9f101f1f"

TestSuite(repo, .timeout = 60);

static int parse(const char *text, repo_t *repo, inferd_error_t *error) {
  return repo_parse(text, strlen(text), repo, error);
}

static void expect_bad(const char *text, const char *part) {
  repo_t repo;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(parse(text, &repo, &error), ERR_MODEL_MALFORMED, "%s", text);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  ASSERT_EQ(repo.count, 0);
}

/* A repository of names that are separated by spaces. */
static repo_t make(const char *names) {
  char text[4096], copy[1024];
  size_t used = (size_t)snprintf(text, sizeof text, "{\"sha\":\"" COMMIT "\",\"siblings\":[");
  snprintf(copy, sizeof copy, "%s", names);
  char *rest = copy;
  for (char *name; (name = strsep(&rest, " ")) != NULL;) {
    used += (size_t)snprintf(text + used, sizeof text - used, "{\"rfilename\":\"%s\"}%s", name,
                             rest != NULL ? "," : "]}");
  }
  repo_t repo;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(parse(text, &repo, &error), 0, "%s: %s", text, error.message);
  return repo;
}

static void expect_chosen(const char *names, const char *quant, const char *wanted) {
  repo_t repo = make(names);
  inferd_error_t error = {0};
  char chosen[1024] = "";
  ASSERT_EQ_FOR(repo_choose(&repo, "org/name", quant, &error), 0, "%s: %s", names, error.message);
  for (int i = 0; i < repo.count; i++) {
    size_t used = strlen(chosen);
    if (repo.files[i].chosen) {
      snprintf(chosen + used, sizeof chosen - used, "%s%s", used > 0 ? " " : "",
               repo.files[i].name);
    }
  }
  ASSERT_STR_EQ(chosen, wanted);
  repo_free(&repo);
}

static void expect_refused(const char *names, const char *quant, const char *part) {
  repo_t repo = make(names);
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(repo_choose(&repo, "org/name", quant, &error), ERR_MODEL_MISSING, "%s", names);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  repo_free(&repo);
}

Test(repo, answer_of_the_hub) {
  repo_t repo;
  inferd_error_t error = {0};
  ASSERT_EQ(parse("{\"id\":\"a/b\",\"sha\":\"C0FFEE00C0ffee00c0ffee00c0ffee00c0ffee00\","
                  "\"siblings\":["
                  "{\"rfilename\":\"model.safetensors\",\"size\":11,\"blobId\":\"" COMMIT "\","
                  "\"lfs\":{\"sha256\":\"" SHA256 "\",\"size\":11,\"pointerSize\":135}},"
                  "{\"rfilename\":\"config.json\",\"size\":0,\"blobId\":\"" COMMIT
                  "\",\"lfs\":null},"
                  "{\"rfilename\":\"d/e.json\",\"size\":-4,\"blobId\":\"../../x\"}]}",
                  &repo, &error),
            0);
  ASSERT_STR_EQ(repo.commit, COMMIT);
  ASSERT_EQ(repo.count, 3);
  ASSERT_STR_EQ(repo.files[0].name, "config.json");
  ASSERT_STR_EQ(repo.files[0].sum, COMMIT);
  ASSERT_EQ(repo.files[0].size, 0);
  ASSERT_STR_EQ(repo.files[1].name, "d/e.json");
  ASSERT_STR_EQ(repo.files[1].sum, "");
  ASSERT_EQ(repo.files[1].size, -1);
  ASSERT_STR_EQ(repo.files[2].sum, SHA256);
  ASSERT_EQ(repo.files[2].size, 11);
  repo_free(&repo);
}

Test(repo, answers_that_are_none) {
  expect_bad("", "not JSON");
  expect_bad("[]", "no commit");
  expect_bad("{\"sha\":\"main\",\"siblings\":[]}", "no commit");
  expect_bad("{\"sha\":\"" COMMIT "\"}", "no list of files");
  expect_bad("{\"sha\":\"" COMMIT "\",\"siblings\":[{}]}", "no rfilename");
  expect_bad("{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":3}]}", "no rfilename");
  expect_bad("{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\\u0000b\"}]}",
             "not a path inside");
  expect_bad("{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\"},{\"rfilename\":\"a\"}]}",
             "twice");
}

Test(repo, paths) {
  static const char *const good[] = {"a", "a/b", "..a", "a..", "...", "a b", ".gitattributes"};
  static const char *const bad[] = {"",    "/",    "/a",   "a/",     "a//b", ".",    "..",  "./a",
                                    "a/.", "a/..", "../a", "a/../b", "a\\b", "a\nb", "\x7f"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    cr_assert(repo_is_path(good[i], strlen(good[i])), "%s", good[i]);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cr_assert_not(repo_is_path(bad[i], strlen(bad[i])), "%s", bad[i]);
  }
  char text[2 * REPO_NAME_MAX];
  memset(text, 'a', sizeof text);
  cr_assert(repo_is_path(text, 255));
  cr_assert_not(repo_is_path(text, 256));
  for (size_t i = 100; i < sizeof text; i += 101) text[i] = '/';
  cr_assert(repo_is_path(text, REPO_NAME_MAX));
  cr_assert_not(repo_is_path(text, REPO_NAME_MAX + 1));
}

Test(repo, safetensors) {
  expect_chosen("config.json model.safetensors README.md tokenizer.json pytorch_model.bin "
                "consolidated.safetensors original/config.json onnx/model.onnx tf_model.h5 "
                "preprocessor_config.json model.fp16.safetensors training_args.bin",
                "", "config.json model.safetensors tokenizer.json");
  expect_chosen("config.json model.safetensors.index.json model.safetensors "
                "model-00001-of-00002.safetensors model-00002-of-00002.safetensors x.gguf "
                "model.safetensors-00001-of-00002.safetensors",
                "",
                "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
                "model.safetensors-00001-of-00002.safetensors model.safetensors.index.json");
  expect_chosen(
      "config.json model.safetensors added_tokens.json chat_template.jinja "
      "chat_template.json generation_config.json merges.txt quantize_config.json "
      "special_tokens_map.json tekken.json tokenizer.model tokenizer_config.json vocab.json "
      "vocab.txt",
      "",
      "added_tokens.json chat_template.jinja chat_template.json config.json "
      "generation_config.json merges.txt model.safetensors quantize_config.json "
      "special_tokens_map.json tekken.json tokenizer.model tokenizer_config.json "
      "vocab.json");
}

/* Only where there is nothing else. */
Test(repo, pickles) {
  expect_chosen("config.json pytorch_model.bin vocab.json training_args.bin optimizer.pt", "",
                "config.json pytorch_model.bin vocab.json");
  expect_chosen("config.json pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin "
                "pytorch_model-00002-of-00002.bin pytorch_model.bin rng_state.pth",
                "",
                "config.json pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin "
                "pytorch_model.bin.index.json");
  expect_chosen("config.json pytorch_model.bin model.safetensors", "",
                "config.json model.safetensors");
  expect_chosen("config.json pytorch_model.bin x-Q8_0.gguf", "", "x-Q8_0.gguf");
}

Test(repo, gguf) {
  expect_chosen("x-Q8_0.gguf mmproj-F16.gguf README.md config.json", "", "x-Q8_0.gguf");
  expect_chosen("x-Q8_0.gguf x-Q4_K_M.gguf x-UD-Q4_K_M.gguf", "q4_k_m", "x-Q4_K_M.gguf");
  expect_chosen("config.json model.safetensors x-Q8_0.gguf", "Q8_0", "x-Q8_0.gguf");
  expect_chosen("Q8_0/x-Q8_0-00001-of-00002.gguf Q8_0/x-Q8_0-00002-of-00002.gguf "
                "x-Q4_0-00001-of-00002.gguf x-Q4_0-00002-of-00002.gguf",
                "Q8_0", "Q8_0/x-Q8_0-00001-of-00002.gguf Q8_0/x-Q8_0-00002-of-00002.gguf");
  expect_refused("x-Q8_0.gguf x-Q4_K_M.gguf", "", "has 2 GGUF files; name the quantisation");
  expect_refused("x-Q8_0.gguf x-Q4_K_M.gguf", "Q2_K", "there are: x-Q4_K_M.gguf, x-Q8_0.gguf");
  expect_refused("a-Q8_0.gguf b-Q8_0.gguf", "Q8_0", "several GGUF files are of Q8_0");
  expect_refused("config.json model.safetensors", "Q8_0", "there is none");
  expect_refused("a/b/x-Q8_0.gguf", "", "it has: no files"); /* deeper than serve looks */
}

Test(repo, nothing_that_is_served) {
  expect_refused("config.json weights.bin", "", "pickle files alone");
  expect_refused("pytorch_model.bin", "", "pickle files alone");
  expect_refused("adapter_config.json adapter_model.safetensors", "", "low-rank adapter");
  expect_refused("params.json consolidated.safetensors tekken.json", "", "own layout");
  expect_refused("README.md data.parquet", "", "it has: README.md");
}
