/* clock.h: the monotonic clock of the whole program, in nanoseconds.
 *
 * The only source of time of engine and server; any thread. It has a source file of its own, so
 * that a program can link another clock in its place: the time of the simulator is virtual.
 */
#ifndef INFERD_ENGINE_BASE_CLOCK_H
#define INFERD_ENGINE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an unspecified start; never decreases. */
uint64_t clock_now_ns(void);
/* CPU time of the calling thread: what it used itself, without the time in which the processor ran
 * other threads. */
uint64_t clock_thread_ns(void);

#endif
