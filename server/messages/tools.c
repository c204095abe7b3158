/* tools.c: the tools of a request of /v1/messages -> those of chat, and the choice among them.
 *
 * Loop thread or libuv's pool; keeps no state. Checks every tool, so that errors name it in the
 * words of this format.
 */
#include "server/messages/messages.h"

enum { TOOL_NAME_MAX = 128 };

static bool is_deferred(const json_t *tool) {
  bool deferred = false;
  (void)json_bool(json_get(tool, "defer_loading"), &deferred);
  return deferred;
}

static int check_tool(reader_t *reader, block_place_t place, const json_t *tool) {
  char name[64];
  bool flag;
  if (tool->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, place, "expected an object, but got %s",
                         json_type_name(tool));
  }
  const json_t *type = block_value(json_get(tool, "type")), *schema;
  if (type != NULL && !json_equals(type, "custom")) {
    bool text = type->type == JSON_STRING;
    return messages_fail(
        reader, ERR_UNSUPPORTED_PARAMETER, place,
        "tools of type '%s' are not supported, only tools that the client runs",
        error_quote(name, sizeof name, text ? type->text : "?", text ? type->length : 1));
  }
  int code = messages_need_string(reader, place, tool, "name", 1, TOOL_NAME_MAX);
  if (code == 0 && json_is_given(json_get(tool, "description"))) {
    code = messages_need_string(reader, place, tool, "description", 0, UINT32_MAX);
  }
  if (code != 0) return code;
  schema = json_get(tool, "input_schema");
  block_place_t path = block_at("%s.input_schema", place.text);
  if (!json_is_given(schema)) {
    return messages_fail(reader, ERR_MISSING_PARAMETER, path, "Field required");
  }
  if (schema->type != JSON_OBJECT) {
    return messages_fail(reader, ERR_INVALID_TYPE, path, "expected an object, but got %s",
                         json_type_name(schema));
  }
  const json_t *strict = block_value(json_get(tool, "strict"));
  if (strict == NULL || json_bool(strict, &flag)) return 0;
  return messages_fail(reader, ERR_INVALID_TYPE, block_at("%s.strict", place.text),
                       "expected a boolean");
}

static void print_member(buffer_t *chat, const char *name, const json_t *value) {
  if (!json_is_given(value)) return;
  buffer_text(chat, name);
  json_print(chat, value);
}

static void print_tool(buffer_t *chat, const json_t *tool) {
  buffer_text(chat, "{\"type\":\"function\",\"function\":{");
  print_member(chat, "\"name\":", json_get(tool, "name"));
  print_member(chat, ",\"description\":", json_get(tool, "description"));
  print_member(chat, ",\"parameters\":", json_get(tool, "input_schema"));
  print_member(chat, ",\"strict\":", json_get(tool, "strict"));
  buffer_text(chat, "}}");
}

static int print_choice(reader_t *reader, const json_t *choice, buffer_t *chat) {
  const json_t *type = json_get(choice, "type");
  bool single = false;
  if (json_equals(type, "auto")) {
    buffer_text(chat, ",\"tool_choice\":\"auto\"");
  } else if (json_equals(type, "any")) {
    buffer_text(chat, ",\"tool_choice\":\"required\"");
  } else if (json_equals(type, "none")) {
    buffer_text(chat, ",\"tool_choice\":\"none\"");
  } else if (json_equals(type, "tool")) {
    int code =
        messages_need_string(reader, block_at("tool_choice"), choice, "name", 1, TOOL_NAME_MAX);
    if (code != 0) return code;
    buffer_text(chat, ",\"tool_choice\":{\"type\":\"function\",\"function\":{");
    print_member(chat, "\"name\":", json_get(choice, "name"));
    buffer_text(chat, "}}");
  } else {
    return messages_fail_value(reader, block_at("tool_choice.type"),
                               "'auto', 'any', 'tool' or 'none'", type);
  }
  const json_t *parallel = block_value(json_get(choice, "disable_parallel_tool_use"));
  if (parallel != NULL && !json_bool(parallel, &single)) {
    return messages_fail(reader, ERR_INVALID_TYPE,
                         block_at("tool_choice.disable_parallel_tool_use"), "expected a boolean");
  }
  if (single) buffer_text(chat, ",\"parallel_tool_calls\":false");
  return 0;
}

int messages_print_tools(reader_t *reader, const json_t *tools, const json_t *choice,
                         buffer_t *chat) {
  int index = 0, printed = 0;
  JSON_EACH(tool, tools) {
    int code = check_tool(reader, block_at("tools.%d", index++), tool);
    if (code != 0) return code;
    if (is_deferred(tool)) continue; /* the model would learn of it by a search only */
    buffer_text(chat, printed++ == 0 ? ",\"tools\":[" : ",");
    print_tool(chat, tool);
  }
  if (printed > 0) buffer_char(chat, ']');
  return choice != NULL ? print_choice(reader, choice, chat) : 0;
}
