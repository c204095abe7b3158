/* test_refusals.c: everything that is not enforced exactly is refused by name and place. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include "engine/grammar/language/keywords.h"

#include <stdio.h>
#include <string.h>

typedef struct refusal {
  const char *schema;
  int code;
  const char *says[2];
} refusal_t;

static const refusal_t schemas[] = {
    {"{\"maxLenght\":3}", ERR_UNSUPPORTED_PARAMETER, {"'maxLenght'", "did you mean 'maxLength'"}},
    {"{\"items\":{\"patern\":\"a\"}}", ERR_UNSUPPORTED_PARAMETER, {"'patern'", "'/items'"}},
    {"{\"propertyName\":{}}", ERR_UNSUPPORTED_PARAMETER, {"did you mean 'propertyNames'"}},
    {"{\"maxProprties\":3}", ERR_UNSUPPORTED_PARAMETER, {"did you mean 'maxProperties'"}},
    {"{\"properties\":{\"a\":{\"not\":{\"format\":\"date\"}}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'format'", "/properties/a/not"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2]},\"not\":{\"prefixItems\":"
     "["
     "true],\"items\":{\"const\":1}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'", "/not"}},
    {"{\"allOf\":[{\"not\":{\"patternProperties\":{\"a\":false}}},{\"not\":{\"patternProperties\":{"
     "\"b\":false}}},{\"not\":{\"patternProperties\":{\"c\":false}}},{\"not\":{"
     "\"patternProperties\":{\"d\":false}}}]}",
     ERR_UNSUPPORTED_PARAMETER,
     {"more than 3 names"}},
    {"{\"not\":{\"$ref\":\"#\"}}", ERR_INVALID_VALUE, {"refers to itself"}},
    {"{\"not\":3}", ERR_INVALID_VALUE, {"/not"}},
    {"{\"dependencies\":{\"a\":3}}", ERR_INVALID_VALUE, {"/dependencies"}},
    {"{\"contains\":3}", ERR_INVALID_VALUE, {"/contains"}},
    {"{\"contains\":{},\"minContains\":-1}", ERR_INVALID_VALUE, {"/minContains"}},
    {"{\"contains\":{},\"minContains\":40}", ERR_UNSUPPORTED_PARAMETER, {"'minContains'", "32"}},
    {"{\"properties\":{\"a\":{\"contains\":{\"format\":\"date\"},\"maxContains\":1}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'format'", "/properties/a/contains"}},
    {"{\"contains\":{},\"minItems\":9000}", ERR_UNSUPPORTED_PARAMETER, {"'contains'", "8192"}},
    {"{\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}},{\"contains\":{"
     "\"const\":3}},{\"contains\":{\"const\":4}}]}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'contains'", "at most 3"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"contains\":{},"
     "\"minContains\":0}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'minContains'", "dialect"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"maxItems\":0}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"array\",\"contains\":false}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"propertyNames\":3}", ERR_INVALID_VALUE, {"/propertyNames"}},
    {"{\"not\":{\"uniqueItems\":true}}", ERR_UNSUPPORTED_PARAMETER, {"'uniqueItems'", "/not"}},
    {"{\"propertyNames\":{\"maxLength\":50000}}", ERR_BAD_REQUEST, {"propertyNames"}},
    {"{\"contains\":{},\"unevaluatedItems\":false}", ERR_UNSUPPORTED_PARAMETER, {"'contains'"}},
    {"{\"unevaluatedProperties\":3}", ERR_INVALID_VALUE, {"/unevaluatedProperties"}},
    {"{\"not\":{\"unevaluatedProperties\":false}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'unevaluatedProperties'", "/not"}},
    {"{\"not\":{\"unevaluatedItems\":false}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'unevaluatedItems'", "/not"}},
    {"{\"anyOf\":[{\"items\":{\"type\":\"null\"}},{\"prefixItems\":[true],\"uniqueItems\":true}],"
     "\"unevaluatedItems\":false}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'", "/anyOf/1"}},
    {"{\"anyOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}},{\"properties\":{\"c\":{}"
     "}},"
     "{\"properties\":{\"d\":{}}},{\"properties\":{\"e\":{}}},{\"properties\":{\"f\":{}}}],"
     "\"unevaluatedProperties\":false}",
     ERR_UNSUPPORTED_PARAMETER,
     {"at most 5 branches of 'anyOf'"}},
    {"{\"$dynamicRef\":\"#a\"}", ERR_UNSUPPORTED_PARAMETER, {"'$dynamicRef'"}},
    {"{\"$ref\":\"http://x/y\"}", ERR_UNSUPPORTED_PARAMETER, {"http://x/y", "/$ref"}},
    {"{\"$ref\":\"#/nowhere\"}", ERR_INVALID_VALUE, {"points nowhere", "/$ref"}},
    {"{\"$ref\":\"#/type\",\"type\":\"null\"}", ERR_INVALID_VALUE, {"is no schema"}},
    {"{\"$ref\":\"#\"}", ERR_INVALID_VALUE, {"refers to itself"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", ERR_INVALID_VALUE, {"refers to itself"}},
    {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}",
     ERR_UNSUPPORTED_PARAMETER,
     {"/$schema"}},
    {"{\"items\":[{}]}", ERR_INVALID_VALUE, {"/items"}},
    {"{\"prefixItems\":[{}],\"$schema\":\"http://json-schema.org/draft-07/schema#\"}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'prefixItems'"}},
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
    {"{\"pattern\":\"(?<=a$)\"}", ERR_UNSUPPORTED_PARAMETER, {"look-behind", "/pattern"}},
    {"{\"pattern\":\"(a)\\\\1\"}", ERR_UNSUPPORTED_PARAMETER, {"back reference"}},
    {"{\"pattern\":\"\\\\p{Latn1}\"}", ERR_UNSUPPORTED_PARAMETER, {"Unicode property"}},
    {"{\"pattern\":\"(?x)a\"}", ERR_UNSUPPORTED_PARAMETER, {"group or flag"}},
    {"{\"pattern\":\"a(\"}", ERR_INVALID_VALUE, {"no end"}},
    {"{\"type\":\"array\",\"uniqueItems\":true}", ERR_UNSUPPORTED_PARAMETER, {"'uniqueItems'"}},
    {"{\"properties\":{\"a\":{\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":16},"
     "\"uniqueItems\":true}}}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'", "/properties/a"}},
    {"{\"items\":{\"enum\":[1e50,1.0e50]},\"uniqueItems\":true}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'"}},
    {"{\"items\":{\"type\":\"integer\",\"minimum\":3},\"uniqueItems\":true}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'"}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'uniqueItems'"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true,\"minItems\":3}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":1}],\"uniqueItems\":true,"
     "\"items\":{\"enum\":[2]},\"minItems\":2}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"format\":\"date\"}]}",
     ERR_UNSUPPORTED_PARAMETER,
     {"'format'", "/oneOf/1"}},
    /* nothing can satisfy these */
    {"{\"not\":{}}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"not\":{\"type\":[\"null\",\"number\"]},\"type\":\"integer\"}",
     ERR_INVALID_VALUE,
     {"No text"}},
    {"{\"oneOf\":[{\"type\":\"null\"},{\"const\":null}]}", ERR_INVALID_VALUE, {"No text"}},
    {"{\"required\":[\"a\"],\"not\":{\"required\":[\"a\"]}}", ERR_INVALID_VALUE, {"No text"}},
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

