/* chat_template.c: renders a conversation with the chat template of a model.
 *
 * Any thread; a loaded set never changes. Loading is in chat_load.c.
 */
#include "engine/template/chat/chat_template.h"

#include "engine/base/unicode_case.h"
#include "engine/template/chat/chat_internal.h"
#include "engine/template/chat/chat_shape.h"
#include "engine/template/library/library.h"

#include <stdlib.h>
#include <string.h>

enum { KWARGS_MAX = 64, FIXED_VARIABLES = SPECIAL_TOKENS + 12 };

static const jinja_t *choose(const chat_templates_t *templates, bool has_tools) {
  return has_tools && templates->tool_use != NULL ? templates->tool_use : templates->by_default;
}

bool chat_templates_any(const chat_templates_t *templates) {
  return templates->by_default != NULL || templates->tool_use != NULL;
}

const char *chat_templates_text(const chat_templates_t *templates, size_t *length) {
  *length = templates->source_length;
  return templates->source;
}

const char *chat_templates_problem(const chat_templates_t *templates) {
  return templates->problem[0] == '\0' ? NULL : templates->problem;
}

bool chat_template_mentions(const chat_templates_t *templates, bool has_tools, const char *name) {
  const jinja_t *jinja = choose(templates, has_tools);
  return jinja != NULL && jinja_mentions(jinja, name);
}

/* Names of variables that a request must not set: those of the server and of the language. */
static bool reserved(const json_t *kwarg) {
  static const char *const names[] = {
      "messages",      "tools",    "documents", "add_generation_prompt", "continue_final_message",
      "chat_template", "tokenize", NULL};
  const str_t key = {.bytes = kwarg->key, .length = kwarg->key_length};
  for (const char *const *name = names; *name != NULL; name++)
    if (str_is(&key, *name)) return true;
  for (unsigned i = 0; i < SPECIAL_TOKENS; i++)
    if (str_is(&key, chat_special_tokens[i])) return true;
  return function_find(&key) >= 0;
}

static int add_kwargs(const json_t *kwargs, jinja_variable_t *variables, size_t *count,
                      inferd_error_t *error) {
  char name[48];
  if (kwargs == NULL) return 0;
  if (kwargs->count > KWARGS_MAX)
    return error_set(error, ERR_INVALID_VALUE, "chat_template_kwargs",
                     "chat_template_kwargs has %u members, at most %d are allowed.", kwargs->count,
                     KWARGS_MAX);
  JSON_EACH(member, kwargs) {
    if (reserved(member)) {
      error_quote(name, sizeof name, member->key, member->key_length);
      return error_set(error, ERR_INVALID_VALUE, "chat_template_kwargs",
                       "chat_template_kwargs may not set \"%s\".", name);
    }
    if (member->key_length == 0) continue; /* no template can name it */
    variables[(*count)++] =
        (jinja_variable_t){.name = member->key, .name_length = member->key_length, .json = member};
  }
  return 0;
}

static jinja_variable_t from_json(const char *name, const json_t *json) {
  return (jinja_variable_t){
      .name = name, .kind = json == NULL ? JINJA_NOTHING : JINJA_JSON, .json = json};
}

static int collect(const chat_templates_t *templates, const chat_input_t *in, chat_shape_t *shape,
                   jinja_variable_t *variables, size_t *count, inferd_error_t *error) {
  for (unsigned i = 0; i < SPECIAL_TOKENS; i++)
    if (templates->special[i] != NULL)
      variables[(*count)++] = (jinja_variable_t){.name = chat_special_tokens[i],
                                                 .kind = JINJA_TEXT,
                                                 .text = templates->special[i],
                                                 .text_length = templates->special_length[i]};
  chat_effort_variables(templates, in, variables, count);
  int code = add_kwargs(in->kwargs, variables, count, error);
  if (code != 0) return code;
  variables[(*count)++] = (jinja_variable_t){
      .name = "messages", .kind = JINJA_BUILT, .build = chat_shape_build, .context = shape};
  variables[(*count)++] = from_json("tools", in->tools);
  bool other_name = chat_template_mentions(templates, true, "xml_tools") &&
                    json_get(in->kwargs, "xml_tools") == NULL;
  if (in->tools != NULL && other_name) variables[(*count)++] = from_json("xml_tools", in->tools);
  variables[(*count)++] = from_json("documents", in->documents);
  variables[(*count)++] = (jinja_variable_t){
      .name = "add_generation_prompt", .kind = JINJA_FLAG, .flag = in->add_generation_prompt};
  return 0;
}

static size_t strip_end(const char *text, size_t length) {
  while (length > 0) {
    size_t previous = str_previous(text, length), next = previous;
    if (!(char_class(str_next(text, &next)) & CHAR_SPACE)) break;
    length = previous;
  }
  return length;
}

