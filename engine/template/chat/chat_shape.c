/* chat_shape.c: builds the value of `messages` that templates read from the messages of a request.
 *
 * The rendering thread only. The rules are those of the reference servers, so a template gets the
 * same values as there. Keys keep their order, and absent members stay absent. There are two passes
 * over the messages, because a render must not own what it would have to free: chat_shape_begin
 * parses the arguments of tool calls, chat_shape_build takes them in the same
 * order and builds the values.
 */
#include "engine/template/chat/chat_shape.h"

#include "engine/base/util.h"
#include "engine/template/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Returns call.function.arguments, or NULL. */
static const json_t *arguments_of(const json_t *call) {
  const json_t *function = json_get(call, "function");
  return function == NULL ? NULL : json_get(function, "arguments");
}

static size_t count_arguments(const json_t *messages) {
  size_t count = 0;
  JSON_EACH(message, messages) {
    const json_t *calls = json_get(message, "tool_calls");
    if (calls == NULL || calls->type != JSON_ARRAY) continue;
    JSON_EACH(call, calls) {
      const json_t *arguments = arguments_of(call);
      count += arguments != NULL && arguments->type == JSON_STRING;
    }
  }
  return count;
}

static bool is_blank(const json_t *text) {
  for (uint32_t i = 0; i < text->length; i++)
    if (strchr(" \t\r\n", text->text[i]) == NULL || text->text[i] == '\0') return false;
  return true;
}

/* Parses one text into the next entry of shape->arguments. A text that is blank or no JSON leaves
 * NULL there. Templates that loop over the arguments take objects alone. */
static int parse_arguments(chat_shape_t *shape, const json_t *text, inferd_error_t *error) {
  json_doc_t **out = &shape->arguments[shape->num_arguments++];
  if (is_blank(text)) return 0;
  int code = json_parse(text->text, text->length, &json_limits_request, out, error);
  if (code == ERR_INTERNAL) return code;
  if (code != 0 || json_root(*out)->type != JSON_OBJECT) shape->has_text_arguments = true;
  return 0;
}

int chat_shape_begin(chat_shape_t *shape, inferd_error_t *error) {
  size_t count = count_arguments(shape->messages);
  shape->arguments = calloc(count + 1, sizeof *shape->arguments);
  if (shape->arguments == NULL)
    return error_set(error, ERR_INTERNAL, NULL, "not enough memory to shape messages");
  JSON_EACH(message, shape->messages) {
    const json_t *calls = json_get(message, "tool_calls");
    if (calls == NULL || calls->type != JSON_ARRAY) continue;
    JSON_EACH(call, calls) {
      const json_t *arguments = arguments_of(call);
      bool parse = arguments != NULL && arguments->type == JSON_STRING;
      int code = parse ? parse_arguments(shape, arguments, error) : 0;
      if (code != 0) return code;
    }
  }
  return 0;
}

void chat_shape_end(chat_shape_t *shape) {
  for (size_t i = 0; i < shape->num_arguments; i++) json_free(shape->arguments[i]);
  free(shape->arguments);
  shape->arguments = NULL;
  shape->num_arguments = 0;
}

/* ---- building ---- */

static value_t key_of(run_t *run, const json_t *member) {
  run->input_bytes += member->key_length;
  return value_string(str_wrap(run, member->key, member->key_length, ORIGIN_REQUEST));
}

/* Takes the next parsed arguments if the member is a string, in the order of chat_shape_begin. */
static value_t build_arguments(run_t *run, chat_shape_t *shape, const json_t *value) {
  if (value->type == JSON_NULL) return VALUE_OF(VALUE_DICT, dict, dict_new(run, 0));
  if (value->type != JSON_STRING) return value_from_json(run, value);
  const json_doc_t *doc = shape->arguments[shape->used++];
  bool in_object = doc != NULL && shape->text_in_object && json_root(doc)->type != JSON_OBJECT;
  if (doc != NULL && !in_object) return value_from_json(run, json_root(doc));
  bool is_text = !is_blank(value) && (doc == NULL || json_root(doc)->type != JSON_NULL);
  if (is_text && !shape->text_in_object) return value_from_json(run, value);
  dict_t *dict = dict_new(run, is_text);
  if (is_text) dict_append(run, dict, key_of(run, value), value_from_json(run, value));
  dict->frozen = true;
  return VALUE_OF(VALUE_DICT, dict, dict);
}

