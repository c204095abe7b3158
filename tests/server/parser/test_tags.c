/* test_tags.c: calls whose arguments are tags: values by their declared types, whatever the cuts.
 */
#include "server/parser/output.h"

#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

TestSuite(tags, .timeout = 120);

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
    "\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"z\":{\"type\":\"null\"},"
    "\"o\":{\"type\":\"object\"},\"a\":{\"type\":\"array\"},"
    "\"in\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},"
    "\"sn\":{\"type\":[\"string\",\"null\"]},\"so\":{\"type\":[\"string\",\"object\"]},"
    "\"any\":{}}}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

static json_doc_t *tools;

static const json_t *functions(void) {
  if (tools == NULL) {
    inferd_error_t error;
    int code = json_parse(tools_text, strlen(tools_text), &json_limits_request, &tools, &error);
    ASSERT_EQ_FOR(code, 0, "%s", error.message);
  }
  return json_root(tools);
}

static void free_tools(void) {
  json_free(tools);
  tools = NULL;
}

/* What came out: C(content) T(name|arguments); the arguments of every call are JSON. */
typedef struct story {
  buffer_t text, arguments;
  bool in_content;
} story_t;

static void take(void *context, output_kind_t kind, const char *text, size_t length) {
  story_t *story = context;
  cr_assert(length > 0 || kind == OUTPUT_CALL_END, "an empty part");
  if (story->in_content && kind != OUTPUT_CONTENT) buffer_char(&story->text, ')');
  if (kind == OUTPUT_CONTENT && !story->in_content) buffer_text(&story->text, "C(");
  story->in_content = kind == OUTPUT_CONTENT;
  if (kind == OUTPUT_CALL_BEGIN) buffer_text(&story->text, "T(");
  buffer_append(&story->text, text, length);
  if (kind == OUTPUT_CALL_BEGIN) buffer_char(&story->text, '|');
  if (kind == OUTPUT_CALL_TEXT) buffer_append(&story->arguments, text, length);
  if (kind != OUTPUT_CALL_END) return;
  json_doc_t *doc = NULL;
  const buffer_t *json = &story->arguments;
  int code = json_parse(json->data, json->length, &json_limits_request, &doc, NULL);
  ASSERT_EQ_FOR(code, 0, "%.*s", (int)json->length, json->data);
  ASSERT_EQ(json_root(doc)->type, JSON_OBJECT);
  json_free(doc);
  buffer_clear(&story->arguments);
  buffer_char(&story->text, ')');
}

/* Feeds the text in pieces of `size` bytes, the first of them `first`; free() the result. */
static char *tell(const output_options_t *options, const char *text, size_t length, size_t first,
                  size_t size) {
  story_t story = {0};
  output_sink_t sink = {take, &story};
  output_parser_t *parser = output_parser_new(options);
  cr_assert(parser != NULL);
  for (size_t at = 0, piece = first; at < length; at += piece, piece = size) {
    if (piece > length - at) piece = length - at;
    output_parser_feed(parser, text + at, piece, &sink);
  }
  output_parser_end(parser, false, &sink);
  cr_assert(!output_parser_failed(parser));
  output_parser_free(parser);
  if (story.in_content) buffer_char(&story.text, ')');
  buffer_free(&story.arguments);
  return buffer_detach(&story.text, &length);
}

static void expect(const output_options_t *options, const char *text, size_t length,
                   const char *expected) {
  for (size_t cut = 0; cut <= length + 1; cut++) {
    size_t rest = cut <= length ? length : 1; /* one cut everywhere, then byte by byte */
    char *told = tell(options, text, length, cut <= length ? cut : 1, rest);
    ASSERT_STR_EQ_FOR(told, expected, "cut at %zu of %s:\n%s\n%s", cut, text, told, expected);
    free(told);
  }
}

#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CALL(name, parameters)                                                                     \
  "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"

typedef struct row {
  const char *text, *expected;
} row_t;

