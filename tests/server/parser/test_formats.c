/* test_formats.c: every row of the formats: calls as published, cut, malformed, in text. */
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "tests/expect.h"
#include "tests/server/parser/story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(formats, .timeout = 120);

static const char tools_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"a\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"},"
    "\"x\":{\"type\":[\"array\",\"string\"]}}}}},{\"function\":{\"name\":\"g\"}}]";

static const json_t *functions(void) {
  static json_doc_t *doc;
  size_t length = sizeof tools_text - 1;
  if (doc == NULL) ASSERT_EQ(json_parse(tools_text, length, &json_limits_request, &doc, NULL), 0);
  return json_root(doc);
}

static void expect(const char *tools, const char *text, const char *expected) {
  output_options_t options = {.tools = tool_format_find(tools), .functions = functions()};
  cr_assert(options.tools != NULL, "%s", tools);
  if (options.tools->payload == PAYLOAD_CHANNELS)
    options.reasoning = reasoning_format_find("harmony");
  story_expect(&options, text, strlen(text), expected);
}

/* A call as the family's template writes it; two; after text; cut; malformed. */
static const struct {
  const char *tools, *text, *expected;
} rows[] = {
    {"seed_oss",
     "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>",
     "T(f|{\"a\": 1})"},
    {"seed_oss", "see <seed:tool_call>none", "C(see <seed:tool_call>none)"},
    {"glm45",
     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n"
     "<arg_value>x < y</arg_value>\n</tool_call>",
     "T(f|{\"a\": 1, \"s\": \"x < y\"})"},
    {"glm47", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
     "T(f|{\"a\": 1})"},
    {"glm45", "<tool_call>g\n</tool_call>\n<tool_call>g</tool_call> end", "T(g|{})T(g|{})C(end)"},
    {"glm45", "Use the <tool_call> tag, then\n\n  <tool_call> again",
     "C(Use the <tool_call> tag, then\n\n  <tool_call> again)"},
    {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1", "T(f|{})"},
    {"glm45", "<tool_call>{\"name\": \"f\"}</tool_call>",
     "C(<tool_call>{\"name\": \"f\"}</tool_call>)"},
    {"glm45", "<tool_call>f\n<arg_key>a</arg_key> 5", "T(f|{})C(5)"},
    {"minimax_m2",
     "ok\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n"
     "<parameter name=\"s\">2</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>",
     "C(ok)T(f|{\"a\": 1, \"s\": \"2\"})T(g|{})"},
    {"minimax_m2", "<minimax:tool_call> <invoke f>", "C(<minimax:tool_call> <invoke f>)"},
#define NS "]<]minimax[>["
#define M3(name, value) NS "<" name ">" value NS "</" name ">"
#define M3_CALL(name, parameters) NS "<invoke name=\"" name "\">" parameters NS "</invoke>\n"
#define M3_ALL(calls) NS "<tool_call>\n" calls NS "</tool_call>"
    {"minimax_m3",
     "ok\n" M3_ALL(M3_CALL("f", M3("a", "1") M3("s", "2 <b>x</b> \n")) M3_CALL("g", "")),
     "C(ok)T(f|{\"a\": 1, \"s\": \"2 <b>x</b> \\n\"})T(g|{})"},
    {"minimax_m3", /* the template's example: objects in a list; a list in a list; nothing */
     M3_ALL(M3_CALL("f", M3("x", M3("item", M3("k", "v") M3("l", "1")) M3("item", ""))
                             M3("o", M3("p", M3("item", "1") M3("item", "2"))))),
     "T(f|{\"x\": [{\"k\": \"v\", \"l\": \"1\"}, \"\"], \"o\": {\"p\": [\"1\", \"2\"]}})"},
    {"minimax_m3", /* names that repeat, blanks between tags */
     M3_ALL(M3_CALL("f", "\n" M3("o", "\n" M3("tag", "a") "\n" M3("z", "c") M3("tag", "b") "\n"))),
     "T(f|{\"o\": {\"tag\": [\"a\", \"b\"], \"z\": \"c\"}})"},
    {"minimax_m3", M3_ALL(M3_CALL("f", M3("o", "") M3("x", " ") M3("n", M3("invoke", "i")))),
     "T(f|{\"o\": {}, \"x\": \" \", \"n\": {\"invoke\": \"i\"}})"},
    {"minimax_m3", /* ends that are missing */
     NS "<tool_call>" NS "<invoke name=\"f\">" NS "<o>" NS "<k>1" NS "</invoke>" NS
        "<invoke name=\"f\">" NS "<s>z" NS "</tool_call>",
     "T(f|{\"o\": {\"k\": \"1\"}})T(f|{\"s\": \"z\"})"},
    {"minimax_m3", M3_ALL(M3_CALL("f", M3("s", "see " NS "<b>x" NS "</b> and ]<]mini"))),
     "T(f|{\"s\": \"see " NS "<b>x" NS "</b> and ]<]mini\"})"},
    {"minimax_m3", M3_ALL(M3_CALL("f", M3("o", "{\"k\": [1]}") M3("a", " 7 "))),
     "T(f|{\"o\": {\"k\": [1]}, \"a\": 7})"},
    {"minimax_m3", "plain " NS "<tool_ca", "C(plain " NS "<tool_ca)"},
    {"minimax_m3", "see " NS "<tool_call>none", "C(see " NS "<tool_call>none)"},
#define DSML "｜DSML｜"
#define DSML_CALL(key, string, value)                                                              \
  "<" DSML "invoke name=\"f\">\n<" DSML "parameter name=\"" key "\" string=\"" string "\">" value  \
  "</" DSML "parameter>\n</" DSML "invoke>\n"
    {"deepseek_v32",
     "<" DSML "function_calls>\n" DSML_CALL("a", "false", "1")
         DSML_CALL("s", "true", "\n1\n") "</" DSML "function_calls>",
     "T(f|{\"a\": 1})T(f|{\"s\": \"\\n1\\n\"})"},
    {"deepseek_v32",
     "<" DSML "function_calls>\n" DSML_CALL("s", "false", "[1]") "</" DSML "function_calls>",
     "T(f|{\"s\": [1]})"},
    {"deepseek_v4", "<" DSML "tool_calls>\n" DSML_CALL("a", "false", "1") "</" DSML "tool_calls>",
     "T(f|{\"a\": 1})"},
    {"deepseek_v32", "<" DSML "function_calls> no", "C(<" DSML "function_calls> no)"},
#define V3(name, arguments)                                                                        \
  "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" name "\n```json\n" arguments                       \
  "\n```<｜tool▁call▁end｜>"
    {"deepseek_v3", "<｜tool▁calls▁begin｜>" V3("f", "{\"a\": 1}") "<｜tool▁calls▁end｜>",
     "T(f|{\"a\": 1})"},
    {"deepseek_v3",
     "so\n<｜tool▁calls▁begin｜>" V3("f", "{\"a\": 1}") "\n" V3("g", "{}") "<｜tool▁calls▁end｜>",
     "C(so)T(f|{\"a\": 1})T(g|{})"},
    {"deepseek_v3", "<｜tool▁calls▁begin｜>so", "C(<｜tool▁calls▁begin｜>so)"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "T(f|{\"a\": 1})T(g|{})"},
    {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a b{",
     "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a b{)"},
#define KIMI(id, arguments)                                                                        \
  "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
    {"kimi_k2",
     "<|tool_calls_section_begin|>" KIMI("functions.f:0", "{\"a\": 1}")
         KIMI("functions.g:1", "{}") "<|tool_calls_section_end|>",
     "#functions.f:0T(f|{\"a\": 1})#functions.g:1T(g|{})"},
    {"kimi_k2",
     "<|tool_calls_section_begin|>" KIMI("functions.f:0", "{}") KIMI("functions.f:0", "{}"),
     "#functions.f:0T(f|{})T(f|{})"},
    {"kimi_k2", "<|tool_calls_section_begin|>" KIMI("functions.f", "{}"),
     "C(<|tool_calls_section_begin|>" KIMI("functions.f", "{}") ")"},
    {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "T(f|{\"a\": 1})"},
    {"granite",
     "<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": "
     "{}}]",
     "T(f|{\"a\": 1})T(g|{})"},
    {"granite", "<tool_call>[]", "C(<tool_call>[])"},
    {"phi4_mini_json", "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
     "T(f|{\"a\": 1})"},
    {"phi4_mini_json", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
     "T(f|{\"a\": 1})"},
    {"phi4_mini_json", "use functools, or functools[0]", "C(use functools, or functools[0])"},
    {"openai", "<|channel|>analysis to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "T(f|{\"a\": 1})"},
    {"pythonic", "[f(a=1), f(a=2)]", "T(f|{\"a\": 1})T(f|{\"a\": 2})"},
    {"pythonic", "<|python_tag|>[f(a=1)]", "T(f|{\"a\": 1})"},
    {"pythonic", "[h(a=1)]", "C([h(a=1)])"},
    {"pythonic", "[f(1)]", "C([f(1)])"},
    {"pythonic", "[f(a=1, a=2, a=3, s=\"x\")]", "T(f|{\"a\": 1, \"s\": \"x\"})"},
    {"pythonic", "[f(a=1), see]", "T(f|{\"a\": 1})C(, see])"},
    {"pythonic", "[1, 2]", "C([1, 2])"},
    {"pythonic", "[f(a=", "C([f(a=)"},
    {"pythonic", "text [f(a=1)]", "C(text [f(a=1)])"},
    {"pythonic",
     "[f( s = 'it\\'s \\u00e9\\x41\\n\\d\nraw', o={'k': [True, None, -1.5e3,], \"z\": {}}, "
     "a=false)]",
     "T(f|{\"s\": \"it's \xc3\xa9"
     "A\\n\\\\d\\nraw\", \"o\": {\"k\": [true, null, -1.5e3], \"z\": {}}, \"a\": false})"},
    {"pythonic", "[f(s=\"\\ud83d\\ude00\\ud83d\")]",
     "T(f|{\"s\": \"\xf0\x9f\x98\x80\xef\xbf\xbd\"})"},
    {"pythonic", "[f(a=__import__('os'))]", "C([f(a=__import__('os'))])"},
    {"pythonic", "[f(a=1+1)]", "C([f(a=1+1)])"},
    {"llama4_pythonic", "<|python_start|>[f(a=1), g()]<|python_end|>", "T(f|{\"a\": 1})T(g|{})"},
    {"llama4_pythonic", "[f(a=1)]", "T(f|{\"a\": 1})"},
    {"olmo3", "<function_calls>\nf(a=1)\nf(a=2)\n</function_calls>",
     "T(f|{\"a\": 1})T(f|{\"a\": 2})"},
    {"olmo3", "<function_calls>\nmodule.f(a=1)\n</function_calls> so",
     "T(module.f|{\"a\": 1})C(so)"},
    {"olmo3", "a <function_calls>\nf x", "C(a <function_calls>\nf x)"},
    {"functiongemma", "<start_function_call>call:f{a:<escape>1<escape>}<end_function_call>",
     "T(f|{\"a\": 1})"},
    {"functiongemma",
     "<start_function_call>call:f{s:<escape>1<escape>,a:2}<end_function_call>"
     "<start_function_call>call:g{}<end_function_call>",
     "T(f|{\"s\": \"1\", \"a\": 2})T(g|{})"},
    {"gemma4",
     "<|tool_call>call:f{a:1,s:<|\"|>te\"xt<|\"|>,o:{k:[1,<|\"|>z<|\"|>],d:{}}}<tool_call|>",
     "T(f|{\"a\": 1, \"s\": \"te\\\"xt\", \"o\": {\"k\": [1, \"z\"], \"d\": {}}})"},
    {"gemma4", "<|tool_call>call:f{s:Paris}", "C(<|tool_call>call:f{s:Paris})"},
    /* calls behind text, without a mark */
    {"llama3_json", "Let me look. {\"name\": \"f\", \"parameters\": {\"a\": 1}}",
     "C(Let me look.)T(f|{\"a\": 1})"},
    {"llama3_json", "Let me look. {\"name\": \"h\", \"parameters\": {\"a\": 1}}",
     "C(Let me look. {\"name\": \"h\", \"parameters\": {\"a\": 1}})"},
    {"llama3_json", "A set {1, 2} and {\"a\": {}}", "C(A set {1, 2} and {\"a\": {}})"},
    {"json", "So: [{\"name\": \"f\", \"arguments\": {}}]", "C(So:)T(f|{})"},
    {"json", "a[0] = {}", "C(a[0] = {})"},
    {"llama3_json", "{\"name\": \"x\", \"parameters\": {invalid json}",
     "C({\"name\": \"x\", \"parameters\": {invalid json})"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\" 1}}</tool_call>",
     "T(f|{\"a\" )C(1}}</tool_call>)"},
};

Test(formats, calls_of_every_family) {
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    expect(rows[i].tools, rows[i].text, rows[i].expected);
  }
}

/* An answer that is not streamed has whole calls only: what was cut or is broken is content. */
Test(formats, a_broken_call_in_tags_is_content_in_a_whole_answer) {
#define OPEN "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
#define ODD "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>["
  static const struct {
    const char *text, *expected;
  } broken[] = {
      {"so " OPEN, "C(so " OPEN ")"},
      {OPEN "<arg_key>s</arg_key>\n<arg_value>x</arg_val", NULL},
      {OPEN "<arg_key>s</arg_key> x", NULL},
      {OPEN "</tool_call>", "T(f|{\"a\": 1})"},
      {OPEN "</tool_cal> " OPEN "</tool_call>", "C(" OPEN "</tool_cal>)T(f|{\"a\": 1})"},
      {ODD "1}", NULL},
      {ODD "1}</arg_value>\n</tool_call>", "T(f|{\"x\": \"[1}\"})"},
      {ODD "1", NULL},
      {ODD "1</arg_value> and", NULL},
  };
  output_options_t options = {
      .tools = tool_format_find("glm45"), .functions = functions(), .whole = true};
  for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
    char content[256];
    snprintf(content, sizeof content, "C(%s)", broken[i].text);
    story_expect(&options, broken[i].text, strlen(broken[i].text),
                 broken[i].expected != NULL ? broken[i].expected : content);
  }
}

Test(formats, a_broken_call_in_a_channel_is_content_in_a_whole_answer) {
#define TO "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
  static const struct {
    const char *text, *expected;
  } broken[] = {{TO "{\"a\": 1", "C({\"a\": 1)"},
                {TO "{\"a\": 18.=} x", "C({\"a\": 18.=} x)"},
                {TO "{\"s\": \"a b\"<|call|>", "C({\"s\": \"a b\")"},
                {TO " {\"s\": \"a b\"}<|call|>", "T(f|{\"s\": \"a b\"})"},
                {TO "<|call|>", "T(f|{})"}};
  output_options_t options = {.tools = tool_format_find("harmony"),
                              .reasoning = reasoning_format_find("harmony"),
                              .functions = functions(),
                              .whole = true};
  for (size_t i = 0; i < ARRAY_LEN(broken); i++)
    story_expect(&options, broken[i].text, strlen(broken[i].text), broken[i].expected);
}

/* A grammar writes calls in the format's own words: what it writes is read back. */
Test(formats, every_row_reads_what_it_writes) {
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    buffer_t text = {0}, expected = {0};
    if (format->before_all != NULL) buffer_text(&text, format->before_all);
    for (int call = 0; call < 3; call++) {
      char number[4];
      snprintf(number, sizeof number, "%d", call * 6);
      if (call > 0) buffer_text(&text, format->between);
      story_write_call(&text, format, "get_weather", number);
      if (format->names_are_ids) buffer_text(&expected, "#functions.get_weather:");
      if (format->names_are_ids) buffer_text(&expected, number);
      buffer_text(&expected, "T(get_weather|{\"city\": \"Z\xc3\xbcrich\"})");
    }
    if (format->behind_all != NULL) buffer_text(&text, format->behind_all);
    buffer_char(&text, '\0');
    buffer_char(&expected, '\0');
    output_options_t options = {.tools = format};
    if (format->payload == PAYLOAD_CHANNELS) options.reasoning = reasoning_format_find("harmony");
    story_expect(&options, text.data, text.length - 1, expected.data);
    buffer_free(&text);
    buffer_free(&expected);
  }
}

/* The grammar lets text through up to the mark of a call, so what it writes begins with the mark.
 */
Test(formats, rows_are_whole) {
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    EXPECT_EQ_FOR(tool_format_find(format->name), format, "%s", format->name);
    ASSERT_EQ_FOR((format->payload == PAYLOAD_LITERALS), (format->literals != NULL), "%s",
                  format->name);
    if (format->payload == PAYLOAD_TAGS) cr_assert(format->tags != NULL, "%s", format->name);
    if (format->bare || format->payload == PAYLOAD_CHANNELS) continue;
    const char *opener = tool_format_opener(format);
    const char *first = format->before_all != NULL ? format->before_all : format->begin_name;
    EXPECT_EQ_FOR(strncmp(first, opener, strlen(opener)), 0, "%s", format->name);
  }
  for (const reasoning_format_t *format = reasoning_formats; format->name != NULL; format++) {
    EXPECT_EQ_FOR(reasoning_format_find(format->name), format, "%s", format->name);
    cr_assert(format->marks != NULL && format->close != NULL, "%s", format->name);
  }
  ASSERT_STR_EQ(tool_format_find("openai")->name, "harmony");
  ASSERT_STR_EQ(tool_format_find("qwen3_xml")->name, "qwen3_coder");
  ASSERT_STR_EQ(tool_format_find("llama4_json")->name, "llama3_json");
  ASSERT_STR_EQ(reasoning_format_find("qwen3")->name, "think");
  ASSERT_STR_EQ(reasoning_format_find("openai_gptoss")->name, "harmony");
  static const char *const unknown[] = {"nope", "", " ", "xml", "qwen3_xml mimo", "mim"};
  for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
    EXPECT_EQ_FOR(tool_format_find(unknown[i]), NULL, "%s", unknown[i]);
    EXPECT_EQ_FOR(reasoning_format_find(unknown[i]), NULL, "%s", unknown[i]);
  }
}

