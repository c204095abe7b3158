/* test_bad_weights.c: broken weight files. Each must fail with the right code and a message that
 * names what is wrong, leave nothing behind, and not disturb the next load.
 */
#include "engine/base/util.h"
#include "engine/model/source/safetensors.h"
#include "tests/engine/model/maker.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/expect.h"
#include "tests/heap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NORM "model.norm.weight"
#define UP "model.layers.0.mlp.up_proj.weight"
#define KEY "model.layers.0.self_attn.k_proj.weight"

static void expect_type(const maker_t *maker, int32_t dtype, int code, const char *part) {
  inferd_error_t error;
  int status = maker_load(maker, dtype, &error);
  ASSERT_EQ_FOR(status, code, "expected %s, found %s: %s", error_name(code), error_name(status),
                error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

static void expect(maker_t *maker, const char *part) {
  maker_write(maker);
  expect_type(maker, -1, ERR_MODEL_MALFORMED, part);
  maker_finish(maker);
}

Test(good_weights, load_in_every_type) {
  static const char *const types[] = {"F32", "F16", "BF16"};
  for (int stored = 0; stored < 3; stored++) {
    maker_t maker;
    maker_open(&maker);
    for (int i = 0; i < maker.num_tensors; i++) {
      maker_tensor_t *t = &maker.tensors[i];
      maker_reshape(t, types[stored], t->rank, t->shape[0], t->shape[1]);
    }
    maker_write(&maker);
    for (int32_t run = -1; run < 3; run++) {
      inferd_error_t error;
      ASSERT_EQ_FOR(maker_load(&maker, run, &error), 0, "%s", error.message);
    }
    maker_close(&maker);
  }
}

typedef struct header_case {
  const char *header;
  const char *part;
} header_case_t;

#define ENTRY(name, rest) "{\"" name "\":{" rest "}}"

Test(bad_header, entries) {
  static const header_case_t cases[] = {
      {"[]", "not a JSON object"},
      {" {}", "not a JSON object"},
      {"{\"a\":", "header:"},
      {"{} x", "header:"},
      {"{\"a\":1}", "tensor a: needs dtype"},
      {"{\"a\":{}}", "tensor a: needs dtype"},
      {"{\"\":{}}", "the name is empty"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1]"), "needs dtype"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), "needs dtype"},
      {ENTRY("a", "\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]"), "dtype \"F31\""},
      {ENTRY("a", "\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]"), "dtype \"?\""},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), "dimension"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]"), "dimension"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), "dimension"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), "dimension"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"),
       "more than 8 dimensions"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"),
       "overflows"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"),
       "do not fill"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), "begin <= end"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), "begin <= end"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,1e300]"), "begin <= end"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), "do not fill"},
      {ENTRY("a", "\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,0]"), "do not fill"},
      {ENTRY("a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), "there is a hole"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
       "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
       "header:"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
       "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
       "overlap"},
      {"{\"__metadata__\":{\"a\":1}}", "__metadata__"},
      {"{\"__metadata__\":[]}", "__metadata__"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[[[[[[[[[1]]]]]]]]],\"data_offsets\":[0,4]}}",
       "header:"},
      {"{}", "too long"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    maker_t maker;
    maker_open(&maker);
    maker.header = cases[i].header;
    maker_write(&maker);
    expect_type(&maker, -1, ERR_MODEL_MALFORMED, cases[i].part);
    maker_close(&maker);
  }
}

Test(bad_header, lengths) {
  static const uint64_t lengths[] = {1,          100000001,  1ULL << 40,
                                     1ULL << 63, UINT64_MAX, UINT64_MAX - 7};
  for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
    maker_t maker;
    maker_open(&maker);
    maker.header_length = lengths[i];
    expect(&maker, "header length is");
  }
}

/* What a clone has when the large files were not fetched. */
Test(bad_header, git_lfs) {
  maker_t maker;
  maker_open(&maker);
  maker.header_length = 0x206e6f6973726576; /* "version " */
  expect(&maker, "pointer of Git LFS");
}