static const row_t rows[] = {
    {CALL("f", P("s", "x")), "T(f|{\"s\": \"x\"})"},
    {CALL("f", ""), "T(f|{})"},
    {CALL("f", P("s", "x") P("i", "12")), "T(f|{\"s\": \"x\", \"i\": 12})"},
    {"See.\n\n" CALL("f", "") "\n" CALL("g", P("x", "1")) "\n",
     "C(See.)T(f|{})T(g|{\"x\": \"1\"})"},
    {CALL("f", "") " and so", "T(f|{})C(and so)"},
    /* strings: one newline at each end is the format's */
    {CALL("f", P("s", "\na\n\nb\n")), "T(f|{\"s\": \"\\na\\n\\nb\\n\"})"},
    {CALL("f", P("s", "")), "T(f|{\"s\": \"\"})"},
    {CALL("f", "<parameter=s>\n</parameter>"), "T(f|{\"s\": \"\"})"},
    {CALL("f", "<parameter=s></parameter>"), "T(f|{\"s\": \"\"})"},
    {CALL("f", "<parameter=s>a b</parameter><parameter=i> 7 </parameter>"),
     "T(f|{\"s\": \"a b\", \"i\": 7})"},
    {CALL("f", P("s", "\"q\" \\ \t\x01 \xc3\xbc <b> </param > <function> x<parameter=")),
     "T(f|{\"s\": \"\\\"q\\\" \\\\ \\t\\u0001 \xc3\xbc <b> </param > <function> x<parameter=\"})"},
    {CALL("f", P("s", "null") P("any", "12") P("other", "{}")),
     "T(f|{\"s\": \"null\", \"any\": \"12\", \"other\": \"{}\"})"},
    {CALL("f", P("s", "<tool_call>\n<function=g>x</tool_call>")),
     "T(f|{\"s\": \"<tool_call>\\n<function=g>x</tool_call>\"})"},
    /* other types */
    {CALL("f", P("n", "-1.5e3") P("b", "true") P("z", "null") P("in", " 3")),
     "T(f|{\"n\": -1.5e3, \"b\": true, \"z\": null, \"in\": 3})"},
    {CALL("f", P("b", "True") P("z", "None") P("in", "NULL")),
     "T(f|{\"b\": true, \"z\": null, \"in\": null})"},
    {CALL("f", P("i", "5.0") P("n", "7")), "T(f|{\"i\": 5.0, \"n\": 7})"},
    {CALL("f", P("o", "{\"a\": [1,\n 2]}") P("a", "\n[]\n")),
     "T(f|{\"o\": {\"a\": [1,\n 2]}, \"a\": []})"},
    {CALL("f", P("o", "{\"a\": \"</parameter></function>\"}")),
     "T(f|{\"o\": {\"a\": \"</parameter></function>\"}})"},
    {CALL("f", P("sn", "null") P("so", "{\"x\":1}")), "T(f|{\"sn\": null, \"so\": {\"x\":1}})"},
    {CALL("f", P("sn", "nullx") P("so", "[1]")), "T(f|{\"sn\": \"nullx\", \"so\": \"[1]\"})"},
    /* what is no value of its type is a string */
    {CALL("f", P("i", "5.5") P("n", "1_000") P("b", "yes") P("z", "")),
     "T(f|{\"i\": \"5.5\", \"n\": \"1_000\", \"b\": \"yes\", \"z\": \"\"})"},
    {CALL("f", P("i", "007") P("n", "NaN") P("in", "1e400")),
     "T(f|{\"i\": \"007\", \"n\": \"NaN\", \"in\": \"1e400\"})"},
    {CALL("f", P("a", "{}") P("o", "{'a': 1}")), "T(f|{\"a\": \"{}\", \"o\": \"{'a': 1}\"})"},
    {CALL("f", P("o", "{\"a\": 1} x") P("a", "[1")),
     "T(f|{\"o\": \"{\\\"a\\\": 1} x\", \"a\": \"[1\"})"},
    {CALL("f", P("o", "{\"a</parameter>\nb")),
     "T(f|{\"o\": \"{\\\"a\"})C(b\n</parameter>\n</function>\n</tool_call>)"},
    {CALL("f", P("", "x") P("", "y")), "T(f|{\"\": \"x\"})"},
    /* the first of a name counts */
    {CALL("f", P("i", "1") P("i", "2") P("s", "a") P("s", "b")), "T(f|{\"i\": 1, \"s\": \"a\"})"},
    /* tags that are missing */
    {"<tool_call>\n<function=f>\n<parameter=s>\nx\n<parameter=i>\n2\n</function>\n</tool_call>",
     "T(f|{\"s\": \"x\", \"i\": 2})"},
    {"<tool_call>\n<function=f>\n<parameter=s>\n<parameter=i>\n</function>",
     "T(f|{\"s\": \"\", \"i\": \"\"})"},
    {"<tool_call>\n<function=f>\n" P("i", "2") "</tool_call>\nx", "T(f|{\"i\": 2})C(x)"},
    {"<tool_call>\n<function=f>\n" P("i", "2") CALL("g", ""), "T(f|{\"i\": 2})T(g|{})"},
    {"Hm <function=f>\n" P("i", "2") "</function>\n</tool_call>", "C(Hm)T(f|{\"i\": 2})"},
    {"<tool_call><function=f></function><function=g></function></tool_call>", "T(f|{})T(g|{})"},
    /* what is no call is content */
    {"<tool_call>hello</tool_call>", "C(<tool_call>hello</tool_call>)"},
    {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
     "C(<tool_call>\n{\"name\": \"f\"}\n</tool_call>)"},
    {"<tool_call>\n<function=>\n", "C(<tool_call>\n<function=>\n)"},
    {"<tool_call><function=f\n>", "C(<tool_call><function=f\n>)"},
    {"<tool_call><function=f> x", "C(<tool_call><function=f> x)"},
    {"<tool_call><function=f></tool_call>", "C(<tool_call><function=f></tool_call>)"},
    {"a <<tool_call>\n<function", "C(a <<tool_call>\n<function)"},
    {"<tool_call><function=f>\n<param", "C(<tool_call><function=f>\n<param)"},
    {"a <function> <f", "C(a <function> <f)"},
    {"<function=f> <function=g></function>", "C(<function=f> )T(g|{})"},
    /* too late to take it back: the call ends, and what follows is content */
    {"<tool_call><function=f>" P("i", "1") "junk" P("s", "x"),
     "T(f|{\"i\": 1})C(junk<parameter=s>\nx\n</parameter>)"},
    {"<tool_call><function=f>" P("i", "1") "<parameter=s\n>", "T(f|{\"i\": 1})C(<parameter=s\n>)"},
    /* the text ends */
    {"<tool_call><function=f><parameter=s", "T(f|{})"},
    {"<tool_call><function=f><parameter=s>\nab\n</para", "T(f|{\"s\": \"ab\"})"},
    {"<tool_call><function=f><parameter=s>\nab", "T(f|{\"s\": \"ab\"})"},
    {"<tool_call><function=f>" P("s", "x") "<parameter=i>\n12", "T(f|{\"s\": \"x\"})"},
    {"<tool_call><function=f><parameter=i>\n12\n</p", "T(f|{\"i\": 12})"},
    {"<tool_call><function=f><parameter=o>\n{\"a\": [", "T(f|{})"},
    {"<tool_call><function=f><parameter=o>{\"a</parameter><parameter=a>[\"</parameter>",
     "T(f|{\"o\": \"{\\\"a\", \"a\": \"[\\\"\"})"},
};

