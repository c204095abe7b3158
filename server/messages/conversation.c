/* conversation.c: system prompt and messages of /v1/messages -> the messages of chat.
 *
 * Loop thread or libuv's pool; keeps no state. The same history gives the same messages, however it
 * is spelled: a string or a list of one text block, an empty text or none. Otherwise the prefix
 * cache would miss, because clients change the spelling between two turns.
 */
#include "server/messages/messages.h"

#include <string.h>

enum { ID_BYTES_MAX = 256 };

static bool is_type(const json_t *block, const char *type) {
  return json_equals(json_get(block, "type"), type);
}

/* The text of a block that has one that is not empty; else NULL. A reference to a tool stands for
 * the tool's name. */
static const json_t *text_of(const json_t *block) {
  const json_t *text = NULL;
  if (is_type(block, "text")) text = json_get(block, "text");
  if (is_type(block, "tool_reference")) text = json_get(block, "tool_name");
  return text != NULL && text->length > 0 ? text : NULL;
}

/* Returns true if a content has a text that is not empty. */
static bool has_text(const json_t *content) {
  if (content->type == JSON_STRING) return content->length > 0;
  JSON_EACH(block, content) {
    if (text_of(block) != NULL) return true;
  }
  return false;
}

/* ---- checks ---- */

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_SYSTEM, SPEAKER_TOOL } speaker_t;

static bool block_allowed(const json_t *block, speaker_t speaker) {
  if (is_type(block, "text")) return true;
  if (speaker == SPEAKER_USER) return is_type(block, "tool_result");
  if (speaker == SPEAKER_TOOL) return is_type(block, "tool_reference");
  return speaker == SPEAKER_ASSISTANT &&
         (is_type(block, "thinking") || is_type(block, "redacted_thinking") ||
          is_type(block, "tool_use"));
}

static int check_blocks(reader_t *reader, messages_place_t place, const json_t *content,
                        speaker_t speaker);

static int check_call(reader_t *reader, messages_place_t place, const json_t *block) {
  const json_t *input = json_get(block, "input");
  int code = messages_need_string(reader, place, block, "id", 0, ID_BYTES_MAX);
  if (code == 0) code = messages_need_string(reader, place, block, "name", 1, ID_BYTES_MAX);
  if (code != 0 || (input != NULL && input->type == JSON_OBJECT)) return code;
  return messages_fail(reader, input == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE,
                       messages_at("%s.input", place.text), "expected an object");
}

static int check_result(reader_t *reader, messages_place_t place, const json_t *block) {
  const json_t *content = messages_value(json_get(block, "content"));
  int code = messages_need_string(reader, place, block, "tool_use_id", 0, ID_BYTES_MAX);
  if (code != 0 || content == NULL) return code;
  return check_blocks(reader, messages_at("%s.content", place.text), content, SPEAKER_TOOL);
}

static int check_block(reader_t *reader, messages_place_t place, const json_t *block,
                       speaker_t speaker) {
  char name[64];
  if (block->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(block));
  }
  int code = messages_need_string(reader, place, block, "type", 1, ID_BYTES_MAX);
  if (code != 0) return code;
  const json_t *type = json_get(block, "type");
  if (!block_allowed(block, speaker)) {
    return messages_fail(reader, ERR_UNSUPPORTED_CONTENT_PART, place,
                         "%s blocks are not supported by this model",
                         error_quote(name, sizeof name, type->text, type->length));
  }
  if (is_type(block, "text")) {
    return messages_need_string(reader, place, block, "text", 0, UINT32_MAX);
  }
  if (is_type(block, "thinking")) {
    return messages_need_string(reader, place, block, "thinking", 0, UINT32_MAX);
  }
  if (is_type(block, "tool_reference")) {
    return messages_need_string(reader, place, block, "tool_name", 1, ID_BYTES_MAX);
  }
  if (is_type(block, "tool_use")) return check_call(reader, place, block);
  return is_type(block, "tool_result") ? check_result(reader, place, block) : 0;
}

/* Checks content: a string, or blocks that this speaker may send. */
static int check_blocks(reader_t *reader, messages_place_t place, const json_t *content,
                        speaker_t speaker) {
  int index = 0;
  if (content->type == JSON_STRING) return 0;
  if (content->type != JSON_ARRAY) {
    return messages_fail(reader, ERR_INVALID_TYPE, place,
                         "expected a string or an array of blocks, but got %s",
                         json_type_name(content));
  }
  JSON_EACH(block, content) {
    int code = check_block(reader, messages_at("%s.%d", place.text, index++), block, speaker);
    if (code != 0) return code;
  }
  return 0;
}

static int check_message(reader_t *reader, int index, const json_t *message) {
  messages_place_t place = messages_at("messages.%d", index);
  if (message->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(message));
  }
  const json_t *role = json_get(message, "role"), *content = json_get(message, "content");
  speaker_t speaker = SPEAKER_SYSTEM;
  if (json_equals(role, "user")) {
    speaker = SPEAKER_USER;
  } else if (json_equals(role, "assistant")) {
    speaker = SPEAKER_ASSISTANT;
  } else if (!json_equals(role, "system")) {
    return messages_fail_value(reader, messages_at("messages.%d.role", index),
                               "'user', 'assistant' or 'system'", role);
  }
  place = messages_at("messages.%d.content", index);
  if (!json_is_given(content)) {
    return messages_fail(reader, ERR_MISSING_PARAMETER, place, "Field required");
  }
  return check_blocks(reader, place, content, speaker);
}

