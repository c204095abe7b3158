/* conversation.c: system prompt and messages of /v1/messages -> the messages of chat.
 *
 * Loop thread or libuv's pool; keeps no state. The same history gives the same messages, however it
 * is spelled: a string or a list of one text block, an empty text or none. Otherwise the prefix
 * cache would miss, because clients change the spelling between two turns.
 */
#include "server/messages/messages.h"

#include "engine/base/util.h"
#include "server/fields/history.h"

#include <string.h>

/* ---- checks ---- */

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_SYSTEM, SPEAKER_TOOL } speaker_t;

static bool sees(const reader_t *reader) {
  return reader->limits->sees && reader->limits->images_max > 0;
}

static bool block_allowed(const reader_t *reader, const json_t *block, speaker_t speaker) {
  bool of_user = speaker == SPEAKER_USER || speaker == SPEAKER_TOOL;
  if (block_is(block, "text")) return true;
  if (of_user && sees(reader) && block_is(block, "image")) return true;
  if (speaker == SPEAKER_USER && block_document(block) != NULL) return true;
  if (speaker == SPEAKER_USER) return block_is(block, "tool_result");
  if (speaker == SPEAKER_TOOL) return block_is(block, "tool_reference");
  return speaker == SPEAKER_ASSISTANT &&
         (block_is(block, "thinking") || block_is(block, "redacted_thinking") ||
          block_is(block, "tool_use"));
}

/* `mends`: the content is of the history. */
static int check_blocks(reader_t *reader, block_place_t place, const json_t *content,
                        speaker_t speaker, bool mends);

static int check_call(reader_t *reader, block_place_t place, const json_t *block) {
  const json_t *input = json_get(block, "input");
  int code = messages_need_string(reader, place, block, "id", 0, BLOCK_ID_BYTES_MAX);
  if (code == 0) code = messages_need_string(reader, place, block, "name", 1, BLOCK_ID_BYTES_MAX);
  if (code != 0 || (input != NULL && input->type == JSON_OBJECT)) return code;
  return messages_fail(reader, input == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE,
                       block_at("%s.input", place.text), "expected an object");
}

static int check_result(reader_t *reader, block_place_t place, const json_t *block) {
  const json_t *content = block_value(json_get(block, "content"));
  int code = messages_need_string(reader, place, block, "tool_use_id", 0, BLOCK_ID_BYTES_MAX);
  if (code != 0 || content == NULL) return code;
  return check_blocks(reader, block_at("%s.content", place.text), content, SPEAKER_TOOL,
                      reader->limits->lenient);
}

/* A block of the history is checked where it is text or a call; what else is missing is mended. */
static int check_old_block(reader_t *reader, block_place_t place, const json_t *block) {
  if (block->type == JSON_STRING) return 0;
  if (block_is_call(block)) {
    int code = messages_need_string(reader, place, block, "name", 1, BLOCK_ID_BYTES_MAX);
    const json_t *id = json_get(block, "id");
    if (code == 0 && json_is_given(id)) {
      code = messages_need_string(reader, place, block, "id", 0, BLOCK_ID_BYTES_MAX);
    }
    return code;
  }
  if (!block_is_result(block)) return 0;
  const json_t *id = json_get(block, "tool_use_id");
  return json_is_given(id)
             ? messages_need_string(reader, place, block, "tool_use_id", 0, BLOCK_ID_BYTES_MAX)
             : 0;
}

