/* test_bad_gguf.c: broken GGUF files. Each must fail with the right code and a message that names
 * the file and what is wrong, and leave nothing behind.
 */
#include "tests/engine/file/gguf_maker.h"
#include "tests/expect.h"
#include "tests/heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files have a few hundred bytes, whatever their counts say. */
enum { HEAP_BYTES_MAX = 16 << 10 };

static void expect_code(const char *path, int code, const char *part) {
  gguf_t *gguf = NULL;
  inferd_error_t error = {0};
  heap_restart();
  int found = gguf_open(path, true, &gguf, &error);
  ASSERT_LE_FOR(heap_asked(), (size_t)HEAP_BYTES_MAX, "%s", part);
  ASSERT_EQ_FOR(found, code, "expected \"%s\", found \"%s\"", part, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  cr_assert_not_null(strstr(error.message, ".gguf"), "no file in \"%s\"", error.message);
}

/* Writes what the maker holds, expects the refusal, and empties the maker for the next case. */
static void expect(gguf_maker_t *maker, const char *part) {
  expect_code(gguf_maker_write(maker, "a.gguf"), ERR_MODEL_MALFORMED, part);
  gguf_maker_clear(maker);
}

static void with_maker(void (*cases)(gguf_maker_t *maker)) {
  gguf_maker_t maker;
  gguf_maker_open(&maker);
  cases(&maker);
  gguf_maker_close(&maker);
}

static void starts(gguf_maker_t *m) {
  m->magic = 0x47475546;
  expect(m, "does not begin with GGUF");
  m->magic = 0x73726576, m->version = 0x206e6f69;
  expect(m, "git lfs");
  m->version = 1;
  expect(m, "version 1 of GGUF");
  m->version = 4;
  expect(m, "version 4 of GGUF");
  m->version = 3U << 24;
  expect(m, "big endian");
  for (size_t left = 1; left < 24; left++) { /* cut in every field of the start */
    m->cut = 32 - left;
    expect(m, "but the file has");
  }
  m->cut = 32;
  expect(m, "is empty");
}

Test(bad_gguf, starts) {
  with_maker(starts);
}

static void counts(gguf_maker_t *m) {
  m->tensor_count = UINT64_MAX;
  expect(m, "the number of tensors is 18446744073709551615");
  m->tensor_count = GGUF_TENSORS_MAX + 1;
  expect(m, "the number of tensors is");
  m->tensor_count = GGUF_TENSORS_MAX;
  expect(m, "the number of tensors is 1048576, for which the file has too few bytes: 32");
  m->tensor_count = 1; /* padding follows */
  gguf_put(&m->data, 0, 8);
  expect(m, "the name of tensor 0 is empty");
  m->pair_count = GGUF_PAIRS_MAX;
  expect(m, "the number of keys is 65536, for which the file has too few bytes: 32");
  m->pair_count = 1ULL << 63;
  expect(m, "the number of keys is");
  m->pair_count = GGUF_PAIRS_MAX + 1;
  expect(m, "at most 65536");
  m->pair_count = 2;
  gguf_maker_text(m, "a", "b");
  expect(m, "key 1");
}

Test(bad_gguf, counts) {
  with_maker(counts);
}

static void keys(gguf_maker_t *m) {
  gguf_put(&m->pairs, UINT64_MAX, 8);
  m->num_pairs = 1;
  expect(m, "the length of key 0 is 18446744073709551615, at most 1024");
  gguf_put(&m->pairs, 1000, 8); /* longer than the file */
  m->num_pairs = 1;
  expect(m, "key 0 needs 1000 bytes");
  gguf_maker_text(m, "", "b");
  expect(m, "key 0 is empty");
  gguf_put(&m->pairs, 3, 8);
  buffer_append(&m->pairs, "a\0b", 3);
  gguf_put(&m->pairs, GGUF_U8, 4);
  gguf_put(&m->pairs, 0, 1);
  m->num_pairs = 1;
  expect(m, "holds a NUL");
  gguf_maker_text(m, "twice", "b");
  gguf_maker_text(m, "once", "b");
  gguf_maker_number(m, "twice", GGUF_U8, 0);
  expect(m, "the key \"twice\" is there twice");
  gguf_maker_text(m, "bad\x1b[31m", "b"); /* nothing of a file reaches a terminal unescaped */
  gguf_maker_text(m, "bad\x1b[31m", "b");
  expect(m, "\"bad?[31m\"");
}

Test(bad_gguf, keys) {
  with_maker(keys);
}

static void values(gguf_maker_t *m) {
  gguf_maker_key(m, "a", 13);
  expect(m, "\"a\" has the type 13");
  gguf_maker_key(m, "a", UINT32_MAX);
  expect(m, "\"a\" has the type 4294967295");
  gguf_maker_number(m, "a", GGUF_BOOL, 2);
  expect(m, "\"a\" is 2, a flag is 0 or 1");
  gguf_maker_key(m, "a", GGUF_STRING);
  gguf_put(&m->pairs, 1ULL << 40, 8);
  expect(m, "the length of \"a\" is 1099511627776");
  gguf_maker_key(m, "a", GGUF_STRING);
  gguf_put(&m->pairs, 4096, 8);
  expect(m, "\"a\" needs 4096 bytes");
  gguf_maker_key(m, "a", GGUF_U64);
  m->cut = 20;
  expect(m, "\"a\" needs 8 bytes");
}

Test(bad_gguf, values) {
  with_maker(values);
}

static void arrays(gguf_maker_t *m) {
  gguf_maker_array(m, "a", GGUF_ARRAY, 1);
  expect(m, "\"a\" is an array of arrays");
  gguf_maker_array(m, "a", 99, 1);
  expect(m, "\"a\" has the type 99");
  gguf_maker_array(m, "a", GGUF_U8, UINT64_MAX);
  expect(m, "the number of elements of \"a\" is 18446744073709551615");
  gguf_maker_array(m, "a", GGUF_F64, GGUF_ELEMENTS_MAX);
  expect(m, "\"a\" needs 33554432 bytes");
  gguf_maker_array(m, "a", GGUF_F64, (1ULL << 61) + 1); /* times 8 it would wrap to 8 */
  expect(m, "the number of elements of \"a\" is");
  gguf_maker_array(m, "a", GGUF_STRING, 2);
  gguf_put_text(&m->pairs, "first");
  expect(m, "\"a\"");
  gguf_maker_array(m, "a", GGUF_STRING, 1);
  gguf_put(&m->pairs, UINT64_MAX - 7, 8);
  expect(m, "the length of \"a\" is 18446744073709551608");
  gguf_maker_array(m, "a", GGUF_BOOL, 2);
  gguf_put(&m->pairs, 0x0301, 2);
  expect(m, "\"a\" is 3, a flag is 0 or 1");
}

Test(bad_gguf, arrays) {
  with_maker(arrays);
}

#define DIMS(...) ((const uint64_t[]){__VA_ARGS__, 0})

static void tensors(gguf_maker_t *m) {
  gguf_maker_info(m, "t", DIMS(4, 4, 4, 4, 4), GGUF_TYPE_F32, 0);
  expect(m, "tensor t has 5 dimensions");
  gguf_maker_info(m, "t", DIMS(0), GGUF_TYPE_F32, 0);
  expect(m, "tensor t has 0 dimensions");
  gguf_put_text(&m->tensors, "t");
  gguf_put(&m->tensors, 1, 4);
  gguf_put(&m->tensors, 0, 8);
  m->num_tensors = 1;
  expect(m, "tensor t has a dimension of 0");
  gguf_maker_info(m, "t", DIMS(UINT64_MAX), GGUF_TYPE_F32, 0);
  expect(m, "tensor t has a dimension of -1");
  gguf_maker_info(m, "t", DIMS(1ULL << 39, 1ULL << 39), GGUF_TYPE_F32, 0);
  expect(m, "the product of the dimensions of tensor t overflows");
  gguf_maker_info(m, "t", DIMS(1ULL << 39, 1ULL << 24), GGUF_TYPE_F32, 0);
  expect(m, "the bytes of tensor t overflow");
  gguf_maker_info(m, "t", DIMS(4), 77, 0);
  expect(m, "tensor t has the type 77");
  gguf_maker_info(m, "t", DIMS(256), 31, 0);
  expect(m, "Q4_0_4_4, which is no longer written");
  gguf_maker_info(m, "t", DIMS(255), 12, 0);
  expect(m, "tensor t has 255 columns; blocks of Q4_K have 256");
  gguf_maker_info(m, "t", DIMS(33, 32), 8, 0);
  expect(m, "tensor t has 33 columns; blocks of Q8_0 have 32");
  gguf_maker_info(m, "", DIMS(4), GGUF_TYPE_F32, 0);
  expect(m, "the name of tensor 0 is empty");
  gguf_put(&m->tensors, GGUF_NAME_MAX + 1, 8);
  m->num_tensors = 1;
  expect(m, "the length of the name of tensor 0 is 128");
}

Test(bad_gguf, tensors) {
  with_maker(tensors);
}

static void places(gguf_maker_t *m) {
  gguf_maker_tensor(m, "t", 0, 8, 0);
  m->cut = 1;
  expect(m, "it is truncated");
  gguf_maker_info(m, "t", DIMS(8), GGUF_TYPE_F32, 1ULL << 40);
  expect(m, "32 bytes at offset 1099511627776");
  gguf_maker_info(m, "t", DIMS(8), GGUF_TYPE_F32, UINT64_MAX - 31);
  expect(m, "it is truncated");
  gguf_maker_tensor(m, "t", 0, 8, 0);
  gguf_maker_info(m, "u", DIMS(1), GGUF_TYPE_F32, 4);
  expect(m, "tensor u: its offset 4 is no multiple of the alignment 32");
  gguf_maker_tensor(m, "t", 0, 16, 0);
  gguf_maker_info(m, "u", DIMS(8), GGUF_TYPE_F32, 32);
  expect(m, "tensor u: begins at byte");
  gguf_maker_tensor(m, "t", 0, 16, 0);
  gguf_maker_info(m, "u", DIMS(8), GGUF_TYPE_F32, 0);
  expect(m, "inside another tensor");
  gguf_maker_tensor(m, "t", 0, 8, 0);
  gguf_maker_tensor(m, "t", 0, 8, 0);
  expect(m, "tensor t is there twice");
}

Test(bad_gguf, places) {
  with_maker(places);
}

static void alignments(gguf_maker_t *m) {
  static const uint64_t wrong[] = {0, 3, 48, 1ULL << 21, 1ULL << 31};
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    gguf_maker_number(m, "general.alignment", GGUF_U32, wrong[i]);
    expect(m, "\"general.alignment\" is");
  }
  gguf_maker_text(m, "general.alignment", "32");
  expect(m, "\"general.alignment\" is");
}

