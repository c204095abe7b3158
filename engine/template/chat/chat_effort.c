/* chat_effort.c: how much a model is to reason, under the names that templates have for it.
 *
 * A client says it by reasoning_effort, or by the switch of another family. Any thread; the
 * variables point at constants and at the request.
 */
#include "engine/template/chat/chat_internal.h"

#include "engine/base/util.h"

#include <string.h>

static const char *const names[] = {"reasoning_effort", "enable_thinking", "thinking",
                                    "thinking_mode",    "thinking_effort", "thinking_budget"};

bool chat_template_reads_effort(const chat_templates_t *templates, bool has_tools) {
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    if (chat_template_mentions(templates, has_tools, names[i])) return true;
  }
  return false;
}

/* Whether the model is to reason; -1 = the request does not say it. */
static int is_on(const chat_input_t *in) {
  static const char *const flags[] = {"enable_thinking", "thinking"};
  for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
    const json_t *flag = json_get(in->kwargs, flags[i]);
    if (flag != NULL && (flag->type == JSON_TRUE || flag->type == JSON_FALSE))
      return flag->type == JSON_TRUE;
  }
  return in->effort == NULL ? -1 : !json_equals(in->effort, "none");
}

static void add(const chat_input_t *in, jinja_variable_t variable, jinja_variable_t *variables,
                size_t *count) {
  if (json_get(in->kwargs, variable.name) == NULL) variables[(*count)++] = variable;
}

static jinja_variable_t text(const char *name, const char *value) {
  return (jinja_variable_t){
      .name = name, .kind = JINJA_TEXT, .text = value, .text_length = strlen(value)};
}

/* The levels of Kimi K3 are low, medium, high and max: it refuses others. */
static jinja_variable_t level(const json_t *effort) {
  if (json_equals(effort, "minimal")) return text("thinking_effort", "low");
  if (json_equals(effort, "xhigh")) return text("thinking_effort", "max");
  return (jinja_variable_t){.name = "thinking_effort", .kind = JINJA_JSON, .json = effort};
}

void chat_effort_variables(const chat_templates_t *templates, const chat_input_t *in,
                           jinja_variable_t *variables, size_t *count) {
  static const json_t zero = {.type = JSON_NUMBER, .text = "0", .length = 1};
  int on = is_on(in);
  if (in->effort != NULL) {
    add(in, (jinja_variable_t){.name = names[0], .kind = JINJA_JSON, .json = in->effort}, variables,
        count);
  }
  if (on < 0) return;
  /* MiniMax M3 says enabled and disabled, DeepSeek V4 thinking and chat. */
  bool disables = templates->source != NULL &&
                  memmem(templates->source, templates->source_length, "disabled", 8) != NULL;
  const char *mode = disables ? (on ? "enabled" : "disabled") : (on ? "thinking" : "chat");
  add(in, (jinja_variable_t){.name = names[1], .kind = JINJA_FLAG, .flag = on}, variables, count);
  add(in, (jinja_variable_t){.name = names[2], .kind = JINJA_FLAG, .flag = on}, variables, count);
  add(in, text(names[3], mode), variables, count);
  if (on && in->effort != NULL && !json_equals(in->effort, "none"))
    add(in, level(in->effort), variables, count);
  if (!on) /* Seed OSS: a budget of tokens */
    add(in, (jinja_variable_t){.name = names[5], .kind = JINJA_JSON, .json = &zero}, variables,
        count);
}
