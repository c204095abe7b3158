/* test_locate.c: what a user types becomes the files of a model.
 *
 * The caches are laid out as huggingface_hub writes them: blobs, refs, and snapshots of relative
 * links. tests/api/test_cache.py does the same with huggingface_hub itself.
 */
#include "engine/model/source/listing.h"
#include "engine/model/source/locate.h"
#include "tests/expect.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REV "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"
#define OLD "0ddba11000000000000000000000000000000000"

TestSuite(locate, .timeout = 60);

static char root[64];

static void make_folders(const char *path) {
  char part[512];
  for (size_t i = 1; path[i] != '\0'; i++) {
    if (path[i] != '/') continue;
    snprintf(part, sizeof part, "%.*s", (int)i, path);
    (void)mkdir(part, 0755);
  }
}

static const char *at(const char *name) {
  static char path[2][512];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
  return path[turn];
}

static void put(const char *name, const char *text) {
  make_folders(at(name));
  FILE *file = fopen(at(name), "w");
  cr_assert_not_null(file, "%s", name);
  fputs(text, file);
  fclose(file);
}

/* A file of a snapshot, as a link to a blob. */
static void put_cached(const char *folder, const char *rev, const char *name) {
  char blob[256], link[256], target[256];
  snprintf(blob, sizeof blob, "%s/blobs/%s-%s", folder, rev, strrchr(name, '/') ? "x" : name);
  snprintf(link, sizeof link, "%s/snapshots/%s/%s", folder, rev, name);
  snprintf(target, sizeof target, "%s../../blobs/%s-%s", strchr(name, '/') ? "../" : "", rev,
           strrchr(name, '/') ? "x" : name);
  put(blob, "{}");
  make_folders(at(link));
  ASSERT_EQ(symlink(target, at(link)), 0);
}

static void put_model(const char *folder, const char *rev) {
  put_cached(folder, rev, "config.json");
  put_cached(folder, rev, "model.safetensors");
}

static void clear_environment(void) {
  static const char *const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                      "XDG_CACHE_HOME", "CACHE_DIRECTORY"};
  for (int i = 0; i < 5; i++) unsetenv(names[i]);
  setenv("HOME", at("home"), 1);
}

static void start(void) {
  snprintf(root, sizeof root, "/tmp/inferd-locate-XXXXXX");
  cr_assert_not_null(mkdtemp(root));
  clear_environment();
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
  (void)status, (void)type, (void)walk;
  return remove(path);
}

