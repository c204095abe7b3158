/* items.c: the conversation of POST /v1/responses, a list of items -> messages of chat.
 *
 * Loop thread or a job of the lanes. An item of an unknown kind is refused: to leave a part of the
 * history out would change the answer in silence. Next: server/dialect/chat_body.c.
 */
#include "server/responses/responses.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <stdlib.h>

/* The place of an item, or of a part of it, in messages: "input[3].content[0]". */
typedef struct item_place {
  char text[ERROR_PARAM_MAX];
} item_place_t;

static item_place_t member_of(item_place_t place, const char *name) {
  item_place_t inside;
  int length = snprintf(inside.text, sizeof inside.text, "%s.%s", place.text, name);
  return length > 0 ? inside : place;
}

static item_place_t element_of(item_place_t place, const char *name, int index) {
  item_place_t inside;
  int length = snprintf(inside.text, sizeof inside.text, "%s.%s[%d]", place.text, name, index);
  return length > 0 ? inside : place;
}

/* Checks that a member of an item is a string; sets *out to it. */
static int need_string(reader_t *reader, item_place_t place, const json_t *item, const char *name,
                       const json_t **out) {
  *out = json_get(item, name);
  item_place_t inside = member_of(place, name);
  if (json_is_given(*out)) return field_string(reader, inside.text, *out, 0, 0x1p53);
  return error_set(reader->error, ERR_MISSING_PARAMETER, inside.text,
                   "Missing required parameter: '%s'.", inside.text);
}

/* ---- content ---- */

static int write_part(reader_t *reader, item_place_t place, const json_t *part, chat_body_t *body) {
  const json_t *type, *text;
  if (part->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", part);
  int code = need_string(reader, place, part, "type", &type);
  if (code != 0) return code;
  bool is_text = json_equals(type, "input_text") || json_equals(type, "output_text") ||
                 json_equals(type, "text");
  if (!is_text && !json_equals(type, "refusal")) {
    char name[64];
    return error_set(reader->error, ERR_UNSUPPORTED_CONTENT_PART, place.text,
                     "Content parts of type '%s' are not supported: this server takes text only.",
                     error_quote(name, sizeof name, type->text, type->length));
  }
  code = need_string(reader, place, part, is_text ? "text" : "refusal", &text);
  if (code == 0) chat_body_text(body, text->text, text->length);
  return code;
}

/* A string, or parts, of the member `name`. */
static int write_content(reader_t *reader, item_place_t place, const json_t *item, const char *name,
                         chat_body_t *body) {
  const json_t *content = json_get(item, name);
  item_place_t inside = member_of(place, name);
  int index = 0;
  if (!json_is_given(content)) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, inside.text,
                     "Missing required parameter: '%s'.", inside.text);
  }
  if (content->type == JSON_STRING) {
    chat_body_text(body, content->text, content->length);
    return 0;
  }
  if (content->type != JSON_ARRAY) {
    return field_fail_type(reader, inside.text, "a string or an array of content parts", content);
  }
  JSON_EACH(part, content) {
    int code = write_part(reader, element_of(place, name, index++), part, body);
    if (code != 0) return code;
  }
  return 0;
}

/* ---- items ---- */

static int write_message(reader_t *reader, item_place_t place, const json_t *item,
                         chat_body_t *body) {
  static const struct {
    const char *name;
    chat_role_t role;
  } roles[] = {{"user", CHAT_USER},
               {"assistant", CHAT_ASSISTANT},
               {"system", CHAT_SYSTEM},
               {"developer", CHAT_SYSTEM}};
  const json_t *role;
  int code = need_string(reader, place, item, "role", &role);
  for (size_t i = 0; code == 0 && i < ARRAY_LEN(roles); i++) {
    if (!json_equals(role, roles[i].name)) continue;
    chat_body_message(body, roles[i].role);
    return write_content(reader, place, item, "content", body);
  }
  if (code != 0) return code;
  item_place_t inside = member_of(place, "role");
  return field_fail_value(reader, inside.text, "'user', 'assistant', 'system' or 'developer'",
                          role);
}

/* Adds the reasoning of the answer that comes next: its text, or if there is none the summaries. */
static int write_reasoning(reader_t *reader, item_place_t place, const json_t *item,
                           chat_body_t *body) {
  static const char *const names[] = {"content", "summary"};
  chat_body_message(body, CHAT_ASSISTANT);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const json_t *list = json_get(item, names[i]);
    if (!json_is_given(list)) continue;
    if (list->type != JSON_ARRAY) {
      return field_fail_type(reader, member_of(place, names[i]).text, "an array", list);
    }
    int index = 0;
    JSON_EACH(part, list) {
      const json_t *text;
      item_place_t inside = element_of(place, names[i], index++);
      if (part->type != JSON_OBJECT) return field_fail_type(reader, inside.text, "an object", part);
      int code = need_string(reader, inside, part, "text", &text);
      if (code != 0) return code;
      chat_body_reasoning(body, text->text, text->length);
    }
    if (list->count > 0) return 0;
  }
  return 0;
}

void responses_join_name(buffer_t *out, const json_t *space, const json_t *own) {
  if (json_is_given(space)) {
    buffer_append(out, space->text, space->length);
    buffer_text(out, "__");
  }
  buffer_append(out, own->text, own->length);
}

