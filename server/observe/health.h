/* health.h: what the probes and the metrics page say about the state of the server. */
#ifndef INFERD_SERVER_OBSERVE_HEALTH_H
#define INFERD_SERVER_OBSERVE_HEALTH_H

#include "server/server.h"

/* Returns the state: "loading", "ready", "leaving", "draining" or "failed". Loop thread. */
const char *health_state(const server_t *server);
/* Nanoseconds since the last progress of the engine; 0 if the engine has no work. */
uint64_t health_stall_ns(const server_t *server, uint64_t now_ns);
/* What is wrong if no step has ended for longer than a limit, although there is work. */
typedef enum health_verdict {
  HEALTH_FINE,
  HEALTH_LATE,  /* the engine thread works, and no step ends: slow, but alive */
  HEALTH_STUCK, /* the engine thread has not worked for the limit */
  HEALTH_HANGS, /* one launch, or one wait for the device, has not returned for the limit */
  HEALTH_VERDICTS
} health_verdict_t;
extern const char *const health_verdict_names[HEALTH_VERDICTS];

/* Any limit; 0 = always fine. Loop thread. */
health_verdict_t health_verdict(const server_t *server, uint64_t now_ns, uint64_t limit_ns);
uint64_t health_limit_ns(const server_t *server); /* --watchdog-interval */
const char *health_phase(engine_phase_t phase);   /* "making masks" */
const char *health_architecture(void);            /* "x86_64" */

#endif
