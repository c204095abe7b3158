/* test_literals.c: arguments of calls as literals: what a schema lets a model write; and for every
 * format with tags or literals that the parser reads back arguments of the schema. */
#include "tests/engine/grammar/rig.h"

#include "engine/base/buffer.h"
#include "server/parser/output.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

TestSuite(literals, .timeout = 240);

/* The mark of a format that stands inside of its arguments, if one does. */
static const char *mark_of(const tool_format_t *format) {
  const char *word = format->tags != NULL ? format->tags->begin_key : format->literals->string_mark;
  for (const char *const *mark = format->marks; word != NULL && *mark != NULL; mark++) {
    if (strstr(word, *mark) != NULL) return *mark;
  }
  return format->marks[0];
}

static int compile(rig_t *rig, const char *format, const char *schema, bool token) {
  const tool_format_t *row = tool_format_find(format);
  json_doc_t *doc = NULL;
  if (schema != NULL) {
    int code = json_parse(schema, strlen(schema), &json_limits_request, &doc, &rig->error);
    ASSERT_EQ_FOR(code, 0, "%s: %s", schema, rig->error.message);
  }
  grammar_source_t mark = {.kind = GRAMMAR_TOKEN, .text = mark_of(row), .token = RIG_SPECIAL};
  mark.length = strlen(mark.text);
  grammar_source_t source = {
      .kind = row->tags != NULL ? GRAMMAR_PARAMETERS : GRAMMAR_LITERALS,
      .param = "tools",
      .tags = row->tags,
      .literals = row->literals,
      .children = &mark,
      .num_children = token,
  };
  if (doc != NULL) source.schema = json_root(doc);
  int code = rig_compile(rig, &source, NULL);
  json_free(doc);
  return code;
}

#define O(properties) "{\"type\":\"object\",\"properties\":{" properties "}}"
#define A(schema)                                                                                  \
  "{\"type\":\"object\",\"properties\":{\"a\":" schema                                             \
  "},\"required\":[\"a\"],\"additionalProperties\":false}"
#define Q "<|\"|>"

static const struct {
  const char *format, *schema; /* NULL = as the row before */
  const char *good, *bad;
} rows[] = {
    {"pythonic", A("{\"type\":\"integer\"}"), "a=1)", ")"},
    {NULL, NULL, "a=-7)", "a=1.5)"},
    {NULL, NULL, "a=0)", "a=1,)"},
    {NULL, NULL, "a=12)", "a=1, b=2)"},
    {"pythonic", A("{\"type\":[\"boolean\",\"null\"]}"), "a=True)", "a=true)"},
    {NULL, NULL, "a=None)", "a=null)"},
    {NULL, NULL, "a=False)", "a=\"False\")"},
    {"pythonic", A("{\"type\":\"string\"}"), "a=\"\")", "a=x)"},
    {NULL, NULL, "a=\"\\u00e9\\n\xc3\xa9\\\\ \\\"\")", "a=\"\\/\")"},
    {NULL, NULL, "a=\"/')\")", "a=\"\n\")"},
    {"pythonic", A("{\"type\":\"string\",\"maxLength\":2}"), "a=\"\xc3\xa9\\n\")", "a=\"abc\")"},
    {"pythonic", A("{\"type\":\"string\",\"pattern\":\"^[/\\n]+$\"}"), "a=\"/\\n\")", "a=\"x\")"},
    {"pythonic", A("{\"enum\":[true,null,\"True\",{\"k\":[false,\"/\"]}]}"), "a=True)", "a=true)"},
    {NULL, NULL, "a=\"True\")", "a=False)"},
    {NULL, NULL, "a={\"k\": [False, \"/\"]})", "a={\"k\": [false, \"/\"]})"},
    {"pythonic", A("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}"), "a=[True, False])",
     "a=[true])"},
    {NULL, NULL, "a=[])", "a=[1])"},
    {"pythonic", A("{\"type\":\"object\",\"properties\":{\"b c\":{\"type\":\"null\"}}}"),
     "a={\"b c\": None})", "a={\"b c\": null})"},
    {NULL, NULL, "a={\"x\": [True, {\"y\": -1e5}]})", "a={\"x\": [true]})"},
    {NULL, NULL, "a={})", "a={x: 1})"},
    {"pythonic", O("\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":\"integer\"}"), "a=1, ab=2)",
     "ab=1, ab=2)"},
    {NULL, NULL, "ab=2, abc=None, c=\"x\")", "a=1 , ab=2)"},
    {NULL, NULL, ")", "a b=2)"},
    {"pythonic", "{\"anyOf\":[" A("{\"const\":1}") "," A("{\"const\":\"x\"}") "]}", "a=1)", "a=2)"},
    {NULL, NULL, "a=\"x\")", "a=\"1\")"},
    {"pythonic",
     "{\"type\":\"object\",\"patternProperties\":{\"^x_\":{\"type\":\"null\"}},"
     "\"additionalProperties\":false}",
     "x_1=None, x_=None)", "y=None)"},
    {"pythonic",
     "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":"
     "{\"left\":{\"$ref\":\"#/$defs/t\"}},\"additionalProperties\":false}}}",
     "left={\"left\": {}})", "left=(left={}))"},
    {"gemma4", A("{\"type\":\"string\"}"), "a:" Q Q "}", "a:\"x\"}"},
    {NULL, NULL, "a:" Q "\"\\n\n'{}" Q "}", "a:" Q "x}"},
    {NULL, NULL, "a:" Q "<|\"" Q "}", "a:" Q "<|\"|>|>" Q "}"},
    {"gemma4", A("{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}"),
     "a:" Q "\xc3\xa9\n" Q "}", "a:" Q "abc" Q "}"},
    {"gemma4", A("{\"enum\":[\"x\",1,true,{\"b c\":\"y\"}]}"), "a:" Q "x" Q "}", "a:\"x\"}"},
    {NULL, NULL, "a:true}", "a:True}"},
    {NULL, NULL, "a:{\"b c\": \"y\"}}", "a:{\"b c\": \"z\"}}"},
    {"gemma4",
     A("{\"type\":\"object\",\"properties\":{\"b c\":{\"type\":\"null\"},\"d\":{}},"
       "\"additionalProperties\":{\"type\":\"integer\"}}"),
     "a:{\"b c\":null,d:" Q "x" Q ",e:1}}", "a:{\"b c\":null,\"d\":1}}"},
    {NULL, NULL, "a:{d:[true, {z:" Q Q "}],f:-2}}", "a:{d:1,d:2}}"},
    {"functiongemma", A("{\"type\":[\"string\",\"integer\"]}"), "a:<escape>1<escape>}",
     "a:<escape>1}"},
    {NULL, NULL, "a:1}", "a:true}"},
};

