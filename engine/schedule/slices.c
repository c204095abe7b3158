/* slices.c: the admission of a long prompt over several plans; the contract is in slices.h.
 *
 * Engine thread only; allocates nothing. What was counted at admission may have changed when a
 * block is taken. If others hold more by then, promised blocks are given back. If they hold less,
 * blocks that no sequence was promised are taken; when there are none, the rest is left to the
 * chunks, which may preempt others for their blocks.
 */
#include "engine/schedule/slices.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/table.h"

bool slices_wanted(const scheduler_t *scheduler, const sequence_t *seq) {
  const scheduler_options_t *options = &scheduler->options;
  if (options->slice_blocks == 0 || !options->chunked_prefill || seq->group->forked ||
      scheduler->pool->num_sides > 0)
    return false;
  if (scheduler->pool->caching && seq->group->request->prompt_keys == NULL) return false;
  if (scheduler->pool->snapshots != NULL) return false; /* it must be known where a hit ends */
  if (table_prompt_holder(scheduler, seq) != NULL) return false; /* a choice shares its blocks */
  return scheduler_blocks_for(scheduler, sequence_num_tokens(seq)) > options->slice_blocks;
}

void slices_begin(scheduler_t *scheduler, sequence_t *seq, const prefix_match_t *match,
                  int32_t num_tokens) {
  int32_t slice = scheduler->options.slice_blocks;
  table_admit(scheduler, seq, match, slice * scheduler->pool->block_size, 0);
  seq->slices.total = scheduler_blocks_for(scheduler, num_tokens);
  seq->slices.matches = match->num_blocks == slice;
  scheduler->slices.num_open++;
  promised_set(scheduler, seq, seq->slices.total - seq->num_blocks - match->num_held_behind);
}

/* Makes a free block available to the sequence. Returns false if there is none. */
static bool claim_free(scheduler_t *scheduler, sequence_t *seq) {
  if (seq->slices.promised > 0) {
    promised_set(scheduler, seq, seq->slices.promised - 1);
    return true;
  }
  return promised_num_free(scheduler) > 0;
}

/* Takes the next block. Returns false if no block is free. */
static bool take_next(scheduler_t *scheduler, sequence_t *seq) {
  int32_t i = seq->num_blocks, block = NO_BLOCK;
  if (seq->slices.matches) block = table_find(scheduler, seq, i, seq->blocks[i - 1]);
  seq->slices.matches = block != NO_BLOCK;
  bool held = block != NO_BLOCK && block_is_held(&scheduler->pool->blocks[block]);
  if (!held && !claim_free(scheduler, seq)) return false;
  table_append(scheduler, seq, block);
  int32_t lacks = seq->slices.total - seq->num_blocks;
  if (seq->slices.promised > lacks) promised_set(scheduler, seq, lacks);
  return true;
}

/* Takes `count` blocks at most; returns how many. */
static int32_t extend(scheduler_t *scheduler, sequence_t *seq, int32_t count) {
  int32_t taken = 0;
  bool more = true;
  if (seq->slices.matches) floor_bring(scheduler, seq, seq->num_blocks, seq->num_blocks + count);
  while (more && taken < count && seq->num_blocks < seq->slices.total) {
    more = take_next(scheduler, seq);
    taken += more;
  }
  if (more && seq->num_blocks < seq->slices.total) return taken;
  promised_end(scheduler, seq);
  scheduler->num_claims++; /* now a waiting group may share all of it */
  return taken;
}

/* The running sequence that lacks fewest blocks. Only a group of one sequence is admitted over
 * several plans. */
static sequence_t *shortest(const scheduler_t *scheduler) {
  sequence_t *found = NULL;
  int32_t least = 0;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    sequence_t *seq = &group->sequence;
    int32_t lacks = seq->slices.total - seq->num_blocks;
    if (seq->slices.total == 0 || (found != NULL && lacks >= least)) continue;
    found = seq;
    least = lacks;
  }
  return found;
}

void slices_continue(scheduler_t *scheduler) {
  int32_t left = scheduler->options.slice_blocks;
  while (left > 0 && scheduler->slices.num_open > 0) {
    sequence_t *seq = shortest(scheduler);
    CHECK(seq != NULL);
    left -= extend(scheduler, seq, left); /* 0 only if the admission ends by it */
  }
}
