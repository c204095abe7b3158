/* json_schema.h: simple questions about a JSON schema: where a reference points, and which types a
 * member may have.
 *
 * Shared by the compiler of grammars and the parser of tool calls. Both must agree on the type of a
 * value that is written outside of JSON. No state, any thread; bounded work for any schema.
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

/* Returns the TYPE_ bits of a type name of JSON Schema; 0 = no such type. */
uint32_t json_schema_types(const char *type, size_t length);
/* Returns the value that a reference, "#" or "#/...", points at; NULL if there is none. */
const json_t *json_schema_resolve(const json_t *root, const char *reference, size_t length);
/* Returns the types that member `name` of an object may have by `schema` (NULL = no schema): all
 * types that the schema allows, and perhaps more. Returns TYPE_STRING alone if the schema does not
 * restrict the types, allows none, or is too large to evaluate. */
uint32_t json_schema_member_types(const json_t *schema, const char *name, size_t length);

#endif
