/* test_gguf.c: reading of GGUF files: values, tensors, split models, and which file a path means.
 */
#include "tests/engine/file/gguf_maker.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gguf_t *open_good(const char *path) {
  gguf_t *gguf = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(gguf_open(path, true, &gguf, &error), 0, "%s", error.message);
  return gguf;
}

static double number_of(const gguf_t *gguf, const char *key) {
  double number = -1;
  cr_assert(gguf_double(gguf_get(gguf, key), 0, &number), "%s", key);
  return number;
}

Test(gguf, values_of_every_kind) {
  static const struct {
    const char *key;
    uint32_t kind;
    uint64_t bits;
    double value;
  } rows[] = {
      {"u8", GGUF_U8, 200, 200},
      {"i8", GGUF_I8, 0xfe, -2},
      {"u16", GGUF_U16, 65000, 65000},
      {"i16", GGUF_I16, 0xfffd, -3},
      {"u32", GGUF_U32, 4000000000, 4e9},
      {"i32", GGUF_I32, 0xfffffffc, -4},
      {"u64", GGUF_U64, 1ULL << 40, 0x1p40},
      {"i64", GGUF_I64, UINT64_MAX - 4, -5},
      {"f32", GGUF_F32, 0x3fc00000, 1.5},
      {"f64", GGUF_F64, 0x4004000000000000, 2.5},
  };
  gguf_maker_t maker;
  gguf_maker_open(&maker);
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    gguf_maker_number(&maker, rows[i].key, rows[i].kind, rows[i].bits);
  }
  gguf_maker_number(&maker, "flag", GGUF_BOOL, 1);
  gguf_maker_text(&maker, "text", "words");
  gguf_maker_number(&maker, "huge", GGUF_U64, UINT64_MAX);
  gguf_t *gguf = open_good(gguf_maker_write(&maker, "a.gguf"));
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(number_of(gguf, rows[i].key), rows[i].value, "%s", rows[i].key);
  }
  bool flag = false;
  cr_assert(gguf_bool(gguf_get(gguf, "flag"), 0, &flag));
  cr_assert(flag);
  cr_assert_not(gguf_bool(gguf_get(gguf, "u8"), 0, &flag));
  int64_t number;
  cr_assert_not(gguf_int(gguf_get(gguf, "huge"), 0, &number), "beyond int64");
  cr_assert_not(gguf_int(gguf_get(gguf, "f32"), 0, &number), "a fraction is no integer");
  cr_assert_not(gguf_int(gguf_get(gguf, "u8"), 1, &number), "only one element");
  cr_assert_null(gguf_get(gguf, "absent"));
  const char *text;
  size_t at = 0, length;
  cr_assert(gguf_next_string(gguf_get(gguf, "text"), &at, &text, &length));
  cr_assert(length == 5 && memcmp(text, "words", 5) == 0);
  cr_assert_not(gguf_next_string(gguf_get(gguf, "text"), &at, &text, &length));
  gguf_close(gguf);
  gguf_maker_close(&maker);
}

Test(gguf, arrays) {
  gguf_maker_t maker;
  gguf_maker_open(&maker);
  gguf_maker_array(&maker, "names", GGUF_STRING, 3);
  gguf_put_text(&maker.pairs, "one");
  gguf_put_text(&maker.pairs, "");
  gguf_put_text(&maker.pairs, "three");
  gguf_maker_array(&maker, "numbers", GGUF_I16, 2);
  gguf_put(&maker.pairs, 7, 2);
  gguf_put(&maker.pairs, 0xffff, 2);
  gguf_maker_array(&maker, "nothing", GGUF_F32, 0);
  gguf_t *gguf = open_good(gguf_maker_write(&maker, "a.gguf"));
  const gguf_value_t *names = gguf_get(gguf, "names"), *numbers = gguf_get(gguf, "numbers");
  ASSERT_EQ(names->kind, GGUF_ARRAY);
  ASSERT_EQ(names->count, 3);
  char joined[32] = "";
  const char *text;
  size_t at = 0, length;
  while (gguf_next_string(names, &at, &text, &length)) {
    size_t used = strlen(joined);
    snprintf(joined + used, sizeof joined - used, "%.*s|", (int)length, text);
  }
  ASSERT_STR_EQ(joined, "one||three|");
  int64_t number = 0;
  cr_assert(gguf_int(numbers, 1, &number));
  ASSERT_EQ(number, -1);
  cr_assert_not(gguf_int(numbers, 2, &number));
  ASSERT_EQ(gguf_get(gguf, "nothing")->count, 0);
  gguf_close(gguf);
  gguf_maker_close(&maker);
}

