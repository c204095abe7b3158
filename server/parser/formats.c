/* formats.c: how the families of models mark tool calls and reasoning. Constant data.
 *
 * The marks are those of the chat templates of the models. Names and aliases are those of vLLM's
 * parsers. Where a family has changed its spelling, a row reads all spellings and writes the one of
 * the newer models.
 */
#include "server/parser/formats.h"

#include <string.h>

#define MARKS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- words of payloads ---- */

static const tag_words_t seed_tags = {
    .end_name = ">",
    .begin_key = "<parameter=",
    .end_key = ">",
    .end_value = "</parameter>",
    .end_call = "</function>",
    .end_calls = "</seed:tool_call>",
    .value_ends = TAG_ENDS("<parameter=", "</parameter>", "</function>"),
    .before_value = "",
    .around_value = "",
    .behind_value = "\n",
};

static const tag_words_t glm_tags = {
    .begin_key = "<arg_key>",
    .end_key = "</arg_key>",
    .begin_value = "<arg_value>",
    .end_value = "</arg_value>",
    .end_call = "</tool_call>",
    .value_ends = TAG_ENDS("<arg_key>", "</arg_value>", "</tool_call>"),
    .before_value = "\n<arg_value>",
    .around_value = "",
    .behind_value = "\n",
};

static const tag_words_t minimax_tags = {
    .end_name = "\">",
    .begin_key = "<parameter name=\"",
    .end_key = "\">",
    .end_value = "</parameter>",
    .end_call = "</invoke>",
    .end_calls = "</minimax:tool_call>",
    .value_ends = TAG_ENDS("<parameter name=\"", "</parameter>", "</invoke>"),
    .before_value = "",
    .around_value = "",
    .behind_value = "\n",
};

#define DSML_KEY "<｜DSML｜parameter name=\""
#define DSML_TAGS(calls)                                                                           \
  {                                                                                                \
    .end_name = "\">", .begin_key = DSML_KEY, .end_key = "\">",                                    \
    .end_text_key = "\" string=\"true\">", .end_json_key = "\" string=\"false\">",                 \
    .end_value = "</｜DSML｜parameter>", .end_call = "</｜DSML｜invoke>",                          \
    .end_calls = "</｜DSML｜" calls ">",                                                           \
    .value_ends = TAG_ENDS(DSML_KEY, "</｜DSML｜parameter>", "</｜DSML｜invoke>"),                 \
    .before_value = "", .around_value = "", .behind_value = "\n",                                  \
  }

static const tag_words_t dsml_tags = DSML_TAGS("function_calls");
static const tag_words_t dsml4_tags = DSML_TAGS("tool_calls");

static const literal_words_t python = {.open = '(', .assign = '=', .close = ')'};
static const literal_words_t function_gemma = {
    .open = '{', .assign = ':', .close = '}', .string_mark = "<escape>"};
static const literal_words_t gemma = {
    .open = '{', .assign = ':', .close = '}', .string_mark = "<|\"|>"};

/* ---- tool calls ---- */

