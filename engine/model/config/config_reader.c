/* config_reader.c: checked access to the keys of a model's JSON files. Any thread, no state. */
#include "engine/model/config/config.h"
#include "engine/model/config/config_gguf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const json_t *config_get(const config_reader_t *reader, const char *key) {
  const json_t *value = json_get(reader->root, key);
  return value == NULL && reader->outer != NULL ? json_get(reader->outer, key) : value;
}

const json_t *config_find(const config_reader_t *reader, const char *const *keys,
                          const char **name) {
  *name = keys[0];
  for (; *keys != NULL; keys++) {
    const json_t *value = config_get(reader, *keys);
    if (value == NULL) continue;
    *name = *keys;
    return value;
  }
  return NULL;
}

/* Prints a value for messages: short scalars in full, containers by their kind. */
static const char *shown(char *out, size_t capacity, const json_t *value) {
  char text[96];
  if (value->type == JSON_STRING) {
    error_quote(text, sizeof(text), value->text, value->length);
    snprintf(out, capacity, "\"%s\"", text);
  } else if (value->type == JSON_NUMBER) {
    error_quote(out, (unsigned)capacity, value->text, value->length);
  } else {
    const char *name = value->type == JSON_TRUE    ? "true"
                       : value->type == JSON_FALSE ? "false"
                                                   : json_type_name(value);
    snprintf(out, capacity, "%s", name);
  }
  return out;
}

void config_refuse(config_reader_t *reader, const char *key, const json_t *value,
                   const char *supported, ...) {
  if (reader->code != 0) return;
  char what[256], found[112];
  va_list arguments;
  va_start(arguments, supported);
  vsnprintf(what, sizeof(what), supported, arguments);
  va_end(arguments);
  char source[96];
  if (reader->gguf != NULL) key = config_gguf_key(reader->gguf, key, source, sizeof(source));
  if (value == NULL) {
    reader->code = error_set(reader->error, ERR_MODEL_MALFORMED, key, "%s: \"%s\" %s", reader->file,
                             key, what);
  } else {
    reader->code =
        error_set(reader->error, ERR_MODEL_MALFORMED, key, "%s: \"%s\" is %s, supported: %s",
                  reader->file, key, shown(found, sizeof(found), value), what);
  }
}

int64_t config_int_or_null(config_reader_t *reader, const char *const *keys, int64_t absent,
                           int64_t when_null, int64_t min, int64_t max) {
  const char *name;
  const json_t *value = config_find(reader, keys, &name);
  if (value != NULL && value->type == JSON_NULL) return when_null;
  return config_int(reader, keys, absent, min, max);
}

int64_t config_int(config_reader_t *reader, const char *const *keys, int64_t absent, int64_t min,
                   int64_t max) {
  const char *name;
  const json_t *value = config_find(reader, keys, &name);
  int64_t number;
  if (reader->code != 0 || value == NULL) return absent;
  if (json_int64(value, &number) && number >= min && number <= max) return number;
  config_refuse(reader, name, value, "an integer of %lld..%lld", (long long)min, (long long)max);
  return absent;
}

int32_t config_uniform_int(config_reader_t *reader, const char *key, int32_t absent, int32_t max) {
  const json_t *list = config_get(reader, key);
  if (list == NULL || list->type != JSON_ARRAY)
    return (int32_t)config_int(reader, KEYS(key), absent, 1, max);
  int64_t first = 0, number;
  JSON_EACH(item, list) {
    bool good = json_int64(item, &number) && number >= 1 && number <= max;
    if (good && first == 0) first = number;
    if (!good || number != first)
      config_refuse(reader, key, list, "1..%d, the same for every layer", max);
  }
  if (first == 0) config_refuse(reader, key, list, "1..%d, the same for every layer", max);
  return (int32_t)first;
}

double config_double(config_reader_t *reader, const char *const *keys, double absent, double min,
                     double max, bool open) {
  const char *name;
  const json_t *value = config_find(reader, keys, &name);
  double number;
  if (reader->code != 0 || value == NULL) return absent;
  if (json_double(value, &number) && isfinite(number) && number <= max &&
      (open ? number > min : number >= min)) {
    return number;
  }
  config_refuse(reader, name, value, "a number %s %g and at most %g", open ? "above" : "from", min,
                max);
  return absent;
}

bool config_bool(config_reader_t *reader, const char *const *keys, bool absent) {
  const char *name;
  const json_t *value = config_find(reader, keys, &name);
  bool flag;
  if (reader->code != 0 || value == NULL) return absent;
  if (json_bool(value, &flag)) return flag;
  config_refuse(reader, name, value, "true or false");
  return absent;
}
