/* test_constraints.c: what a request says about its output reaches the engine as one grammar. */
#include "engine/grammar/language/keywords.h"
#include "tests/expect.h"
#include "tests/server/api/calls.h"
#include "tests/server/api/fake.h"
#include "tests/server/api/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(constraints, .init = fake_start, .fini = fake_stop, .timeout = 60);

/* May the grammar of the only request write this text, and end there? */
static bool allows(const char *text) {
  const request_t *request = fake_engine.requests[0];
  cr_assert(request->grammar != NULL);
  grammar_matcher_t *matcher = aligned_alloc(64, (grammar_matcher_bytes() + 63) / 64 * 64);
  grammar_scratch_t *scratch = aligned_alloc(64, (grammar_scratch_bytes() + 63) / 64 * 64);
  memset(matcher, 0, grammar_matcher_bytes());
  memset(scratch, 0, grammar_scratch_bytes());
  int code = grammar_matcher_start(matcher, scratch, request->grammar,
                                   engine_grammar_vocabulary(server.engine));
  for (size_t i = 0; code == 0 && i < strlen(text); i++) {
    code = grammar_matcher_accept(matcher, scratch, (uint8_t)text[i]);
  }
  bool accepting = code == 0 && grammar_matcher_is_accepting(matcher);
  free(matcher);
  free(scratch);
  return accepting;
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define FIXED                                                                                      \
  "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"],"             \
  "\"additionalProperties\":false}"
#define TOOL(name, more) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"" more "}}"

static fake_exchange_t *complete(const char *fields) {
  char body[1024];
  snprintf(body, sizeof body, "{\"prompt\":[1,2]%s}", fields);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  return exchange;
}