static value_t build_function(run_t *run, chat_shape_t *shape, const json_t *function) {
  if (function->type != JSON_OBJECT) return value_from_json(run, function);
  dict_t *dict = dict_new(run, function->count);
  JSON_EACH(member, function) {
    value_t value = json_named(member, "arguments") ? build_arguments(run, shape, member)
                                                    : value_from_json(run, member);
    dict_append(run, dict, key_of(run, member), value);
  }
  dict->frozen = true;
  return VALUE_OF(VALUE_DICT, dict, dict);
}

static value_t build_calls(run_t *run, chat_shape_t *shape, const json_t *calls) {
  value_list_t *list = list_new(run, calls->count);
  JSON_EACH(call, calls) {
    if (call->type != JSON_OBJECT) {
      list_push(run, list, value_from_json(run, call));
      continue;
    }
    dict_t *dict = dict_new(run, call->count);
    JSON_EACH(member, call) {
      value_t value = json_named(member, "function") ? build_function(run, shape, member)
                                                     : value_from_json(run, member);
      dict_append(run, dict, key_of(run, member), value);
    }
    dict->frozen = true;
    list_push(run, list, VALUE_OF(VALUE_DICT, dict, dict));
  }
  list->frozen = true;
  return VALUE_OF(VALUE_LIST, list, list);
}

/* Joins the texts of the parts by newlines. Other parts are left out, pictures unless they have a
 * text. */
static value_t join_parts(run_t *run, const json_t *parts, const char *picture) {
  sink_t *sink = sink_new(run);
  bool any = false;
  JSON_EACH(part, parts) {
    const json_t *text = json_get(part, "text");
    const bool shows = picture != NULL && json_equals(json_get(part, "type"), "image_url");
    if (!shows && (text == NULL || text->type != JSON_STRING)) continue;
    if (any) sink_puts(run, sink, "\n");
    any = true;
    if (shows) {
      sink_puts(run, sink, picture);
      continue;
    }
    run->input_bytes += text->length;
    sink_put(run, sink, text->text, text->length, true);
  }
  return value_string(sink_str(run, sink));
}

static value_t tagged(run_t *run, const value_t *text) {
  return value_string(str_concat(run, text->string, str_text(run, CONTINUE_TAG)));
}

/* Appends the tag to the last part that has a text. */
static void tag_parts(run_t *run, value_list_t *parts) {
  const str_t text = {.bytes = "text", .length = 4};
  for (uint32_t i = parts->count; i-- > 0;) {
    if (parts->items[i].type != VALUE_DICT) continue;
    value_t *found = dict_find_text(run, parts->items[i].dict, &text);
    if (found == NULL || found->type != VALUE_STRING) continue;
    *found = tagged(run, found);
    return;
  }
}

/* A picture is {"type": "image"}, as transformers' templates know it, and a sound {"type":
 * "audio"}; their bytes are not those of templates. */
static value_t build_part(run_t *run, const json_t *part) {
  const json_t *type = json_get(part, "type");
  bool sound = json_equals(type, "input_audio") || json_equals(type, "audio_url");
  if (!sound && !json_equals(type, "image_url")) return value_from_json(run, part);
  dict_t *dict = dict_new(run, 1);
  dict_append(run, dict, value_string(str_text(run, "type")),
              value_string(str_text(run, sound ? "audio" : "image")));
  dict->frozen = true;
  return VALUE_OF(VALUE_DICT, dict, dict);
}

