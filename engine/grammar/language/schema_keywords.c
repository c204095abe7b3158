/* schema_keywords.c: the known keywords, and checks of their values.
 *
 * Part of a compilation, on its thread. A keyword is enforced, or it restricts nothing, or it is
 * refused by name (schema_names.c).
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COUNT_MAX = 60000 };

void schema_fail(const schema_t *schema, int code, const char *pointer, const char *format, ...) {
  char reason[256], place[128];
  va_list args;
  va_start(args, format);
  vsnprintf(reason, sizeof reason, format, args);
  va_end(args);
  error_quote(place, sizeof place, pointer, strlen(pointer));
  grammar_account_t *account = schema->compile->account;
  snprintf(account->place, sizeof account->place, "%s", pointer);
  compile_fail(schema->compile, code, "Invalid schema at '%s': %s", *place ? place : "/", reason);
}

const char *schema_pointer(const schema_t *schema, const char *base, const char *keyword,
                           size_t length) {
  size_t prefix = strlen(base), at;
  char *out = compile_scratch(schema->compile, prefix + 2 * length + 2, 1);
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

const char *schema_pointer_index(const schema_t *schema, const char *base, const char *keyword,
                                 uint32_t index) {
  size_t length = strlen(base) + strlen(keyword) + 16;
  char *out = compile_scratch(schema->compile, length, 1);
  snprintf(out, length, "%s/%s/%u", base, keyword, index);
  return out;
}

/* ---- names ---- */

static const char *const names[] = {
#define X(name, text) text,
    KEYWORDS(X)
#undef X
};

const char *schema_keyword_name(keyword_t keyword) {
  return names[keyword];
}

/* Whether a member of a schema says nothing: generators write null for keywords that they leave
 * out. `const` may be null. */
static bool is_absent(const json_t *member) {
  return member->type == JSON_NULL && !json_named(member, names[KEYWORD_CONST]);
}

bool schema_ref_is_alone(const schema_t *schema, const json_t *json) {
  if (!schema->old_contains || schema->source->strict) return false;
  const json_t *ref = json_get(json, "$ref");
  return ref != NULL && ref->type == JSON_STRING;
}

static bool is_keyword(const json_t *json) {
  for (int i = 0; i < KEYWORD_COUNT; i++) {
    if (json_named(json, names[i])) return true;
  }
  return false;
}

static bool has_keyword_beside(const json_t *ref, const json_t *json) {
  JSON_EACH(child, json) {
    if (child != ref && is_keyword(child) && !is_absent(child)) return true;
  }
  return false;
}

/* Returns true if the schema, or one that it holds, has a keyword that dialects read differently.
 * Keywords beside `$ref` count where those of the root are ignored; else less is allowed. */
static bool dialect_matters(const schema_t *schema, const json_t *json) {
  static const struct {
    const char *name;
    bool if_array, if_string;
  } rows[] = {{"items", true, false},
              {"prefixItems", true, false},
              {"additionalItems", false, false},
              {"minContains", false, false},
              {"maxContains", false, false},
              {"exclusiveMinimum", false, false},
              {"exclusiveMaximum", false, false},
              {"id", false, true},
              {"$id", false, true}};
  if (json->type != JSON_OBJECT && json->type != JSON_ARRAY) return false;
  compile_spend(schema->compile, json->count + 1);
  JSON_EACH(child, json) {
    for (size_t i = 0; json->type == JSON_OBJECT && i < ARRAY_LEN(rows); i++) {
      bool other = child->type == JSON_NULL || (rows[i].if_array && child->type != JSON_ARRAY) ||
                   (rows[i].if_string && child->type != JSON_STRING);
      if (!other && json_named(child, rows[i].name)) return true;
    }
    bool is_ref = json->type == JSON_OBJECT && json_named(child, "$ref");
    if (is_ref && schema_ref_is_alone(schema, json) && has_keyword_beside(child, json)) return true;
    if (dialect_matters(schema, child)) return true; /* the reader bounds the depth */
  }
  return false;
}

