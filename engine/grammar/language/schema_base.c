/* schema_base.c: `$id`, `$anchor` and `$ref`: which schema of the document a reference names.
 *
 * Part of a compilation, on its thread. A schema with an `$id` is a resource: it has a URI of its
 * own, and references inside it start from there. A document stores its values in preorder
 * (json.h), so a resource is a range of values, and the last resource that begins before a value
 * and ends behind it is the one the value belongs to. No other document is ever read.
 */
#include "engine/grammar/language/schema_base.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

typedef struct resource {
  const json_t *begin, *end;
  uri_text_t uri;  /* without fragment; empty = unknown */
  bool is_doubled; /* another one has the same URI; set at the first of them */
} resource_t;

typedef struct anchor {
  const json_t *schema;
  uint32_t resource; /* index */
  const json_t *name;
  uint32_t skip; /* bytes in front of the name: the `#` of an older `$id` */
} anchor_t;

struct schema_bases {
  grammar_list_t resources; /* resource_t, in the order of the document */
  grammar_list_t anchors;   /* anchor_t */
};

/* Keywords whose value is a schema, a list of schemas, or an object of schemas by name. */
static const char *const holders[] = {"items",
                                      "additionalItems",
                                      "additionalProperties",
                                      "prefixItems",
                                      "contains",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "allOf",
                                      "anyOf",
                                      "oneOf",
                                      "propertyNames",
                                      "contentSchema",
                                      "unevaluatedItems",
                                      "extends",
                                      "unevaluatedProperties"};
static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                   "definitions", "dependentSchemas",  "dependencies"};

/* ---- the list ---- */

/* Returns the value behind the last one that `json` holds. */
static const json_t *end_of(const json_t *json) {
  while (json->next == 0 && (json->type == JSON_OBJECT || json->type == JSON_ARRAY)) {
    const json_t *child = json_first(json);
    if (child == NULL) break;
    while (child->next != 0) child += child->next;
    json = child;
  }
  return json->next != 0 ? json + json->next : json + 1;
}

static const resource_t *resource_of(const schema_t *schema, const json_t *json) {
  const resource_t *resources = schema->bases->resources.items, *found = &resources[0];
  compile_spend(schema->compile, schema->bases->resources.count / 8 + 1);
  for (uint32_t i = 1; i < schema->bases->resources.count; i++) {
    bool inside = (uintptr_t)json >= (uintptr_t)resources[i].begin &&
                  (uintptr_t)json < (uintptr_t)resources[i].end;
    if (inside) found = &resources[i];
  }
  return found;
}

static resource_t *resource_named(const schema_t *schema, uri_text_t uri) {
  resource_t *resources = schema->bases->resources.items;
  compile_spend(schema->compile, schema->bases->resources.count / 4 + 1);
  for (uint32_t i = 0; i < schema->bases->resources.count; i++) {
    if (resources[i].uri.length == uri.length &&
        memcmp(resources[i].uri.text, uri.text, uri.length) == 0)
      return &resources[i];
  }
  return NULL;
}

static _Noreturn void refuse_name(const schema_t *schema, const json_t *name, const char *why) {
  char quoted[80];
  compile_fail(schema->compile, ERR_INVALID_VALUE, "Invalid schema: '%.*s' '%s' %s.",
               (int)name->key_length, name->key,
               error_quote(quoted, sizeof quoted, name->text, name->length), why);
}

static void add_anchor(schema_t *schema, const json_t *json, const json_t *name, uint32_t skip) {
  anchor_t *anchor = list_add(schema->compile, &schema->bases->anchors, sizeof *anchor);
  const resource_t *resources = schema->bases->resources.items;
  uint32_t of = (uint32_t)(resource_of(schema, json) - resources);
  *anchor = (anchor_t){json, of, name, skip};
}

/* Adds the resource that `json` is by its `$id`. `parent`: the URI around it. */
static uri_text_t add_base(schema_t *schema, const json_t *json, const json_t *end,
                           const json_t *id, uri_text_t parent) {
  uri_text_t given = {id->text, id->length};
  const char *mark = memchr(given.text, '#', given.length);
  if (mark == given.text && given.length > 1) {
    add_anchor(schema, json, id, 1);
    return parent;
  }
  if (mark != NULL && (size_t)(mark - given.text) + 1 != given.length)
    refuse_name(schema, id, "has a fragment");
  if (mark != NULL) given.length--;
  uri_text_t uri = uri_resolve(schema->compile, parent, given);
  if (json == schema->root) {
    ((resource_t *)schema->bases->resources.items)[0].uri = uri;
    return uri;
  }
  resource_t *first = resource_named(schema, uri);
  if (first != NULL) first->is_doubled = true;
  *(resource_t *)list_add(schema->compile, &schema->bases->resources, sizeof(resource_t)) =
      (resource_t){json, end, uri, false};
  return uri;
}

