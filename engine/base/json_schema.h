/* json_schema.h: what a JSON schema says without a grammar: where references point, which types a
 * member may have.
 *
 * Shared by the compiler of grammars and the parser of tool calls, which have to agree on how a
 * value that stands outside JSON is read. No state, any thread; bounded work whatever the schema.
 */
#ifndef INFERD_ENGINE_BASE_JSON_SCHEMA_H
#define INFERD_ENGINE_BASE_JSON_SCHEMA_H

#include "engine/base/json.h"

/* Sets of types. */
enum {
  TYPE_NULL = 1,
  TYPE_BOOLEAN = 2,
  TYPE_STRING = 4,
  TYPE_INTEGER = 8,
  TYPE_FRACTION = 16, /* numbers that are not integers */
  TYPE_ARRAY = 32,
  TYPE_OBJECT = 64,
  TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
  TYPE_ALL = 127
};

/* The types of a value of `type`; 0 = no such type. */
uint32_t json_schema_types(const char *type, size_t length);
/* What a reference, "#" or "#/...", points at; NULL = nothing. */
const json_t *json_schema_resolve(const json_t *root, const char *reference, size_t length);
/* The types that member `name` of an object may have under `schema` (NULL = none is known), never
 * fewer than the schema lets through. TYPE_STRING alone when it says nothing of them, or is too
 * large to tell. */
uint32_t json_schema_member_types(const json_t *schema, const char *name, size_t length);

#endif
