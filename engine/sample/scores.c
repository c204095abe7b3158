/* scores.c: where a row of many alternatives lies in the memory that its request lends.
 *
 * Layout of request_t.scores: the rows of the prompt tokens from the second on, then those of the
 * output, by position, then by sequence. See scores.h for the threads. Allocates nothing.
 */
#include "engine/sample/scores.h"

#include "engine/base/check.h"
#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/internal.h"

static int32_t within_vocabulary(const engine_t *engine, int32_t num_top) {
  return MIN(num_top, engine->info.vocab_size);
}

/* Of the row of one beam: as many as the request asks for, and enough to continue all beams even if
 * some of these ids end the text. */
static int32_t of_beam(const engine_t *engine, const sampling_params_t *params) {
  int32_t num_stops =
      params->num_stop_token_ids + (params->ignore_eos ? 0 : 1 + engine->info.num_stop_ids);
  int32_t factor = num_stops < 1 ? 2 : 1 + num_stops;
  int64_t wanted = (int64_t)factor * params->beam_width;
  int32_t needed = wanted < SAMPLE_TOP_MAX ? (int32_t)wanted : SAMPLE_TOP_MAX;
  return MAX(needed, params->num_logprobs);
}

int32_t scores_of_output(const engine_t *engine, const sampling_params_t *params) {
  if (params->beam_width > 0) return within_vocabulary(engine, of_beam(engine, params));
  if (params_collect(params) && params->num_logprobs < 0) return 0;
  return within_vocabulary(engine, params->num_logprobs);
}

int32_t scores_of_prompt(const engine_t *engine, const sampling_params_t *params) {
  return within_vocabulary(engine, params->num_prompt_logprobs);
}

bool scores_are_many(const engine_t *engine, int32_t num_top) {
  int32_t most = engine->ops->logprobs_max;
  return num_top > (most > 0 ? most : SAMPLE_TOP_MAX);
}

/* Entries of all rows of the prompt; false on overflow. */
static bool prompt_entries(const engine_t *engine, const sampling_params_t *params,
                           int32_t num_prompt_tokens, size_t *entries) {
  int32_t each = scores_of_prompt(engine, params);
  *entries = 0;
  if (!scores_are_many(engine, each)) return true;
  return checked_mul((size_t)num_prompt_tokens - 1, (size_t)each, entries);
}

/* Output positions that have places of their own. Rows that are copied when they are committed need
 * those of the steps in flight, draft tokens among them. */
static int32_t positions_of(const engine_t *engine, const sampling_params_t *params) {
  int32_t in_flight = STEPS_IN_FLIGHT_MAX + engine->options.draft.tokens_max;
  return params_collect(params) ? MIN(params->max_tokens, in_flight) : params->max_tokens;
}

size_t scores_bytes(const engine_t *engine, const sampling_params_t *params,
                    int32_t num_prompt_tokens) {
  size_t entries, output = 0;
  int32_t each = scores_of_output(engine, params);
  if (!prompt_entries(engine, params, num_prompt_tokens, &entries)) return SIZE_MAX;
  if (scores_are_many(engine, each) &&
      (!checked_mul((size_t)positions_of(engine, params), (size_t)params_num_sequences(params),
                    &output) ||
       !checked_mul(output, (size_t)each, &output))) {
    return SIZE_MAX;
  }
  if (!checked_add(entries, output, &entries) ||
      !checked_mul(entries, sizeof(token_logprob_t), &entries)) {
    return SIZE_MAX;
  }
  return entries;
}

token_logprob_t *scores_prompt_row(const engine_t *engine, const request_t *request,
                                   int32_t position) {
  size_t each = (size_t)scores_of_prompt(engine, &request->params);
  CHECK_RANGE(position, 1, request->num_prompt_tokens);
  return request->scores + (size_t)(position - 1) * each;
}

token_logprob_t *scores_output_row(const engine_t *engine, const sequence_t *seq,
                                   int32_t position) {
  const request_t *request = seq->group->request;
  const sampling_params_t *params = &request->params;
  size_t before;
  if (position >= params->max_tokens) return NULL;
  CHECK(prompt_entries(engine, params, request->num_prompt_tokens, &before));
  size_t place =
      (size_t)(position % positions_of(engine, params)) * (size_t)params_num_sequences(params) +
      (size_t)seq->index;
  return request->scores + before + place * (size_t)scores_of_output(engine, params);
}
