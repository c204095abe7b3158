/* notes.c: what every file of an engine asks and says: its state, the oldest step, time, log lines.
 *
 * The contracts are in engine.h, step.h and internal.h. Calls nothing of the engine; allocates
 * nothing.
 */
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/internal.h"

#include <stdarg.h>
#include <stdio.h>

engine_state_t engine_own_state(const engine_t *engine) {
  return (engine_state_t)atomic_load(&engine->state);
}

engine_state_t engine_state(const engine_t *engine) {
  const replicas_t *replicas = &engine->replicas;
  engine_state_t state = engine_own_state(engine);
  for (int32_t i = 1; i < replicas->count && state != ENGINE_FAILED; i++) {
    engine_state_t other = engine_own_state(replicas->all[i]);
    if (other != ENGINE_READY) state = other;
  }
  return state;
}

step_t *engine_oldest_step(engine_t *engine) {
  CHECK_GT(engine->num_steps, 0);
  return &engine->steps[(engine->next_step + engine->steps_most - engine->num_steps) %
                        engine->steps_most];
}

void engine_lap(engine_t *engine, uint64_t *total_ns) {
  uint64_t now_ns = clock_now_ns();
  *total_ns += now_ns - engine->lap_ns;
  engine->lap_ns = now_ns;
}

void engine_say(const engine_t *engine, const char *format, ...) {
  if (engine->options.log == NULL) return;
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  engine->options.log(engine->options.context, line);
}
