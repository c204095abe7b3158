/* chat_fields.c: checks the messages and tools of a chat request, part by part.
 *
 * Stage 2 of 9, first half. Loop thread or libuv's pool; keeps no state and changes nothing but
 * refusals: the chat template gets the messages as the client sent them. Every error names the
 * place, `messages[3].content`. Next: server/completion/prompt.c.
 */
#include "engine/base/util.h"
#include "server/fields/history.h"
#include "server/fields/json_copy.h"
#include "server/fields/params_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOOL_NAME_BYTES_MAX = 128, CALL_ID_BYTES_MAX = 256 };

static params_t *out_of(reader_t *reader) {
  return reader->out;
}

/* The path of a value in the request, such as messages[3].content. */
typedef struct field_place {
  char text[ERROR_PARAM_MAX];
} field_place_t;

__attribute__((format(printf, 1, 2))) static field_place_t at(const char *format, ...) {
  field_place_t place;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(place.text, sizeof place.text, format, arguments);
  va_end(arguments);
  return place;
}

static int fail_missing(reader_t *reader, field_place_t place) {
  return error_set(reader->error, ERR_MISSING_PARAMETER, place.text,
                   "Missing required parameter: '%s'.", place.text);
}

/* Checks that a value is present and is a string of min..max bytes. */
static int need_string(reader_t *reader, field_place_t place, const json_t *value, double min,
                       double max) {
  if (!json_is_given(value)) return fail_missing(reader, place);
  return field_string(reader, place.text, value, min, max);
}

/* ---- content ---- */

/* {"type":"image_url","image_url":{"url":...,"detail":...}}, or image_url is the URL itself. */
static int read_picture(reader_t *reader, field_place_t place, const json_t *part) {
  const json_t *url = json_get(part, "image_url"), *detail = NULL;
  field_place_t inside = at("%s.image_url", place.text);
  if (url != NULL && url->type == JSON_OBJECT) {
    detail = json_get(url, "detail");
    url = json_get(url, "url");
    inside = at("%s.image_url.url", place.text);
  }
  int code = need_string(reader, inside, url, 1, 0x1p53);
  if (code != 0) return code;
  bool known = json_equals(detail, "low") || json_equals(detail, "high");
  if (json_is_given(detail) && !known && !json_equals(detail, "auto")) {
    return field_fail_value(reader, at("%s.image_url.detail", place.text).text,
                            "'low', 'high' or 'auto'", detail);
  }
  if (++out_of(reader)->chat.num_images <= reader->limits->images_max) return 0;
  return error_set(reader->error, ERR_ABOVE_MAX, place.text,
                   "The request has more pictures than the %d that this server takes in one "
                   "(--limit-images).",
                   (int)reader->limits->images_max);
}

/* {"type":"input_audio","input_audio":{"data":...,"format":...}}, whose format is a hint; or
 * {"type":"audio_url","audio_url":{"url":...}}, or audio_url is the URL itself, as with vLLM. */
static int read_sound(reader_t *reader, field_place_t place, const json_t *part) {
  bool by_url = json_equals(json_get(part, "type"), "audio_url");
  const char *member = by_url ? "audio_url" : "input_audio", *inner = by_url ? "url" : "data";
  const json_t *sound = json_get(part, member), *format = NULL;
  field_place_t inside = at("%s.%s", place.text, member);
  if (!by_url && json_is_given(sound) && sound->type != JSON_OBJECT)
    return field_fail_type(reader, inside.text, "an object", sound);
  if (sound != NULL && sound->type == JSON_OBJECT) {
    format = json_get(sound, "format");
    sound = json_get(sound, inner);
    inside = at("%s.%s.%s", place.text, member, inner);
  }
  int code = need_string(reader, inside, sound, 1, 0x1p53);
  if (code == 0 && json_is_given(format))
    code = field_string(reader, at("%s.%s.format", place.text, member).text, format, 0, 64);
  if (code != 0) return code;
  if (++out_of(reader)->chat.num_images <= reader->limits->sounds_max) return 0;
  return error_set(reader->error, ERR_ABOVE_MAX, place.text,
                   "The request has more sounds than the %d that this server takes in one "
                   "(--limit-audio).",
                   (int)reader->limits->sounds_max);
}

static bool is_sound_type(const json_t *type) {
  return json_equals(type, "input_audio") || json_equals(type, "audio_url");
}

