/* items.c: the conversation of POST /v1/responses, a list of items -> messages of chat.
 *
 * Loop thread or a job of the lanes. A history may come from another provider: what is text of it
 * is written, such as the call of a shell and its output; what is not is left out and named in the
 * header x-inferd-mended, or with --no-lenient-history refused. Next: server/dialect/chat_body.c.
 */
#include "server/responses/responses.h"

#include "engine/base/util.h"
#include "server/dialect/blocks.h"
#include "server/fields/history.h"

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

/* The members of a part in which its text is. */
static const json_t *text_of_part(const json_t *part) {
  static const char *const types[] = {"input_text", "output_text", "text", "summary_text",
                                      "reasoning_text"};
  const json_t *type = json_get(part, "type");
  if (json_equals(type, "refusal")) return json_get(part, "refusal");
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    if (json_equals(type, types[i])) return json_get(part, "text");
  }
  return NULL;
}

static bool is_text_type(const json_t *type) {
  return json_equals(type, "input_text") || json_equals(type, "output_text") ||
         json_equals(type, "text") || json_equals(type, "refusal");
}

/* Writes the text that stands for a part or an item which is no text. */
static void write_left_out(reader_t *reader, item_place_t place, const json_t *type,
                           chat_body_t *body) {
  char text[LEFT_OUT_MAX], what[LEFT_OUT_MAX];
  history_left_out(type, text, what);
  field_name_mended(reader, place.text, what);
  if (body != NULL) chat_body_text(body, text, strlen(text));
}

/* An input_image. `mends` as below. */
static int write_picture(reader_t *reader, item_place_t place, const json_t *part, bool mends,
                         chat_body_t *body) {
  const json_t *url = json_get(part, "image_url"), *file = json_get(part, "file_id");
  bool good = url != NULL && url->type == JSON_STRING;
  if (mends && !good) {
    write_left_out(reader, place, json_get(part, "type"), body);
    return 0;
  }
  if (json_is_given(file)) {
    item_place_t inside = member_of(place, "file_id");
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, inside.text,
                     "The parameter '%s' is not supported: send the picture as image_url.",
                     inside.text);
  }
  int code = need_string(reader, place, part, "image_url", &url);
  if (code == 0) chat_body_picture(body, "", url, json_get(part, "detail"));
  return code;
}

/* `mends`: the part is of the history. */
static int write_part(reader_t *reader, item_place_t place, const json_t *part, bool mends,
                      chat_body_t *body) {
  const json_t *type = json_get(part, "type"), *text = text_of_part(part);
  if (mends && part->type == JSON_STRING) text = part;
  if (mends && !json_is_given(type) && text == NULL) {
    field_name_mended(reader, place.text, part->type == JSON_NULL ? "part_left_out" : "json");
    const json_t *own = json_get(part, "text");
    bool is_text = own != NULL && own->type == JSON_STRING;
    if (is_text)
      chat_body_text(body, own->text, own->length);
    else if (part->type != JSON_NULL)
      chat_body_json(body, part);
    return 0;
  }
  if (text != NULL && text->type == JSON_STRING) {
    chat_body_text(body, text->text, text->length);
    return 0;
  }
  if (part->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", part);
  int code = need_string(reader, place, part, "type", &type);
  if (code != 0) return code;
  if (json_equals(type, "input_image") && chat_body_takes_pictures(body)) {
    return write_picture(reader, place, part, mends, body);
  }
  if (mends && !is_text_type(type)) {
    write_left_out(reader, place, type, body);
    return 0;
  }
  if (!is_text_type(type)) {
    char name[64];
    return error_set(reader->error, ERR_UNSUPPORTED_CONTENT_PART, place.text,
                     "Content parts of type '%s' are not supported: this server takes text only.",
                     error_quote(name, sizeof name, type->text, type->length));
  }
  if (mends && !json_is_given(text)) return 0;
  return need_string(reader, place, part, json_equals(type, "refusal") ? "refusal" : "text", &text);
}

/* A string, or parts, of the member `name`. */
static int write_content(reader_t *reader, item_place_t place, const json_t *item, const char *name,
                         bool mends, chat_body_t *body) {
  const json_t *content = json_get(item, name);
  item_place_t inside = member_of(place, name);
  int index = 0;
  if (!json_is_given(content) && mends) {
    field_name_mended(reader, inside.text, "empty");
    return 0;
  }
  if (!json_is_given(content)) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, inside.text,
                     "Missing required parameter: '%s'.", inside.text);
  }
  if (content->type == JSON_STRING) {
    chat_body_text(body, content->text, content->length);
    return 0;
  }
  if (content->type != JSON_ARRAY && mends) return write_part(reader, inside, content, mends, body);
  if (content->type != JSON_ARRAY) {
    return field_fail_type(reader, inside.text, "a string or an array of content parts", content);
  }
  JSON_EACH(part, content) {
    int code = write_part(reader, element_of(place, name, index++), part, mends, body);
    if (code != 0) return code;
  }
  return 0;
}

