/* test_json_schema.c: the types that a member of an object may have. */
#include "engine/base/json_schema.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t types_of(const char *schema, const char *name) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(json_parse(schema, strlen(schema), &json_limits_request, &doc, &error), 0, "%s: %s",
                schema, error.message);
  uint32_t types = json_schema_member_types(json_root(doc), name, strlen(name));
  json_free(doc);
  return types;
}

#define A(schema) "{\"type\":\"object\",\"properties\":{\"a\":" schema "}}"

Test(json_schema, types_of_a_member) {
  static const struct {
    const char *schema;
    uint32_t types;
  } rows[] = {
      {A("{\"type\":\"string\"}"), TYPE_STRING},
      {A("{\"type\":\"integer\"}"), TYPE_INTEGER},
      {A("{\"type\":\"number\"}"), TYPE_NUMBER},
      {A("{\"type\":[\"array\",\"null\"]}"), TYPE_ARRAY | TYPE_NULL},
      {A("{\"type\":[\"string\",\"null\"],\"enum\":[null,\"x\"]}"), TYPE_STRING | TYPE_NULL},
      {A("{\"enum\":[1,true]}"), TYPE_NUMBER | TYPE_BOOLEAN},
      {A("{\"type\":\"integer\",\"enum\":[1,\"x\"]}"), TYPE_INTEGER},
      {A("{\"const\":{}}"), TYPE_OBJECT},
      {A("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}"), TYPE_INTEGER | TYPE_NULL},
      {A("{\"oneOf\":[{\"type\":\"boolean\"},false]}"), TYPE_BOOLEAN},
      {A("{\"allOf\":[{\"type\":[\"integer\",\"null\"]},{\"type\":[\"null\",\"string\"]}]}"),
       TYPE_NULL},
      {A("{\"$ref\":\"#/$defs/b%20c~1d\"}},\"$defs\":{\"b c/d\":{\"type\":\"array\"}"), TYPE_ARRAY},
      {A("{\"$ref\":\"#/anyOf/1\"}},\"anyOf\":[true,{\"type\":\"array\"}],\"x\":{"), TYPE_ARRAY},
      {"{\"$ref\":\"#/$defs/o\",\"$defs\":{\"o\":" A("{\"type\":\"null\"}") "}}", TYPE_NULL},
      {"{\"allOf\":[" A("{\"type\":[\"null\",\"array\"]}") "," A("{\"type\":\"array\"}") "]}",
       TYPE_ARRAY},
      {"{\"additionalProperties\":{\"type\":\"boolean\"}}", TYPE_BOOLEAN},
      /* what says nothing is text */
      {"{}", TYPE_STRING},
      {"true", TYPE_STRING},
      {"[1]", TYPE_STRING},
      {"{\"additionalProperties\":false}", TYPE_STRING},
      {"{\"additionalProperties\":{\"type\":\"null\"},\"patternProperties\":{\"b\":{}}}",
       TYPE_STRING},
      {A("{}"), TYPE_STRING},
      {A("true"), TYPE_STRING},
      {A("{\"type\":\"int\"}"), TYPE_STRING},
      {A("{\"type\":7,\"enum\":[],\"anyOf\":{},\"$ref\":1,\"allOf\":\"x\"}"), TYPE_STRING},
      {A("{\"$ref\":\"#/nowhere\"}"), TYPE_STRING},
      {A("{\"$ref\":\"other.json\"}"), TYPE_STRING},
      {A("{\"$ref\":\"#/properties/a\"}"), TYPE_STRING},
      {"{\"properties\":{\"b\":{\"type\":\"null\"}}}", TYPE_STRING},
      {"{\"properties\":[{\"type\":\"null\"}]}", TYPE_STRING},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint32_t types = types_of(rows[i].schema, "a");
    EXPECT_EQ_FOR(types, rows[i].types, "%s: %u", rows[i].schema, types);
  }
  ASSERT_EQ(json_schema_member_types(NULL, "a", 1), TYPE_STRING);
}

/* Schemas whose alternatives double at every step, or are very many: text, after bounded work. */
Test(json_schema, hostile_schemas, .timeout = 20) {
  enum { LEVELS = 30, MANY = 400000 };
  size_t room = 16 * MANY, at = 0;
  char *text = malloc(room);
  cr_assert(text != NULL);
  at += (size_t)snprintf(text + at, room - at, "{\"properties\":{\"a\":{\"$ref\":\"#/0\"}}");
  for (int i = 0; i < LEVELS; i++) {
    at += (size_t)snprintf(text + at, room - at,
                           ",\"%d\":{\"anyOf\":[{\"$ref\":\"#/%d\"},{\"$ref\":\"#/%d\"}]}", i,
                           i + 1, i + 1);
  }
  snprintf(text + at, room - at, ",\"%d\":{\"type\":\"null\"}}", LEVELS);
  for (int i = 0; i < 100; i++) ASSERT_EQ(types_of(text, "a"), TYPE_STRING);
  at = (size_t)snprintf(text, room, "{\"properties\":{\"a\":{\"type\":\"null\"}");
  for (int i = 0; i < MANY; i++) at += (size_t)snprintf(text + at, room - at, ",\"%d\":1", i);
  snprintf(text + at, room - at, "}}");
  ASSERT_EQ(types_of(text, "a"), TYPE_STRING);
  free(text);
}
