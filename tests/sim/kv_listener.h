/* kv_listener.h: a subscriber of the events of the prefix cache, beside the simulated engine. */
#ifndef INFERD_TESTS_SIM_KV_LISTENER_H
#define INFERD_TESTS_SIM_KV_LISTENER_H

#include "engine/kv_events/kv_events.h"

#include <stdbool.h>

struct engine;

kv_events_t *kv_listener_begin(void); /* for the options of a fresh engine */
/* After every iteration, and at the `last` one: what was told is what the block pool holds. */
void kv_listener_check(const struct engine *engine, bool last);
void kv_listener_end(void); /* the engine is destroyed */

#endif