static fake_exchange_t *chat(const char *fields) {
  char body[1024];
  snprintf(body, sizeof body, "{" USER "%s}", fields);
  fake_exchange_t *exchange = fake_call(api_chat_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  return exchange;
}

static void end(fake_exchange_t *exchange) {
  fake_finish_all();
  fake_exchange_free(exchange);
}

typedef struct row {
  const char *fields, *good, *bad;
} row_t;

Test(constraints, every_name) {
  static const row_t rows[] = {
      {",\"structured_outputs\":{\"regex\":\"a+b\"}", "aab", "b"},
      {",\"guided_regex\":\"a+b\"", "ab", "aa"},
      {",\"regex\":\"a+b\"", "ab", "abc"},
      {",\"structured_outputs\":{\"choice\":[\"yes\",\"no\"]}", "no", "nope"},
      {",\"guided_choice\":[\"yes\",\"no\"]", "yes", "y"},
      {",\"response_format\":{\"type\":\"json_object\"}", "{\"b\": [null]}", "[]"},
      {",\"structured_outputs\":{\"json_object\":true,\"regex\":null}", "{}", "1"},
      {",\"response_format\":{\"type\":\"json_object\",\"schema\":" FIXED "}", "{\"a\": 1}", "{}"},
      {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
       "true,\"schema\":" FIXED "}}",
       "{\"a\":2}", "{\"a\":3}"},
      {",\"structured_outputs\":{\"json\":" FIXED "}", "{\"a\":1}", "{\"b\":1}"},
      {",\"guided_json\":" FIXED, "{\"a\":1}", "{"},
      {",\"json_schema\":\"{\\\"enum\\\":[\\\"x\\\"]}\"", "\"x\"", "\"y\""},
      {",\"structured_outputs\":{\"grammar\":\"root ::= \\\"a\\\" | \\\"b\\\"\"}", "b", "c"},
      {",\"guided_grammar\":\"root ::= \\\"a\\\" | \\\"b\\\"\"", "a", ""},
      {",\"grammar\":\"root ::= \\\"a\\\" | \\\"b\\\"\"", "a", "ab"},
      {",\"ebnf\":\"root ::= \\\"a\\\" | \\\"b\\\"\"", "a", "ab"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    for (int route = 0; route < 2; route++) {
      fake_exchange_t *exchange = route == 0 ? complete(rows[i].fields) : chat(rows[i].fields);
      cr_assert(allows(rows[i].good), "%s", rows[i].fields);
      cr_assert(!allows(rows[i].bad), "%s", rows[i].fields);
      end(exchange);
    }
  }
}

#define TAGGED(format) ",\"response_format\":{\"type\":\"structural_tag\",\"format\":" format "}"
#define KIND(name, more) "{\"type\":\"" name "\"," more "}"
#define CONST(text) KIND("const_string", "\"value\":\"" text "\"")
#define ANY "{\"type\":\"any_text\"}"
#define TAG(begin, content, end)                                                                   \
  KIND("tag", "\"begin\":\"" begin "\",\"content\":" content ",\"end\":" end)
#define TRIGGERED(more)                                                                            \
  KIND("triggered_tags",                                                                           \
       "\"triggers\":[\"<f\",\"<g\"],\"tags\":[" TAG("<f1>", SCHEMA, "\"</f>\"") "," TAG(          \
           "<f2>", CONST("x"), "[\"!\",\"?\"]") "," TAG("<g>", ANY, "\"</g>\"") "]" more)
#define SCHEMA KIND("json_schema", "\"json_schema\":" FIXED)
#define OLD                                                                                        \
  "{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"<fn=a>\",\"schema\":" FIXED           \
  ",\"end\":\"</fn>\"}],\"triggers\":[\"<fn=\"]}"

static const struct {
  const char *fields, *good[6], *bad[8];
} tag_rows[] = {
    {",\"response_format\":" OLD,
     {"", "some text", "a <fn=a>{\"a\":1}</fn> b <fn=a>{\"a\":2}</fn>", "<fn",
      "<fn<fn=a>{\"a\":1}</fn>"},
     {"<fn=", "<fn=b>", "<fn=a>{\"a\":3}</fn>", "<fn=a>{\"a\":1}</fn", "x <fn=a> {"}},
    {",\"structured_outputs\":{\"structural_tag\":" OLD "}", {"x<fn=a>{\"a\":1}</fn>"}, {"<fn=a>"}},
    {",\"structured_outputs\":{\"structural_tag\":\"{\\\"type\\\":\\\"structural_tag\\\","
     "\\\"format\\\":{\\\"type\\\":\\\"regex\\\",\\\"pattern\\\":\\\"a+\\\"}}\"}",
     {"aa"},
     {"b"}},
    {TAGGED(CONST("a<")), {"a<"}, {"a", "a<a<"}},
    {TAGGED(SCHEMA), {"{\"a\":1}"}, {"{\"a\":3}"}},
    {TAGGED(KIND("grammar", "\"grammar\":\"root ::= \\\"a\\\" root?\"")), {"aa"}, {"", "b"}},
    {TAGGED(KIND("any_text", "\"excludes\":[\"ab\",\"cd\"]")),
     {"", "acbd", "a"},
     {"xab", "cd", "aab"}},
    {TAGGED(KIND("sequence", "\"elements\":[" CONST("1") "," ANY "," CONST("2") "]")),
     {"12", "1x2", "122"},
     {"1", "2", "13"}},
    {TAGGED(KIND("or", "\"elements\":[" CONST("1") "," CONST("2") "]")), {"1", "2"}, {"", "12"}},
    {TAGGED(KIND("optional", "\"content\":" CONST("1"))), {"", "1"}, {"11"}},
    {TAGGED(KIND("plus", "\"content\":" CONST("1"))), {"1", "111"}, {""}},
    {TAGGED(KIND("star", "\"content\":" CONST("1"))), {"", "111"}, {"2"}},
    {TAGGED(KIND("repeat", "\"min\":2,\"max\":3,\"content\":" CONST("1"))),
     {"11", "111"},
     {"1", "1111"}},
    {TAGGED(KIND("repeat", "\"min\":1,\"max\":-1,\"content\":" CONST("1"))), {"1", "11111"}, {""}},
    /* the first end ends the text, also where it overlaps itself */
    {TAGGED(TAG("<", ANY, "\"aba\"")), {"<aba", "<xaba"}, {"<", "<ab", "<ababa", "<abaaba"}},
    {TAGGED(TAG("<", ANY, "[\"a>\",\"b>\"]")), {"<xa>", "<>b>"}, {"<xa>b>", "<x>"}},
    {TAGGED(TAG("<", KIND("or", "\"elements\":[" ANY "," CONST("1") "]"), "\">\"")),
     {"<x>", "<1>"},
     {"<x>>", "<x"}},
    {TAGGED(TAG("<", KIND("sequence", "\"elements\":[" ANY "," CONST("2") "]"), "\">\"")),
     {"<2>", "<x2>"},
     {"<x>2>", "<x>"}},
    {TAGGED(TAG("<", KIND("optional", "\"content\":" ANY), "\">\"")), {"<>", "<x>"}, {"<>>"}},
    {TAGGED(TAG("<", ANY, "\"\"")), {"<", "<x"}, {"", "x"}},
    {TAGGED(KIND("star", "\"content\":" TAG("<", ANY, "\">\""))), {"", "<><a>"}, {"<", "a"}},
    {TAGGED(TRIGGERED("")),
     {"", "a < b", "1<f1>{\"a\":1}</f>2<f2>x?3<g>any <f thing</g>4", "<<g></g>", "<f2>x!<f2>x!"},
     {"<f", "<f3>", "<g", "<g></g", "<f2>y!", "<f1>{\"a\":1}</f", "<g></g><f"}},
    {TAGGED(TRIGGERED(",\"at_least_one\":true")),
     {"<f2>x!", "<g></g>text<f2>x!"},
     {"", "text", "a<f2>x!", "<f"}},
    {TAGGED(TRIGGERED(",\"stop_after_first\":true")),
     {"", "text", "a<f2>x!"},
     {"a<f2>x!b", "<f2>x!<f2>x!", "<f2"}},
    {TAGGED(TRIGGERED(",\"at_least_one\":true,\"stop_after_first\":true")),
     {"<f2>x!", "<g> </g>"},
     {"", "a<f2>x!", "<f2>x!b"}},
    {TAGGED(TRIGGERED(",\"excludes\":[\"bad\"]")), {"ba<g>bad</g>d"}, {"bad", "<g></g>bad"}},
    {TAGGED(TAG("[", TRIGGERED(""), "\"]\"")),
     {"[]", "[a<f2>x?b]", "[<g>]</g>]"},
     {"[a]b", "[<f]", "[]]", "[a]<f2>x?]", "["}},
    {TAGGED(KIND("tags_with_separator",
                 "\"separator\":\", \",\"tags\":[" TAG("<", ANY, "\">\"") "," TAG("a", CONST("1"),
                                                                                  "\"b\"") "]")),
     {"", "<x>", "<x>, a1b, <>"},
     {"<x>,", "<x>a1b", ", ", "a"}},
    {TAGGED(KIND("tags_with_separator",
                 "\"separator\":\"\",\"at_least_one\":true,"
                 "\"stop_after_first\":true,\"tags\":[" TAG("a", CONST("1"), "\"b\"") "]")),
     {"a1b"},
     {"", "a1ba1b"}},
    {TAGGED(KIND("dispatch", "\"rules\":[[\"<1>\"," SCHEMA "],[\"<2>\"," CONST("x") "]]")),
     {"", "a<1>{\"a\":1}b<2>x", "<2>x<2>x"},
     {"<1>", "<2>y", "a<1>x"}},
    {TAGGED(KIND("dispatch",
                 "\"rules\":[[\"<\"," CONST("x") "]],\"loop\":false,\"excludes\":[\"y\"]")),
     {"", "a<x"},
     {"a<xb", "<y", "y"}},
};

Test(constraints, structural_tags) {
  char body[4096];
  for (size_t i = 0; i < sizeof tag_rows / sizeof tag_rows[0]; i++) {
    snprintf(body, sizeof body, "{" USER "%s}", tag_rows[i].fields);
    fake_exchange_t *exchange = fake_call(api_chat_completions, body);
    cr_assert(!exchange->answered, "%s: %s", body, exchange->body);
    for (int k = 0; k < 6 && tag_rows[i].good[k] != NULL; k++)
      cr_assert(allows(tag_rows[i].good[k]), "%s: %s", tag_rows[i].fields, tag_rows[i].good[k]);
    for (int k = 0; k < 8 && tag_rows[i].bad[k] != NULL; k++)
      cr_assert(!allows(tag_rows[i].bad[k]), "%s: %s", tag_rows[i].fields, tag_rows[i].bad[k]);
    end(exchange);
  }
}

#define EIGHT "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\","
/* What is not understood is refused with its place. */
Test(constraints, structural_tags_that_are_refused) {
  static const struct {
    const char *fields;
    int code;
    const char *says;
  } rows[] = {
      {",\"response_format\":{\"type\":\"structural_tag\"}", ERR_MISSING_PARAMETER,
       "'response_format.format' is missing"},
      {TAGGED("1"), ERR_INVALID_TYPE, "'response_format.format' must be a format"},
      {TAGGED("{}"), ERR_MISSING_PARAMETER, "'response_format.format.type' is missing"},
      {TAGGED("{\"type\":\"token\",\"token\":1}"), ERR_UNSUPPORTED_PARAMETER,
       "'response_format.format.type' 'token' is no format"},
      {TAGGED(KIND("or", "\"elements\":[" CONST("a") "," CONST("a\",\"b\":\"") "]")),
       ERR_UNSUPPORTED_PARAMETER, "'response_format.format.elements[1].b' is not supported"},
      {TAGGED(KIND("const_string", "\"value\":\"a\",\"type value\":1")), ERR_UNSUPPORTED_PARAMETER,
       "'response_format.format.type value' is not supported"},
      {TAGGED(KIND("or", "\"elements\":[]")), ERR_INVALID_VALUE, "elements' must not be empty"},
      {TAGGED(KIND("sequence", "\"elements\":3")), ERR_INVALID_TYPE, "elements' must be a list"},
      {TAGGED(KIND("const_string", "\"value\":1")), ERR_INVALID_TYPE, "a string, not a number"},
      {TAGGED(KIND("any_text", "\"max_tokens\":5")), ERR_UNSUPPORTED_PARAMETER,
       "format.max_tokens' is not supported"},
      {TAGGED(KIND("any_text", "\"excludes\":[\"\"]")), ERR_INVALID_VALUE, "excludes' must be"},
      {TAGGED(KIND("any_text", "\"excludes\":[" EIGHT EIGHT EIGHT EIGHT "\"i\"]")), ERR_BAD_REQUEST,
       "format.excludes' has 33 texts, at most 32"},
      {TAGGED(KIND("json_schema", "\"json_schema\":{},\"style\":\"qwen_xml\"")),
       ERR_UNSUPPORTED_PARAMETER, "format.style'"},
      {TAGGED(KIND("json_schema", "\"json_schema\":{\"minLength\":\"x\"}")), ERR_INVALID_VALUE,
       "Invalid schema at '/minLength'"},
      {TAGGED(KIND("regex", "\"pattern\":\"(a\"")), ERR_INVALID_VALUE,
       "regex: the group has no end"},
      {TAGGED(KIND("repeat", "\"min\":3,\"max\":2,\"content\":" ANY)), ERR_INVALID_VALUE,
       "format.max' is 2, below the 3 of 'min'"},
      {TAGGED(KIND("repeat", "\"min\":-1,\"max\":2,\"content\":" ANY)), ERR_INVALID_VALUE,
       "format.min' must be an integer"},
      {TAGGED(KIND("star", "\"content\":" ANY)), ERR_UNSUPPORTED_PARAMETER,
       "'response_format.format.content' is free text without an end"},
      {TAGGED(TAG("<", ANY, "{\"type\":\"token\",\"token\":3}")), ERR_INVALID_TYPE,
       "format.end' must be a string"},
      {TAGGED(TAG("<", ANY, "[\"ab\",\"b\"]")), ERR_INVALID_VALUE, "by the text 'b' within it"},
      {TAGGED(TAG("<", KIND("any_text", "\"excludes\":[\"b\"]"), "\"abc\"")), ERR_INVALID_VALUE,
       "'response_format.format.content' hides a trigger or end by the text 'b'"},
      {TAGGED(
           KIND("triggered_tags", "\"triggers\":[\"<f\"],\"tags\":[" TAG("<g>", ANY, "\">\"") "]")),
       ERR_INVALID_VALUE, "format.triggers' holds a text with which no tag begins"},
      {TAGGED(KIND("triggered_tags", "\"triggers\":[\"<g\"],\"tags\":[" TAG(
                                         "<g>", ANY, "\">\"") "," TAG("<f>", ANY, "\">\"") "]")),
       ERR_INVALID_VALUE, "format.tags' holds a tag that begins with no trigger"},
      {TAGGED(KIND("triggered_tags",
                   "\"triggers\":[\"<\",\"<g\"],\"tags\":[" TAG("<g>", ANY, "\">\"") "]")),
       ERR_INVALID_VALUE, "by the text '<' within it"},
      {TAGGED(KIND("triggered_tags", "\"triggers\":[],\"tags\":[" TAG("<g>", ANY, "\">\"") "]")),
       ERR_MISSING_PARAMETER, "format.triggers' must hold a text"},
      {TAGGED(KIND("dispatch", "\"rules\":[[\"a\"]]")), ERR_INVALID_VALUE,
       "format.rules[0]' must be"},
      {",\"response_format\":{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"a\",\"end\":"
       "\"b\"}],"
       "\"triggers\":[\"a\"]}",
       ERR_MISSING_PARAMETER, "'response_format.structures[0].schema' is missing"},
  };
  char body[4096];
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    snprintf(body, sizeof body, "{" USER "%s}", rows[i].fields);
    fake_exchange_t *exchange = fake_call(api_chat_completions, body);
    cr_assert(exchange->answered, "%s", body);
    ASSERT_EQ_FOR(exchange->error.code, rows[i].code, "%s: %s", body, exchange->body);
    cr_assert_not_null(strstr(exchange->body, rows[i].says), "'%s' is not in: %s", rows[i].says,
                       exchange->body);
    fake_exchange_free(exchange);
  }
}

Test(constraints, structural_tags_nest_ten_deep) {
  for (int depth = 10; depth <= 11; depth++) {
    char body[4096] = "{" USER ",\"response_format\":{\"type\":\"structural_tag\",\"format\":";
    for (int i = 1; i < depth; i++) strcat(body, "{\"type\":\"tag\",\"begin\":\"<\",\"content\":");
    strcat(body, ANY);
    for (int i = 1; i < depth; i++) strcat(body, ",\"end\":\">\"}");
    strcat(body, "}}");
    fake_exchange_t *exchange = fake_call(api_chat_completions, body);
    ASSERT_EQ(exchange->answered, depth == 11);
    if (depth == 11) ASSERT_EQ(exchange->error.code, ERR_BAD_REQUEST);
    if (depth == 10) cr_assert(allows("<<<<<<<<<x>>>>>>>>>"));
    if (depth == 10) end(exchange);
    if (depth == 11) fake_exchange_free(exchange);
  }
}

Test(constraints, values_that_ask_for_nothing) {
  static const char *const rows[] = {
      ",\"response_format\":{\"type\":\"text\"}", ",\"structured_outputs\":{}",
      ",\"structured_outputs\":{\"json_object\":false,\"disable_any_whitespace\":false}",
      ",\"grammar\":\"\"", ",\"guided_json\":null"};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fake_exchange_t *exchange = complete(rows[i]);
    ASSERT_EQ(fake_engine.requests[0]->grammar, NULL);
    end(exchange);
  }
}

