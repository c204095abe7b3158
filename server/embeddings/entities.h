/* entities.h: the answer of /classify of a model that classifies tokens.
 *
 * Loop thread, but for entities_keep.
 */
#ifndef INFERD_SERVER_EMBEDDINGS_ENTITIES_H
#define INFERD_SERVER_EMBEDDINGS_ENTITIES_H

#include "server/embeddings/values.h"

/* Appends the entities of an input, objects between commas, each with label, score and the part of
 * the text. The scores of the input are used up. */
void entities_print(buffer_t *out, const input_t *input);
/* The `keep` of the dialect: copies the texts, which the answer repeats. */
bool entities_keep(completion_t *completion);

#endif