/* Why a part of another type is refused. `of_user`: a message that may have pictures. */
static const char *part_hint(const reader_t *reader, const json_t *type, bool of_user) {
  const field_limits_t *limits = reader->limits;
  bool picture = json_equals(type, "image_url"), sound = is_sound_type(type);
  bool of_responses = json_equals(type, "input_text") || json_equals(type, "output_text");
  if (of_responses) return " here: use 'text'";
  if (picture && limits->images_max == 0) {
    return ": this server takes no pictures (--limit-images 0)";
  }
  if (sound && limits->sounds_max == 0) {
    return ": this server takes no sounds (--limit-audio 0)";
  }
  if (!limits->sees && !limits->hears) return ": this model takes text only";
  if (sound && limits->hears && !of_user) {
    return " here: sounds stand in messages of the user and of tools";
  }
  if (limits->hears) return ": this model takes text and sounds ('input_audio')";
  if (picture && !of_user) return " here: pictures stand in messages of the user and of tools";
  return ": this model takes text and pictures ('image_url')";
}

static int read_part(reader_t *reader, int index, int part_index, const json_t *part,
                     const json_t *role) {
  field_place_t place = at("messages[%d].content[%d]", index, part_index);
  bool may_refuse = json_equals(role, "assistant");
  bool of_user = json_equals(role, "user") || json_equals(role, "tool");
  if (part->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", part);
  const json_t *type = json_get(part, "type");
  int code = need_string(reader, at("%s.type", place.text), type, 1, 256);
  if (code != 0) return code;
  if (json_equals(type, "text")) {
    return need_string(reader, at("%s.text", place.text), json_get(part, "text"), 0, 0x1p53);
  }
  if (may_refuse && json_equals(type, "refusal")) {
    return need_string(reader, at("%s.refusal", place.text), json_get(part, "refusal"), 0, 0x1p53);
  }
  bool sees = reader->limits->sees && of_user && reader->limits->images_max > 0;
  if (sees && json_equals(type, "image_url")) return read_picture(reader, place, part);
  bool hears = reader->limits->hears && of_user && reader->limits->sounds_max > 0;
  if (hears && is_sound_type(type)) return read_sound(reader, place, part);
  char name[64];
  return error_set(reader->error, ERR_UNSUPPORTED_CONTENT_PART, place.text,
                   "Content parts of type '%s' are not supported%s.",
                   error_quote(name, sizeof name, type->text, type->length),
                   part_hint(reader, type, of_user));
}

static int read_content(reader_t *reader, int index, const json_t *content, const json_t *role) {
  field_place_t place = at("messages[%d].content", index);
  if (content->type == JSON_STRING) return 0;
  if (content->type != JSON_ARRAY) {
    return field_fail_type(reader, place.text, "a string or an array of content parts", content);
  }
  if (content->count == 0) {
    return error_set(reader->error, ERR_INVALID_VALUE, place.text,
                     "Invalid '%s': an array of content parts must not be empty.", place.text);
  }
  int part_index = 0;
  JSON_EACH(part, content) {
    int code = read_part(reader, index, part_index++, part, role);
    if (code != 0) return code;
  }
  return 0;
}

static bool has_refusal(const json_t *messages) {
  JSON_EACH(message, messages) {
    const json_t *content = json_get(message, "content");
    if (content == NULL || content->type != JSON_ARRAY) continue;
    JSON_EACH(part, content) {
      if (json_equals(json_get(part, "type"), "refusal")) return true;
    }
  }
  return false;
}

static void name_member(json_t *member, const char *name) {
  member->key = name;
  member->key_length = (uint32_t)strlen(name);
}

/* Makes {"type":"refusal","refusal":...} a part of type text, in place. */
static void make_text(json_t *part) {
  JSON_EACH(constant, part) {
    json_t *member = part + (constant - part);
    if (json_named(member, "type")) {
      member->text = "text";
      member->length = 4;
    } else if (json_named(member, "refusal")) {
      name_member(member, "text");
    } else if (json_named(member, "text")) {
      name_member(member, "refusal");
    }
  }
}

/* Templates read the text of parts alone. Returns the messages with refusals as texts, a copy if
 * there is one; NULL if memory is short. */
static const json_t *refusals_to_texts(arena_t *arena, const json_t *messages) {
  if (!has_refusal(messages)) return messages;
  size_t values = json_count_values(messages);
  json_t *copy = arena_alloc(arena, values, sizeof *copy);
  if (copy == NULL) return NULL;
  memcpy(copy, messages, values * sizeof *copy);
  copy->next = 0;
  JSON_EACH(message, copy) {
    const json_t *content = json_get(message, "content");
    if (content == NULL || content->type != JSON_ARRAY) continue;
    JSON_EACH(part, content) {
      if (json_equals(json_get(part, "type"), "refusal")) make_text(copy + (part - copy));
    }
  }
  return copy;
}

/* ---- tool calls of an assistant ---- */

static int read_call(reader_t *reader, int index, int call_index, const json_t *call) {
  field_place_t place = at("messages[%d].tool_calls[%d]", index, call_index);
  if (call->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", call);
  const json_t *type = json_get(call, "type"), *id = json_get(call, "id");
  if (json_is_given(type) && !json_equals(type, "function")) {
    return error_set(reader->error, ERR_INVALID_VALUE, at("%s.type", place.text).text,
                     "Invalid '%s.type': only 'function' is known.", place.text);
  }
  int code = 0;
  if (json_is_given(id)) {
    code = field_string(reader, at("%s.id", place.text).text, id, 0, CALL_ID_BYTES_MAX);
  }
  if (code != 0) return code;
  const json_t *function = json_get(call, "function");
  field_place_t inside = at("%s.function", place.text);
  if (!json_is_given(function)) return fail_missing(reader, inside);
  if (function->type != JSON_OBJECT) {
    return field_fail_type(reader, inside.text, "an object", function);
  }
  code = need_string(reader, at("%s.name", inside.text), json_get(function, "name"), 1, 256);
  if (code != 0) return code;
  const json_t *arguments = json_get(function, "arguments");
  /* Some servers write arguments as objects, so clients send objects back. */
  bool right =
      !json_is_given(arguments) || arguments->type == JSON_STRING || arguments->type == JSON_OBJECT;
  if (right) return 0;
  return field_fail_type(reader, at("%s.arguments", inside.text).text, "a string of JSON",
                         arguments);
}

static int read_calls(reader_t *reader, int index, const json_t *calls) {
  if (calls->type != JSON_ARRAY) {
    return field_fail_type(reader, at("messages[%d].tool_calls", index).text, "an array", calls);
  }
  int call_index = 0;
  JSON_EACH(call, calls) {
    int code = read_call(reader, index, call_index++, call);
    if (code != 0) return code;
  }
  return 0;
}

/* ---- one message ---- */

/* Refuses members that would have to change the prompt, but that no template reads. */
static int refuse_members(reader_t *reader, int index, const json_t *message) {
  static const struct {
    const char *name, *hint;
  } members[] = {{"function_call", "; use 'tool_calls'"}, {"audio", ""}};
  for (size_t i = 0; i < ARRAY_LEN(members); i++) {
    if (!json_is_given(json_get(message, members[i].name))) continue;
    field_place_t place = at("messages[%d].%s", index, members[i].name);
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, place.text,
                     "The parameter '%s' is not supported%s.", place.text, members[i].hint);
  }
  return 0;
}

/* Returns true for the roles that need a content. An assistant's answer may have none, such as one
 * whose reasoning was cut; the template decides about other roles. */
static bool needs_content(const json_t *role) {
  return json_equals(role, "system") || json_equals(role, "developer") ||
         json_equals(role, "user") || json_equals(role, "tool") || json_equals(role, "function");
}

static int read_message(reader_t *reader, int index, const json_t *message) {
  field_place_t place = at("messages[%d]", index);
  if (message->type != JSON_OBJECT) {
    return field_fail_type(reader, place.text, "an object", message);
  }
  const json_t *role = json_get(message, "role"), *content = json_get(message, "content");
  const json_t *calls = json_get(message, "tool_calls"), *name = json_get(message, "name");
  int code = need_string(reader, at("%s.role", place.text), role, 1, ROLE_BYTES_MAX);
  if (code == 0 && json_is_given(name)) {
    code = field_string(reader, at("%s.name", place.text).text, name, 0, 256);
  }
  if (code == 0) code = refuse_members(reader, index, message);
  if (code == 0 && json_is_given(content)) {
    code = read_content(reader, index, content, role);
  }
  if (code == 0 && json_is_given(calls)) code = read_calls(reader, index, calls);
  if (code != 0) return code;
  if (!json_is_given(content) && needs_content(role)) {
    return fail_missing(reader, at("%s.content", place.text));
  }
  if (json_equals(role, "tool")) {
    code = need_string(reader, at("%s.tool_call_id", place.text), json_get(message, "tool_call_id"),
                       0, CALL_ID_BYTES_MAX);
  } else if (json_equals(role, "function") && !json_is_given(name)) {
    code = fail_missing(reader, at("%s.name", place.text));
  }
  return code;
}

int read_messages(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  if (value->count == 0) {
    return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "The 'messages' must be provided and non-empty.");
  }
  int index = 0;
  out_of(reader)->chat.num_images = 0;
  JSON_EACH(message, value) {
    int code = read_message(reader, index++, message);
    if (code != 0) return code;
  }
  out_of(reader)->chat.messages = refusals_to_texts(reader->arena, value);
  return out_of(reader)->chat.messages == NULL ? field_no_memory(reader) : 0;
}

