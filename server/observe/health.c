/* health.c: the state of the server: the engine's state, and how long it has made no progress.
 *
 * Loop thread; reads atomics and never waits for the engine.
 */
#include "server/observe/health.h"

#include "engine/base/clock.h"

#include <string.h>
#include <sys/utsname.h>

const char *health_architecture(void) {
  static struct utsname name;
  if (name.machine[0] == '\0' && uname(&name) != 0) return "unknown";
  return name.machine;
}

const char *health_state(const server_t *server) {
  if (server->models != NULL) {
    if (server->phase >= SERVER_DRAINING) return "draining";
    if (server->phase >= SERVER_LEAVING) return "leaving";
    return models_ready(server) ? "ready" : "loading";
  }
  engine_state_t state = engine_state(server->engine);
  health_verdict_t verdict = health_verdict(server, clock_now_ns(), health_limit_ns(server));
  if (state == ENGINE_FAILED || verdict >= HEALTH_STUCK) return "failed";
  if (server->phase >= SERVER_DRAINING || state == ENGINE_STOPPED) return "draining";
  if (server->phase >= SERVER_LEAVING) return "leaving";
  return state == ENGINE_LOADING || server->starting ? "loading" : "ready";
}

/* The engine reports the time of its last step. If the engine was idle and then got work, the stall
 * counts from the moment when the work came. */
uint64_t health_stall_ns(const server_t *server, uint64_t now_ns) {
  engine_stats_t stats;
  uint64_t since = completions_busy_since_ns(server);
  if (since == 0) return 0;
  engine_stats(server->engine, &stats);
  if (stats.last_step_ns > since) since = stats.last_step_ns;
  return now_ns > since ? now_ns - since : 0;
}

const char *const health_verdict_names[HEALTH_VERDICTS] = {"fine", "late", "stuck", "hangs"};

uint64_t health_limit_ns(const server_t *server) {
  return (uint64_t)(server->config->watchdog_interval * 1e9);
}

const char *health_phase(engine_phase_t phase) {
  switch (phase) {
  case ENGINE_SLEEPS: return "waiting for work";
  case ENGINE_RECEIVES: return "receiving requests";
  case ENGINE_PLANS: return "planning a step";
  case ENGINE_MAKES_MASKS: return "making masks";
  case ENGINE_COMMITS: return "committing a step";
  case ENGINE_LAUNCHES: return "launching a step";
  case ENGINE_WAITS: return "waiting for the device";
  }
  return "?";
}

health_verdict_t health_verdict(const server_t *server, uint64_t now_ns, uint64_t limit_ns) {
  if (limit_ns == 0 || health_stall_ns(server, now_ns) <= limit_ns) return HEALTH_FINE;
  engine_activity_t activity;
  engine_activity(server->engine, &activity);
  bool is_device = activity.phase == ENGINE_LAUNCHES || activity.phase == ENGINE_WAITS;
  uint64_t since_ns = is_device ? activity.since_ns : activity.worked_ns;
  if (now_ns < since_ns || now_ns - since_ns <= limit_ns) return HEALTH_LATE;
  return is_device ? HEALTH_HANGS : HEALTH_STUCK;
}
