/* llama.h: the routes of llama.cpp's server, as a dialect of completions.
 *
 * request.c turns a body of /completion or /infill into one of completions, writer.c the output
 * into llama.cpp's events or objects. props.c and slots.c answer what programs ask about the model.
 */
#ifndef INFERD_SERVER_LLAMA_LLAMA_H
#define INFERD_SERVER_LLAMA_LLAMA_H

#include "server/completion/completion.h"

/* Lies in the arena of the completion. */
typedef struct llama_state {
  bool fills_in;      /* /infill: errors speak of its fields */
  bool *has_new_line; /* of each choice, once something of it was taken */
} llama_state_t;

/* request.c */
int llama_translate_completion(completion_t *completion, reader_t *reader, const json_t *root,
                               buffer_t *body);
int llama_translate_infill(completion_t *completion, reader_t *reader, const json_t *root,
                           buffer_t *body);
/* Puts the words of these routes into errors that speak of fields of completions. */
void llama_rename(const completion_t *completion, inferd_error_t *error);

/* props.c: prints the members of `params`, as an object: what is drawn with, and how much. */
void llama_print_settings(buffer_t *out, const params_t *params, int64_t max_tokens);

#endif
