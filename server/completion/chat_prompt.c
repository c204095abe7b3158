/* chat_prompt.c: from the messages of a chat request to the text that is tokenised.
 *
 * Stage 2 of 9. Loop thread or libuv's pool, like prompt.c, which calls it and then
 * treats the text like any prompt. Next: server/completion/prompt.c.
 */
#include "server/completion/chat.h"

#include "server/completion/dialect.h"

#include "server/fields/json_copy.h"
#include "server/observe/log.h"
#include "server/parser/json_scan.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int fail(inferd_error_t *error, int code, const char *param, const char *message) {
  return error_set(error, code, param, "%s", message);
}

bool chat_takes_tools(const completions_t *live) {
  return chat_template_mentions(live->templates, true, "tools") ||
         chat_template_mentions(live->templates, true, "xml_tools");
}

/* Refuses fields that have an effect only if the template reads them, and it does not. */
static int check_template_knows(const completions_t *live, const chat_params_t *chat,
                                bool has_tools, inferd_error_t *error) {
  const chat_templates_t *templates = live->templates;
  if (has_tools && !chat_takes_tools(live)) {
    return fail(error, ERR_UNSUPPORTED_PARAMETER, "tools",
                "The chat template of this model does not take tools.");
  }
  if (has_tools && live->tool_format == NULL) {
    return fail(error, ERR_UNSUPPORTED_PARAMETER, "tools",
                "Tool calls of this model are not read: the server runs without a tool call "
                "parser (--tool-call-parser). Use tool_choice 'none'.");
  }
  if (chat->documents != NULL && !chat_template_mentions(templates, has_tools, "documents")) {
    return fail(error, ERR_UNSUPPORTED_PARAMETER, "documents",
                "The chat template of this model does not take documents.");
  }
  return 0;
}

bool chat_ignores_effort(const completions_t *live, const chat_params_t *chat) {
  bool has_tools = chat->tools != NULL && chat->tool_choice != TOOLS_NONE;
  return chat->reasoning_effort != NULL && !chat_template_reads_effort(live->templates, has_tools);
}

/* The client reads the name of the template's file; the operator also where it lies. A template's
 * own words do not tell a client whose they are. */
static int fail_template(const config_t *config, inferd_error_t *error) {
  char words[ERROR_MESSAGE_MAX];
  const char *path = config->chat_template[0] != '\0' ? config->chat_template : config->model;
  log_line(LOG_INFO, "template", "chat template of %s: %s", path, error->message);
  if (strcmp(error->param, "messages") != 0) return error->code;
  snprintf(words, sizeof words, "%s", error->message);
  return error_set(error, ERR_BAD_REQUEST, "messages",
                   "The chat template of this model does not take these 'messages': %s", words);
}

int chat_render_input(const completions_t *live, const chat_params_t *chat, jinja_output_t *out,
                      inferd_error_t *error) {
  bool has_tools = chat->tools != NULL && chat->tool_choice != TOOLS_NONE;
  const char *problem = NULL;
  if (live->templates != NULL) problem = chat_templates_problem(live->templates);
  if (problem != NULL) {
    return error_set(error, ERR_BAD_REQUEST, NULL,
                     "Chat is not possible: the chat template of this model cannot be used (%s).",
                     problem);
  }
  if (live->templates == NULL || !chat_templates_any(live->templates)) {
    return error_set(error, ERR_BAD_REQUEST, NULL,
                     "Chat is not possible: this model has no chat template. Use /v1/completions, "
                     "or start the server with --chat-template FILE.");
  }
  int code = check_template_knows(live, chat, has_tools, error);
  if (code != 0) return code;
  const vision_t *vision = engine_info(live->server->engine)->vision;
  chat_input_t input = {.messages = chat->messages,
                        .picture = vision != NULL ? vision->spelling : NULL,
                        .tools = has_tools ? chat->tools : NULL,
                        .documents = chat->documents,
                        .kwargs = chat->template_kwargs,
                        .effort = chat->reasoning_effort,
                        .add_generation_prompt = chat->generation_prompt,
                        .continue_final_message = chat->continue_final,
                        .now_seconds = (int64_t)time(NULL)};
  code = chat_template_render(live->templates, &input, out, error);
  return code == ERR_BAD_REQUEST ? fail_template(live->server->config, error) : code;
}

void chat_hide_specials(const server_t *server, const jinja_output_t *rendered, bool has_pictures,
                        tokenize_options_t *options) {
  bool allowed = strcmp(server->config->special_tokens_in_content, "allow") == 0;
  if (allowed && !has_pictures) return;
  options->plain = rendered->request;
  options->num_plain = rendered->num_request;
}

static bool ends_with(const char *text, size_t length, const char *mark) {
  size_t bytes = mark != NULL ? strlen(mark) : 0;
  while (bytes > 0 && json_is_blank(mark[bytes - 1])) bytes--;
  return bytes > 0 && length >= bytes && memcmp(text + length - bytes, mark, bytes) == 0;
}