Test(literals, rows) {
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].schema != NULL)
      ASSERT_EQ_FOR(compile(rig, rows[i].format, rows[i].schema, false), 0, "%s: %s",
                    rows[i].schema, rig->error.message);
    cr_expect(rig_accepts(rig, rows[i].good), "row %zu: %s", i, rows[i].good);
    cr_expect(!rig_accepts(rig, rows[i].bad), "row %zu: %s", i, rows[i].bad);
  }
  ASSERT_EQ(compile(rig, "pythonic", NULL, false), 0);
  cr_expect(rig_accepts(rig, "x=[None])"));
  cr_expect(rig_accepts(rig, ")"));
  rig_free(rig);
}

Test(literals, what_is_refused) {
  static const struct {
    const char *format, *schema;
    int code;
  } refused[] = {
      {"pythonic", O("\"a b\":{}"), ERR_UNSUPPORTED_PARAMETER},
      {"gemma4", O("\"\":{}"), ERR_UNSUPPORTED_PARAMETER},
      {"pythonic", "{\"enum\":[{}]}", ERR_UNSUPPORTED_PARAMETER},
      {"pythonic", "{\"type\":\"array\"}", ERR_INVALID_VALUE},
      {"gemma4",
       A("{\"const\":\""
         "<|\\\"|>"
         "\"}"),
       ERR_INVALID_VALUE},
      {"glm45", O("\"a</arg_key>\":{}"), ERR_UNSUPPORTED_PARAMETER},
      {"glm45", O("\"\":{}"), ERR_UNSUPPORTED_PARAMETER},
      {"minimax_m2", O("\"a\\\">\":{}"), ERR_UNSUPPORTED_PARAMETER},
      {"deepseek_v32", A("{\"const\":\"</｜DSML｜parameter>\"}"), ERR_INVALID_VALUE},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    int code = compile(rig, refused[i].format, refused[i].schema, false);
    EXPECT_EQ_FOR(code, refused[i].code, "%s: %d %s", refused[i].schema, code, rig->error.message);
  }
  rig_free(rig);
}

/* ---- generated, and read back ---- */

static rig_reading_t read_back(const tool_format_t *format, const char *schema,
                               const buffer_t *text) {
  buffer_t all = {0};
  if (format->before_all != NULL) buffer_text(&all, format->before_all);
  buffer_text(&all, format->begin_name);
  buffer_text(&all, "f");
  buffer_text(&all, format->end_name);
  buffer_append(&all, text->data, text->length);
  buffer_text(&all, format->end_call);
  if (format->behind_all != NULL) buffer_text(&all, format->behind_all);
  rig_reading_t reading = rig_read_back(format, schema, &all);
  buffer_free(&all);
  return reading;
}

