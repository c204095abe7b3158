/* clock.c: the system's monotonic clock, and that of a thread. No state, any thread. */
#include "engine/base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t clock) {
  struct timespec timespec;
  clock_gettime(clock, &timespec);
  return (uint64_t)timespec.tv_sec * 1000000000u + (uint64_t)timespec.tv_nsec;
}

uint64_t clock_now_ns(void) {
  return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_thread_ns(void) {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