Test(constraints, one_grammar_for_all_prompts) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"regex\":\"x\"}");
  ASSERT_EQ(fake_engine.num_requests, 2);
  ASSERT_EQ(fake_engine.requests[0]->grammar, fake_engine.requests[1]->grammar);
  end(exchange);
}

static void refuse(void (*handle)(exchange_t *), const char *body, int code, const char *param) {
  fake_exchange_t *exchange = fake_call(handle, body);
  cr_assert(exchange->answered, "%s", body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->body);
  ASSERT_STR_EQ_FOR(exchange->error.param, param, "%s: %s", body, exchange->body);
  fake_exchange_free(exchange);
}

#define P(fields) "{\"prompt\":\"a\"," fields "}"

Test(constraints, what_is_refused) {
  static const struct {
    const char *body;
    int code;
    const char *param;
  } rows[] = {
      {P("\"response_format\":\"json\""), ERR_INVALID_TYPE, "response_format"},
      {P("\"response_format\":{}"), ERR_MISSING_PARAMETER, "response_format.type"},
      {P("\"response_format\":{\"type\":\"yaml\"}"), ERR_UNSUPPORTED_PARAMETER, "response_format"},
      {P("\"response_format\":{\"type\":\"json_schema\"}"), ERR_MISSING_PARAMETER,
       "response_format.json_schema"},
      {P("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}"),
       ERR_MISSING_PARAMETER, "response_format.json_schema.schema"},
      {P("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a b\","
         "\"schema\":{}}}"),
       ERR_INVALID_VALUE, "response_format.json_schema.name"},
      {P("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
         "1,\"schema\":{}}}"),
       ERR_INVALID_TYPE, "response_format.json_schema.strict"},
      {P("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"schema\":{\"maxLenght\":3}}}"),
       ERR_UNSUPPORTED_PARAMETER, "response_format"},
      {P("\"structured_outputs\":[]"), ERR_INVALID_TYPE, "structured_outputs"},
      {P("\"structured_outputs\":{\"structural_tag\":\"x\"}"), ERR_INVALID_VALUE,
       "structured_outputs.structural_tag"},
      {P("\"structured_outputs\":{\"structural_tag\":[]}"), ERR_INVALID_TYPE,
       "structured_outputs.structural_tag"},
      {P("\"structured_outputs\":{\"structural_tags\":\"x\"}"), ERR_UNSUPPORTED_PARAMETER,
       "structured_outputs"},
      {P("\"structured_outputs\":{\"choice\":[]}"), ERR_INVALID_VALUE, "structured_outputs.choice"},
      {P("\"structured_outputs\":{\"choice\":[1]}"), ERR_INVALID_TYPE, "structured_outputs.choice"},
      {P("\"structured_outputs\":{\"regex\":1}"), ERR_INVALID_TYPE, "structured_outputs.regex"},
      {P("\"guided_json\":\"{\""), ERR_INVALID_VALUE, "guided_json"},
      {P("\"guided_json\":\"1\""), ERR_INVALID_TYPE, "guided_json"},
      {P("\"guided_json\":1"), ERR_INVALID_TYPE, "guided_json"},
      {P("\"regex\":\"(\""), ERR_INVALID_VALUE, "regex"},
      {P("\"regex\":\"(a)\\\\1\""), ERR_UNSUPPORTED_PARAMETER, "regex"},
      {P("\"regex\":\"a\",\"guided_json\":{}"), ERR_INVALID_VALUE, "guided_json"},
      {P("\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}"), ERR_INVALID_VALUE,
       "structured_outputs.choice"},
      {P("\"regex\":\"a\",\"use_beam_search\":true"), ERR_UNSUPPORTED_PARAMETER, "use_beam_search"},
      {P("\"regex\":\"a\",\"echo\":true,\"max_tokens\":0"), ERR_INVALID_VALUE, "regex"},
      {P("\"guided_decoding_backend\":\"x\""), ERR_UNSUPPORTED_PARAMETER,
       "guided_decoding_backend"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    refuse(api_completions, rows[i].body, rows[i].code, rows[i].param);
  }
}

/* ---- tools ---- */

#define ONE "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"
#define TWO "{\"name\": \"g\", \"arguments\": {}}"
#define CALL(text) "<tool_call>\n" text "\n</tool_call>"
#define TOOLS(more) ",\"tools\":[" TOOL("f", ",\"parameters\":" FIXED more) "," TOOL("g", "") "]"

Test(constraints, a_tool_is_required) {
  fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":\"required\"");
  cr_assert(allows(CALL(ONE)));
  cr_assert(allows(CALL(TWO)));
  cr_assert(allows(CALL(ONE) "\n" CALL(TWO)));
  cr_assert(!allows(CALL("{\"name\": \"f\", \"arguments\": {\"a\": 3}}")));
  cr_assert(!allows(CALL("{\"name\": \"h\", \"arguments\": {}}")));
  cr_assert(!allows(""));
  cr_assert(!allows("hello"));
  end(exchange);
  exchange = chat(TOOLS("") ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false");
  cr_assert(allows(CALL(TWO)));
  cr_assert(!allows(CALL(ONE) "\n" CALL(TWO)));
  end(exchange);
}

Test(constraints, one_of_the_allowed_tools_is_required) {
  fake_exchange_t *exchange =
      chat(TOOLS("") ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
                     "\"required\",\"tools\":[" TOOL("g", "") "]}}");
  cr_assert(allows(CALL(TWO)));
  cr_assert(!allows(CALL(ONE)));
  cr_assert(!allows("hello"));
  end(exchange);
}

Test(constraints, a_named_tool) {
  fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":" TOOL("g", ""));
  cr_assert(allows(CALL(TWO)));
  cr_assert(!allows(CALL(ONE)));
  cr_assert(!allows(CALL(TWO) "\n" CALL(TWO)));
  end(exchange);
}