static const char *find_last(const char *text, size_t length, const char *word, size_t size) {
  for (size_t at = length; at >= size; at--) {
    const char *hit = memrchr(text, word[0], at - size + 1);
    if (hit == NULL) return NULL;
    if (memcmp(hit, word, size) == 0) return hit;
    at = (size_t)(hit - text) + size;
  }
  return NULL;
}

/* Ends the prompt at the tag, as transformers does. Returns false if the prompt has no tag. */
static bool cut_at_tag(jinja_output_t *out) {
  const size_t size = sizeof CONTINUE_TAG - 2; /* without its blank and the NUL */
  const char *hit = find_last(out->text, out->length, CONTINUE_TAG, size);
  if (hit == NULL) return false;
  size_t cut = (size_t)(hit - out->text);
  bool kept = cut + size < out->length && out->text[cut + size] == ' ';
  out->length = kept ? cut : strip_end(out->text, cut);
  out->text[out->length] = '\0';
  size_t count = 0;
  while (count < out->num_request && out->request[count].begin < out->length) count++;
  out->num_request = count;
  if (count > 0 && out->request[count - 1].end > out->length)
    out->request[count - 1].end = out->length;
  return true;
}

/* Returns the text of the last message, which the output continues: its content or last text part.
 */
static const json_t *final_text(const json_t *messages) {
  const json_t *last = NULL, *text = NULL;
  JSON_EACH(message, messages) last = message;
  const json_t *content = last == NULL ? NULL : json_get(last, "content");
  if (content != NULL && content->type == JSON_STRING) return content;
  if (content != NULL && content->type == JSON_ARRAY) JSON_EACH(part, content) {
      const json_t *piece = json_get(part, "text");
      if (piece != NULL && piece->type == JSON_STRING) text = piece;
    }
  return text;
}

static int fail_final(inferd_error_t *error, const char *reason) {
  return error_set(error, ERR_INVALID_VALUE, "continue_final_message",
                   "continue_final_message: %s.", reason);
}

/* The template must not have changed the text, or the output would not continue it. */
static bool prints(const jinja_output_t *out, const json_t *text) {
  size_t end = strip_end(text->text, text->length), begin = 0;
  while (begin < end) {
    size_t next = begin;
    if (!(char_class(str_next(text->text, &next)) & CHAR_SPACE)) break;
    begin = next;
  }
  return begin == end || memmem(out->text, out->length, text->text + begin, end - begin) != NULL;
}

int chat_template_render(const chat_templates_t *templates, const chat_input_t *in,
                         jinja_output_t *out, inferd_error_t *error) {
  const jinja_t *jinja = choose(templates, in->tools != NULL && in->tools->count > 0);
  jinja_variable_t variables[FIXED_VARIABLES + KWARGS_MAX];
  size_t count = 0;
  *out = (jinja_output_t){0};
  if (jinja == NULL && templates->tool_use != NULL)
    return error_set(error, ERR_BAD_REQUEST, "tools",
                     "This model has a chat template for requests with tools alone (tool_use) and "
                     "no default one: send tools, or start with --chat-template FILE.");
  if (jinja == NULL)
    return error_set(
        error, ERR_BAD_REQUEST, "messages",
        templates->problem[0] != '\0' ? "The chat template of this model cannot be used: %s"
                                      : "This model has no chat template%s",
        templates->problem[0] != '\0' ? templates->problem : ": start with --chat-template FILE.");
  const json_t *final = in->continue_final_message ? final_text(in->messages) : NULL;
  if (in->continue_final_message && final == NULL)
    return fail_final(error, "the last message has no text to continue");
  chat_shape_t shape = {.messages = in->messages,
                        .picture = in->picture,
                        .continue_final = in->continue_final_message};
  shape.rename_developer = !jinja_mentions(jinja, "developer");
  shape.join_parts = !jinja_iterates(jinja, "content");
  int code = chat_shape_begin(&shape, error);
  if (code == 0) code = collect(templates, in, &shape, variables, &count, error);
  if (code == 0) {
    jinja_input_t input = {.variables = variables,
                           .num_variables = count,
                           .now_seconds = in->now_seconds,
                           .limits = jinja_limits_default};
    code = jinja_render(jinja, &input, out, error);
    if (code == ERR_BAD_REQUEST && shape.has_text_arguments) { /* the template takes objects only */
      shape.text_in_object = true;
      code = jinja_render(jinja, &input, out, error);
    }
  }
  chat_shape_end(&shape);
  if (code == 0 && final != NULL && (!prints(out, final) || !cut_at_tag(out))) {
    jinja_output_free(out);
    code = fail_final(error, "the chat template does not print the last message as it is");
  }
  return code;
}
