/* chat_template.h: from the messages of a request to prompt text.
 *
 * Finds a model's chat templates in its directory, compiles them at start, shapes the messages of a
 * request as the reference servers do, and renders. Loading belongs to the loading thread; a loaded
 * set never changes, and any number of threads may render with it at once.
 */
#ifndef INFERD_ENGINE_TEMPLATE_CHAT_CHAT_TEMPLATE_H
#define INFERD_ENGINE_TEMPLATE_CHAT_CHAT_TEMPLATE_H

#include "engine/template/template.h"

typedef struct chat_templates chat_templates_t;

/* Reads `dir`: chat_template.jinja, chat_template.json, chat_templates/NAME.jinja,
 * additional_chat_templates/NAME.jinja and the field
 * chat_template of tokenizer_config.json (a string, or a list of {name, template}), in this order
 * of preference, and the special tokens (bos_token, ...) of tokenizer_config.json and
 * special_tokens_map.json. If `dir` is a GGUF file or holds one, the templates and special tokens
 * are those of its metadata. `path` (--chat-template, NULL = none) replaces every template of the
 * directory. A directory without a template is no error: chat_templates_any is then false. With a
 * template for tools alone (tool_use) others are refused when they are rendered. A directory whose
 * template does not compile is no error either: see chat_templates_problem.
 * 0, ERR_MODEL_MALFORMED for JSON that cannot be read, ERR_IO, ERR_CONFIGURATION for `path` ("FILE,
 * line N: reason"), ERR_NO_MEMORY. */
int chat_templates_load(const char *dir, const char *path, chat_templates_t **out,
                        inferd_error_t *error);
void chat_templates_free(chat_templates_t *templates); /* NULL is allowed */

/* Why the directory's template cannot be used (it does not compile): chat is then refused with this
 * text, and the operator should read it at start. NULL when there is nothing wrong. */
const char *chat_templates_problem(const chat_templates_t *templates);
bool chat_templates_any(const chat_templates_t *templates);
/* The template for requests without tools, as its file has it; NULL without one. */
const char *chat_templates_text(const chat_templates_t *templates, size_t *length);
/* Tells whether the template for requests with (without) tools reads a variable of this name. False
 * without a template. */
bool chat_template_mentions(const chat_templates_t *templates, bool has_tools, const char *name);

/* Tells whether it reads one of the variables of `effort`, below. */
bool chat_template_reads_effort(const chat_templates_t *templates, bool has_tools);

struct buffer;
/* Appends an object: the members of tokenizer_config.json in `dir`, as above, with the special
 * tokens, `tokenizer_class` and the `chat_template` that is used. Loading thread. 0 or an error of
 * chat_templates_load. */
int chat_templates_describe(const chat_templates_t *templates, const char *dir, struct buffer *out,
                            inferd_error_t *error);

typedef struct chat_input {
  const json_t *messages;  /* array of objects, with role; checked by the caller field by field */
  const json_t *tools;     /* array of objects or NULL: the template sees None; given as xml_tools
                              too, if the template has that name (SmolLM 3) and kwargs does not */
  const json_t *documents; /* array of objects or NULL: the template sees None */
  const json_t *kwargs;    /* chat_template_kwargs, an object or NULL */
  /* reasoning_effort, a string; NULL = absent. It sets, unless kwargs has them, the variables that
   * templates have for it: enable_thinking and thinking (false for "none"), thinking_mode,
   * thinking_effort (Kimi K3: "minimal" is low, "xhigh" is max), thinking_budget (0 for "none").
   * One of the two switches in kwargs stands for the others, too. */
  const json_t *effort;
  /* What a template that takes texts alone sees of a picture, as a text of its own before a
   * newline; NULL = nothing. It is none of the request's. */
  const char *picture;
  bool add_generation_prompt;
  bool continue_final_message; /* the prompt ends inside the last message */
  int64_t now_seconds;         /* seconds since 1970, for strftime_now */
} chat_input_t;

/* Shapes and renders. The shaping: `developer` becomes `system` unless the template mentions it;
 * `arguments` of tool calls are parsed (empty: {}; a text that is no JSON, as of a call that was
 * cut, stays a text; for a template that takes objects alone what is none becomes
 * {"arguments": text}, and null {});
 * an empty `tool_calls` is dropped; text parts of a content are joined by a newline unless the
 * template iterates over content, which then sees a picture as {"type": "image"} and a sound as
 * {"type": "audio"}; reasoning is
 * given as thinking, as reasoning_content and under the name in the request; members that are null
 * are dropped, except content; the content of an assistant that has none and no calls is "", or
 * [] if the template iterates over content. Other absent members stay absent.
 *
 * 0 and *out (jinja_output_free), or ERR_BAD_REQUEST with the template's own words for
 * raise_exception, with template name, line and reason for others; ERR_INVALID_VALUE with `param`
 * for a kwarg that may not be set and for a final message that
 * cannot be continued; ERR_INTERNAL without memory. Without a template: ERR_BAD_REQUEST. */
int chat_template_render(const chat_templates_t *templates, const chat_input_t *input,
                         jinja_output_t *out, inferd_error_t *error);

#endif
