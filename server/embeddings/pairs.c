/* pairs.c: the scores of pairs, of the model or as cosines of vectors.
 *
 * Stage 9 of 9. Loop thread. Lengths and cosines are computed while inputs end. If one query ends
 * behind all of its documents, their products come in one turn of the loop: DOCUMENTS_MAX vectors
 * are read once.
 */
#include "server/embeddings/pairs.h"

#include <math.h>
#include <string.h>

/* What a request of cosines keeps: completion->dialect_state. */
typedef struct cosines {
  double *lengths; /* [inputs] of the vectors of those that are done */
  double *scores;  /* [documents] */
  bool *done;      /* [documents] whether it is known */
} cosines_t;

bool pairs_prepare(completion_t *completion) {
  const pair_params_t *pairs = &completion->params.pairs;
  size_t count = (size_t)pairs->documents.count, inputs = (size_t)completion->num_inputs;
  if (!values_prepare(completion)) return false;
  if (!pairs->cosine) return true;
  cosines_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return false;
  state->lengths = arena_calloc(&completion->arena, inputs, sizeof *state->lengths);
  state->scores = arena_calloc(&completion->arena, count, sizeof *state->scores);
  state->done = arena_calloc(&completion->arena, count, sizeof *state->done);
  completion->dialect_state = state;
  return state->lengths != NULL && state->scores != NULL && state->done != NULL;
}

/* In eight sums, which a compiler computes side by side. */
static double product(const double *first, const double *second, int32_t count) {
  enum { SUMS = 8 };
  double sums[SUMS] = {0}, rest = 0;
  int32_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int32_t k = 0; k < SUMS; k++) sums[k] += first[i + k] * second[i + k];
  for (; i < count; i++) rest += first[i] * second[i];
  for (int32_t k = 0; k < SUMS; k++) rest += sums[k];
  return rest;
}

/* The cosine of vectors of zeros is 0. */
static void compare(completion_t *completion, int32_t document) {
  const pair_params_t *pairs = &completion->params.pairs;
  cosines_t *state = completion->dialect_state;
  int32_t queries = pairs->queries.count, query = queries == 1 ? 0 : document;
  const input_t *first = &completion->inputs[query];
  const input_t *second = &completion->inputs[queries + document];
  if (state->done[document] || !first->done || !second->done) return;
  double lengths = state->lengths[query] * state->lengths[queries + document];
  double sum =
      product(first->request.pooled, second->request.pooled, completion->info->embedding->size);
  state->scores[document] = lengths > 0 ? sum / lengths : 0;
  state->done[document] = true;
}

void pairs_pooled(input_t *input) {
  completion_t *completion = input->completion;
  const pair_params_t *pairs = &completion->params.pairs;
  cosines_t *state = completion->dialect_state;
  int32_t index = (int32_t)(input - completion->inputs), queries = pairs->queries.count;
  const double *values = input->request.pooled;
  if (!pairs->cosine) return;
  state->lengths[index] = sqrt(product(values, values, completion->info->embedding->size));
  if (index >= queries)
    compare(completion, index - queries);
  else if (queries > 1)
    compare(completion, index);
  else
    for (int32_t i = 0; i < pairs->documents.count; i++) compare(completion, i);
}

double pairs_score(const completion_t *completion, int32_t index) {
  if (!completion->params.pairs.cosine) return completion->inputs[index].request.pooled[0];
  const cosines_t *state = completion->dialect_state;
  return state->scores[index];
}

float pairs_shown(const completion_t *completion, int32_t index) {
  double score = pairs_score(completion, index);
  return (float)(completion->params.pairs.cosine ? score : values_activate(completion, score));
}
