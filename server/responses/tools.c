/* tools.c: the tools of POST /v1/responses -> functions of chat, and which of them are shown.
 *
 * Loop thread or a job of the lanes. A tool of a namespace is shown as SPACE__NAME, a custom tool
 * as a function with one string. Tools that run on OpenAI's servers are left out: clients such as
 * Codex put them into every request. Next: server/completion/prompt.c.
 */
#include "server/responses/responses.h"

#include "engine/base/util.h"

#include <stdio.h>

enum { NAME_BYTES_MAX = 64 }; /* of a function on chat */

/* The functions while they are collected. */
typedef struct list {
  const responses_fields_t *fields;
  reader_t *reader;
  responses_answer_t *response;
  buffer_t functions; /* elements of the array of chat */
  buffer_t name;
} list_t;

static bool has_name(const json_t *name, const char *text) {
  return name != NULL && name->type == JSON_STRING && json_equals(name, text);
}

/* Names a tool that is left out: "tools.8:web_search". */
static void skip(list_t *list, const char *place, const json_t *type) {
  char shown[80], word[40] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < type->length && used + 1 < sizeof word; i++) {
    char c = type->text[i];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    word[used++] = plain || c == '_' || c == '-' ? c : '?';
  }
  snprintf(shown, sizeof shown, "%s:%s", place, word);
  for (char *at = shown; *at != '\0'; at++) {
    if (*at == '[') *at = '.';
    if (*at == ']') memmove(at, at + 1, strlen(at));
  }
  field_name_ignored(list->reader->ignored, shown);
}

/* ---- which tools the choice allows ---- */

static bool choice_is(const json_t *choice, const char *type) {
  return choice != NULL && choice->type == JSON_OBJECT &&
         json_equals(json_get(choice, "type"), type);
}

/* Returns false if tool_choice lists other tools than this one. */
static bool is_allowed(const list_t *list, const char *own, const char *shown) {
  const json_t *choice = list->fields->tool_choice;
  if (!choice_is(choice, "allowed_tools")) return true;
  JSON_EACH(tool, json_get(choice, "tools")) {
    const json_t *name = json_get(tool, "name");
    if (has_name(name, own) || has_name(name, shown)) return true;
  }
  return false;
}

/* ---- one tool ---- */

static const char *keep_name(list_t *list, const json_t *space, const json_t *own) {
  responses_join_name(&list->name, space, own);
  return responses_keep(list->reader->arena, &list->name);
}

/* Writes the text of a custom tool's description, with the grammar that its input follows. */
static void print_description(buffer_t *out, const json_t *tool) {
  const json_t *description = json_get(tool, "description"), *format = json_get(tool, "format");
  const json_t *syntax = json_get(format, "syntax"), *grammar = json_get(format, "definition");
  buffer_char(out, '"');
  if (json_is_given(description) && description->type == JSON_STRING) {
    buffer_escape(out, description->text, description->length);
  }
  if (json_equals(json_get(format, "type"), "grammar") && json_is_given(grammar) &&
      grammar->type == JSON_STRING) {
    buffer_text(out, "\\n\\nThe input follows this grammar");
    if (json_is_given(syntax) && syntax->type == JSON_STRING) {
      buffer_text(out, " (");
      buffer_escape(out, syntax->text, syntax->length);
      buffer_char(out, ')');
    }
    buffer_text(out, ":\\n");
    buffer_escape(out, grammar->text, grammar->length);
  }
  buffer_char(out, '"');
}

static void print_function(buffer_t *out, const response_tool_t *shown, const json_t *tool) {
  static const char *const members[] = {"description", "parameters", "strict"};
  buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
  buffer_quote(out, shown->name, strlen(shown->name));
  if (shown->is_custom) {
    buffer_text(out, ",\"description\":");
    print_description(out, tool);
    buffer_text(out, ",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
                     "\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false}");
  } else {
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
      const json_t *value = json_get(tool, members[i]);
      if (json_is_given(value)) json_print_member(out, members[i], value);
    }
  }
  buffer_text(out, "}}");
}

static int add_function(list_t *list, const char *place, const json_t *tool, const json_t *space,
                        bool is_custom) {
  const json_t *own = json_get(tool, "name");
  char inside[ERROR_PARAM_MAX];
  responses_answer_t *response = list->response;
  snprintf(inside, sizeof inside, "%s.name", place);
  if (!json_is_given(own)) {
    return error_set(list->reader->error, ERR_MISSING_PARAMETER, inside,
                     "Missing required parameter: '%s'.", inside);
  }
  int code = field_string(list->reader, inside, own, 1, NAME_BYTES_MAX);
  if (code != 0) return code;
  if (space != NULL && space->length + 2 + own->length > NAME_BYTES_MAX) {
    skip(list, place, own); /* chat has no function of such a long name */
    return 0;
  }
  response_tool_t shown = {.name = keep_name(list, space, own),
                           .own = keep_name(list, NULL, own),
                           .space = space != NULL ? keep_name(list, NULL, space) : NULL,
                           .place = arena_copy(list->reader->arena, place, strlen(place) + 1),
                           .is_custom = is_custom};
  bool kept = shown.name != NULL && shown.own != NULL && shown.place != NULL &&
              (space == NULL || shown.space != NULL);
  if (!kept) return field_no_memory(list->reader);
  if (!is_allowed(list, shown.own, shown.name)) return 0;
  if (response->num_shown == TOOLS_MAX) {
    return error_set(list->reader->error, ERR_INVALID_VALUE, "tools",
                     "Invalid 'tools': at most %d tools are allowed.", TOOLS_MAX);
  }
  response->shown[response->num_shown++] = shown;
  if (list->functions.length > 0) buffer_char(&list->functions, ',');
  print_function(&list->functions, &shown, tool);
  return 0;
}

