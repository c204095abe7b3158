/* schema_keywords.c: which keywords there are, and whether their values make sense.
 *
 * Part of a compilation, on its thread. A keyword is enforced, ignored by name (annotations) or
 * refused by name; there is nothing in between, so that a misspelt keyword cannot pass.
 */
#include "engine/grammar/language/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COUNT_MAX = 60000 };

void schema_fail(const schema_t *s, int code, const char *pointer, const char *format, ...) {
  char reason[256], place[128];
  va_list args;
  va_start(args, format);
  vsnprintf(reason, sizeof reason, format, args);
  va_end(args);
  error_quote(place, sizeof place, pointer, strlen(pointer));
  compile_fail(s->c, code, "Invalid schema at '%s': %s", *place ? place : "/", reason);
}

const char *schema_pointer(const schema_t *s, const char *base, const char *keyword,
                           size_t length) {
  size_t prefix = strlen(base), at;
  char *out = compile_scratch(s->c, prefix + 2 * length + 2, 1);
  memcpy(out, base, prefix);
  out[prefix] = '/';
  at = prefix + 1;
  for (size_t i = 0; i < length; i++) {
    if (keyword[i] == '~' || keyword[i] == '/') {
      out[at++] = '~';
      out[at++] = keyword[i] == '~' ? '0' : '1';
    } else {
      out[at++] = keyword[i];
    }
  }
  return out;
}

const char *schema_pointer_index(const schema_t *s, const char *base, const char *keyword,
                                 uint32_t index) {
  size_t length = strlen(base) + strlen(keyword) + 16;
  char *out = compile_scratch(s->c, length, 1);
  snprintf(out, length, "%s/%s/%u", base, keyword, index);
  return out;
}

/* ---- names ---- */

static const char *const names[] = {
#define X(name, text) text,
    KEYWORDS(X)
#undef X
};

static const char *const annotations[] = {
    "title",    "description", "default",  "examples",  "example", "$id",         "id",
    "$comment", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions", "$schema",
};

static bool key_is(const json_t *v, const char *name) {
  return v->key_length == strlen(name) && memcmp(v->key, name, v->key_length) == 0;
}

static bool is_annotation(const schema_t *s, const part_t *part, const json_t *v) {
  if (v->key_length >= 2 && v->key[0] == 'x' && v->key[1] == '-') return true;
  for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++) {
    if (!key_is(v, annotations[i])) continue;
    bool is_base = key_is(v, "$id") || key_is(v, "id") || key_is(v, "$schema");
    if (is_base && part->schema != s->root) {
      schema_fail(s, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "'%s' is supported at the root only.", annotations[i]);
    }
    return true;
  }
  return false;
}

static keyword_t find_keyword(const schema_t *s, const part_t *part, const json_t *v) {
  for (int i = 0; i < KEYWORD_COUNT; i++) {
    if (key_is(v, names[i])) return (keyword_t)i;
  }
  char quoted[80];
  schema_fail(s, ERR_UNSUPPORTED_PARAMETER, part->pointer, "the keyword '%s' is not supported.",
              error_quote(quoted, sizeof quoted, v->key, v->key_length));
}

/* ---- values ---- */

static bool is_schema(const json_t *v) {
  return v->type == JSON_OBJECT || v->type == JSON_TRUE || v->type == JSON_FALSE;
}

static bool all_children(const json_t *v, bool (*is)(const json_t *value)) {
  JSON_EACH(child, v) {
    if (!is(child)) return false;
  }
  return true;
}

static bool is_string(const json_t *v) {
  return v->type == JSON_STRING;
}

static bool is_count(const json_t *v) {
  int64_t value;
  return json_int64(v, &value) && value >= 0;
}

static bool is_positive(const json_t *v) {
  decimal_t d;
  if (v->type != JSON_NUMBER) return false;
  d = decimal_of(v);
  return !d.negative && !decimal_is_zero(&d);
}

