/* unfit.h: why a waiting group did not fit, kept so that it is not looked at in every step.
 *
 * Part of group_t. Engine thread only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_UNFIT_H
#define INFERD_ENGINE_SCHEDULE_UNFIT_H

#include <stdbool.h>
#include <stdint.h>

/* What a group lacked when the scheduler looked at it last and it did not fit. It is looked at
 * again when so much is free, or when an admission has keyed blocks that it may share. */
typedef struct unfit {
  bool is_known;
  int32_t num_blocks, num_tokens; /* that must be free in the pool, and left of the step's budget */
  uint64_t num_claims;            /* scheduler.num_claims then */
} unfit_t;

#endif
