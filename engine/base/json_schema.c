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

/* ---- places ---- */

static void add_schema(schema_set_t *out, const json_t *schema) {
  for (uint32_t i = 0; i < out->count; i++) {
    if (out->schemas[i] == schema) return;
  }
  if (out->count < SCHEMA_SET_MAX) out->schemas[out->count++] = schema;
}

typedef struct schema_step {
  const char *name; /* NULL: an item */
  size_t length;
  uint32_t index;
} schema_step_t;

static const json_t *item_of(const json_t *schema, uint32_t index) {
  const json_t *prefix = json_get(schema, "prefixItems"), *items = json_get(schema, "items");
  const json_t *rest = items;
  if (prefix == NULL && items != NULL && items->type == JSON_ARRAY) {
    prefix = items;
    rest = json_get(schema, "additionalItems");
  }
  JSON_EACH(one, prefix) {
    if (index-- == 0) return one;
  }
  return rest;
}

static void step_into(type_search_t *search, const json_t *schema, const schema_step_t *step,
                      schema_set_t *out, int depth);

/* Follows the branch of a list of alternatives that the step fits. */
static void step_branch(type_search_t *search, const json_t *list, const schema_step_t *step,
                        schema_set_t *out, int depth) {
  uint32_t wanted = step->name != NULL ? TYPE_OBJECT : TYPE_ARRAY;
  const json_t *only = NULL;
  int fitting = 0;
  if (list == NULL || !burn(&search->fuel, list->count)) return;
  JSON_EACH(branch, list) {
    if (!(types_of(search, branch, depth + 1) & wanted)) continue;
    if (fitting++ == 0) only = branch;
  }
  if (fitting <= 1) {
    step_into(search, only, step, out, depth + 1);
    return;
  }
  JSON_EACH(branch, list) {
    schema_set_t found = {.root = out->root};
    if (!(types_of(search, branch, depth + 1) & wanted)) continue;
    step_into(search, branch, step, &found, depth + 1);
    for (uint32_t i = 0; i < found.count; i++) add_schema(out, found.schemas[i]);
    if (found.count > 0) return;
  }
}

static void step_into(type_search_t *search, const json_t *schema, const schema_step_t *step,
                      schema_set_t *out, int depth) {
  if (depth > DEPTH_MAX || schema == NULL || schema->type != JSON_OBJECT) return;
  if (!burn(&search->fuel, schema->count + 1) || has_own_base(search->root, schema)) return;
  const json_t *properties = json_get(schema, "properties"), *ref = json_get(schema, "$ref");
  const json_t *own = NULL;
  if (step->name == NULL) {
    own = item_of(schema, step->index);
  } else {
    if (properties != NULL && properties->type == JSON_OBJECT) {
      if (!burn(&search->fuel, properties->count)) return;
      own = descend(properties, step->name, step->length);
    }
    bool other = own == NULL && !json_is_given(json_get(schema, "patternProperties"));
    if (other) own = json_get(schema, "additionalProperties");
  }
  if (own != NULL) add_schema(out, own);
  if (ref != NULL && ref->type == JSON_STRING) {
    step_into(search, resolve(search->root, ref->text, ref->length, &search->fuel, false), step,
              out, depth + 1);
  }
  JSON_EACH(one, json_get(schema, "allOf")) step_into(search, one, step, out, depth + 1);
  step_branch(search, json_get(schema, "anyOf"), step, out, depth);
  step_branch(search, json_get(schema, "oneOf"), step, out, depth);
}

void json_schema_step(const schema_set_t *set, const char *name, size_t length, uint32_t index,
                      schema_set_t *out, uint32_t *fuel) {
  type_search_t search = {set->root, *fuel};
  schema_step_t step = {name, length, index};
  *out = (schema_set_t){.root = set->root};
  for (uint32_t i = 0; i < set->count; i++) step_into(&search, set->schemas[i], &step, out, 0);
  *fuel = search.fuel;
  if (*fuel == 0) out->count = 0;
}

uint32_t json_schema_set_types(const schema_set_t *set, uint32_t *fuel) {
  type_search_t search = {set->root, *fuel};
  uint32_t types = TYPE_ALL;
  for (uint32_t i = 0; i < set->count; i++) types &= types_of(&search, set->schemas[i], 0);
  *fuel = search.fuel;
  return types != 0 && *fuel > 0 ? types : TYPE_ALL;
}

uint32_t json_schema_value_types(const json_t *root, const json_t *schema) {
  type_search_t search = {root, FUEL};
  uint32_t types = types_of(&search, schema, 0);
  return search.fuel > 0 ? types : TYPE_ALL;
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
