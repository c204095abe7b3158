/* parts.h: a step in parts, which go through the stages of a pipeline one behind another, so that
 * the stages compute at the same time.
 *
 * A part is some tokens of a batch in a row, as a batch of its own. A row of a step depends on its
 * own inputs only, and on the K and V of tokens before it, which an earlier part has stored: so no
 * bit depends on the parts. All ranks make the same ones. Engine thread.
 */
#ifndef INFERD_ENGINE_MODEL_SHARD_PARTS_H
#define INFERD_ENGINE_MODEL_SHARD_PARTS_H

#include "engine/device/batch.h"
#include "engine/device/step_limits.h"

typedef struct step_parts {
  batch_t batch; /* the one of now; its arrays are those of the whole batch, but for the three: */
  int32_t *query_start_loc, *num_computed_tokens, *seq_lens; /* [reqs_max + 1] each, owned */
} step_parts_t;

/* 0, or -1 without memory. */
int parts_new(const step_limits_t *limits, step_parts_t **out);
void parts_free(step_parts_t *parts); /* NULL is allowed */
/* How many parts a step of so many tokens has. */
int32_t parts_count(int32_t num_tokens, int32_t num_stages);
/* The first token of a part; of part number `count`: all tokens. */
int32_t parts_begin(int32_t num_tokens, int32_t count, int32_t index);
/* Fills parts->batch with part `index` of `count`. Nothing is selected in it, and it has no copies:
 * they are made when the whole batch begins. */
void parts_take(step_parts_t *parts, const batch_t *whole, int32_t count, int32_t index);

#endif
