/* swap.h: preemption by swap: which host block holds what, for whom.
 *
 * A victim's blocks are copied to the host pool, each different one once, and come back before it
 * runs again: to other numbers, shared as they were, findable as they were. What the prefix cache
 * still has is taken from there instead. Only the books are kept here; the copies stand in the plan
 * and are made by the back end before the step (swap_ops.h), so a block may be given away as soon
 * as its copy is planned. Called by the scheduler on the engine thread; allocates in swap_new only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SWAP_H
#define INFERD_ENGINE_SCHEDULE_SWAP_H

#include "engine/device/swap_ops.h"

#include <stdbool.h>
#include <stdint.h>

struct scheduler;
struct sequence;
struct group;

typedef enum preemption_mode {
  PREEMPT_AUTO, /* swap groups of several sequences, and who would take longer to compute again */
  PREEMPT_RECOMPUTE,
  PREEMPT_SWAP /* while the host pool has room */
} preemption_mode_t;

typedef struct swap_options {
  int32_t num_blocks; /* of the host pool; 0 = none */
  preemption_mode_t mode;
} swap_options_t;

typedef struct host_block {
  int32_t ref_count; /* host tables that name it; 0 = free */
  int32_t device;    /* while its group comes back: where it lies by now, else 0 */
  int32_t mark;      /* scratch, 0 between uses */
} host_block_t;

typedef struct swap {
  host_block_t *blocks; /* [num_blocks] */
  int32_t *free;        /* [num_free] numbers */
  int32_t num_free;
  int32_t *tables; /* [num_rows, K]: host tables, by row of the token table; touched lazily */
  /* set by the engine as it measures; 0 = not yet */
  double block_ns;                                        /* one block, one way */
  double token_ns;                                        /* of a prefill */
  uint64_t num_groups_out, num_blocks_out, num_blocks_in; /* since start */
} swap_t;

/* 0, or -1 without memory; swap_free in every case. */
int swap_new(struct scheduler *scheduler);
void swap_free(struct scheduler *scheduler);
/* The host table of a row; NULL without a host pool. */
int32_t *swap_table(const struct scheduler *scheduler, int32_t row);

/* Whether a running group that has to go should be swapped: there is room, and it is worth it. */
bool swap_chosen(const struct scheduler *scheduler, const struct group *group);
/* Plans the copies of everything that the group has computed, and takes host blocks for it. Its
 * device blocks stay its own: the caller releases them next. */
void swap_out(struct scheduler *scheduler, struct group *group);

typedef enum swap_verdict { SWAP_OK, SWAP_LATER, SWAP_NEVER } swap_verdict_t;
/* Whether a swapped group could come back now, with the blocks that its next tokens need. */
swap_verdict_t swap_verdict(struct scheduler *scheduler, const struct group *group);
/* Rebuilds the block tables of a group that may come back, plans the copies, takes what its next
 * tokens need, and frees its host blocks. */
void swap_in(struct scheduler *scheduler, struct group *group);

/* Gives the host blocks of a sequence back, if it has any. */
void swap_release(struct scheduler *scheduler, struct sequence *sequence);

#endif
