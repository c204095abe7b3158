/* test_pickled.c: files of torch.save become the safetensors that the safetensors library writes of
 * the same tensors (scripts/vectors/torch_files.py), or are refused and leave nothing behind.
 */
#include "engine/model/source/pickled.h"
#include "engine/model/source/safetensors.h"
#include "tests/expect.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VECTORS "tests/vectors/torch"

TestSuite(pickled, .timeout = 60);

static char dir[64];
static int lines;

static void count_lines(const char *line) {
  cr_assert_not_null(strstr(line, "wrote"), "%s", line);
  lines++;
}

static const char *at(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}

static void empty_directory(void) {
  DIR *stream = opendir(dir);
  cr_assert_not_null(stream);
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
    if (entry->d_name[0] != '.') ASSERT_EQ(unlink(at(entry->d_name)), 0);
  closedir(stream);
}

static void open_directory(void) {
  snprintf(dir, sizeof dir, "/tmp/inferd-pickled-XXXXXX");
  cr_assert_not_null(mkdtemp(dir));
  lines = 0;
}

static void close_directory(void) {
  empty_directory();
  rmdir(dir);
}

static int count_files(void) {
  int count = 0;
  DIR *stream = opendir(dir);
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;) count += entry->d_name[0] != '.';
  closedir(stream);
  return count;
}

static void write_bytes(const char *name, const void *bytes, size_t length) {
  FILE *file = fopen(at(name), "wb");
  cr_assert_not_null(file);
  ASSERT_EQ(fwrite(bytes, 1, length, file), length);
  fclose(file);
}

static uint8_t *read_vector(const char *name, size_t *length) {
  char path[512];
  snprintf(path, sizeof path, VECTORS "/%s.bin", name);
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file, "%s", path);
  uint8_t *bytes = malloc(1 << 20);
  *length = fread(bytes, 1, 1 << 20, file);
  fclose(file);
  cr_assert(*length > 0 && *length < 1 << 20);
  return bytes;
}

static void copy_vector(const char *vector, const char *name) {
  size_t length;
  uint8_t *bytes = read_vector(vector, &length);
  write_bytes(name, bytes, length);
  free(bytes);
}

static void expect_same(const weight_files_t *files, const char *vector) {
  weight_files_t *wanted;
  char name[256];
  inferd_error_t error;
  snprintf(name, sizeof name, "%s.safetensors", vector);
  ASSERT_EQ_FOR(weight_files_open_file(VECTORS, name, &wanted, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(weight_files_count(files), weight_files_count(wanted), "%s", vector);
  for (size_t i = 0; i < weight_files_count(wanted); i++) {
    const stored_tensor_t *left = weight_files_at(wanted, i), *right = weight_files_at(files, i);
    cr_assert_str_eq(left->name, right->name);
    cr_assert_str_eq(left->type, right->type, "%s: %s", vector, left->name);
    ASSERT_EQ_FOR(left->rank, right->rank, "%s: %s", vector, left->name);
    for (int32_t d = 0; d < left->rank; d++) ASSERT_EQ(left->shape[d], right->shape[d]);
    ASSERT_EQ_FOR(memcmp(left->data, right->data, left->bytes), 0, "%s: %s", vector, left->name);
  }
  weight_files_close(wanted);
}

static void expect_converted(const char *stem, const char *ending) {
  char vector[256];
  inferd_error_t error = {0};
  weight_files_t *files;
  snprintf(vector, sizeof vector, "%s%s", stem, ending);
  copy_vector(vector, "pytorch_model.bin");
  ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), 0, "%s: %s", vector, error.message);
  ASSERT_EQ_FOR(weight_files_open(dir, &files, &error), 0, "%s: %s", vector, error.message);
  expect_same(files, stem);
  weight_files_close(files);
  ASSERT_EQ(count_files(), 2);
  empty_directory();
}

