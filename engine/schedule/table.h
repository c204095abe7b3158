/* table.h: what a sequence holds while it runs: its row of the tables and its KV blocks.
 *
 * Matching against the prefix cache, growing, copy-on-write, forking, publishing, giving back.
 * Engine thread only, called by the scheduler; nothing here allocates memory or decides who runs.
 */
#ifndef INFERD_ENGINE_SCHEDULE_TABLE_H
#define INFERD_ENGINE_SCHEDULE_TABLE_H

#include "engine/schedule/scheduler.h"

/* ---- rows: all those that a group will need, taken at its first admission ---- */
bool table_take_rows(scheduler_t *scheduler,
                     group_t *group); /* false = none left; takes nothing then */
void table_give_row(scheduler_t *scheduler, sequence_t *seq);
/* The rows and objects of every sequence but the first, and the row of the first. */
void table_give_rows(scheduler_t *scheduler, group_t *group);

/* ---- the prefix cache at admission ---- */
typedef struct prefix_match {
  int32_t num_blocks; /* found by key, written to q->blocks and not yet held */
  int32_t num_unused; /* of them, and of `partial`, free now: taking them shrinks the free count */
  int32_t num_valid;  /* leading ones that are committed */
  prefix_partial_t partial; /* rows of the block behind them; only if all of them are committed */
  int32_t num_cached;       /* tokens of the valid blocks and the partial one */
} prefix_match_t;
prefix_match_t table_match(const scheduler_t *scheduler, sequence_t *seq);
/* Leaves the partial block out of a match. */
void table_match_whole(const scheduler_t *scheduler, prefix_match_t *match);
/* Takes the match, grows to `num_tokens` tokens, plans the copy of the partial block and keys the
 * blocks whose ids are known: seq will fill them, and others may share them from now on. The caller
 * has checked that the pool has room. */
void table_admit(scheduler_t *scheduler, sequence_t *seq, const prefix_match_t *match,
                 int32_t num_tokens);

/* Keys the first num_full blocks, whose ids are known, until one has a twin: what seq has computed
 * is valid, the rest is q's to fill. */
void table_claim(scheduler_t *scheduler, sequence_t *seq, int32_t num_full);

/* ---- growth ---- */
/* Passes blocks that another sequence fills, as far as they are valid. False: the next one is still
 * being filled, nothing can be computed in this step. */
bool table_advance(scheduler_t *scheduler, sequence_t *seq);
/* The block at the next position when it is shared by a fork and must be copied first; 0 = none. */
int32_t table_shared(const scheduler_t *scheduler, const sequence_t *seq);
/* Blocks to take before seq can compute `n` more tokens, the copy of a shared one counted. */
int32_t table_need(const scheduler_t *scheduler, const sequence_t *seq, int32_t n);
/* The same for the num_wanted tokens of every sequence of a group; the last of the sharers of a
 * block writes in place. */
int32_t table_need_group(const scheduler_t *scheduler, const group_t *group);
/* Takes them; the caller has checked that they are there. */
void table_grow(scheduler_t *scheduler, sequence_t *seq, int32_t n);
/* The blocks under n tokens from num_computed on are written by this step. */
void table_written(scheduler_t *scheduler, const sequence_t *seq, int32_t n);

/* `child` holds the blocks of `parent` too, as far as they are computed. */
void table_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child);
/* Gives every block back, the last one first. Copies that were planned for seq are taken back.
 * Blocks that seq was to fill pass to the first sharer. */
void table_release(scheduler_t *scheduler, sequence_t *seq);

#endif