static int add_tool(list_t *list, const char *place, const json_t *tool, const json_t *space) {
  const json_t *type = json_get(tool, "type");
  char inside[ERROR_PARAM_MAX];
  snprintf(inside, sizeof inside, "%s.type", place);
  if (tool->type != JSON_OBJECT) {
    return field_fail_type(list->reader, place, "an object", tool);
  }
  if (!json_is_given(type)) {
    return error_set(list->reader->error, ERR_MISSING_PARAMETER, inside,
                     "Missing required parameter: '%s'.", inside);
  }
  if (type->type != JSON_STRING) return field_fail_type(list->reader, inside, "a string", type);
  if (json_equals(type, "function")) return add_function(list, place, tool, space, false);
  if (json_equals(type, "custom")) return add_function(list, place, tool, space, true);
  const json_t *name = json_get(tool, "name"), *inner = json_get(tool, "tools");
  bool is_space = space == NULL && json_equals(type, "namespace") && json_is_given(name) &&
                  name->type == JSON_STRING && json_is_given(inner) && inner->type == JSON_ARRAY;
  if (!is_space) {
    skip(list, place, type);
    return 0;
  }
  int index = 0, code = 0;
  JSON_EACH(one, inner) {
    snprintf(inside, sizeof inside, "%.40s.tools[%d]", place, index++);
    if (code == 0) code = add_tool(list, inside, one, name);
  }
  return code;
}

/* ---- tool_choice ---- */

static int fail_choice(reader_t *reader, const char *message) {
  return error_set(reader->error, ERR_INVALID_VALUE, "tool_choice", "%s", message);
}

static int write_named(const list_t *list, buffer_t *chat) {
  const json_t *name = json_get(list->fields->tool_choice, "name");
  for (int32_t i = 0; i < list->response->num_shown; i++) {
    const response_tool_t *tool = &list->response->shown[i];
    if (!has_name(name, tool->own) && !has_name(name, tool->name)) continue;
    buffer_text(chat, "{\"type\":\"function\",\"function\":{\"name\":");
    buffer_quote(chat, tool->name, strlen(tool->name));
    buffer_text(chat, "}}");
    return 0;
  }
  return fail_choice(list->reader, "'tool_choice' names a tool that is not among the 'tools' that "
                                   "this server shows to the model.");
}

static int write_choice(const list_t *list, buffer_t *chat) {
  const json_t *choice = list->fields->tool_choice, *mode = choice;
  bool any = list->response->num_shown > 0;
  if (choice == NULL) return 0;
  if (choice_is(choice, "allowed_tools")) mode = json_get(choice, "mode");
  bool required = json_equals(mode, "required");
  bool is_word = required || json_equals(mode, "auto") || json_equals(mode, "none");
  bool named = choice_is(choice, "function") || choice_is(choice, "custom");
  if (!is_word && !named) {
    return field_fail_value(list->reader, "tool_choice",
                            "'none', 'auto', 'required', {\"type\":\"function\",\"name\":...} or "
                            "{\"type\":\"allowed_tools\",...}",
                            mode->type == JSON_OBJECT ? json_get(mode, "type") : mode);
  }
  if ((required || named) && !any) {
    return fail_choice(list->reader, "'tool_choice' asks for a tool, but no tool is left: this "
                                     "server shows functions and custom tools to the model.");
  }
  if (!any) return 0;
  buffer_text(chat, ",\"tool_choice\":");
  if (named) return write_named(list, chat);
  json_print(chat, mode);
  return 0;
}

int responses_tools(const responses_fields_t *fields, reader_t *reader,
                    responses_answer_t *response, buffer_t *chat) {
  list_t list = {.fields = fields, .reader = reader, .response = response};
  const json_t *allowed = json_get(fields->tool_choice, "tools");
  int index = 0, code = 0;
  if (allowed != NULL && (allowed->type != JSON_ARRAY || allowed->count > TOOLS_MAX)) {
    return error_set(reader->error, ERR_INVALID_VALUE, "tool_choice.tools",
                     "Invalid 'tool_choice.tools': expected an array of at most %d tools.",
                     TOOLS_MAX);
  }
  response->shown = arena_calloc(reader->arena, TOOLS_MAX, sizeof *response->shown);
  if (response->shown == NULL) return field_no_memory(reader);
  JSON_EACH(tool, fields->tools) {
    char place[ERROR_PARAM_MAX];
    snprintf(place, sizeof place, "tools[%d]", index++);
    if (code == 0) code = add_tool(&list, place, tool, NULL);
  }
  if (code == 0 && response->num_shown > 0) {
    buffer_text(chat, ",\"tools\":[");
    buffer_append(chat, list.functions.data, list.functions.length);
    buffer_char(chat, ']');
  }
  if (code == 0) code = write_choice(&list, chat);
  chat->failed = chat->failed || list.functions.failed || list.name.failed;
  buffer_free(&list.functions);
  buffer_free(&list.name);
  return code;
}
