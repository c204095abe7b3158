/* test_parameters.c: objects whose members stand in tags: what a schema lets a model write, and
 * that whoever reads it back finds the schema's values. */
#include "tests/grammar/rig.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(parameters, .timeout = 120);

static int compile(rig_t *rig, const char *schema, bool strict) {
  json_doc_t *doc = NULL;
  if (schema) {
    int code = json_parse(schema, strlen(schema), &json_limits_request, &doc, &rig->error);
    cr_assert_eq(code, 0, "%s: %s", schema, rig->error.message);
  }
  grammar_source_t source = {.kind = GRAMMAR_PARAMETERS, .param = "tools", .strict = strict};
  if (doc) source.schema = json_root(doc);
  int code = rig_compile(rig, &source, NULL);
  json_free(doc);
  return code;
}

#define A(schema) "{\"type\":\"object\",\"properties\":{\"a\":" schema "},\"required\":[\"a\"]}"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define END "</function>"

typedef struct row {
  const char *schema; /* NULL = as the row before */
  const char *good, *bad;
} row_t;

static const row_t rows[] = {
    {A("{\"type\":\"string\"}"), P("a", "x") END, END},
    {NULL, P("a", "") END, P("a", "x")},
    {NULL, P("a", "\n \n") END, "<parameter=a>x</parameter>" END},
    {NULL, P("a", "null") END, P("a", "x") P("a", "y") END},
    {NULL, P("a", "a<b></ parameter>\xc3\xbc") END, P("a", "\xc3") END},
    {NULL, P("a", "x <parameter=b>") END, P("a", "x</parameter>") END},
    {NULL, P("a", "x </function>") END, P("a", "x\n</function>") END},
    {NULL, P("a", "\n<paramete") END, P("a", "<parameter=b>") END},
    {NULL, P("a", "x") P("other", "y") END, P("a", "x") P("oth er", "y") END},
    {A("{\"type\":\"string\",\"maxLength\":3}"), P("a", "\xe2\x82\xac\n3") END, P("a", "1234") END},
    {A("{\"type\":\"string\",\"minLength\":2}"), P("a", "12") END, P("a", "1") END},
    {NULL, P("a", "123456789") END, P("a", "") END},
    {A("{\"type\":\"string\",\"minLength\":2,\"maxLength\":2,\"pattern\":\"^[a\\\"]*$\"}"),
     P("a", "\"a") END, P("a", "\"") END},
    {NULL, P("a", "\"\"") END, P("a", "aaa") END},
    {A("{\"type\":\"string\",\"pattern\":\"x\\ny\"}"), P("a", "ax\nyb") END, P("a", "xy") END},
    {A("{\"type\":\"string\",\"format\":\"date\"}"), P("a", "2024-02-29") END,
     P("a", "2023-02-29") END},
    {A("{\"enum\":[\"p\",\"q\\\"\\n\",\"12\"]}"), P("a", "q\"\n") END, P("a", "\"p\"") END},
    {NULL, P("a", "12") END, P("a", "r") END},
    {A("{\"enum\":[\"1\",\"true\",2]}"), P("a", "true") END, P("a", "1") END},
    {NULL, P("a", "2") END, P("a", "\"true\"") END},
    {A("{\"type\":\"integer\",\"minimum\":3}"), P("a", "12") END, P("a", "2") END},
    {A("{\"type\":\"boolean\"}"), P("a", "true") END, P("a", "True") END},
    {A("{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}},\"required\":[\"x\"],"
       "\"additionalProperties\":false}"),
     P("a", "{\"x\": \"</parameter>\"}") END, P("a", "{\"x\": 1}") END},
    {A("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}"), P("a", "[null, null]") END,
     P("a", "null") END},
    {A("{\"type\":[\"string\",\"null\"]}"), P("a", "null") END, P("a", "Null") END},
    {NULL, P("a", "nullx") END, P("a", " None ") END},
    {NULL, P("a", "{}") END, P("a", "null\n") END},
    {A("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"minimum\":5}]}"), P("a", "7") END,
     P("a", "3") END},
    {NULL, P("a", "3 apples") END, P("a", " 3e1 ") END},
    {NULL, P("a", "003") END, P("a", "-0") END},
    {A("{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"object\"},{\"type\":\"array\"}]}"),
     P("a", "{\"b\": 1}") END, P("a", "{b") END},
    {NULL, P("a", "a [") END, P("a", " [1") END},
    {A("{}"), P("a", "{\"b\"") END, END},
    {A("{\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{\"type\":\"number\"}"), P("a", "-1.5e3") END,
     P("a", "x") END},
    /* order, optional and extra members */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"ab\":{\"type\":"
     "\"integer\"}"
     ",\"b\":{\"type\":\"string\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
     P("b", "x") END, P("a", "x") END},
    {NULL, P("a", "1") P("ab", "2") P("b", "3") END, P("b", "3") P("a", "1") END},
    {NULL, P("ab", "2") P("b", "3") END, P("b", "3") P("c", "x") END},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":2}",
     END, P("x", "y") END},
    {NULL, P("x", "1") P("y", "2") END, P("x", "1") P("y", "2") P("z", "3") END},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1}",
     P("x", "1") END, END},
    {"{\"type\":\"object\"}", P("x", "{") END, P("x>", "") END},
    {"{\"type\":\"object\",\"required\":[\"r\"]}", P("r", "") P("x", "1") END, P("x", "1") END},
    {"{\"$ref\":\"#/$defs/o\",\"$defs\":{\"o\":" A("{\"type\":\"integer\"}") "}}", P("a", "1") END,
     P("a", "x") END},
};

