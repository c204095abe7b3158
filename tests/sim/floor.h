/* floor.h: checks of the floor of the prefix cache. One thread. */
#ifndef INFERD_TESTS_SIM_FLOOR_H
#define INFERD_TESTS_SIM_FLOOR_H

#include "engine/engine.h"

/* I1 and I8 for the floor, if there is one; after every iteration. */
void floor_check_all(const engine_t *engine);

#endif
