/* schema_strict.c: the rules of OpenAI's strict subset, checked in addition to the general rules.
 *
 * Part of a compilation, on its thread. It checks every subschema that lies in the root or in its
 * `$defs`; it does not follow `$ref`. The first violation ends the compilation (schema_fail does
 * not return). The messages use the words of OpenAI.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema.h"

#include <string.h>

enum { STRICT_DEPTH_MAX = 10 }; /* levels of `properties` and `items` below the root */

/* Keywords that the strict subset does not have. */
static const char *const refused[] = {
    "allOf",
    "oneOf",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "prefixItems",
    "additionalItems",
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
};

static void check(const schema_t *schema, const json_t *json, const char *pointer, int depth);

/* A keyword that is null is absent. */
static const json_t *given(const json_t *schema, const char *keyword) {
  const json_t *value = json_get(schema, keyword);
  return json_is_given(value) ? value : NULL;
}

/* Checks that an object is closed and that all of its properties are required. */
static void check_object(const schema_t *schema, const json_t *json, const char *pointer) {
  const json_t *additional = given(json, "additionalProperties");
  const json_t *properties = given(json, "properties"), *required = given(json, "required");
  char quoted[80];
  if (additional == NULL || additional->type != JSON_FALSE) {
    schema_fail(schema, ERR_INVALID_VALUE, pointer,
                "'additionalProperties' is required to be supplied and to be false.");
  }
  if (properties == NULL || properties->type != JSON_OBJECT) return;
  JSON_EACH(value, properties) {
    bool found = false;
    if (required != NULL && required->type == JSON_ARRAY) {
      JSON_EACH(name, required) {
        compile_spend(schema->compile, 1);
        found = found || (name->type == JSON_STRING && name->length == value->key_length &&
                          memcmp(name->text, value->key, name->length) == 0);
      }
    }
    if (found) continue;
    schema_fail(schema, ERR_INVALID_VALUE, pointer,
                "'required' is required to be supplied and to be an array including every key in "
                "properties. Missing '%s'.",
                error_quote(quoted, sizeof quoted, value->key, value->key_length));
  }
}

/* Only `properties` and `items` add a level; definitions and anyOf do not. */
static void check_children(const schema_t *schema, const json_t *json, const char *pointer,
                           int depth) {
  static const char *const maps[] = {"properties", "$defs", "definitions"};
  for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
    const json_t *map = given(json, maps[i]);
    if (map == NULL || map->type != JSON_OBJECT) continue;
    const char *base = schema_pointer(schema, pointer, maps[i], strlen(maps[i]));
    JSON_EACH(child, map) {
      const char *place = schema_pointer(schema, base, child->key, child->key_length);
      check(schema, child, place, depth + (i == 0));
    }
  }
  const json_t *any = given(json, "anyOf"), *items = given(json, "items");
  uint32_t index = 0;
  if (any != NULL && any->type == JSON_ARRAY) {
    JSON_EACH(child, any) {
      check(schema, child, schema_pointer_index(schema, pointer, "anyOf", index++), depth);
    }
  }
  if (items != NULL) check(schema, items, schema_pointer_to(schema, pointer, "items"), depth + 1);
}

static bool allows_object(const json_t *type) {
  if (type->type == JSON_STRING) return json_equals(type, "object");
  if (type->type != JSON_ARRAY) return false;
  JSON_EACH(json, type) {
    if (json->type == JSON_STRING && json_equals(json, "object")) return true;
  }
  return false;
}

/* Checks one subschema and all below it. The recursion is bounded by the depth limit of the JSON
 * reader. */
static void check(const schema_t *schema, const json_t *json, const char *pointer, int depth) {
  compile_spend(schema->compile, 20);
  if (json->type != JSON_OBJECT) {
    schema_fail(schema, ERR_INVALID_VALUE, pointer, "expected an object in a strict schema.");
  }
  if (depth > STRICT_DEPTH_MAX) {
    schema_fail(schema, ERR_BAD_REQUEST, pointer, "a strict schema nests at most %d levels.",
                STRICT_DEPTH_MAX);
  }
  for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
    if (given(json, refused[i]) == NULL) continue;
    schema_fail(schema, ERR_INVALID_VALUE, pointer, "'%s' is not permitted in a strict schema.",
                refused[i]);
  }
  const json_t *type = given(json, "type");
  bool has_other = given(json, "$ref") != NULL || given(json, "anyOf") != NULL ||
                   given(json, "enum") != NULL || json_get(json, "const") != NULL;
  if (type == NULL && !has_other) {
    schema_fail(schema, ERR_INVALID_VALUE, pointer, "schema must have a 'type' key.");
  }
  if ((type != NULL && allows_object(type)) || given(json, "properties") != NULL)
    check_object(schema, json, pointer);
  check_children(schema, json, pointer, depth);
}

void schema_check_strict(const schema_t *schema) {
  const json_t *type = given(schema->root, "type"), *ref = given(schema->root, "$ref");
  if (given(schema->root, "anyOf") != NULL) {
    schema_fail(schema, ERR_INVALID_VALUE, "", "schema must not have 'anyOf' at the top level.");
  }
  if (ref == NULL && (type == NULL || type->type != JSON_STRING || !json_equals(type, "object"))) {
    schema_fail(schema, ERR_INVALID_VALUE, "",
                "schema must be a JSON Schema of 'type: \"object\"'.");
  }
  check(schema, schema->root, "", 0);
}