/* ---- tools ---- */

static bool tool_name_valid(const json_t *name) {
  for (uint32_t i = 0; i < name->length; i++) {
    char c = name->text[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '_' && c != '-') return false;
  }
  return true;
}

static int read_tool(reader_t *reader, int index, const json_t *tool) {
  field_place_t place = at("tools[%d]", index);
  if (tool->type != JSON_OBJECT) return field_fail_type(reader, place.text, "an object", tool);
  const json_t *type = json_get(tool, "type"), *function = json_get(tool, "function");
  if (json_is_given(type) && !json_equals(type, "function")) {
    char shown[FIELD_SHOWN_MAX];
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, at("%s.type", place.text).text,
                     "Tools of another type than 'function' are not supported here, but got %s%s.",
                     field_shown(shown, type),
                     json_equals(type, "custom") ? "; use /v1/responses" : "");
  }
  field_place_t inside = at("%s.function", place.text);
  if (!json_is_given(function)) return fail_missing(reader, inside);
  if (function->type != JSON_OBJECT) {
    return field_fail_type(reader, inside.text, "an object", function);
  }
  const json_t *name = json_get(function, "name"), *strict = json_get(function, "strict");
  const json_t *description = json_get(function, "description");
  const json_t *parameters = json_get(function, "parameters");
  field_place_t name_place = at("%s.name", inside.text);
  int code = need_string(reader, name_place, name, 1, TOOL_NAME_BYTES_MAX);
  if (code == 0 && !tool_name_valid(name)) {
    code =
        error_set(reader->error, ERR_INVALID_VALUE, name_place.text,
                  "Invalid '%s': only letters, digits, '_' and '-' are allowed.", name_place.text);
  }
  if (code == 0 && json_is_given(description)) {
    code = field_string(reader, at("%s.description", inside.text).text, description, 0, 0x1p53);
  }
  if (code == 0 && json_is_given(parameters) && parameters->type != JSON_OBJECT) {
    code = field_fail_type(reader, at("%s.parameters", inside.text).text, "an object", parameters);
  }
  bool flag;
  if (code == 0 && json_is_given(strict) && !json_bool(strict, &flag)) {
    code = field_fail_type(reader, at("%s.strict", inside.text).text, "a boolean", strict);
  }
  return code;
}

