/* fuzz_model.c: the files of a model directory: tokenizer.json, config.json, safetensors headers.
 *
 * config: config.json, a 0xFF byte, generation_config.json, a 0xFF byte, the header of
 * model.safetensors as below; of odd length there is a tokenizer, too. Or a GGUF file.
 * tokenizer: the file, a 0xFF byte, a text to encode, and behind another 0xFF byte the files beside
 * it, or instead of it. pattern: the same with a pre-tokenizer's pattern, which must cut the text
 * within its bounds. charsmap: the bytes of a blob. safetensors: the header's JSON; its length and
 * a few zero bytes of data are put around it. Behind a 0xFF byte may stand
 * model.safetensors.index.json; then the file is a.safetensors. Behind another one, files as they
 * are; without a header there are only these. What begins with GGUF is one such file.
 */
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/model/model.h"
#include "engine/model/source/safetensors.h"
#include "engine/text/normalize/charsmap.h"
#include "engine/text/split/split_regex.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

static bool is_utf8(const uint8_t *text, size_t length) {
  for (size_t at = 0; at < length;) {
    int span = utf8_span((const char *)text + at, length - at);
    if (span < 0) return false;
    at += (size_t)span;
  }
  return true;
}

static void encode(const tokenizer_t *t, const uint8_t *text, size_t length) {
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  byte_span_t *spans = NULL;
  tokenize_options_t options = {.add_special_tokens = length % 2 == 1, .spans = &spans};
  int32_t *ids;
  size_t count, decoded;
  char *back;
  inferd_error_t error;
  if (tokenizer_encode(t, scratch, (const char *)text, length, &options, &ids, &count, &error) ==
      0) {
    for (size_t i = 0; i < count; i++) {
      const bool nowhere = spans[i].begin == 1 && spans[i].end == 0;
      if (!nowhere && (spans[i].begin > spans[i].end || spans[i].end > length)) abort();
    }
    if (tokenizer_decode(t, ids, count, false, &back, &decoded, &error) == 0) free(back);
    free(spans);
    free(ids);
  }
  tokenizer_scratch_free(scratch);
}

/* One file of a tokenizer, and the sample encoded by it. */
static void load_file(const char *name, const uint8_t *data, size_t size) {
  static const char sample[] = "Hello, W\xC3\xB6rld 123  \n\t\xE4\xB8\xAD\xF0\x9F\x98\x80 <s> ab";
  tokenizer_t *t;
  inferd_error_t error = {0};
  fuzz_write(name, data, size);
  if (tokenizer_load(fuzz_directory(), &t, &error) == 0) {
    encode(t, (const uint8_t *)sample, sizeof sample - 1);
    tokenizer_free(t);
  }
  fuzz_remove(name);
}

void fuzz_spm(const uint8_t *data, size_t size) {
  load_file("tokenizer.model", data, size);
}

void fuzz_tekken(const uint8_t *data, size_t size) {
  load_file("tekken.json", data, size);
}

void fuzz_tokenizer(const uint8_t *data, size_t size) {
  static const char sample[] = "Hello, W\xC3\xB6rld 123  \n\t\xE4\xB8\xAD\xF0\x9F\x98\x80 <s>";
  static const char *const beside[] = {"tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "tekken.json"};
  tokenizer_t *t;
  inferd_error_t error = {0};
  size_t length, text_length;
  const uint8_t *file = fuzz_part(&data, &size, 0xFF, &length);
  const uint8_t *text = fuzz_part(&data, &size, 0xFF, &text_length);
  if (length > 0 || size == 0) fuzz_write("tokenizer.json", file, length);
  fuzz_write_parts(beside, ARRAY_LEN(beside), data, size);
  if (tokenizer_load(fuzz_directory(), &t, &error) == 0) {
    encode(t, (const uint8_t *)sample, sizeof sample - 1);
    if (text_length > 0 && is_utf8(text, text_length)) encode(t, text, text_length);
    tokenizer_free(t);
  }
  fuzz_remove("tokenizer.json");
  fuzz_remove_parts(beside, ARRAY_LEN(beside));
}

void fuzz_pattern(const uint8_t *data, size_t size) {
  scanner_t scanner;
  char reason[REGEX_REASON_MAX];
  size_t length, end;
  const char *pattern = (const char *)fuzz_part(&data, &size, 0xFF, &length);
  if (size > 512) return; /* a match may cost much, and is bounded alone */
  if (!is_utf8((const uint8_t *)pattern, length) || !is_utf8(data, size)) return;
  if (!regex_compile(pattern, length, &scanner, reason)) return;
  for (size_t at = 0; at < size; at = end) {
    size_t start = scanner.find(&scanner, data, at, size, &end);
    if (start == SCANNER_FAILED || start == size) break;
    if (start < at || end <= start || end > size || !is_utf8(data + start, end - start)) abort();
  }
  regex_free(scanner.regex);
}

void fuzz_charsmap(const uint8_t *data, size_t size) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const uint8_t sample[] =
      "a b\r\n\xC2\xA9\xE2\x80\x8D\xE2\x9D\xA4 e\xCC\x81\xEF\xAC\x81 0\xE1\x84\x80\xE1\x85\xA1";
  char reason[CHARSMAP_REASON_MAX], *text = malloc(size / 3 * 4 + 4);
  if (text == NULL) return;
  size_t length = 0;
  for (size_t i = 0; i + 3 <= size; i += 3) {
    uint32_t word = (uint32_t)data[i] << 16 | (uint32_t)data[i + 1] << 8 | data[i + 2];
    for (int k = 18; k >= 0; k -= 6) text[length++] = digits[word >> k & 63];
  }
  charsmap_t *map = charsmap_new(text, length, reason);
  free(text);
  if (map == NULL) return;
  buffer_t out = {0};
  bool changed;
  (void)charsmap_append(map, sample, sizeof sample - 1, &out, &changed);
  if (is_utf8(data, size)) (void)charsmap_append(map, data, size, &out, &changed);
  if (!is_utf8(out.bytes, out.length)) abort(); /* replacements are whole characters */
  buffer_free(&out);
  charsmap_free(map);
}

