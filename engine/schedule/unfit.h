/* unfit.h: why a waiting group did not fit, kept so that it is not looked at in every step; and who
 * made room for whom.
 *
 * Part of group_t. Engine thread only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_UNFIT_H
#define INFERD_ENGINE_SCHEDULE_UNFIT_H

#include <stdbool.h>
#include <stdint.h>

/* What a group lacked when the scheduler looked at it last and it did not fit. It is looked at
 * again when so much is free, or when blocks were keyed or taken that it may share: by an
 * admission, or by a prompt that was computed whatever the cache has. */
typedef struct unfit {
  bool is_known;
  int32_t num_blocks, num_tokens; /* that must be free in the pool, and left of the step's budget */
  uint64_t num_claims;            /* scheduler.num_claims then */
} unfit_t;

/* What yield.c and pace.c keep of a group. */
typedef struct yield_state {
  uint32_t round;     /* of tenant_pace_t: when the group decoded last; 0 = never */
  int32_t num_output; /* output tokens when it made room last */
  int32_t count;      /* of its preemptions, those for a client that ran less than its share */
  bool is_chosen;     /* to be preempted now */
  bool was_granted;   /* others were preempted for it, and it was not admitted since */
  uint64_t pause;     /* scheduler.pause of the last pause that it is part of */
  uint64_t let_in;    /* scheduler.num_plans of its last admission, or when others made room last */
  uint64_t plan;      /* scheduler.num_plans of the last preemption that `count` counts */
} yield_state_t;

#endif