Test(constraints, every_format_writes_what_it_reads) {
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    server.live->tool_format = format;
    fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":\"required\"");
    char text[512];
    const char *before = format->before_all ? format->before_all : "";
    const char *behind = format->behind_all ? format->behind_all : "";
    const char *one = "{\"a\": 1}", *none = "{}";
    char arguments[200];
    const tag_words_t *tags = format->tags;
    if (tags != NULL) {
      const char *type = tags->begin_type != NULL ? "\" type=\"number" : "";
      snprintf(arguments, sizeof arguments, "%sa%s%s%s%s1%s%s%s%s%s", tags->begin_key, type,
               tags->end_json_key != NULL ? tags->end_json_key : tags->end_key, tags->before_value,
               tags->around_value, tags->around_value, tags->end_value,
               tags->mark != NULL ? "</a>" : "", tags->behind_value, tags->end_call);
      one = arguments, none = tags->end_call;
    }
    if (format->literals != NULL) {
      const literal_words_t *literals = format->literals;
      snprintf(arguments, sizeof arguments, "a%c1%c", literals->assign, literals->close);
      one = arguments, none = strrchr(arguments, literals->close);
    }
    bool counts = format->number != NULL;
    const char *first = format->names_are_ids ? ":0" : counts ? "\" index=\"1" : "";
    const char *second = format->names_are_ids ? ":1" : counts ? "\" index=\"2" : "";
    snprintf(text, sizeof text, "%s%sf%s%s%s%s%s%sg%s%s%s%s%s", before, format->begin_name, first,
             format->end_name, one, format->end_call, format->between, format->begin_name, second,
             format->end_name, none, format->end_call, behind);
    if (format->payload == PAYLOAD_CHANNELS)
      *strstr(text, format->between) = '\0'; /* a call ends the turn */
    cr_assert(allows(text), "%s: %s", format->name, text);
    end(exchange);
  }
}

