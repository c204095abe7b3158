/* test_output.c: reasoning and tool calls of every format, whole and cut at every byte. */
#include "server/parser/output.h"

#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "tests/expect.h"
#include "tests/server/parser/story.h"

#include <stdlib.h>
#include <string.h>

TestSuite(output, .timeout = 120);

typedef struct row {
  const char *tools, *reasoning; /* names of formats, NULL = none */
  const char *text, *expected;
  bool in_reasoning, one_call;
} row_t;

#define F(args) "{\"name\": \"f\", \"arguments\": " args "}"

static const row_t rows[] = {
    /* nothing to look for */
    {NULL, NULL, "hello <tool_call>" F("{}"), "C(hello <tool_call>" F("{}") ")", 0, 0},
    {NULL, NULL, "", "", 0, 0},
    {"hermes", "think", "  \n", "C(  \n)", 0, 0},
    /* thoughts */
    {NULL, "think", "<think>\nhm\n\n</think>\n\nyes", "R(hm)C(yes)", 0, 0},
    {NULL, "think", "\n<think>a b</think>c</think>", "R(a b)C(c</think>)", 0, 0},
    {NULL, "think", "hm\n</think>\nyes", "R(hm)C(yes)", 1, 0},
    {NULL, "think", "never closed ", "R(never closed )", 1, 0},
    {NULL, "think", "</think>yes", "C(yes)", 1, 0},
    {NULL, "think", "<thin king>", "C(<thin king>)", 0, 0},
    {NULL, "think", "x<think>y</think>", "C(x<think>y</think>)", 0, 0},
    {NULL, "think", "<think>a < b </ c</think>d", "R(a < b </ c)C(d)", 0, 0},
    {NULL, "mistral", "[THINK]a[b][/THINK]c", "R(a[b])C(c)", 0, 0},
    /* gpt-oss */
    {"harmony", "harmony",
     "<|channel|>analysis<|message|>a < <|b|><|end|><|start|>assistant<|channel|>final<|message|>c",
     "R(a < <|b|>)C(c)", 0, 0},
    {"harmony", "harmony",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": [1, \"<|x\"]}<|call|>",
     "R(hm)T(f|{\"a\": [1, \"<|x\"]})", 0, 0},
    {"harmony", "harmony",
     " to=functions.get-it<|channel|>commentary json<|message|> {\"a\": 1}\n<|call|><|start|>"
     "assistant<|channel|>commentary to=functions.g<|message|>{}",
     "T(get-it|{\"a\": 1})T(g|{})", 0, 0},
    {"harmony", "harmony",
     "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>final"
     "<|message|>more",
     "T(f|{})", 0, 1},
    {"harmony", "harmony", "<|channel|>commentary to=functions.f<|message|><|call|>", "T(f|{})", 0,
     0},
    {"harmony", "harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1",
     "T(f|{\"a\": 1)", 0, 0},
    {"harmony", "harmony", "<|channel|>commentary to=functions.f<|message|>no<|call|>", "C(no)", 0,
     0},
    {"harmony", "harmony", "<|channel|>commentary to=browser<|message|>{}<|call|>", "C({})", 0, 0},
    {"harmony", "harmony", "<|channel|>commentary<|message|>first<|end|>", "C(first)", 0, 0},
    {NULL, "harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "C({})", 0, 0},
    {"harmony", "harmony", "no header", "C(no header)", 0, 0},
    {"harmony", "harmony", "<|channel|>final<|message|>x<|end|><|start|>assist", "C(x)", 0, 0},
    {"harmony", "harmony", "<|channel|>fin", "", 0, 0},
    {"harmony", "harmony", "", "", 0, 0},
    /* Hermes, Qwen */
    {"hermes", NULL, "<tool_call>\n" F("{\"a\": [1, \"}\"]}") "\n</tool_call>",
     "T(f|{\"a\": [1, \"}\"]})", 0, 0},
    {"hermes", NULL, "Let me see.\n<tool_call>" F("{}") "</tool_call>\n", "C(Let me see.)T(f|{})",
     0, 0},
    {"hermes", NULL,
     "<tool_call>" F("{}") "</tool_call>\n<tool_call>" F("{\"b\":2}") "</tool_call>",
     "T(f|{})T(f|{\"b\":2})", 0, 0},
    {"hermes", NULL, "<tool_call>" F("{}") "</tool_call><tool_call>" F("{}") "</tool_call>",
     "T(f|{})", 0, 1},
    {"hermes", NULL, "<tool_call>" F("{}") "</tool_call> and so", "T(f|{})C(and so)", 0, 0},
    {"hermes", NULL, "<tool_call>{\"arguments\": {\"x\":1}, \"name\": \"g\"}</tool_call>",
     "T(g|{\"x\":1})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\":\"g\"}</tool_call>", "T(g|{})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\":\"g\",\"arguments\":null}</tool_call>", "T(g|{})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\":\"g\",\"arguments\":\"{\\\"x\\\": 1}\"}</tool_call>",
     "T(g|{\"x\": 1})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"id\": -12, \"name\":\"g\\u00e9\",\"arguments\":{}, \"z\":0}",
     "T(g\xc3\xa9|{})", 0, 0},
    /* what is no call is content */
    {"hermes", NULL, "<tool_call>hello</tool_call>", "C(<tool_call>hello</tool_call>)", 0, 0},
    {"hermes", NULL, "a <tool_call>{\"name\": f}", "C(a <tool_call>{\"name\": f})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": 5}",
     "C(<tool_call>{\"name\": \"f\", \"arguments\": 5})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\": 1, \"arguments\": {}}",
     "C(<tool_call>{\"name\": 1, \"arguments\": {}})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\": \"\", \"arguments\": {}}",
     "C(<tool_call>{\"name\": \"\", \"arguments\": {}})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"arguments\": {}}", "C(<tool_call>{\"arguments\": {}})", 0, 0},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\"", "C(<tool_call>{\"name\": \"f\")", 0, 0},
    {"hermes", NULL, "<tool_call>", "C(<tool_call>)", 0, 0},
    {"hermes", NULL, "Use the <tool_call> tag, then\n\n  <tool_call> again",
     "C(Use the <tool_call> tag, then\n\n  <tool_call> again)", 0, 0},
    {"hermes", NULL, "<tool_cal", "C(<tool_cal)", 0, 0},
    {"hermes", NULL, "1 < 2 <", "C(1 < 2 <)", 0, 0},
    /* too late to take it back */
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "T(f|{\"a\": 1)", 0,
     0},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}</tool_call>",
     "T(f|{\"a\": )C(x}}</tool_call>)", 0, 0},
    /* thoughts, then a call; a call inside thoughts is a thought */
    {"hermes", "think", "<think>use f <tool_call></think>\n<tool_call>" F("{}") "</tool_call>",
     "R(use f <tool_call>)T(f|{})", 0, 0},
    /* Llama 3 */
    {"llama3_json", NULL, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "T(f|{\"a\": 1})", 0, 0},
    {"llama3_json", NULL, "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "T(f|{})", 0, 0},
    {"llama3_json", NULL,
     "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "T(f|{})T(g|{})", 0, 0},
    {"llama3_json", NULL, "{\"answer\": 42}", "C({\"answer\": 42})", 0, 0},
    {"llama3_json", NULL, "{\"name\": \"Bob\"}", "C({\"name\": \"Bob\"})", 0, 0},
    {"llama3_json", NULL, " {not json}", "C( {not json})", 0, 0},
    {"llama3_json", NULL, "see: {\"name\": \"f\", \"parameters\": {}}",
     "C(see: {\"name\": \"f\", \"parameters\": {}})", 0, 0},
    {"llama3_json", NULL, "{\"name\": \"f\", \"parameters\": {}} ok", "T(f|{})C(ok)", 0, 0},
    {"llama3_json", NULL, "[1, 2]", "C([1, 2])", 0, 0},
    /* Mistral */
    {"mistral", NULL, "[TOOL_CALLS][" F("{\"a\":1}") ", " F("{}") "]", "T(f|{\"a\":1})T(f|{})", 0,
     0},
    {"mistral", NULL, "[TOOL_CALLS] [" F("{}") "]", "T(f|{})", 0, 0},
    {"mistral", NULL, "[" F("{}") "]", "T(f|{})", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS]get_it[ARGS]{\"a\": {}}", "T(get_it|{\"a\": {}})", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS]a[CALL_ID]abc123XYZ[ARGS]{}[TOOL_CALLS]b[ARGS]{\"x\":[]}",
     "#abc123XYZT(a|{})T(b|{\"x\":[]})", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS]a{}", "T(a|{})", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS]what is this?", "C([TOOL_CALLS]what is this?)", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS]a[AR", "C([TOOL_CALLS]a[AR)", 0, 0},
    {"mistral", NULL, "[1, 2, 3]", "C([1, 2, 3])", 0, 0},
    {"mistral", NULL, "[{\"a\": 1}]", "C([{\"a\": 1}])", 0, 0},
    {"mistral", NULL, "Hello [TOOL_CALLS][" F("{}") "]", "C(Hello)T(f|{})", 0, 0},
    {"mistral", NULL, "[TOOL_CALLS][]", "C([TOOL_CALLS][])", 0, 0},
    /* bare JSON */
    {"json", NULL, F("{}"), "T(f|{})", 0, 0},
    {"json", NULL, " [" F("{}") "," F("{\"a\":1}") "] ", "T(f|{})T(f|{\"a\":1})", 0, 0},
    {"json", NULL, F("{}") "\n" F("{}"), "T(f|{})T(f|{})", 0, 0},
    {"json", "think", "<think>x</think>\n" F("{}"), "R(x)T(f|{})", 0, 0},
    {"json", NULL, "plain words", "C(plain words)", 0, 0},
};

static output_options_t options_of(const row_t *row) {
  output_options_t options = {.in_reasoning = row->in_reasoning, .one_call = row->one_call};
  if (row->tools != NULL) options.tools = tool_format_find(row->tools);
  if (row->reasoning != NULL) options.reasoning = reasoning_format_find(row->reasoning);
  ASSERT_EQ((row->tools == NULL), (options.tools == NULL));
  ASSERT_EQ((row->reasoning == NULL), (options.reasoning == NULL));
  return options;
}

Test(output, every_format_cut_at_every_byte) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    output_options_t options = options_of(&rows[i]);
    story_expect(&options, rows[i].text, strlen(rows[i].text), rows[i].expected);
  }
}