static int check_names_differ(reader_t *reader, const json_t *tools) {
  int index = 0;
  JSON_EACH(tool, tools) {
    const json_t *name = json_get(json_get(tool, "function"), "name");
    for (const json_t *other = json_next(tool); other != NULL; other = json_next(other)) {
      const json_t *twin = json_get(json_get(other, "function"), "name");
      if (twin->length != name->length || memcmp(twin->text, name->text, name->length) != 0) {
        continue;
      }
      return error_set(reader->error, ERR_INVALID_VALUE, at("tools[%d].function.name", index).text,
                       "Two tools have the name \"%.*s\".", (int)name->length, name->text);
    }
    index++;
  }
  return 0;
}

int read_tools(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  if (value->count > TOOLS_MAX) {
    return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "Invalid 'tools': %u tools are given, at most %d are allowed.", value->count,
                     TOOLS_MAX);
  }
  int index = 0;
  JSON_EACH(tool, value) {
    int code = read_tool(reader, index++, tool);
    if (code != 0) return code;
  }
  if (value->count > 0) out_of(reader)->chat.tools = value;
  return check_names_differ(reader, value);
}

/* {"type":"allowed_tools","allowed_tools":{"mode":...,"tools":[{"type":...,"function":...}]}} */
static int read_allowed(reader_t *reader, const json_t *allowed) {
  static const char place[] = "tool_choice.allowed_tools";
  chat_params_t *chat = &out_of(reader)->chat;
  if (!json_is_given(allowed)) return fail_missing(reader, at("%s", place));
  if (allowed->type != JSON_OBJECT) return field_fail_type(reader, place, "an object", allowed);
  const json_t *mode = json_get(allowed, "mode"), *tools = json_get(allowed, "tools");
  int code = need_string(reader, at("%s.mode", place), mode, 1, 256);
  if (code != 0) return code;
  bool required = json_equals(mode, "required");
  if (!required && !json_equals(mode, "auto")) {
    return field_fail_value(reader, at("%s.mode", place).text, "'auto' or 'required'", mode);
  }
  field_place_t inside = at("%s.tools", place);
  if (!json_is_given(tools)) return fail_missing(reader, inside);
  if (tools->type != JSON_ARRAY) return field_fail_type(reader, inside.text, "an array", tools);
  if (tools->count == 0 || tools->count > TOOLS_MAX) {
    return error_set(reader->error, ERR_INVALID_VALUE, inside.text,
                     "Invalid '%s': 1 to %d tools are needed, but got %u.", inside.text, TOOLS_MAX,
                     tools->count);
  }
  int index = 0;
  JSON_EACH(tool, tools) {
    field_place_t one = at("%s[%d]", inside.text, index++);
    if (tool->type != JSON_OBJECT) return field_fail_type(reader, one.text, "an object", tool);
    const json_t *type = json_get(tool, "type");
    if (json_is_given(type) && !json_equals(type, "function")) {
      return field_fail_value(reader, at("%s.type", one.text).text, "'function'", type);
    }
    code = need_string(reader, at("%s.function.name", one.text),
                       json_get(json_get(tool, "function"), "name"), 1, TOOL_NAME_BYTES_MAX);
    if (code != 0) return code;
  }
  chat->tool_choice = required ? TOOLS_REQUIRED : TOOLS_AUTO;
  chat->allowed_tools = tools;
  return 0;
}

