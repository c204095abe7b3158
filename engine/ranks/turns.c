/* turns.c: several steps in flight, at most one in each stage; see turns.h.
 *
 * Engine thread of rank 0, or the one thread of a follower. In a turn rank 0 sends a packet, all
 * stages compute, the logits of the step that has been through all of them go to rank 0, which
 * samples them, and the rows of the other steps go on (stages.h). So all ranks exchange in one
 * order, and a lost one is found out as in a step of one rank. What is sampled in a turn was
 * launched some turns before: its requests may have ended since.
 */
#include "engine/ranks/turns.h"

#include "engine/base/clock.h"
#include "engine/model/forward/stages.h"
#include "engine/ranks/follow.h"

static bool is_lost(const engine_t *engine) {
  const comm_t *comm = engine->options.comm;
  return comm != NULL && comm->error.code != 0;
}

static step_t *step_of(engine_t *engine, const batch_t *batch) {
  for (int32_t i = 0; i < engine->steps_most; i++)
    if (batch != NULL && engine->steps[i].batch == batch) return &engine->steps[i];
  return NULL;
}

static void turn(engine_t *engine, const batch_t *batch) {
  engine_send_step(engine, batch);
  if (is_lost(engine)) return;
  step_t *drawn = step_of(engine, stages_begin_turn(engine->model, batch));
  engine_lap(engine, &engine->stats.device_ns);
  if (drawn != NULL && !is_lost(engine)) {
    engine_sample(engine, drawn);
    drawn->is_drawn = true;
  }
  stages_end_turn(engine->model);
  engine_lap(engine, &engine->stats.device_ns);
}

void engine_launch_turn(engine_t *engine, step_t *step) {
  const uint64_t begun_ns = engine->lap_ns;
  step->is_drawn = false;
  constrain_begin(engine, step);
  turn(engine, step->batch);
  step->turns_ns = engine->lap_ns - begun_ns;
}

bool engine_run_turn(engine_t *engine) {
  step_t *oldest = engine_oldest_step(engine);
  if (!oldest->is_drawn && !is_lost(engine)) {
    engine->lap_ns = clock_now_ns();
    const uint64_t begun_ns = engine->lap_ns;
    activity_enter(&engine->activity, ENGINE_WAITS);
    turn(engine, NULL);
    oldest->turns_ns += engine->lap_ns - begun_ns;
  }
  return oldest->is_drawn || is_lost(engine);
}

void engine_finish_turns(engine_t *engine, step_t *step) {
  if (!engine_has_stages(engine)) return;
  while (!step->is_drawn && !is_lost(engine)) (void)engine_run_turn(engine);
}

int engine_follow_turn(engine_t *engine, const batch_t *batch, inferd_error_t *error) {
  const batch_t *drawn = stages_begin_turn(engine->model, batch);
  if (drawn != NULL) engine_follow_draw(engine, drawn);
  stages_end_turn(engine->model);
  return engine->ops->end(engine->device, error);
}