Test(bad_gguf, alignments) {
  with_maker(alignments);
}

static void split_keys(gguf_maker_t *m, uint64_t number, uint64_t count) {
  gguf_maker_number(m, "split.no", GGUF_U16, number);
  gguf_maker_number(m, "split.count", GGUF_U16, count);
}

static void splits(gguf_maker_t *m) {
  char first[128];
  snprintf(first, sizeof first, "%s/m-00001-of-00002.gguf", m->dir);
  split_keys(m, 0, 2);
  expect(m, "its name must end in -00001-of-00002.gguf");
  split_keys(m, 0, 5000);
  expect(m, "\"split.count\" is 5000");
  gguf_maker_text(m, "split.count", "2");
  expect(m, "\"split.count\" is");
  split_keys(m, 0, 2);
  gguf_maker_write(m, "m-00001-of-00002.gguf");
  expect_code(first, ERR_MODEL_MISSING, "m-00002-of-00002.gguf: No such file");
  gguf_maker_write(m, "m-00002-of-00002.gguf"); /* the first file again: a ring of one */
  gguf_maker_write(m, "m-00001-of-00002.gguf");
  expect_code(first, ERR_MODEL_MALFORMED, "says that it is file 1 of 2, its name says 2 of 2");
  gguf_maker_clear(m);
  split_keys(m, 1, 3); /* another number of files */
  gguf_maker_write(m, "m-00002-of-00002.gguf");
  expect_code(first, ERR_MODEL_MALFORMED, "says that it is file 2 of 3");
  gguf_maker_clear(m);
  gguf_maker_tensor(m, "t", 0, 8, 0); /* the same tensor in both */
  split_keys(m, 1, 2);
  gguf_maker_write(m, "m-00002-of-00002.gguf");
  gguf_maker_clear(m);
  gguf_maker_tensor(m, "t", 0, 8, 0);
  split_keys(m, 0, 2);
  gguf_maker_write(m, "m-00001-of-00002.gguf");
  expect_code(first, ERR_MODEL_MALFORMED, "tensor t is there twice, the second time in");
  gguf_maker_number(m, "split.tensors.count", GGUF_I32, 3);
  gguf_maker_clear(m);
  gguf_maker_tensor(m, "u", 0, 8, 0);
  gguf_maker_number(m, "split.tensors.count", GGUF_I32, 3);
  split_keys(m, 0, 2);
  gguf_maker_write(m, "m-00001-of-00002.gguf");
  expect_code(first, ERR_MODEL_MALFORMED, "\"split.tensors.count\" is 3, but the files have 2");
  gguf_maker_clear(m);
}

