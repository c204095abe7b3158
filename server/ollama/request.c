/* request.c: a body of /api/chat or /api/generate -> the body of the same request on chat, or on
 * completions.
 *
 * Stage 2 of 9, before params.c. Loop thread or libuv's pool; keeps no state. The tables of fields
 * check what is of this format alone; the reader of chat then checks the result like any body.
 * Next: server/completion/prompt.c.
 */
#include "server/ollama/ollama.h"

#include "engine/base/util.h"
#include "server/completion/chat.h"
#include "server/completion/dialect.h"
#include "server/fields/params_read.h"

#include <string.h>

/* What the rows of both routes read. */
typedef struct question {
  ollama_common_t common;
  const json_t *messages, *prompt, *system, *suffix, *images;
  bool stream, raw, logprobs, truncate, shift;
  int64_t top_logprobs;
  bool unloads; /* keep_alive is 0 */
} question_t;

/* ---- the readers of rows ---- */

static int ollama_as_chat(reader_t *reader, const field_t *field, const json_t *value) {
  (void)reader, (void)field, (void)value; /* the reader of chat checks it under the same name */
  return 0;
}

static int ollama_array(reader_t *reader, const field_t *field, const json_t *value) {
  question_t *body = reader->out;
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  *(strcmp(field->name, "images") == 0 ? &body->images : &body->messages) = value;
  return 0;
}

static int ollama_object(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  ((question_t *)reader->out)->common.options = value;
  return 0;
}

static int ollama_keep_alive(reader_t *reader, const field_t *field, const json_t *value) {
  (void)field;
  return ollama_read_keep_alive(reader, value, &((question_t *)reader->out)->unloads);
}

static int ollama_think(reader_t *reader, const field_t *field, const json_t *value) {
  bool on;
  ((question_t *)reader->out)->common.think = value;
  if (json_bool(value, &on)) return 0;
  if (value->type != JSON_STRING) {
    return field_fail_type(reader, field->name, "a boolean or a string", value);
  }
  return field_string(reader, field->name, value, 1, 32);
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT question_t
static const field_t chat_rows[] = {
#include "server/fields/ollama/chat_fields.def"
};
static const field_t generate_rows[] = {
#include "server/fields/ollama/generate_fields.def"
};
static const field_table_t chat_rows_table = {chat_rows, ARRAY_LEN(chat_rows), NULL};
static const field_table_t generate_rows_table = {generate_rows, ARRAY_LEN(generate_rows), NULL};

int ollama_read_fields(reader_t *reader, const field_table_t *table, const json_t *root) {
  fields_default(table, reader->out);
  return fields_read(table, reader, root);
}

static int begin(completion_t *completion, reader_t *reader, const field_table_t *table,
                 const json_t *root, question_t *body) {
  ollama_state_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return field_no_memory(reader);
  completion->dialect_state = state;
  *body = (question_t){0};
  reader->out = body;
  return ollama_read_fields(reader, table, root);
}

/* ---- parts of the body of chat ---- */

static int refuse(reader_t *reader, const char *name, const char *where) {
  return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, name,
                   "The parameter '%s' is not supported with '%s'.", name, where);
}

/* A switch sets the variables of the template; a word is the effort. */
static int print_think(const completion_t *completion, reader_t *reader, const json_t *think,
                       buffer_t *chat) {
  const completions_t *live = completion->server->live;
  bool on;
  if (think == NULL) return 0;
  if (!json_bool(think, &on)) {
    json_print_member(chat, "reasoning_effort", think);
    return 0;
  }
  if (on && live->reasoning_format == NULL) {
    const char *name = model_name(live);
    char shown[140];
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "think",
                     "\"%s\" does not support thinking; leave 'think' out, or send false",
                     error_quote(shown, sizeof shown, name, strlen(name)));
  }
  bool thinks = live->reasoning_format != NULL && live->templates != NULL;
  if (thinks && !chat_template_reads_effort(live->templates, false)) {
    field_name_ignored(reader->ignored, "think");
  }
  buffer_text(chat, on ? ",\"chat_template_kwargs\":{\"enable_thinking\":true}"
                       : ",\"chat_template_kwargs\":{\"enable_thinking\":false}");
  return 0;
}

/* What all bodies end with. */
static int print_rest(completion_t *completion, reader_t *reader, const json_t *root,
                      const question_t *body, buffer_t *chat) {
  static const char *const same[] = {"format", "cache_salt", "priority"};
  buffer_char(chat, ',');
  int code = ollama_print_model(completion, reader, body->common.model, chat);
  if (code == 0) {
    code = ollama_print_options(reader, body->common.options, completion_context(completion), chat);
  }
  for (size_t i = 0; i < ARRAY_LEN(same); i++) {
    const json_t *value = json_get(root, same[i]);
    if (json_is_given(value)) json_print_member(chat, same[i], value);
  }
  buffer_text(chat, body->stream ? ",\"stream\":true" : ",\"stream\":false");
  return code;
}

