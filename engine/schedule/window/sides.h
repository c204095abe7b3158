/* sides.h: the blocks of layers with a sliding window, which a sequence holds only while it sees
 * them.
 *
 * The layers of a model with windows are divided into groups of equally many
 * (engine/model/sizes.h). Group 0 sees everything; its blocks are those of table.h. Each other
 * group has a block table of its own behind that of group 0, and in it the side blocks (block.h) of
 * the last tokens. A sequence that has committed c tokens holds them from `floor(c / bs) - ceil((w
 * - 1) / bs)` on, because its next token sees no earlier one; entries before are 0. Blocks for the
 * tokens of a chunk are taken when the chunk is planned. Without such groups every function does
 * nothing. Engine thread only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WINDOW_SIDES_H
#define INFERD_ENGINE_SCHEDULE_WINDOW_SIDES_H

#include "engine/schedule/scheduler.h"

/* Most side blocks, of all groups, that a sequence of num_tokens tokens holds while at most
 * `in_flight` of its tokens are in flight. */
int32_t sides_most(const scheduler_t *scheduler, int64_t num_tokens, int32_t in_flight);
/* Side blocks that become free if the sequence leaves, and those with it that were counted before:
 * those that nobody else holds. Marks them; sides_forget_freed ends that. */
int32_t sides_count_freed(const scheduler_t *scheduler, const sequence_t *seq);
void sides_forget_freed(const scheduler_t *scheduler, const sequence_t *seq);

/* Blocks to take before the table covers num_tokens tokens. */
int32_t sides_need(const scheduler_t *scheduler, const sequence_t *seq, int32_t num_tokens);
void sides_grow(scheduler_t *scheduler, sequence_t *seq, int32_t num_tokens);
/* Block `index` of the table of side block number `side`. */
static inline int32_t *sides_at(const scheduler_t *scheduler, const sequence_t *seq, int32_t side,
                                int32_t index) {
  return &seq->blocks[(side + 1) * scheduler->table_stride + index];
}

/* The largest count of at most `num_full` leading blocks behind which a sequence can go on: their
 * last ones, those that it sees, have side blocks. `block` is the last of the num_full blocks. */
int32_t sides_agree(const scheduler_t *scheduler, int32_t block, int32_t num_full);
/* Takes the attached side blocks that are needed behind `num_full` blocks of the table. */
void sides_take(scheduler_t *scheduler, sequence_t *seq, int32_t num_full);
/* Whether seq, which can continue behind seq->sides.end blocks, can do so behind the first num_full
 * blocks of its table. */
bool sides_can_pass(const scheduler_t *scheduler, const sequence_t *seq, int32_t num_full);

/* After block `index` of the table got an identity or more valid rows, written by seq: attaches its
 * side blocks. With `missing` only where none is attached. */
void sides_attach(scheduler_t *scheduler, const sequence_t *seq, int32_t index, bool missing);
/* `child` shares what the parent holds of its first num_blocks blocks. */
void sides_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child);
/* Releases the blocks that a sequence does not see any more behind num_full committed blocks. */
void sides_leave(scheduler_t *scheduler, sequence_t *seq, int32_t num_full);
/* Releases the blocks at `index`. */
void sides_release(scheduler_t *scheduler, sequence_t *seq, int32_t index);

#endif