/* Kimi K3 writes marks around its content: text, calls and what a request asks for stand between
 * them, and the model may write them to the end. */
Test(constraints, content_between_marks) {
#define K3(tag) "<|open|>" tag "<|sep|>"
#define K3_END(tag) "<|close|>" tag "<|sep|>"
#define K3_THOUGHT K3("think") "so <tool>" K3_END("think")
#define K3_CALL(name, more)                                                                        \
  K3("tools") K3("call tool=\"" name "\" index=\"1\"") more K3_END("call") K3_END("tools")
#define K3_A(type, value) K3("argument key=\"a\" type=\"" type "\"") value K3_END("argument")
#define K3_ONE K3_CALL("f", K3_A("number", "1"))
#define K3_TEXT(text) K3("response") text K3_END("response")
  server.live->tool_format = tool_format_find("kimi_k3");
  server.live->reasoning_format = reasoning_format_find("kimi_k3");
  fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":\"required\"");
  cr_assert(allows(K3_TEXT("") K3_ONE));
  cr_assert(allows(K3_THOUGHT K3_TEXT("") K3_ONE K3_END("message")));
  cr_assert(!allows(K3_TEXT("") K3_CALL("f", K3_A("string", "1"))), "a is a number");
  cr_assert(!allows(K3_TEXT("hm") K3_ONE), "a forced call has no text");
  end(exchange);
  exchange = chat(TOOLS(""));
  cr_assert(allows(K3_TEXT("hello")));
  cr_assert(allows(K3_THOUGHT K3_TEXT("hello") K3_END("message")));
  cr_assert(allows(K3_TEXT("hello") K3_ONE K3_END("message")));
  cr_assert(!allows(K3_TEXT("") K3_CALL("h", "")), "h was not offered");
  end(exchange);
  exchange = chat(",\"response_format\":{\"type\":\"json_object\"}");
  cr_assert(allows(K3_TEXT("{\"a\": 1}") K3_END("message")));
  cr_assert(allows(K3_THOUGHT K3("response") "{}"));
  cr_assert(!allows(K3_TEXT("a")));
  end(exchange);
}

/* MiniMax M3 writes elements in elements. What is allowed must be read as a value of the schema: no
 * text that could be of another type, nothing empty that could be something else. */