/* ---- writing ---- */

/* Adds the texts of a content to the message that was begun; empty ones are as if they were not
 * there. */
static void add_texts(chat_body_t *body, const json_t *content) {
  if (content == NULL) return;
  if (content->type == JSON_STRING && content->length > 0) {
    chat_body_text(body, content->text, content->length);
  }
  JSON_EACH(block, content) {
    const json_t *text = text_of(block);
    if (text != NULL) chat_body_text(body, text->text, text->length);
  }
}

/* The results of tools come first, each as a message of its own, then the text of the message. */
static void write_user(chat_body_t *body, const json_t *content) {
  bool results = false;
  JSON_EACH(block, content) {
    if (!is_type(block, "tool_result")) continue;
    const json_t *id = json_get(block, "tool_use_id");
    results = true;
    chat_body_result(body, id->text, id->length);
    add_texts(body, json_get(block, "content"));
  }
  if (results && !has_text(content)) return;
  chat_body_message(body, CHAT_USER);
  add_texts(body, content);
}

static void write_call(chat_body_t *body, const json_t *block) {
  const json_t *name = json_get(block, "name");
  char text[ID_BYTES_MAX + 1];
  buffer_t arguments = {0};
  memcpy(text, name->text, name->length); /* check_call has compared the length */
  text[name->length] = '\0';
  json_print(&arguments, json_get(block, "input"));
  chat_body_call(body, json_get(block, "id"), text, arguments.data, arguments.length);
  body->out->failed = body->out->failed || arguments.failed;
  buffer_free(&arguments);
}

static void write_assistant(chat_body_t *body, const json_t *content) {
  chat_body_message(body, CHAT_ASSISTANT);
  add_texts(body, content);
  JSON_EACH(block, content) {
    const json_t *thought = is_type(block, "thinking") ? json_get(block, "thinking") : NULL;
    if (thought != NULL) chat_body_reasoning(body, thought->text, thought->length);
    if (is_type(block, "tool_use")) write_call(body, block);
  }
}

/* Clients put a line of accounting in front of the system prompt. It may change from request to
 * request, so the prefix cache would never hit. */
static bool is_accounting(const json_t *text) {
  static const char begin[] = "x-anthropic-billing-header";
  size_t length = sizeof begin - 1;
  return text->length >= length && memcmp(text->text, begin, length) == 0;
}

static void write_system(chat_body_t *body, const json_t *content) {
  if (!has_text(content)) return;
  chat_body_message(body, CHAT_SYSTEM);
  if (content->type == JSON_STRING) add_texts(body, content);
  JSON_EACH(block, content) {
    const json_t *text = text_of(block);
    if (text != NULL && !is_accounting(text)) chat_body_text(body, text->text, text->length);
  }
}

/* ---- the conversation ---- */

static bool has_other_than_text(const json_t *content) {
  JSON_EACH(block, content) {
    if (!is_type(block, "text")) return true;
  }
  return false;
}

/* The answer continues a last message of the assistant, so this message may have text only. */
static int check_last(reader_t *reader, int index, const json_t *message) {
  if (!json_equals(json_get(message, "role"), "assistant")) return 0;
  if (!has_other_than_text(json_get(message, "content"))) return 0;
  return messages_fail(reader, ERR_INVALID_VALUE, messages_at("messages.%d.content", index),
                       "the last message is of the assistant, so the answer continues it; it may "
                       "have text blocks only");
}

static int check_all(reader_t *reader, const json_t *system, const json_t *messages) {
  int index = 0, code = 0;
  if (system != NULL) code = check_blocks(reader, messages_at("system"), system, SPEAKER_SYSTEM);
  if (code == 0 && messages->count == 0) {
    code = messages_fail(reader, ERR_INVALID_VALUE, messages_at("messages"),
                         "at least one message is required");
  }
  JSON_EACH(message, messages) {
    if (code == 0) code = check_message(reader, index, message);
    if (code == 0 && json_next(message) == NULL) code = check_last(reader, index, message);
    index++;
  }
  return code;
}

int messages_print_conversation(reader_t *reader, const json_t *system, const json_t *messages,
                                chat_body_t *body, bool *continues) {
  int code = check_all(reader, system, messages);
  *continues = false;
  if (code != 0) return code;
  if (system != NULL) write_system(body, system);
  JSON_EACH(message, messages) {
    const json_t *role = json_get(message, "role"), *content = json_get(message, "content");
    *continues = json_equals(role, "assistant");
    if (*continues) {
      write_assistant(body, content);
    } else if (json_equals(role, "user")) {
      write_user(body, content);
    } else {
      write_system(body, content);
    }
  }
  return 0;
}
