/* states.h: the states of the simulated device; states.c says what is checked. */
#ifndef INFERD_TESTS_SIM_STATES_H
#define INFERD_TESTS_SIM_STATES_H

#include "tests/sim/oracle.h"

extern const state_ops_t sim_state_ops;

void states_begin(const batch_t *batch); /* a step is launched: its copies */
/* A row of it, after states_begin; `ids` are its tokens. */
void states_run_row(const batch_t *batch, int32_t row, const sequence_t *sequence,
                    const int32_t *ids);
void states_close(void);

#endif