/* All vectors that torch wrote in both forms. */
Test(pickled, files_of_torch_have_the_tensors_of_the_safetensors_library) {
  int count = 0;
  open_directory();
  DIR *stream = opendir(VECTORS);
  cr_assert_not_null(stream);
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    char stem[256], old[300];
    snprintf(stem, sizeof stem, "%s", entry->d_name);
    char *dot = strstr(stem, ".safetensors");
    if (dot == NULL) continue;
    *dot = '\0';
    expect_converted(stem, "");
    snprintf(old, sizeof old, VECTORS "/%s_old.bin", stem);
    if (access(old, F_OK) == 0) expect_converted(stem, "_old"), count++;
    count++;
  }
  closedir(stream);
  ASSERT_LE(60, count);
  close_directory();
}

static void expect_refused(const char *vector, const char *part) {
  inferd_error_t error = {0};
  copy_vector(vector, "pytorch_model.bin");
  ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), ERR_MODEL_MALFORMED, "%s: %s", vector,
                error.message);
  cr_assert_not_null(strstr(error.message, part), "%s: \"%s\" is not in \"%s\"", vector, part,
                     error.message);
  ASSERT_EQ_FOR(count_files(), 1, "%s left something behind", vector);
}

Test(pickled, what_is_no_dictionary_of_tensors_is_refused_by_name) {
  static const char *const cases[][2] = {
      {"refused_number", "\"step\" is a number"},
      {"refused_text", "\"note\" is a text"},
      {"refused_nested", "\"state_dict\" is a dictionary"},
      {"refused_list", "holds a list"},
      {"refused_tensor", "holds a tensor"},
      {"refused_none", "\"a\" is None"},
      {"refused_key", "a key of its dictionary is a number"},
      {"refused_sparse", "torch._utils._rebuild_sparse_tensor"},
      {"refused_quantised", "torch._utils._rebuild_qtensor"},
      {"refused_complex128", "torch.ComplexDoubleStorage"},
      {"refused_conjugate", "conjugate"},
      {"refused_negative", "negative"},
      {"refused_repeated", "repeats it"},
      {"refused_meta", "it names torch"},
      {"refused_numpy", "it names numpy"},
      {"refused_module", "it names __main__.Tiny"},
      {"refused_size", "it names torch.Size"},
      {"refused_long_name", "no name of a tensor"},
      {"refused_no_name", "no name of a tensor"},
      {"refused_nine_dimensions", "9 dimensions"},
      {"refused_call", "__builtin__.eval"},
      {"refused_call_old", "__builtin__.eval"},
      {"refused_protocol", "protocol 4"},
  };
  open_directory();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refused(cases[i][0], cases[i][1]);
  ASSERT_EQ(lines, 0);
  close_directory();
}

/* A file that is cut anywhere is refused, and a longer one too where its end counts. */
static void cut_everywhere(const char *vector) {
  size_t length;
  uint8_t *bytes = read_vector(vector, &length);
  open_directory();
  for (size_t cut = 0; cut < length; cut += cut < 64 || length - cut < 300 ? 1 : 37) {
    inferd_error_t error = {0};
    write_bytes("pytorch_model.bin", bytes, cut);
    ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), ERR_MODEL_MALFORMED, "%s, %zu of %zu",
                  vector, cut, length);
    ASSERT_EQ(count_files(), 1);
  }
  free(bytes);
  close_directory();
}

Test(pickled, a_file_that_is_cut_off_is_refused) {
  cut_everywhere("sliced");
  cut_everywhere("sliced_old");
}