/* ---- items ---- */

static bool is_block(const json_t *part, chat_role_t role) {
  bool said = block_is_call(part) || block_is_thought(part);
  return block_is_result(part) || (role == CHAT_ASSISTANT && said);
}

/* A call, a result or a thought that is a part of a content, as /v1/messages has them. */
static void write_block(reader_t *reader, item_place_t place, const json_t *block,
                        chat_body_t *body) {
  block_place_t inside = block_at("%s", place.text);
  const json_t *text = json_get(block, "thinking");
  bool is_text = text != NULL && text->type == JSON_STRING;
  if (block_is_result(block)) {
    field_name_mended(reader, place.text, "tool_message");
    block_write_result(reader, inside, body, block);
  } else if (block_is_call(block)) {
    field_name_mended(reader, place.text, "tool_calls");
    block_write_call(reader, inside, body, block);
  } else {
    field_name_mended(reader, place.text, is_text ? "reasoning_content" : "thinking_left_out");
    if (is_text) chat_body_reasoning(body, text->text, text->length);
  }
}

static bool has_blocks(const reader_t *reader, const json_t *item, chat_role_t role) {
  const json_t *content = json_get(item, "content");
  if (!reader->limits->lenient || content == NULL || content->type != JSON_ARRAY) return false;
  JSON_EACH(part, content) {
    if (is_block(part, role)) return true;
  }
  return false;
}

/* A content with such parts. The results in a message of the user come first. */
static int write_blocks(reader_t *reader, item_place_t place, const json_t *item, chat_role_t role,
                        bool mends, chat_body_t *body) {
  const json_t *content = json_get(item, "content");
  bool begun = false;
  int index = 0, code = 0;
  JSON_EACH(part, content) {
    item_place_t inside = element_of(place, "content", index++);
    if (role != CHAT_ASSISTANT && is_block(part, role)) write_block(reader, inside, part, body);
  }
  index = 0;
  JSON_EACH(part, content) {
    item_place_t inside = element_of(place, "content", index++);
    bool block = is_block(part, role);
    if (code != 0 || (block && role != CHAT_ASSISTANT)) continue;
    if (role == CHAT_ASSISTANT || !begun) chat_body_message(body, role);
    begun = true;
    if (block) write_block(reader, inside, part, body);
    if (!block) code = write_part(reader, inside, part, mends, body);
  }
  return code;
}

/* What says that an assistant wrote a message without a role. */
static bool is_of_assistant(const json_t *item) {
  const json_t *content = json_get(item, "content");
  if (content == NULL || content->type != JSON_ARRAY) return false;
  JSON_EACH(part, content) {
    if (json_equals(json_get(part, "type"), "output_text") || block_is_call(part)) return true;
  }
  return false;
}