static bool take_id(rig_t *rig, buffer_t *text, int32_t id, const char *mark) {
  if (grammar_matcher_accept(rig->matcher, rig->scratch, id) != 0) return false;
  if (id == RIG_SPECIAL) buffer_text(text, mark);
  if (id != RIG_SPECIAL) buffer_char(text, (char)id);
  return true;
}

/* A random text of the grammar, one token of which may be the mark. It often takes what ends a
 * value, which chance alone would not hit upon. Returns false if it has become too long. */
static bool generate(rig_t *rig, const tool_format_t *format, const char *mark, uint64_t *state,
                     buffer_t *text) {
  enum { BYTES_MAX = 1500 };
  const tag_words_t *tags = format->tags;
  bool marked = format->literals != NULL && format->literals->string_mark != NULL;
  const char *const scripts[] = {tags != NULL ? tags->end_value : "\"",
                                 tags != NULL ? tags->end_call : "]}",
                                 tags != NULL ? tags->begin_key : ")",
                                 marked ? format->literals->string_mark : "\"",
                                 "\n",
                                 "null",
                                 "12",
                                 "[1"};
  rig_start(rig);
  while (!grammar_matcher_is_finished(rig->matcher)) {
    if (text->length > BYTES_MAX) return false;
    cr_assert(rig_fill(rig), "no mask behind %.*s", (int)text->length, text->data);
    if (rig_allows(rig, RIG_SPECIAL) && rig_random(state) % 4 == 0) {
      cr_assert(take_id(rig, text, RIG_SPECIAL, mark));
      continue;
    }
    if (rig_random(state) % 4 == 0) {
      const char *script = scripts[rig_random(state) % (sizeof scripts / sizeof *scripts)];
      while (*script && take_id(rig, text, (uint8_t)*script, NULL)) script++;
      continue;
    }
    int32_t allowed[257];
    int count = 0;
    for (int b = 0; b < 256; b++) {
      if (rig_allows(rig, b)) allowed[count++] = b;
    }
    if (rig_allows(rig, RIG_SPECIAL)) allowed[count++] = RIG_SPECIAL;
    ASSERT_GT(count, 0);
    cr_assert(take_id(rig, text, allowed[rig_random(state) % (uint64_t)count], mark));
  }
  return true;
}

static const char *const schemas[] = {
    A("{\"type\":\"string\"}"),
    A("{\"type\":[\"string\",\"null\",\"number\"]}"),
    A("{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"string\"],\"maxLength\":3}}"),
    A("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}"),
    A("{\"type\":\"string\",\"pattern\":\"^[a<|\\n\\\">/]+$\",\"maxLength\":9}"),
    A("{\"enum\":[\"\",\"a\\nb\",null,true,[1,\"x\"],{\"y\":false}]}"),
    O("\"a\":{\"type\":\"boolean\"},\"ab\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}"),
    A("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"minimum\":5}]}"),
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":3}",
    A("{}"),
};

static void check_format(const tool_format_t *format, rig_t *rig, rig_t *oracle, bool token,
                         uint64_t *state) {
  int finished = 0;
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    ASSERT_EQ_FOR(compile(rig, format->name, schemas[i], token), 0, "%s", rig->error.message);
    ASSERT_EQ(rig_schema(oracle, schemas[i]), 0);
    for (int round = 0; round < 12; round++) {
      buffer_t text = {0};
      if (generate(rig, format, mark_of(format), state, &text)) {
        rig_reading_t reader = read_back(format, schemas[i], &text);
        buffer_char(&reader.arguments, '\0');
        cr_assert(reader.calls == 1 && reader.others == 0, "%s: %s: %.*s", format->name, schemas[i],
                  (int)text.length, text.data);
        cr_assert(rig_accepts(oracle, reader.arguments.data), "%s: %s: %.*s: %s", format->name,
                  schemas[i], (int)text.length, text.data, reader.arguments.data);
        buffer_free(&reader.arguments);
        finished++;
      }
      buffer_free(&text);
    }
  }
  ASSERT_GT_FOR(finished, 40, "%s", format->name);
}

/* Whatever the grammar of a format writes is read back as arguments that the schema allows. */
Test(literals, what_is_written_is_read_back) {
  rig_t *rig = rig_new(), *oracle = rig_new();
  uint64_t state = 20260101;
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    if (format->tags == NULL && format->literals == NULL) continue;
    check_format(format, rig, oracle, false, &state);
    check_format(format, rig, oracle, true, &state);
  }
  rig_free(rig);
  rig_free(oracle);
}