static value_t build_parts(run_t *run, const json_t *parts) {
  value_list_t *list = list_new(run, parts->count);
  JSON_EACH(part, parts) list_push(run, list, build_part(run, part));
  list->frozen = true;
  return VALUE_OF(VALUE_LIST, list, list);
}

static value_t build_content(run_t *run, const chat_shape_t *shape, const json_t *content,
                             bool last) {
  bool parts = content->type == JSON_ARRAY;
  value_t value = !parts              ? value_from_json(run, content)
                  : shape->join_parts ? join_parts(run, content, shape->picture)
                                      : build_parts(run, content);
  if (!last || !shape->continue_final) return value;
  if (value.type == VALUE_STRING) return tagged(run, &value);
  if (value.type == VALUE_LIST) tag_parts(run, value.list);
  return value;
}

/* Returns the reasoning of a message under the first name that has one, or NULL. */
static const json_t *reasoning_of(const json_t *message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const json_t *found = json_get(message, names[i]);
    if (json_is_given(found)) return found;
  }
  return NULL;
}

/* Returns true if an answer has neither content nor calls, as one whose reasoning was cut.
 * Templates add its content to text, which neither None nor an undefined value allows. */
static bool is_empty_answer(const json_t *message) {
  const json_t *content = json_get(message, "content"), *calls = json_get(message, "tool_calls");
  bool has_calls = calls != NULL && calls->type == JSON_ARRAY && calls->count > 0;
  return json_equals(json_get(message, "role"), "assistant") && !has_calls &&
         (!json_is_given(content));
}

static value_t empty_content(run_t *run, const chat_shape_t *shape) {
  if (shape->join_parts) return value_string(str_text(run, ""));
  value_list_t *list = list_new(run, 0);
  list->frozen = true;
  return VALUE_OF(VALUE_LIST, list, list);
}

/* The reasoning is given as `thinking` and as `reasoning_content`, whichever of its names the
 * request uses, because templates differ in the name that they read. */
static value_t build_message(run_t *run, chat_shape_t *shape, const json_t *message, bool last) {
  if (message->type != JSON_OBJECT) return value_from_json(run, message);
  dict_t *dict = dict_new(run, message->count + 3);
  const json_t *reasoning = reasoning_of(message);
  value_t thought = value_none();
  if (reasoning != NULL) {
    thought = value_from_json(run, reasoning);
    dict_append(run, dict, value_string(str_text(run, "thinking")), thought);
  }
  bool is_empty = is_empty_answer(message);
  JSON_EACH(member, message) {
    value_t value;
    if (member->type == JSON_NULL && (is_empty || !json_named(member, "content"))) continue;
    if (json_named(member, "tool_calls") && member->type == JSON_ARRAY) {
      if (member->count == 0) continue;
      value = build_calls(run, shape, member);
    } else if (json_named(member, "content")) {
      value = build_content(run, shape, member, last);
    } else if (json_named(member, "role") && shape->rename_developer &&
               json_equals(member, "developer")) {
      value = value_string(str_text(run, "system"));
    } else {
      value = value_from_json(run, member);
    }
    dict_set(run, dict, key_of(run, member), value);
  }
  if (is_empty) {
    dict_set(run, dict, value_string(str_text(run, "content")), empty_content(run, shape));
  }
  if (reasoning != NULL)
    dict_set(run, dict, value_string(str_text(run, "reasoning_content")), thought);
  dict->frozen = true;
  return VALUE_OF(VALUE_DICT, dict, dict);
}

void chat_shape_build(run_t *run, void *context, value_t *out) {
  chat_shape_t *shape = context;
  value_list_t *list = list_new(run, shape->messages->count);
  uint32_t at = 0;
  shape->used = 0;
  JSON_EACH(message, shape->messages) {
    at++;
    list_push(run, list, build_message(run, shape, message, at == shape->messages->count));
  }
  list->frozen = true;
  *out = VALUE_OF(VALUE_LIST, list, list);
}
