/* request.c: the body of POST /v1/responses -> a body of chat.
 *
 * Loop thread or a job of the lanes. The conversation is written by items.c, the tools by tools.c.
 * Fields that chat has too are handed on as they are: the reader of chat checks them. Next:
 * server/completion/prompt.c.
 */
#include "server/responses/responses.h"

#include "engine/base/util.h"
#include "server/fields/params_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static responses_fields_t *out_of(reader_t *reader) {
  return reader->out;
}

/* ---- fields ---- */

static int read_input(reader_t *reader, const field_t *field, const json_t *value) {
  out_of(reader)->input = value;
  if (value->type == JSON_STRING) return 0;
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, field->name, "a string or an array of items", value);
  }
  if (value->count > 0) return 0;
  return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                   "Invalid 'input': the array must not be empty.");
}

static int read_tool_list(reader_t *reader, const field_t *field, const json_t *value) {
  out_of(reader)->tools = value;
  return value->type == JSON_ARRAY ? 0 : field_fail_type(reader, field->name, "an array", value);
}

static int read_any_choice(reader_t *reader, const field_t *field, const json_t *value) {
  out_of(reader)->tool_choice = value;
  if (value->type == JSON_STRING || value->type == JSON_OBJECT) return 0;
  return field_fail_type(reader, field->name, "a string or an object", value);
}

static int read_object(reader_t *reader, const field_t *field, const json_t *value,
                       const json_t **out) {
  *out = value;
  return value->type == JSON_OBJECT ? 0 : field_fail_type(reader, field->name, "an object", value);
}

static int read_reasoning(reader_t *reader, const field_t *field, const json_t *value) {
  return read_object(reader, field, value, &out_of(reader)->reasoning);
}

static int read_text(reader_t *reader, const field_t *field, const json_t *value) {
  return read_object(reader, field, value, &out_of(reader)->text);
}

static int read_any_metadata(reader_t *reader, const field_t *field, const json_t *value) {
  return read_object(reader, field, value, &out_of(reader)->metadata);
}

static int read_include(reader_t *reader, const field_t *field, const json_t *value) {
  out_of(reader)->include = value;
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  JSON_EACH(name, value) {
    if (name->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", name);
  }
  return 0;
}

/* Without a store nothing can be continued. */
static int read_previous(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_STRING && value->length == 0) return 0;
  if (!reader->limits->stores)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                     "The parameter '%s' is not supported: the server keeps no answers (--store); "
                     "send the history in 'input'.",
                     field->name);
  out_of(reader)->previous = value;
  return field_string(reader, field->name, value, 1, 0x1p53);
}

/* An id, or an object that has it. */
static int read_conversation(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_STRING && value->length == 0) return 0;
  if (!reader->limits->stores)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                     "The parameter '%s' is not supported: the server keeps no conversations "
                     "(--store); send the history in 'input'.",
                     field->name);
  const json_t *id = value->type == JSON_OBJECT ? json_get(value, "id") : value;
  if (id == NULL || id->type != JSON_STRING)
    return field_fail_type(reader, field->name, "a string or an object with an id", value);
  out_of(reader)->conversation = id;
  return field_string(reader, field->name, id, 1, 0x1p53);
}

/* Without a store nothing is kept, whatever it says. */
static int read_store(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_TRUE && value->type != JSON_FALSE)
    return field_fail_type(reader, field->name, "a boolean", value);
  out_of(reader)->store = reader->limits->stores && value->type == JSON_TRUE;
  out_of(reader)->store_is_given = true;
  return 0;
}

static int read_background(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_TRUE && value->type != JSON_FALSE)
    return field_fail_type(reader, field->name, "a boolean", value);
  out_of(reader)->background = value->type == JSON_TRUE;
  if (value->type == JSON_FALSE) return 0;
  if (!reader->limits->stores)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                     "The parameter 'background' is not supported: the server keeps no answers "
                     "(--store).");
  if (reader->limits->makes_later) return 0;
  return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                   "The parameter 'background' is not supported by a server of several models; a "
                   "batch (/v1/batches) is answered later.");
}

static int read_truncation(reader_t *reader, const field_t *field, const json_t *value) {
  if (json_equals(value, "disabled")) return 0;
  return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                   "Invalid 'truncation': only 'disabled' is possible. No part of a prompt is left "
                   "out in silence.");
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT responses_fields_t
static const field_t rows[] = {
#include "server/fields/responses_fields.def"
};

