/* blocks.c: content blocks of /v1/messages as messages of chat, see blocks.h.
 *
 * Loop thread or a job of the lanes; keeps no state.
 */
#include "server/dialect/blocks.h"

#include "engine/base/util.h"
#include "server/fields/history.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

block_place_t block_at(const char *format, ...) {
  block_place_t place;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(place.text, sizeof place.text, format, arguments);
  va_end(arguments);
  return place;
}

const json_t *block_value(const json_t *value) {
  return json_is_given(value) ? value : NULL;
}

bool block_is(const json_t *block, const char *type) {
  return json_equals(json_get(block, "type"), type);
}

/* The text of a block that has one that is not empty; else NULL. A reference to a tool stands for
 * the tool's name. */
const json_t *block_text(const json_t *block) {
  const json_t *text = NULL;
  if (block->type == JSON_STRING) text = block;
  if (block_is(block, "text")) text = json_get(block, "text");
  if (block_is(block, "tool_reference")) text = json_get(block, "tool_name");
  if (block_is(block, "compaction")) text = json_get(block, "content");
  return text != NULL && text->type == JSON_STRING && text->length > 0 ? text : NULL;
}

/* The result of a tool, of the client or of a server that ran it. */
bool block_is_result(const json_t *block) {
  static const char ending[] = "tool_result";
  const json_t *type = json_get(block, "type");
  size_t length = sizeof ending - 1;
  return type != NULL && type->type == JSON_STRING && type->length >= length &&
         memcmp(type->text + type->length - length, ending, length) == 0;
}

bool block_is_call(const json_t *block) {
  return block_is(block, "tool_use") || block_is(block, "server_tool_use") ||
         block_is(block, "mcp_tool_use");
}

bool block_is_thought(const json_t *block) {
  return block_is(block, "thinking") || block_is(block, "redacted_thinking");
}

/* A text that came as a document: its source, or a result of a search, has it. */
const json_t *block_document(const json_t *block) {
  const json_t *source = json_get(block, "source");
  if (block_is(block, "search_result")) return json_get(block, "content");
  if (!block_is(block, "document")) return NULL;
  if (block_is(source, "text")) return json_get(source, "data");
  return block_is(source, "content") ? json_get(source, "content") : NULL;
}

const char *block_picture_lacks(const json_t *block) {
  const json_t *source = json_get(block, "source");
  bool base64 = block_is(source, "base64");
  if (!base64 && !block_is(source, "url")) return "source.type";
  const json_t *text = json_get(source, base64 ? "data" : "url");
  if (text != NULL && text->type == JSON_STRING && text->length > 0) return NULL;
  return base64 ? "source.data" : "source.url";
}

/* Adds a picture. What media_type says is not believed, so it is not passed on. */
static void add_picture(chat_body_t *body, const json_t *block) {
  const json_t *source = json_get(block, "source");
  bool base64 = block_is(source, "base64");
  chat_body_picture(body, base64 ? "data:image;base64," : "",
                    json_get(source, base64 ? "data" : "url"), NULL);
}

/* Returns true if a content has a block that becomes text, be it a text that says what was left
 * out. */
bool block_has_text(const json_t *content) {
  if (content == NULL) return false;
  if (content->type == JSON_STRING) return content->length > 0;
  JSON_EACH(block, content) {
    bool other = block_is_result(block) || block_is_call(block) || block_is_thought(block);
    bool empty =
        block_text(block) == NULL && (block_is(block, "text") || block_is(block, "compaction") ||
                                      block_is(block, "tool_reference"));
    if (!other && !empty) return true;
  }
  return false;
}

/* ---- writing ---- */

void block_note(reader_t *reader, block_place_t place, const char *what) {
  if (reader->limits->lenient) field_name_mended(reader, place.text, what);
}

/* The place of an element: with brackets if the place has some, else with a dot. */
static block_place_t element_of(block_place_t place, int index) {
  return block_at(strchr(place.text, '[') != NULL ? "%s[%d]" : "%s.%d", place.text, index);
}