Test(pickled, shards_get_the_index_of_what_they_hold) {
  static const char index[] = "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
                              "\"layers.0.w\":\"pytorch_model-00001-of-00002.bin\","
                              "\"embed.weight\":\"pytorch_model-00002-of-00002.bin\","
                              "\"lm_head.weight\":\"pytorch_model-00002-of-00002.bin\"}}";
  inferd_error_t error = {0};
  weight_files_t *files;
  open_directory();
  write_bytes("pytorch_model.bin.index.json", index, sizeof index - 1);
  copy_vector("many", "pytorch_model-00001-of-00002.bin");
  copy_vector("tied_old", "pytorch_model-00002-of-00002.bin");
  ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), 0, "%s", error.message);
  ASSERT_EQ(lines, 2);
  ASSERT_EQ_FOR(weight_files_open(dir, &files, &error), 0, "%s", error.message);
  ASSERT_EQ(weight_files_count(files), 302);
  cr_assert_str_eq(weight_files_note(files), "");
  weight_files_close(files);
  ASSERT_EQ(count_files(), 6);
  close_directory();
}

static void expect_bad_shards(const char *index, int code, const char *part) {
  inferd_error_t error = {0};
  write_bytes("pytorch_model.bin.index.json", index, strlen(index));
  ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), code, "%s", error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  const int left = access(at("pytorch_model-3.bin"), F_OK) == 0 ? 3 : 2;
  ASSERT_EQ_FOR(count_files(), left, "%s: something is left", part);
}

#define MAP(entries) "{\"weight_map\":{" entries "}}"

Test(pickled, a_run_that_fails_leaves_no_file) {
  open_directory();
  copy_vector("tied", "pytorch_model-1.bin");
  expect_bad_shards(MAP("\"a\":\"pytorch_model-1.bin\",\"b\":\"pytorch_model-2.bin\""),
                    ERR_MODEL_MISSING, "pytorch_model-2.bin");
  copy_vector("tied_old", "pytorch_model-3.bin");
  expect_bad_shards(MAP("\"a\":\"pytorch_model-1.bin\",\"b\":\"pytorch_model-3.bin\""),
                    ERR_MODEL_MALFORMED,
                    "embed.weight would be in model-1.safetensors and in model-3.safetensors");
  ASSERT_EQ(unlink(at("pytorch_model-3.bin")), 0);
  expect_bad_shards(MAP("\"a\":\"../pytorch_model-1.bin\""), ERR_MODEL_MALFORMED,
                    "names the shard");
  expect_bad_shards(MAP("\"a\":\"pytorch_model/../x.bin\""), ERR_MODEL_MALFORMED,
                    "names the shard");
  expect_bad_shards(MAP("\"a\":\"training_args.bin\""), ERR_MODEL_MALFORMED, "names the shard");
  expect_bad_shards(MAP("\"a\":7"), ERR_MODEL_MALFORMED, "names the shard");
  expect_bad_shards(MAP(""), ERR_MODEL_MALFORMED, "has no weight_map");
  expect_bad_shards("[]", ERR_MODEL_MALFORMED, "must be a JSON object");
  close_directory();
}

Test(pickled, nothing_is_replaced) {
  inferd_error_t error = {0};
  open_directory();
  ASSERT_EQ(pickled_is_in(dir), false);
  ASSERT_EQ(pickled_convert(dir, count_lines, &error), ERR_MODEL_MISSING);
  copy_vector("tied", "pytorch_model.bin");
  ASSERT_EQ(pickled_is_in(dir), true);
  write_bytes("model.safetensors", "kept", 4);
  ASSERT_EQ(pickled_convert(dir, count_lines, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "has model.safetensors already"), "%s", error.message);
  ASSERT_EQ(count_files(), 2);
  close_directory();
}

Test(pickled, an_adapter) {
  inferd_error_t error = {0};
  weight_files_t *files;
  open_directory();
  copy_vector("ordered", "adapter_model.bin");
  ASSERT_EQ(weight_files_open_file(dir, "adapter_model.safetensors", &files, &error),
            ERR_MODEL_MISSING);
  cr_assert_not_null(strstr(error.message, "inferd convert /tmp"), "%s", error.message);
  ASSERT_EQ_FOR(pickled_convert(dir, count_lines, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(weight_files_open_file(dir, "adapter_model.safetensors", &files, &error), 0, "%s",
                error.message);
  expect_same(files, "ordered");
  weight_files_close(files);
  close_directory();
}
