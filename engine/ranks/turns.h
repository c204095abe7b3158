/* turns.h: an engine whose model is cut into stages: each stage may have a step in flight.
 *
 * Engine thread. Without stages engine_has_stages is false, and no other function is called but
 * engine_finish_turns, which does nothing.
 */
#ifndef INFERD_ENGINE_RANKS_TURNS_H
#define INFERD_ENGINE_RANKS_TURNS_H

#include "engine/internal.h"

static inline bool engine_has_stages(const engine_t *engine) {
  return engine->blueprint.shard.num_stages > 1;
}
/* Rank 0: a turn in which the step begins. Another step may have been through all stages then: it
 * is sampled. */
void engine_launch_turn(engine_t *engine, step_t *step);
/* A turn in which none begins. Returns whether the oldest step in flight can be committed: it is
 * sampled, or a rank is lost. */
bool engine_run_turn(engine_t *engine);
/* Turns until the step, the oldest in flight, is sampled, or a rank is lost. */
void engine_finish_turns(engine_t *engine, step_t *step);
/* Another rank: a turn, in which `batch` begins; NULL = none does. 0 or ERR_DEVICE_FAILED. */
int engine_follow_turn(engine_t *engine, const batch_t *batch, inferd_error_t *error);

#endif
