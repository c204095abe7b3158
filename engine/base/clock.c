/* clock.c: the system's monotonic clock. No state, any thread. */
#include "engine/base/clock.h"

#include <time.h>

uint64_t clock_now_ns(void) {
  struct timespec timespec;
  clock_gettime(CLOCK_MONOTONIC, &timespec);
  return (uint64_t)timespec.tv_sec * 1000000000u + (uint64_t)timespec.tv_nsec;
}