/* The last message, if it is a user's, is the question: what it cannot say is refused. */
static int write_message(reader_t *reader, item_place_t place, const json_t *item,
                         chat_body_t *body) {
  static const struct {
    const char *name;
    chat_role_t role;
  } roles[] = {{"user", CHAT_USER},
               {"assistant", CHAT_ASSISTANT},
               {"system", CHAT_SYSTEM},
               {"developer", CHAT_SYSTEM}};
  const json_t *role = json_get(item, "role");
  bool lenient = reader->limits->lenient;
  int code = 0;
  const char *meant = lenient ? history_other_role(role) : NULL;
  if (lenient && !json_is_given(role)) meant = is_of_assistant(item) ? "assistant" : "user";
  json_t mended = {.type = JSON_STRING};
  if (meant != NULL) {
    field_name_mended(reader, member_of(place, "role").text, "role");
    mended.text = meant;
    mended.length = (uint32_t)strlen(meant);
    role = &mended;
  } else {
    code = need_string(reader, place, item, "role", &role);
  }
  for (size_t i = 0; code == 0 && i < ARRAY_LEN(roles); i++) {
    if (!json_equals(role, roles[i].name)) continue;
    bool question = roles[i].role == CHAT_USER && json_next(item) == NULL;
    if (has_blocks(reader, item, roles[i].role))
      return write_blocks(reader, place, item, roles[i].role, lenient && !question, body);
    chat_body_message(body, roles[i].role);
    return write_content(reader, place, item, "content", lenient && !question, body);
  }
  if (code != 0) return code;
  item_place_t inside = member_of(place, "role");
  if (lenient && json_next(item) != NULL) { /* of the reference, but of no model */
    field_name_mended(reader, inside.text, "role");
    chat_body_message(body, CHAT_USER);
    return write_content(reader, place, item, "content", true, body);
  }
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
    bool lenient = reader->limits->lenient, any = false;
    if (list->type != JSON_ARRAY) {
      if (lenient) continue;
      return field_fail_type(reader, member_of(place, names[i]).text, "an array", list);
    }
    int index = 0;
    JSON_EACH(part, list) {
      const json_t *text;
      item_place_t inside = element_of(place, names[i], index++);
      text = json_get(part, "text");
      if (lenient && (text == NULL || text->type != JSON_STRING)) {
        write_left_out(reader, inside, json_get(part, "type"), NULL); /* such as encrypted */
        continue;
      }
      any = true;
      if (part->type != JSON_OBJECT) return field_fail_type(reader, inside.text, "an object", part);
      int code = need_string(reader, inside, part, "text", &text);
      if (code != 0) return code;
      chat_body_reasoning(body, text->text, text->length);
    }
    if (any) return 0;
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

/* Returns the id of a call, or of the call of an output; an empty one for none. */
static int read_call_id(reader_t *reader, item_place_t place, const json_t *item,
                        const json_t **id) {
  static const json_t none = {.type = JSON_STRING, .text = ""};
  *id = json_get(item, "call_id");
  if (!json_is_given(*id)) *id = json_get(item, "id");
  if (json_is_given(*id) && (*id)->type == JSON_STRING) return 0;
  if (!reader->limits->lenient) return need_string(reader, place, item, "call_id", id);
  field_name_mended(reader, place.text, "no_call_id");
  *id = &none;
  return 0;
}

/* Adds a call whose arguments are the value `arguments`, or the text of it. */
static void add_call(chat_body_t *body, const json_t *id, buffer_t *name, const json_t *arguments) {
  buffer_t text = {0};
  buffer_char(name, '\0');
  bool is_text = arguments != NULL && arguments->type == JSON_STRING;
  if (is_text) buffer_append(&text, arguments->text, arguments->length);
  if (!is_text && json_is_given(arguments)) json_print(&text, arguments);
  body->out->failed = body->out->failed || name->failed || text.failed;
  chat_body_message(body, CHAT_ASSISTANT);
  if (!name->failed) chat_body_call(body, id, name->data, text.data, text.length);
  buffer_free(&text);
  buffer_free(name);
}

static int write_call(reader_t *reader, item_place_t place, const json_t *item, bool is_custom,
                      chat_body_t *body) {
  const json_t *id, *own, *input, *space = json_get(item, "namespace");
  const char *member = is_custom ? "input" : "arguments";
  bool lenient = reader->limits->lenient;
  buffer_t name = {0}, wrapped = {0};
  int code = read_call_id(reader, place, item, &id);
  if (code == 0) code = need_string(reader, place, item, "name", &own);
  if (code == 0 && json_is_given(space)) {
    code = field_string(reader, member_of(place, "namespace").text, space, 0, 256);
  }
  input = json_get(item, member);
  bool is_text = input != NULL && input->type == JSON_STRING;
  if (code == 0 && !is_text && !lenient) code = need_string(reader, place, item, member, &input);
  if (code != 0) return code;
  if (!is_text) field_name_mended(reader, place.text, member);
  if (own->length == 0) {
    item_place_t inside = member_of(place, "name");
    return error_set(reader->error, ERR_INVALID_VALUE, inside.text,
                     "Invalid '%s': it must not be empty.", inside.text);
  }
  responses_join_name(&name, space, own);
  json_t text = {.type = JSON_STRING};
  if (is_custom && is_text) {
    buffer_text(&wrapped, "{\"input\":");
    buffer_quote(&wrapped, input->text, input->length);
    buffer_char(&wrapped, '}');
    text.text = wrapped.data;
    text.length = (uint32_t)wrapped.length;
    input = &text;
  }
  body->out->failed = body->out->failed || wrapped.failed;
  add_call(body, id, &name, input);
  buffer_free(&wrapped);
  return 0;
}

/* ---- calls and their outputs ---- */

/* The ids of all calls, sorted: an output must be one of a call. Some outputs name the item of the
 * call, so its id stands for the call_id, too. */
typedef struct call_id {
  const json_t *id, *call_id;
} call_id_t;

typedef struct call_ids {
  call_id_t *ids;
  size_t count;
  bool some; /* others are elsewhere */
} call_ids_t;

static int compare_ids(const void *left, const void *right) {
  const json_t *a = ((const call_id_t *)left)->id, *b = ((const call_id_t *)right)->id;
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return memcmp(a->text, b->text, a->length);
}

/* Calls of tools that other servers have. The arguments are a member of the item. */
typedef struct hosted_call {
  const char *type, *name, *arguments;
  bool has_output; /* the item has the output, too, if any */
} hosted_call_t;

static const hosted_call_t hosted_calls[] = {
    {"local_shell_call", "local_shell", "action", false},
    {"shell_call", "shell", "action", false},
    {"apply_patch_call", "apply_patch", "operation", false},
    {"computer_call", "computer", "action", false},
    {"code_interpreter_call", "code_interpreter", "code", true},
    {"mcp_call", NULL, "arguments", true}};

static const hosted_call_t *find_hosted(const json_t *type) {
  for (size_t i = 0; i < ARRAY_LEN(hosted_calls); i++) {
    if (json_equals(type, hosted_calls[i].type)) return &hosted_calls[i];
  }
  return NULL;
}

static bool is_output(const json_t *type) {
  static const char *const types[] = {"function_call_output",    "custom_tool_call_output",
                                      "local_shell_call_output", "shell_call_output",
                                      "apply_patch_call_output", "computer_call_output"};
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    if (json_equals(type, types[i])) return true;
  }
  return false;
}

