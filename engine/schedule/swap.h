/* swap.h: preemption by swap: which host block holds which device block's content.
 *
 * When a group is preempted by swap, each different block of it is copied to the host pool once.
 * Before the group runs again its blocks are copied back: to other block numbers, but shared and
 * findable as before. Leading blocks that the prefix cache still has are taken from there and not
 * copied. This module only keeps the records. The copies stand in the plan, and the back end
 * launches them before the step (swap_ops.h), so a block may be allocated again as soon as its copy
 * is planned. Called by the scheduler on the engine thread; allocates in swap_new only.
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
  PREEMPT_AUTO,      /* swap a group that has several sequences, or if swapping is the faster way */
  PREEMPT_RECOMPUTE, /* never swap: compute the tokens again */
  PREEMPT_SWAP       /* swap as long as the host pool has enough free blocks */
} preemption_mode_t;

typedef struct swap_options {
  int32_t num_blocks; /* of the host pool; 0 = none */
  preemption_mode_t mode;
} swap_options_t;

typedef struct host_block {
  int32_t ref_count; /* host tables that name it; 0 = free */
  int32_t device;    /* in swap_in: the device block that takes its content; else 0 */
  int32_t mark;      /* scratch, 0 between uses */
} host_block_t;

typedef struct swap {
  host_block_t *blocks; /* [num_blocks] */
  int32_t *free;        /* [num_free] numbers of free host blocks */
  int32_t num_free;
  int32_t *tables; /* [num_rows, table_stride] host tables, by row; NULL without a host pool */
  /* Times measured by the engine; 0 = not measured yet. */
  double block_ns;                                        /* to copy one block one way */
  double token_ns;                                        /* to prefill one token */
  uint64_t num_groups_out, num_blocks_out, num_blocks_in; /* since start */
} swap_t;

/* Makes scheduler->swap and plan.swaps for options.swap.num_blocks host blocks; nothing if that is
 * 0. Returns 0, or -1 without memory. The caller calls swap_free in both cases. */
int swap_new(struct scheduler *scheduler);
void swap_free(struct scheduler *scheduler);

/* True if a running group that is preempted should be swapped and not computed again: the host pool
 * has enough free blocks for it, and the mode (preemption_mode_t) asks for it. */
bool swap_chosen(const struct scheduler *scheduler, const struct group *group);
/* Takes host blocks for everything that the group has computed, and plans the copies. swap_chosen
 * must be true. The device blocks stay with the group: the caller releases them next. */
void swap_out(struct scheduler *scheduler, struct group *group);

typedef enum swap_verdict {
  SWAP_OK,    /* the group can come back in this step */
  SWAP_LATER, /* too few blocks are free now */
  SWAP_NEVER  /* the group needs more blocks than the pool has */
} swap_verdict_t;
/* Says whether a swapped group can come back now, with the blocks that its next tokens need. If not
 * now, notes in group->unfit how many blocks must be free. */
swap_verdict_t swap_verdict(struct scheduler *scheduler, struct group *group);
/* For a group whose verdict is SWAP_OK: rebuilds its block tables, plans the copies, allocates the
 * blocks that its next tokens need, and frees its host blocks. */
void swap_in(struct scheduler *scheduler, struct group *group);

/* Frees the host blocks of a sequence, if it has any. */
void swap_release(struct scheduler *scheduler, struct sequence *sequence);

#endif