/* Hostile text: long runs of what is held back must not be looked at again and again, and nothing
 * of them is lost. */
Test(output, long_runs_are_linear) {
  static const struct {
    const char *unit;
    const char *tools;
  } runs[] = {{" ", "hermes"}, {"<", "hermes"},      {"<tool_call", "hermes"}, {"[", "mistral"},
              {"\n", "json"},  {"{", "llama3_json"}, {"{\"name\":", "json"},   {" ", "mistral"}};
  enum { UNITS = 200000 };
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    output_options_t options = {.tools = tool_format_find(runs[i].tools),
                                .reasoning = reasoning_format_find("think")};
    story_t story = {.last = OUTPUT_CALL_END};
    output_sink_t sink = {story_take, &story};
    output_parser_t *parser = output_parser_new(&options);
    size_t length = strlen(runs[i].unit);
    for (int j = 0; j < UNITS; j++) output_parser_feed(parser, runs[i].unit, length, &sink);
    output_parser_end(parser, false, &sink);
    output_parser_free(parser);
    ASSERT_EQ_FOR(story.text.length, length * UNITS + 2, "%s", runs[i].unit);
    buffer_free(&story.text);
  }
}

/* A header that does not end is content without its mark, and ends the parser's work on it. */
Test(output, channel_header_without_end) {
  static const char *const units[] = {"x", "<|end|>"};
  for (size_t i = 0; i < ARRAY_LEN(units); i++) {
    output_options_t options = {.tools = tool_format_find("harmony"),
                                .reasoning = reasoning_format_find("harmony")};
    buffer_t text = {0}, expected = {0};
    buffer_text(&text, "<|channel|>");
    buffer_text(&expected, "C(");
    for (int j = 0; j < 600; j++) {
      buffer_text(&text, units[i]);
      buffer_text(&expected, units[i]);
    }
    buffer_append(&expected, ")", 2);
    story_expect(&options, text.data, text.length, i == 0 ? expected.data : "");
    buffer_free(&text);
    buffer_free(&expected);
  }
}

