/* masks.h: a cache of masks. Many sequences write the same form, and a text often returns to the
 * same place in a grammar.
 *
 * The memory is allocated once. One thread at a time may use a cache. Two places are equal if
 * everything that the walk over the vocabulary read is equal: the threads, their counters as far as
 * a token reaches, and the frames down to the lowest one to which some token returned. The values
 * are compared, not only their hashes.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MASKS_H
#define INFERD_ENGINE_GRAMMAR_MASK_MASKS_H

#include "engine/grammar/grammar.h"

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

#endif
