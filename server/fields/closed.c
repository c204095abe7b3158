/* closed.c: constraints on the output that the operator has closed.
 *
 * Stage 2 of 9, first half. Loop thread or libuv's pool; keeps no state. A request that uses a
 * closed kind is refused before anything of it is compiled. The kinds are the languages in which a
 * client can write a constraint, so with all of them closed no request reaches the grammar code.
 */
#include "server/fields/params_read.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *word;
  unsigned bit;
} kinds[] = {{"regex", CLOSED_REGEX}, {"grammar", CLOSED_GRAMMAR}, {"schema", CLOSED_SCHEMA}};

unsigned closed_kinds(char *const *words, int count) {
  unsigned closed = 0;
  for (int i = 0; i < count; i++) {
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
      if (strcmp(words[i], kinds[k].word) == 0) closed |= kinds[k].bit;
    }
  }
  return closed;
}

/* Refuses `param` if the kind is closed. `what` says what of the parameter has the kind. */
static int check(const field_limits_t *limits, unsigned kind, const char *param, const char *what,
                 inferd_error_t *error) {
  if ((limits->closed & kind) == 0) return 0;
  if (limits->closed_by_key) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                     "%s'%s' is not supported for this API key: its line in the key file says "
                     "grammar=off.",
                     what, param);
  }
  const char *word = "";
  for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
    if (kinds[k].bit == kind) word = kinds[k].word;
  }
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                   "%s'%s' is not supported by this server: its operator has closed it by "
                   "--disable-grammar %s.",
                   what, param, word);
}

int closed_check_kind(const field_limits_t *limits, grammar_kind_t kind, const char *param,
                      inferd_error_t *error) {
  switch (kind) {
  case GRAMMAR_JSON_SCHEMA:
  case GRAMMAR_JSON_OBJECT: return check(limits, CLOSED_SCHEMA, param, "", error);
  case GRAMMAR_REGEX:
  case GRAMMAR_CHOICE: return check(limits, CLOSED_REGEX, param, "", error);
  case GRAMMAR_EBNF:
  case GRAMMAR_GBNF:
  case GRAMMAR_LARK: return check(limits, CLOSED_GRAMMAR, param, "", error);
  default: return 0; /* the server's own sources */
  }
}

bool schema_has_pattern(const json_t *schema) {
  if (schema == NULL || (schema->type != JSON_OBJECT && schema->type != JSON_ARRAY)) return false;
  JSON_EACH(member, schema) {
    bool named = schema->type == JSON_OBJECT;
    if (named && member->type == JSON_STRING && json_named(member, "pattern")) return true;
    if (named && member->type == JSON_OBJECT && json_named(member, "patternProperties"))
      return true;
    if (schema_has_pattern(member)) return true; /* the depth of JSON has a bound */
  }
  return false;
}

int closed_check_patterns(const field_limits_t *limits, const json_t *schema, const char *param,
                          inferd_error_t *error) {
  if ((limits->closed & CLOSED_REGEX) == 0 || !schema_has_pattern(schema)) return 0;
  return check(limits, CLOSED_REGEX, param, "A pattern in ", error);
}

/* Returns true if the tool choice forces a call that may be one of this function. */
static bool may_be_forced(const chat_params_t *chat, const json_t *name) {
  if (chat->tool_choice == TOOLS_REQUIRED) return true;
  return chat->tool_choice == TOOLS_NAMED && name->length == chat->tool_name.length &&
         memcmp(name->text, chat->tool_name.text, name->length) == 0;
}

/* Checks the functions whose schemas have to be enforced. */
static int check_functions(const chat_params_t *chat, const field_limits_t *limits,
                           inferd_error_t *error) {
  int index = 0;
  JSON_EACH(tool, chat->tools) {
    const json_t *function = json_get(tool, "function"), *strict = json_get(function, "strict");
    char place[ERROR_PARAM_MAX];
    int shown = params_tool_index(chat, index);
    bool is_strict = strict != NULL && strict->type == JSON_TRUE;
    snprintf(place, sizeof place, "tools[%d].function.strict", shown);
    int code = is_strict ? check(limits, CLOSED_SCHEMA, place, "", error) : 0;
    if (code == 0 && (is_strict || may_be_forced(chat, json_get(function, "name")))) {
      snprintf(place, sizeof place, "tools[%d].function.parameters", shown);
      code = closed_check_patterns(limits, json_get(function, "parameters"), place, error);
    }
    if (code != 0) return code;
    index++;
  }
  return 0;
}

int closed_check_tools(const params_t *params, const field_limits_t *limits,
                       inferd_error_t *error) {
  const chat_params_t *chat = &params->chat;
  if (!params->is_chat || chat->tools == NULL || chat->tool_choice == TOOLS_NONE) return 0;
  int code = check_functions(chat, limits, error);
  if (code == 0 && chat->tool_choice >= TOOLS_REQUIRED) {
    code = check(limits, CLOSED_SCHEMA, "tool_choice", "A call that is forced by ", error);
  }
  if (code == 0 && params->constraint.param != NULL) {
    code = check(limits, CLOSED_SCHEMA, "tools", "Beside a constraint on the output ", error);
  }
  return code;
}
