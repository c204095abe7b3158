/* sources.c: groups of a decoder behind an encoder in a plan; the contract is in sources.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/sources.h"

#include "engine/schedule/cross_blocks.h"

bool sources_lack(const scheduler_t *scheduler, const group_t *group) {
  return scheduler->cross_blocks != NULL &&
         !cross_blocks_has(scheduler->cross_blocks, group->request);
}

group_t *sources_next(scheduler_t *scheduler, const pictures_begun_t *begun, int32_t longest) {
  group_t *next = NULL;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    if (group->request->source->length > longest || !sources_lack(scheduler, group) ||
        cross_blocks_is_begun(scheduler->cross_blocks, group->request))
      continue;
    if (next != NULL && !pictures_goes_before(scheduler, group, next)) continue;
    if (pictures_may_begin(scheduler, begun, group)) next = group;
  }
  return next;
}

void sources_mark(const scheduler_t *scheduler) {
  cross_blocks_t *cross = scheduler->cross_blocks;
  cross_blocks_unmark(cross);
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    cross_blocks_mark(cross, group->request, CROSS_MUST_STAY);
  for (const group_t *group = scheduler->waiting.queue.head; group != NULL; group = group->next)
    if (group->num_preemptions > 0 || !group_is_lead(group))
      cross_blocks_mark(cross, group->request, CROSS_IS_WANTED);
}
