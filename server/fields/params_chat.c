/* params_chat.c: the table of the fields that only POST /v1/chat/completions has.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Loop thread or libuv's pool; keeps no
 * state. The rows are in chat_fields.def; all others come from the table in params.c. The readers
 * of messages and tools are in chat_fields.c. Next: server/completion/prompt.c.
 */
#include "server/fields/params_read.h"

#include "engine/base/util.h"

#include <string.h>

static const field_t rows[] = {
#include "server/fields/chat_fields.def"
};

const field_table_t chat_table = {rows, ARRAY_LEN(rows), &params_table};

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
