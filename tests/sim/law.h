/* law.h: the law of fair shares (law.c says it): who must begin, who makes room. One thread. */
#ifndef INFERD_TESTS_SIM_LAW_H
#define INFERD_TESTS_SIM_LAW_H

#include "tests/sim/sim.h"

void law_begin(void);                     /* a fresh engine */
void law_submitted(const track_t *track); /* the engine has not received it yet */
void law_step(void);                      /* a step is launched */
void law_iteration(void);                 /* after every iteration of the engine */

/* The most steps that a client waited which was owed a place. */
typedef struct law_waits {
  int counted, all; /* all: with those in which no request could have begun */
} law_waits_t;
law_waits_t law_longest(void);

#endif
