/* formats.c: how the families of models mark tool calls and reasoning. Constant data.
 *
 * The marks are those of the chat templates of the models: Hermes 2 Pro and Qwen 2.5/3; Llama 3.1
 * to 3.3; Mistral v1 to v13; gpt-oss, whose calls and reasoning are messages in channels; a bare
 * JSON object for models without a format; and Qwen3-Coder, whose arguments are tags.
 */
#include "server/parser/output.h"

#include <string.h>

const tool_format_t tool_formats[] = {
    {.name = "hermes",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .begin_name = "<tool_call>\n{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}\n</tool_call>",
     .between = "\n"},
    {.name = "llama3_json",
     .open = "<|python_tag|>",
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"parameters\": ",
     .end_call = "}",
     .between = "; ",
     .bare = true},
    {.name = "mistral",
     .open = "[TOOL_CALLS]",
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = ", ",
     .before_all = "[TOOL_CALLS][",
     .behind_all = "]",
     .list = true,
     .bare = true,
     .name_end = "[ARGS]",
     .id_mark = "[CALL_ID]",
     .short_ids = true},
    {.name = "harmony",
     .begin_name = "<|channel|>commentary to=functions.",
     .end_name = " <|constrain|>json<|message|>",
     .end_call = "",
     .between = "<|call|><|start|>assistant",
     .in_channels = true},
    {.name = "json",
     .begin_name = "{\"name\": \"",
     .end_name = "\", \"arguments\": ",
     .end_call = "}",
     .between = "\n",
     .list = true,
     .bare = true},
    {.name = "qwen3_coder",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .begin_name = "<tool_call>\n<function=",
     .end_name = ">\n",
     .end_call = "\n</tool_call>",
     .between = "\n",
     .in_tags = true,
     .bare_open = "<function="},
    {.name = NULL},
};

const reasoning_format_t reasoning_formats[] = {
    {"think", "<think>", "</think>", NULL, NULL}, /* DeepSeek R1, Qwen 3, QwQ, SmolLM 3 */
    {"mistral", "[THINK]", "[/THINK]", NULL, NULL},
    {"harmony", "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant",
     "<|channel|>final<|message|>"},
    {NULL, NULL, NULL, NULL, NULL},
};

const char *const channel_marks[] = {"<|start|>",     "<|channel|>", "<|message|>", "<|end|>",
                                     "<|constrain|>", "<|return|>",  "<|call|>",    NULL};

const tool_format_t *tool_format_find(const char *name) {
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    if (strcmp(format->name, name) == 0) return format;
  }
  return NULL;
}

const reasoning_format_t *reasoning_format_find(const char *name) {
  for (const reasoning_format_t *format = reasoning_formats; format->name != NULL; format++) {
    if (strcmp(format->name, name) == 0) return format;
  }
  return NULL;
}
