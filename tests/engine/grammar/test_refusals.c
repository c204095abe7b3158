/* test_refusals.c: everything that is not enforced exactly is refused by name and place. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <string.h>

typedef struct refusal {
  const char *schema;
  int code;
  const char *says[2];
} refusal_t;

static const refusal_t schemas[] = {
    {"{\"maxLenght\":3}", ERR_UNSUPPORTED_PARAMETER, {"'maxLenght'", "'/'"}},
    {"{\"properties\":{\"a\":{\"not\":{}}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'not'", "/properties/a"}},
    {"{\"if\":{}}", ERR_UNSUPPORTED_PARAMETER, {"'if'"}},
    {"{\"dependentRequired\":{}}", ERR_UNSUPPORTED_PARAMETER, {"'dependentRequired'"}},
    {"{\"contains\":{}}", ERR_UNSUPPORTED_PARAMETER, {"'contains'"}},
    {"{\"propertyNames\":{}}", ERR_UNSUPPORTED_PARAMETER, {"'propertyNames'"}},
    {"{\"unevaluatedProperties\":false}", ERR_UNSUPPORTED_PARAMETER, {"'unevaluatedProperties'"}},
    {"{\"$dynamicRef\":\"#a\"}", ERR_UNSUPPORTED_PARAMETER, {"'$dynamicRef'"}},
    {"{\"$anchor\":\"a\"}", ERR_UNSUPPORTED_PARAMETER, {"'$anchor'"}},
    {"{\"$ref\":\"http://x/y\"}", ERR_UNSUPPORTED_PARAMETER, {"http://x/y", "/$ref"}},
    {"{\"$ref\":\"#/nowhere\"}", ERR_INVALID_VALUE, {"points nowhere", "/$ref"}},
    {"{\"$ref\":\"#/type\",\"type\":\"null\"}", ERR_INVALID_VALUE, {"is no schema"}},
    {"{\"$ref\":\"#\"}", ERR_INVALID_VALUE, {"refers to itself"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", ERR_INVALID_VALUE, {"refers to itself"}},
    {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}",
     ERR_UNSUPPORTED_PARAMETER,
     {"/$schema"}},
    {"{\"properties\":{\"a\":{\"$id\":\"x\"}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'$id'", "/properties/a"}},
    {"{\"items\":[{}]}", ERR_INVALID_VALUE, {"/items"}},
    {"{\"additionalItems\":false}", ERR_UNSUPPORTED_PARAMETER, {"'additionalItems'"}},
    {"{\"type\":\"text\"}", ERR_INVALID_VALUE, {"/type"}},
    {"{\"type\":3}", ERR_INVALID_VALUE, {"/type"}},
    {"{\"required\":[1]}", ERR_INVALID_VALUE, {"/required"}},
    {"{\"minLength\":-1}", ERR_INVALID_VALUE, {"/minLength"}},
    {"{\"minItems\":1.5}", ERR_INVALID_VALUE, {"/minItems"}},
    {"{\"minLength\":100000}", ERR_BAD_REQUEST, {"'minLength'"}},
    {"{\"exclusiveMinimum\":true}", ERR_INVALID_VALUE, {"/exclusiveMinimum"}},
    {"{\"enum\":[]}", ERR_INVALID_VALUE, {"/enum"}},
    {"{\"anyOf\":[]}", ERR_INVALID_VALUE, {"/anyOf"}},
    {"{\"multipleOf\":0}", ERR_INVALID_VALUE, {"/multipleOf"}},
    {"{\"multipleOf\":0.000000001234567}", ERR_UNSUPPORTED_PARAMETER, {"multipleOf"}},
    {"{\"type\":\"integer\",\"multipleOf\":123456}", ERR_UNSUPPORTED_PARAMETER, {"multipleOf"}},
    {"{\"format\":\"iri\"}", ERR_UNSUPPORTED_PARAMETER, {"'iri'", "/format"}},
    {"{\"pattern\":\"(?=a)\"}", ERR_UNSUPPORTED_PARAMETER, {"look-ahead", "/pattern"}},
    {"{\"pattern\":\"(?<!a)b\"}", ERR_UNSUPPORTED_PARAMETER, {"look-behind"}},
    {"{\"pattern\":\"(a)\\\\1\"}", ERR_UNSUPPORTED_PARAMETER, {"back reference"}},
    {"{\"pattern\":\"\\\\bword\"}", ERR_UNSUPPORTED_PARAMETER, {"word boundary"}},
    {"{\"pattern\":\"\\\\p{L}\"}", ERR_UNSUPPORTED_PARAMETER, {"Unicode property"}},
    {"{\"pattern\":\"(?i)a\"}", ERR_UNSUPPORTED_PARAMETER, {"group or flag"}},
    {"{\"pattern\":\"a(\"}", ERR_INVALID_VALUE, {"no end"}},
    {"{\"type\":\"array\",\"uniqueItems\":true}", ERR_UNSUPPORTED_PARAMETER, {"'uniqueItems'"}},
    {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
     ERR_UNSUPPORTED_PARAMETER,
     {"disjoint", "/oneOf"}},
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     ERR_UNSUPPORTED_PARAMETER,
     {"disjoint"}},
    {"{\"enum\":[{\"a\":1}],\"properties\":{\"a\":{}}}", ERR_UNSUPPORTED_PARAMETER, {"enum"}},
    /* nothing can satisfy these */
    {"false", ERR_INVALID_TYPE, {"schema"}},
    {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":3}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":4,\"exclusiveMaximum\":5}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":6,\"multipleOf\":7}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"string\",\"pattern\":\"^a{5}$\",\"maxLength\":3}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"string\",\"enum\":[1,2]}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"const\":1,\"enum\":[2]}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"object\",\"minProperties\":3}", ERR_UNSUPPORTED_PARAMETER, {"'minProperties'"}},
    {"{\"type\":\"object\",\"minProperties\":3,\"additionalProperties\":false}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":0}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"array\",\"items\":false,\"minItems\":1}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"}},\"required\":[\"n\"]}",
     ERR_INVALID_VALUE,
     {"No text"}},
};