static void print_logprobs(const question_t *body, buffer_t *chat) {
  if (body->logprobs) buffer_text(chat, ",\"logprobs\":true");
  if (!body->logprobs && body->top_logprobs == 0) return;
  buffer_text(chat, ",\"top_logprobs\":");
  buffer_int(chat, body->top_logprobs);
}

/* A body that asks nothing: the shortest that the reader of completions takes. The options are
 * checked all the same. */
static int ask_nothing(completion_t *completion, reader_t *reader, const question_t *body,
                       buffer_t *chat) {
  buffer_t options = {0};
  if (body->unloads) {
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "keep_alive",
                     "'keep_alive' is 0 and nothing is asked, which unloads the model of Ollama; "
                     "the model of this server stays loaded until the operator ends it.");
  }
  int code =
      ollama_print_options(reader, body->common.options, completion_context(completion), &options);
  buffer_free(&options);
  if (code != 0) return code;
  completion->dialect = &ollama_load_dialect;
  buffer_text(chat, "{\"prompt\":[0],\"max_tokens\":1,");
  code = ollama_print_model(completion, reader, body->common.model, chat);
  buffer_char(chat, '}');
  return code;
}

/* ---- chat ---- */

int ollama_translate_chat(completion_t *completion, reader_t *reader, const json_t *root,
                          buffer_t *chat) {
  static const char *const same[] = {"tools", "tool_choice", "parallel_tool_calls"};
  question_t body;
  bool continues = false;
  int code = begin(completion, reader, &chat_rows_table, root, &body);
  if (code != 0) return code;
  if (body.messages == NULL || body.messages->count == 0) {
    return ask_nothing(completion, reader, &body, chat);
  }
  buffer_char(chat, '{');
  code = ollama_print_messages(reader, body.messages, chat, &continues);
  if (code != 0) return code;
  if (continues) buffer_text(chat, ",\"continue_final_message\":true");
  for (size_t i = 0; i < ARRAY_LEN(same); i++) {
    const json_t *value = json_get(root, same[i]);
    if (json_is_given(value)) json_print_member(chat, same[i], value);
  }
  code = print_think(completion, reader, body.common.think, chat);
  print_logprobs(&body, chat);
  if (code == 0) code = print_rest(completion, reader, root, &body, chat);
  buffer_char(chat, '}');
  return code;
}

/* ---- generate ---- */

static bool has_text(const json_t *value) {
  return value != NULL && value->length > 0;
}

/* What only a template has a place for. */
static int check_raw(reader_t *reader, const question_t *body, const char *where) {
  bool on = true;
  if (has_text(body->system)) return refuse(reader, "system", where);
  if (body->images != NULL && body->images->count > 0) return refuse(reader, "images", where);
  if (body->common.think != NULL && !(json_bool(body->common.think, &on) && !on))
    return refuse(reader, "think", where);
  if (body->logprobs || body->top_logprobs > 0) return refuse(reader, "logprobs", where);
  return 0;
}

static int print_question(reader_t *reader, const question_t *body, buffer_t *chat) {
  int code = 0;
  buffer_text(chat, "{\"messages\":[");
  if (has_text(body->system)) {
    buffer_text(chat, "{\"role\":\"system\",\"content\":");
    json_print(chat, body->system);
    buffer_text(chat, "},");
  }
  buffer_text(chat, "{\"role\":\"user\",\"content\":");
  if (body->images != NULL && body->images->count > 0) {
    code = ollama_print_parts(reader, "", body->images, body->prompt, chat);
  } else {
    json_print(chat, body->prompt);
  }
  buffer_text(chat, "}]");
  return code;
}

int ollama_translate_generate(completion_t *completion, reader_t *reader, const json_t *root,
                              buffer_t *chat) {
  question_t body;
  int code = begin(completion, reader, &generate_rows_table, root, &body);
  if (code != 0) return code;
  ((ollama_state_t *)completion->dialect_state)->generates = true;
  if (!has_text(body.prompt)) return ask_nothing(completion, reader, &body, chat);
  if (body.raw || has_text(body.suffix)) {
    completion->dialect = &ollama_raw_dialect;
    code = check_raw(reader, &body, body.raw ? "raw" : "suffix");
    if (code == 0 && body.raw && has_text(body.suffix)) code = refuse(reader, "suffix", "raw");
    buffer_text(chat, "{\"prompt\":");
    json_print(chat, body.prompt);
    if (has_text(body.suffix)) json_print_member(chat, "suffix", body.suffix);
  } else {
    code = print_question(reader, &body, chat);
    if (code == 0) code = print_think(completion, reader, body.common.think, chat);
    print_logprobs(&body, chat);
  }
  if (code == 0) code = print_rest(completion, reader, root, &body, chat);
  buffer_char(chat, '}');
  return code;
}
