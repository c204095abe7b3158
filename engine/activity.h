/* activity.h: what the engine thread is doing, for the watchdog of the server.
 *
 * The engine thread enters a phase before it does something that may take long, and counts the
 * pieces of work within the phase. Every launch is a phase of its own, so that one launch that does
 * not return can be told from many. Other threads read an activity by engine_activity. Lock-free;
 * allocates nothing.
 */
#ifndef INFERD_ENGINE_ACTIVITY_H
#define INFERD_ENGINE_ACTIVITY_H

#include "engine/base/clock.h"
#include "engine/stats.h"

#include <stdatomic.h>

typedef struct activity {
  atomic_int phase; /* engine_phase_t */
  /* When the phase began; when the last piece of work was counted; their number; the request that
   * the work is for. Times are those of clock_now_ns. */
  _Atomic uint64_t since_ns, worked_ns, work, request_id;
} activity_t;

/* Engine thread: counts one piece of work. */
static inline void activity_work(activity_t *activity, uint64_t now_ns) {
  uint64_t work = atomic_load_explicit(&activity->work, memory_order_relaxed);
  atomic_store_explicit(&activity->work, work + 1, memory_order_relaxed);
  atomic_store_explicit(&activity->worked_ns, now_ns, memory_order_relaxed);
}

/* Engine thread: work for a request begins. NULL is allowed for `activity`. */
static inline void activity_for(activity_t *activity, uint64_t request_id) {
  if (activity == NULL) return;
  atomic_store_explicit(&activity->request_id, request_id, memory_order_relaxed);
  activity_work(activity, clock_now_ns());
}

/* Engine thread: the phase begins now. A reader that sees the phase sees its time too. */
static inline void activity_enter(activity_t *activity, engine_phase_t phase) {
  uint64_t now_ns = clock_now_ns();
  activity_work(activity, now_ns);
  atomic_store_explicit(&activity->since_ns, now_ns, memory_order_relaxed);
  atomic_store_explicit(&activity->phase, (int)phase, memory_order_release);
}

#endif
