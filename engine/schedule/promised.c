/* promised.c: free blocks kept for prompts that are being admitted; the contract is in promised.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/promised.h"

#include "engine/base/check.h"

int32_t promised_num_free(const scheduler_t *scheduler) {
  return scheduler->pool->num_free - scheduler->slices.promised;
}

void promised_set(scheduler_t *scheduler, sequence_t *seq, int32_t count) {
  scheduler->slices.promised += count - seq->slices.promised;
  seq->slices.promised = count;
  CHECK_LE(scheduler->slices.promised, scheduler->pool->num_free);
}

void promised_end(scheduler_t *scheduler, sequence_t *seq) {
  if (seq->slices.total == 0) return;
  promised_set(scheduler, seq, 0);
  seq->slices.total = 0;
  seq->slices.matches = false;
  scheduler->slices.num_open--;
}
