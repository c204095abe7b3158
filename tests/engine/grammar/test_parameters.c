/* test_parameters.c: objects whose members stand in tags: what a schema lets a model write, and
 * that whoever reads it back finds the schema's values. */
#include "tests/engine/grammar/rig.h"

#include "engine/base/buffer.h"
#include "server/parser/output.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

TestSuite(parameters, .timeout = 120);

static int compile(rig_t *rig, const char *schema, bool strict) {
  json_doc_t *doc = NULL;
  if (schema) {
    int code = json_parse(schema, strlen(schema), &json_limits_request, &doc, &rig->error);
    ASSERT_EQ_FOR(code, 0, "%s: %s", schema, rig->error.message);
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

typedef struct value_row {
  const char *schema; /* NULL = as the row before */
  const char *good, *bad;
} value_row_t;

static const value_row_t rows[] = {
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
    {NULL, P("a", "1") P("ab", "2") P("b", "3") END, P("b", "3") P("b", "1") END},
    {NULL, P("b", "3") P("a", "1") END, P("b", "3") P("c", "x") END},
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
    const value_row_t *row = &rows[i];
    if (row->schema) {
      schema = row->schema;
      ASSERT_EQ_FOR(compile(rig, schema, false), 0, "%s: %s", schema, rig->error.message);
    }
    cr_expect(rig_accepts(rig, row->good), "%s: %s", schema, row->good);
    cr_expect(!rig_accepts(rig, row->bad), "%s: %s", schema, row->bad);
  }
  ASSERT_EQ_FOR(compile(rig, NULL, false), 0, "%s", rig->error.message);
  cr_expect(rig_accepts(rig, P("x", "1") P("y.z-0", "{") END));
  cr_expect(rig_accepts(rig, END));
  cr_expect(!rig_accepts(rig, P("x", "</parameter>") END));
  rig_free(rig);
}

/* Behind a name that is listed the name of another member goes on. */
Test(parameters, a_listed_name_is_no_dead_end) {
  rig_t *rig = rig_new();
  char name[80], schema[400], text[400];
  memset(name, 'a', sizeof name);
  for (int length = 1; length <= 70; length += 23) {
    snprintf(schema, sizeof schema,
             "{\"type\":\"object\",\"properties\":{\"%.*s\":{\"type\":\"null\"}},"
             "\"required\":[\"%.*s\"]}",
             length, name, length, name);
    snprintf(text, sizeof text, P("%.*s", "null") "<parameter=%.*s", length, name, length, name);
    ASSERT_EQ_FOR(compile(rig, schema, false), 0, "%s", rig->error.message);
    rig_start(rig);
    cr_assert(rig_feed(rig, text, strlen(text)));
    cr_assert(rig_fill(rig));
    cr_assert(!rig_allows(rig, '>'));
    cr_assert(rig_allows(rig, 'b'));
  }
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
    EXPECT_EQ_FOR(code, refused[i].code, "%s: %d %s", refused[i].schema, code, rig->error.message);
  }
  rig_free(rig);
}

/* ---- generated, and read back ---- */

/* The arguments of a call of `f` with these parameters, which end in </function>. */
static rig_reading_t read_back(const char *schema, const buffer_t *text) {
  buffer_t all = {0};
  buffer_text(&all, "<tool_call>\n<function=f>\n");
  buffer_append(&all, text->data, text->length);
  buffer_text(&all, "\n</tool_call>");
  rig_reading_t reading = rig_read_back(tool_format_find("qwen3_coder"), schema, &all);
  buffer_free(&all);
  return reading;
}

/* The mask without short cuts is the same. */
static void check_mask(rig_t *rig) {
  uint32_t full[sizeof rig->row / sizeof *rig->row] = {0}, quick[sizeof full / sizeof *full] = {0};
  matcher_walk(rig->matcher, rig->scratch, false, full);
  matcher_walk(rig->matcher, rig->scratch, true, quick);
  ASSERT_EQ(memcmp(full, quick, sizeof full), 0);
}

static bool feed_byte(rig_t *rig, buffer_t *text, uint8_t byte) {
  if (grammar_matcher_accept(rig->matcher, rig->scratch, byte) != 0) return false;
  buffer_char(text, (char)byte);
  return true;
}

/* A random text of the grammar, which ends its values now and then: nothing else would. False when
 * it has become too long. */
static bool generate(rig_t *rig, uint64_t *state, buffer_t *text) {
  enum { BYTES_MAX = 1500 };
  static const char *const scripts[] = {"\n</parameter>\n",
                                        "\n</parameter>\n",
                                        "</function",
                                        "\n<parameter",
                                        "null",
                                        "12",
                                        "{\"a",
                                        "[1",
                                        "true\n"};
  rig_start(rig);
  while (!grammar_matcher_is_finished(rig->matcher)) {
    if (text->length > BYTES_MAX) return false;
    cr_assert(rig_fill(rig), "no mask behind %.*s", (int)text->length, text->data);
    if (rig_random(state) % 16 == 0) check_mask(rig);
    if (rig_random(state) % 4 == 0) {
      const char *script = scripts[rig_random(state) % (sizeof scripts / sizeof *scripts)];
      while (*script && feed_byte(rig, text, (uint8_t)*script)) script++;
      continue;
    }
    uint8_t allowed[256];
    int count = 0;
    for (int b = 0; b < 256; b++) {
      if (rig_allows(rig, b)) allowed[count++] = (uint8_t)b;
    }
    ASSERT_GT(count, 0);
    cr_assert(feed_byte(rig, text, allowed[rig_random(state) % (uint64_t)count]));
  }
  return true;
}

/* Whatever the grammar writes is read back as arguments of the schema: those that the grammar of
 * its JSON lets through. */
Test(parameters, what_is_written_is_read_back) {
  rig_t *rig = rig_new(), *oracle = rig_new();
  uint64_t state = 0;
  ASSERT_EQ(getrandom(&state, sizeof state, 0), (ssize_t)sizeof state);
  uint64_t seed = state;
  int finished = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (!rows[i].schema) continue;
    ASSERT_EQ(compile(rig, rows[i].schema, false), 0);
    ASSERT_EQ(rig_schema(oracle, rows[i].schema), 0);
    for (int round = 0; round < 40; round++) {
      buffer_t text = {0};
      if (generate(rig, &state, &text)) {
        rig_reading_t reader = read_back(rows[i].schema, &text);
        buffer_char(&reader.arguments, '\0');
        cr_assert(reader.calls == 1 && reader.others == 0, "seed %llu: %.*s",
                  (unsigned long long)seed, (int)text.length, text.data);
        cr_assert(rig_accepts(oracle, reader.arguments.data), "seed %llu: %s: %.*s: %s",
                  (unsigned long long)seed, rows[i].schema, (int)text.length, text.data,
                  reader.arguments.data);
        buffer_free(&reader.arguments);
        finished++;
      }
      buffer_free(&text);
    }
  }
  ASSERT_GT(finished, 200);
  rig_free(rig);
  rig_free(oracle);
}