/* "none" | "auto" | "required" | {"type":"function","function":{"name":...}} | allowed_tools */
int read_tool_choice(reader_t *reader, const field_t *field, const json_t *value) {
  static const char *const words[] = {"none", "auto", "required"};
  chat_params_t *chat = &out_of(reader)->chat;
  chat->tool_choice_given = true;
  for (int i = 0; i < 3; i++) {
    if (!json_equals(value, words[i])) continue;
    chat->tool_choice = (tool_choice_t)i;
    return 0;
  }
  if (value->type == JSON_OBJECT && json_equals(json_get(value, "type"), "function")) {
    const json_t *name = json_get(json_get(value, "function"), "name");
    field_place_t place = at("tool_choice.function.name");
    int code = need_string(reader, place, name, 1, TOOL_NAME_BYTES_MAX);
    if (code != 0) return code;
    chat->tool_choice = TOOLS_NAMED;
    chat->tool_name = (span_t){name->text, name->length};
    return 0;
  }
  if (value->type == JSON_OBJECT && json_equals(json_get(value, "type"), "allowed_tools")) {
    return read_allowed(reader, json_get(value, "allowed_tools"));
  }
  if (value->type != JSON_STRING && value->type != JSON_OBJECT) {
    return field_fail_type(reader, field->name, "a string or an object", value);
  }
  return field_fail_value(reader, field->name,
                          "'none', 'auto', 'required', "
                          "{\"type\":\"function\",\"function\":{\"name\":...}} or "
                          "{\"type\":\"allowed_tools\",\"allowed_tools\":{...}}",
                          value->type == JSON_OBJECT ? json_get(value, "type") : value);
}

/* ---- other fields ---- */

int read_modalities(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  JSON_EACH(one, value) {
    if (json_equals(one, "text")) continue;
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                     "The parameter 'modalities' is not supported, except for [\"text\"].");
  }
  return 0;
}

int read_template_kwargs(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  if (value->count > 0) out_of(reader)->chat.template_kwargs = value;
  return 0;
}

int read_documents(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  JSON_EACH(document, value) {
    if (document->type == JSON_OBJECT) continue;
    return field_fail_type(reader, field->name, "an array of objects", document);
  }
  if (value->count > 0) out_of(reader)->chat.documents = value;
  return 0;
}

int read_generation_prompt(reader_t *reader, const field_t *field, const json_t *value) {
  chat_params_t *chat = &out_of(reader)->chat;
  if (!json_bool(value, &chat->generation_prompt)) {
    return field_fail_type(reader, field->name, "a boolean", value);
  }
  chat->generation_prompt_given = true;
  return 0;
}
