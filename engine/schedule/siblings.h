/* siblings.h: the groups of the independent choices of one request (n, best_of).
 *
 * Each choice is a group of one sequence, so the scheduler treats choices like requests: they take
 * the places that are free, make room one by one, and none waits for another. The group of choice
 * 0, the lead, comes with the request and computes the prompt. With its first token the next choice
 * begins to wait; when that is admitted, the one behind it. So of a request one choice at most
 * waits that has not run. A choice takes the blocks of the prompt from a sibling that runs, or from
 * the prefix cache, and computes the last token of the prompt, whose logits it draws from. The bits
 * are those of one row from which all draw. Engine thread only; group_store_new alone
 * allocates.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SIBLINGS_H
#define INFERD_ENGINE_SCHEDULE_SIBLINGS_H

#include "engine/schedule/sequence.h"

struct scheduler;

/* Groups for choices behind the lead, without memory until they are used. */
typedef struct group_store {
  group_t *all; /* [count] */
  int32_t count, num_made;
  group_t *free;  /* linked by `next` */
  group_t *ended; /* since the last plan: a step that is being committed may name them */
} group_store_t;

/* Room for `count` groups. Returns 0 or -1 without memory. */
int group_store_new(group_store_t *store, int32_t count);
void group_store_free(group_store_t *store);
/* A plan is made: the groups that have ended may be used again. */
void group_store_renew(group_store_t *store);

static inline bool group_is_lead(const group_t *group) {
  return group->siblings.lead == group;
}
/* Whether a choice of the request has not begun. */
static inline bool siblings_are_left(const group_t *group) {
  const group_t *lead = group->siblings.lead;
  return lead->siblings.num_begun < lead->siblings.num_choices;
}
/* Another group of the request, for a walk over those that are there: `at` NULL begins it. NULL =
 * all were met but the lead. */
static inline group_t *siblings_next(const group_t *lead, const group_t *at) {
  return at == NULL ? lead->siblings.next : at->siblings.next;
}

/* The next choice of the request waits, if one is left. Returns its group or NULL. */
group_t *siblings_begin(struct scheduler *scheduler, group_t *group);
/* The choice of this group, which is in no queue, has ended. A lead stays. */
void siblings_end(struct scheduler *scheduler, group_t *group);

#endif