const tool_format_t tool_formats[] = {
    {.name = "hermes", /* Hermes 2 Pro, Qwen 2.5 and 3, Granite 4, SmolLM3 */
     .aliases = " granite4 ",
     .marks = MARKS("<tool_call>", "</tool_call>"),
     .open = "<tool_call>",
     .close = "</tool_call>",
     .begin_name = "<tool_call>\n{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}\n</tool_call>",
     .between = "\n",
     .signs = {"<tool_call>\n{\"name\"", "<tool_call>{\"name\""}},
    {.name = "qwen3_coder",
     .aliases = " qwen3_xml mimo ",
     .payload = PAYLOAD_TAGS,
     .tags = &tag_words_function,
     .marks = MARKS("<tool_call>", "</tool_call>"),
     .section = "<tool_call>",
     .section_end = "</tool_call>",
     .open = "<function=",
     .begin_name = "<tool_call>\n<function=",
     .end_name = ">\n",
     .end_call = "\n</tool_call>",
     .between = "\n",
     .signs = {"<tool_call>\n<function="}},
    {.name = "seed_oss",
     .payload = PAYLOAD_TAGS,
     .tags = &seed_tags,
     .marks = MARKS("<seed:tool_call>", "</seed:tool_call>"),
     .section = "<seed:tool_call>",
     .section_end = "</seed:tool_call>",
     .open = "<function=",
     .begin_name = "<seed:tool_call>\n<function=",
     .end_name = ">\n",
     .end_call = "\n</seed:tool_call>",
     .between = "\n",
     .signs = {"<seed:tool_call>"}},
    {.name = "glm45", /* GLM 4.5 to 4.7 */
     .aliases = " glm47 ",
     .payload = PAYLOAD_TAGS,
     .tags = &glm_tags,
     .marks = MARKS("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
                    "</arg_value>"),
     .open = "<tool_call>",
     .begin_name = "<tool_call>",
     .end_name = "\n",
     .end_call = "",
     .between = "\n",
     .signs = {"<arg_key>"}},
    {.name = "minimax_m2",
     .payload = PAYLOAD_TAGS,
     .tags = &minimax_tags,
     .marks = MARKS("<minimax:tool_call>", "</minimax:tool_call>"),
     .section = "<minimax:tool_call>",
     .section_end = "</minimax:tool_call>",
     .open = "<invoke name=\"",
     .begin_name = "<invoke name=\"",
     .end_name = "\">\n",
     .end_call = "\n",
     .between = "",
     .before_all = "<minimax:tool_call>\n",
     .behind_all = "</minimax:tool_call>",
     .signs = {"<minimax:tool_call>"}},
    {.name = "deepseek_v32",
     .payload = PAYLOAD_TAGS,
     .tags = &dsml_tags,
     .marks = MARKS("｜DSML｜"),
     .section = "<｜DSML｜function_calls>",
     .section_end = "</｜DSML｜function_calls>",
     .open = "<｜DSML｜invoke name=\"",
     .begin_name = "<｜DSML｜invoke name=\"",
     .end_name = "\">\n",
     .end_call = "\n",
     .between = "",
     .before_all = "<｜DSML｜function_calls>\n",
     .behind_all = "</｜DSML｜function_calls>",
     .signs = {"<｜DSML｜function_calls>"}},
    {.name = "deepseek_v4",
     .payload = PAYLOAD_TAGS,
     .tags = &dsml4_tags,
     .marks = MARKS("｜DSML｜"),
     .section = "<｜DSML｜tool_calls>",
     .section_end = "</｜DSML｜tool_calls>",
     .open = "<｜DSML｜invoke name=\"",
     .begin_name = "<｜DSML｜invoke name=\"",
     .end_name = "\">\n",
     .end_call = "\n",
     .between = "",
     .before_all = "<｜DSML｜tool_calls>\n",
     .behind_all = "</｜DSML｜tool_calls>",
     .signs = {"<｜DSML｜tool_calls>"}},
    {.name = "deepseek_v3", /* V3 and R1 */
     .marks = MARKS("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
     .section = "<｜tool▁calls▁begin｜>",
     .section_end = "<｜tool▁calls▁end｜>",
     .open = "<｜tool▁call▁begin｜>",
     .close = "<｜tool▁call▁end｜>",
     .name_begin = "function<｜tool▁sep｜>",
     .name_end = "```json",
     .fence = "```",
     .begin_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .end_name = "\n```json\n",
     .end_call = "\n```<｜tool▁call▁end｜>",
     .between = "\n",
     .before_all = "<｜tool▁calls▁begin｜>",
     .behind_all = "<｜tool▁calls▁end｜>",
     .signs = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>"}},
    {.name = "deepseek_v31",
     .marks = MARKS("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
     .section = "<｜tool▁calls▁begin｜>",
     .section_end = "<｜tool▁calls▁end｜>",
     .open = "<｜tool▁call▁begin｜>",
     .close = "<｜tool▁call▁end｜>",
     .name_end = "<｜tool▁sep｜>",
     .begin_name = "<｜tool▁call▁begin｜>",
     .end_name = "<｜tool▁sep｜>",
     .end_call = "<｜tool▁call▁end｜>",
     .between = "",
     .before_all = "<｜tool▁calls▁begin｜>",
     .behind_all = "<｜tool▁calls▁end｜>"},
    {.name = "kimi_k2",
     .marks = MARKS("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
     .section = "<|tool_calls_section_begin|>",
     .section_end = "<|tool_calls_section_end|>",
     .open = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .name_begin = "functions.",
     .name_end = "<|tool_call_argument_begin|>",
     .names_are_ids = true,
     .begin_name = "<|tool_call_begin|>functions.",
     .end_name = "<|tool_call_argument_begin|>",
     .end_call = "<|tool_call_end|>",
     .between = "",
     .before_all = "<|tool_calls_section_begin|>",
     .behind_all = "<|tool_calls_section_end|>",
     .signs = {"<|tool_calls_section_begin|>"}},
    {.name = "mistral", /* v1 to v13 */
     .marks = MARKS("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
     .open = "[TOOL_CALLS]",
     .name_end = "[ARGS]",
     .id_mark = "[CALL_ID]",
     .list = true,
     .bare = true,
     .short_ids = true,
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = ", ",
     .before_all = "[TOOL_CALLS][",
     .behind_all = "]",
     .signs = {"[AVAILABLE_TOOLS]", "[TOOL_CALLS]"}},
    {.name = "granite", /* 3.0; 3.1 to 3.3 */
     .marks = MARKS("<|tool_call|>", "<tool_call>"),
     .open = "<tool_call>",
     .close = "</tool_call>",
     .other_open = "<|tool_call|>",
     .list = true,
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = ", ",
     .before_all = "<tool_call>[",
     .behind_all = "]",
     .signs = {"<|tool_call|>", "<tool_call>["}},
    {.name = "phi4_mini_json",
     .marks = MARKS("<|tool_call|>", "<|/tool_call|>"),
     .open = "functools",
     .other_open = "<|tool_call|>",
     .other_close = "<|/tool_call|>",
     .list = true,
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = ", ",
     .before_all = "functools[",
     .behind_all = "]",
     .signs = {"functools[", "<|tool|>"}},
    {.name = "harmony", /* gpt-oss */
     .aliases = " openai ",
     .payload = PAYLOAD_CHANNELS,
     .marks = channel_marks,
     .begin_name = "<|channel|>commentary to=functions.",
     .end_name = " <|constrain|>json<|message|>",
     .end_call = "",
     .between = "<|call|><|start|>assistant",
     .signs = {"<|start|>system<|message|>"}},
    {.name = "olmo3",
     .payload = PAYLOAD_LITERALS,
     .literals = &python,
     .marks = MARKS("<function_calls>", "</function_calls>"),
     .open = "<function_calls>",
     .close = "</function_calls>",
     .begin_name = "",
     .end_name = "(",
     .end_call = "",
     .between = "\n",
     .before_all = "<function_calls>\n",
     .behind_all = "\n</function_calls>",
     .signs = {"<function_calls>"}},
    {.name = "functiongemma",
     .payload = PAYLOAD_LITERALS,
     .literals = &function_gemma,
     .marks = MARKS("<start_function_call>", "<end_function_call>", "<escape>"),
     .open = "<start_function_call>call:",
     .close = "<end_function_call>",
     .begin_name = "<start_function_call>call:",
     .end_name = "{",
     .end_call = "<end_function_call>",
     .between = "",
     .signs = {"<start_function_call>"}},
    {.name = "gemma4",
     .payload = PAYLOAD_LITERALS,
     .literals = &gemma,
     .marks = MARKS("<|tool_call>", "<tool_call|>", "<|\"|>"),
     .open = "<|tool_call>call:",
     .close = "<tool_call|>",
     .begin_name = "<|tool_call>call:",
     .end_name = "{",
     .end_call = "<tool_call|>",
     .between = "",
     .signs = {"<|tool_call>"}},
    {.name = "llama4_pythonic",
     .payload = PAYLOAD_LITERALS,
     .literals = &python,
     .marks = MARKS("<|python_start|>", "<|python_end|>"),
     .open = "<|python_start|>",
     .close = "<|python_end|>",
     .bare = true,
     .list = true,
     .begin_name = "",
     .end_name = "(",
     .end_call = "",
     .between = ", ",
     .before_all = "[",
     .behind_all = "]",
     .signs = {"<|python_start|>"}},
    {.name = "pythonic", /* Llama 3.2, Gemma 3 with a template for tools */
     .payload = PAYLOAD_LITERALS,
     .literals = &python,
     .marks = MARKS("<|python_tag|>"),
     .open = "<|python_tag|>",
     .bare = true,
     .list = true,
     .begin_name = "",
     .end_name = "(",
     .end_call = "",
     .between = ", ",
     .before_all = "[",
     .behind_all = "]",
     .signs = {"[func_name1(params_name1=params_value1"}},
    {.name = "llama3_json", /* Llama 3.1 to 3.3 */
     .aliases = " llama4_json ",
     .marks = MARKS("<|python_tag|>"),
     .open = "<|python_tag|>",
     .bare = true,
     .inside_text = true,
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"parameters\": ",
     .end_call = "}",
     .between = "; ",
     .signs = {"\"parameters\": dictionary of argument name"}},
    {.name = "json", /* models without a format of their own */
     .bare = true,
     .inside_text = true,
     .list = true,
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = "\n"},
    {.name = NULL},
};

/* ---- reasoning ---- */

const reasoning_format_t reasoning_formats[] = {
    {.name = "think",
     .aliases = " qwen3 glm45 olmo3 kimi_k2 ",
     .marks = MARKS("<think>", "</think>"),
     .open = "<think>",
     .close = "</think>"},
    {.name = "deepseek_r1", /* the output may begin inside the reasoning */
     .aliases = " minimax_m2 ",
     .marks = MARKS("<think>", "</think>"),
     .open = "<think>",
     .close = "</think>",
     .open_optional = true},
    {.name = "seed_oss",
     .marks = MARKS("<seed:think>", "</seed:think>"),
     .open = "<seed:think>",
     .close = "</seed:think>"},
    {.name = "mistral",
     .marks = MARKS("[THINK]", "[/THINK]", "<think>", "</think>"),
     .open = "[THINK]",
     .close = "[/THINK]",
     .other_open = "<think>",
     .other_close = "</think>"},
    {.name = "granite",
     .marks = MARKS(NULL),
     .open = "Here is my thought process:",
     .close = "Here is my response:",
     .other_open = "Here's my thought process:",
     .other_close = "Here's my response:"},
    {.name = "gemma4",
     .marks = MARKS("<|channel>", "<channel|>"),
     .open = "<|channel>thought\n",
     .close = "<channel|>"},
    {.name = "harmony",
     .aliases = " openai_gptoss ",
     .marks = channel_marks,
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .between = "<|start|>assistant",
     .answer = "<|channel|>final<|message|>"},
    {.name = NULL},
};

const char *const channel_marks[] = {"<|start|>",     "<|channel|>", "<|message|>", "<|end|>",
                                     "<|constrain|>", "<|return|>",  "<|call|>",    NULL};

static bool has_name(const char *name, const char *aliases, const char *wanted) {
  if (strcmp(name, wanted) == 0) return true;
  size_t length = strlen(wanted);
  if (aliases == NULL || length == 0 || strchr(wanted, ' ') != NULL) return false;
  for (const char *at = aliases; (at = strstr(at, wanted)) != NULL; at++) {
    if (at[-1] == ' ' && at[length] == ' ') return true;
  }
  return false;
}

const tool_format_t *tool_format_find(const char *name) {
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    if (has_name(format->name, format->aliases, name)) return format;
  }
  return NULL;
}

const reasoning_format_t *reasoning_format_find(const char *name) {
  for (const reasoning_format_t *format = reasoning_formats; format->name != NULL; format++) {
    if (has_name(format->name, format->aliases, name)) return format;
  }
  return NULL;
}

const char *tool_format_opener(const tool_format_t *format) {
  return format->section != NULL ? format->section : format->open;
}