static bool is_call(const json_t *type) {
  return json_equals(type, "function_call") || json_equals(type, "custom_tool_call") ||
         find_hosted(type) != NULL;
}

static void collect_from(const json_t *items, call_ids_t *calls) {
  JSON_EACH(item, items) {
    if (!is_call(json_get(item, "type"))) continue;
    const json_t *id = json_get(item, "call_id"), *own = json_get(item, "id");
    if (id == NULL || id->type != JSON_STRING) id = own;
    if (id == NULL || id->type != JSON_STRING) continue;
    calls->ids[calls->count++] = (call_id_t){id, id};
    if (own != NULL && own->type == JSON_STRING && own != id) {
      calls->ids[calls->count++] = (call_id_t){own, id};
    }
  }
}

static bool collect_ids(arena_t *arena, const json_t *history, const json_t *input,
                        call_ids_t *calls) {
  size_t count = input->type == JSON_ARRAY ? input->count : 0;
  if (history != NULL) count += history->count;
  calls->ids = arena_calloc(arena, 2 * count + 1, sizeof *calls->ids);
  if (calls->ids == NULL) return false;
  collect_from(history, calls);
  if (input->type == JSON_ARRAY) collect_from(input, calls);
  qsort(calls->ids, calls->count, sizeof *calls->ids, compare_ids);
  return true;
}

