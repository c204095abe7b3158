/* siblings.c: the groups of the independent choices of one request; the contract is in siblings.h.
 */
#include "engine/schedule/siblings.h"

#include "engine/base/check.h"
#include "engine/device/pages.h"
#include "engine/schedule/scheduler.h"

/* ---- the store ---- */

int group_store_new(group_store_t *store, int32_t count) {
  store->all = pages_map((size_t)count * sizeof *store->all);
  store->count = store->all != NULL ? count : 0;
  return store->all != NULL ? 0 : -1;
}

void group_store_free(group_store_t *store) {
  pages_unmap(store->all, (size_t)store->count * sizeof *store->all);
}

void group_store_renew(group_store_t *store) {
  while (store->ended != NULL) {
    group_t *group = store->ended;
    store->ended = group->next;
    group->next = store->free;
    store->free = group;
  }
}

/* There is one for each row, one for each request, of which a choice may wait, and one for each row
 * of a step, whose choices may have ended since the last plan. */
static group_t *take(group_store_t *store) {
  group_t *group = store->free;
  if (group != NULL) {
    store->free = group->next;
    return group;
  }
  CHECK_LT(store->num_made, store->count);
  return &store->all[store->num_made++];
}

/* ---- choices ---- */

group_t *siblings_begin(scheduler_t *scheduler, group_t *group) {
  group_t *lead = group->siblings.lead;
  if (!siblings_are_left(lead)) return NULL;
  group_t *choice = take(&scheduler->choices);
  group_init_choice(choice, lead, lead->siblings.num_begun++);
  choice->siblings.next = lead->siblings.next;
  lead->siblings.next = choice;
  /* Its place is that of the request, whose prompt costs nothing any more. */
  choice->key = scheduler->options.ageing > 0 ? lead->request->arrival_ns : 0;
  choice->masks.wait = choice->masks.slow =
      scheduler->options.has_states && lead->request->grammar != NULL;
  sequence_set_status(&choice->sequence, SEQUENCE_WAITING);
  waiting_add_choice(&scheduler->waiting, choice);
  return choice;
}

void siblings_end(scheduler_t *scheduler, group_t *group) {
  group_t *at = group->siblings.lead;
  if (group == at) return;
  while (at->siblings.next != group) at = at->siblings.next;
  at->siblings.next = group->siblings.next;
  group->next = scheduler->choices.ended;
  scheduler->choices.ended = group;
}
