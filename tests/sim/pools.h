/* pools.h: an engine that embeds, in the simulator: hidden states, and the vectors that they make.
 *
 * For scenarios with SIM_POOLS. One thread.
 */
#ifndef INFERD_TESTS_SIM_POOLS_H
#define INFERD_TESTS_SIM_POOLS_H

#include "tests/sim/sim.h"

enum { SIM_POOLED = 64 /* values of a vector: the hidden size of the fixtures */ };

/* Where the vector of a request goes: zeros. */
double *pools_room(int index);
/* One value of the hidden state behind a token, from the hash of all ids up to it: a small whole
 * number, so that sums of them are exact. */
float pools_value(uint64_t hash, int32_t column);
/* Whether the hidden state of the token at `position` holds a NaN. */
bool pools_breaks(const script_t *script, int32_t position);
/* The ERR_ number that a request ends with: one of the rows that it pools is broken; else 0. */
int pools_error(const scenario_t *scenario, const script_t *script, int32_t num_prompt);
/* Compares the vector of a request that has ended with what it must be. */
void pools_check(const scenario_t *scenario, const track_t *track);

#endif
