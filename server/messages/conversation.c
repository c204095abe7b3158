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

enum { ID_BYTES_MAX = 256 };

static bool is_type(const json_t *block, const char *type) {
  return json_equals(json_get(block, "type"), type);
}

/* The text of a block that has one that is not empty; else NULL. A reference to a tool stands for
 * the tool's name. */
static const json_t *text_of(const json_t *block) {
  const json_t *text = NULL;
  if (block->type == JSON_STRING) text = block;
  if (is_type(block, "text")) text = json_get(block, "text");
  if (is_type(block, "tool_reference")) text = json_get(block, "tool_name");
  if (is_type(block, "compaction")) text = json_get(block, "content");
  return text != NULL && text->type == JSON_STRING && text->length > 0 ? text : NULL;
}

/* The result of a tool, of the client or of a server that ran it. */
static bool is_result(const json_t *block) {
  static const char ending[] = "tool_result";
  const json_t *type = json_get(block, "type");
  size_t length = sizeof ending - 1;
  return type != NULL && type->type == JSON_STRING && type->length >= length &&
         memcmp(type->text + type->length - length, ending, length) == 0;
}

static bool is_call(const json_t *block) {
  return is_type(block, "tool_use") || is_type(block, "server_tool_use") ||
         is_type(block, "mcp_tool_use");
}

static bool is_thought(const json_t *block) {
  return is_type(block, "thinking") || is_type(block, "redacted_thinking");
}

/* A text that came as a document: its source, or a result of a search, has it. */
static const json_t *texts_of_document(const json_t *block) {
  const json_t *source = json_get(block, "source");
  if (is_type(block, "search_result")) return json_get(block, "content");
  if (!is_type(block, "document")) return NULL;
  if (is_type(source, "text")) return json_get(source, "data");
  return is_type(source, "content") ? json_get(source, "content") : NULL;
}

/* Returns true if a content has a block that becomes text, be it a text that says what was left
 * out. */
static bool has_text(const json_t *content) {
  if (content == NULL) return false;
  if (content->type == JSON_STRING) return content->length > 0;
  JSON_EACH(block, content) {
    bool other = is_result(block) || is_call(block) || is_thought(block);
    bool empty =
        text_of(block) == NULL && (is_type(block, "text") || is_type(block, "compaction") ||
                                   is_type(block, "tool_reference"));
    if (!other && !empty) return true;
  }
  return false;
}

/* ---- checks ---- */

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_SYSTEM, SPEAKER_TOOL } speaker_t;

static bool block_allowed(const json_t *block, speaker_t speaker) {
  if (is_type(block, "text")) return true;
  if (speaker == SPEAKER_USER && texts_of_document(block) != NULL) return true;
  if (speaker == SPEAKER_USER) return is_type(block, "tool_result");
  if (speaker == SPEAKER_TOOL) return is_type(block, "tool_reference");
  return speaker == SPEAKER_ASSISTANT &&
         (is_type(block, "thinking") || is_type(block, "redacted_thinking") ||
          is_type(block, "tool_use"));
}

/* `mends`: the content is of the history. */
static int check_blocks(reader_t *reader, messages_place_t place, const json_t *content,
                        speaker_t speaker, bool mends);

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
  return check_blocks(reader, messages_at("%s.content", place.text), content, SPEAKER_TOOL,
                      reader->limits->lenient);
}

/* A block of the history is checked where it is text or a call; what else is missing is mended. */
static int check_old_block(reader_t *reader, messages_place_t place, const json_t *block) {
  if (block->type == JSON_STRING) return 0;
  if (is_call(block)) {
    int code = messages_need_string(reader, place, block, "name", 1, ID_BYTES_MAX);
    const json_t *id = json_get(block, "id");
    if (code == 0 && json_is_given(id)) {
      code = messages_need_string(reader, place, block, "id", 0, ID_BYTES_MAX);
    }
    return code;
  }
  if (!is_result(block)) return 0;
  const json_t *id = json_get(block, "tool_use_id");
  return json_is_given(id)
             ? messages_need_string(reader, place, block, "tool_use_id", 0, ID_BYTES_MAX)
             : 0;
}