static void finish(void) {
  nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* `path` is below the root of the test. */
static void expect_found(const char *what, const char *path, const char *name) {
  located_t found;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(model_locate(what, &found, &error), 0, "%s: %s", what, error.message);
  ASSERT_STR_EQ(found.path, at(path));
  ASSERT_STR_EQ(found.name, name);
}

static void expect_refused(const char *what, int code, const char *part) {
  located_t found;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(model_locate(what, &found, &error), code, "%s: %s", what, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

Test(locate, plain_directory, .init = start, .fini = finish) {
  put("m/config.json", "{}");
  put("m/model.safetensors", "x");
  expect_found(at("m"), "m", "");
  ASSERT_EQ(unlink(at("m/model.safetensors")), 0); /* enough for --load-format dummy */
  expect_found(at("m"), "m", "");
}

Test(locate, missing_things, .init = start, .fini = finish) {
  put("file", "x");
  expect_refused(at("nothing"), ERR_MODEL_MISSING, "No such file");
  expect_refused("./nothing", ERR_MODEL_MISSING, "No such file");
  expect_refused("a/b/c", ERR_MODEL_MISSING, "No such file");
  expect_refused("a//b", ERR_MODEL_MISSING, "No such file");
  expect_refused("../x", ERR_MODEL_MISSING, "No such file");
  expect_refused("https://huggingface.co/a/b/tree/main", ERR_MODEL_MISSING, "inferd pull a/b");
  expect_refused("hf.co/a/b:Q4_K_M", ERR_MODEL_MISSING, "give a/b:Q4_K_M, and get it with");
  expect_refused("https://huggingface.co/a", ERR_MODEL_MISSING, "give ORG/NAME");
  expect_refused("http://example.com/a/b.gguf", ERR_MODEL_MISSING, "give ORG/NAME");
  expect_refused("", ERR_MODEL_MISSING, "No such file");
  expect_refused(at("file"), ERR_MODEL_MALFORMED, "give the directory of the model");
  char long_path[LOCATED_PATH_MAX + 8];
  memset(long_path, 'a', sizeof long_path - 1);
  long_path[sizeof long_path - 1] = '\0';
  expect_refused(long_path, ERR_MODEL_MISSING, "too long");
}

Test(locate, folder_of_a_cache, .init = start, .fini = finish) {
  put_model("hub/models--org--name", REV);
  expect_found(at("hub/models--org--name"), "hub/models--org--name/snapshots/" REV, "org/name");
  expect_found(at("hub/models--org--name/snapshots/" REV), "hub/models--org--name/snapshots/" REV,
               "org/name");
  put_model("hub/models--org--name", OLD);
  expect_refused(at("hub/models--org--name"), ERR_MODEL_MISSING, OLD ", " REV);
  put("hub/models--org--name/refs/main", OLD);
  expect_found(at("hub/models--org--name"), "hub/models--org--name/snapshots/" OLD, "org/name");
  put("hub/models--org--name/refs/main", "../../../../etc");
  expect_refused(at("hub/models--org--name"), ERR_MODEL_MISSING, "there are several");
  put("hub/models--gpt2/snapshots/.keep", "");
  expect_refused(at("hub/models--gpt2"), ERR_MODEL_MISSING, "has no snapshot");
}

Test(locate, name_in_the_caches, .init = start, .fini = finish) {
  expect_refused("org/name", ERR_MODEL_MISSING, at("home/.cache/huggingface/hub"));
  expect_refused("org/name", ERR_MODEL_MISSING, "inferd pull org/name");
  put_model("home/.cache/huggingface/hub/models--org--name", REV);
  put("home/.cache/huggingface/hub/models--org--name/refs/main", REV "\n");
  expect_found("org/name", "home/.cache/huggingface/hub/models--org--name/snapshots/" REV,
               "org/name");
  put_model("home/.cache/huggingface/hub/models--gpt2", REV);
  expect_found("gpt2", "home/.cache/huggingface/hub/models--gpt2/snapshots/" REV, "gpt2");
  setenv("HF_HOME", at("other"), 1);
  put_model("other/hub/models--org--name", OLD);
  expect_found("org/name", "other/hub/models--org--name/snapshots/" OLD, "org/name");
  setenv("CACHE_DIRECTORY", at("service"), 1);
  expect_refused("org/else", ERR_MODEL_MISSING, at("service/hub"));
  put_model("service/hub/models--org--served", REV);
  expect_found("org/served", "service/hub/models--org--served/snapshots/" REV, "org/served");
  setenv("HF_HUB_CACHE", "~/own", 1);
  put_model("home/own/models--org--name", REV);
  expect_found("org/name", "home/own/models--org--name/snapshots/" REV, "org/name");
  expect_refused("org/else", ERR_MODEL_MISSING, at("other/hub"));
  expect_refused("org--x/else", ERR_MODEL_MISSING, "No such file");
}

#define HUB "home/.cache/huggingface/hub/"

Test(locate, revisions, .init = start, .fini = finish) {
  expect_refused("org/name@v1", ERR_MODEL_MISSING, "inferd pull org/name@v1");
  put_model(HUB "models--org--name", REV);
  put_model(HUB "models--org--name", OLD);
  put(HUB "models--org--name/refs/main", REV);
  put(HUB "models--org--name/refs/v1", OLD);
  put(HUB "models--org--name/refs/refs/pr/3", OLD);
  expect_found("org/name", HUB "models--org--name/snapshots/" REV, "org/name");
  expect_found("org/name@main", HUB "models--org--name/snapshots/" REV, "org/name");
  expect_found("org/name@v1", HUB "models--org--name/snapshots/" OLD, "org/name");
  expect_found("org/name@refs/pr/3", HUB "models--org--name/snapshots/" OLD, "org/name");
  expect_found("org/name@" OLD, HUB "models--org--name/snapshots/" OLD, "org/name");
  expect_refused("org/name@v2", ERR_MODEL_MISSING, "inferd pull org/name@v2");
  expect_refused("org/name@../main", ERR_MODEL_MISSING, "No such file");
  expect_refused("org/name@", ERR_MODEL_MISSING, "No such file");
  put_cached(HUB "models--org--x-GGUF", OLD, "x-Q8_0.gguf");
  put_cached(HUB "models--org--x-GGUF", OLD, "x-Q4_0.gguf");
  put(HUB "models--org--x-GGUF/refs/v1", OLD);
  expect_found("org/x-GGUF@v1:Q8_0", HUB "models--org--x-GGUF/snapshots/" OLD "/x-Q8_0.gguf",
               "org/x-GGUF:Q8_0");
  EXPECT_EQ(model_is_hub_name("org/name@v1:Q8_0"), true);
  EXPECT_EQ(model_is_hub_name("@v1"), false);
}

Test(locate, a_path_comes_before_a_name, .init = start, .fini = finish) {
  put_model("home/.cache/huggingface/hub/models--org--name", REV);
  put("org/name/config.json", "{}");
  char before[512];
  cr_assert_not_null(getcwd(before, sizeof before));
  ASSERT_EQ(chdir(root), 0);
  located_t found;
  inferd_error_t error = {0};
  ASSERT_EQ(model_locate("org/name", &found, &error), 0);
  ASSERT_STR_EQ(found.path, "org/name");
  ASSERT_EQ(chdir(before), 0);
}

#define GGUF_FOLDER "home/.cache/huggingface/hub/models--org--x-GGUF"
#define GGUF_SNAPSHOT GGUF_FOLDER "/snapshots/" REV

Test(locate, quantisations, .init = start, .fini = finish) {
  put_cached(GGUF_FOLDER, REV, "x-Q4_K_M.gguf");
  put_cached(GGUF_FOLDER, REV, "mmproj-F16.gguf");
  expect_found("org/x-GGUF", GGUF_SNAPSHOT "/x-Q4_K_M.gguf", "org/x-GGUF");
  put_cached(GGUF_FOLDER, REV, "x-UD-Q4_K_M.gguf");
  put_cached(GGUF_FOLDER, REV, "x-IQ4_XS.gguf");
  put_cached(GGUF_FOLDER, REV, "Q8_0/x-Q8_0-00001-of-00002.gguf");
  expect_refused("org/x-GGUF", ERR_MODEL_MISSING, "has 4 GGUF files; name the quantisation");
  expect_found("org/x-GGUF:q4_k_m", GGUF_SNAPSHOT "/x-Q4_K_M.gguf", "org/x-GGUF:q4_k_m");
  expect_found("org/x-GGUF:UD-Q4_K_M", GGUF_SNAPSHOT "/x-UD-Q4_K_M.gguf", "org/x-GGUF:UD-Q4_K_M");
  expect_found("org/x-GGUF:Q8_0", GGUF_SNAPSHOT "/Q8_0/x-Q8_0-00001-of-00002.gguf",
               "org/x-GGUF:Q8_0");
  expect_refused("org/x-GGUF:Q4_K", ERR_MODEL_MISSING, "no GGUF file of Q4_K; there are: ");
  expect_refused("org/x-GGUF:Q4_XS", ERR_MODEL_MISSING, "no GGUF file of Q4_XS");
  expect_found(at(GGUF_SNAPSHOT ":IQ4_XS"), GGUF_SNAPSHOT "/x-IQ4_XS.gguf", "org/x-GGUF:IQ4_XS");
}

Test(locate, gguf_files, .init = start, .fini = finish) {
  put("d/some-Q8_0.gguf", "GGUF");
  expect_found(at("d/some-Q8_0.gguf"), "d/some-Q8_0.gguf", "some-Q8_0");
  expect_found(at("d"), "d/some-Q8_0.gguf", "some-Q8_0");
  put("d/config.json", "{}"); /* as some repositories of GGUF files have */
  expect_found(at("d"), "d/some-Q8_0.gguf", "some-Q8_0");
  put("d/model.safetensors", "");
  expect_found(at("d"), "d", "");
  put("e/b-00001-of-00003.gguf", "");
  put("e/b-00002-of-00003.gguf", "");
  put("e/b-00003-of-00003.gguf", "");
  expect_found(at("e"), "e/b-00001-of-00003.gguf", "b");
}

Test(locate, what_is_no_model, .init = start, .fini = finish) {
  put("a/adapter_config.json", "{\"base_model_name_or_path\": \"org/base\"}");
  put("a/adapter_model.safetensors", "");
  expect_refused(at("a"), ERR_MODEL_MALFORMED, "is a low-rank adapter");
  expect_refused(at("a"), ERR_MODEL_MALFORMED, "serve its base model org/base");
  put("c/consolidated.safetensors", "");
  put("c/params.json", "{}");
  expect_refused(at("c"), ERR_MODEL_MALFORMED, "Mistral's or Meta's own layout");
  put("empty/README.md", "");
  expect_refused(at("empty"), ERR_MODEL_MISSING, "no config.json");
}

Test(locate, denied, .init = start, .fini = finish) {
  put("m/config.json", "{}");
  ASSERT_EQ(chmod(root, 0755), 0);
  ASSERT_EQ(chmod(at("m"), 0), 0);
  const uid_t before = geteuid();
  located_t found;
  inferd_error_t error = {0};
  if (before == 0) ASSERT_EQ(seteuid(65534), 0);
  int code = model_locate(at("m"), &found, &error);
  if (before == 0) ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ_FOR(code, ERR_PERMISSION, "%s", error.message);
  cr_assert_not_null(strstr(error.message, "permission denied for user "), "%s", error.message);
  ASSERT_EQ(chmod(at("m"), 0755), 0);
  /* A folder above that lets nobody pass is named. */
  put("closed/models/m/config.json", "{}");
  ASSERT_EQ(chmod(at("closed"), 0), 0);
  if (before == 0) ASSERT_EQ(seteuid(65534), 0);
  code = model_locate(at("closed/models/m"), &found, &error);
  if (before == 0) ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ(chmod(at("closed"), 0755), 0);
  ASSERT_EQ_FOR(code, ERR_PERMISSION, "%s", error.message);
  char words[600];
  snprintf(words, sizeof words, ", who may not look into %s/", at("closed"));
  cr_assert_not_null(strstr(error.message, words), "%s", error.message);
}

Test(locate, a_letter_of_the_path, .init = start, .fini = finish) {
  located_t found;
  inferd_error_t error = {0};
  char words[600];
  put("models/llama/config.json", "{}");
  EXPECT_EQ(model_locate(at("models/lama"), &found, &error), ERR_MODEL_MISSING);
  snprintf(words, sizeof words, "; did you mean %s?", at("models/llama"));
  cr_expect_not_null(strstr(error.message, words), "%s", error.message);
  EXPECT_EQ(model_locate(at("modells/llama"), &found, &error), ERR_MODEL_MISSING);
  snprintf(words, sizeof words, "; did you mean %s?", at("models"));
  cr_expect_not_null(strstr(error.message, words), "%s", error.message);
  EXPECT_EQ(model_locate(at("models/qwen"), &found, &error), ERR_MODEL_MISSING);
  cr_expect_null(strstr(error.message, "did you mean"), "%s", error.message);
}

Test(locate, words_in_names) {
  bool plain = false;
  cr_assert(gguf_has_quant("a-UD-Q4_K_XL.gguf", "Q4_K_XL", &plain) && !plain);
  cr_assert(gguf_has_quant("model_q8_0.gguf", "Q8_0", &plain) && plain);
  cr_assert(!gguf_has_quant("a-BF16.gguf", "F16", NULL));
  cr_assert(!gguf_has_quant("a-Q4_0_4_4.gguf", "Q4_0", NULL));
  cr_assert(!gguf_has_quant("a.gguf", "", NULL));
  cr_assert(gguf_is_model("a.GGUF"));
  cr_assert(!gguf_is_model("a.gguf.part"));
  cr_assert(!gguf_is_model("x/mmproj-a.gguf"));
  cr_assert(!gguf_is_model("a-imatrix.gguf"));
}

Test(locate, parts_of_one_file) {
  static const char first[] = "Q8_0/x-Q8_0-00001-of-00003.gguf";
  cr_assert(gguf_is_part_of(first, first));
  cr_assert(gguf_is_part_of("Q8_0/x-Q8_0-00003-of-00003.gguf", first));
  cr_assert_not(gguf_is_part_of("Q8_0/x-Q8_0-00002-of-00002.gguf", first)); /* of another split */
  cr_assert_not(gguf_is_part_of("x-Q8_0-00002-of-00003.gguf", first));
  cr_assert_not(gguf_is_part_of("Q8_0/y-Q8_0-00002-of-00003.gguf", first));
  cr_assert_not(gguf_is_part_of("x.gguf", first));
  cr_assert(gguf_is_part_of("x.gguf", "x.gguf"));
  cr_assert_not(gguf_is_part_of("xy.gguf", "x.gguf"));
}