/* Every keyword of the table that is not built is refused by name, wherever it stands. */
Test(refusals, keywords_that_are_not_built) {
  static const char *const names[] = {
#define X(text) text,
      KEYWORDS_NOT_BUILT(X)
#undef X
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char text[160], word[64];
    snprintf(text, sizeof text, "{\"properties\":{\"a\":{\"%s\":true}}}", names[i]);
    snprintf(word, sizeof word, "at '/properties/a': the keyword '%s'", names[i]);
    ASSERT_EQ_FOR(rig_schema(rig, text), ERR_UNSUPPORTED_PARAMETER, "%s", text);
    cr_assert_not_null(strstr(rig->error.message, word), "%s", rig->error.message);
  }
  rig_free(rig);
}

/* A name that no draft defines restricts nothing, and is listed once. */
Test(refusals, unknown_names_are_listed) {
  static const struct {
    const char *schema, *listed;
  } rows[] = {
      {"{\"type\":\"null\"}", ""},
      {"{\"markdownDescription\":\"m\",\"type\":\"null\",\"nullable\":true}",
       "markdownDescription,nullable"},
      {"{\"_format\":\"date\",\"_uniqueItems\":true}", "_format,_uniqueItems"},
      {"{\"additionalItems\":false,\"form\":1}", "additionalItems,form"},
      {"{\"anyOf\":[{\"type\":\"null\",\"links\":[]},{\"const\":1,\"links\":1}],\"_u\":{\"not\":1}"
       "}",
       "_u,links"},
      {"{\"type\":\"null\",\"readonly\":true,\"self\":1,\"name\":2,\"version\":3}",
       "readonly,self,name,version"},
      {"{\"type\":\"null\",\"a,b\":1,\"c d\":1,\"\\u00e9\":1}", "a?b,c?d,??"},
      {"{\"type\":[\"null\",\"integer\",\"string\"],\"format\":\"int32\"}", "format:int32"},
      {"{\"type\":\"null\",\"MAXLENGTH\":1}", "MAXLENGTH"},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(rig_schema(rig, rows[i].schema), 0, "%s", rig->error.message);
    ASSERT_STR_EQ_FOR(grammar_ignored(rig->grammar), rows[i].listed, "%s", rows[i].schema);
    cr_assert(rig_accepts(rig, "null"));
  }
  ASSERT_EQ(rig_schema(rig, "{\"type\":\"string\",\"format\":\"byte\"}"), 0);
  cr_assert(rig_accepts(rig, "\"any text\""));
  rig_free(rig);
}

