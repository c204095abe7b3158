/* masks.h: a cache of masks, because many sequences write the same form, and a text often returns
 * to the same place in a grammar.
 *
 * The memory is allocated once. One thread at a time may use a cache. Two places are equal if
 * everything that the walk over the vocabulary read is equal: the threads, their counters as far as
 * a token reaches, and the frames down to the lowest one to which some token returned. The values
 * are compared, not only their hashes.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MASKS_H
#define INFERD_ENGINE_GRAMMAR_MASK_MASKS_H

#include "engine/grammar/grammar.h"

/* A mask that is made in pieces. Zeroed = not begun. */
typedef struct grammar_walk {
  bool begun;
  uint32_t root;   /* which root of the tries comes next */
  uint32_t node;   /* the node below it that comes next; 0 = the root itself */
  uint32_t until;  /* nodes before this one are walked with threads, because a lexeme may end */
  uint32_t done;   /* a bit for each group of tokens that is decided */
  uint32_t lowest; /* least depth of a frame that the walk has looked at */
  uint64_t memo;   /* number, see memo.h */
  uint64_t place;  /* hash of the place; equal places have equal ones. Set by the cache. */
  bool hit;        /* the row was cached */
  uint64_t units;  /* work for the row so far; of a cached row: when it was made */
} grammar_walk_t;

enum {
  GRAMMAR_LATER = 1, /* the units are used up: call again */
  /* How far a piece of a mask or of the acceptance of a token may go over its units: what happens
   * between two bytes is not divided. */
  GRAMMAR_UNITS_OVER = 40000
};

/* Work done with this scratch so far: nodes of tries and closures, steps of threads, comparisons,
 * frames. */
uint64_t grammar_units(const grammar_scratch_t *scratch);

typedef struct grammar_masks grammar_masks_t;

enum { GRAMMAR_MASKS_MAX = 1024 };

/* Makes a cache of as many rows as bytes_max holds, at least 1. Returns 0 or ERR_NO_MEMORY. */
int grammar_masks_new(const grammar_vocabulary_t *vocabulary, size_t bytes_max,
                      grammar_masks_t **out, inferd_error_t *error);
void grammar_masks_free(grammar_masks_t *masks); /* NULL is allowed */

/* As grammar_matcher_fill, for a matcher over the same vocabulary. *hit: the row was cached. */
int grammar_masks_fill(grammar_masks_t *masks, grammar_matcher_t *matcher,
                       grammar_scratch_t *scratch, const int32_t *stop_ids, int32_t num_stop_ids,
                       uint32_t *row, bool *hit);

/* The same in pieces: continues a walk, which begins if it is zeroed, for about `units`. Returns
 * GRAMMAR_LATER if the row is not complete: call again, with this row and with the matcher where it
 * stands. walk->hit: the row was cached. 0 units: only a cached row. */
int grammar_masks_fill_on(grammar_masks_t *masks, grammar_matcher_t *matcher,
                          grammar_scratch_t *scratch, const int32_t *stop_ids, int32_t num_stop_ids,
                          grammar_walk_t *walk, uint64_t units, uint32_t *row);

/* The two halves of grammar_masks_fill_on behind the look into the cache, for walks on other
 * threads than the cache's. The first continues the walk alone; it uses the matcher, the scratch
 * and the row, and returns 0 or GRAMMAR_LATER. The second ends one that is complete: it keeps the
 * row, adds the stop ids and returns as grammar_masks_fill. */
int grammar_walk_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, grammar_walk_t *walk,
                    uint64_t units, uint32_t *row);
int grammar_masks_end(grammar_masks_t *masks, const grammar_matcher_t *matcher,
                      const int32_t *stop_ids, int32_t num_stop_ids, const grammar_walk_t *walk,
                      uint32_t *row);

/* grammar_matcher_accept in pieces: takes more bytes of the token for about `units`. Returns
 * GRAMMAR_LATER if some are left: call again, with the same token. */
int grammar_matcher_accept_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id,
                              uint64_t units);

#endif
