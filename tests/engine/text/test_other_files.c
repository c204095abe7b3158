/* test_other_files.c: tokenizer.model and tekken.json that are broken are refused by name, and any
 * change of a good one loads or is refused (run under ASan by make check).
 *
 * The ids of good files are compared with those of their own libraries in test_vectors.c.
 */
#include "engine/text/load/protobuf.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int load_as(const char *name, const char *data, size_t length, inferd_error_t *error) {
  tokenizer_t *t = NULL;
  const char *dir = test_temp_dir();
  *error = (inferd_error_t){0};
  test_write(dir, name, data, length);
  int code = tokenizer_load(dir, &t, error);
  if (code == 0) tokenizer_free(t);
  test_remove_dir(dir);
  return code;
}

static void refuse(const char *name, const char *data, size_t length, const char *part) {
  inferd_error_t error;
  ASSERT_EQ_FOR(load_as(name, data, length, &error), ERR_MODEL_MALFORMED, "%s: %s", part,
                error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

#define SPM(text) refuse("tokenizer.model", text, sizeof(text) - 1
#define PIECE(text) "\x0A" text /* field 1 of the model, its length, then the piece */
#define A_PIECE                                                                                    \
  PIECE("\x03\x0A\x01"                                                                             \
        "a")

Test(other_files, broken_sentencepiece) {
  SPM(""), "not a SentencePiece model");
  SPM("IQ== 0\nIg== 1\n"), "a tokenizer of tiktoken needs its tokenizer.json");
  SPM("\x0A\x05" "a"), "not a SentencePiece model");
  SPM(PIECE("\x02\x0A\x00")), "pieces: not a well-formed");
  SPM(A_PIECE A_PIECE "\x12\x02\x18\x02\x1A\x02\x20\x00"), "the piece \"a\" is there twice");
  SPM(A_PIECE "\x12\x02\x18\x03"), "model_type 3 is not supported");
  SPM(A_PIECE "\x12\x03\xC0\x02\x09"), "unk_id 9 is no piece");
  SPM(A_PIECE "\x12\x03\xC0\x01\x01\x1A\x02\x20\x00"), "treat_whitespace_as_suffix");
  SPM(A_PIECE), "remove_extra_whitespaces without a map");
  SPM(PIECE("\x08\x0A\x01" "a\x15\x00\x00\x80\x7F") "\x1A\x02\x20\x00"), "pieces: not a well");
  SPM(A_PIECE "\x1A\x06\x12\x04" "abcd"), "precompiled_charsmap: ");
}

Test(other_files, broken_tekken) {
  static const struct {
    const char *json, *part;
  } cases[] = {
      {"{}", "a string \"pattern\" is needed"},
      {"{\"config\":{\"pattern\":\"a\"}}", "\"default_vocab_size\" and"},
      {"{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":5,\"default_num_special_tokens\":5}}",
       "are out of range"},
      {"{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":5,\"default_num_special_tokens\":3},"
       "\"vocab\":[{}]}",
       "a list of at least 2 pieces"},
      {"{\"config\":{\"pattern\":\"(\",\"default_vocab_size\":4,\"default_num_special_tokens\":3},"
       "\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\"}]}",
       "pattern: "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    refuse("tekken.json", cases[i].json, strlen(cases[i].json), cases[i].part);
  }
}

static void change_one(const char *path, const char *name, int rounds) {
  size_t length;
  char *good = test_read(path, &length), *copy = malloc(length);
  uint64_t state = 7;
  int loaded = 0;
  inferd_error_t error;
  for (int i = 0; i < rounds; i++) {
    size_t cut = i % 4 == 0 ? test_random(&state) % length : length;
    memcpy(copy, good, length);
    for (int k = 0; k < 3; k++) copy[test_random(&state) % length] = (char)test_random(&state);
    loaded += load_as(name, copy, cut, &error) == 0;
  }
  ASSERT_EQ(load_as(name, good, length, &error), 0);
  ASSERT_LT(loaded, rounds);
  free(copy);
  free(good);
}

Test(other_files, any_change_loads_or_is_refused, .timeout = 120) {
  change_one("tests/fuzz/corpus/spm/bpe_bytes", "tokenizer.model", 600);
  change_one("tests/fuzz/corpus/spm/unigram", "tokenizer.model", 600);
  change_one("tests/fuzz/corpus/tekken/small", "tekken.json", 600);
}

Test(other_files, wire_format) {
  static const uint8_t bytes[] = {0x08, 0xAC, 0x02, 0x15, 0, 0, 0x80, 0x3F, 0x1A, 1,
                                  'x',  0x21, 1,    0,    0, 0, 0,    0,    0,    0x80};
  protobuf_t message = protobuf_of(bytes, sizeof bytes);
  protobuf_field_t field;
  cr_assert(protobuf_next(&message, &field));
  ASSERT_EQ(field.number, 1u);
  ASSERT_EQ(field.value, 300u);
  cr_assert(protobuf_next(&message, &field));
  ASSERT_EQ(protobuf_float(&field), 1.0f);
  cr_assert(protobuf_next(&message, &field));
  ASSERT_EQ(field.length, 1);
  cr_assert(field.data[0] == 'x');
  cr_assert(protobuf_next(&message, &field));
  ASSERT_EQ(field.value, 0x8000000000000001u);
  cr_assert(!protobuf_next(&message, &field));
  cr_assert(!message.failed);
  message = protobuf_of(bytes, sizeof bytes - 1);
  while (protobuf_next(&message, &field)) continue;
  cr_assert(message.failed);
}
