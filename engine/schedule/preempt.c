/* preempt.c: who leaves `running` when blocks are short, and how; the contract is in plan.h.
 *
 * Engine thread only; allocates nothing. A preempted group releases its blocks and keeps its
 * output. Either it returns to the waiting queue and is computed again, or its blocks are swapped
 * to the host (swap.c) and it comes back before any new request.
 */
#include "engine/schedule/plan.h"

#include "engine/base/util.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/table.h"

#include <string.h>

/* Removes the entries of a group from the plan. */
void plan_remove(scheduler_t *scheduler, const group_t *group) {
  plan_t *plan = &scheduler->plan;
  int32_t kept = 0;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (entry->sequence->group == group) {
      plan->num_tokens -= entry->num_tokens;
      plan->num_drafts -= entry->num_drafts;
      plan_spend(scheduler, entry, -1);
      entry->sequence->num_charged = entry->charged_before;
      waiting_charge(&scheduler->waiting, group, -entry->num_charged);
    } else {
      plan->entries[kept++] = *entry;
    }
  }
  memmove(&plan->entries[kept], &plan->entries[plan->num_entries],
          (size_t)plan->num_wanted * sizeof *plan->entries);
  plan->num_entries = kept;
}

/* Tokens of the sequence are lost if it is computed again. The last one may have been computed and
 * taken back, because its mask was late. */
static bool has_computed(const sequence_t *seq) {
  return seq->recomputes ||
         MAX(seq->num_computed_tokens, seq->num_charged) > seq->num_cached_tokens;
}

/* Resets the sequence so that all its tokens are computed again. */
static void forget_computed(scheduler_t *scheduler, sequence_t *seq) {
  scheduler->num_recomputed_tokens += (uint64_t)seq->num_computed_tokens;
  seq->recomputes = has_computed(seq);
  seq->num_computed_tokens = 0;
  seq->num_prefill_tokens = sequence_num_planned(seq);
}

/* Those by best effort last; by priority, with that policy; then by arrival, whatever the order of
 * the queue. */
static bool came_before(const scheduler_t *scheduler, const group_t *left, const group_t *right) {
  if (left->best_effort != right->best_effort) return !left->best_effort;
  if (scheduler->options.priority_policy && left->request->priority != right->request->priority)
    return left->request->priority < right->request->priority;
  return left->arrival < right->arrival;
}

/* Inserts a group into `swapped`, which is short: its groups were running. */
static void insert_swapped(scheduler_t *scheduler, group_t *group) {
  group_t *position = scheduler->swapped.head;
  while (position != NULL && came_before(scheduler, position, group)) position = position->next;
  queue_insert_before(&scheduler->swapped, position, group);
}

/* Blocks are released last first, so the prefix cache may still have the leading ones when the
 * group resumes. */
static void leave_running(scheduler_t *scheduler, group_t *victim, bool swaps) {
  if (swaps) swap_out(scheduler, victim);
  for (sequence_t *seq = &victim->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    table_release(scheduler, seq);
    if (!swaps) forget_computed(scheduler, seq);
    sequence_set_status(seq, swaps ? SEQUENCE_SWAPPED : SEQUENCE_WAITING);
  }
  if (scheduler->pace.prefills == victim) scheduler->pace.prefills = victim->next;
  plan_count_seat(scheduler, victim, -1);
  queue_remove(&scheduler->running, victim);
  if (swaps) {
    insert_swapped(scheduler, victim);
  } else {
    waiting_insert(&scheduler->waiting, victim);
  }
  waiting_release(&scheduler->waiting, victim);
  victim->unfit.is_known = false;
  victim->planned_in = 0;
}

void plan_send_back(scheduler_t *scheduler, group_t *group) {
  plan_remove(scheduler, group);
  leave_running(scheduler, group, false);
}

/* Who was admitted in this very plan has computed nothing: it goes back to its place. */
static bool is_begun(const group_t *group) {
  bool any = group->forked;
  for (const sequence_t *seq = &group->sequence; seq != NULL && !any; seq = seq->next)
    any = sequence_is_live(seq) && has_computed(seq);
  return any;
}

void plan_preempt(scheduler_t *scheduler, group_t *victim, bool may_swap) {
  plan_remove(scheduler, victim);
  /* Forks that catch up share blocks which are not filled yet. A swap would lose the sharing; a
   * prefill finds these blocks again. */
  bool catches_up = victim->forked && plan_is_prefill(victim);
  bool begun = is_begun(victim); /* else the prefix cache has all that a swap would keep */
  /* Copies of a plan go one way: one by best effort may leave behind others that came back. */
  bool comes_back = scheduler->plan.num_swap_in > 0;
  if (begun) victim->key = 0;
  leave_running(scheduler, victim,
                may_swap && begun && !catches_up && !comes_back && swap_chosen(scheduler, victim));
  victim->num_preemptions++;
  scheduler->num_preemptions++;
  scheduler->plan.num_preempted++;
}

/* The last of `running`, or of those by best effort alone; or with the priority policy the one of
 * worst priority; never one whose token is awaited. Protected groups are chosen only if there is no
 * other victim. With the priority policy a group that runs before the requester is never preempted:
 * the requester itself counts as unprotected. NULL = all are awaited. */
static group_t *choose_among(const scheduler_t *scheduler, const group_t *requester,
                             bool best_effort) {
  group_t *victim = NULL;
  for (group_t *group = scheduler->running.tail; group != NULL; group = group->prev) {
    if ((best_effort && !group->best_effort) || scheduler_awaits(group) ||
        (plan_is_protected(scheduler, group) &&
         !(scheduler->options.priority_policy && group == requester)))
      continue;
    bool worse = scheduler->options.priority_policy && victim != NULL &&
                 came_before(scheduler, victim, group);
    if (victim == NULL || worse) victim = group;
  }
  if (victim != NULL) return victim;
  for (group_t *group = scheduler->running.tail; group != NULL; group = group->prev) {
    if ((best_effort && !group->best_effort) || scheduler_awaits(group)) continue;
    if (victim == NULL || came_before(scheduler, victim, group)) victim = group;
  }
  return victim;
}

/* One by best effort, if any runs: so none of these makes another one go. */
static group_t *choose_victim(const scheduler_t *scheduler, const group_t *requester) {
  group_t *victim = NULL;
  if (scheduler->waiting.num_best_effort > 0) victim = choose_among(scheduler, requester, true);
  return victim != NULL ? victim : choose_among(scheduler, requester, false);
}

/* Preempts groups until `need` blocks are free. Returns false if the requester itself was
 * preempted: then the caller stops planning. Keeps `next` of the caller's walk valid. */
bool plan_make_room(scheduler_t *scheduler, group_t *requester, int32_t need, group_t **next) {
  while (need > promised_num_free(scheduler)) {
    group_t *victim = choose_victim(scheduler, requester);
    if (victim == *next) *next = victim->next;
    plan_preempt(scheduler, victim, true);
    if (victim == requester) {
      /* It was alone and did not fit: what the cache has keeps its forks from sharing. */
      if (scheduler->running.count == 0) table_forget_cached(scheduler, victim);
      return false;
    }
  }
  return true;
}
