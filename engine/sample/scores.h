/* scores.h: rows of more alternatives than a step has memory for; they lie in request_t.scores.
 *
 * A row of a prompt token, or of a token of the output, has a place of its own until the request is
 * freed, so its event only points to it. Choices that are known at the end only (choices.h) copy
 * their rows when these are committed: they have places for two steps. Engine thread; the server
 * calls scores_bytes from any thread. No function allocates.
 */
#ifndef INFERD_ENGINE_SAMPLE_SCORES_H
#define INFERD_ENGINE_SAMPLE_SCORES_H

#include "engine/schedule/sequence.h"

struct engine;

/* Alternatives that a row of the output, or of the prompt, reports, at most the vocabulary; -1 = no
 * logprobs. Choices that are ranked need logprobs even if the request does not ask for them. */
int32_t scores_of_output(const struct engine *engine, const sampling_params_t *params);
int32_t scores_of_prompt(const struct engine *engine, const sampling_params_t *params);
/* Returns true if so many alternatives need a place in request_t.scores. */
bool scores_are_many(const struct engine *engine, int32_t num_top);

/* Returns the bytes of request_t.scores for a request; 0 if it needs none, SIZE_MAX on overflow. */
size_t scores_bytes(const struct engine *engine, const sampling_params_t *params,
                    int32_t num_prompt_tokens);
/* The place of the row that scores the prompt token at `position`, 1 or more. */
token_logprob_t *scores_prompt_row(const struct engine *engine, const request_t *request,
                                   int32_t position);
/* The place of the row of the token at an output position of a sequence; NULL behind max_tokens,
 * where no token is kept. */
token_logprob_t *scores_output_row(const struct engine *engine, const sequence_t *seq,
                                   int32_t position);

#endif