static int check_block(reader_t *reader, block_place_t place, const json_t *block,
                       speaker_t speaker, bool mends) {
  char name[64];
  bool result = speaker == SPEAKER_USER && block_is(block, "tool_result");
  if (mends || (result && reader->limits->lenient)) return check_old_block(reader, place, block);
  if (block->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(block));
  }
  int code = messages_need_string(reader, place, block, "type", 1, BLOCK_ID_BYTES_MAX);
  if (code != 0) return code;
  const json_t *type = json_get(block, "type");
  if (!block_allowed(reader, block, speaker)) {
    return messages_fail(reader, ERR_UNSUPPORTED_CONTENT_PART, place,
                         "%s blocks are not supported by this model",
                         error_quote(name, sizeof name, type->text, type->length));
  }
  if (block_is(block, "text")) {
    return messages_need_string(reader, place, block, "text", 0, UINT32_MAX);
  }
  if (block_is(block, "thinking")) {
    return messages_need_string(reader, place, block, "thinking", 0, UINT32_MAX);
  }
  if (block_is(block, "tool_reference")) {
    return messages_need_string(reader, place, block, "tool_name", 1, BLOCK_ID_BYTES_MAX);
  }
  if (block_is(block, "tool_use")) return check_call(reader, place, block);
  const char *lacks = block_is(block, "image") ? block_picture_lacks(block) : NULL;
  if (lacks != NULL) {
    return messages_fail(reader, ERR_INVALID_VALUE, block_at("%s.%s", place.text, lacks),
                         "expected a source of type 'base64' with data, or of type 'url' with url");
  }
  return block_is(block, "tool_result") ? check_result(reader, place, block) : 0;
}

/* Checks content: a string, or blocks that this speaker may send. */
static int check_blocks(reader_t *reader, block_place_t place, const json_t *content,
                        speaker_t speaker, bool mends) {
  int index = 0;
  if (content->type == JSON_STRING) return 0;
  if (content->type != JSON_ARRAY && mends) return 0;
  if (content->type != JSON_ARRAY) {
    return messages_fail(reader, ERR_INVALID_TYPE, place,
                         "expected a string or an array of blocks, but got %s",
                         json_type_name(content));
  }
  JSON_EACH(block, content) {
    int code = check_block(reader, block_at("%s.%d", place.text, index++), block, speaker, mends);
    if (code != 0) return code;
  }
  return 0;
}

/* What says that an assistant wrote a message. */
static bool is_of_assistant(const json_t *message) {
  JSON_EACH(block, json_get(message, "content")) {
    if (block_is_call(block) || block_is_thought(block)) return true;
  }
  return json_is_given(json_get(message, "tool_calls"));
}

/* Who speaks. Roles of other APIs are mended: a developer's word is the system's, and in a history
 * what has a role of no API is the user's. A message without a role is told by what it has. */
static int speaker_of(reader_t *reader, int index, const json_t *message, speaker_t *out) {
  static const struct {
    const char *role;
    speaker_t speaker;
    bool other;
  } roles[] = {{"user", SPEAKER_USER, false},
               {"assistant", SPEAKER_ASSISTANT, false},
               {"system", SPEAKER_SYSTEM, false},
               {"developer", SPEAKER_SYSTEM, true},
               {"tool", SPEAKER_TOOL, true}};
  const json_t *role = json_get(message, "role");
  bool lenient = reader->limits->lenient, known = false;
  const char *meant = lenient ? history_other_role(role) : NULL;
  *out = SPEAKER_USER;
  for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
    bool is = meant != NULL ? strcmp(meant, roles[i].role) == 0 : json_equals(role, roles[i].role);
    if (!is || (roles[i].other && !lenient)) continue;
    *out = roles[i].speaker;
    known = true;
  }
  bool history = json_next(message) != NULL && role != NULL && role->type == JSON_STRING;
  if (lenient && !json_is_given(role)) {
    if (is_of_assistant(message)) *out = SPEAKER_ASSISTANT;
    if (json_is_given(json_get(message, "tool_call_id"))) *out = SPEAKER_TOOL;
    return 0;
  }
  if (known || (lenient && history)) return 0;
  return messages_fail_value(reader, block_at("messages.%d.role", index),
                             "'user', 'assistant' or 'system'", role);
}

/* A text in place of a message is the user's; a null is none. */
static bool is_mended(const reader_t *reader, const json_t *message) {
  return reader->limits->lenient && (message->type == JSON_STRING || message->type == JSON_NULL);
}

