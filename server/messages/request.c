/* request.c: a body of /v1/messages -> the body of the same request on chat.
 *
 * Stage 2 of 9, before params.c. Loop thread or libuv's pool; keeps no state. The table of fields
 * checks what is of this format alone; the reader of chat then checks the result like any body.
 * Next: server/completion/prompt.c.
 */
#include "server/messages/messages.h"

#include "engine/base/util.h"
#include "server/fields/params_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The values of the plain rows. They are checked only: what is printed is the text of the body. */
typedef struct messages_fields {
  const json_t *model;
  int64_t max_tokens, top_k;
  float temperature, top_p;
  bool stream;
} messages_fields_t;

/* ---- errors and checks ---- */

int messages_fail(reader_t *reader, int code, block_place_t place, const char *format, ...) {
  char text[ERROR_MESSAGE_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return error_set(reader->error, code, place.text, "%s: %s", place.text, text);
}

int messages_fail_value(reader_t *reader, block_place_t place, const char *expected,
                        const json_t *value) {
  char shown[FIELD_SHOWN_MAX];
  return messages_fail(reader, ERR_INVALID_VALUE, place, "expected %s, but got %s", expected,
                       field_shown(shown, value));
}

int messages_need_string(reader_t *reader, block_place_t place, const json_t *object,
                         const char *member, size_t min, size_t max) {
  block_place_t path = block_at("%s.%s", place.text, member);
  const json_t *value = json_get(object, member);
  if (!json_is_given(value)) {
    return messages_fail(reader, ERR_MISSING_PARAMETER, path, "Field required");
  }
  if (value->type != JSON_STRING) {
    return messages_fail(reader, ERR_INVALID_TYPE, path, "expected a string, but got %s",
                         json_type_name(value));
  }
  if (value->length < min || value->length > max) {
    return messages_fail(reader, ERR_INVALID_VALUE, path,
                         "expected a string of %zu to %zu bytes, but got %u", min, max,
                         value->length);
  }
  return 0;
}

static int check_type(reader_t *reader, const field_t *field, const json_t *value, json_type_t type,
                      const char *expected) {
  return value->type == type ? 0 : field_fail_type(reader, field->name, expected, value);
}

static int check_array(reader_t *reader, const field_t *field, const json_t *value) {
  return check_type(reader, field, value, JSON_ARRAY, "an array");
}

static int check_object(reader_t *reader, const field_t *field, const json_t *value) {
  return check_type(reader, field, value, JSON_OBJECT, "an object");
}

static int check_number(reader_t *reader, const field_t *field, const json_t *value) {
  return check_type(reader, field, value, JSON_NUMBER, "an integer");
}

static int check_any(reader_t *reader, const field_t *field, const json_t *value) {
  (void)reader, (void)field, (void)value; /* the reader of chat checks it under the same name */
  return 0;
}

static int check_text(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_STRING || value->type == JSON_ARRAY) return 0;
  return field_fail_type(reader, field->name, "a string or an array of text blocks", value);
}

static int check_stops(reader_t *reader, const field_t *field, const json_t *value) {
  int code = check_array(reader, field, value);
  if (code == 0 && value->count > STOP_STRINGS_MAX) {
    code = error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "Invalid 'stop_sequences': at most %d strings are allowed.", STOP_STRINGS_MAX);
  }
  JSON_EACH(string, value) {
    if (code != 0) return code;
    code = field_string(reader, field->name, string, 1, STOP_STRING_BYTES_MAX);
  }
  return code;
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT messages_fields_t
static const field_t rows[] = {
#include "server/fields/messages_fields.def"
};
static const field_table_t table = {rows, ARRAY_LEN(rows), NULL};

/* ---- the fields that only have another name or shape ---- */

/* Fields whose value chat takes as it is. */
static void print_same(buffer_t *chat, const json_t *root) {
  static const struct {
    const char *name, *of_chat;
  } fields[] = {{"model", "model"},
                {"max_tokens", "max_tokens"},
                {"temperature", "temperature"},
                {"top_p", "top_p"},
                {"top_k", "top_k"},
                {"stop_sequences", "stop"},
                {"stream", "stream"},
                {"seed", "seed"},
                {"cache_salt", "cache_salt"},
                {"priority", "priority"}};
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    const json_t *value = json_get(root, fields[i].name);
    if (!json_is_given(value)) continue;
    buffer_text(chat, ",\"");
    buffer_text(chat, fields[i].of_chat);
    buffer_text(chat, "\":");
    json_print(chat, value);
  }
}

