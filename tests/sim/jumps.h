/* jumps.h: what steps cost when the machine is not the same from one step to the next. One thread.
 */
#ifndef INFERD_TESTS_SIM_JUMPS_H
#define INFERD_TESTS_SIM_JUMPS_H

#include "tests/sim/sim.h"

/* By how much longer a step takes than it would; 1 without SIM_JUMPS. A function of the seed, the
 * number of the step, and what it has. */
double jumps_factor(const scenario_t *scenario, uint64_t step, int32_t tokens, int32_t rows);
/* Teaches what another machine, or this one at another time, would have taken: some engines begin
 * with that. */
void jumps_learn(const scenario_t *scenario, cost_t *cost);

#endif
