/* slices.h: the admission of a long prompt over several plans, so that no plan walks all blocks.
 *
 * A group whose tokens fill more than a slice of blocks is admitted by the rules for all others.
 * What others hold of it is counted by halving. It then takes one slice; the rest is promised to
 * it: free blocks that no other sequence may take. Each later plan takes a slice more: from the
 * cache, as long as it has the next block, then fresh ones, which are keyed ahead of their content
 * as those of a short prompt are. Tokens are computed in the blocks that are there, and none before
 * it is known where the cache ends. Engine thread only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SLICES_H
#define INFERD_ENGINE_SCHEDULE_SLICES_H

#include <stdbool.h>
#include <stdint.h>

struct scheduler;
struct sequence;
struct prefix_match;

/* Of a sequence. */
typedef struct slices {
  int32_t total;    /* blocks that its table will have; 0 = it has them: nothing is open */
  int32_t promised; /* free blocks that are kept for it; 0 if nothing is open */
  bool matches;     /* the cache had all blocks so far, so it may have the next one */
} slices_t;

/* Of the scheduler. */
typedef struct slices_sum {
  int32_t num_open; /* sequences whose admission has not ended */
  int32_t promised; /* free blocks that are kept for these */
} slices_sum_t;

/* Whether the admission of the sequence takes several plans: slice_blocks of the options is not 0,
 * the sequence needs more, and the keys of its prompt are known. Forks that were preempted share
 * what they compute, and are admitted at once; so are all with side blocks (sides.h) or snapshots
 * of states, which must know where the cache ends. */
bool slices_wanted(const struct scheduler *scheduler, const struct sequence *seq);
/* For a sequence that fits: takes the first slice of the blocks for num_tokens tokens. */
void slices_begin(struct scheduler *scheduler, struct sequence *seq,
                  const struct prefix_match *match, int32_t num_tokens);
/* At the start of a plan: takes a slice for the running sequences that lack blocks, first for the
 * one that lacks fewest. */
void slices_continue(struct scheduler *scheduler);

#endif
