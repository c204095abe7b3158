/* argument.c: what argument.h says. No state, any thread. */
#include "server/parser/argument.h"

#include "engine/base/json_schema.h"
#include "engine/base/util.h"
#include "server/parser/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const json_t *argument_function(const json_t *functions, const char *name, size_t length) {
  JSON_EACH(tool, functions) {
    const json_t *function = json_get(tool, "function"), *its = json_get(function, "name");
    if (its == NULL || its->type != JSON_STRING || its->length != length) continue;
    if (memcmp(its->text, name, length) == 0) return function;
  }
  return NULL;
}

bool argument_add_key(buffer_t *keys, const char *key, size_t length) {
  uint16_t bytes = (uint16_t)length, other;
  for (size_t at = 0; at < keys->length; at += other) {
    memcpy(&other, keys->data + at, sizeof other);
    at += sizeof other;
    if (other == bytes && memcmp(keys->data + at, key, bytes) == 0) return false;
  }
  buffer_append(keys, &bytes, sizeof bytes);
  buffer_append(keys, key, bytes);
  return true;
}

static bool is_json(const char *text, size_t length) {
  json_scan_t scan = {0};
  for (size_t i = 0; i < length; i++) json_scan_byte(&scan, text[i]);
  return json_scan_byte(&scan, '\n') == SCAN_DONE; /* the newline ends a number */
}

/* A NUL follows `value`. */
static bool is_integer(const char *value, size_t length) {
  if (memchr(value, '.', length) == NULL && memchr(value, 'e', length) == NULL &&
      memchr(value, 'E', length) == NULL) {
    return true;
  }
  double number = strtod(value, NULL);
  return isfinite(number) && floor(number) == number;
}

static bool is_word(const char *text, size_t length, const char *word) {
  return length == strlen(word) && strncasecmp(text, word, length) == 0;
}

const char *argument_read(const char *text, size_t *length, uint32_t types) {
  static const struct {
    const char *word, *json;
    uint32_t type;
  } words[] = {{"true", "true", TYPE_BOOLEAN},
               {"false", "false", TYPE_BOOLEAN},
               {"null", "null", TYPE_NULL},
               {"none", "null", TYPE_NULL}};
  for (size_t i = 0; i < ARRAY_LEN(words); i++) {
    if (!(types & words[i].type) || !is_word(text, *length, words[i].word)) continue;
    *length = strlen(words[i].json);
    return words[i].json;
  }
  uint32_t type = TYPE_NUMBER;
  if (*length == 0) return NULL;
  if (text[0] == '{') type = TYPE_OBJECT;
  if (text[0] == '[') type = TYPE_ARRAY;
  bool number = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
  if (!(types & type) || (type == TYPE_NUMBER && !number) || !is_json(text, *length)) return NULL;
  bool fine = type != TYPE_NUMBER || (types & TYPE_FRACTION) || is_integer(text, *length);
  return fine ? text : NULL;
}