Test(parameters, rows) {
  rig_t *rig = rig_new();
  const char *schema = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const row_t *row = &rows[i];
    if (row->schema) {
      schema = row->schema;
      cr_assert_eq(compile(rig, schema, false), 0, "%s: %s", schema, rig->error.message);
    }
    cr_expect(rig_accepts(rig, row->good), "%s: %s", schema, row->good);
    cr_expect(!rig_accepts(rig, row->bad), "%s: %s", schema, row->bad);
  }
  cr_assert_eq(compile(rig, NULL, false), 0, "%s", rig->error.message);
  cr_expect(rig_accepts(rig, P("x", "1") P("y.z-0", "{") END));
  cr_expect(rig_accepts(rig, END));
  cr_expect(!rig_accepts(rig, P("x", "</parameter>") END));
  rig_free(rig);
}

Test(parameters, what_is_refused) {
  static const struct {
    const char *schema;
    int code;
    bool strict;
  } refused[] = {
      {"{\"type\":\"object\",\"patternProperties\":{\"x\":{}}}", ERR_UNSUPPORTED_PARAMETER, false},
      {"{\"anyOf\":[{\"type\":\"object\"}]}", ERR_UNSUPPORTED_PARAMETER, false},
      {"{\"enum\":[{}]}", ERR_UNSUPPORTED_PARAMETER, false},
      {"{\"type\":\"object\",\"properties\":{\"a>b\":{}}}", ERR_UNSUPPORTED_PARAMETER, false},
      {"{\"type\":\"object\",\"properties\":{\"a\\nb\":{}}}", ERR_UNSUPPORTED_PARAMETER, false},
      {"{\"type\":\"object\",\"maxLenght\":1}", ERR_UNSUPPORTED_PARAMETER, false},
      {A("{\"type\":\"int\"}"), ERR_INVALID_VALUE, false},
      {A("{\"type\":\"string\",\"enum\":[\"</parameter>\"]}"), ERR_INVALID_VALUE, false},
      {"{\"type\":\"array\"}", ERR_INVALID_VALUE, false},
      {A("{\"type\":\"string\"}"), ERR_INVALID_VALUE, true},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    int code = compile(rig, refused[i].schema, refused[i].strict);
    cr_expect_eq(code, refused[i].code, "%s: %d %s", refused[i].schema, code, rig->error.message);
  }
  rig_free(rig);
}
