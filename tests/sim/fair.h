/* fair.h: the simulator's own account of fair shares (fair.c). */
#ifndef INFERD_TESTS_SIM_FAIR_H
#define INFERD_TESTS_SIM_FAIR_H

#include "tests/sim/sim.h"

void fair_begin(void);
void fair_submitted(track_t *track); /* the engine has not received it yet */
/* The tower has worked for the request, as long as so many tokens take. */
void fair_saw(const track_t *track, int64_t tokens);
void fair_step(void);      /* a step is launched */
void fair_iteration(void); /* after every iteration of the engine */
/* The waiting group whose turn is next; NULL = nobody waits who may run. */
const group_t *fair_next(const scheduler_t *scheduler);
/* Whether its key may not run the group now, or one of the same key that stands before it. */
bool fair_held(const scheduler_t *scheduler, const group_t *group);
/* Whether that was so when the plan was begun, from which some may have been sent back since. */
bool fair_was_held(const scheduler_t *s, const group_t *g);
/* Whether a waiting group was passed in this step: then the turn may have been another one's. */
bool fair_passed(const scheduler_t *scheduler);

#endif
