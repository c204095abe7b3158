/* health.h: what the probes and the metrics page say about the state of the server. */
#ifndef INFERD_SERVER_OBSERVE_HEALTH_H
#define INFERD_SERVER_OBSERVE_HEALTH_H

#include "server/server.h"

/* Returns the state: "loading", "ready", "draining" or "failed". Loop thread. */
const char *health_state(const server_t *server);
/* Nanoseconds since the last progress of the engine; 0 if the engine has no work. */
uint64_t health_stall_ns(const server_t *server, uint64_t now_ns);
/* Returns true if the stall is longer than --watchdog-interval: the device, or a step, hangs. */
bool health_hangs(const server_t *server, uint64_t now_ns);
const char *health_architecture(void); /* "x86_64" */

#endif
