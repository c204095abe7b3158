/* random.h: the random numbers of tests and benchmarks: equal for equal seeds, on any machine.
 *
 * Pure functions of *state, which they advance; any thread.
 */
#ifndef INFERD_TESTS_RANDOM_H
#define INFERD_TESTS_RANDOM_H

#include "engine/base/random.h"

/* 31 bits of a linear congruential generator (the constants of Knuth's MMIX). */
static inline uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* 64 bits of SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t next_random_64(uint64_t *state) {
  return random_mix(*state += RANDOM_GAMMA);
}

#endif