Test(constraints, elements_in_elements) {
#define NS "]<]minimax[>["
#define M3(name, value) NS "<" name ">" value NS "</" name ">"
#define M3_F(parameters)                                                                           \
  NS "<tool_call>\n" NS "<invoke name=\"f\">" parameters NS "</invoke>\n" NS "</tool_call>"
#define M3_TOOL(name, required, properties)                                                        \
  "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":"           \
  "\"object\",\"properties\":{" properties "},\"required\":[" required                             \
  "],\"additionalProperties\":false,\"$defs\":{\"o\":{\"type\":\"object\",\"properties\":{\"k\":{" \
  "\"type\":\"integer\"},\"t\":{\"type\":\"string\"},\"in\":{\"$ref\":\"#/$defs/"                  \
  "o\"}},\"required\":["                                                                           \
  "\"k\"],\"additionalProperties\":false}}}}}"
#define M3_TOOLS(properties)                                                                       \
  ",\"tools\":[" M3_TOOL("f", "\"a\"", properties) "],\"tool_choice\":\"required\""
  server.live->tool_format = tool_format_find("minimax_m3");
  fake_exchange_t *exchange = chat(M3_TOOLS("\"a\":{\"$ref\":\"#/$defs/o\"}"));
  cr_assert(allows(M3_F(M3("a", M3("k", "1")))));
  cr_assert(allows(M3_F(M3("a", M3("t", "1 <b>x</b>\n") M3("k", "-2")))));
  cr_assert(allows(M3_F(M3("a", M3("k", "1") M3("in", M3("in", M3("k", "2")) M3("k", "3"))))));
  cr_assert(!allows(M3_F(M3("a", M3("k", "x")))), "k is an integer");
  cr_assert(!allows(M3_F(M3("a", M3("t", "x")))), "k is required");
  cr_assert(!allows(M3_F(M3("a", M3("k", "1") M3("z", "")))), "z is not listed");
  cr_assert(!allows(M3_F(M3("a", "{\"k\":1}"))), "an object is elements");
  cr_assert(!allows(M3_F(M3("a", M3("k", "1") M3("t", "x " NS "y")))), "a text has no mark");
  end(exchange);
  exchange = chat(M3_TOOLS("\"a\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":"
                           "{\"anyOf\":[{\"$ref\":\"#/$defs/o\"},{\"type\":\"null\"}]}}"));
  cr_assert(allows(M3_F(M3("a", M3("item", M3("k", "1")) M3("item", "null")))));
  cr_assert(!allows(M3_F(M3("a", ""))), "one item at least");
  cr_assert(!allows(M3_F(M3("a", M3("item", "null") M3("item", "null") M3("item", "null")))));
  cr_assert(!allows(M3_F(M3("a", M3("thing", "null")))), "items are named so");
  end(exchange);
  exchange = chat(M3_TOOLS("\"a\":{\"type\":[\"string\",\"integer\",\"array\"]}"));
  cr_assert(allows(M3_F(M3("a", "x"))) && allows(M3_F(M3("a", "1"))) && allows(M3_F(M3("a", ""))));
  cr_assert(allows(M3_F(M3("a", M3("item", "1") M3("item", M3("k", "v"))))));
  cr_assert(!allows(M3_F(M3("a", "[1"))), "it could be read as an array");
  end(exchange);
  exchange = chat(M3_TOOLS("\"a\":{\"type\":[\"object\",\"array\"]}"));
  cr_assert(!allows(M3_F(M3("a", ""))) && allows(M3_F(M3("a", M3("k", "")))));
  cr_assert(allows(M3_F(M3("a", M3("item", M3("item", "1"))))));
  cr_assert(!allows(M3_F(M3("a", M3("k", "") M3("item", "")))), "an object has no such member");
  end(exchange);
  exchange = chat(M3_TOOLS("\"a\":{\"enum\":[\"x\",\"1\",2,null]}"));
  cr_assert(allows(M3_F(M3("a", "x"))) && allows(M3_F(M3("a", "2"))));
  cr_assert(!allows(M3_F(M3("a", "1"))), "it would be read as a number");
  end(exchange);
  static const char two[] =
      "{" USER M3_TOOLS("\"a\":{\"type\":\"array\",\"items\":{\"anyOf\":[{"
                        "\"type\":\"object\"},{\"$ref\":\"#/$defs/o\"}]}}") "}";
  exchange = fake_call(api_chat_completions, two);
  EXPECT_EQ(exchange->status, 400);
  cr_expect(strstr(exchange->body, "several objects") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

#define TAGS(name, parameters)                                                                     \
  "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define A(value) "<parameter=a>\n" value "\n</parameter>\n"

Test(constraints, calls_in_tags) {
  server.live->tool_format = tool_format_find("qwen3_coder");
  fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":\"required\"");
  cr_assert(allows(TAGS("f", A("2"))));
  cr_assert(!allows(TAGS("f", A("3"))));
  cr_assert(!allows(TAGS("f", "")), "a is required");
  cr_assert(!allows(TAGS("f", A("1") "<parameter=b>\n1\n</parameter>\n")));
  cr_assert(!allows(TAGS("g", A("1"))), "g takes nothing");
  end(exchange);
  exchange = chat(TOOLS("") ",\"tool_choice\":" TOOL("g", ""));
  cr_assert(allows(TAGS("g", "")));
  cr_assert(!allows(TAGS("f", A("1"))));
  end(exchange);
  exchange = chat(TOOLS(",\"strict\":true"));
  cr_assert(allows("so <function=f> " TAGS("f", A("1")) TAGS("g", "") " done"));
  cr_assert(!allows(TAGS("f", A("x"))));
  end(exchange);
  /* a schema without a type means its objects */
  exchange = chat(",\"tool_choice\":\"required\",\"tools\":[" TOOL(
      "f", ",\"parameters\":{\"required\":[\"a\"]}") "]");
  cr_assert(allows(TAGS("f", A("any") "<parameter=b>\nthing\n</parameter>\n")));
  cr_assert(!allows(TAGS("f", "")));
  cr_assert(!allows(TAGS("f", "any")));
  end(exchange);
}

/* Text that the grammar lets through as text is not read as a call. */
Test(constraints, a_call_without_its_mark_is_text_beside_strict_functions) {
  server.live->tool_format = tool_format_find("qwen3_coder");
  for (int strict = 0; strict < 2; strict++) {
    fake_exchange_t *exchange = chat(strict ? TOOLS(",\"strict\":true") : TOOLS(""));
    const char *text = "<function=f></function>";
    for (const char *c = text; *c != '\0'; c++) {
      fake_token(fake_engine.requests[0], *c, (char[]){*c, '\0'});
    }
    fake_done(fake_engine.requests[0], FINISH_STOP, "");
    fake_deliver();
    ASSERT_EQ_FOR((strstr(exchange->body, "tool_calls\":[{") == NULL), strict, "%s",
                  exchange->body);
    fake_exchange_free(exchange);
  }
}

#define THOUGHTS "<|channel|>analysis<|message|>any {thing}<|end|><|start|>assistant"
#define HARMONY(name, arguments)                                                                   \
  "<|channel|>commentary to=functions." name " <|constrain|>json<|message|>" arguments
#define FINAL "<|channel|>final<|message|>"

Test(constraints, messages_in_channels) {
  server.live->tool_format = tool_format_find("harmony");
  server.live->reasoning_format = reasoning_format_find("harmony");
  fake_exchange_t *exchange = chat(TOOLS("") ",\"tool_choice\":\"required\"");
  cr_assert(allows(HARMONY("f", "{\"a\": 1}")));
  cr_assert(allows(THOUGHTS HARMONY("g", "{}")));
  cr_assert(!allows(THOUGHTS HARMONY("f", "{\"a\": 3}")));
  cr_assert(!allows(THOUGHTS FINAL "words"));
  end(exchange);
  exchange = chat(TOOLS("") ",\"response_format\":{\"type\":\"json_object\"}");
  cr_assert(allows(FINAL "{\"x\": 1}"));
  cr_assert(allows(THOUGHTS FINAL "{\"x\": 1}"));
  cr_assert(allows(THOUGHTS HARMONY("g", "{}")));
  cr_assert(!allows(FINAL "words"));
  cr_assert(!allows("{\"x\": 1}"));
  end(exchange);
  exchange = chat(TOOLS(",\"strict\":true"));
  cr_assert(allows(THOUGHTS FINAL "words"));
  cr_assert(allows(HARMONY("f", "{\"a\": 2}")));
  cr_assert(!allows(HARMONY("f", "{\"a\": 3}")));
  end(exchange);
  exchange = chat(",\"regex\":\"ab\",\"continue_final_message\":true");
  cr_assert(allows("ab"), "the header stands in the prompt");
  end(exchange);
}

Test(constraints, strict_functions_when_the_model_may_choose) {
  fake_exchange_t *exchange = chat(TOOLS(",\"strict\":true"));
  cr_assert(allows("just words < and <tool"));
  cr_assert(allows("see " CALL(ONE)));
  cr_assert(allows(CALL(ONE) " then " CALL(TWO) " done"));
  cr_assert(allows(""));
  cr_assert(!allows(CALL("{\"name\": \"f\", \"arguments\": {\"a\": 3}}")));
  cr_assert(!allows("<tool_call>"));
  cr_assert(!allows("<tool_call>what"));
  end(exchange);
  server.live->tool_format = tool_format_find("llama3_json");
  exchange = chat(TOOLS(",\"strict\":true"));
  cr_assert(allows("just words {"));
  cr_assert(allows("{\"name\": \"f\", \"parameters\": {\"a\": 2}}"));
  cr_assert(!allows("{\"name\": \"f\", \"parameters\": {\"a\": 3}}"));
  cr_assert(!allows("{\"x\": 1}"));
  end(exchange);
}

Test(constraints, an_answer_of_a_form_or_a_call) {
  fake_exchange_t *exchange = chat(TOOLS("") ",\"response_format\":{\"type\":\"json_object\"}");
  cr_assert(allows("{\"x\": 1}"));
  cr_assert(allows(CALL(TWO)));
  cr_assert(!allows("words"));
  end(exchange);
  exchange = chat(TOOLS("") ",\"tool_choice\":\"required\",\"regex\":\"a\"");
  cr_assert(allows(CALL(TWO)));
  cr_assert(!allows("a"));
  end(exchange);
}

#define WRONG "{\"name\": \"f\", \"arguments\": {\"a\": 3}}"
#define FOREIGN "{\"name\": \"h\", \"arguments\": {\"a\": 1}}"

/* Whether the constraint of the request takes a text; without one it takes any. */
static void expect_taken(const char *text, bool taken, int view, const view_request_t *asked) {
  bool free_text = fake_engine.requests[0]->grammar == NULL;
  cr_assert((free_text || allows(text)) == taken, "%s, choice %s, format %s, parallel %d, %s: %s",
            view_names[view], asked->choice, asked->format != NULL ? asked->format : "none",
            asked->parallel, asked->tools, text);
}

/* A forced call follows its schema, whatever form the text is to have; the format binds text. */
static void check_pair(int view, const view_request_t *asked, bool strict) {
  bool none = strcmp(asked->choice, "none") == 0, text = strcmp(asked->choice, "auto") == 0 || none;
  bool format = asked->format != NULL, required = strcmp(asked->choice, "required") == 0;
  bool bound = strict || !text || format; /* the arguments follow the schema */
  fake_exchange_t *exchange = view_ask(view, asked);
  cr_assert(!exchange->answered, "%s", exchange->body);
  expect_taken("hello", text && !format, view, asked);
  expect_taken("{\"t\": 5}", text, view, asked);
  expect_taken("{\"t\": 6}", text && !format, view, asked);
  expect_taken(CALL(ONE), !none || !format, view, asked);
  expect_taken(CALL(WRONG), none ? !format : !bound, view, asked);
  expect_taken(CALL(FOREIGN), none && !format, view, asked);
  if (!text) expect_taken(CALL(ONE) "\n" CALL(TWO), required && asked->parallel, view, asked);
  end(exchange);
}

Test(constraints, every_pair_of_choice_format_and_strict_on_every_route) {
  static const char *const choices[] = {"auto", "none", "required", "f"};
#define G TOOL("g", ",\"parameters\":{\"type\":\"object\"}")
  static const char *const tools[] = {
      "[" TOOL("f", ",\"parameters\":" FIXED) "," G "]",
      "[" TOOL("f", ",\"parameters\":" FIXED ",\"strict\":true") "," G "]"};
  static const char format[] = "{\"type\":\"object\",\"properties\":{\"t\":{\"const\":5}},"
                               "\"required\":[\"t\"],\"additionalProperties\":false}";
  for (int i = 0; i < 4 * 2 * 2 * 2 * NUM_VIEWS; i++) {
    int pair = i / NUM_VIEWS;
    view_request_t asked = {.choice = choices[pair % 4],
                            .tools = tools[pair / 4 % 2],
                            .format = pair / 8 % 2 == 1 ? format : NULL,
                            .parallel = pair / 16 == 1,
                            .num_choices = 1};
    fake_engine.info.max_model_len = 8192;
    fake_engine.info.kv_tokens = 8192;
    check_pair(i % NUM_VIEWS, &asked, pair / 4 % 2 == 1);
  }
}

/* The model may choose, and nothing is strict: its text is free, and once it has written the mark
 * of a call, only a name that was offered may follow. Without a mark before calls all is free. */
Test(constraints, a_call_has_an_offered_name) {
  json_doc_t *doc = NULL;
  cr_assert_eq(json_parse("{}", 2, &json_limits_request, &doc, NULL), 0);
  const json_t *arguments = json_root(doc);
  int bound = 0;
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    bool channels = format->payload == PAYLOAD_CHANNELS;
    server.live->tool_format = format;
    server.live->reasoning_format = channels ? reasoning_format_find("harmony") : NULL;
    fake_exchange_t *exchange = chat(",\"tools\":[" TOOL("f", "") "," TOOL("get_it", "") "]");
    bool binds = fake_engine.requests[0]->grammar != NULL;
    ASSERT_EQ_FOR(binds, !format->bare && !channels && !format->text_in_marks, "%s", format->name);
    if (binds) {
      buffer_t text = {0};
      bound++;
      buffer_text(&text, "1 < 2, {\"name\": \"no\"} [so] ");
      calls_write(&text, format, &arguments, 1);
      buffer_char(&text, '\0');
      cr_assert(allows(text.data), "%s: %s", format->name, text.data);
      char *name = strstr(text.data, "get_it");
      name[1] = 'o';
      cr_assert(!allows(text.data), "%s: %s", format->name, text.data);
      name[0] = '\0';
      cr_assert(!allows(text.data), "%s: the text may not end before the name", format->name);
      buffer_free(&text);
    }
    end(exchange);
  }
  json_free(doc);
  ASSERT_GE(bound, 14);
}

