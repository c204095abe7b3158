/* conversation.c: the messages of a request of Ollama's -> the messages of chat.
 *
 * Loop thread or libuv's pool; keeps no state. A message keeps its spelling, so one history gives
 * the prompt that it gives on chat; what chat refuses or mends is refused or mended there. Only
 * calls, results, thoughts and pictures are written otherwise.
 */
#include "server/ollama/ollama.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

/* Results that may still come: a call that has more behind it is as if it had one. */
enum { OPEN_CALLS_MAX = 128 };

typedef struct open_call {
  const json_t *id, *name; /* NULL = none */
  int number;              /* of the calls of the conversation */
} open_call_t;

typedef struct talk {
  reader_t *reader;
  buffer_t *out;
  open_call_t open[OPEN_CALLS_MAX];
  int num_open, num_calls;
} talk_t;

static const json_t *string_of(const json_t *object, const char *name) {
  const json_t *value = json_get(object, name);
  return value != NULL && value->type == JSON_STRING ? value : NULL;
}

/* "ID": the call's own, or one that follows from its number. */
static void print_id(buffer_t *out, const open_call_t *call) {
  if (call->id != NULL) {
    json_print(out, call->id);
    return;
  }
  buffer_text(out, "\"call_");
  buffer_int(out, call->number);
  buffer_char(out, '"');
}

/* ---- calls and results ---- */

/* Arguments as the text that chat has; a text stays what it is. */
static void print_arguments(buffer_t *out, const json_t *arguments) {
  buffer_t text = {0};
  if (arguments != NULL && arguments->type == JSON_STRING) {
    json_print(out, arguments);
    return;
  }
  if (json_is_given(arguments)) json_print(&text, arguments);
  if (text.length == 0) buffer_text(&text, "{}");
  buffer_quote(out, text.data, text.length);
  out->failed = out->failed || text.failed;
  buffer_free(&text);
}

static void print_call(talk_t *walk, const json_t *call) {
  buffer_t *out = walk->out;
  const json_t *function = json_get(call, "function"), *name = json_get(function, "name");
  open_call_t open = {.id = string_of(call, "id"), .number = walk->num_calls++};
  if (function == NULL || function->type != JSON_OBJECT) {
    json_print(out, call); /* chat says what is wrong with it */
    return;
  }
  if (open.id != NULL && open.id->length == 0) open.id = NULL;
  if (name != NULL && name->type == JSON_STRING) open.name = name;
  if (walk->num_open < OPEN_CALLS_MAX) walk->open[walk->num_open++] = open;
  buffer_text(out, "{\"id\":");
  print_id(out, &open);
  buffer_text(out, ",\"type\":\"function\",\"function\":{");
  if (name != NULL) {
    buffer_text(out, "\"name\":");
    json_print(out, name);
    buffer_char(out, ',');
  }
  buffer_text(out, "\"arguments\":");
  print_arguments(out, json_get(function, "arguments"));
  buffer_text(out, "}}");
}

static void print_calls(talk_t *walk, const json_t *calls) {
  const char *comma = "";
  buffer_text(walk->out, ",\"tool_calls\":");
  if (calls->type != JSON_ARRAY) {
    json_print(walk->out, calls);
    return;
  }
  buffer_char(walk->out, '[');
  walk->num_open = 0;
  JSON_EACH(call, calls) {
    buffer_text(walk->out, comma);
    print_call(walk, call);
    comma = ",";
  }
  buffer_char(walk->out, ']');
}

static bool same_text(const json_t *one, const json_t *other) {
  return one != NULL && other != NULL && one->length == other->length &&
         memcmp(one->text, other->text, one->length) == 0;
}

/* Which of the open calls a result answers: that of its id, else the first of its name, else the
 * first. -1: none is open. */
static int answered(const talk_t *walk, const json_t *id, const json_t *name) {
  for (int i = 0; id != NULL && i < walk->num_open; i++) {
    if (same_text(walk->open[i].id, id)) return i;
  }
  for (int i = 0; name != NULL && i < walk->num_open; i++) {
    if (same_text(walk->open[i].name, name)) return i;
  }
  return name == NULL && walk->num_open > 0 ? 0 : -1;
}

static void print_result(talk_t *walk, const json_t *message) {
  const json_t *id = string_of(message, "tool_call_id"), *name = string_of(message, "tool_name");
  int index = answered(walk, id, name);
  open_call_t call = {.id = id, .number = walk->num_calls};
  if (index >= 0) {
    if (id == NULL) call = walk->open[index];
    walk->num_open--;
    memmove(&walk->open[index], &walk->open[index + 1],
            (size_t)(walk->num_open - index) * sizeof *walk->open);
  }
  if (name != NULL) json_print_member(walk->out, "name", name);
  if (id == NULL && index < 0) return; /* chat mends, or refuses, a result without a call */
  buffer_text(walk->out, ",\"tool_call_id\":");
  print_id(walk->out, &call);
}

