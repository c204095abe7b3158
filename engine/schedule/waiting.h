/* waiting.h: the waiting queue of the scheduler, sorted by the order in which groups should run.
 *
 * The queue is a linked list (sequence.h), so a walk from its head meets the groups in order. A
 * skip list (Pugh 1990) over the same groups finds the place of a group in O(log n), because a
 * hundred thousand groups may wait. The order: with the priority policy the priority; then, with
 * fair shares, the place of the tenant; then the arrival. A group keeps its place while it waits,
 * also after a preemption. Engine thread only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WAITING_H
#define INFERD_ENGINE_SCHEDULE_WAITING_H

#include "engine/schedule/sequence.h"

enum {
  FAIR_TENANTS_MAX = 4096, /* tenants that can have more than their share at the same time */
  FAIR_PLACES = 2 * FAIR_TENANTS_MAX
};

/* One tenant that has asked for more than was admitted so far. */
typedef struct fair_tenant {
  uint64_t tenant;
  uint64_t end; /* where its next request starts; 0 = this place is empty */
} fair_tenant_t;

typedef struct waiting {
  group_queue_t queue;            /* sorted: the head should run first */
  group_t *first[WAITING_LEVELS]; /* first group of each level of the skip list */
  group_t *oldest, *newest;       /* groups that were never admitted, in order of arrival */
  bool priority_policy, fair_share;
  uint64_t num_visited; /* groups that insertions and removals have looked at, since the start */
  /* Fair share, in tokens: the latest start that was admitted, and a hash table of the tenants
   * whose next request starts behind it. */
  uint64_t fair_now;
  int32_t num_tenants;
  fair_tenant_t tenants[FAIR_PLACES];
} waiting_t;

/* True if `left` should run before `right`. A strict order: no two groups are equal. */
bool waiting_precedes(const waiting_t *waiting, const group_t *left, const group_t *right);

/* Gives a group that has just arrived its place, and inserts it. The group is in no queue. */
void waiting_add(waiting_t *waiting, group_t *group);
/* Inserts a group at the place that it was given by waiting_add. The group is in no queue. */
void waiting_insert(waiting_t *waiting, group_t *group);
/* Removes a group that is in the queue. */
void waiting_remove(waiting_t *waiting, group_t *group);

/* The group was admitted for the first time: it has left the list of arrivals for good, and later
 * requests of absent tenants start no earlier than it did. */
void waiting_admitted(waiting_t *waiting, group_t *group);
/* The group ends. Removes it from the list of arrivals, if it is there. */
void waiting_forget(waiting_t *waiting, group_t *group);

#endif