static int check_message(reader_t *reader, int index, const json_t *message) {
  block_place_t place = block_at("messages.%d", index);
  if (is_mended(reader, message)) return 0;
  if (message->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(message));
  }
  const json_t *content = json_get(message, "content");
  speaker_t speaker;
  int code = speaker_of(reader, index, message, &speaker);
  if (code != 0) return code;
  place = block_at("messages.%d.content", index);
  bool question = speaker == SPEAKER_USER && json_next(message) == NULL;
  bool mends = reader->limits->lenient && !question;
  if (!json_is_given(content)) {
    return mends ? 0 : messages_fail(reader, ERR_MISSING_PARAMETER, place, "Field required");
  }
  return check_blocks(reader, place, content, speaker, mends);
}

/* ---- writing ---- */

/* The results of tools come first, each as a message of its own, then the text of the message. */
static void write_user(reader_t *reader, block_place_t place, chat_body_t *body,
                       const json_t *content) {
  bool results = false;
  int index = 0;
  JSON_EACH(block, content) {
    block_place_t inside = block_at("%s.%d", place.text, index++);
    if (!block_is_result(block)) continue;
    results = true;
    block_write_result(reader, inside, body, block);
  }
  if (results && !block_has_text(content)) return;
  chat_body_message(body, CHAT_USER);
  block_add_texts(reader, place, body, content);
}

/* Calls as chat writes them, on a message of the assistant. */
static void write_chat_calls(reader_t *reader, int index, chat_body_t *body,
                             const json_t *message) {
  static const json_t none = {.type = JSON_STRING, .text = ""};
  block_place_t place = block_at("messages.%d.tool_calls", index);
  const json_t *calls = json_get(message, "tool_calls");
  if (!reader->limits->lenient || calls == NULL || calls->type != JSON_ARRAY) return;
  JSON_EACH(call, calls) {
    const json_t *function = json_get(call, "function"), *id = json_get(call, "id");
    const json_t *name = json_get(function, "name"), *given = json_get(function, "arguments");
    char text[BLOCK_ID_BYTES_MAX + 1];
    buffer_t arguments = {0};
    bool named = name != NULL && name->type == JSON_STRING && name->length > 0;
    block_note(reader, place, named ? "tool_use" : "call_left_out");
    if (!named || name->length > BLOCK_ID_BYTES_MAX) continue;
    memcpy(text, name->text, name->length);
    text[name->length] = '\0';
    bool is_text = given != NULL && given->type == JSON_STRING;
    if (is_text) buffer_append(&arguments, given->text, given->length);
    if (!is_text && json_is_given(given)) json_print(&arguments, given);
    if (arguments.length == 0) buffer_text(&arguments, "{}");
    bool has_id = id != NULL && id->type == JSON_STRING;
    chat_body_call(body, has_id ? id : &none, text, arguments.data, arguments.length);
    body->out->failed = body->out->failed || arguments.failed;
    buffer_free(&arguments);
  }
}

/* The result of a call as chat writes it. */
static void write_chat_result(reader_t *reader, block_place_t place, chat_body_t *body,
                              const json_t *message, const json_t *content) {
  const json_t *id = json_get(message, "tool_call_id");
  bool has_id = id != NULL && id->type == JSON_STRING;
  chat_body_result(body, has_id ? id->text : "", has_id ? id->length : 0);
  block_add_texts(reader, place, body, content);
}

