/* chat.h: what chat requests do differently from plain completions.
 *
 * A chat request is a completion_t like any other: one life, one path of events. Its prompt comes
 * from a template, what it generates goes through a parser that takes thoughts and tool calls out
 * of it (server/parser), and it is printed in another shape.
 */
#ifndef INFERD_SERVER_COMPLETION_CHAT_H
#define INFERD_SERVER_COMPLETION_CHAT_H

#include "server/completion/completion.h"

/* chat_model.c: what the model's chat templates are and how it writes calls; main thread. */
/* Reads the templates. Those of a model that cannot be used make chat answer 400 with the reason;
 * one that the operator gave makes the start fail. 0 or an error. */
int chat_model_load(completions_t *live, const config_t *config, error_t *error);
/* Once the tokenizer is there: the formats of tool calls and thoughts, unless options say them.
 * Does something the first time only: a request may come before the loop knows that the model is
 * there.
 */
void chat_model_ready(completions_t *live, const config_t *config, const tokenizer_t *tokenizer);
void chat_model_free(completions_t *live);

/* chat_prompt.c: loop thread or pool. */
/* Renders the messages: the one prompt of the completion is then text. 0 or an error. */
int chat_render(completion_t *completion);
/* The same for /tokenize. The output is freed by the caller (jinja_output_free). */
int chat_render_input(const completions_t *live, const chat_params_t *chat, jinja_output_t *out,
                      error_t *error);
/* Tells the tokenizer where no special token may be found: in what a request has brought. */
void chat_hide_specials(const server_t *server, const jinja_output_t *rendered,
                        tokenize_options_t *options);
/* Makes the parsers of the choices, and begins them with the last message when it is echoed. 0 or
 * an error. */
int chat_begin_choices(completion_t *completion);

/* chat_output.c: loop thread. */
/* Takes text that the engine has just handed out into the choice's message. */
void chat_add_text(choice_t *choice, const char *text, size_t length);
void chat_end_text(choice_t *choice); /* the text has ended */
bool chat_is_reasoning(const choice_t *choice);
bool chat_failed(const choice_t *choice); /* memory was short */
/* "delta":{...} of a chunk, and "message":{...} of a whole response. */
void chat_print_delta(buffer_t *out, choice_t *choice);
void chat_print_message(buffer_t *out, choice_t *choice);

#endif