Test(tags, rows, .fini = free_tools) {
  output_options_t options = {.tools = tool_format_find("qwen3_coder"), .functions = functions()};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    expect(&options, rows[i].text, strlen(rows[i].text), rows[i].expected);
  }
  options.one_call = true;
  expect(&options, CALL("f", "") CALL("g", ""), strlen(CALL("f", "") CALL("g", "")), "T(f|{})");
  options = (output_options_t){.tools = options.tools};
  static const char untyped[] = CALL("f", P("i", "1"));
  expect(&options, untyped, strlen(untyped), "T(f|{\"i\": \"1\"})");
}

/* ---- random ---- */

static uint64_t random_state;

static uint32_t below(uint32_t bound) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % bound;
}

static void seed_random(void) {
  ASSERT_EQ(getrandom(&random_state, sizeof random_state, 0), (ssize_t)sizeof random_state);
}

static void random_json(buffer_t *out, int depth) {
  static const char *const scalars[] = {"1",
                                        "-2.5",
                                        "true",
                                        "null",
                                        "\"</parameter>\"",
                                        "\"\\n<parameter=x>\"",
                                        "\"\"",
                                        "\"\\\"\xc3\xbc\""};
  uint32_t kind = depth == 0 ? 2 : below(3);
  if (kind == 2) {
    buffer_text(out, scalars[below(sizeof scalars / sizeof scalars[0])]);
    return;
  }
  buffer_char(out, kind == 0 ? '{' : '[');
  for (uint32_t i = 0, count = below(3); i < count; i++) {
    static const char *const keys[] = {"\"a\": ", "\"</function>\":\n"};
    if (i > 0) buffer_text(out, ", ");
    if (kind == 0) buffer_text(out, keys[i]);
    random_json(out, depth - 1);
  }
  buffer_char(out, kind == 0 ? '}' : ']');
}

