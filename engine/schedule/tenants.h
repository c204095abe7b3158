/* tenants.h: the clients of the requests that the engine has: what each of them was served, which
 * of its groups is its next one, and whose turn it is.
 *
 * A tenant stays in the table while it has a live group, and then until its place is needed. A heap
 * has the tenants that offer a group: the top is the one whose turn is next. One whose group runs
 * by best effort comes behind all others; then by (with the priority policy) the priority of the
 * group that it offers; then, least served first, where all that lies in one span counts as equal;
 * then by the (key and) arrival of that group. All zero bytes are an empty table. Engine thread
 * only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_TENANTS_H
#define INFERD_ENGINE_SCHEDULE_TENANTS_H

#include "engine/schedule/sequence.h"

enum {
  TENANTS_MAX = 4096,    /* places; further tenants share the place 0 */
  SERVED_TOKEN = 1000000 /* of a token in `served`, for a tenant of weight 1 */
};

/* What pace.c keeps of a tenant. All but the last three is of one plan. */
typedef struct tenant_pace {
  uint64_t number;     /* of the pace that the rest belongs to */
  int32_t num_decodes; /* groups that decode */
  bool is_due;         /* a group decodes, or its prompt may end in this step */
  double decodes_ns;   /* cost of those that decode */
  double drafts_ns;    /* cost of the draft tokens behind them that are planned */
  double spent_ns;     /* cost of what is planned */
  double aside_ns;     /* cost of what is set aside for its first prompt */
  double seats_ns;     /* cost of a token of each of its groups that run, where seats are counted */
  int32_t num_planned; /* entries */
  bool is_late;        /* a group whose turn it is sits out */
  bool sits_out;       /* a group that had its turn in this round sits out */
  uint32_t round;      /* each of its groups decodes once in a round, if they do not all fit */
  /* Numbers of paces, 0 = none: since when time alone keeps its next prompt from beginning, and
   * since when a prompt of it that runs could have had a block and got none. */
  uint64_t held_from, lacks_from;
} tenant_pace_t;

typedef struct tenant {
  uint64_t name;      /* request_t.tenant */
  uint64_t served;    /* SERVED_TOKEN / weight for each token that was computed for it */
  uint32_t weight;    /* >= 1 once it has had a group */
  int32_t num_groups; /* live ones */
  group_t *first;     /* its first group that waits; NULL = none */
  group_t *offered;   /* in a walk (waiting.h) that has met a group of it: its next one */
  bool walked;        /* the walk has met a group of it */
  int32_t num_looked; /* groups of it that the walk has looked at */
  uint64_t asked_ns;  /* when it was last seen to have a group */
  bool held;          /* it runs as many sequences as it may, so it offers no group */
  int32_t place;      /* 1 + its index in the heap; 0 = it is not there */
  bool is_lower;      /* it is there with a group by best effort */
  int32_t next_walked;
  int32_t chain, older, newer; /* next one of its bucket; neighbours among those without groups */
  uint64_t counted_in;         /* scheduler.num_counts when the two counts were made; else both 0 */
  int32_t num_running;         /* sequences */
  int32_t num_blocks;          /* entries in block tables of these */
  int32_t num_waiting;         /* groups in the waiting queue */
  int32_t num_rows;            /* that its groups hold, those that were preempted as well */
  tenant_pace_t pace;
} tenant_t;

typedef struct tenants {
  bool priority_policy;
  uint64_t span;        /* of `served`, in which tenants count as equally served; 0 = of 1 */
  uint64_t most_served; /* the largest `served` that any tenant had when a plan was complete */
  int32_t num_used;     /* places that were ever used, but for place 0 */
  int32_t oldest_idle, newest_idle;
  int32_t looked_at;             /* place; scheduler.c looks at them in turn */
  int32_t num_offers, num_lower; /* tenants in the heap; of them, those that are lower */
  int32_t heap[TENANTS_MAX + 1]; /* [num_offers] places */
  int32_t buckets[2 * TENANTS_MAX];
  tenant_t all[TENANTS_MAX + 1];
} tenants_t;

/* A group of this tenant has arrived: returns the tenant's place, 0 if all others are taken. */
int32_t tenants_take(tenants_t *tenants, uint64_t name);
/* A group of this tenant has ended. */
void tenants_give(tenants_t *tenants, int32_t index);

/* True if `left` should run before `right`, if both are of one tenant: not by best effort first;
 * then by priority, with that policy; then by key; then by arrival. A strict order: no two groups
 * are equal. */
bool tenants_precedes(const tenants_t *tenants, const group_t *left, const group_t *right);

/* The tenant offers another group, or was served: gives it its place in the heap. */
void tenants_update(tenants_t *tenants, tenant_t *tenant);
/* The tenant whose turn is next; NULL = none offers a group. */
tenant_t *tenants_next(tenants_t *tenants);

#endif