/* What the value of a keyword must be; NULL when it is. */
static const char *complaint(const schema_t *s, keyword_t keyword, const json_t *v) {
  switch (keyword) {
  case KEYWORD_REF:
  case KEYWORD_PATTERN:
  case KEYWORD_FORMAT: return is_string(v) ? NULL : "a string";
  case KEYWORD_ALL_OF:
  case KEYWORD_ANY_OF:
  case KEYWORD_ONE_OF:
  case KEYWORD_PREFIX_ITEMS:
    if (v->type == JSON_ARRAY && v->count > 0 && all_children(v, is_schema)) return NULL;
    return "a non-empty array of schemas";
  case KEYWORD_TYPE: return v->type == JSON_STRING || v->type == JSON_ARRAY ? NULL : "a type";
  case KEYWORD_ENUM: return v->type == JSON_ARRAY && v->count > 0 ? NULL : "a non-empty array";
  case KEYWORD_PROPERTIES:
  case KEYWORD_PATTERN_PROPERTIES:
    if (v->type == JSON_OBJECT && all_children(v, is_schema)) return NULL;
    return "an object of schemas";
  case KEYWORD_REQUIRED:
    if (v->type == JSON_ARRAY && all_children(v, is_string)) return NULL;
    return "an array of strings";
  case KEYWORD_ITEMS:
    if (v->type == JSON_ARRAY && s->old_arrays && all_children(v, is_schema)) return NULL;
    if (v->type == JSON_ARRAY) return "a schema (an array only in dialects before 2020-12)";
    return is_schema(v) ? NULL : "a schema";
  case KEYWORD_ADDITIONAL_PROPERTIES:
  case KEYWORD_ADDITIONAL_ITEMS: return is_schema(v) ? NULL : "a schema";
  case KEYWORD_MIN_PROPERTIES:
  case KEYWORD_MAX_PROPERTIES:
  case KEYWORD_MIN_ITEMS:
  case KEYWORD_MAX_ITEMS:
  case KEYWORD_MIN_LENGTH:
  case KEYWORD_MAX_LENGTH: return is_count(v) ? NULL : "a non-negative integer";
  case KEYWORD_UNIQUE_ITEMS:
    return v->type == JSON_TRUE || v->type == JSON_FALSE ? NULL : "true or false";
  case KEYWORD_EXCLUSIVE_MINIMUM:
  case KEYWORD_EXCLUSIVE_MAXIMUM:
    if (s->old_exclusive) {
      return v->type == JSON_TRUE || v->type == JSON_FALSE ? NULL : "true or false (draft 4)";
    }
    return v->type == JSON_NUMBER ? NULL : "a number";
  case KEYWORD_MINIMUM:
  case KEYWORD_MAXIMUM: return v->type == JSON_NUMBER ? NULL : "a number";
  case KEYWORD_MULTIPLE_OF: return is_positive(v) ? NULL : "a number above 0";
  case KEYWORD_CONST:
  case KEYWORD_COUNT: break;
  }
  return NULL;
}

keywords_t schema_keywords(const schema_t *s, const part_t *part) {
  keywords_t k = {.part = part};
  compile_spend(s->c, part->schema->count + 1);
  JSON_EACH(v, part->schema) {
    if (is_annotation(s, part, v)) continue;
    keyword_t keyword = find_keyword(s, part, v);
    const char *expected = complaint(s, keyword, v);
    if (expected != NULL) {
      schema_fail(s, ERR_INVALID_VALUE, schema_pointer(s, part->pointer, v->key, v->key_length),
                  "expected %s.", expected);
    }
    bool older = keyword == KEYWORD_ADDITIONAL_ITEMS, newer = keyword == KEYWORD_PREFIX_ITEMS;
    if ((older && !s->old_arrays) || (newer && s->old_arrays)) {
      schema_fail(s, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "the keyword '%s' is not part of this dialect.", names[keyword]);
    }
    k.values[keyword] = v;
  }
  return k;
}

void schema_dialect(schema_t *s) {
  static const struct {
    const char *part;
    bool old_arrays, old_exclusive;
  } dialects[] = {{"//json-schema.org/draft-04/schema", true, true},
                  {"//json-schema.org/draft-06/schema", true, false},
                  {"//json-schema.org/draft-07/schema", true, false},
                  {"//json-schema.org/draft/2019-09/schema", true, false},
                  {"//json-schema.org/draft/2020-12/schema", false, false}};
  const json_t *v = json_get(s->root, "$schema");
  if (v == NULL) return;
  if (v->type == JSON_STRING) {
    uint32_t skip = v->length > 6 && memcmp(v->text, "https:", 6) == 0 ? 6 : 5;
    uint32_t length = v->length;
    if (length > skip && v->text[length - 1] == '#') length--;
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
      size_t n = strlen(dialects[i].part);
      if (length != skip + n || memcmp(v->text + skip, dialects[i].part, n) != 0) continue;
      s->old_arrays = dialects[i].old_arrays;
      s->old_exclusive = dialects[i].old_exclusive;
      return;
    }
  }
  schema_fail(s, ERR_UNSUPPORTED_PARAMETER, "/$schema",
              "the dialect is not supported; draft-04, 06, 07, 2019-09 and 2020-12 are.");
}