Test(bad_gguf, splits) {
  with_maker(splits);
}

static void not_files(gguf_maker_t *m) {
  char path[128];
  expect_code("/nowhere/a.gguf", ERR_MODEL_MISSING, "/nowhere/a.gguf");
  snprintf(path, sizeof path, "%s/pipe.gguf", m->dir);
  ASSERT_EQ(mkfifo(path, 0600), 0);
  expect_code(path, ERR_MODEL_MALFORMED, "is not a regular file");
  snprintf(path, sizeof path, "%s/ring.gguf", m->dir);
  ASSERT_EQ(symlink(path, path), 0);
  expect_code(path, ERR_IO, "symbolic links");
}

Test(bad_gguf, not_files) {
  with_maker(not_files);
}

/* A good file cut at every byte: an error or a model, never a crash. */
Test(bad_gguf, cut_at_every_byte) {
  gguf_maker_t maker;
  gguf_maker_open(&maker);
  gguf_maker_array(&maker, "names", GGUF_STRING, 2);
  gguf_put_text(&maker.pairs, "one");
  gguf_put_text(&maker.pairs, "two");
  gguf_maker_number(&maker, "flag", GGUF_BOOL, 1);
  gguf_maker_tensor(&maker, "t", 2, 4, 0);
  gguf_maker_tensor(&maker, "u", 0, 4, 0);
  int good = 0;
  struct stat status;
  ASSERT_EQ(stat(gguf_maker_write(&maker, "a.gguf"), &status), 0);
  for (maker.cut = 0; maker.cut < (size_t)status.st_size; maker.cut++) {
    gguf_t *gguf = NULL;
    inferd_error_t error = {0};
    int code = gguf_open(gguf_maker_write(&maker, "a.gguf"), true, &gguf, &error);
    good += code == 0;
    cr_assert(code == 0 || error.message[0] != '\0');
    gguf_close(gguf);
  }
  ASSERT_EQ(good, 1);
  gguf_maker_close(&maker);
}
