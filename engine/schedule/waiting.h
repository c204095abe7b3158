/* waiting.h: the waiting queue of the scheduler, in the order in which groups should run.
 *
 * The groups of a tenant stand together, those by best effort last, by (with the priority policy)
 * their priority, then their key and their arrival: one linked list (sequence.h) has those of all
 * tenants, and a skip list (Pugh 1990) over it finds the place of a group in O(log n), because a
 * hundred thousand groups may wait. Whose turn it is among the tenants is in tenants.h. A walk
 * meets all groups in order: that of the priorities, then the least served tenant's, then by
 * arrival. Engine thread only; allocates nothing.
 *
 * Fair shares are those of the virtual token counter (Sheng et al., "Fairness in Serving Large
 * Language Models", 2024): a tenant is charged for each token when it is computed.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WAITING_H
#define INFERD_ENGINE_SCHEDULE_WAITING_H

#include "engine/schedule/tenants.h"

typedef struct waiting {
  group_queue_t queue;            /* by tenant, each in its order */
  group_t *first[WAITING_LEVELS]; /* first group of each level of the skip list */
  group_t *oldest, *newest;       /* groups that have not begun, in order of arrival */
  bool fair_share;                /* false: no tenant is charged */
  uint64_t num_visited;    /* groups met by insertions, removals, deadlines, since the start */
  int32_t num_held;        /* groups in the queue of tenants that are held */
  int64_t weights;         /* of the tenants that have a group in the queue, their sum */
  int32_t num_groups;      /* that have arrived and not ended, wherever they are; */
  int32_t num_best_effort; /* of them, those by best effort */
  group_t *current;        /* in a walk: the group met last, if it is still there */
  int32_t walked;          /* in a walk: 1 + the tenant that was met last; see next_walked */
  tenants_t tenants;
} waiting_t;

static inline tenant_t *waiting_tenant(waiting_t *waiting, const group_t *group) {
  return &waiting->tenants.all[group->tenant];
}

/* Inserts a group that has just arrived. If no other group of its tenant waits, the tenant is
 * lifted to what the tenant whose turn is next was served, or to where the span of that begins; if
 * none waits, to the most that any tenant was served: a tenant is owed nothing for a time in which
 * it asked for nothing. */
void waiting_add(waiting_t *waiting, group_t *group);
/* Inserts a choice of a request that has begun. In a walk that has met its tenant it comes next. */
void waiting_add_choice(waiting_t *waiting, group_t *group);
/* Inserts a group that had arrived before. The group is in no queue. */
void waiting_insert(waiting_t *waiting, group_t *group);
/* Removes a group that is in the queue. */
void waiting_remove(waiting_t *waiting, group_t *group);

/* The group was admitted for the first time, or has its first token: it has left the list of
 * arrivals for good. A second call does nothing. */
void waiting_begun(waiting_t *waiting, group_t *group);
/* The group ends. It is in no queue. */
void waiting_end(waiting_t *waiting, group_t *group);

/* Tokens were planned for a group that are computed for the first time; below 0: not after all. */
void waiting_charge(waiting_t *waiting, const group_t *group, int32_t num_tokens);
/* The plan with tokens of the group is complete. */
static inline void waiting_note_served(waiting_t *waiting, const group_t *group) {
  uint64_t served = waiting_tenant(waiting, group)->served;
  if (served > waiting->tenants.most_served) waiting->tenants.most_served = served;
}

/* A walk over the groups in their order. In between, groups may leave the queue and be inserted,
 * and tenants charged; a group that was met is not met again. NULL = no group is left. Each walk
 * ends with waiting_stop. */
group_t *waiting_first(waiting_t *waiting);
group_t *waiting_next(waiting_t *waiting);
void waiting_stop(waiting_t *waiting);

/* In a walk, for the group met last: with it, its tenant would run more sequences than it may. The
 * walk meets no further group of the tenant; and if none stands before it, no walk does until
 * waiting_release. */
void waiting_hold(waiting_t *waiting, const group_t *group);
/* In a walk, for the group met last: the walk meets no further group of its tenant. */
void waiting_leave_out(waiting_t *waiting, const group_t *group);
/* The group runs fewer sequences than before. */
void waiting_release(waiting_t *waiting, const group_t *group);

#endif
