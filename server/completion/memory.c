/* memory.c: what a completion holds, told to the ledger.
 *
 * The thread of the completion: the loop, or the job that reads it.
 */
#include "server/completion/completion.h"

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