/* Calls as model cards, and tests of other servers, publish them. */
#define KIMI_BLANKS(id, arguments)                                                                 \
  "<|tool_call_begin|> " id " <|tool_call_argument_begin|> " arguments " <|tool_call_end|>"
#define STEP(name, more)                                                                           \
  "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"" name "\">" more             \
  "</steptml:invoke><｜tool_call_end｜>"
#define STEP_TEXT(name, text) "<steptml:parameter name=\"" name "\">" text "</steptml:parameter>"
#define XTML(tag) "<|open|>" tag "<|sep|>"
#define XTML_END(tag) "<|close|>" tag "<|sep|>"
#define XTML_TEXT(key, type, text)                                                                 \
  XTML("argument key=\"" key "\" type=\"" type "\"") text XTML_END("argument")
static const struct {
  const char *tools, *text, *expected;
} published[] = {
    {"kimi_k3",
     XTML("tools") XTML("call tool=\"get_weather\" index=\"1\"")
         XTML_TEXT("city", "string", "Seoul") XTML_TEXT("count", "number", "3")
             XTML_TEXT("flag", "boolean", "true") XTML_END("call") XTML_END("tools"),
     "T(get_weather|{\"city\": \"Seoul\", \"count\": 3, \"flag\": true})"},
    {"kimi_k3",
     XTML("tools") XTML("call tool=\"f\" index=\"1\"") XTML_TEXT("s", "string", "\n1\n")
         XTML_END("call") "\n" XTML("call tool=\"f\" index=\"2\"")
             XTML_TEXT("o", "object", "{\"k\": \"<|close|>call<|sep|>\"}")
                 XTML_TEXT("a&quot;&amp;b", "array", "[]") XTML_END("call") XTML_END("tools"),
     "T(f|{\"s\": \"\\n1\\n\"})T(f|{\"o\": {\"k\": \"<|close|>call<|sep|>\"}, "
     "\"a\\\"&b\": []})"},
    {"kimi_k3",
     XTML("tools") XTML("call tool=\"f\" index=\"1\"")
         XTML("json type=\"object\"") "{\"a\": 1}" XTML_END("json") XTML_END("call")
             XTML("call tool=\"g\" index=\"2\"") XTML_END("call") XTML_END("tools"),
     "T(f|{\"a\": 1})T(g|{})"},
    {"kimi_k3", "see " XTML("tools") "none", "C(see " XTML("tools") "none)"},
    {"lfm2",
     "Let me check that.<|tool_call_start|>[get_candidate_status(candidate_id=\"12345\")]"
     "<|tool_call_end|>",
     "C(Let me check that.)T(get_candidate_status|{\"candidate_id\": \"12345\"})"},
    {"lfm2", "<|tool_call_start|>[search(query='weather', n=3, exact=True), f()]<|tool_call_end|>",
     "T(search|{\"query\": \"weather\", \"n\": 3, \"exact\": true})T(f|{})"},
    {"ernie45",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Tokyo\"}}\n"
     "</tool_call>\n",
     "T(get_weather|{\"city\": \"Tokyo\"})"},
    {"hunyuan_a13b",
     "How can I help? <tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"SF\"}},"
     "{\"name\": \"f\", \"arguments\": {}}]</tool_calls>",
     "C(How can I help?)T(get_weather|{\"city\": \"SF\"})T(f|{})"},
    {"jamba",
     " <tool_calls>[\n    {\"name\": \"get_current_weather\", \"arguments\": {\"city\": "
     "\"Dallas\"}},\n    {\"name\": \"f\", \"arguments\": {\"s\": \"T[X]\"}}\n]</tool_calls>",
     "T(get_current_weather|{\"city\": \"Dallas\"})T(f|{\"s\": \"T[X]\"})"},
    {"granite-20b-fc",
     "<function_call> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Tokyo\"}}\n"
     "<function_call> {\"name\": \"get_time\", \"arguments\": {\"timezone\": \"Asia/Tokyo\"}}",
     "T(get_weather|{\"city\": \"Tokyo\"})T(get_time|{\"timezone\": \"Asia/Tokyo\"})"},
    {"granite-20b-fc", "<function_call> {\"name\": 123}", "C(<function_call> {\"name\": 123})"},
    {"internlm",
     "I will search.<|action_start|><|plugin|>\n{\"name\": \"get_current_weather\", "
     "\"parameters\": {\"location\": \"Shanghai\"}}<|action_end|>",
     "C(I will search.)T(get_current_weather|{\"location\": \"Shanghai\"})"},
    {"cohere_command3",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"simple_tool\", "
     "\"parameters\": {\"temperature_format\": \"Celsius\"}}\n]<|END_ACTION|>",
     "T(simple_tool|{\"temperature_format\": \"Celsius\"})"},
    {"cohere_command4",
     "<|START_ACTION|>{\"tool_name\":\"weather\",\"parameters\":{\"count\":2}}<|END_ACTION|>",
     "T(weather|{\"count\":2})"},
    {"apertus",
     "before<|tools_prefix|>[{\"get_weather\": {\"city\": \"Paris\"}}, {\"now\": {}}]"
     "<|tools_suffix|>after",
     "C(before)T(get_weather|{\"city\": \"Paris\"})T(now|{})C(after)"},
    {"apertus", "<|tools_prefix|>[{\"a\": 1}]", "C(<|tools_prefix|>[{\"a\": 1}])"},
    {"step3",
     "Let me help you.\n<｜tool_calls_begin｜>\n" STEP(
         "search", "\n" STEP_TEXT("query", "rust programming") "\n" STEP_TEXT(
                       "limit", "if a < b: 10") "\n") "\n<｜tool_calls_end｜>\nHere",
     "C(Let me help you.)T(search|{\"query\": \"rust programming\", \"limit\": "
     "\"if a < b: 10\"})C(Here)"},
    {"step3", "<｜tool_calls_begin｜>" STEP("f", "") STEP("g", "") "<｜tool_calls_end｜>",
     "T(f|{})T(g|{})"},
    {"xlam", "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Tokyo\"}}]",
     "T(get_weather|{\"city\": \"Tokyo\"})"},
    {"kimi_k2",
     "Hm. <|tool_calls_section_begin|> " KIMI_BLANKS(
         "functions.get_weather:0",
         "{\"city\": \"Tokyo\"}") "\n" KIMI_BLANKS("functions.f:1",
                                                   "{ }") " <|tool_calls_section_end|>",
     "C(Hm.)#functions.get_weather:0T(get_weather|{\"city\": \"Tokyo\"})#functions.f:1T(f|{ })"},
};