/* What random texts are made of: the words of the formats. */
static const char *const bits[] = {"<tool_call>",
                                   "</tool_call>",
                                   "[TOOL_CALLS]",
                                   "[ARGS]",
                                   "[CALL_ID]",
                                   "<|channel|>",
                                   "<|message|>",
                                   "<|start|>assistant",
                                   "<|end|>",
                                   "analysis",
                                   "commentary to=functions.f",
                                   "<think>",
                                   "</think>",
                                   "{\"name\": \"f\", \"arguments\": {}}",
                                   "{\"name\": \"g\", \"parameters\": {\"a\": 1}}",
                                   "{",
                                   "}",
                                   "[",
                                   "]",
                                   ",",
                                   ";",
                                   " ",
                                   "\n",
                                   "\"name\"",
                                   ":",
                                   "\"arguments\"",
                                   "\"x\"",
                                   "1",
                                   "null",
                                   "word",
                                   "<|python_tag|>",
                                   "\\",
                                   "\"",
                                   "<",
                                   "</",
                                   "[THINK]",
                                   "[/THINK]"};

static void random_text(buffer_t *text, const tool_format_t *format, int count_max) {
  int count = 1 + rand() % count_max;
  for (int i = 0; i < count; i++) {
    const char *const own[] = {format->section,    format->section_end, format->open,
                               format->close,      format->other_open,  format->other_close,
                               format->before_all, format->behind_all,  format->begin_name,
                               format->end_name,   format->end_call,    format->between};
    const char *word = own[(size_t)rand() % ARRAY_LEN(own)];
    int kind = rand() % 8;
    if (kind == 0) {
      story_write_call(text, format, "f", "1");
    } else if (kind < 4 && word != NULL) {
      buffer_text(text, word);
    } else {
      buffer_text(text, bits[(size_t)rand() % ARRAY_LEN(bits)]);
    }
  }
}