static int write_call(reader_t *reader, item_place_t place, const json_t *item, bool is_custom,
                      chat_body_t *body) {
  const json_t *id, *own, *input, *space = json_get(item, "namespace");
  buffer_t name = {0}, arguments = {0};
  int code = need_string(reader, place, item, "call_id", &id);
  if (code == 0) code = need_string(reader, place, item, "name", &own);
  if (code == 0 && json_is_given(space)) {
    code = field_string(reader, member_of(place, "namespace").text, space, 0, 256);
  }
  if (code == 0) {
    code = need_string(reader, place, item, is_custom ? "input" : "arguments", &input);
  }
  if (code != 0) return code;
  if (own->length == 0) {
    item_place_t inside = member_of(place, "name");
    return error_set(reader->error, ERR_INVALID_VALUE, inside.text,
                     "Invalid '%s': it must not be empty.", inside.text);
  }
  responses_join_name(&name, space, own);
  buffer_char(&name, '\0');
  if (is_custom) {
    buffer_text(&arguments, "{\"input\":");
    buffer_quote(&arguments, input->text, input->length);
    buffer_char(&arguments, '}');
  } else {
    buffer_append(&arguments, input->text, input->length);
  }
  body->out->failed = body->out->failed || name.failed || arguments.failed;
  chat_body_message(body, CHAT_ASSISTANT);
  if (!name.failed) chat_body_call(body, id, name.data, arguments.data, arguments.length);
  buffer_free(&name);
  buffer_free(&arguments);
  return 0;
}

/* ---- calls and their outputs ---- */

/* The ids of all calls, sorted: an output must be one of a call. */
typedef struct call_ids {
  const json_t **ids;
  size_t count;
} call_ids_t;

static int compare_ids(const void *left, const void *right) {
  const json_t *a = *(const json_t *const *)left, *b = *(const json_t *const *)right;
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return memcmp(a->text, b->text, a->length);
}

static bool is_call(const json_t *item) {
  const json_t *type = json_get(item, "type");
  return json_equals(type, "function_call") || json_equals(type, "custom_tool_call");
}

static bool collect_ids(arena_t *arena, const json_t *items, call_ids_t *calls) {
  calls->ids = arena_calloc(arena, (size_t)items->count + 1, sizeof *calls->ids);
  if (calls->ids == NULL) return false;
  JSON_EACH(item, items) {
    const json_t *id = is_call(item) ? json_get(item, "call_id") : NULL;
    if (id != NULL && id->type == JSON_STRING) calls->ids[calls->count++] = id;
  }
  qsort(calls->ids, calls->count, sizeof *calls->ids, compare_ids);
  return true;
}

static int write_output(reader_t *reader, item_place_t place, const json_t *item,
                        const call_ids_t *calls, chat_body_t *body) {
  const json_t *id;
  int code = need_string(reader, place, item, "call_id", &id);
  if (code != 0) return code;
  if (bsearch(&id, calls->ids, calls->count, sizeof *calls->ids, compare_ids) == NULL) {
    char shown[64];
    return error_set(reader->error, ERR_INVALID_VALUE, member_of(place, "call_id").text,
                     "No call in 'input' has the call_id \"%s\" of this output.",
                     error_quote(shown, sizeof shown, id->text, id->length));
  }
  chat_body_result(body, id->text, id->length);
  return write_content(reader, place, item, "output", body);
}

static int write_item(reader_t *reader, int index, const json_t *item, const call_ids_t *calls,
                      chat_body_t *body) {
  item_place_t place;
  snprintf(place.text, sizeof place.text, "input[%d]", index);
  const json_t *type = json_get(item, "type");
  if (item->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", item);
  if (!json_is_given(type) || json_equals(type, "message")) {
    return write_message(reader, place, item, body);
  }
  if (json_equals(type, "reasoning")) return write_reasoning(reader, place, item, body);
  if (json_equals(type, "function_call")) return write_call(reader, place, item, false, body);
  if (json_equals(type, "custom_tool_call")) return write_call(reader, place, item, true, body);
  if (json_equals(type, "function_call_output") || json_equals(type, "custom_tool_call_output")) {
    return write_output(reader, place, item, calls, body);
  }
  char name[64] = "";
  if (type->type == JSON_STRING) error_quote(name, sizeof name, type->text, type->length);
  return error_set(reader->error, ERR_INVALID_VALUE, member_of(place, "type").text,
                   "Items of type '%s' are not supported ('%s'). Known are messages, 'reasoning', "
                   "'function_call', 'custom_tool_call' and the outputs of both.",
                   name, place.text);
}

int responses_messages(const responses_fields_t *fields, reader_t *reader, chat_body_t *body) {
  call_ids_t calls = {0};
  const json_t *input = fields->input;
  int index = 0;
  if (fields->instructions != NULL) {
    chat_body_message(body, CHAT_SYSTEM);
    chat_body_text(body, fields->instructions->text, fields->instructions->length);
  }
  if (input->type == JSON_STRING) {
    chat_body_message(body, CHAT_USER);
    chat_body_text(body, input->text, input->length);
    return 0;
  }
  if (!collect_ids(reader->arena, input, &calls)) return field_no_memory(reader);
  JSON_EACH(item, input) {
    int code = write_item(reader, index++, item, &calls, body);
    if (code != 0) return code;
  }
  return 0;
}