/* Blocks in their order: behind the result of a tool that a server ran, the assistant goes on. */
static void write_assistant(reader_t *reader, block_place_t place, chat_body_t *body,
                            const json_t *content) {
  int index = 0;
  chat_body_message(body, CHAT_ASSISTANT);
  if (content != NULL && content->type != JSON_ARRAY) {
    block_add_texts(reader, place, body, content);
    return;
  }
  JSON_EACH(block, content) {
    block_place_t inside = block_at("%s.%d", place.text, index++);
    const json_t *text = block_text(block), *thought = json_get(block, "thinking");
    if (block_is_result(block)) {
      block_write_result(reader, inside, body, block);
      continue;
    }
    chat_body_message(body, CHAT_ASSISTANT);
    if (block_is_call(block)) {
      block_write_call(reader, inside, body, block);
    } else if (block_is(block, "thinking") && thought != NULL && thought->type == JSON_STRING) {
      chat_body_reasoning(body, thought->text, thought->length);
    } else if (text != NULL) {
      chat_body_text(body, text->text, text->length);
    } else if (!block_is_thought(block) && !block_is(block, "text") &&
               !block_is(block, "compaction")) {
      block_add_left_out(reader, inside, block, body);
    }
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
  if (!block_has_text(content)) return;
  chat_body_message(body, CHAT_SYSTEM);
  if (content->type == JSON_STRING) chat_body_text(body, content->text, content->length);
  JSON_EACH(block, content) {
    const json_t *text = block_text(block);
    if (text != NULL && !is_accounting(text)) chat_body_text(body, text->text, text->length);
  }
}

/* ---- the conversation ---- */

static bool has_other_than_text(const json_t *content, bool mends) {
  JSON_EACH(block, content) {
    if (mends && (block_is_thought(block) || block->type == JSON_STRING)) continue;
    if (!block_is(block, "text")) return true;
  }
  return false;
}

/* The answer continues a last message of the assistant, so this message may have text only. */
static int check_last(reader_t *reader, int index, const json_t *message) {
  if (!json_equals(json_get(message, "role"), "assistant")) return 0;
  if (!has_other_than_text(json_get(message, "content"), reader->limits->lenient)) return 0;
  return messages_fail(reader, ERR_INVALID_VALUE, block_at("messages.%d.content", index),
                       "the last message is of the assistant, so the answer continues it; it may "
                       "have text blocks only");
}

static int check_all(reader_t *reader, const json_t *system, const json_t *messages) {
  int index = 0, code = 0;
  if (system != NULL)
    code = check_blocks(reader, block_at("system"), system, SPEAKER_SYSTEM, false);
  if (code == 0 && messages->count == 0) {
    code = messages_fail(reader, ERR_INVALID_VALUE, block_at("messages"),
                         "at least one message is required");
  }
  JSON_EACH(message, messages) {
    if (code == 0) code = check_message(reader, index, message);
    if (code == 0 && json_next(message) == NULL) code = check_last(reader, index, message);
    index++;
  }
  return code;
}

static void write_message(reader_t *reader, int index, chat_body_t *body, const json_t *message,
                          const json_t *content) {
  block_place_t place = block_at("messages.%d.content", index);
  const json_t *role = json_get(message, "role");
  speaker_t speaker;
  if (message->type == JSON_NULL) {
    block_note(reader, block_at("messages.%d", index), "message_left_out");
    return;
  }
  if (message->type == JSON_STRING) {
    block_note(reader, block_at("messages.%d", index), "user_message");
    chat_body_message(body, CHAT_USER);
    chat_body_text(body, message->text, message->length);
    return;
  }
  if (content == NULL) block_note(reader, place, "empty");
  (void)speaker_of(reader, index, message, &speaker); /* checked before */
  bool own =
      json_equals(role, "user") || json_equals(role, "assistant") || json_equals(role, "system");
  if (!own) block_note(reader, block_at("messages.%d.role", index), "role");
  switch (speaker) {
  case SPEAKER_USER: write_user(reader, place, body, content); break;
  case SPEAKER_SYSTEM: write_system(body, content); break;
  case SPEAKER_TOOL: write_chat_result(reader, place, body, message, content); break;
  case SPEAKER_ASSISTANT:
    write_assistant(reader, place, body, content);
    write_chat_calls(reader, index, body, message);
    break;
  }
}

int messages_print_conversation(reader_t *reader, const json_t *system, const json_t *messages,
                                chat_body_t *body, bool *continues) {
  int code = check_all(reader, system, messages);
  body->sees = sees(reader);
  *continues = false;
  if (code != 0) return code;
  int index = 0;
  if (system != NULL) write_system(body, system);
  JSON_EACH(message, messages) {
    const json_t *content = block_value(json_get(message, "content"));
    write_message(reader, index++, body, message, content);
    *continues = json_equals(json_get(message, "role"), "assistant");
  }
  return 0;
}
