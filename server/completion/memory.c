/* memory.c: what a completion holds, told to the ledger, see memory.h.
 *
 * The thread of the completion: the loop, or the job that reads it.
 */
#include "server/completion/memory.h"

#include "engine/base/check.h"
#include "server/completion/dialect.h"

static int resize(completion_t *completion, charge_t *charge, size_t bytes) {
  return charge_resize(charge, bytes) ? 0 : ledger_refuse(charge, &completion->intake->error);
}

int completion_charge_values(completion_t *completion, size_t bytes) {
  return resize(completion, &completion->intake->values, bytes);
}

int completion_charge_ids(completion_t *completion, size_t more) {
  size_t bytes = completion->arena.held + more;
  for (int32_t i = 0; i < completion->num_inputs; i++) bytes += completion->inputs[i].held;
  return resize(completion, &completion->ids, bytes);
}

static size_t input_bytes(const input_t *input) {
  return input->prompt_ids.capacity + input->prompt_logprobs.capacity +
         input->prompt_gaps.capacity + input->echo.capacity + input->echo_text.capacity +
         logprob_text_held(&input->echo_logprobs);
}

static size_t choice_bytes(const choice_t *choice) {
  const completion_t *completion = choice->input->completion;
  const dialect_t *dialect = completion->dialect;
  return choice->text.capacity + choice->reasoning.capacity + choice->tool_calls.capacity +
         choice->token_ids.capacity + logprob_text_held(&choice->logprobs) +
         (dialect->held != NULL ? dialect->held(completion) : 0);
}

/* Sets the bytes of one part of the output to `now`; *held is what it was. */
static bool charge_part(completion_t *completion, size_t *held, size_t now) {
  charge_t *output = &completion->output;
  if (now == *held) return true;
  if (!charge_resize(output, output->bytes - *held + now)) return false;
  *held = now;
  return true;
}

bool completion_charge_input(input_t *input) {
  return charge_part(input->completion, &input->held_output, input_bytes(input));
}

bool completion_charge_choice(choice_t *choice) {
  completion_t *completion = choice->input->completion;
  size_t frames = completion->in_pieces ? cord_held(&completion->reply) : 0;
  return charge_part(completion, &completion->held_frames, frames) &&
         charge_part(completion, &choice->held, choice_bytes(choice));
}

void completion_free_output(completion_t *completion) {
  for (int32_t i = 0; i < completion->num_choices; i++) {
    choice_t *choice = &completion->choices[i];
    choice->held = 0;
    buffer_free(&choice->text);
    buffer_free(&choice->reasoning);
    buffer_free(&choice->tool_calls);
    buffer_free(&choice->token_ids);
    logprob_text_free(&choice->logprobs);
  }
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    input->held_output = 0;
    buffer_free(&input->prompt_ids);
    buffer_free(&input->prompt_logprobs);
    buffer_free(&input->prompt_gaps);
    buffer_free(&input->echo);
    buffer_free(&input->echo_text);
    logprob_text_free(&input->echo_logprobs);
  }
  if (completion->dialect->free != NULL) completion->dialect->free(completion);
  if (completion->replying) { /* the transport still prints it */
    (void)charge_resize(&completion->output, completion->held_frames);
    return;
  }
  cord_free(&completion->reply);
  completion->held_frames = 0;
  charge_drop(&completion->output);
}
