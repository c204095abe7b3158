/* fake_text.c: the byte-level tokenizer and the stop strings of fake.h. Any thread. */
#include "tests/server/api/fake.h"

#include <stdlib.h>
#include <string.h>

struct tokenizer_scratch {
  int unused;
};

struct stop_set {
  int count;
  struct {
    char text[STOP_STRING_BYTES_MAX];
    size_t length;
  } strings[STOP_STRINGS_MAX];
};

tokenizer_scratch_t *tokenizer_scratch_new(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return calloc(1, sizeof(tokenizer_scratch_t));
}

void tokenizer_scratch_free(tokenizer_scratch_t *scratch) {
  free(scratch);
}

int tokenizer_encode(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch, const char *text,
                     size_t length, const tokenize_options_t *options, int32_t **ids, size_t *count,
                     inferd_error_t *error) {
  (void)tokenizer, (void)scratch;
  if (options->cancelled != NULL && atomic_load(options->cancelled)) {
    return error_set(error, ERR_REQUEST_TIMEOUT, NULL, "cancelled");
  }
  *ids = malloc((length + 1) * sizeof **ids);
  *count = 0;
  if (options->add_special_tokens) (*ids)[(*count)++] = FAKE_BOS;
  for (size_t i = 0; i < length; i++) {
    if (options->ids_max != 0 && *count == options->ids_max) break;
    (*ids)[(*count)++] = text[i] == 0x7f ? FAKE_BEYOND : (uint8_t)text[i];
  }
  return 0;
}

int tokenizer_refuse(const char *param, inferd_error_t *error) {
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param, "This server has no tokenizer.");
}

int32_t tokenizer_vocab_size(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return FAKE_BEYOND + 1;
}

const char *tokenizer_bytes(const tokenizer_t *tokenizer, int32_t id, size_t *length) {
  static char bytes[256], names[40][5];
  (void)tokenizer;
  if (id >= 0 && id < 256) {
    bytes[id] = (char)id;
    *length = 1;
    return &bytes[id];
  }
  const char *text = id == FAKE_BOS   ? "<s>"
                     : id == FAKE_EOS ? "</s>"
                     : id == FAKE_THE ? " the"
                                      : "";
  bool is_mark = id >= FAKE_MARKS && id < FAKE_MARKS + FAKE_MARKS_MAX;
  if (id >= 260 && id < FAKE_VOCAB && !is_mark) {
    char *name = names[id - 260];
    name[0] = 't', name[1] = (char)('0' + id / 100), name[2] = (char)('0' + id / 10 % 10);
    name[3] = (char)('0' + id % 10);
    text = name;
  }
  *length = strlen(text);
  return text;
}

/* The bytes with "#" before them. */
const uint8_t *tokenizer_spelling(const tokenizer_t *tokenizer, int32_t id, size_t *length) {
  static char spelling[16];
  const char *bytes = tokenizer_bytes(tokenizer, id, length);
  *length = (size_t)snprintf(spelling, sizeof spelling, "#%.*s", (int)*length, bytes);
  return (const uint8_t *)spelling;
}

unsigned tokenizer_flags(const tokenizer_t *tokenizer, int32_t id) {
  (void)tokenizer;
  return id == FAKE_BOS || id == FAKE_EOS ? TOKEN_SPECIAL | TOKEN_ADDED : 0;
}

bool tokenizer_is_unknown(const tokenizer_t *tokenizer, int32_t id) {
  (void)tokenizer;
  return id < 0;
}

bool tokenizer_marks_inner(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return false;
}

int32_t tokenizer_id(const tokenizer_t *tokenizer, const char *token, size_t length) {
  (void)tokenizer;
  static const char *const names[] = {"<s>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
  static const int32_t ids[] = {FAKE_BOS, 290, 291, 292};
  for (int i = 0; i < (fake_template.fim ? 4 : 1); i++) {
    if (strlen(names[i]) == length && memcmp(token, names[i], length) == 0) return ids[i];
  }
  for (int i = 0; fake_template.marks != NULL && fake_template.marks[i] != NULL; i++) {
    const char *mark = fake_template.marks[i];
    if (strlen(mark) == length && memcmp(token, mark, length) == 0) return FAKE_MARKS + i;
  }
  return -1;
}

size_t tokenizer_longest_token(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return 4;
}

int32_t tokenizer_bos_id(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return FAKE_BOS;
}

int32_t tokenizer_eos_id(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  return FAKE_EOS;
}

size_t tokenizer_decode_memory(const tokenizer_t *tokenizer, const int32_t *ids, size_t count) {
  (void)tokenizer, (void)ids;
  return count * 4 + 1;
}

int tokenizer_decode(const tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special_tokens, char **text, size_t *length, inferd_error_t *error) {
  (void)error;
  *text = malloc(count * 4 + 1);
  *length = 0;
  for (size_t i = 0; i < count; i++) {
    size_t bytes;
    const char *piece = tokenizer_bytes(tokenizer, ids[i], &bytes);
    if (skip_special_tokens && (tokenizer_flags(tokenizer, ids[i]) & TOKEN_SPECIAL) != 0) continue;
    memcpy(*text + *length, piece, bytes);
    *length += bytes;
  }
  return 0;
}

int stop_set_new(const char *const *strings, const size_t *lengths, int count, stop_set_t **out,
                 inferd_error_t *error) {
  (void)error;
  *out = NULL;
  if (count == 0) return 0;
  *out = calloc(1, sizeof **out);
  (*out)->count = count;
  for (int i = 0; i < count; i++) {
    memcpy((*out)->strings[i].text, strings[i], lengths[i]);
    (*out)->strings[i].length = lengths[i];
  }
  return 0;
}

void stop_set_free(stop_set_t *stops) {
  free(stops);
}

int stop_set_count(const stop_set_t *stops) {
  return stops != NULL ? stops->count : 0;
}

const char *stop_set_string(const stop_set_t *stops, int index, size_t *length) {
  *length = stops->strings[index].length;
  return stops->strings[index].text;
}

/* <s> first </s> second </s>, the second text of type 1 with its end. */
int32_t tokenizer_pair_extra(const tokenizer_t *tokenizer, const char **why) {
  (void)tokenizer, (void)why;
  return 3;
}

int64_t tokenizer_join(const tokenizer_t *tokenizer, const token_pair_t *pair, int32_t *out) {
  (void)tokenizer;
  *out++ = FAKE_BOS;
  memcpy(out, pair->first, pair->num_first * sizeof *out);
  out[pair->num_first] = FAKE_EOS;
  out += pair->num_first + 1;
  memcpy(out, pair->second, pair->num_second * sizeof *out);
  out[pair->num_second] = FAKE_EOS;
  return (int64_t)pair->num_first + 2;
}
