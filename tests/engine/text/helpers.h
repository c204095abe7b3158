/* helpers.h: files and small tokenizers for the tests of the text room. */
#ifndef INFERD_TESTS_ENGINE_TEXT_HELPERS_H
#define INFERD_TESTS_ENGINE_TEXT_HELPERS_H

#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

typedef struct test_doc {
  char *text;
  size_t length;
  json_doc_t *doc;
} test_doc_t;

/* Reads and parses a file; fails the test when it cannot. */
test_doc_t test_parse(const char *path);
void test_parse_free(test_doc_t *doc);

/* Reads a whole file; the caller frees it. Fails the test when it cannot. */
char *test_read(const char *path, size_t *length);

/* A fresh directory with one file `name`; test_remove_dir deletes what test_write put there. */
const char *test_temp_dir(void);
void test_write(const char *dir, const char *name, const char *data, size_t length);
void test_remove_dir(const char *dir);

/* Loads a tokenizer.json given as text: 0 or the error. */
int test_load_text(const char *json, size_t length, tokenizer_t **out, inferd_error_t *error);
/* The same, and fails the test when it cannot be loaded. */
tokenizer_t *test_load(const char *json);

/* Encodes without special tokens; the caller frees. */
int32_t *test_encode(const tokenizer_t *t, const char *text, size_t length, size_t *count);

/* xorshift64*, so that a failing case can be made again from its seed. */
uint64_t test_random(uint64_t *state);

#endif