static int check_block(reader_t *reader, messages_place_t place, const json_t *block,
                       speaker_t speaker, bool mends) {
  char name[64];
  bool result = speaker == SPEAKER_USER && is_type(block, "tool_result");
  if (mends || (result && reader->limits->lenient)) return check_old_block(reader, place, block);
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
    int code =
        check_block(reader, messages_at("%s.%d", place.text, index++), block, speaker, mends);
    if (code != 0) return code;
  }
  return 0;
}

/* Who speaks. Roles of other APIs are mended: a developer's word is the system's, and what has any
 * other role but a tool's is the user's. */
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
  *out = SPEAKER_USER;
  for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
    if (!json_equals(role, roles[i].role) || (roles[i].other && !lenient)) continue;
    *out = roles[i].speaker;
    known = true;
  }
  bool history = json_next(message) != NULL && role != NULL && role->type == JSON_STRING;
  if (known || (lenient && history)) return 0;
  return messages_fail_value(reader, messages_at("messages.%d.role", index),
                             "'user', 'assistant' or 'system'", role);
}

static int check_message(reader_t *reader, int index, const json_t *message) {
  messages_place_t place = messages_at("messages.%d", index);
  if (message->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(message));
  }
  const json_t *content = json_get(message, "content");
  speaker_t speaker;
  int code = speaker_of(reader, index, message, &speaker);
  if (code != 0) return code;
  place = messages_at("messages.%d.content", index);
  bool question = speaker == SPEAKER_USER && json_next(message) == NULL;
  bool mends = reader->limits->lenient && !question;
  if (!json_is_given(content)) {
    return mends ? 0 : messages_fail(reader, ERR_MISSING_PARAMETER, place, "Field required");
  }
  return check_blocks(reader, place, content, speaker, mends);
}

/* ---- writing ---- */

static void note(reader_t *reader, messages_place_t place, const char *what) {
  if (reader->limits->lenient) field_name_mended(reader, place.text, what);
}

static void add_left_out(reader_t *reader, messages_place_t place, const json_t *block,
                         chat_body_t *body) {
  char text[LEFT_OUT_MAX], what[LEFT_OUT_MAX];
  history_left_out(json_get(block, "type"), text, what);
  note(reader, place, what);
  chat_body_text(body, text, strlen(text));
}

/* Adds the title of a document, or of a page that a search has found, and where it is. */
static void add_title(chat_body_t *body, const json_t *block) {
  const json_t *title = json_get(block, "title"), *url = json_get(block, "url");
  bool has_title = title != NULL && title->type == JSON_STRING && title->length > 0;
  if (url == NULL) url = json_get(block, "source");
  if (has_title) chat_body_text(body, title->text, title->length);
  if (url != NULL && url->type == JSON_STRING && url->length > 0) {
    chat_body_text(body, url->text, url->length);
  }
}

/* Adds what stands where a text or blocks should: the text of one block, or JSON. */
static void add_value(reader_t *reader, messages_place_t place, chat_body_t *body,
                      const json_t *value) {
  const json_t *text = text_of(value), *own = json_get(value, "text");
  bool typed = json_is_given(json_get(value, "type"));
  if (text == NULL && typed) {
    add_left_out(reader, place, value, body);
    return;
  }
  if (!typed && own != NULL && own->type == JSON_STRING) text = own;
  note(reader, place, text != NULL ? "text_part" : "json");
  if (text != NULL) chat_body_text(body, text->text, text->length);
  if (text == NULL) chat_body_json(body, value);
}

/* Adds the texts of a content to the message that was begun; empty ones are as if they were not
 * there. Calls, results and thoughts are left to others. */
static void add_texts(reader_t *reader, messages_place_t place, chat_body_t *body,
                      const json_t *content) {
  int index = 0;
  if (content == NULL) return;
  if (content->type == JSON_STRING && content->length > 0) {
    chat_body_text(body, content->text, content->length);
  }
  if (content->type != JSON_STRING && content->type != JSON_ARRAY) {
    add_value(reader, place, body, content);
    return;
  }
  JSON_EACH(block, content) {
    messages_place_t inside = messages_at("%s.%d", place.text, index++);
    const json_t *text = text_of(block), *document = texts_of_document(block);
    if (is_result(block) || is_call(block) || is_thought(block)) continue;
    if (text != NULL) {
      chat_body_text(body, text->text, text->length);
    } else if (document != NULL) {
      add_title(body, block);
      if (document->type == JSON_STRING && document->length > 0) {
        chat_body_text(body, document->text, document->length);
      }
      JSON_EACH(part, document) { /* of texts: a document holds no documents */
        const json_t *own = text_of(part);
        if (own != NULL) chat_body_text(body, own->text, own->length);
      }
    } else if (json_is_given(block) && !json_is_given(json_get(block, "type"))) {
      add_value(reader, inside, body, block);
    } else if (!is_type(block, "text") && !is_type(block, "compaction") &&
               !is_type(block, "tool_reference")) {
      add_left_out(reader, inside, block, body);
    }
  }
}