Test(bad_header, tiny_files) {
  for (size_t size = 0; size <= 9; size++) {
    maker_t maker;
    maker_open(&maker);
    maker_write_config(&maker);
    maker_write_file(&maker, "model.safetensors", "\x01\0\0\0\0\0\0\0{", size);
    expect_type(&maker, -1, ERR_MODEL_MALFORMED, "model.safetensors: ");
    maker_close(&maker);
  }
}

Test(bad_header, sizes_of_the_file) {
  maker_t maker;
  maker_open(&maker);
  maker.data_change = -1;
  expect(&maker, "the file is truncated");
  maker_open(&maker);
  maker.data_change = -600;
  expect(&maker, "the file is truncated");
  maker_open(&maker);
  maker.data_change = 3;
  expect(&maker, "the file is too long");
}

Test(bad_tensor, is_missing) {
  maker_t maker;
  maker_open(&maker);
  maker_remove(&maker, UP);
  char wanted[300]; /* the line names the directory too: there may be a draft model */
  snprintf(wanted, sizeof wanted, "%s: tensor " UP " is missing", maker.dir);
  expect(&maker, wanted);
}

Test(bad_tensor, head_is_missing_but_not_tied) {
  maker_t maker;
  maker_open(&maker);
  maker_remove(&maker, "lm_head.weight");
  expect(&maker, "tie_word_embeddings is false but lm_head.weight is missing");
}

Test(bad_tensor, has_another_shape) {
  maker_t maker;
  maker_open(&maker);
  maker_reshape(maker_tensor(&maker, UP), "F32", 2, 8, 12);
  expect(&maker,
         "tensor " UP ": shape [8, 12], expected [12, 8] from intermediate_size, hidden_size");
  maker_open(&maker);
  maker_reshape(maker_tensor(&maker, NORM), "F32", 2, 8, 1);
  expect(&maker, "tensor " NORM ": shape [8, 1], expected [8]");
  maker_open(&maker);
  maker_reshape(maker_tensor(&maker, NORM), "F32", 0, 0, 0);
  expect(&maker, "tensor " NORM ": shape [], expected [8]");
  maker_open(&maker);
  maker_reshape(maker_tensor(&maker, KEY), "F32", 2, 8, 8);
  expect(&maker, "num_key_value_heads x head_dim");
}

Test(bad_tensor, has_another_type) {
  maker_t maker;
  maker_open(&maker);
  maker_reshape(maker_tensor(&maker, UP), "I32", 2, 12, 8);
  expect(&maker, "tensor " UP ": dtype I32 is not supported; supported: F32, F16, BF16");
}

Test(bad_tensor, is_not_expected) {
  maker_t maker;
  maker_open(&maker);
  maker_add(&maker, "model.layers.00.mlp.up_proj.weight", "F32", 1, 4, 0);
  maker_add(&maker, "model.layers.0.self_attn.q_norm.weight", "F32", 1, 4, 0);
  expect(&maker, "2 unexpected tensors, first: model.layers.0.self_attn.q_norm.weight");
}

Test(bad_tensor, bias_in_one_place_only) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, "mlp_bias", "true");
  expect(&maker, "gate_proj.bias is missing");
  maker_open(&maker);
  maker_add(&maker, "model.layers.0.mlp.up_proj.bias", "F32", 1, 12, 0);
  expect(&maker, "1 unexpected tensor, first: model.layers.0.mlp.up_proj.bias");
}

Test(bad_tensor, is_not_finite) {
  static const char *const names[] = {NORM,
                                      UP,
                                      KEY,
                                      "model.embed_tokens.weight",
                                      "lm_head.weight",
                                      "model.layers.0.input_layernorm.weight"};
  static const char *const types[] = {"F32", "F16", "BF16"};
  const double poisons[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < 6; i++) {
    for (int type = 0; type < 3; type++) {
      maker_t maker;
      char part[96];
      maker_open(&maker);
      maker_tensor_t *tensor = maker_tensor(&maker, names[i]);
      maker_reshape(tensor, types[type], tensor->rank, tensor->shape[0], tensor->shape[1]);
      tensor->poison = poisons[(i + (size_t)type) % 3];
      maker_write(&maker);
      snprintf(part, sizeof(part), "tensor %s: holds NaN or infinity", names[i]);
      for (int32_t run = 0; run < 3; run++) {
        expect_type(&maker, run, ERR_MODEL_MALFORMED, part);
      }
      maker_close(&maker);
    }
  }
}

