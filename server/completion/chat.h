/* chat.h: the differences between chat requests and plain completions.
 *
 * A chat request is a completion_t too and takes the same path. Its prompt comes from a template. A
 * parser (server/parser) separates reasoning and tool calls from its output. Its responses have
 * another shape.
 */
#ifndef INFERD_SERVER_COMPLETION_CHAT_H
#define INFERD_SERVER_COMPLETION_CHAT_H

#include "server/completion/completion.h"

/* chat_model.c: the chat templates of the model, and how it writes tool calls; main thread. */
/* Reads the templates. Those of a model that cannot be used make chat answer 400 with the reason;
 * one that the operator gave makes the start fail. 0 or an error. */
int chat_model_load(completions_t *live, const config_t *config, inferd_error_t *error);
/* Chooses the formats of tool calls and reasoning, unless options name them. Call it when the
 * tokenizer is loaded. Only the first call has an effect: a request may arrive before the loop has
 * noticed that the model is loaded, so several places call it. */
void chat_model_ready(completions_t *live, const config_t *config, const tokenizer_t *tokenizer);
void chat_model_free(completions_t *live);

/* chat_shapes.c: renders each shape of conversations once, fills in live->rules, and logs what the
 * template does not take. Main thread, at start. */
void chat_try_shapes(completions_t *live);

/* chat_prompt.c: loop thread or pool. */
/* Renders the messages into the one prompt of the completion. Returns 0 or an error. */
int chat_render(completion_t *completion);
/* The same for /tokenize. The caller frees *out (jinja_output_free). */
int chat_render_input(const completions_t *live, const chat_params_t *chat, jinja_output_t *out,
                      inferd_error_t *error);
/* Returns true if a template that can be used reads neither the effort of the request nor the
 * variable that follows from it (chat_template_render). Clients send the effort to every model, so
 * this is no error. */
bool chat_ignores_effort(const completions_t *live, const chat_params_t *chat);
/* Tells whether the model's template reads the tools of a request. */
bool chat_takes_tools(const completions_t *live);
/* Tells the tokenizer in which parts of the text it must not look for special tokens: in those that
 * come from the request. With pictures it always does: such a part must not place one. */
void chat_hide_specials(const server_t *server, const jinja_output_t *rendered, bool has_pictures,
                        tokenize_options_t *options);
/* Makes the parsers of the choices. If the last message is echoed, each choice begins with its
 * text. Returns 0 or an error. */
int chat_begin_choices(completion_t *completion);

/* chat_output.c: loop thread. */
/* Parses new text of the engine; the writer of the dialect takes the parts. */
void chat_add_text(choice_t *choice, const char *text, size_t length);
void chat_end_text(choice_t *choice); /* no more text will come */
/* The model did not end the choice: a limit or a stop string did. */
bool chat_is_cut(const choice_t *choice);
bool chat_is_reasoning(const choice_t *choice);
bool chat_failed(const choice_t *choice); /* true if memory was short */
/* Takes a part of the output, as JSON for chat's chunks and answers. */
void chat_take_part(choice_t *choice, output_kind_t kind, const char *text, size_t length);
/* Returns true if chat_print_delta would print "delta":{}. */
bool chat_delta_is_empty(const choice_t *choice);
/* Print "delta":{...} of a chunk, and "message":{...} of a whole response. */
void chat_print_delta(cord_t *out, choice_t *choice);
void chat_print_message(cord_t *out, choice_t *choice);

#endif
