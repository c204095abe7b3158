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
  engine_state_t state = engine_state(server->engine);
  if (state == ENGINE_FAILED || health_hangs(server, clock_now_ns())) return "failed";
  if (server->draining || state == ENGINE_STOPPED) return "draining";
  return state == ENGINE_LOADING ? "loading" : "ready";
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

bool health_hangs(const server_t *server, uint64_t now_ns) {
  double limit_s = server->config->watchdog_interval;
  return limit_s > 0 && (double)health_stall_ns(server, now_ns) * 1e-9 > limit_s;
}