/* Adds what a tool of another server has returned: texts, pages that were found, streams. */
static void add_found(reader_t *reader, messages_place_t place, chat_body_t *body,
                      const json_t *content) {
  static const char *const names[] = {"stdout", "stderr", "error_code"};
  if (content == NULL) return;
  if (content->type != JSON_OBJECT) {
    JSON_EACH(block, content) {
      if (is_type(block, "web_search_result")) add_title(body, block);
    }
    if (!is_type(json_first(content), "web_search_result")) add_texts(reader, place, body, content);
    return;
  }
  add_title(body, content);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const json_t *text = json_get(content, names[i]);
    if (text == NULL || text->type != JSON_STRING || text->length == 0) continue;
    chat_body_text(body, text->text, text->length);
  }
  const json_t *document = json_get(content, "content"), *texts = texts_of_document(document);
  if (texts != NULL && texts->type == JSON_STRING) {
    chat_body_text(body, texts->text, texts->length);
  }
}

static const json_t *id_of(reader_t *reader, messages_place_t place, const json_t *block,
                           const char *name) {
  static const json_t none = {.type = JSON_STRING, .text = ""};
  const json_t *id = json_get(block, name);
  if (json_is_given(id)) return id;
  note(reader, place, "no_call_id");
  return &none;
}

static void write_result(reader_t *reader, messages_place_t place, chat_body_t *body,
                         const json_t *block) {
  const json_t *id = id_of(reader, place, block, "tool_use_id");
  const json_t *content = messages_value(json_get(block, "content"));
  messages_place_t inside = messages_at("%s.content", place.text);
  chat_body_result(body, id->text, id->length);
  if (is_type(block, "tool_result") || is_type(block, "mcp_tool_result")) {
    add_texts(reader, inside, body, content);
  } else {
    add_found(reader, inside, body, content);
  }
}

/* The results of tools come first, each as a message of its own, then the text of the message. */
static void write_user(reader_t *reader, messages_place_t place, chat_body_t *body,
                       const json_t *content) {
  bool results = false;
  int index = 0;
  JSON_EACH(block, content) {
    messages_place_t inside = messages_at("%s.%d", place.text, index++);
    if (!is_result(block)) continue;
    results = true;
    write_result(reader, inside, body, block);
  }
  if (results && !has_text(content)) return;
  chat_body_message(body, CHAT_USER);
  add_texts(reader, place, body, content);
}

static void write_call(reader_t *reader, messages_place_t place, chat_body_t *body,
                       const json_t *block) {
  const json_t *name = json_get(block, "name"), *input = json_get(block, "input");
  const json_t *id = id_of(reader, place, block, "id");
  char text[ID_BYTES_MAX + 1];
  buffer_t arguments = {0};
  memcpy(text, name->text, name->length); /* the checks have compared the length */
  text[name->length] = '\0';
  if (json_is_given(input)) json_print(&arguments, input);
  if (!json_is_given(input)) buffer_text(&arguments, "{}");
  chat_body_call(body, id, text, arguments.data, arguments.length);
  body->out->failed = body->out->failed || arguments.failed;
  buffer_free(&arguments);
}