/* If the prompt ends inside an open reasoning block, the first generated text is reasoning. */
static bool opens_reasoning(const reasoning_format_t *format, const char *text, size_t length) {
  while (length > 0 && json_is_blank(text[length - 1])) length--;
  if (ends_with(text, length, format->open) || ends_with(text, length, format->other_open)) {
    return true;
  }
  bool closed =
      ends_with(text, length, format->close) || ends_with(text, length, format->other_close);
  return format->open_optional && !closed;
}

int chat_render(completion_t *completion) {
  completions_t *live = completion->server->live;
  chat_params_t *chat = &completion->params.chat;
  jinja_output_t *out = &completion->intake->rendered;
  intake_t *intake = completion->intake;
  int code = chat_render_input(live, chat, out, &intake->error);
  if (code == 0) code = pictures_write(&completion->pictures, out, &intake->error);
  if (code != 0) return code;
  const char *effort = completion->dialect->effort;
  if (chat_ignores_effort(live, chat)) {
    field_name_ignored(intake->ignored, effort != NULL ? effort : "reasoning_effort");
  }
  completion->params.prompts[0] = (prompt_t){.text = out->text, .length = out->length};
  if (chat->tools != NULL && chat->tool_choice != TOOLS_NONE) {
    completion->tool_format = live->tool_format;
  }
  completion->reasoning_format = live->reasoning_format;
  completion->in_reasoning = live->reasoning_format != NULL && !chat->continue_final &&
                             opens_reasoning(live->reasoning_format, out->text, out->length);
  completion->in_text = live->reasoning_format != NULL &&
                        (chat->continue_final ||
                         ends_with(out->text, out->length, live->reasoning_format->text_open));
  return 0;
}

/* Begins the choice with the text of the last message, if the assistant wrote that message. */
static void begin_with_echo(const chat_params_t *chat, choice_t *choice) {
  const json_t *last = NULL;
  JSON_EACH(message, chat->messages) last = message;
  const json_t *content = json_get(last, "content");
  if (!json_equals(json_get(last, "role"), "assistant") || content == NULL) return;
  if (content->type == JSON_STRING) buffer_append(&choice->text, content->text, content->length);
  JSON_EACH(part, content) {
    const json_t *text = json_get(part, "text");
    if (part != json_first(content)) buffer_char(&choice->text, '\n');
    buffer_append(&choice->text, text->text, text->length);
  }
}

enum { MARKS_MAX = 24 };

/* The parser needs its marks in the text, so special tokens that are marks are not removed from it.
 */
static bool show_marks(completion_t *completion) {
  const tool_format_t *tools = completion->tool_format;
  const reasoning_format_t *reasoning = completion->reasoning_format;
  static const char *const none[] = {NULL};
  const char *const *lists[] = {tools != NULL && tools->marks != NULL ? tools->marks : none,
                                reasoning != NULL ? reasoning->marks : none};
  const id_list_t *shown = &completion->params.constraint.shown;
  int32_t most = MARKS_MAX + shown->count, count = shown->count;
  int32_t *ids = arena_calloc(&completion->arena, (size_t)most, sizeof *ids);
  if (ids == NULL) return false;
  if (count > 0) memcpy(ids, shown->ids, (size_t)count * sizeof *ids);
  for (int i = 0; i < 2; i++) {
    for (const char *const *mark = lists[i]; *mark != NULL && count < most; mark++) {
      int32_t id = tokenizer_id(completion->tokenizer, *mark, strlen(*mark));
      if (id >= 0) ids[count++] = id;
    }
  }
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    completion->inputs[i].request.shown_ids = ids;
    completion->inputs[i].request.num_shown_ids = count;
  }
  return true;
}

/* Tells the parser which part of the message is already in the prompt: the text after the last
 * start mark. */
static void read_begun(const completion_t *completion, output_options_t *options) {
  static const char start[] = "<|start|>";
  const prompt_t *prompt = &completion->params.prompts[0];
  size_t at = prompt->length, mark = sizeof start - 1;
  const reasoning_format_t *format = options->reasoning;
  if (format == NULL || format->answer == NULL || prompt->text == NULL) return;
  while (at >= mark && memcmp(prompt->text + at - mark, start, mark) != 0) at--;
  if (at < mark) return;
  options->begun = prompt->text + at;
  options->begun_length = prompt->length - at;
}

int chat_begin_choices(completion_t *completion) {
  output_options_t options = {.tools = completion->tool_format,
                              .reasoning = completion->reasoning_format,
                              .in_reasoning = completion->in_reasoning,
                              .one_call = !completion->params.chat.parallel_tool_calls};
  if (options.tools != NULL) {
    /* Copied, because the parsed request is freed when the engine has the prompt. */
    options.functions = json_copy(&completion->arena, completion->params.chat.tools);
    if (options.functions == NULL) {
      return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
    }
  }
  read_begun(completion, &options);
  bool plain = options.tools == NULL && options.reasoning == NULL;
  if (!plain && !show_marks(completion)) {
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  }
  for (int32_t i = 0; i < completion->num_choices; i++) {
    choice_t *choice = &completion->choices[i];
    if (completion->params.echo) begin_with_echo(&completion->params.chat, choice);
    if (plain) continue;
    choice->parser = output_parser_new(&options);
    if (choice->parser == NULL) {
      return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
    }
  }
  return 0;
}
