/* helpers.c: files and small tokenizers for the tests of the text room. */
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *test_read(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file, "%s", path);
  fseek(file, 0, SEEK_END);
  *length = (size_t)ftell(file);
  rewind(file);
  char *text = malloc(*length + 1);
  ASSERT_EQ(fread(text, 1, *length, file), *length);
  fclose(file);
  text[*length] = 0;
  return text;
}

test_doc_t test_parse(const char *path) {
  test_doc_t d = {0};
  inferd_error_t error = {0};
  d.text = test_read(path, &d.length);
  ASSERT_EQ_FOR(json_parse(d.text, d.length, &json_limits_model, &d.doc, &error), 0, "%s: %s", path,
                error.message);
  return d;
}

void test_parse_free(test_doc_t *d) {
  json_free(d->doc);
  free(d->text);
}

const char *test_temp_dir(void) {
  static char path[64];
  snprintf(path, sizeof path, "/tmp/inferd-text-XXXXXX");
  cr_assert_not_null(mkdtemp(path));
  return path;
}

void test_write(const char *dir, const char *name, const char *data, size_t length) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file, "%s", path);
  ASSERT_EQ(fwrite(data, 1, length, file), length);
  fclose(file);
}

void test_remove_dir(const char *dir) {
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "vocab.json",
                                      "merges.txt", "special_tokens_map.json"};
  char path[160];
  for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    unlink(path);
  }
  rmdir(dir);
}

int test_load_text(const char *json, size_t length, tokenizer_t **out, inferd_error_t *error) {
  const char *dir = test_temp_dir();
  test_write(dir, "tokenizer.json", json, length);
  int rc = tokenizer_load(dir, out, error);
  test_remove_dir(dir);
  return rc;
}

tokenizer_t *test_load(const char *json) {
  tokenizer_t *t = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(test_load_text(json, strlen(json), &t, &error), 0, "%s", error.message);
  return t;
}

int32_t *test_encode(const tokenizer_t *t, const char *text, size_t length, size_t *count) {
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  tokenize_options_t options = {0};
  inferd_error_t error = {0};
  int32_t *ids;
  cr_assert_not_null(s);
  ASSERT_EQ_FOR(tokenizer_encode(t, s, text, length, &options, &ids, count, &error), 0, "%s",
                error.message);
  tokenizer_scratch_free(s);
  return ids;
}

uint64_t test_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545F4914F6CDD1DULL;
}
