/* pairs.c: the scores of pairs, of the model or as cosines of vectors.
 *
 * Stage 9 of 9. Loop thread. Cosines are computed while inputs end, so that no end of a request
 * computes all of them at once.
 */
#include "server/embeddings/pairs.h"

#include <math.h>
#include <string.h>

/* What a request of cosines keeps: completion->dialect_state. */
typedef struct cosines {
  double *scores; /* [documents] */
  bool *done;     /* [documents] whether it is known */
} cosines_t;

bool pairs_prepare(completion_t *completion) {
  const pair_params_t *pairs = &completion->params.pairs;
  size_t count = (size_t)pairs->documents.count;
  if (!values_prepare(completion)) return false;
  if (!pairs->cosine) return true;
  cosines_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return false;
  state->scores = arena_calloc(&completion->arena, count, sizeof *state->scores);
  state->done = arena_calloc(&completion->arena, count, sizeof *state->done);
  completion->dialect_state = state;
  return state->scores != NULL && state->done != NULL;
}

/* Of vectors of zeros 0. */
static double cosine(const double *first, const double *second, int32_t count) {
  double product = 0, left = 0, right = 0;
  for (int32_t i = 0; i < count; i++) {
    product += first[i] * second[i];
    left += first[i] * first[i];
    right += second[i] * second[i];
  }
  double lengths = sqrt(left) * sqrt(right);
  return lengths > 0 ? product / lengths : 0;
}

static void compare(completion_t *completion, int32_t document) {
  const pair_params_t *pairs = &completion->params.pairs;
  cosines_t *state = completion->dialect_state;
  int32_t queries = pairs->queries.count, query = queries == 1 ? 0 : document;
  const input_t *first = &completion->inputs[query];
  const input_t *second = &completion->inputs[queries + document];
  if (state->done[document] || !first->done || !second->done) return;
  state->scores[document] =
      cosine(first->request.pooled, second->request.pooled, completion->info->embedding->size);
  state->done[document] = true;
}

void pairs_pooled(input_t *input) {
  completion_t *completion = input->completion;
  const pair_params_t *pairs = &completion->params.pairs;
  int32_t index = (int32_t)(input - completion->inputs), queries = pairs->queries.count;
  if (!pairs->cosine) return;
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