/* `$id` changes what the references below it mean, `$schema` what the keywords do. */
static void check_base(const schema_t *schema, const schema_part_t *part, const json_t *json) {
  bool is_id = json_named(json, schema->old_exclusive ? "id" : "$id");
  if (is_id && !schema_ref_is_alone(schema, part->schema) && json->type == JSON_STRING &&
      json->length > 0 && json->text[0] != '#' && !schema_is_base(schema, part->schema)) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                "'%.*s' is supported where a keyword holds a schema only.", (int)json->key_length,
                json->key);
  }
  if (!json_named(json, "$schema") || part->schema == schema->root) return;
  schema_t own = {.compile = schema->compile};
  schema_dialect(&own, json, part->pointer);
  if (own.old_arrays == schema->old_arrays && own.old_contains == schema->old_contains &&
      own.old_exclusive == schema->old_exclusive)
    return;
  if (!dialect_matters(schema, part->schema)) return;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
              "'$schema' is supported below the root only if it says the same as there.");
}

/* Returns KEYWORD_COUNT for a name that restricts nothing. */
static keyword_t find_keyword(const schema_t *schema, const schema_part_t *part,
                              const json_t *json) {
  for (int i = 0; i < KEYWORD_COUNT; i++) {
    /* In every dialect it restricts nothing unless `items` is an array. */
    if (i == KEYWORD_ADDITIONAL_ITEMS && !schema->old_arrays) continue;
    if (json_named(json, names[i])) return (keyword_t)i;
  }
  schema_pass_name(schema, part, json);
  check_base(schema, part, json);
  return KEYWORD_COUNT;
}

/* ---- values ---- */

static bool is_schema(const json_t *json) {
  return json->type == JSON_OBJECT || json->type == JSON_TRUE || json->type == JSON_FALSE;
}

static bool all_children(const json_t *json, bool (*is)(const json_t *value)) {
  JSON_EACH(child, json) {
    if (!is(child)) return false;
  }
  return true;
}

static bool is_string(const json_t *json) {
  return json->type == JSON_STRING;
}

static bool is_count(const json_t *json) {
  int64_t value;
  return json_int64(json, &value) && value >= 0;
}

static bool is_positive(const json_t *json) {
  decimal_t decimal;
  if (json->type != JSON_NUMBER) return false;
  decimal = decimal_of(json);
  return !decimal.negative && !decimal_is_zero(&decimal);
}

static bool is_names(const json_t *json) {
  return json->type == JSON_ARRAY && all_children(json, is_string);
}

static bool is_dependency(const json_t *json) {
  return is_names(json) || is_schema(json);
}

/* Returns a text that says what the value of a keyword must be; NULL if the value is right. */
static const char *complaint(const schema_t *schema, keyword_t keyword, const json_t *json) {
  switch (keyword) {
  case KEYWORD_REF:
  case KEYWORD_PATTERN:
  case KEYWORD_FORMAT: return is_string(json) ? NULL : "a string";
  case KEYWORD_ALL_OF:
  case KEYWORD_ANY_OF:
  case KEYWORD_ONE_OF:
  case KEYWORD_PREFIX_ITEMS:
    if (json->type == JSON_ARRAY && json->count > 0 && all_children(json, is_schema)) return NULL;
    return "a non-empty array of schemas";
  case KEYWORD_TYPE: return json->type == JSON_STRING || json->type == JSON_ARRAY ? NULL : "a type";
  case KEYWORD_ENUM:
    return json->type == JSON_ARRAY && json->count > 0 ? NULL : "a non-empty array";
  case KEYWORD_CONTAINS:
  case KEYWORD_NOT:
  case KEYWORD_IF:
  case KEYWORD_THEN:
  case KEYWORD_ELSE: return is_schema(json) ? NULL : "a schema";
  case KEYWORD_DEPENDENT_SCHEMAS:
  case KEYWORD_PROPERTIES:
  case KEYWORD_PATTERN_PROPERTIES:
    if (json->type == JSON_OBJECT && all_children(json, is_schema)) return NULL;
    return "an object of schemas";
  case KEYWORD_REQUIRED: return is_names(json) ? NULL : "an array of strings";
  case KEYWORD_DEPENDENT_REQUIRED:
    if (json->type == JSON_OBJECT && all_children(json, is_names)) return NULL;
    return "an object of arrays of strings";
  case KEYWORD_DEPENDENCIES:
    if (json->type == JSON_OBJECT && all_children(json, is_dependency)) return NULL;
    return "an object of schemas and arrays of strings";
  case KEYWORD_ITEMS:
    if (json->type == JSON_ARRAY && schema->old_arrays && all_children(json, is_schema))
      return NULL;
    if (json->type == JSON_ARRAY) return "a schema (an array only in dialects before 2020-12)";
    return is_schema(json) ? NULL : "a schema";
  case KEYWORD_ADDITIONAL_PROPERTIES:
  case KEYWORD_PROPERTY_NAMES:
  case KEYWORD_UNEVALUATED_PROPERTIES:
  case KEYWORD_UNEVALUATED_ITEMS:
  case KEYWORD_ADDITIONAL_ITEMS: return is_schema(json) ? NULL : "a schema";
  case KEYWORD_MIN_PROPERTIES:
  case KEYWORD_MAX_PROPERTIES:
  case KEYWORD_MIN_CONTAINS:
  case KEYWORD_MAX_CONTAINS:
  case KEYWORD_MIN_ITEMS:
  case KEYWORD_MAX_ITEMS:
  case KEYWORD_MIN_LENGTH:
  case KEYWORD_MAX_LENGTH: return is_count(json) ? NULL : "a non-negative integer";
  case KEYWORD_UNIQUE_ITEMS:
    return json->type == JSON_TRUE || json->type == JSON_FALSE ? NULL : "true or false";
  case KEYWORD_EXCLUSIVE_MINIMUM:
  case KEYWORD_EXCLUSIVE_MAXIMUM:
    if (schema->old_exclusive) {
      return json->type == JSON_TRUE || json->type == JSON_FALSE ? NULL : "true or false (draft 4)";
    }
    return json->type == JSON_NUMBER ? NULL : "a number";
  case KEYWORD_MINIMUM:
  case KEYWORD_MAXIMUM: return json->type == JSON_NUMBER ? NULL : "a number";
  case KEYWORD_MULTIPLE_OF: return is_positive(json) ? NULL : "a number above 0";
  case KEYWORD_CONST:
  case KEYWORD_COUNT: break;
  }
  return NULL;
}

