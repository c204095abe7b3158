/* ends.c: ends of groups, and of the entries of a plan; the contract is in scheduler.h.
 *
 * Engine thread only; allocates nothing. Called at the commit of a step, and when a request ends
 * for another reason.
 */
#include "engine/schedule/scheduler.h"

#include "engine/base/check.h"
#include "engine/schedule/state/states.h"
#include "engine/schedule/table.h"

void scheduler_finish(scheduler_t *scheduler, group_t *group, sequence_status_t status) {
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    table_release(scheduler, seq);
    swap_release(scheduler, seq);
    sequence_set_status(seq, status);
  }
  if (group->queue == &scheduler->waiting.queue) {
    waiting_remove(&scheduler->waiting, group);
  } else {
    queue_remove(group->queue, group);
  }
  waiting_end(&scheduler->waiting, group);
  table_give_rows(scheduler, group);
  siblings_end(scheduler, group);
}

void scheduler_complete(const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  seq->num_in_flight_tokens -= entry->num_tokens;
  seq->num_output_placeholders -= entry->do_sample;
}

void scheduler_reject(plan_entry_t *entry, int32_t num_rejected) {
  entry->num_tokens -= num_rejected;
  entry->sequence->num_computed_tokens -= num_rejected;
}

void scheduler_cut_drafts(scheduler_t *scheduler, plan_t *plan, plan_entry_t *entry,
                          int32_t count) {
  sequence_t *seq = entry->sequence;
  cost_work_t before = cost_of_tokens(entry->num_computed, entry->num_tokens);
  scheduler_reject(entry, count);
  cost_work_t after = cost_of_tokens(entry->num_computed, entry->num_tokens);
  cost_add(&plan->work, &before, -1);
  cost_add(&plan->work, &after, 1);
  plan->work.of[COST_ROW] -= count;
  plan->num_tokens -= count;
  plan->num_drafts -= count;
  seq->num_in_flight_tokens -= count;
  scheduler->drafts.num_in_flight -= count;
  entry->num_drafts -= count;
  entry->num_cut += count;
  states_cut(scheduler, entry, count);
}