/* Texts of the output of a shell, [{stdout, stderr, outcome}], or of an interpreter, [{logs}]. */
static void write_streams(const json_t *list, chat_body_t *body) {
  static const char *const names[] = {"stdout", "stderr", "logs", "text"};
  JSON_EACH(part, list) {
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
      const json_t *text = json_get(part, names[i]);
      if (text == NULL || text->type != JSON_STRING || text->length == 0) continue;
      chat_body_text(body, text->text, text->length);
    }
  }
}

static int write_output(reader_t *reader, item_place_t place, const json_t *item,
                        const call_ids_t *calls, chat_body_t *body) {
  call_id_t wanted = {NULL, NULL};
  bool lenient = reader->limits->lenient;
  const json_t *output = json_get(item, "output"), *type = json_get(item, "type");
  int code = read_call_id(reader, place, item, &wanted.id);
  if (code != 0) return code;
  const call_id_t *found =
      bsearch(&wanted, calls->ids, calls->count, sizeof *calls->ids, compare_ids);
  const json_t *id = found != NULL ? found->call_id : wanted.id;
  if (found == NULL && !lenient && !calls->some) {
    char shown[64];
    return error_set(reader->error, ERR_INVALID_VALUE, member_of(place, "call_id").text,
                     "No call in 'input' has the call_id \"%s\" of this output.",
                     error_quote(shown, sizeof shown, id->text, id->length));
  }
  chat_body_result(body, id->text, id->length);
  if (json_equals(type, "shell_call_output") && output != NULL && output->type == JSON_ARRAY) {
    write_streams(output, body);
    return 0;
  }
  return write_content(reader, place, item, "output", lenient, body);
}

/* The call of a tool that another server ran, with its output if the item has it. */
static int write_hosted(reader_t *reader, item_place_t place, const json_t *item,
                        const hosted_call_t *hosted, chat_body_t *body) {
  const json_t *id, *arguments = json_get(item, hosted->arguments), *own = json_get(item, "name");
  const json_t *output = json_get(item, "output"), *outputs = json_get(item, "outputs");
  buffer_t name = {0}, code_text = {0};
  json_t text = {.type = JSON_STRING};
  int code = read_call_id(reader, place, item, &id);
  if (code == 0 && hosted->name == NULL) code = need_string(reader, place, item, "name", &own);
  if (code != 0) return code;
  if (hosted->name != NULL) buffer_text(&name, hosted->name);
  if (hosted->name == NULL) buffer_append(&name, own->text, own->length);
  if (json_equals(json_get(item, "type"), "code_interpreter_call")) {
    buffer_text(&code_text, "{\"code\":");
    if (json_is_given(arguments)) json_print(&code_text, arguments);
    if (!json_is_given(arguments)) buffer_text(&code_text, "null");
    buffer_char(&code_text, '}');
    text.text = code_text.data;
    text.length = (uint32_t)code_text.length;
    arguments = &text;
  }
  body->out->failed = body->out->failed || code_text.failed;
  add_call(body, id, &name, arguments);
  buffer_free(&code_text);
  if (!hosted->has_output) return 0;
  chat_body_result(body, id->text, id->length);
  write_streams(outputs, body);
  if (!json_is_given(output)) output = json_get(item, "error");
  if (output != NULL && output->type == JSON_STRING) {
    chat_body_text(body, output->text, output->length);
  }
  return 0;
}

