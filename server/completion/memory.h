/* memory.h: what a completion holds, told to the ledger (server/ledger).
 *
 * Thread: that of the completion, the loop or the job that reads it.
 */
#ifndef INFERD_SERVER_COMPLETION_MEMORY_H
#define INFERD_SERVER_COMPLETION_MEMORY_H

#include "server/completion/completion.h"

/* Sets the bytes of the JSON document and the rendered text. Returns 0, or ERR_OVERLOADED with the
 * intake's error set. */
int completion_charge_values(completion_t *completion, size_t bytes);
/* Counts the arena, what the inputs hold, and `more` bytes that are about to be used. As above. */
int completion_charge_ids(completion_t *completion, size_t more);

/* Each counts the output that an input, or a choice, holds. Returns false if it does not fit; the
 * caller then fails the request. */
bool completion_charge_input(input_t *input);
bool completion_charge_choice(choice_t *choice);
/* Frees the output that inputs and choices hold, and the reply unless it is being printed; gives
 * the charge back. */
void completion_free_output(completion_t *completion);

#endif