uint32_t schema_count(const schema_t *s, const keywords_t *k, keyword_t keyword,
                      uint32_t fallback) {
  int64_t value;
  bool is_min = keyword == KEYWORD_MIN_ITEMS || keyword == KEYWORD_MIN_LENGTH ||
                keyword == KEYWORD_MIN_PROPERTIES;
  if (k->values[keyword] == NULL || !json_int64(k->values[keyword], &value)) return fallback;
  if (is_min && value > COUNT_MAX) {
    schema_fail(s, ERR_BAD_REQUEST, k->part->pointer, "'%s' is at most %d.", names[keyword],
                COUNT_MAX);
  }
  return value > COUNT_MAX ? COUNT_MAX : (uint32_t)value;
}

/* ---- types ---- */

static uint32_t type_bit(const schema_t *s, const keywords_t *k, const json_t *v) {
  uint32_t bits = v->type == JSON_STRING ? json_schema_types(v->text, v->length) : 0;
  if (bits) return bits;
  schema_fail(s, ERR_INVALID_VALUE, schema_pointer(s, k->part->pointer, "type", 4),
              "expected null, boolean, string, integer, number, array or object.");
}

uint32_t schema_types(const schema_t *s, const keywords_t *k) {
  const json_t *type = k->values[KEYWORD_TYPE];
  uint32_t bits = 0;
  if (type == NULL) return TYPE_ALL;
  if (type->type == JSON_STRING) return type_bit(s, k, type);
  JSON_EACH(v, type) bits |= type_bit(s, k, v);
  return bits;
}

uint32_t schema_type_of(const json_t *v) {
  decimal_t d;
  switch ((json_type_t)v->type) {
  case JSON_NULL: return TYPE_NULL;
  case JSON_FALSE:
  case JSON_TRUE: return TYPE_BOOLEAN;
  case JSON_STRING: return TYPE_STRING;
  case JSON_ARRAY: return TYPE_ARRAY;
  case JSON_OBJECT: return TYPE_OBJECT;
  case JSON_NUMBER: break;
  }
  d = decimal_of(v);
  return d.fine || d.num_fraction > 0 ? TYPE_FRACTION : TYPE_INTEGER;
}

static const json_t *member(const json_t *object, const json_t *like) {
  JSON_EACH(v, object) {
    if (v->key_length == like->key_length && memcmp(v->key, like->key, v->key_length) == 0) {
      return v;
    }
  }
  return NULL;
}

bool schema_equal(const json_t *a, const json_t *b) {
  if (a->type != b->type || (a->type != JSON_NUMBER && a->count != b->count)) return false;
  if (a->type == JSON_STRING) {
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
  }
  if (a->type == JSON_NUMBER) {
    decimal_t x = decimal_of(a), y = decimal_of(b);
    if (x.huge || y.huge || x.fine || y.fine) {
      return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
    }
    return decimal_compare(&x, &y) == 0;
  }
  const json_t *other = json_first(b);
  JSON_EACH(v, a) {
    if (a->type == JSON_OBJECT) other = member(b, v);
    if (other == NULL || !schema_equal(v, other)) return false;
    if (a->type == JSON_ARRAY) other = json_next(other);
  }
  return true;
}

/* ---- references ---- */

const part_t *schema_resolve(const schema_t *s, const keywords_t *k) {
  const json_t *ref = k->values[KEYWORD_REF];
  const char *place = schema_pointer(s, k->part->pointer, "$ref", 4), *text = ref->text;
  char quoted[80];
  error_quote(quoted, sizeof quoted, text, ref->length);
  if (ref->length == 0 || text[0] != '#' || (ref->length > 1 && text[1] != '/')) {
    schema_fail(s, ERR_UNSUPPORTED_PARAMETER, place,
                "'%s' is not supported; references are local JSON pointers.", quoted);
  }
  const json_t *at = json_schema_resolve(s->root, text, ref->length);
  compile_spend(s->c, ref->length);
  if (at == NULL) schema_fail(s, ERR_INVALID_VALUE, place, "'%s' points nowhere.", quoted);
  if (!is_schema(at)) schema_fail(s, ERR_INVALID_VALUE, place, "'%s' is no schema.", quoted);
  part_t *part = compile_scratch(s->c, 1, sizeof *part);
  char *pointer = compile_scratch(s->c, (size_t)ref->length + 1, 1);
  memcpy(pointer, text + 1, ref->length - 1);
  *part = (part_t){at, pointer, 0, k->part};
  return part;
}
