/* hash.h: what results are beside ids and log-probabilities, as few bytes: for journals and
 * recipes. Pure functions; any thread.
 */
#ifndef INFERD_ENGINE_JOURNAL_HASH_H
#define INFERD_ENGINE_JOURNAL_HASH_H

#include "engine/request.h"

/* Of a token: its rank and alternatives. Of the score of a prompt token: all of it, to be added up
 * over the prompt. */
uint32_t journal_hash_token(int32_t rank, int32_t num_top, const token_logprob_t *top);
uint32_t journal_hash_score(const event_t *event);
uint64_t journal_hash_vector(const double *values, size_t count);

#endif