/* Text that holds what a value may hold: anything but its end. */
static void random_text(buffer_t *out) {
  static const char *const words[] = {
      "a",  "\n",         "<", "</",           "parameter>", "<parameter", "\"",
      "\\", "</function", " ", "\xe2\x82\xac", "{",          "null",       "<tool_call>"};
  size_t start = out->length;
  for (uint32_t i = 0, count = below(8); i < count; i++) {
    buffer_text(out, words[below(sizeof words / sizeof words[0])]);
  }
  buffer_char(out, '\0');
  static const char *const ends[] = {"</parameter>", "<parameter=", "</function>"};
  for (int i = 0; i < 3; i++) {
    char *hit;
    while ((hit = strstr(out->data + start, ends[i])) != NULL) *hit = '.';
  }
  out->length--;
}

/* Random calls, written as a model writes them: what is read is what was meant. */
Test(tags, random_calls, .fini = free_tools) {
  seed_random();
  uint64_t seed = random_state;
  output_options_t options = {.tools = tool_format_find("qwen3_coder"), .functions = functions()};
  static const char *const scalars[4][3] = {{"0", "-12", "123456789012345678901"},
                                            {"1", "1.25", "-3e-7"},
                                            {"true", "false", "true"},
                                            {"null", "null", "null"}};
  static const char *const keys[] = {"i", "n", "b", "z"};
  for (int round = 0; round < 3000; round++) {
    buffer_t text = {0}, expected = {0}, value = {0};
    for (uint32_t call = 0, calls = 1 + below(3); call < calls; call++) {
      buffer_text(&text, "<tool_call>\n<function=f>\n");
      buffer_text(&expected, "T(f|{");
      const char *comma = "";
      for (uint32_t k = 0; k < 7; k++) {
        if (below(2) == 0) continue;
        const char *key = k < 4 ? keys[k] : k == 4 ? "s" : k == 5 ? "o" : "extra";
        buffer_clear(&value);
        if (k < 4) buffer_text(&value, scalars[k][below(3)]);
        if (k == 4 || k == 6) random_text(&value);
        if (k == 5) {
          buffer_text(&value, "{\"k\": ");
          random_json(&value, 4);
          buffer_char(&value, '}');
        }
        buffer_text(&text, "<parameter=");
        buffer_text(&text, key);
        buffer_text(&text, ">\n");
        buffer_append(&text, value.data, value.length);
        buffer_text(&text, "\n</parameter>\n");
        buffer_text(&expected, comma);
        buffer_quote(&expected, key, strlen(key));
        buffer_text(&expected, ": ");
        if (k == 4 || k == 6) buffer_quote(&expected, value.data, value.length);
        if (k < 4 || k == 5) buffer_append(&expected, value.data, value.length);
        comma = ", ";
      }
      buffer_text(&text, "</function>\n</tool_call>");
      buffer_text(&expected, "})");
      if (below(2) == 0) buffer_text(&text, "\n");
    }
    buffer_char(&expected, '\0');
    char *told = tell(&options, text.data, text.length, 1 + below(40), 1 + below(20));
    ASSERT_STR_EQ_FOR(told, expected.data, "seed %llu: %.*s\n%s", (unsigned long long)seed,
                      (int)text.length, text.data, told);
    free(told);
    buffer_free(&text);
    buffer_free(&expected);
    buffer_free(&value);
  }
}