Test(bad_tensor, does_not_fit_the_run_type) {
  maker_t maker;
  maker_open(&maker);
  maker_tensor(&maker, UP)->poison = 70000;
  maker_write(&maker);
  expect_type(&maker, DTYPE_F16, ERR_MODEL_MALFORMED, "a number that the chosen dtype cannot hold");
  inferd_error_t error;
  ASSERT_EQ_FOR(maker_load(&maker, DTYPE_BF16, &error), 0, "%s", error.message);
  maker_finish(&maker);
}

/* The weights are a link to `target`, as in a model cache. */
static void write_linked(maker_t *maker, const char *target) {
  char from[256], to[256];
  maker_open(maker);
  maker_write(maker);
  snprintf(from, sizeof(from), "%s/model.safetensors", maker->dir);
  snprintf(to, sizeof(to), "%s/real", maker->dir);
  ASSERT_EQ(rename(from, to), 0);
  ASSERT_EQ(symlink(target, from), 0);
}

Test(linked_file, is_followed_to_a_regular_file) {
  maker_t maker;
  inferd_error_t error;
  write_linked(&maker, "real");
  ASSERT_EQ_FOR(maker_load(&maker, -1, &error), 0, "%s", error.message);
  maker_close(&maker);
}

Test(linked_file, leads_elsewhere, .timeout = 20) {
  static const struct {
    const char *target;
    int code;
    const char *part;
  } cases[] = {{"gone", ERR_MODEL_MISSING, "the link leads to a file that does not exist"},
               {"model.safetensors", ERR_IO, "model.safetensors: "},
               {".", ERR_MODEL_MALFORMED, "not a regular file"},
               {"/dev/zero", ERR_MODEL_MALFORMED, "not a regular file"},
               {"pipe", ERR_MODEL_MALFORMED, "not a regular file"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    maker_t maker;
    char path[256];
    write_linked(&maker, cases[i].target);
    snprintf(path, sizeof(path), "%s/pipe", maker.dir);
    ASSERT_EQ(mkfifo(path, 0600), 0);
    expect_type(&maker, -1, cases[i].code, cases[i].part);
    maker_finish(&maker);
  }
}

Test(bad_file, has_the_names_of_mistral) {
  maker_t maker;
  maker_open(&maker);
  maker_write_config(&maker);
  maker_write_file(&maker, "consolidated.safetensors", "{}", 2);
  expect_type(&maker, -1, ERR_MODEL_MISSING, "consolidated.safetensors has Mistral's own names");
  maker_finish(&maker);
}

Test(bad_file, is_a_pipe_or_a_directory, .timeout = 20) {
  maker_t maker;
  char path[256];
  maker_open(&maker);
  maker_write_config(&maker);
  snprintf(path, sizeof(path), "%s/model.safetensors", maker.dir);
  ASSERT_EQ(mkfifo(path, 0600), 0);
  expect_type(&maker, -1, ERR_MODEL_MALFORMED, "not a regular file");
  ASSERT_EQ(unlink(path), 0);
  ASSERT_EQ(mkdir(path, 0700), 0);
  expect_type(&maker, -1, ERR_MODEL_MALFORMED, "not a regular file");
  maker_finish(&maker);
}

/* Two shards, a and b, of which the index says what `index` says. */
static void expect_index(const char *index, int code, const char *part) {
  maker_t maker;
  maker_open(&maker);
  maker_write_config(&maker);
  maker_write_tensors(&maker, "a.safetensors", 0, 6);
  maker_write_tensors(&maker, "b.safetensors", 6, maker.num_tensors - 6);
  maker_write_file(&maker, "model.safetensors.index.json", index, strlen(index));
  expect_type(&maker, -1, code, part);
  maker_finish(&maker);
}

#define MAP(text) "{\"metadata\":{\"total_size\":1},\"weight_map\":{" text "}}"

Test(bad_index, names_of_shards) {
  const int malformed = ERR_MODEL_MALFORMED;
  expect_index(MAP("\"x\":\"../a.safetensors\""), malformed, "names shard \"../a.safetensors\"");
  expect_index(MAP("\"x\":\"/etc/passwd\""), malformed, "plain file name");
  expect_index(MAP("\"x\":\"d/a.safetensors\""), malformed, "plain file name");
  expect_index(MAP("\"x\":\"..\""), malformed, "plain file name");
  expect_index(MAP("\"x\":\"\""), malformed, "plain file name");
  expect_index(MAP("\"x\":\"a\\u0000b\""), malformed, "model.safetensors.index.json");
  expect_index(MAP("\"x\":7"), malformed, "plain file name");
  expect_index(MAP("\"x\":\"c.safetensors\""), ERR_MODEL_MISSING, "c.safetensors: No such file");
}

Test(bad_index, content) {
  const int malformed = ERR_MODEL_MALFORMED;
  expect_index(MAP(""), malformed, "has no weight_map");
  expect_index("{}", malformed, "has no weight_map");
  expect_index("{\"weight_map\":[]}", malformed, "has no weight_map");
  expect_index("[", malformed, "model.safetensors.index.json");
  expect_index(MAP("\"x\":\"a.safetensors\""), malformed, "is missing");
  expect_index(MAP("\"model.embed_tokens.weight\":\"a.safetensors\""), malformed, "is missing");
}

/* The shards a, with the tensors before `first_b` + 1, and b, with those from there on: tensor
 * `first_b` is in both, with other values in a if `poison` is not 0. */
static int load_overlaid(const char *index, double poison, inferd_error_t *error) {
  maker_t maker;
  maker_open(&maker);
  maker_write_config(&maker);
  maker.tensors[6].poison = poison;
  maker_write_tensors(&maker, "a.safetensors", 0, 7);
  maker.tensors[6].poison = 0;
  maker_write_tensors(&maker, "b.safetensors", 6, maker.num_tensors - 6);
  maker_write_file(&maker, "model.safetensors.index.json", index, strlen(index));
  int code = maker_load(&maker, -1, error);
  maker_finish(&maker);
  return code;
}

Test(bad_index, a_tensor_in_two_shards) {
  inferd_error_t error = {0};
  maker_t maker;
  char in_a[256], in_b[256];
  maker_open(&maker);
  const char *name = maker.tensors[6].name;
  snprintf(in_a, sizeof in_a,
           MAP("\"%s\":\"a.safetensors\",\"model.norm.weight\":\"b.safetensors\""), name);
  snprintf(in_b, sizeof in_b,
           MAP("\"model.embed_tokens.weight\":\"a.safetensors\",\"%s\":\"b.safetensors\""), name);
  maker_close(&maker);
  ASSERT_EQ(load_overlaid(in_a, 7, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "is stored twice, in "), "%s", error.message);
  ASSERT_EQ_FOR(load_overlaid(in_a, 0, &error), 0, "the same bytes: %s", error.message);
  ASSERT_EQ_FOR(load_overlaid(in_b, 7, &error), 0, "the index names the last: %s", error.message);
}

/* Writes `count` tensors of one byte. */
static void write_many(const maker_t *maker, const char *name, int count, uint8_t byte) {
  const size_t capacity = 80 * (size_t)count + 16;
  char *file = malloc(capacity);
  size_t used = 8;
  for (int i = 0; i < count; i++)
    used += (size_t)snprintf(file + used, capacity - used,
                             "%c\"tensor.%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                             "\"data_offsets\":[%d,%d]}",
                             i == 0 ? '{' : ',', i, i, i + 1);
  file[used++] = '}';
  for (int i = 0; i < 8; i++) file[i] = (char)((uint64_t)(used - 8) >> (8 * i));
  memset(file + used, byte, (size_t)count);
  maker_write_file(maker, name, file, used + (size_t)count);
  free(file);
}

/* Every tensor is in both shards: the work follows their number. */
Test(good_index, thousands_of_tensors_in_two_shards) {
  enum { COUNT = 3000 };
  maker_t maker;
  weight_files_t *files;
  inferd_error_t error = {0};
  const size_t capacity = 64 * COUNT;
  char *index = malloc(capacity);
  size_t used = 0;
  maker_open(&maker);
  write_many(&maker, "a.safetensors", COUNT, 1);
  write_many(&maker, "b.safetensors", COUNT, 2);
  for (int i = 0; i < COUNT; i++)
    used += (size_t)snprintf(index + used, capacity - used, "%s\"tensor.%d\":\"b.safetensors\"",
                             i == 0 ? "{\"weight_map\":{" : ",", i);
  used += (size_t)snprintf(index + used, capacity - used, ",\"x\":\"a.safetensors\"}}");
  maker_write_file(&maker, "model.safetensors.index.json", index, used);
  heap_restart();
  ASSERT_EQ_FOR(weight_files_open(maker.dir, &files, &error), 0, "%s", error.message);
  ASSERT_LE(heap_asked(), (size_t)16 << 20);
  cr_assert_not_null(strstr(weight_files_note(files), "3000 tensors are stored in several"));
  weight_files_close(files);
  free(index);
  maker_close(&maker);
}

/* What the index says of tensors that no shard has, or that another shard has, is not needed. */
Test(good_index, names_that_are_not_needed) {
  static const char *const extra[] = {
      "\"mtp.fc.weight\":\"b.safetensors\"",
      "\"model.layers.61.enorm.weight\":\"a.safetensors\"",
      "\"visual.patch.weight\":\"b.safetensors\"",
      "\"\":\"a.safetensors\"",
      "\"model.norm.weight\":\"a.safetensors\"",
      "\"model.norm.weight\":\"a.safetensors\",\"x\":\"b.safetensors\",\"y\":\"b.safetensors\"",
  };
  for (size_t i = 0; i < ARRAY_LEN(extra); i++) {
    maker_t maker;
    inferd_error_t error;
    weight_files_t *files;
    char index[512];
    maker_open(&maker);
    maker_write_config(&maker);
    maker_write_tensors(&maker, "a.safetensors", 0, 6);
    maker_write_tensors(&maker, "b.safetensors", 6, maker.num_tensors - 6);
    snprintf(index, sizeof index,
             MAP("%s,\"model.embed_tokens.weight\":\"a.safetensors\",\"u\":\"b.safetensors\""),
             extra[i]);
    maker_write_file(&maker, "model.safetensors.index.json", index, strlen(index));
    ASSERT_EQ_FOR(maker_load(&maker, -1, &error), 0, "%s: %s", extra[i], error.message);
    ASSERT_EQ(weight_files_open(maker.dir, &files, &error), 0);
    cr_assert_not_null(strstr(weight_files_note(files), "of the index in no shard, first: "), "%s",
                       weight_files_note(files));
    weight_files_close(files);
    maker_finish(&maker);
  }
}

/* Checkpoints of before 2020 call weight and bias of a norm gamma and beta. */
Test(good_weights, old_names_of_norms) {
  static const char *const names[][2] = {
      {"bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"},
      {"bert.embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias"},
      {"cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"},
      {"LayerNorm.gamma", "LayerNorm.weight"},
      {"encoder.layer.11.output.LayerNorm.beta", "encoder.layer.11.output.LayerNorm.bias"},
      {"x.layer_norm.gamma", "x.layer_norm.gamma"},
      {"LayerNorm.gamma.x", "LayerNorm.gamma.x"},
  };
  maker_t maker;
  inferd_error_t error;
  weight_files_t *files;
  maker_open(&maker);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) maker_add(&maker, names[i][0], "F32", 1, 8, 0);
  maker_write(&maker);
  ASSERT_EQ_FOR(weight_files_open(maker.dir, &files, &error), 0, "%s", error.message);
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    cr_expect_not_null(weight_files_find(files, names[i][1]), "%s", names[i][1]);
  weight_files_close(files);
  maker_close(&maker);
}

