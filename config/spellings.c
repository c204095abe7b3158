/* spellings.c: flags and values of other servers that have no row in options.def.
 *
 * Main thread; keeps no state.
 */
#include "config/spellings.h"

#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/defaults.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const foreign_flag_t flags[] = {
#define FOREIGN(name, has_value, kind) {#name, has_value, FLAG_##kind},
#define SPELLED(word, name)
#include "config/foreign.def"
#undef FOREIGN
#undef SPELLED
};

static const struct {
  const char *word, *name;
} spellings[] = {
#define FOREIGN(name, has_value, kind)
#define SPELLED(word, name) {word, #name},
#include "config/foreign.def"
#undef FOREIGN
#undef SPELLED
};

static const moved_flag_t moved[] = {
#define MOVED(program, word, option, note) {MOVED_FROM_##program, word, option, note},
#include "config/moving.def"
#undef MOVED
};

const char *spelled_flag_find(const char *word, size_t length) {
  for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
    bool same = strlen(spellings[i].word) == length && memcmp(spellings[i].word, word, length) == 0;
    if (same) return spellings[i].name;
  }
  return NULL;
}

const foreign_flag_t *foreign_flag_find(const char *name) {
  bool negated = strncmp(name, "no_", 3) == 0;
  for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
    if (strcmp(flags[i].name, name) == 0) return &flags[i];
    if (negated && !flags[i].has_value && strcmp(flags[i].name, name + 3) == 0) return &flags[i];
  }
  return NULL;
}

int foreign_flag_check(const foreign_flag_t *flag, const char *value, inferd_error_t *error) {
  if (flag->kind != FLAG_ONLY_ONE || (value != NULL && strcmp(value, "1") == 0)) return 0;
  char spelled[64], quoted[64] = "";
  snprintf(spelled, sizeof spelled, "--%s", flag->name);
  for (char *p = spelled; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
  if (value != NULL) error_quote(quoted, sizeof quoted, value, strlen(value));
  return error_set(error, ERR_USAGE, NULL,
                   "%s is '%s'; only 1 is possible: inferd has --tensor-parallel-size alone",
                   spelled, quoted);
}

/* Whether `word` is one of `words`, which | separates, or begins as one that ends in *. */
static bool is_one_of(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words;; at++) {
    size_t own = strcspn(at, "|");
    bool open = own > 0 && at[own - 1] == '*';
    size_t same = open ? own - 1 : own;
    if ((open ? same <= length : same == length) && memcmp(at, word, same) == 0) return true;
    at += own;
    if (*at == '\0') return false;
  }
}

const moved_flag_t *moved_flag_find(const char *word) {
  for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
    if (is_one_of(moved[i].words, word)) return &moved[i];
  }
  if (strncmp(word, "--no-", 5) != 0) return NULL;
  char positive[64];
  snprintf(positive, sizeof positive, "--%s", word + 5);
  return moved_flag_find(positive);
}

const char *moved_flag_program(const moved_flag_t *flag) {
  static const char *const names[] = {"llama-server", "Ollama", "vLLM"};
  return names[flag->program];
}

/* Flags, variables and words of a Modelfile, which the table has too, have other characters. */
const char *config_command_elsewhere(const char *word, const char **program) {
  bool plain = word[0] != '-' && word[strspn(word, "abcdefghijklmnopqrstuvwxyz-")] == '\0';
  const moved_flag_t *row = plain ? moved_flag_find(word) : NULL;
  if (row == NULL) return NULL;
  *program = moved_flag_program(row);
  return row->note;
}

static const struct {
  enum config_option option;
  const char *word, *meaning, *refusal;
} values[] = {
    {OPTION_max_model_len, "-1", "auto", NULL},
    {OPTION_generation_config, "vllm", "none", NULL},
    {OPTION_kv_cache_dtype, "fp8_e4m3", "fp8", NULL},
    {OPTION_kv_cache_dtype, "fp8_e5m2", NULL, "the 8-bit cache is E4M3 only: fp8 or fp8_e4m3"},
    {OPTION_kv_cache_dtype, "int8_per_token_head", "int8", NULL},
    {OPTION_kv_cache_dtype, "q8_0", "int8", NULL},
};

/* The member of vLLM's {"image": 4, "audio": {"count": 4}}; NULL = there is none, or no number.
 * Those for video, of which there are none here, limit nothing. */
static const char *limit_of(const char *text, const char *name, char number[24]) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  int64_t count = -1;
  if (text[0] != '{') return NULL;
  if (json_parse(text, strlen(text), &json_limits_request, &doc, &error) != 0) return NULL;
  const json_t *limit = json_get(json_root(doc), name);
  if (limit != NULL && limit->type == JSON_OBJECT) limit = json_get(limit, "count");
  bool good = limit != NULL && json_int64(limit, &count);
  if (good) snprintf(number, 24, "%" PRId64, count);
  json_free(doc);
  return good ? number : NULL;
}

const char *value_sound_limit(const char *text) {
  static char number[24];
  return limit_of(text, "audio", number);
}

/* As text: of pictures, and where only sounds are limited what is not given. Others as they are. */
static const char *image_limit(const char *text) {
  static char number[24];
  const char *limit = limit_of(text, "image", number);
  if (limit != NULL) return limit;
  return value_sound_limit(text) != NULL ? DEFAULT_TEXT(DEFAULT_LIMIT_IMAGES) : text;
}

const char *value_spelling(enum config_option option, const char *text) {
  if (option == OPTION_limit_images) return image_limit(text);
  for (size_t i = 0; i < ARRAY_LEN(values); i++) {
    bool same = values[i].option == option && strcmp(values[i].word, text) == 0;
    if (same && values[i].meaning != NULL) return values[i].meaning;
  }
  return text;
}

const char *value_refusal(enum config_option option, const char *text) {
  for (size_t i = 0; i < ARRAY_LEN(values); i++) {
    if (values[i].option == option && strcmp(values[i].word, text) == 0) return values[i].refusal;
  }
  return NULL;
}
