/* follow.h: what an engine does in addition when several ranks run its model: rank 0 sends, the
 * others follow.
 *
 * Engine thread of rank 0; the one thread of a follower. Without other ranks nothing is sent, and
 * functions that ask answer for one process.
 */
#ifndef INFERD_ENGINE_RANKS_FOLLOW_H
#define INFERD_ENGINE_RANKS_FOLLOW_H

#include "engine/internal.h"

/* ---- every rank, at the start ---- */

/* When the blueprint is read: sets blueprint.shard, the part of the model that this rank has. */
void engine_take_part(engine_t *engine);
bool engine_follows(const engine_t *engine); /* true for a rank that is not 0 */
/* 0, or ERR_CONFIGURATION: an option or the model that runs on one rank only. */
int engine_check_ranks(const engine_t *engine, inferd_error_t *error);
/* Among how many ranks free memory is divided: those of this host; 1 if each has its own device. */
size_t engine_local_ranks(const engine_t *engine);
/* Most steps in flight, once the model is loaded. */
int32_t engine_depth(const engine_t *engine);
/* Waits until all ranks have loaded their parts, compares their options, and makes the packets. 0,
 * ERR_CONFIGURATION, ERR_NO_MEMORY or the error of the comm_t. */
int engine_join_ranks(engine_t *engine, const kv_cache_desc_t *kv, int32_t max_model_len,
                      inferd_error_t *error);
/* Logs how many ranks there are, and which heads or layers this one has. */
void engine_say_ranks(engine_t *engine);

/* ---- rank 0 ---- */

/* Sends a step before its launch; NULL = a turn of stages in which no step begins. `end` of the
 * back end reports what fails. */
void engine_send_step(engine_t *engine, const batch_t *batch);
/* Sets an adapter in this rank, and sends it to the others if there are any. */
void engine_share_adapter(engine_t *engine, int32_t slot, const adapter_t *adapter);
/* While there is no step: sends a sign of life if the last packet is too long ago. 0 or the error
 * of the comm_t. */
int engine_send_idle(engine_t *engine, inferd_error_t *error);
/* The engine thread wants to sleep `idle_ms`: for how long it may until the next sign of life. */
int engine_idle_ms(const engine_t *engine, int idle_ms);
void engine_send_stop(engine_t *engine); /* the followers end */

/* ---- the other ranks ---- */

/* Launches the step whose batch was received last: forward, logits, and the drawn ids if the back
 * end passes them on. engine_follow_draw launches the logits alone, of any batch. */
void engine_follow_step(engine_t *engine);
void engine_follow_draw(engine_t *engine, const batch_t *batch);

#endif
