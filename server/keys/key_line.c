/* key_line.c: one line of a key file -> the key, its label, and its limits. Pure; any thread.
 *
 * A word that is unknown is an error, because a limit that is misspelt would not hold.
 */
#include "server/keys/key_line.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <string.h>

typedef enum word_kind { WORD_INT32, WORD_INT64, WORD_OFF } word_kind_t;

static const struct word {
  const char *name;
  word_kind_t kind;
  size_t offset;
  int64_t min, max;
} words[] = {
#define WORD(kind, member, min, max)                                                               \
  { #member, kind, offsetof(key_limits_t, member), min, max }
    WORD(WORD_INT32, max_waiting, 1, 1000000),
    WORD(WORD_INT64, max_tokens_waiting, 1, 1000000000000),
    WORD(WORD_INT32, max_running, 1, 65536),
    WORD(WORD_INT32, weight, 1, 1000),
    WORD(WORD_INT64, requests_per_minute, 1, 1000000000),
    WORD(WORD_INT64, tokens_per_minute, 1, 1000000000000),
    WORD(WORD_INT64, tokens_per_day, 1, 1000000000000000),
    WORD(WORD_INT64, tokens_per_month, 1, 1000000000000000),
    {"grammar", WORD_OFF, offsetof(key_limits_t, grammar_off), 0, 0},
#undef WORD
};

static const char known[] = "max_waiting, max_tokens_waiting, max_running, weight, "
                            "requests_per_minute, tokens_per_minute, tokens_per_day, "
                            "tokens_per_month, grammar";

/* Digits alone: no sign, no unit. */
static bool parse_digits(const char *text, int64_t *out) {
  size_t length = strlen(text);
  if (length == 0 || length > 18 || strspn(text, "0123456789") != length) return false;
  *out = 0;
  for (; *text != '\0'; text++) *out = *out * 10 + (*text - '0');
  return true;
}

static int set_number(const struct word *word, const char *value, key_limits_t *limits,
                      const key_place_t *place, inferd_error_t *error) {
  int64_t number;
  if (!parse_digits(value, &number) || number < word->min || number > word->max) {
    char quoted[48];
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: %s is '%s', supported: %lld..%lld", place->text, word->name,
                     error_quote(quoted, sizeof quoted, value, strlen(value)), (long long)word->min,
                     (long long)word->max);
  }
  char *at = (char *)limits + word->offset;
  if (word->kind == WORD_INT32) *(int32_t *)(void *)at = (int32_t)number;
  if (word->kind == WORD_INT64) *(int64_t *)(void *)at = number;
  return 0;
}

static int set_switch(const struct word *word, const char *value, key_limits_t *limits,
                      const key_place_t *place, inferd_error_t *error) {
  bool off = strcmp(value, "off") == 0;
  if (!off && strcmp(value, "on") != 0) {
    char quoted[48];
    return error_set(error, ERR_CONFIGURATION, place->option, "%s: %s is '%s', supported: on, off",
                     place->text, word->name,
                     error_quote(quoted, sizeof quoted, value, strlen(value)));
  }
  *(bool *)((char *)limits + word->offset) = off;
  return 0;
}

/* Reads NAME=VALUE; `seen` has a bit for each word that the line had before. */
static int read_word(char *text, unsigned *seen, key_line_t *out, const key_place_t *place,
                     inferd_error_t *error) {
  char quoted[48], *equals = strchr(text, '=');
  *equals = '\0';
  for (size_t i = 0; i < ARRAY_LEN(words); i++) {
    if (strcmp(words[i].name, text) != 0) continue;
    if ((*seen & 1u << i) != 0) {
      return error_set(error, ERR_CONFIGURATION, place->option, "%s: %s is given twice",
                       place->text, text);
    }
    *seen |= 1u << i;
    out->limited = true;
    return words[i].kind == WORD_OFF
               ? set_switch(&words[i], equals + 1, &out->limits, place, error)
               : set_number(&words[i], equals + 1, &out->limits, place, error);
  }
  return error_set(error, ERR_CONFIGURATION, place->option, "%s: '%s' is unknown, supported: %s",
                   place->text, error_quote(quoted, sizeof quoted, text, strlen(text)), known);
}

/* A label is a word of up to 64 bytes. Its text may be a key in the wrong place, so no message
 * shows it. */
static int read_label(const char *text, int number, key_line_t *out, const key_place_t *place,
                      inferd_error_t *error) {
  if (number > 2) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: word %d is no NAME=VALUE; the label is the second word, and one word",
                     place->text, number);
  }
  if (strlen(text) >= KEY_LABEL_BYTES) {
    return error_set(error, ERR_CONFIGURATION, place->option,
                     "%s: the label has %zu bytes, supported: 1..%d", place->text, strlen(text),
                     KEY_LABEL_BYTES - 1);
  }
  size_t length = strlen(text);
  for (size_t i = 0; i < length;) {
    int span = utf8_span(text + i, length - i);
    if (span <= 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
      return error_set(error, ERR_CONFIGURATION, place->option,
                       "%s: byte %zu of the label is not allowed; a label is UTF-8 without "
                       "control characters",
                       place->text, i + 1);
    }
    i += (size_t)span;
  }
  out->label = text;
  return 0;
}

int key_line_parse(char *line, const key_place_t *place, key_line_t *out, inferd_error_t *error) {
  static const char blanks[] = " \t\r";
  unsigned seen = 0;
  int number = 0, code = 0;
  *out = (key_line_t){.label = ""};
  for (char *text; code == 0 && (text = strsep(&line, blanks)) != NULL;) {
    if (*text == '\0') continue;
    if (*text == '#') break;
    if (++number == 1) {
      out->key = text;
    } else if (strchr(text, '=') != NULL) {
      code = read_word(text, &seen, out, place, error);
    } else {
      code = read_label(text, number, out, place, error);
    }
  }
  return code;
}