/* Visits a schema and those that its keywords hold. The reader bounds the depth. */
static void visit(schema_t *schema, const json_t *json, const json_t *end, uri_text_t uri) {
  const json_t *id = json_get(json, schema->old_exclusive ? "id" : "$id");
  if (json->type != JSON_OBJECT) return;
  compile_spend(schema->compile, json->count + 1);
  bool counts = json == schema->root || !schema_ref_is_alone(schema, json);
  if (id != NULL && id->type == JSON_STRING && counts) uri = add_base(schema, json, end, id, uri);
  JSON_EACH(value, json) {
    const json_t *behind = value->next != 0 ? value + value->next : end;
    bool is_anchor = json_named(value, "$anchor") || json_named(value, "$dynamicAnchor");
    bool is_map = json_named_one_of(value, maps, ARRAY_LEN(maps)) && value->type == JSON_OBJECT;
    if (is_anchor && value->type == JSON_STRING) add_anchor(schema, json, value, 0);
    if (!is_map && !json_named_one_of(value, holders, ARRAY_LEN(holders))) continue;
    if (!is_map && value->type == JSON_OBJECT) visit(schema, value, behind, uri);
    if (!is_map && value->type != JSON_ARRAY) continue;
    JSON_EACH(child, value) {
      visit(schema, child, child->next != 0 ? child + child->next : behind, uri);
    }
  }
}

void schema_find_bases(schema_t *schema) {
  schema->bases = compile_scratch(schema->compile, 1, sizeof *schema->bases);
  const json_t *end = end_of(schema->root);
  *(resource_t *)list_add(schema->compile, &schema->bases->resources, sizeof(resource_t)) =
      (resource_t){schema->root, end, {"", 0}, false};
  visit(schema, schema->root, end, (uri_text_t){"", 0});
}

bool schema_is_base(const schema_t *schema, const json_t *json) {
  return resource_of(schema, json)->begin == json;
}

/* Returns the JSON pointer of a value of the document. */
static const char *pointer_of(const schema_t *schema, const json_t *target) {
  const json_t *at = schema->root;
  const char *pointer = "";
  while (at != target) {
    const json_t *child = json_first(at);
    uint32_t index = 0;
    char number[16];
    for (; child->next != 0 && child + child->next <= target; child += child->next) index++;
    compile_spend(schema->compile, index / 8 + 1);
    snprintf(number, sizeof number, "%u", index);
    bool named = at->type == JSON_OBJECT;
    pointer = schema_pointer(schema, pointer, named ? child->key : number,
                             named ? child->key_length : strlen(number));
    at = child;
  }
  return pointer;
}

void schema_refuse_bases(const schema_t *schema, const char *what) {
  const resource_t *resources = schema->bases->resources.items;
  if (schema->bases->resources.count == 1) return;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer_of(schema, resources[1].begin),
              "'%s' below the root is not supported for %s.", schema->old_exclusive ? "id" : "$id",
              what);
}

/* ---- references ---- */

static const json_t *anchored(const schema_t *schema, const resource_t *resource, const char *name,
                              size_t length) {
  const anchor_t *anchors = schema->bases->anchors.items;
  const resource_t *resources = schema->bases->resources.items;
  compile_spend(schema->compile, schema->bases->anchors.count / 4 + 1);
  for (uint32_t i = 0; i < schema->bases->anchors.count; i++) {
    const anchor_t *anchor = &anchors[i];
    if (&resources[anchor->resource] == resource && anchor->name->length - anchor->skip == length &&
        memcmp(anchor->name->text + anchor->skip, name, length) == 0)
      return anchor->schema;
  }
  return NULL;
}

/* Returns the resource that the part of a reference in front of its `#` names. */
static const resource_t *resource_of_reference(const schema_t *schema, const json_t *from,
                                               uri_text_t uri, const char *place,
                                               const char *quoted) {
  const resource_t *resource = resource_of(schema, from);
  if (uri.length == 0) return resource;
  resource = resource_named(schema, uri_resolve(schema->compile, resource->uri, uri));
  if (resource != NULL && resource->is_doubled)
    schema_fail(schema, ERR_INVALID_VALUE, place, "'%s' is the name of two schemas.", quoted);
  if (resource != NULL) return resource;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, place,
              "'%s' is not supported; references stay within the document.", quoted);
}

const schema_part_t *schema_resolve(const schema_t *schema, const keywords_t *keywords) {
  const json_t *ref = keywords->values[KEYWORD_REF];
  const char *place = schema_pointer_to(schema, keywords->part->pointer, "$ref");
  const char *mark = memchr(ref->text, '#', ref->length);
  size_t before = mark != NULL ? (size_t)(mark - ref->text) : ref->length;
  size_t length = ref->length - before;
  char quoted[80];
  error_quote(quoted, sizeof quoted, ref->text, ref->length);
  const resource_t *resource = resource_of_reference(
      schema, keywords->part->schema, (uri_text_t){ref->text, before}, place, quoted);
  compile_spend(schema->compile, ref->length);
  const json_t *at = resource->begin;
  if (length > 1)
    at = mark[1] == '/' ? json_schema_resolve(at, mark, length)
                        : anchored(schema, resource, mark + 1, length - 1);
  if (at == NULL) schema_fail(schema, ERR_INVALID_VALUE, place, "'%s' points nowhere.", quoted);
  if (at->type != JSON_OBJECT && at->type != JSON_TRUE && at->type != JSON_FALSE)
    schema_fail(schema, ERR_INVALID_VALUE, place, "'%s' is no schema.", quoted);
  schema_part_t *part = compile_scratch(schema->compile, 1, sizeof *part);
  *part = (schema_part_t){at, pointer_of(schema, at), 0, keywords->part};
  return part;
}
