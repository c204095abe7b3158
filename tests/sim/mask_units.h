/* mask_units.h: what the masks of constrained requests cost, by walks of its own (mask_units.c). */
#ifndef INFERD_TESTS_SIM_MASK_UNITS_H
#define INFERD_TESTS_SIM_MASK_UNITS_H

#include "tests/sim/sim.h"

void mask_units_load(void); /* once in a process, before the first step */
/* A step is launched: each request of one sequence has been charged the mask of each token that it
 * has, drafted or not, once. */
void mask_units_step(const engine_t *engine);

#endif
