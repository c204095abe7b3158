/* params_chat.c: the table of the fields that only POST /v1/chat/completions has.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Loop thread or libuv's pool; keeps no
 * state. The rows are in chat_fields.def; all others come from the table in params.c. The readers
 * of messages and tools are in chat_fields.c. Next: server/completion/prompt.c.
 */
#include "server/fields/params_read.h"

#include "engine/base/util.h"
#include "server/fields/json_copy.h"

#include <stdio.h>
#include <string.h>

static const field_t rows[] = {
#include "server/fields/chat_fields.def"
};

const field_table_t chat_table = {rows, ARRAY_LEN(rows), &params_table};

/* ---- allowed_tools ---- */

/* The names of functions. A client can make each tool long, so each is looked through once. */
typedef struct tool_names {
  span_t items[TOOLS_MAX];
  int count;
} tool_names_t;

static tool_names_t names_of(const json_t *tools) {
  tool_names_t names;
  names.count = 0;
  JSON_EACH(tool, tools) {
    const json_t *name = json_get(json_get(tool, "function"), "name");
    names.items[names.count++] = (span_t){name->text, name->length};
  }
  return names;
}

static bool is_among(const tool_names_t *names, span_t wanted) {
  for (int i = 0; i < names->count; i++) {
    span_t name = names->items[i];
    if (name.length == wanted.length && memcmp(name.text, wanted.text, name.length) == 0)
      return true;
  }
  return false;
}

static int check_allowed(const tool_names_t *tools, const tool_names_t *allowed,
                         inferd_error_t *error) {
  for (int i = 0; i < allowed->count; i++) {
    if (is_among(tools, allowed->items[i])) continue;
    char place[ERROR_PARAM_MAX], name[80];
    snprintf(place, sizeof place, "tool_choice.allowed_tools.tools[%d].function.name", i);
    error_quote(name, sizeof name, allowed->items[i].text, allowed->items[i].length);
    return error_set(error, ERR_INVALID_VALUE, place, "'%s' is '%s', which is not among 'tools'.",
                     place, name);
  }
  return 0;
}

int params_keep_allowed(chat_params_t *chat, reader_t *reader) {
  if (chat->allowed_tools == NULL) return 0;
  const tool_names_t tools = names_of(chat->tools), allowed = names_of(chat->allowed_tools);
  int code = check_allowed(&tools, &allowed, reader->error);
  if (code != 0) return code;
  json_t *kept = arena_alloc(reader->arena, json_count_values(chat->tools), sizeof *kept);
  int32_t *indices = arena_calloc(reader->arena, chat->tools->count, sizeof *indices);
  if (kept == NULL || indices == NULL) return field_no_memory(reader);
  json_t *end = kept + 1, *last = NULL;
  int32_t index = 0;
  *kept = *chat->tools;
  kept->count = kept->next = 0;
  JSON_EACH(tool, chat->tools) {
    if (is_among(&allowed, tools.items[index])) {
      size_t values = json_count_values(tool);
      memcpy(end, tool, values * sizeof *tool);
      end->next = (uint32_t)values;
      last = end;
      end += values;
      indices[kept->count++] = index;
    }
    index++;
  }
  last->next = 0;
  chat->tools = kept;
  chat->tool_indices = indices;
  return 0;
}

int params_tool_index(const chat_params_t *chat, int index) {
  return chat->tool_indices != NULL ? chat->tool_indices[index] : index;
}

/* ---- what chat needs and must not have ---- */

int params_read_chat(params_t *params, inferd_error_t *error) {
  chat_params_t *chat = &params->chat;
  if (chat->messages == NULL) {
    return error_set(error, ERR_MISSING_PARAMETER, "messages",
                     "The 'messages' must be provided and non-empty.");
  }
  if (!chat->generation_prompt_given) chat->generation_prompt = !chat->continue_final;
  if (!chat->tool_choice_given) {
    chat->tool_choice = chat->tools != NULL ? TOOLS_AUTO : TOOLS_NONE;
  }
  if (chat->logprobs) params->logprobs = chat->top_logprobs != ABSENT ? chat->top_logprobs : 0;
  return 0;
}

static bool tool_exists(const chat_params_t *chat) {
  JSON_EACH(tool, chat->tools) {
    const json_t *name = json_get(json_get(tool, "function"), "name");
    if (name->length == chat->tool_name.length &&
        memcmp(name->text, chat->tool_name.text, name->length) == 0) {
      return true;
    }
  }
  return false;
}

int params_check_chat(const params_t *params, inferd_error_t *error) {
  const chat_params_t *chat = &params->chat;
  if (chat->top_logprobs != ABSENT && !chat->logprobs) {
    return error_set(error, ERR_INVALID_VALUE, "top_logprobs",
                     "'top_logprobs' needs 'logprobs': true.");
  }
  if (chat->continue_final && chat->generation_prompt) {
    return error_set(error, ERR_INVALID_VALUE, "continue_final_message",
                     "'continue_final_message' and 'add_generation_prompt' cannot both be true.");
  }
  if (chat->tools == NULL && chat->tool_choice >= TOOLS_REQUIRED) {
    return error_set(error, ERR_INVALID_VALUE, "tool_choice",
                     "'tool_choice' asks for a tool, but 'tools' is not given.");
  }
  if (chat->tool_choice == TOOLS_NAMED && !tool_exists(chat)) {
    char name[80];
    return error_set(error, ERR_INVALID_VALUE, "tool_choice",
                     "'tool_choice' names the function \"%s\", which is not among 'tools'.",
                     error_quote(name, sizeof name, chat->tool_name.text, chat->tool_name.length));
  }
  if (chat->continue_final && chat->tool_choice >= TOOLS_REQUIRED) {
    return error_set(error, ERR_INVALID_VALUE, "continue_final_message",
                     "A message cannot be continued by a forced tool call.");
  }
  return 0;
}
