/* clock.h: the monotonic clock of the whole program, in nanoseconds.
 *
 * The one source of time of engine and server, from any thread. A function of its own file, so that
 * a program may link another clock in front of it: the simulator's time is virtual.
 */
#ifndef INFERD_ENGINE_BASE_CLOCK_H
#define INFERD_ENGINE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t clock_now_ns(void);

#endif