keywords_t schema_keywords(const schema_t *schema, const schema_part_t *part) {
  keywords_t keywords = {.part = part};
  if (schema_part_mode(part) != PART_PLAIN) return schema_literal(schema, part);
  compile_spend(schema->compile, part->schema->count + 1);
  bool alone = schema_ref_is_alone(schema, part->schema);
  JSON_EACH(json, part->schema) {
    if (is_absent(json)) continue;
    keyword_t keyword = find_keyword(schema, part, json);
    if (keyword == KEYWORD_COUNT) continue;
    if (alone && keyword != KEYWORD_REF) {
      schema_pass_beside_ref(schema, part, json);
      continue;
    }
    const char *expected = complaint(schema, keyword, json);
    if (expected != NULL) {
      schema_fail(schema, ERR_INVALID_VALUE,
                  schema_pointer(schema, part->pointer, json->key, json->key_length),
                  "expected %s.", expected);
    }
    bool counts = keyword == KEYWORD_MIN_CONTAINS || keyword == KEYWORD_MAX_CONTAINS;
    if ((keyword == KEYWORD_PREFIX_ITEMS && schema->old_arrays) ||
        (counts && schema->old_contains)) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "the keyword '%s' is not part of this dialect.", names[keyword]);
    }
    if (keyword == KEYWORD_FORMAT) schema_pass_format(schema, json);
    bool spent =
        (part->done & DONE_VALUES) && (keyword == KEYWORD_ENUM || keyword == KEYWORD_CONST);
    if (!spent) keywords.values[keyword] = json;
  }
  return keywords;
}

bool schema_find_dialect(schema_t *schema, const json_t *json) {
  static const struct {
    const char *part;
    bool old_arrays, old_contains, old_exclusive;
  } dialects[] = {{"//json-schema.org/draft-04/schema", true, true, true},
                  {"//json-schema.org/draft-06/schema", true, true, false},
                  {"//json-schema.org/draft-07/schema", true, true, false},
                  {"//json-schema.org/draft/2019-09/schema", true, false, false},
                  {"//json-schema.org/draft/2020-12/schema", false, false, false}};
  static const char http[] = "http:", https[] = "https:";
  if (!json_is_given(json)) return true;
  if (json->type == JSON_STRING) {
    uint32_t length = json->length, skip = sizeof http - 1;
    if (length >= sizeof https && memcmp(json->text, https, sizeof https - 1) == 0)
      skip = sizeof https - 1;
    if (length > skip && json->text[length - 1] == '#') length--;
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
      size_t n = strlen(dialects[i].part);
      if (length != skip + n || memcmp(json->text + skip, dialects[i].part, n) != 0) continue;
      schema->old_arrays = dialects[i].old_arrays;
      schema->old_contains = dialects[i].old_contains;
      schema->old_exclusive = dialects[i].old_exclusive;
      return true;
    }
  }
  return false;
}