/* Calls as chat writes them, on a message of the assistant. */
static void write_chat_calls(reader_t *reader, int index, chat_body_t *body,
                             const json_t *message) {
  static const json_t none = {.type = JSON_STRING, .text = ""};
  messages_place_t place = messages_at("messages.%d.tool_calls", index);
  const json_t *calls = json_get(message, "tool_calls");
  if (!reader->limits->lenient || calls == NULL || calls->type != JSON_ARRAY) return;
  JSON_EACH(call, calls) {
    const json_t *function = json_get(call, "function"), *id = json_get(call, "id");
    const json_t *name = json_get(function, "name"), *given = json_get(function, "arguments");
    char text[ID_BYTES_MAX + 1];
    buffer_t arguments = {0};
    bool named = name != NULL && name->type == JSON_STRING && name->length > 0;
    note(reader, place, named ? "tool_use" : "call_left_out");
    if (!named || name->length > ID_BYTES_MAX) continue;
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
static void write_chat_result(reader_t *reader, messages_place_t place, chat_body_t *body,
                              const json_t *message, const json_t *content) {
  const json_t *id = json_get(message, "tool_call_id");
  bool has_id = id != NULL && id->type == JSON_STRING;
  chat_body_result(body, has_id ? id->text : "", has_id ? id->length : 0);
  add_texts(reader, place, body, content);
}

/* Blocks in their order: behind the result of a tool that a server ran, the assistant goes on. */
static void write_assistant(reader_t *reader, messages_place_t place, chat_body_t *body,
                            const json_t *content) {
  int index = 0;
  chat_body_message(body, CHAT_ASSISTANT);
  if (content != NULL && content->type != JSON_ARRAY) {
    add_texts(reader, place, body, content);
    return;
  }
  JSON_EACH(block, content) {
    messages_place_t inside = messages_at("%s.%d", place.text, index++);
    const json_t *text = text_of(block), *thought = json_get(block, "thinking");
    if (is_result(block)) {
      write_result(reader, inside, body, block);
      continue;
    }
    chat_body_message(body, CHAT_ASSISTANT);
    if (is_call(block)) {
      write_call(reader, inside, body, block);
    } else if (is_type(block, "thinking") && thought != NULL && thought->type == JSON_STRING) {
      chat_body_reasoning(body, thought->text, thought->length);
    } else if (text != NULL) {
      chat_body_text(body, text->text, text->length);
    } else if (!is_thought(block) && !is_type(block, "text") && !is_type(block, "compaction")) {
      add_left_out(reader, inside, block, body);
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
  if (!has_text(content)) return;
  chat_body_message(body, CHAT_SYSTEM);
  if (content->type == JSON_STRING) chat_body_text(body, content->text, content->length);
  JSON_EACH(block, content) {
    const json_t *text = text_of(block);
    if (text != NULL && !is_accounting(text)) chat_body_text(body, text->text, text->length);
  }
}

/* ---- the conversation ---- */

static bool has_other_than_text(const json_t *content, bool mends) {
  JSON_EACH(block, content) {
    if (mends && (is_thought(block) || block->type == JSON_STRING)) continue;
    if (!is_type(block, "text")) return true;
  }
  return false;
}

/* The answer continues a last message of the assistant, so this message may have text only. */
static int check_last(reader_t *reader, int index, const json_t *message) {
  if (!json_equals(json_get(message, "role"), "assistant")) return 0;
  if (!has_other_than_text(json_get(message, "content"), reader->limits->lenient)) return 0;
  return messages_fail(reader, ERR_INVALID_VALUE, messages_at("messages.%d.content", index),
                       "the last message is of the assistant, so the answer continues it; it may "
                       "have text blocks only");
}

static int check_all(reader_t *reader, const json_t *system, const json_t *messages) {
  int index = 0, code = 0;
  if (system != NULL)
    code = check_blocks(reader, messages_at("system"), system, SPEAKER_SYSTEM, false);
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

static void write_message(reader_t *reader, int index, chat_body_t *body, const json_t *message,
                          const json_t *content) {
  messages_place_t place = messages_at("messages.%d.content", index);
  const json_t *role = json_get(message, "role");
  speaker_t speaker;
  (void)speaker_of(reader, index, message, &speaker); /* checked before */
  bool own =
      json_equals(role, "user") || json_equals(role, "assistant") || json_equals(role, "system");
  if (!own) note(reader, messages_at("messages.%d.role", index), "role");
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
  *continues = false;
  if (code != 0) return code;
  int index = 0;
  if (system != NULL) write_system(body, system);
  JSON_EACH(message, messages) {
    const json_t *content = messages_value(json_get(message, "content"));
    messages_place_t place = messages_at("messages.%d.content", index);
    if (content == NULL) note(reader, place, "empty");
    write_message(reader, index++, body, message, content);
    *continues = json_equals(json_get(message, "role"), "assistant");
  }
  return 0;
}
