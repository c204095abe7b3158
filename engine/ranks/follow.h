/* follow.h: what an engine does besides where several ranks run its model: engine thread. Without
 * other ranks the functions do nothing, and answer for one process.
 */
#ifndef INFERD_ENGINE_RANKS_FOLLOW_H
#define INFERD_ENGINE_RANKS_FOLLOW_H

#include "engine/internal.h"

/* When the blueprint is read: notes which part of the model this process has. */
void engine_take_part(engine_t *engine);
bool engine_follows(const engine_t *engine); /* a rank that is not 0 */
/* At start: refuses by name what runs on one rank only. */
int engine_check_ranks(const engine_t *engine, inferd_error_t *error);
/* How many share the memory of this host; at least 1. */
size_t engine_local_ranks(const engine_t *engine);
/* Steps in flight at most, when the model is loaded. */
int32_t engine_depth(const engine_t *engine);
/* Waits for the other ranks, and makes the packets. */
int engine_join_ranks(engine_t *engine, const kv_cache_desc_t *kv, int32_t max_model_len,
                      inferd_error_t *error);
/* Logs how many ranks there are, their heads, and how they are cut. */
void engine_say_ranks(engine_t *engine);
/* Another rank than 0: launches the batch of its packets; the logits of a batch alone. */
void engine_follow_step(engine_t *engine);
void engine_follow_draw(engine_t *engine, const batch_t *batch);
/* Rank 0, nothing without others: each launch (NULL: a turn of stages without one); that it has
 * none; that it ends. Where it would rest for `idle_ms`, for how long it may. */
void engine_send_step(engine_t *engine, const batch_t *batch);
/* Sets an adapter on all ranks, also where there is one. */
void engine_share_adapter(engine_t *engine, int32_t slot, const adapter_t *adapter);
int engine_send_idle(engine_t *engine, inferd_error_t *error);
int engine_idle_ms(const engine_t *engine, int idle_ms);
void engine_send_stop(engine_t *engine);

#endif