void schema_dialect(schema_t *schema, const json_t *json, const char *pointer) {
  if (schema_find_dialect(schema, json)) return;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, schema_pointer_to(schema, pointer, "$schema"),
              "the dialect is not supported; draft-04, 06, 07, 2019-09 and 2020-12 are.");
}

uint32_t schema_count(const schema_t *schema, const keywords_t *keywords, keyword_t keyword,
                      uint32_t fallback) {
  int64_t value;
  bool is_min = keyword == KEYWORD_MIN_ITEMS || keyword == KEYWORD_MIN_LENGTH ||
                keyword == KEYWORD_MIN_PROPERTIES || keyword == KEYWORD_MIN_CONTAINS;
  if (keywords->values[keyword] == NULL || !json_int64(keywords->values[keyword], &value))
    return fallback;
  if (is_min && value > COUNT_MAX) {
    schema_fail(schema, ERR_BAD_REQUEST, keywords->part->pointer, "'%s' is at most %d.",
                names[keyword], COUNT_MAX);
  }
  return value > COUNT_MAX ? COUNT_MAX : (uint32_t)value;
}

/* ---- types ---- */

static uint32_t type_bit(const schema_t *schema, const keywords_t *keywords, const json_t *json) {
  uint32_t bits = json->type == JSON_STRING ? json_schema_types(json->text, json->length) : 0;
  if (bits) return bits;
  schema_fail(schema, ERR_INVALID_VALUE, schema_pointer_to(schema, keywords->part->pointer, "type"),
              "expected null, boolean, string, integer, number, array or object.");
}

uint32_t schema_types(const schema_t *schema, const keywords_t *keywords) {
  const json_t *type = keywords->values[KEYWORD_TYPE];
  uint32_t bits = 0;
  bool negated = keywords->literal == LITERAL_TYPE;
  if (negated) type = keywords->about;
  if (type == NULL) return TYPE_ALL;
  if (type->type == JSON_STRING) bits = type_bit(schema, keywords, type);
  if (type->type == JSON_ARRAY) {
    JSON_EACH(json, type) bits |= type_bit(schema, keywords, json);
  }
  return negated ? TYPE_ALL & ~bits : bits;
}

uint32_t schema_type_of(const json_t *value) {
  decimal_t decimal;
  switch ((json_type_t)value->type) {
  case JSON_NULL: return TYPE_NULL;
  case JSON_FALSE:
  case JSON_TRUE: return TYPE_BOOLEAN;
  case JSON_STRING: return TYPE_STRING;
  case JSON_ARRAY: return TYPE_ARRAY;
  case JSON_OBJECT: return TYPE_OBJECT;
  case JSON_NUMBER: break;
  }
  decimal = decimal_of(value);
  return decimal.fine || decimal.num_fraction > 0 ? TYPE_FRACTION : TYPE_INTEGER;
}

bool schema_equal(const json_t *left, const json_t *right) {
  if (left->type != right->type || (left->type != JSON_NUMBER && left->count != right->count))
    return false;
  if (left->type == JSON_STRING) {
    return left->length == right->length && memcmp(left->text, right->text, left->length) == 0;
  }
  if (left->type == JSON_NUMBER) {
    decimal_t decimal = decimal_of(left), number = decimal_of(right);
    if (decimal.huge || number.huge || decimal.fine || number.fine) {
      return left->length == right->length && memcmp(left->text, right->text, left->length) == 0;
    }
    return decimal_compare(&decimal, &number) == 0;
  }
  const json_t *other = json_first(right);
  JSON_EACH(json, left) {
    if (left->type == JSON_OBJECT) other = json_member(right, json->key, json->key_length);
    if (other == NULL || !schema_equal(json, other)) return false;
    if (left->type == JSON_ARRAY) other = json_next(other);
  }
  return true;
}
