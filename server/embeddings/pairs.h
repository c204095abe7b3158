/* pairs.h: the scores of the pairs of a request.
 *
 * Loop thread. A score is known when its inputs are done: a pair's own, or with cosines the two
 * whose vectors are compared.
 */
#ifndef INFERD_SERVER_EMBEDDINGS_PAIRS_H
#define INFERD_SERVER_EMBEDDINGS_PAIRS_H

#include "server/embeddings/values.h"

/* `prepare` and `pooled` of the routes of pairs. */
bool pairs_prepare(completion_t *completion);
void pairs_pooled(input_t *input);
/* Score of pair `index`, as the last layer gives it, or the cosine; all inputs are done. */
double pairs_score(const completion_t *completion, int32_t index);
/* The same as it is returned. */
float pairs_shown(const completion_t *completion, int32_t index);

#endif
