/* law.h: the law of fair shares (law.c says it): who must begin, who makes room. One thread. */
#ifndef INFERD_TESTS_SIM_LAW_H
#define INFERD_TESTS_SIM_LAW_H

#include "tests/sim/sim.h"

void law_begin(void);                     /* a fresh engine */
void law_submitted(const track_t *track); /* the engine has not received it yet */
void law_step(void);                      /* a step is launched */
void law_iteration(void);                 /* after every iteration of the engine */

/* Whether a client lacked a row for want of time in the step before: then the first prompt may have
 * to let it go first. */
bool law_any_lacked(void);
/* The part of what all share that is the client's of this group, from 0 to 1. */
double law_part(const scheduler_t *scheduler, const group_t *group);
/* The most steps that a client waited which was owed a place, or a row for want of time. */
typedef struct law_waits {
  int counted, all; /* all: with those in which no request could have begun */
  int rows;
} law_waits_t;
law_waits_t law_longest(void);

#endif