/* Text in which nothing is recognised comes out byte by byte as it went in, blanks before marks
 * too. */
Test(output, text_without_a_call_is_unchanged) {
  srand(12);
  int plain = 0, marked = 0;
  for (int round = 0; round < 20000; round++) {
    buffer_t text = {0}, expected = {0};
    output_options_t options = {.tools = &tool_formats[(size_t)rand() % story_num_formats()]};
    random_text(&text, options.tools, 5);
    if (options.tools->payload == PAYLOAD_CHANNELS)
      options.reasoning = reasoning_format_find("harmony");
    size_t cuts[3], num_cuts = (size_t)rand() % 4;
    for (size_t i = 0; i < num_cuts; i++) {
      size_t from = i > 0 ? cuts[i - 1] : 0;
      cuts[i] = from + (size_t)rand() % (text.length - from + 1);
    }
    buffer_char(&text, 'z'); /* never empty, so never NULL */
    char *told = story_tell(&options, text.data, text.length, cuts, num_cuts);
    bool channels = options.tools->payload == PAYLOAD_CHANNELS &&
                    memmem(text.data, text.length, "<|", 2) != NULL;
    if (strncmp(told, "C(", 2) == 0 && strstr(told, "T(") == NULL && !channels) {
      buffer_text(&expected, "C(");
      buffer_append(&expected, text.data, text.length);
      buffer_append(&expected, ")", 2);
      ASSERT_STR_EQ_FOR(told, expected.data, "%s", options.tools->name);
      plain++;
      marked += options.tools->open != NULL && strstr(told, options.tools->open) != NULL;
    }
    free(told);
    buffer_free(&text);
    buffer_free(&expected);
  }
  ASSERT_GT(plain, 5000);
  ASSERT_GT(marked, 500);
}

/* Random texts: cuts change nothing, names are never empty, and the arguments of a call that ended
 * by itself are JSON. */
Test(output, random_texts) {
  srand(11);
  int calls = 0;
  for (int round = 0; round < 20000; round++) {
    buffer_t text = {0};
    output_options_t options = {.tools = &tool_formats[(size_t)rand() % story_num_formats()],
                                .in_reasoning = rand() % 4 == 0,
                                .one_call = rand() % 4 == 0};
    if (rand() % 2 == 0) options.reasoning = &reasoning_formats[rand() % 2];
    random_text(&text, options.tools, 8);
    char *whole = story_tell(&options, text.data, text.length, NULL, 0);
    size_t cuts[256];
    for (size_t i = 0; i < text.length && i < 256; i++) cuts[i] = i + 1;
    char *bytes =
        story_tell(&options, text.data, text.length, cuts, text.length < 256 ? text.length : 256);
    ASSERT_STR_EQ_FOR(bytes, whole, "%.*s", (int)text.length, text.data);
    calls += strstr(whole, "T(") != NULL;
    free(whole);
    free(bytes);
    buffer_free(&text);
  }
  ASSERT_GT(calls, 500);
}
