/* json_schema.c: references and types of JSON schemas; the contract is in json_schema.h.
 *
 * Any thread; allocates nothing. `fuel` bounds the number of schema members that are visited.
 */
#include "engine/base/json_schema.h"

#include "engine/base/hex.h"
#include "engine/base/util.h"

#include <string.h>

enum { FUEL = 50000, DEPTH_MAX = 32, SEGMENT_BYTES_MAX = 1024 };

uint32_t json_schema_types(const char *type, size_t length) {
  static const struct {
    const char *name;
    uint32_t bits;
  } types[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN}, {"string", TYPE_STRING},
               {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},   {"array", TYPE_ARRAY},
               {"object", TYPE_OBJECT}};
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    if (strlen(types[i].name) == length && memcmp(types[i].name, type, length) == 0) {
      return types[i].bits;
    }
  }
  return 0;
}

/* ---- references ---- */

/* Decodes %XX, then ~1 and ~0, of one segment. */
static size_t decode_segment(const char *text, size_t length, char *out) {
  size_t used = 0;
  for (size_t i = 0; i < length; i++) {
    char ch = text[i];
    if (ch == '%' && length - i > 2 && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0) {
      ch = (char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
      i += 2;
    }
    if (used > 0 && out[used - 1] == '~' && (ch == '0' || ch == '1')) {
      out[used - 1] = ch == '0' ? '\x01' : '/'; /* \x01 stands for ~ until the loop below */
    } else {
      out[used++] = ch;
    }
  }
  for (size_t i = 0; i < used; i++) {
    if (out[i] == '\x01') out[i] = '~';
  }
  return used;
}

static const json_t *descend(const json_t *at, const char *name, size_t length) {
  uint32_t index = 0, wanted = 0;
  if (at->type == JSON_OBJECT) return json_member(at, name, length);
  if (at->type != JSON_ARRAY || length == 0 || length > 6) return NULL;
  for (size_t i = 0; i < length; i++) {
    if (name[i] < '0' || name[i] > '9') return NULL;
    wanted = wanted * 10 + (uint32_t)(name[i] - '0');
  }
  JSON_EACH(json, at) {
    if (index++ == wanted) return json;
  }
  return NULL;
}

/* Takes `children` from the fuel. Returns false once the fuel is used up. */
static bool burn(uint32_t *fuel, uint32_t children) {
  *fuel = *fuel > children ? *fuel - children : 0;
  return *fuel > 0;
}

/* A reference inside a schema with its own `$id` starts there. Such schemas are not entered where
 * only `root` is known. */
static bool has_own_base(const json_t *root, const json_t *at) {
  const json_t *id = json_get(at, "$id");
  return at != root && id != NULL && id->type == JSON_STRING;
}

static const json_t *resolve(const json_t *root, const char *text, size_t length, uint32_t *fuel,
                             bool own_bases) {
  char name[SEGMENT_BYTES_MAX];
  const json_t *at = root;
  if (length == 0 || text[0] != '#' || (length > 1 && text[1] != '/')) return NULL;
  for (size_t i = 1; i < length && at != NULL;) {
    size_t end = i + 1;
    while (end < length && text[end] != '/') end++;
    if (end - i > sizeof name || !burn(fuel, at->count + 1)) return NULL;
    if (!own_bases && has_own_base(root, at)) return NULL;
    at = descend(at, name, decode_segment(text + i + 1, end - i - 1, name));
    i = end;
  }
  return at;
}

const json_t *json_schema_resolve(const json_t *root, const char *text, size_t length) {
  uint32_t fuel = UINT32_MAX;
  return resolve(root, text, length, &fuel, true);
}

/* ---- types ---- */

typedef struct type_search {
  const json_t *root;
  uint32_t fuel; /* 0 = used up: the result is unknown */
} type_search_t;

static uint32_t types_of_value(const json_t *json) {
  switch ((json_type_t)json->type) {
  case JSON_NULL: return TYPE_NULL;
  case JSON_FALSE:
  case JSON_TRUE: return TYPE_BOOLEAN;
  case JSON_NUMBER: return TYPE_NUMBER;
  case JSON_STRING: return TYPE_STRING;
  case JSON_ARRAY: return TYPE_ARRAY;
  case JSON_OBJECT: break;
  }
  return TYPE_OBJECT;
}

static uint32_t types_of(type_search_t *search, const json_t *schema, int depth);

/* The types that one keyword allows. An unknown type name allows all types. */
static uint32_t types_of_keyword(type_search_t *search, const json_t *json, int depth) {
  uint32_t types = 0;
  bool any = json_named(json, "anyOf") || json_named(json, "oneOf");
  if (!burn(&search->fuel, json->type == JSON_ARRAY ? json->count : 1)) return TYPE_ALL;
  if (json_named(json, "type")) {
    if (json->type == JSON_STRING) types = json_schema_types(json->text, json->length);
    JSON_EACH(one, json) {
      uint32_t bits = one->type == JSON_STRING ? json_schema_types(one->text, one->length) : 0;
      types |= bits != 0 ? bits : TYPE_ALL;
    }
  } else if (json_named(json, "const")) {
    return types_of_value(json);
  } else if (json_named(json, "$ref") && json->type == JSON_STRING) {
    return types_of(search, resolve(search->root, json->text, json->length, &search->fuel, false),
                    depth + 1);
  } else if (any || json_named(json, "enum")) {
    JSON_EACH(one, json) types |= any ? types_of(search, one, depth + 1) : types_of_value(one);
  } else if (json_named(json, "allOf")) {
    types = TYPE_ALL;
    JSON_EACH(one, json) types &= types_of(search, one, depth + 1);
    return types;
  }
  return types != 0 ? types : TYPE_ALL;
}

static uint32_t types_of(type_search_t *search, const json_t *schema, int depth) {
  uint32_t types = TYPE_ALL;
  if (schema != NULL && schema->type == JSON_FALSE) return 0;
  if (depth > DEPTH_MAX || schema == NULL || schema->type != JSON_OBJECT) return TYPE_ALL;
  if (!burn(&search->fuel, schema->count) || has_own_base(search->root, schema)) return TYPE_ALL;
  JSON_EACH(json, schema) types &= types_of_keyword(search, json, depth);
  return types;
}

/* The types of a member by the properties of an object's schema or, if it is not among them, by
 * additionalProperties; restricted by $ref and allOf. */
static uint32_t types_in(type_search_t *search, const json_t *schema, const char *name,
                         size_t length, int depth) {
  uint32_t types = TYPE_ALL;
  if (depth > DEPTH_MAX || schema == NULL || !burn(&search->fuel, schema->count + 1))
    return TYPE_ALL;
  if (has_own_base(search->root, schema)) return TYPE_ALL;
  const json_t *properties = json_get(schema, "properties"), *all = json_get(schema, "allOf");
  const json_t *ref = json_get(schema, "$ref"), *own = NULL;
  if (properties != NULL && properties->type == JSON_OBJECT) {
    if (!burn(&search->fuel, properties->count)) return TYPE_ALL;
    own = descend(properties, name, length);
  }
  bool other = own == NULL && !json_is_given(json_get(schema, "patternProperties"));
  if (other) own = json_get(schema, "additionalProperties");
  if (own != NULL) types = types_of(search, own, depth + 1);
  if (ref != NULL && ref->type == JSON_STRING) {
    const json_t *target = resolve(search->root, ref->text, ref->length, &search->fuel, false);
    types &= types_in(search, target, name, length, depth + 1);
  }
  if (all != NULL && !burn(&search->fuel, all->count)) return TYPE_ALL;
  JSON_EACH(one, all) types &= types_in(search, one, name, length, depth + 1);
  return types;
}

uint32_t json_schema_member_types(const json_t *schema, const char *name, size_t length) {
  type_search_t search = {schema, FUEL};
  uint32_t types = types_in(&search, schema, name, length, 0);
  return search.fuel == 0 || types == 0 || types == TYPE_ALL ? TYPE_STRING : types;
}

const tag_words_t tag_words_function = {
    .end_name = ">",
    .begin_key = "<parameter=",
    .end_key = ">",
    .end_value = "</parameter>",
    .end_call = "</function>",
    .end_calls = "</tool_call>",
    .value_ends = TAG_ENDS("<parameter=", "</parameter>", "</function>"),
    .before_value = "",
    .around_value = "\n",
    .behind_value = "\n",
};