Test(formats, published_calls) {
  for (size_t i = 0; i < ARRAY_LEN(published); i++) {
    output_options_t options = {.tools = tool_format_find(published[i].tools)};
    cr_assert(options.tools != NULL, "%s", published[i].tools);
    story_expect(&options, published[i].text, strlen(published[i].text), published[i].expected);
  }
}

/* An answer that is not streamed has whole calls, or the text. */
Test(formats, a_broken_call_is_text_if_the_answer_is_whole) {
  static const struct {
    const char *tools, *text, *expected;
  } broken[] = {
      {"llama3_json", "{\"name\": \"x\", \"parameters\": {\"a\": invalid}",
       "C({\"name\": \"x\", \"parameters\": {\"a\": invalid})"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1",
       "C(<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1)"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
       "T(f|{\"a\": 1})"},
      {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": ", "C([TOOL_CALLS]f[ARGS]{\"a\": )"},
  };
  for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
    output_options_t options = {.tools = tool_format_find(broken[i].tools), .whole = true};
    story_expect(&options, broken[i].text, strlen(broken[i].text), broken[i].expected);
  }
}

Test(formats, reasoning_of_every_family) {
  static const struct {
    const char *reasoning, *tools, *text, *expected;
    bool in_reasoning;
  } thoughts[] = {
      {"deepseek_r1", NULL, "text</think>answer", "R(text)C(answer)", true},
      {"think", NULL, "text</think>answer", "C(text</think>answer)", false},
      {"think", NULL, "<think>\nhm</think>a", "R(hm)C(a)", true},
      {"seed_oss", NULL, "<seed:think>hm</seed:think>a", "R(hm)C(a)", false},
      {"mistral", NULL, "<think>hm</think>a", "R(hm)C(a)", false},
      {"granite", NULL, "Here is my thought process: hm Here is my response: a", "R(hm)C(a)",
       false},
      {"granite", NULL, "Here's my thought process: hm Here's my response: a", "R(hm)C(a)", false},
      {"granite", NULL, "Here is my answer", "C(Here is my answer)", false},
      {"gemma4", NULL, "<|channel>thought\nhm<channel|>a", "R(hm)C(a)", false},
      {"gemma4", NULL, "<|channel>hm<channel|>a", "R(hm)C(a)", false},
      {"gemma4", NULL, "<|channel>though hm<channel|>a", "R(though hm)C(a)", false},
      {"cohere_command3", NULL, "<|START_THINKING|>hm<|END_THINKING|>a", "R(hm)C(a)", false},
      {"kimi_k3", NULL,
       "hm" XTML_END("think") XTML("response") "a\n b" XTML_END("response") XTML_END("message"),
       "R(hm)C(a\n b)", true},
      {"kimi_k3", "kimi_k3",
       "hm" XTML_END("think") XTML("response") XTML_END("response") XTML("tools") XTML(
           "call tool=\"f\" index=\"1\"") XTML_END("call") XTML_END("tools") XTML_END("message"),
       "R(hm)T(f|{})", true},
      {"kimi_k3", "kimi_k3", "hm" XTML_END("response") XTML_END("message"), "C(hm)", false},
      /* the mark of a call ends the thoughts */
      {"think", "kimi_k2", "hm <|tool_calls_section_begin|>" KIMI("functions.f:0", "{}"),
       "R(hm)#functions.f:0T(f|{})", true},
      {"mistral", "mistral", "[THINK]hm[TOOL_CALLS]f[ARGS]{}", "R(hm)T(f|{})", false},
      {"think", "hermes",
       "hm\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n</think>\nso",
       "R(hm)T(f|{})C(so)", true},
      {"think", "hermes", "a <tool_call> b </think>c", "R(a <tool_call> b)C(c)", true},
      {"think", "hermes", "a <tool_call>{\"x</think>c", "R(a <tool_call>{\"x)C(c)", true},
      {"think", "hermes", "a <tool_call>{\"x", "R(a <tool_call>{\"x)", true},
  };
  for (size_t i = 0; i < ARRAY_LEN(thoughts); i++) {
    output_options_t options = {.reasoning = reasoning_format_find(thoughts[i].reasoning),
                                .in_reasoning = thoughts[i].in_reasoning};
    if (thoughts[i].tools != NULL) options.tools = tool_format_find(thoughts[i].tools);
    story_expect(&options, thoughts[i].text, strlen(thoughts[i].text), thoughts[i].expected);
  }
}