/* The variables of the template: those of the request, and what `thinking` says. */
static int print_thinking(reader_t *reader, const json_t *root, messages_state_t *state,
                          buffer_t *chat) {
  const json_t *thinking = block_value(json_get(root, "thinking"));
  const json_t *kwargs = block_value(json_get(root, "chat_template_kwargs"));
  const json_t *type = json_get(thinking, "type");
  bool on = json_equals(type, "enabled") || json_equals(type, "adaptive");
  if (thinking != NULL && !on && !json_equals(type, "disabled")) {
    return messages_fail_value(reader, block_at("thinking.type"),
                               "'enabled', 'adaptive' or 'disabled'", type);
  }
  state->omit_thinking = json_equals(json_get(thinking, "display"), "omitted");
  if (thinking == NULL && kwargs == NULL) return 0;
  bool any = false;
  buffer_text(chat, ",\"chat_template_kwargs\":{");
  JSON_EACH(member, kwargs) {
    if (thinking != NULL && json_named(member, "enable_thinking")) continue;
    if (any) buffer_char(chat, ',');
    any = true;
    buffer_quote(chat, member->key, member->key_length);
    buffer_char(chat, ':');
    json_print(chat, member);
  }
  if (thinking != NULL) {
    buffer_text(chat, any ? "," : "");
    buffer_text(chat, on ? "\"enable_thinking\":true" : "\"enable_thinking\":false");
  }
  buffer_char(chat, '}');
  return 0;
}

static int print_format(reader_t *reader, const char *name, const json_t *format, buffer_t *chat) {
  const json_t *schema = json_get(format, "schema");
  if (!json_equals(json_get(format, "type"), "json_schema")) {
    return messages_fail_value(reader, block_at("%s.type", name), "'json_schema'",
                               json_get(format, "type"));
  }
  if (schema == NULL || schema->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, block_at("%s.schema", name),
                         "expected an object");
  }
  buffer_text(chat, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
  json_print(chat, schema);
  buffer_text(chat, "}}");
  return 0;
}

static int print_output_config(reader_t *reader, const json_t *root, buffer_t *chat) {
  const json_t *config = block_value(json_get(root, "output_config"));
  const json_t *effort = block_value(json_get(config, "effort"));
  const json_t *format = block_value(json_get(config, "format"));
  const json_t *first = block_value(json_get(root, "output_format"));
  if (effort != NULL) {
    int code = messages_need_string(reader, block_at("output_config"), config, "effort", 1, 32);
    if (code != 0) return code;
    buffer_text(chat, ",\"reasoning_effort\":");
    json_print(chat, effort);
  }
  if (format != NULL && first != NULL) {
    return messages_fail(reader, ERR_INVALID_VALUE, block_at("output_format"),
                         "it is the first name of output_config.format, which is given, too");
  }
  if (format != NULL) return print_format(reader, "output_config.format", format, chat);
  return first != NULL ? print_format(reader, "output_format", first, chat) : 0;
}

/* Reads the fields of this format. Those that chat has and this format has not are handed on, and
 * read there: none of them is left without its effect. */
static int read_fields(reader_t *reader, const json_t *root, buffer_t *passed) {
  if (root->type != JSON_OBJECT) {
    return error_set(reader->error, ERR_INVALID_JSON, NULL,
                     "The request body must be a JSON object.");
  }
  JSON_EACH(value, root) {
    const field_t *row = fields_find(&table, value->key, value->key_length);
    int code = 0;
    if (row != NULL) {
      if (value->type != JSON_NULL) code = field_read(reader, row, value);
    } else if (fields_find(&chat_table, value->key, value->key_length) == NULL) {
      code = field_unknown(reader, "", value->key, value->key_length);
    } else {
      buffer_char(passed, ',');
      buffer_quote(passed, value->key, value->key_length);
      buffer_char(passed, ':');
      json_print(passed, value);
    }
    if (code != 0) return code;
  }
  return 0;
}

static int fail_required(reader_t *reader, const char *name) {
  return messages_fail(reader, ERR_MISSING_PARAMETER, block_at("%s", name), "Field required");
}

static int translate(reader_t *reader, const json_t *root, bool late_system, bool counting,
                     messages_state_t *state, buffer_t *passed, buffer_t *chat) {
  messages_fields_t fields = {0};
  bool continues = false;
  fields_default(&table, &fields);
  reader->out = &fields;
  int code = read_fields(reader, root, passed);
  if (code != 0) return code;
  const json_t *messages = block_value(json_get(root, "messages"));
  if (messages == NULL) return fail_required(reader, "messages");
  if (fields.max_tokens == ABSENT && !counting) return fail_required(reader, "max_tokens");
  state->max_tokens = fields.max_tokens;
  chat_body_t body;
  chat_body_begin(&body, chat, late_system);
  code = messages_print_conversation(reader, block_value(json_get(root, "system")), messages, &body,
                                     &continues);
  (void)chat_body_end(&body);
  if (code == 0) {
    code = messages_print_tools(reader, block_value(json_get(root, "tools")),
                                block_value(json_get(root, "tool_choice")), chat);
  }
  if (code == 0) code = print_thinking(reader, root, state, chat);
  if (code == 0) code = print_output_config(reader, root, chat);
  if (code != 0) return code;
  print_same(chat, root);
  buffer_append(chat, passed->data, passed->length);
  chat->failed = chat->failed || passed->failed;
  if (continues) buffer_text(chat, ",\"continue_final_message\":true");
  buffer_char(chat, '}');
  return 0;
}

int messages_translate(reader_t *reader, const json_t *root, bool late_system, bool counting,
                       messages_state_t *state, buffer_t *chat) {
  buffer_t passed = {0};
  int code = translate(reader, root, late_system, counting, state, &passed, chat);
  buffer_free(&passed);
  return code;
}