Test(good_weights, index_wins_over_a_single_file) {
  maker_t maker;
  inferd_error_t error;
  maker_open(&maker);
  maker_write_config(&maker);
  maker_write_tensors(&maker, "a.safetensors", 0, maker.num_tensors);
  maker_write_file(&maker, "model.safetensors", "junk", 4);
  const char *index = MAP("\"model.embed_tokens.weight\":\"a.safetensors\"");
  maker_write_file(&maker, "model.safetensors.index.json", index, strlen(index));
  ASSERT_EQ_FOR(maker_load(&maker, -1, &error), 0, "%s", error.message);
  maker_finish(&maker);
}

/* A file that shrinks after its header was checked: reading its mapping raises SIGBUS. */

static char shrinking_path[256];
static int calls_before_shrinking;

static int shrinking_weight(device_t *device, const weight_source_t *source, weight_t **out,
                            inferd_error_t *error) {
  if (calls_before_shrinking-- == 0) ASSERT_EQ(truncate(shrinking_path, 4096), 0);
  return ops_naive.weight(device, source, out, error);
}

static int load_shrinking(int calls, inferd_error_t *error) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, "vocab_size", "2048"); /* so that the file has pages to lose */
  maker_reshape(maker_tensor(&maker, "model.embed_tokens.weight"), "F32", 2, 2048, 8);
  maker_reshape(maker_tensor(&maker, "lm_head.weight"), "BF16", 2, 2048, 8);
  maker_write(&maker);
  snprintf(shrinking_path, sizeof(shrinking_path), "%s/model.safetensors", maker.dir);
  calls_before_shrinking = calls;
  ops_t ops = ops_naive;
  ops.weight = shrinking_weight;
  blueprint_t blueprint;
  ASSERT_EQ_FOR(blueprint_read(maker.dir, 0, -1, &blueprint, error), 0, "%s", error->message);
  device_t *device;
  model_t *model = NULL;
  model_options_t options = {.dir = maker.dir, .dtype = -1};
  ASSERT_EQ(ops.open(NULL, &device, error), 0);
  int status = model_load(&ops, device, &blueprint, 32, &options, &model, error);
  model_free(model);
  ops.close(device);
  blueprint_free(&blueprint);
  maker_finish(&maker);
  return status;
}

