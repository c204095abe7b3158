/* masks.h: masks of places that come again: many sequences write the same form, and a text comes
 * back to the same place of it.
 *
 * Memory is fixed when it is made. One thread at a time, as for a scratch. Two places are equal
 * when nothing that the walk of the vocabulary looked at differs: the threads, their counters as
 * far as a token reaches, the frames down to the lowest one that some token returned to. They are
 * compared themselves, not by a hash.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MASKS_H
#define INFERD_ENGINE_GRAMMAR_MASK_MASKS_H

#include "engine/grammar/grammar.h"

typedef struct grammar_masks grammar_masks_t;

enum { GRAMMAR_MASKS_MAX = 1024 };

/* As many rows as bytes_max holds, at least 1. 0 or ERR_NO_MEMORY. */
int grammar_masks_new(const grammar_vocabulary_t *vocabulary, size_t bytes_max,
                      grammar_masks_t **out, error_t *error);
void grammar_masks_free(grammar_masks_t *masks); /* NULL is allowed */

/* grammar_matcher_fill, of a matcher over the same vocabulary. *hit: the row was there. */
int grammar_masks_fill(grammar_masks_t *masks, grammar_matcher_t *matcher,
                       grammar_scratch_t *scratch, const int32_t *stop_ids, int32_t num_stop_ids,
                       uint32_t *row, bool *hit);

#endif
