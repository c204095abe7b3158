/* table.h: what a sequence holds while it runs: its row of the tables and its KV blocks.
 *
 * If the model keeps a state per sequence, also a slot for it (states.h), taken and given back with
 * the blocks. Matching against the prefix cache, growth, copy-on-write, forks, publication,
 * release. Engine thread only, called by the scheduler and swap.c. No function here allocates
 * memory or decides which sequence runs. Positions and counts are in tokens, unless their name says
 * blocks.
 */
#ifndef INFERD_ENGINE_SCHEDULE_TABLE_H
#define INFERD_ENGINE_SCHEDULE_TABLE_H

#include "engine/schedule/scheduler.h"

/* ---- tokens to blocks: by a shift, because it is done several times for each token ---- */
/* Index, in a block table, of the block of a position. */
static inline int32_t block_index(const block_pool_t *pool, int32_t position) {
  return position >> pool->block_shift;
}
/* Place of a position in its block. */
static inline int32_t block_offset(const block_pool_t *pool, int32_t position) {
  return position & (pool->block_size - 1);
}
/* Blocks that a sequence of `num_tokens` tokens needs. */
static inline int32_t scheduler_blocks_for(const scheduler_t *scheduler, int64_t num_tokens) {
  const block_pool_t *pool = scheduler->pool;
  return (int32_t)((num_tokens + pool->block_size - 1) >> pool->block_shift);
}

/* ---- rows ---- */
/* Takes, at the first admission of a group, the rows and sequences that it will ever need. A row
 * has the ids of the output, behind the place of the prompt, and of the prompt those that lie in
 * the block with the output; the request has the rest, so that what a fork copies does not grow
 * with the prompt. Returns false, and takes nothing, if too few rows are free. */
bool table_take_rows(scheduler_t *scheduler, group_t *group);
/* The id at a position of the known tokens, or of the draft tokens behind them. */
static inline int32_t table_id(const sequence_t *seq, int32_t position) {
  bool of_prompt = position < seq->num_prompt_tokens;
  return (of_prompt ? seq->group->request->prompt_ids : seq->tokens)[position];
}
/* Appends the id that was drawn. */
static inline void table_add_id(sequence_t *seq, int32_t id) {
  seq->tokens[seq->num_prompt_tokens + seq->num_output_tokens++] = id;
  seq->last_id = id;
}
/* Returns the rows of all sequences of the group, whose blocks must be released before, and every
 * sequence but the first to the pool. */
void table_give_rows(scheduler_t *scheduler, group_t *group);

/* ---- the prefix cache at admission ---- */
typedef struct prefix_match {
  /* full blocks found by key; written to seq->blocks, if it holds a row, and not held yet */
  int32_t num_blocks;
  int32_t
      num_unused;    /* those of them, and `partial`, that are free: holding them lowers num_free */
  int32_t num_valid; /* leading blocks that are committed; another sequence fills the rest */
  /* full blocks behind num_blocks that others hold; more than 0 only if num_blocks is a slice */
  int32_t num_held_behind;
  prefix_partial_t partial; /* rows of the block after them; only if all num_blocks are committed */
  int32_t num_cached;       /* tokens of the valid blocks and of the partial block */
  int32_t snapshot;         /* with states: the one behind num_blocks; 0 = none, and no blocks */
  int32_t num_known;        /* with states: tokens of full blocks that were found */
} prefix_match_t;
/* Finds the longest run of known blocks, `most` at most; if it ends there, those behind it that
 * others hold are counted. It never includes the last token, whose forward yields the logits. With
 * states it ends at the last snapshot. Returns an empty match if the request still has to score its
 * prompt. */
prefix_match_t table_match(scheduler_t *scheduler, const sequence_t *seq, int32_t most);
/* Of several choices, for one that has drawn nothing, or without prefix caching: a sibling that
 * runs and holds the prompt. Its blocks are the match, up to the last token of the prompt, whatever
 * the cache has and however long the prompt is. NULL = none, as always with states and windows. */