Test(bad_file, shrinks_while_it_is_read) {
  for (int calls = 0; calls < 3; calls++) {
    inferd_error_t error = {0};
    int status = load_shrinking(calls, &error);
    ASSERT_EQ_FOR(status, ERR_IO, "%s: %s", error_name(status), error.message);
    cr_assert_not_null(strstr(error.message, "model.safetensors: the file changed its size"));
  }
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(load_shrinking(99, &error), 0, "%s", error.message);
}

/* Random damage to a good file must give an error or a model, never a crash (the sanitizers see).
 */
Test(bad_file, random_damage) {
  maker_t maker;
  char path[256];
  static uint8_t good[1 << 17], bytes[1 << 17];
  maker_open(&maker);
  maker_write(&maker);
  snprintf(path, sizeof(path), "%s/model.safetensors", maker.dir);
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file);
  size_t length = fread(good, 1, sizeof(good), file);
  fclose(file);
  srand(20260);
  int refused = 0;
  for (int round = 0; round < 400; round++) {
    memcpy(bytes, good, length);
    int changes = 1 + rand() % 3;
    for (int i = 0; i < changes; i++) {
      size_t header = 1200;
      bytes[(size_t)rand() % header] = (uint8_t)(rand() % 3 ? 32 + rand() % 95 : rand() % 256);
    }
    maker_write_file(&maker, "model.safetensors", bytes, length);
    inferd_error_t error;
    int status = maker_load(&maker, -1, &error);
    refused += status != 0;
    cr_assert(status == 0 || error.message[0] != '\0');
  }
  ASSERT_GT(refused, 300);
  maker_finish(&maker);
}