/* ---- content ---- */

int ollama_print_parts(reader_t *reader, const char *place, const json_t *images,
                       const json_t *text, buffer_t *chat) {
  static const char scheme[] = "data:";
  int index = 0;
  buffer_char(chat, '[');
  JSON_EACH(image, images) {
    char name[64];
    snprintf(name, sizeof name, "%simages[%d]", place, index);
    if (image->type != JSON_STRING) return field_fail_type(reader, name, "a string", image);
    bool is_url =
        image->length >= sizeof scheme - 1 && memcmp(image->text, scheme, sizeof scheme - 1) == 0;
    buffer_text(chat, index++ > 0 ? "," : "");
    buffer_text(chat, "{\"type\":\"image_url\",\"image_url\":{\"url\":\"");
    /* The type is a hint that nobody believes: the bytes say what they are. */
    if (!is_url) buffer_text(chat, "data:image/png;base64,");
    buffer_escape(chat, image->text, image->length);
    buffer_text(chat, "\"}}");
  }
  if (text != NULL && text->length > 0) {
    buffer_text(chat, index > 0 ? ",{\"type\":\"text\",\"text\":" : "{\"type\":\"text\",\"text\":");
    json_print(chat, text);
    buffer_char(chat, '}');
  }
  buffer_char(chat, ']');
  return 0;
}

static int print_content(talk_t *walk, int index, const json_t *message) {
  const json_t *content = json_get(message, "content"), *images = json_get(message, "images");
  char place[32], name[48];
  snprintf(place, sizeof place, "messages[%d].", index);
  if (json_is_given(content) && content->type != JSON_STRING) {
    snprintf(name, sizeof name, "%scontent", place);
    return field_fail_type(walk->reader, name, "a string", content);
  }
  if (!json_is_given(images) || (images->type == JSON_ARRAY && images->count == 0)) {
    if (content != NULL) json_print_member(walk->out, "content", content);
    return 0;
  }
  if (images->type != JSON_ARRAY) {
    snprintf(name, sizeof name, "%simages", place);
    return field_fail_type(walk->reader, name, "an array of strings", images);
  }
  buffer_text(walk->out, ",\"content\":");
  return ollama_print_parts(walk->reader, place, images, json_is_given(content) ? content : NULL,
                            walk->out);
}

/* ---- messages ---- */

/* Members that no route of chat would miss are named, as unknown fields are. */
static int check_members(talk_t *walk, const json_t *message) {
  static const char *const known[] = {"role",       "content",   "images",      "thinking",
                                      "tool_calls", "tool_name", "tool_call_id"};
  JSON_EACH(member, message) {
    if (json_named_one_of(member, known, ARRAY_LEN(known))) continue;
    int code = field_unknown(walk->reader, "messages.", member->key, member->key_length);
    if (code != 0) return code;
  }
  return 0;
}

static int print_message(talk_t *walk, int index, const json_t *message) {
  buffer_t *out = walk->out;
  const json_t *role = json_get(message, "role");
  if (message->type != JSON_OBJECT) {
    json_print(out, message); /* chat says what is wrong with it */
    return 0;
  }
  int code = check_members(walk, message);
  if (code != 0) return code;
  buffer_text(out, "{\"role\":");
  if (role != NULL) json_print(out, role);
  if (role == NULL) buffer_text(out, "null");
  code = print_content(walk, index, message);
  const json_t *thinking = json_get(message, "thinking"), *calls = json_get(message, "tool_calls");
  if (json_is_given(thinking)) json_print_member(out, "reasoning_content", thinking);
  if (json_is_given(calls)) print_calls(walk, calls);
  if (json_equals(role, "tool")) print_result(walk, message);
  buffer_char(out, '}');
  return code;
}

int ollama_print_messages(reader_t *reader, const json_t *messages, buffer_t *chat,
                          bool *continues) {
  talk_t walk = {.reader = reader, .out = chat};
  const json_t *last = NULL;
  int index = 0;
  buffer_text(chat, "\"messages\":[");
  JSON_EACH(message, messages) {
    if (index > 0) buffer_char(chat, ',');
    int code = print_message(&walk, index++, message);
    if (code != 0) return code;
    last = message;
  }
  buffer_char(chat, ']');
  const json_t *calls = json_get(last, "tool_calls"), *content = string_of(last, "content");
  bool called = calls != NULL && calls->count > 0;
  *continues = json_equals(json_get(last, "role"), "assistant") && !called && content != NULL;
  return 0;
}