/* Texts made of the format's own words, broken in any way: cuts change nothing, arguments are JSON
 * (see take). */
Test(tags, random_texts, .fini = free_tools) {
  static const char *const words[] = {"<tool_call>",
                                      "</tool_call>",
                                      "<function=f>",
                                      "<function=",
                                      "</function>",
                                      "<parameter=s>",
                                      "<parameter=i>",
                                      "<parameter=o>",
                                      "<parameter=a>",
                                      "<parameter=so>",
                                      "<parameter=",
                                      "</parameter>",
                                      "\n",
                                      "\n",
                                      "\n</parameter>\n",
                                      "12",
                                      "null",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      "\"",
                                      "\"a\": ",
                                      ",",
                                      "\\",
                                      "x",
                                      ">",
                                      "<",
                                      "</",
                                      " "};
  seed_random();
  uint64_t seed = random_state;
  int calls = 0;
  output_options_t options = {.tools = tool_format_find("qwen3_coder"), .functions = functions()};
  for (int round = 0; round < 20000; round++) {
    buffer_t text = {0};
    if (below(3) > 0) buffer_text(&text, "<tool_call><function=f><parameter=o>");
    for (uint32_t i = 0, count = 1 + below(16); i < count; i++) {
      buffer_text(&text, words[below(sizeof words / sizeof words[0])]);
    }
    options.one_call = below(4) == 0;
    char *whole = tell(&options, text.data, text.length, text.length, 1);
    char *bytes = tell(&options, text.data, text.length, 1, 1);
    char *pieces = tell(&options, text.data, text.length, 1 + below(20), 1 + below(20));
    ASSERT_STR_EQ_FOR(bytes, whole, "seed %llu: %.*s", (unsigned long long)seed, (int)text.length,
                      text.data);
    ASSERT_STR_EQ_FOR(pieces, whole, "seed %llu: %.*s", (unsigned long long)seed, (int)text.length,
                      text.data);
    calls += strstr(whole, "T(") != NULL;
    free(whole);
    free(bytes);
    free(pieces);
    buffer_free(&text);
  }
  ASSERT_GT(calls, 5000);
}

/* Hostile runs take linear time: quotes that open and close, values that turn out to be no JSON,
 * one name again and again. */
Test(tags, long_runs_are_linear, .fini = free_tools) {
  static const char *const units[] = {
      "<parameter=o>{\"", "<parameter=o>{\"</parameter>", "<parameter=a>[[[[", "\n</para", "\n<",
      "</parameter>",     "<parameter=s>x</parameter>"};
  enum { UNITS = 200000 };
  output_options_t options = {.tools = tool_format_find("qwen3_coder"), .functions = functions()};
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    story_t story = {0};
    output_sink_t sink = {take, &story};
    output_parser_t *parser = output_parser_new(&options);
    static const char start[] = "<tool_call><function=f><parameter=o>";
    output_parser_feed(parser, start, strlen(start), &sink);
    for (int j = 0; j < UNITS; j++) output_parser_feed(parser, units[i], strlen(units[i]), &sink);
    output_parser_end(parser, false, &sink);
    cr_assert(!output_parser_failed(parser));
    output_parser_free(parser);
    buffer_free(&story.text);
    buffer_free(&story.arguments);
  }
}