#define FUNCTION(more, schema) TOOL("f", more ",\"parameters\":" schema)
#define SMALL(more) "{\"type\":\"object\",\"additionalProperties\":false" more "}"

/* README: with a forced call the arguments follow the schema. What cannot be enforced is refused,
 * however the call is forced and whatever the keyword is. */
Test(constraints, a_forced_call_never_drops_a_schema) {
  static const char *const schemas[] = {
#define X(name) SMALL(",\"properties\":{\"b\":{\"" name "\":true}}"),
      KEYWORDS_NOT_BUILT(X)
#undef X
          SMALL(",\"maxLenght\":3"),
      SMALL(",\"properties\":{\"b\":{\"pattern\":\"(?<=$)\"}}"),
      SMALL(",\"properties\":{\"b\":{\"$ref\":\"http://x/y\"}}"),
      SMALL(",\"required\":[\"b\"]"),
      SMALL(",\"minProperties\":70000"),
      "{\"type\":\"string\"}",
      "{\"anyOf\":[{\"type\":\"object\",\"maxProperties\":-1},{\"type\":\"null\"}]}",
  };
  static const char *const choices[] = {"\"required\"", TOOL("f", "")};
  static const char *const formats[] = {"hermes", "qwen3_coder", "llama3_json"};
  char body[1024];
  for (size_t i = 0; i < 3 * 2 * sizeof schemas / sizeof *schemas; i++) {
    server.live->tool_format = tool_format_find(formats[i / 2 % 3]);
    snprintf(body, sizeof body, "{" USER ",\"tool_choice\":%s,\"tools\":[" FUNCTION("", "%s") "]}",
             choices[i % 2], schemas[i / 6]);
    fake_exchange_t *exchange = fake_call(api_chat_completions, body);
    cr_assert(exchange->answered, "%s", body);
    ASSERT_EQ_FOR(exchange->status, 400, "%s: %s", body, exchange->body);
    ASSERT_STR_EQ_FOR(exchange->error.param, "tools[0].function.parameters", "%s", exchange->body);
    fake_exchange_free(exchange);
  }
}