void block_add_left_out(reader_t *reader, block_place_t place, const json_t *block,
                        chat_body_t *body) {
  char text[LEFT_OUT_MAX], what[LEFT_OUT_MAX];
  history_left_out(json_get(block, "type"), text, what);
  block_note(reader, place, what);
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
static void add_value(reader_t *reader, block_place_t place, chat_body_t *body,
                      const json_t *value) {
  const json_t *text = block_text(value), *own = json_get(value, "text");
  bool typed = json_is_given(json_get(value, "type"));
  if (text == NULL && typed) {
    block_add_left_out(reader, place, value, body);
    return;
  }
  if (!typed && own != NULL && own->type == JSON_STRING) text = own;
  if (value->type == JSON_STRING) text = value;
  block_note(reader, place, text != NULL ? "text_part" : "json");
  if (text != NULL) chat_body_text(body, text->text, text->length);
  if (text == NULL) chat_body_json(body, value);
}

/* Adds the texts of a content to the message that was begun; empty ones are as if they were not
 * there. Calls, results and thoughts are left to others. */
void block_add_texts(reader_t *reader, block_place_t place, chat_body_t *body,
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
    block_place_t inside = element_of(place, index++);
    const json_t *text = block_text(block), *document = block_document(block);
    if (block_is_result(block) || block_is_call(block) || block_is_thought(block)) continue;
    if (text != NULL) {
      chat_body_text(body, text->text, text->length);
    } else if (document != NULL) {
      add_title(body, block);
      if (document->type == JSON_STRING && document->length > 0) {
        chat_body_text(body, document->text, document->length);
      }
      JSON_EACH(part, document) { /* of texts: a document holds no documents */
        const json_t *own = block_text(part);
        if (own != NULL) chat_body_text(body, own->text, own->length);
      }
    } else if (block_is(block, "image") && chat_body_takes_pictures(body) &&
               block_picture_lacks(block) == NULL) {
      add_picture(body, block);
    } else if (block->type == JSON_NULL) {
      block_note(reader, inside, "part_left_out");
    } else if (!json_is_given(json_get(block, "type"))) {
      add_value(reader, inside, body, block);
    } else if (!block_is(block, "text") && !block_is(block, "compaction") &&
               !block_is(block, "tool_reference")) {
      block_add_left_out(reader, inside, block, body);
    }
  }
}

/* Adds what a tool of another server has returned: texts, pages that were found, streams. */
static void add_found(reader_t *reader, block_place_t place, chat_body_t *body,
                      const json_t *content) {
  static const char *const names[] = {"stdout", "stderr", "error_code"};
  if (content == NULL) return;
  if (content->type != JSON_OBJECT) {
    JSON_EACH(block, content) {
      if (block_is(block, "web_search_result")) add_title(body, block);
    }
    if (!block_is(json_first(content), "web_search_result"))
      block_add_texts(reader, place, body, content);
    return;
  }
  add_title(body, content);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const json_t *text = json_get(content, names[i]);
    if (text == NULL || text->type != JSON_STRING || text->length == 0) continue;
    chat_body_text(body, text->text, text->length);
  }
  const json_t *document = json_get(content, "content"), *texts = block_document(document);
  if (texts != NULL && texts->type == JSON_STRING) {
    chat_body_text(body, texts->text, texts->length);
  }
}

static const json_t *id_of(reader_t *reader, block_place_t place, const json_t *block,
                           const char *name) {
  static const json_t none = {.type = JSON_STRING, .text = ""};
  const json_t *id = json_get(block, name);
  if (json_is_given(id)) return id;
  block_note(reader, place, "no_call_id");
  return &none;
}

void block_write_result(reader_t *reader, block_place_t place, chat_body_t *body,
                        const json_t *block) {
  const json_t *id = id_of(reader, place, block, "tool_use_id");
  const json_t *content = block_value(json_get(block, "content"));
  block_place_t inside = block_at("%s.content", place.text);
  chat_body_result(body, id->text, id->length);
  if (block_is(block, "tool_result") || block_is(block, "mcp_tool_result")) {
    block_add_texts(reader, inside, body, content);
  } else {
    add_found(reader, inside, body, content);
  }
}

void block_write_call(reader_t *reader, block_place_t place, chat_body_t *body,
                      const json_t *block) {
  const json_t *name = json_get(block, "name"), *input = json_get(block, "input");
  const json_t *id = id_of(reader, place, block, "id");
  char text[BLOCK_ID_BYTES_MAX + 1] = "unknown";
  buffer_t arguments = {0};
  bool named = name != NULL && name->type == JSON_STRING && name->length > 0 &&
               name->length <= BLOCK_ID_BYTES_MAX;
  if (named) {
    memcpy(text, name->text, name->length);
    text[name->length] = '\0';
  } else {
    block_note(reader, place, "call_without_name");
  }
  if (json_is_given(input)) json_print(&arguments, input);
  if (!json_is_given(input)) buffer_text(&arguments, "{}");
  chat_body_call(body, id, text, arguments.data, arguments.length);
  body->out->failed = body->out->failed || arguments.failed;
  buffer_free(&arguments);
}