Test(refusals, schemas) {
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    const refusal_t *r = &schemas[i];
    int code = rig_schema(rig, r->schema);
    ASSERT_EQ_FOR(code, r->code, "%s: %d, %s", r->schema, code, rig->error.message);
    ASSERT_STR_EQ(rig->error.param, "response_format");
    for (int k = 0; k < 2 && r->says[k]; k++) {
      cr_assert_not_null(strstr(rig->error.message, r->says[k]), "%s: '%s' is not in '%s'",
                         r->schema, r->says[k], rig->error.message);
    }
  }
  rig_free(rig);
}

Test(refusals, annotations_and_vendor_names_are_ignored) {
  rig_t *rig = rig_new();
  ASSERT_EQ_FOR(rig_schema(rig,
                           "{\"$id\":\"u\",\"title\":\"t\",\"description\":\"d\",\"default\":1,"
                           "\"examples\":[1],\"$comment\":\"c\",\"deprecated\":true,"
                           "\"readOnly\":true,\"x-vendor\":{\"not\":1},\"type\":\"null\"}"),
                0, "%s", rig->error.message);
  cr_assert(rig_accepts(rig, "null"));
  rig_free(rig);
}

static const refusal_t strict[] = {
    {"{\"type\":\"object\",\"properties\":{}}", ERR_INVALID_VALUE, {"'additionalProperties'"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":"
     "false}",
     ERR_INVALID_VALUE,
     {"'required'", "Missing 'a'"}},
    {"{\"type\":\"string\"}", ERR_INVALID_VALUE, {"\"object\""}},
    {"{\"anyOf\":[{\"type\":\"object\"}]}", ERR_INVALID_VALUE, {"anyOf"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{}]}},\"required\":[\"a\"],"
     "\"additionalProperties\":false}",
     ERR_INVALID_VALUE,
     {"'allOf'", "/properties/a"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\"}}},"
     "\"required\":[\"a\"],\"additionalProperties\":false}",
     ERR_INVALID_VALUE,
     {"/properties/a/items"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"],\"additionalProperties\":"
     "false}",
     ERR_INVALID_VALUE,
     {"'type'"}},
};

Test(refusals, strict_schemas) {
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof strict / sizeof *strict; i++) {
    const refusal_t *r = &strict[i];
    ASSERT_EQ_FOR(rig_strict(rig, r->schema), r->code, "%s: %s", r->schema, rig->error.message);
    for (int k = 0; k < 2 && r->says[k]; k++) {
      cr_assert_not_null(strstr(rig->error.message, r->says[k]), "%s: '%s' is not in '%s'",
                         r->schema, r->says[k], rig->error.message);
    }
  }
  ASSERT_EQ_FOR(rig_strict(rig,
                           "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\","
                           "\"null\"]},\"b\":{\"$ref\":\"#/$defs/x\"}},\"required\":[\"a\",\"b\"],"
                           "\"additionalProperties\":false,\"$defs\":{\"x\":{\"enum\":[1,2]}}}"),
                0, "%s", rig->error.message);
  cr_assert(rig_accepts(rig, "{\"a\":null,\"b\":2}"));
  rig_free(rig);
}