/* A schema whose root has no type: its objects, and nothing else. */
Test(constraints, a_forced_call_of_any_root) {
  static const char *const schemas[] = {
      "{\"anyOf\":[{\"type\":\"null\"}," FIXED "]}",
      "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":" FIXED "}}",
      "{\"type\":[\"null\",\"object\"],\"allOf\":[" FIXED "]}",
      "{\"oneOf\":[" FIXED ",{\"type\":\"array\"}]}",
  };
  char body[1024];
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    snprintf(body, sizeof body, ",\"tool_choice\":\"required\",\"tools\":[" FUNCTION("", "%s") "]",
             schemas[i]);
    fake_exchange_t *exchange = chat(body);
    cr_assert(allows(CALL(ONE)), "%s", schemas[i]);
    cr_assert(!allows(CALL("{\"name\": \"f\", \"arguments\": {\"a\": 3}}")), "%s", schemas[i]);
    cr_assert(!allows(CALL("{\"name\": \"f\", \"arguments\": null}")), "%s", schemas[i]);
    cr_assert(!allows(CALL("{\"name\": \"f\", \"arguments\": []}")), "%s", schemas[i]);
    end(exchange);
  }
}

/* README: nothing is ignored silently. */
Test(constraints, unknown_names_stand_in_a_header) {
  static const char listed[] = "x-inferd-ignored-keywords: markdownDescription,format:int32\n";
  static const char *const rows[] = {
      "\"tool_choice\":\"required\",\"tools\":[" FUNCTION("", "%s") "]",
      "\"tools\":[" FUNCTION(",\"strict\":false", "%s") "," TOOL("g", ",\"strict\":true") "]",
      "\"response_format\":{\"type\":\"json_object\",\"schema\":%s}",
      "\"guided_json\":%s",
  };
  static const char schema[] =
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"markdownDescription\":"
      "\"m\",\"format\":\"int32\"}},\"required\":[\"a\"],\"additionalProperties\":false}";
  char format[512], body[1024];
  for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
    snprintf(format, sizeof format, ",%s", rows[i / 2]);
    snprintf(body, sizeof body, format, schema); /* twice: the second grammar is from the cache */
    fake_exchange_t *exchange = chat(body);
    cr_assert(allows(i / 2 < 2 ? CALL(ONE) : "{\"a\": 1}"), "%s", body);
    cr_assert(!allows(i / 2 < 2 ? CALL("{\"name\": \"f\", \"arguments\": {}}") : "{}"), "%s", body);
    fake_finish_all();
    cr_assert(strstr(exchange->headers, listed) != NULL, "%s: %s", body, exchange->headers);
    fake_exchange_free(exchange);
  }
  fake_option("strict-params", "true");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(format, sizeof format, "{" USER ",%s}", rows[i]);
    snprintf(body, sizeof body, format, schema);
    if (i == 1) continue; /* the model may choose, and f is not strict */
    refuse(api_chat_completions, body, ERR_UNSUPPORTED_PARAMETER,
           i == 0   ? "tools[0].function.parameters"
           : i == 2 ? "response_format"
                    : "guided_json");
  }
}

/* Where the model may choose, a schema that cannot be enforced is any object, and the answer says
 * so. */
Test(constraints, a_schema_that_is_not_enforced_is_named) {
  static const char odd[] = SMALL(",\"maxLenght\":3");
  char body[1024];
  snprintf(body, sizeof body,
           ",\"tools\":[" FUNCTION("", "%s") "," TOOL("g", ",\"strict\":true") "]", odd);
  fake_exchange_t *exchange = chat(body);
  cr_assert(allows(CALL("{\"name\": \"f\", \"arguments\": {\"b\": 7}}")), "any object");
  fake_finish_all();
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: tools[0].function.parameters\n") !=
                NULL,
            "%s", exchange->headers);
  fake_exchange_free(exchange);
  snprintf(
      body, sizeof body,
      ",\"tools\":[" TOOL("g", ",\"strict\":true") "," FUNCTION(
          "",
          "%s") "],\"tool_choice\":{"
                "\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[" TOOL(
                    "f", "") "]}},\"response_format\":{\"type\":\"json_object\"}",
      odd);
  exchange = chat(body);
  fake_finish_all();
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: tools[1].function.parameters\n") !=
                NULL,
            "the place in the request: %s", exchange->headers);
  fake_exchange_free(exchange);
  snprintf(body, sizeof body, "{" USER ",\"tools\":[" FUNCTION(",\"strict\":true", "%s") "]}", odd);
  refuse(api_chat_completions, body, ERR_UNSUPPORTED_PARAMETER, "tools[0].function.parameters");
}

Test(constraints, thoughts_are_free) {
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = chat(",\"regex\":\"ab\"");
  cr_assert(allows("ab"));
  cr_assert(allows("<think>any {thing}</think>\n\nab"));
  cr_assert(!allows("<think>any</think>x"));
  cr_assert(!allows("x"));
  end(exchange);
  exchange = chat(",\"regex\":\"ab\",\"chat_template_kwargs\":{\"think\":1}");
  cr_assert(allows("thing</think>ab"));
  cr_assert(!allows("ab"));
  end(exchange);
}