static int write_item(reader_t *reader, const char *list, int index, const json_t *item,
                      const call_ids_t *calls, chat_body_t *body) {
  item_place_t place;
  snprintf(place.text, sizeof place.text, "%s[%d]", list, index);
  const json_t *type = json_get(item, "type");
  if (reader->limits->lenient && item->type == JSON_NULL) {
    field_name_mended(reader, place.text, "item_left_out");
    return 0;
  }
  if (reader->limits->lenient && item->type == JSON_STRING) {
    field_name_mended(reader, place.text, "user_message");
    chat_body_message(body, CHAT_USER);
    chat_body_text(body, item->text, item->length);
    return 0;
  }
  if (item->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", item);
  bool refers = !json_is_given(type) && !json_is_given(json_get(item, "role")) &&
                !json_is_given(json_get(item, "content")) && json_is_given(json_get(item, "id"));
  if (refers && reader->limits->lenient) { /* to an item that a server stored */
    field_name_mended(reader, place.text, "item_reference_left_out");
    return 0;
  }
  if (!json_is_given(type) || json_equals(type, "message")) {
    return write_message(reader, place, item, body);
  }
  if (json_equals(type, "reasoning")) return write_reasoning(reader, place, item, body);
  if (json_equals(type, "function_call")) return write_call(reader, place, item, false, body);
  if (json_equals(type, "custom_tool_call")) return write_call(reader, place, item, true, body);
  const hosted_call_t *hosted = find_hosted(type);
  if (hosted != NULL) return write_hosted(reader, place, item, hosted, body);
  if (is_output(type)) return write_output(reader, place, item, calls, body);
  if (reader->limits->lenient && type->type == JSON_STRING) {
    write_left_out(reader, place, type, NULL);
    return 0;
  }
  char name[64] = "";
  if (type->type == JSON_STRING) error_quote(name, sizeof name, type->text, type->length);
  return error_set(reader->error, ERR_INVALID_VALUE, member_of(place, "type").text,
                   "Items of type '%s' are not supported ('%s'). Known are messages, 'reasoning', "
                   "calls and their outputs.",
                   name, place.text);
}

int responses_messages(const responses_fields_t *fields, reader_t *reader, chat_body_t *body) {
  call_ids_t calls = {.some = fields->alone};
  const char *list = fields->conversation != NULL ? "conversation" : "previous_response_id";
  const json_t *input = fields->input, *history = fields->history;
  int index = 0;
  if (fields->instructions != NULL) {
    chat_body_message(body, CHAT_SYSTEM);
    chat_body_text(body, fields->instructions->text, fields->instructions->length);
  }
  body->sees = reader->limits->sees && reader->limits->images_max > 0;
  if (!collect_ids(reader->arena, history, input, &calls)) return field_no_memory(reader);
  JSON_EACH(item, history) {
    int code = write_item(reader, list, index++, item, &calls, body);
    if (code != 0) return code;
  }
  if (input->type == JSON_STRING) {
    chat_body_message(body, CHAT_USER);
    chat_body_text(body, input->text, input->length);
    return 0;
  }
  index = 0;
  JSON_EACH(item, input) {
    int code = write_item(reader, fields->alone ? "items" : "input", index++, item, &calls, body);
    if (code != 0) return code;
  }
  return 0;
}
