/* sizes.h: what a model needs of a back end, from its blueprint alone. Any thread. */
#ifndef INFERD_ENGINE_MODEL_SIZES_H
#define INFERD_ENGINE_MODEL_SIZES_H

#include "engine/model/model.h"

/* Fills what the model itself knows of the limits: hidden_max, vocab_size, heads. */
void model_limits(const blueprint_t *blueprint, step_limits_t *limits);
/* The cache of a model: everything but num_blocks, block_size and fp8. Layers without attention
 * have no part in it. */
kv_cache_desc_t model_kv(const blueprint_t *blueprint);
/* The states of `num_slots` slots; all 0 if no layer has a state, or the back end runs none. */
state_desc_t model_states(const ops_t *ops, const blueprint_t *blueprint, int32_t num_slots);

#endif