Test(refusals, the_list_of_unknown_names_has_a_bound) {
  rig_t *rig = rig_new();
  char text[4096];
  for (int width = 1; width <= 61; width += 20) {
    size_t used = (size_t)snprintf(text, sizeof text, "{\"type\":\"null\"");
    for (int i = 0; i < 30; i++) {
      used += (size_t)snprintf(text + used, sizeof text - used, ",\"%0*d\":1", width + 2, i);
    }
    snprintf(text + used, sizeof text - used, "}");
    ASSERT_EQ_FOR(rig_schema(rig, text), 0, "%s", rig->error.message);
    const char *listed = grammar_ignored(rig->grammar);
    int names = 1;
    for (const char *c = listed; *c != '\0'; c++) names += *c == ',';
    int expected = 513 / (width + 3) < 16 ? 513 / (width + 3) : 16;
    ASSERT_EQ_FOR(names, expected, "%s", listed);
    ASSERT_LE(strlen(listed), 512);
  }
  rig_free(rig);
}

Test(refusals, unknown_names_where_only_known_ones_may_stand) {
  rig_t *rig = rig_new();
  json_doc_t *doc = NULL;
  static const char *const rows[] = {"{\"type\":\"null\",\"nullable\":true}",
                                     "{\"type\":\"string\",\"format\":\"byte\"}",
                                     "{\"$schema\":\"http://json-schema.org/draft-07/schema#\","
                                     "\"$ref\":\"#/definitions/a\",\"minimum\":1,"
                                     "\"definitions\":{\"a\":{\"type\":\"integer\"}}}"};
  for (int known_only = 0; known_only < 2; known_only++) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      ASSERT_EQ(json_parse(rows[i], strlen(rows[i]), &json_limits_request, &doc, &rig->error), 0);
      grammar_source_t source = {.kind = GRAMMAR_JSON_SCHEMA,
                                 .param = "p",
                                 .schema = json_root(doc),
                                 .known_only = known_only};
      int code = rig_compile(rig, &source, NULL);
      ASSERT_EQ_FOR(code, known_only ? ERR_UNSUPPORTED_PARAMETER : 0, "%s", rig->error.message);
      json_free(doc);
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
  ASSERT_STR_EQ(grammar_ignored(rig->grammar), "");
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