const sequence_t *table_prompt_holder(const scheduler_t *scheduler, const sequence_t *seq);
/* What the full block of seq at `index` after the block `parent` is found by. Returns false if it
 * must not be taken from others: it has the last token, or a token that is still to be scored. */
typedef struct block_wanted {
  block_key_t key;
  prefix_place_t place;
  const int32_t *token_ids; /* [block_size] */
} block_wanted_t;
bool table_wanted(scheduler_t *scheduler, const sequence_t *seq, int32_t index, int32_t parent,
                  block_wanted_t *out);
/* Returns the known full block of seq at `index` after the block `parent` (NO_BLOCK at index 0),
 * whether or not it is computed; NO_BLOCK = none. Writes nothing. */
int32_t table_find(scheduler_t *scheduler, const sequence_t *seq, int32_t index, int32_t parent);
/* Leading tokens of the prompt whose blocks the cache has; 0 if the request brings no keys. */
int32_t table_count_cached(scheduler_t *scheduler, const sequence_t *seq);
/* With side blocks: takes what the prefix cache has for forks that compute again out of it, so that
 * the first one claims its blocks and the others share them. Returns false if it has nothing that
 * nobody holds. */
bool table_forget_cached(scheduler_t *scheduler, const group_t *group);
/* Removes the partial block from a match. */
void table_match_whole(const scheduler_t *scheduler, prefix_match_t *match);
/* Takes the blocks of the match, grows the table to `num_tokens` tokens, and that of side blocks
 * (sides.h), which those of the match agree with, to `num_seen` tokens; plans the copy of the
 * partial block, and keys the blocks whose ids are known: seq will fill them, and other sequences
 * may share them from now on. The caller has checked that the pool has enough free blocks. */
void table_admit(scheduler_t *scheduler, sequence_t *seq, const prefix_match_t *match,
                 int32_t num_tokens, int32_t num_seen);

/* Keys the first num_full blocks, whose ids must be known, up to the first whose content another
 * block has. Computed blocks become valid; seq becomes the filler of the rest. */
void table_claim(scheduler_t *scheduler, sequence_t *seq, int32_t num_full);

/* ---- growth ---- */
/* Adds one block to the table: `block`, which table_find has returned, or with NO_BLOCK a free one,
 * which must be there; it is keyed like those of table_admit. num_computed ends at a block. */
void table_append(scheduler_t *scheduler, sequence_t *seq, int32_t block);
/* Raises num_computed over the valid blocks that another sequence has filled. Returns false if the
 * next block is still being filled by another sequence, or is not in the table yet (slices.h): then
 * seq cannot compute in this step. Sets is_lost if it never can. */
bool table_advance(scheduler_t *scheduler, sequence_t *seq);
/* Of the next n tokens those before the first block that another sequence fills. */
int32_t table_own_tokens(const scheduler_t *scheduler, const sequence_t *seq, int32_t n);
/* Returns the number of blocks to allocate before seq can compute `n` more tokens; the copy of a
 * shared block counts. */
int32_t table_need(const scheduler_t *scheduler, const sequence_t *seq, int32_t n);
/* The same for what entries of one group want. If all holders of a block are among them, the last
 * of them writes in place and needs no copy. */
int32_t table_need_all(const scheduler_t *scheduler, const plan_entry_t *entries, int32_t count);
/* Allocates the blocks that table_need counts and plans the copy; they must be free. */
void table_grow(scheduler_t *scheduler, sequence_t *seq, int32_t n);
/* Says that this step writes the blocks of the n tokens from num_computed on. */
void table_written(scheduler_t *scheduler, const sequence_t *seq, int32_t n);

/* Makes `child`, which holds a row, a copy of `parent`: same tokens, and it shares the blocks that
 * the parent has computed. */
void table_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child);
/* Releases every block, the last one first, and cancels the copies planned for seq. A block that
 * seq was to fill gets the first sharer as its filler. */
void table_release(scheduler_t *scheduler, sequence_t *seq);

#endif