const field_table_t responses_table = {rows, ARRAY_LEN(rows), NULL};

/* Reads the fields of this dialect, and hands those of chat on. */
static int read_fields(reader_t *reader, const json_t *root, buffer_t *passed) {
  if (root->type != JSON_OBJECT) {
    return error_set(reader->error, ERR_INVALID_JSON, NULL,
                     "The request body must be a JSON object.");
  }
  JSON_EACH(value, root) {
    const field_t *row = fields_find(&responses_table, value->key, value->key_length);
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

/* ---- the body of chat ---- */

const char *responses_keep(arena_t *arena, buffer_t *text) {
  buffer_char(text, '\0');
  const char *kept = text->failed ? NULL : arena_copy(arena, text->data, text->length);
  buffer_clear(text);
  return kept;
}

/* What the answer repeats, while it is collected. */
typedef struct repeats {
  reader_t *reader;
  size_t left; /* bytes of REPEATED_BYTES_MAX */
  bool failed; /* memory is short */
} repeats_t;

/* Prints a tool or a format with all members that the reference requires of it in an answer. */
static void print_whole(buffer_t *out, const json_t *object) {
  static const struct {
    const char *type, *name, *value;
  } members[] = {{"function", "description", "null"},
                 {"function", "parameters", "null"},
                 {"function", "strict", "null"},
                 {"json_schema", "description", "null"},
                 {"json_schema", "strict", "false"}};
  const json_t *type = json_get(object, "type");
  json_print(out, object);
  for (size_t i = 0; i < ARRAY_LEN(members) && !out->failed; i++) {
    if (!json_equals(type, members[i].type) || json_get(object, members[i].name) != NULL) continue;
    out->length--; /* the brace */
    buffer_text(out, ",\"");
    buffer_text(out, members[i].name);
    buffer_text(out, "\":");
    buffer_text(out, members[i].value);
    buffer_char(out, '}');
  }
}

static void print_repeated(buffer_t *out, const json_t *value) {
  if (value->type != JSON_ARRAY) {
    print_whole(out, value);
    return;
  }
  const char *comma = "[";
  JSON_EACH(item, value) {
    buffer_text(out, comma);
    print_whole(out, item);
    comma = ",";
  }
  buffer_text(out, value->count > 0 ? "]" : "[]");
}

/* Returns the JSON text of a value. One that is not given, or for which no bytes are left, is
 * repeated as `absent`. */
static const char *keep(repeats_t *repeats, const char *name, const json_t *value,
                        const char *absent) {
  if (value == NULL || value->type == JSON_NULL) return absent;
  const char *kept = absent;
  buffer_t text = {0};
  print_repeated(&text, value);
  if (!text.failed && text.length > repeats->left) {
    char shown[ERROR_PARAM_MAX];
    snprintf(shown, sizeof shown, "%s:not_repeated", name);
    field_name_ignored(repeats->reader->ignored, shown);
  } else {
    repeats->left -= text.failed ? 0 : text.length;
    kept = responses_keep(repeats->reader->arena, &text);
    repeats->failed = repeats->failed || kept == NULL;
  }
  buffer_free(&text);
  return kept;
}

static int write_format(reader_t *reader, const json_t *format, buffer_t *chat) {
  const json_t *type = json_get(format, "type"), *schema = json_get(format, "schema");
  if (format == NULL || format->type == JSON_NULL || json_equals(type, "text")) return 0;
  if (format->type != JSON_OBJECT) {
    return field_fail_type(reader, "text.format", "an object", format);
  }
  if (json_equals(type, "json_object")) {
    buffer_text(chat, ",\"response_format\":{\"type\":\"json_object\"}");
    return 0;
  }
  if (!json_equals(type, "json_schema")) {
    return field_fail_value(reader, "text.format.type", "'text', 'json_object' or 'json_schema'",
                            type);
  }
  if (schema == NULL || schema->type == JSON_NULL) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, "text.format.schema",
                     "Missing required parameter: 'text.format.schema'.");
  }
  const json_t *name = json_get(format, "name"), *strict = json_get(format, "strict");
  buffer_text(chat, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
  json_print(chat, schema);
  if (name != NULL) json_print_member(chat, "name", name);
  if (strict != NULL) json_print_member(chat, "strict", strict);
  buffer_text(chat, "}}");
  return 0;
}

static bool wants_logprobs(const responses_fields_t *fields) {
  JSON_EACH(name, fields->include) {
    if (json_equals(name, "message.output_text.logprobs")) return true;
  }
  return false;
}

/* The fields that chat has under other names. */
static int write_fields(const responses_fields_t *fields, reader_t *reader, buffer_t *chat) {
  const json_t *effort = json_get(fields->reasoning, "effort");
  if (fields->max_output_tokens != ABSENT) {
    buffer_text(chat, ",\"max_completion_tokens\":");
    buffer_int(chat, fields->max_output_tokens);
  }
  if (effort != NULL) json_print_member(chat, "reasoning_effort", effort);
  bool scores = wants_logprobs(fields);
  if (fields->top_logprobs > 0 && !scores) {
    return error_set(reader->error, ERR_INVALID_VALUE, "top_logprobs",
                     "'top_logprobs' needs \"message.output_text.logprobs\" in 'include'.");
  }
  if (fields->top_logprobs > SAMPLE_TOP_MAX) {
    return error_set(reader->error, ERR_ABOVE_MAX, "top_logprobs",
                     "Invalid 'top_logprobs': %" PRId64 " is more than the %d of this route; "
                     "/v1/chat/completions returns more.",
                     fields->top_logprobs, (int)SAMPLE_TOP_MAX);
  }
  if (scores) buffer_text(chat, ",\"logprobs\":true");
  if (scores && fields->top_logprobs != ABSENT) {
    buffer_text(chat, ",\"top_logprobs\":");
    buffer_int(chat, fields->top_logprobs);
  }
  return write_format(reader, json_get(fields->text, "format"), chat);
}

/* Keeps what the answer repeats: short and telling values first. */
static int keep_fields(const responses_fields_t *fields, reader_t *reader,
                       responses_answer_t *response) {
  repeats_t repeats = {.reader = reader, .left = REPEATED_BYTES_MAX};
  const json_t *effort = json_get(fields->reasoning, "effort");
  const json_t *format = json_get(fields->text, "format");
  response->effort = keep(&repeats, "reasoning.effort", effort, "null");
  response->tool_choice = keep(&repeats, "tool_choice", fields->tool_choice, "\"auto\"");
  response->metadata = keep(&repeats, "metadata", fields->metadata, "{}");
  response->format = keep(&repeats, "text.format", format, "{\"type\":\"text\"}");
  response->instructions = keep(&repeats, "instructions", fields->instructions, "null");
  response->tools = keep(&repeats, "tools", fields->tools, "[]");
  response->max_output_tokens = fields->max_output_tokens;
  response->top_logprobs = fields->top_logprobs;
  response->frames.flat = true;
  response->out = &response->frames;
  return repeats.failed ? field_no_memory(reader) : 0;
}

/* Reads the items of the answers before this one into a document. */
static int read_history(const completion_t *completion, reader_t *reader,
                        const responses_fields_t *fields, charge_t *charge, json_doc_t **doc,
                        buffer_t *items) {
  int code = responses_history(completion, reader, fields, charge, items);
  if (code != 0) return code;
  size_t most = json_memory_bound(items->data, items->length, &responses_kept_limits);
  if (!charge_resize(charge, items->capacity + most)) return ledger_refuse(charge, reader->error);
  return json_parse(items->data, items->length, &responses_kept_limits, doc, reader->error);
}

/* Writes the conversation: what the answers before have of it, and the items of this request. */
static int write_messages(completion_t *completion, reader_t *reader, responses_fields_t *fields,
                          buffer_t *chat) {
  charge_t charge = charge_open(completion->server->ledger, completion->source, LEDGER_values);
  buffer_t items = {0};
  json_doc_t *doc = NULL;
  int code = 0;
  if (fields->previous != NULL || fields->conversation != NULL)
    code = read_history(completion, reader, fields, &charge, &doc, &items);
  if (code == 0) {
    chat_body_t body;
    if (doc != NULL) fields->history = json_root(doc);
    chat_body_begin(&body, chat,
                    (completion->server->live->rules.refused[0] & SHAPE_LATE_SYSTEM) == 0);
    code = responses_messages(fields, reader, &body);
    chat_body_end(&body);
    fields->history = NULL;
  }
  json_free(doc);
  buffer_free(&items);
  charge_drop(&charge);
  return code;
}

/* Copies the body of a request that runs later: a body of chat takes its place. */
static int keep_body(const completion_t *completion, reader_t *reader,
                     responses_answer_t *response) {
  const held_t *body = &completion->intake->body;
  held_t *copy = &response->request;
  copy->charge = charge_open(completion->server->ledger, completion->source, LEDGER_body);
  if (!charge_resize(&copy->charge, body->length + 1))
    return ledger_refuse(&copy->charge, reader->error);
  copy->bytes = calloc(body->length + 1, 1);
  if (copy->bytes == NULL) return field_no_memory(reader);
  memcpy(copy->bytes, body->bytes, body->length);
  copy->length = body->length;
  return 0;
}

int responses_translate(completion_t *completion, reader_t *reader, const json_t *root,
                        buffer_t *chat) {
  responses_fields_t fields = {.store = reader->limits->stores};
  buffer_t passed = {0};
  responses_answer_t *response = arena_calloc(reader->arena, 1, sizeof *response);
  if (response == NULL) return field_no_memory(reader);
  fields_default(&responses_table, &fields);
  reader->out = &fields;
  int code = read_fields(reader, root, &passed);
  if (code == 0 && fields.input == NULL) {
    code = error_set(reader->error, ERR_MISSING_PARAMETER, "input",
                     "Missing required parameter: 'input'.");
  }
  if (code == 0 && fields.background && !fields.store) {
    code = error_set(reader->error, ERR_INVALID_VALUE, "background",
                     "Invalid 'background': true needs 'store', which is false.");
  }
  if (code == 0 && fields.conversation != NULL && fields.previous != NULL) {
    code = error_set(reader->error, ERR_INVALID_VALUE, "previous_response_id",
                     "'previous_response_id' and 'conversation' exclude each other: a conversation "
                     "has what came before.");
  }
  response->background = fields.background;
  if (code == 0) code = keep_fields(&fields, reader, response);
  if (code == 0) code = write_messages(completion, reader, &fields, chat);
  if (code == 0) code = responses_tools(&fields, reader, response, chat);
  if (code == 0) code = write_fields(&fields, reader, chat);
  buffer_append(chat, passed.data, passed.length);
  buffer_char(chat, '}');
  chat->failed = chat->failed || passed.failed;
  buffer_free(&passed);
  if (code == 0) code = responses_keep_input(completion, reader, &fields, response);
  completion->dialect_state = response; /* the dialect's `free` has its buffers */
  if (code == 0 && fields.background && completion->dialect == &responses_dialect) {
    completion->dialect = &responses_posted;
    code = keep_body(completion, reader, response);
  }
  return code;
}

/* ---- errors ---- */

/* Puts `to` in the place of the first `from` in the text, if there is room. */
static void replace(char *text, size_t capacity, const char *from, const char *to) {
  char *at = strstr(text, from);
  size_t old = strlen(from), new = strlen(to), length = strlen(text);
  if (at == NULL || length - old + new >= capacity) return;
  memmove(at + new, at + old, strlen(at + old) + 1);
  memcpy(at, to, new);
}

void responses_rename(const completion_t *completion, inferd_error_t *error) {
  static const char *const names[][2] = {
      {"messages", "input"},
      {"max_completion_tokens", "max_output_tokens"},
      {"max_tokens", "max_output_tokens"},
      {"response_format.json_schema.schema", "text.format.schema"},
      {"response_format", "text.format"},
      {"reasoning_effort", "reasoning.effort"},
  };
  const responses_answer_t *response = completion->dialect_state;
  char old[ERROR_PARAM_MAX], function[40];
  int32_t index;
  snprintf(old, sizeof old, "%s", error->param);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    if (strncmp(old, names[i][0], strlen(names[i][0])) != 0) continue;
    replace(error->param, sizeof error->param, names[i][0], names[i][1]);
    break;
  }
  bool of_tool = sscanf(old, "tools[%" SCNd32 "]", &index) == 1 && index >= 0;
  if (of_tool && index < response->num_shown) {
    snprintf(function, sizeof function, "tools[%" PRId32 "].function", index);
    replace(error->param, sizeof error->param, function, response->shown[index].place);
  }
  if (old[0] != '\0') replace(error->message, sizeof error->message, old, error->param);
}