Test(gguf, tensors_with_their_data) {
  gguf_maker_t maker;
  gguf_maker_open(&maker);
  maker.alignment = 64;
  gguf_maker_number(&maker, "general.alignment", GGUF_U32, 64);
  gguf_maker_tensor(&maker, "b", 2, 3, 10);
  gguf_maker_tensor(&maker, "a", 0, 5, 20);
  const char *path = gguf_maker_write(&maker, "a.gguf");
  gguf_t *gguf = open_good(path);
  ASSERT_EQ(gguf_num_tensors(gguf), 2);
  ASSERT_STR_EQ(gguf_tensor_at(gguf, 0)->name, "a");
  const gguf_tensor_t *tensor = gguf_tensor(gguf, "b");
  ASSERT_EQ(tensor->rank, 2);
  ASSERT_EQ(tensor->shape[0], 2);
  ASSERT_EQ(tensor->shape[1], 3);
  ASSERT_EQ(tensor->bytes, 24);
  ASSERT_STR_EQ(gguf_type_name(tensor->type), "F32");
  float values[6];
  memcpy(values, tensor->data, sizeof values);
  ASSERT_EQ(values[5], 15.0f);
  memcpy(values, gguf_tensor(gguf, "a")->data, 20);
  ASSERT_EQ(values[0], 20.0f);
  cr_assert_null(gguf_tensor(gguf, "c"));
  inferd_error_t error = {0};
  ASSERT_EQ(gguf_intact(gguf, &error), 0);
  ASSERT_EQ(truncate(path, 100), 0);
  ASSERT_EQ(gguf_intact(gguf, &error), ERR_IO);
  gguf_close(gguf);
  gguf_maker_close(&maker);
}

/* Files of a split of `count`, with a tensor each. */
static void write_split(gguf_maker_t *maker, int number, int count) {
  char name[64];
  gguf_maker_clear(maker);
  gguf_maker_number(maker, "split.no", GGUF_U16, (uint64_t)number);
  gguf_maker_number(maker, "split.count", GGUF_U16, (uint64_t)count);
  gguf_maker_number(maker, "split.tensors.count", GGUF_I32, (uint64_t)count);
  if (number == 0) gguf_maker_text(maker, "general.architecture", "llama");
  snprintf(name, sizeof name, "t%d", number);
  gguf_maker_tensor(maker, name, 1, 4, (float)number);
  snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number + 1, count);
  gguf_maker_write(maker, name);
}

Test(gguf, split_models) {
  gguf_maker_t maker;
  char path[128];
  gguf_maker_open(&maker);
  for (int i = 0; i < 3; i++) write_split(&maker, i, 3);
  for (int i = 0; i < 3; i++) { /* whichever file is named */
    snprintf(path, sizeof path, "%s/m-%05d-of-00003.gguf", maker.dir, i + 1);
    gguf_t *gguf = open_good(path);
    ASSERT_EQ(gguf_num_files(gguf), 3);
    ASSERT_EQ(gguf_num_tensors(gguf), 3);
    cr_assert_not_null(gguf_get(gguf, "general.architecture"));
    float value;
    memcpy(&value, gguf_tensor(gguf, "t2")->data, 4);
    ASSERT_EQ(value, 2.0f);
    ASSERT_EQ(gguf_tensor(gguf, "t2")->file, 2);
    gguf_close(gguf);
  }
  gguf_t *gguf = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ(gguf_open(path, false, &gguf, &error), 0); /* the metadata alone: the first file */
  ASSERT_EQ(gguf_num_files(gguf), 1);
  cr_assert_not_null(gguf_get(gguf, "general.architecture"));
  gguf_close(gguf);
  gguf_maker_close(&maker);
}

static int find(const char *path, char *out) {
  inferd_error_t error = {0};
  int found = gguf_find(path, out, 512, &error);
  if (found < 0) snprintf(out, 512, "%s", error.message);
  return found;
}

Test(gguf_find, a_file_or_the_only_one_of_a_directory) {
  gguf_maker_t maker;
  char out[512], link[128];
  gguf_maker_open(&maker);
  ASSERT_EQ(find(maker.dir, out), 0); /* empty */
  ASSERT_EQ(find("/nowhere/at/all", out), 0);
  char path[320];
  snprintf(path, sizeof path, "%s", gguf_maker_write(&maker, "mmproj-model.gguf"));
  ASSERT_EQ(find(maker.dir, out), 0); /* the image part of a model is no model */
  snprintf(path, sizeof path, "%s", gguf_maker_write(&maker, "one.gguf"));
  ASSERT_EQ(find(path, out), 1);
  ASSERT_STR_EQ(out, path);
  ASSERT_EQ(find(maker.dir, out), 1);
  ASSERT_STR_EQ(out, path);
  snprintf(link, sizeof link, "%s/blob", maker.dir); /* by its first bytes, through a link */
  ASSERT_EQ(symlink(path, link), 0);
  ASSERT_EQ(find(link, out), 1);
  gguf_close(open_good(link));
  gguf_maker_write(&maker, "two.GGUF");
  ASSERT_EQ(find(maker.dir, out), ERR_MODEL_MALFORMED);
  cr_assert(strstr(out, "one.gguf") != NULL && strstr(out, "two.GGUF") != NULL, "%s", out);
  gguf_maker_write(&maker, "model.safetensors"); /* a directory of Hugging Face stays one */
  ASSERT_EQ(find(maker.dir, out), 0);
  gguf_maker_close(&maker);
}

Test(gguf_find, a_split_model_counts_once) {
  gguf_maker_t maker;
  char out[512], wanted[128];
  gguf_maker_open(&maker);
  for (int i = 0; i < 3; i++) write_split(&maker, i, 3);
  snprintf(wanted, sizeof wanted, "%s/m-00001-of-00003.gguf", maker.dir);
  ASSERT_EQ(find(maker.dir, out), 1);
  ASSERT_STR_EQ(out, wanted);
  gguf_maker_close(&maker);
}