/* The header of a file of tensors, around which its length and a few zero bytes are put. */
static void write_header(const char *name, const uint8_t *header, size_t length) {
  size_t total = 8 + length + 64;
  uint8_t *file = calloc(1, total);
  if (file == NULL) abort();
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)(length >> (8 * i));
  if (length > 0) memcpy(file + 8, header, length);
  fuzz_write(name, file, total);
  free(file);
}

void fuzz_config(const uint8_t *data, size_t size) {
  static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors",
                                      "model.gguf"};
  blueprint_t blueprint;
  inferd_error_t error = {0};
  size_t length[3];
  memset(&blueprint, 0, sizeof blueprint);
  bool is_gguf = size > 4 && memcmp(data, "GGUF", 4) == 0, has_tokenizer = false;
  if (is_gguf) fuzz_write(names[3], data, size);
  for (int i = 0; i < 3 && !is_gguf; i++) {
    const uint8_t *part = fuzz_part(&data, &size, 0xFF, &length[i]);
    if (length[i] > 0 && i < 2) fuzz_write(names[i], part, length[i]);
    if (length[i] > 0 && i == 2) write_header(names[2], part, length[2]);
    has_tokenizer = i == 2 && length[2] % 2 == 1;
  }
  if (blueprint_read(fuzz_directory(), has_tokenizer ? 4096 : 0, has_tokenizer ? 2 : -1, &blueprint,
                     &error) == 0)
    blueprint_free(&blueprint);
  fuzz_remove_parts(names, ARRAY_LEN(names));
}

/* Reads every byte, and gives it back. Without raw files the data is all zero. */
static void read_weights(bool all_zero) {
  weight_files_t *files;
  inferd_error_t error = {0};
  uint64_t sum = 0;
  if (weight_files_open(fuzz_directory(), &files, &error) != 0) return;
  for (size_t i = 0; i < weight_files_count(files); i++) {
    const stored_tensor_t *tensor = weight_files_at(files, i);
    if (weight_files_find(files, tensor->name) == NULL) abort();
    for (size_t k = 0; k < tensor->bytes; k++) sum += tensor->data[k];
    weight_files_done(files, tensor);
  }
  if ((all_zero && sum != 0) || weight_files_intact(files, &error) != 0) abort();
  weight_files_close(files);
}

void fuzz_safetensors(const uint8_t *data, size_t size) {
  static const char index_name[] = "model.safetensors.index.json";
  static const char *const beside[] = {"model.safetensors", "b.safetensors", "pytorch_model.bin",
                                       "consolidated.safetensors"};
  if (size > 1 << 20) return;
  if (size > 4 && memcmp(data, "GGUF", 4) == 0) {
    fuzz_write("model.gguf", data, size);
    read_weights(false);
    fuzz_remove("model.gguf");
    return;
  }
  size_t length, index_length;
  const uint8_t *header = fuzz_part(&data, &size, 0xFF, &length);
  const uint8_t *index = fuzz_part(&data, &size, 0xFF, &index_length);
  if (length > 0 || size == 0)
    write_header(index_length > 0 ? "a.safetensors" : "model.safetensors", header, length);
  if (index_length > 0) fuzz_write(index_name, index, index_length);
  fuzz_write_parts(beside, ARRAY_LEN(beside), data, size);
  read_weights(size == 0);
  fuzz_remove("a.safetensors");
  fuzz_remove(index_name);
  fuzz_remove_parts(beside, ARRAY_LEN(beside));
}
