/* chat_model.c: the chat templates of the model, and how it writes tool calls and reasoning.
 *
 * Main thread, at start or before the first chat; constant afterwards, so that the pool's threads
 * may read it.
 */
#include "server/completion/chat.h"

#include "engine/base/util.h"
#include "server/observe/log.h"

#include <string.h>

int chat_model_load(completions_t *live, const config_t *config, inferd_error_t *error) {
  const char *path = config->chat_template[0] != '\0' ? config->chat_template : NULL;
  if (config->model[0] == '\0') return 0; /* the engine reports it */
  int code = chat_templates_load(config->model, path, &live->templates, error);
  if (code != 0 && path == NULL && code != ERR_NO_MEMORY) {
    /* The engine needs the same files and reports the error to the user. */
    log_line(LOG_WARN, "load", "no chat: %s", error->message);
    return 0;
  }
  if (code == 0 && chat_templates_problem(live->templates) != NULL) {
    log_line(LOG_WARN, "load", "no chat: %s", chat_templates_problem(live->templates));
  }
  return code;
}

void chat_model_free(completions_t *live) {
  chat_templates_free(live->templates);
  live->templates = NULL;
}

/* ---- how calls are written ---- */

#define QUESTION "{\"role\":\"user\",\"content\":\"a\"}"
static const char trial_body[] =
    "{\"messages\":[" QUESTION "],\"called\":[" QUESTION ",{\"role\":\"assistant\","
    "\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"c\\\":\\\"d\\\"}\"}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"b\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"string\","
    "\"description\":\"d\"}},\"required\":[\"c\"]}}}]}";
#undef QUESTION

/* A template tells the model how to write a call, so its text shows the format. */
static const tool_format_t *format_of_text(const char *text, size_t length) {
  static const struct {
    const char *words, *format;
  } signs[] = {{"<|start|>system<|message|>", "harmony"},
               {"<function=", "qwen3_coder"},
               {"<tool_call>", "hermes"},
               {"[AVAILABLE_TOOLS]", "mistral"},
               {"[TOOL_CALLS]", "mistral"},
               {"\"parameters\": dictionary of argument name", "llama3_json"},
               {"{\"name\": \"f\", \"parameters\": {\"c\"", "llama3_json"}};
  for (size_t i = 0; i < ARRAY_LEN(signs); i++) {
    if (memmem(text, length, signs[i].words, strlen(signs[i].words)) != NULL) {
      return tool_format_find(signs[i].format);
    }
  }
  return NULL;
}

static const tool_format_t *format_of_chat(const completions_t *live, const chat_input_t *input) {
  jinja_output_t out;
  if (chat_template_render(live->templates, input, &out, NULL) != 0) return NULL;
  const tool_format_t *format = format_of_text(out.text, out.length);
  jinja_output_free(&out);
  return format;
}

/* Finds the format in the text of a template, else by rendering a call with it. */
static const tool_format_t *format_of_template(const completions_t *live) {
  json_doc_t *doc = NULL;
  size_t length = sizeof trial_body - 1;
  if (json_parse(trial_body, length, &json_limits_request, &doc, NULL) != 0) return NULL;
  const json_t *root = json_root(doc);
  chat_input_t input = {.messages = json_get(root, "messages"),
                        .tools = json_get(root, "tools"),
                        .add_generation_prompt = true};
  const tool_format_t *format = format_of_chat(live, &input);
  if (format == NULL) {
    input.messages = json_get(root, "called");
    input.add_generation_prompt = false;
    format = format_of_chat(live, &input);
  }
  json_free(doc);
  return format;
}

static bool has_token(const tokenizer_t *tokenizer, const char *text) {
  return tokenizer_id(tokenizer, text, strlen(text)) >= 0;
}

static const tool_format_t *find_tool_format(const completions_t *live, const char *option,
                                             const tokenizer_t *tokenizer) {
  if (strcmp(option, "auto") != 0) return tool_format_find(option); /* NULL for "none" */
  if (!chat_template_mentions(live->templates, true, "tools")) return NULL;
  const tool_format_t *format = format_of_template(live);
  for (const tool_format_t *f = tool_formats; format == NULL && f->name != NULL; f++) {
    if (f->open != NULL && has_token(tokenizer, f->open)) format = f;
  }
  return format != NULL ? format : tool_format_find("json");
}

static const reasoning_format_t *find_reasoning_format(const char *option,
                                                       const tokenizer_t *tokenizer) {
  if (strcmp(option, "auto") != 0) return reasoning_format_find(option);
  for (const reasoning_format_t *format = reasoning_formats; format->name != NULL; format++) {
    const char *open =
        format->answer != NULL ? "<|channel|>" : format->open; /* one mark of the header */
    if (has_token(tokenizer, open) && has_token(tokenizer, format->close)) return format;
  }
  return NULL;
}

void chat_model_ready(completions_t *live, const config_t *config, const tokenizer_t *tokenizer) {
  if (live->chat_is_ready) return;
  live->chat_is_ready = true;
  if (live->templates == NULL || !chat_templates_any(live->templates)) return;
  live->tool_format = find_tool_format(live, config->tool_call_parser, tokenizer);
  live->reasoning_format = find_reasoning_format(config->reasoning_parser, tokenizer);
  if (live->tool_format != NULL && live->tool_format->in_channels) {
    live->reasoning_format = reasoning_format_find("harmony");
  }
  log_line(LOG_INFO, "ready", "chat: tool calls %s, reasoning %s",
           live->tool_format != NULL ? live->tool_format->name : "none",
           live->reasoning_format != NULL ? live->reasoning_format->name : "none");
}
