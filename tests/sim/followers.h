/* followers.h: the other ranks of the simulated model, and what happens to them: SIM_RANKS.
 *
 * Without the feature every function does nothing.
 */
#ifndef INFERD_TESTS_SIM_FOLLOWERS_H
#define INFERD_TESTS_SIM_FOLLOWERS_H

#include "tests/sim/sim.h"

/* So far, of this process. */
typedef struct followers_count {
  uint64_t runs, restarts;
} followers_count_t;
const followers_count_t *followers_count(void);

/* Before rank 0 starts: makes the others, and the comm_t of the options. */
void followers_begin(scenario_t *scenario);
/* Rank 0 could not start: true when a rank has failed, as the scenario says. */
bool followers_failed_start(void);
uint64_t followers_heap_calls(void); /* while they started, perhaps after rank 0 */
void followers_check(void);          /* after every iteration of rank 0 */
/* Rank 0 has ended: so does every other one. True when a fault has struck: a supervisor starts the
 * service again. */
bool followers_end(void);
/* Of a device at the end of a step: the device of this rank is to break now. */
bool followers_breaks(const comm_t *comm);
/* device.c: true of a device of another rank than 0 */
bool device_follows(const device_t *device);

#endif
