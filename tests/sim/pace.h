/* pace.h: the time of steps: what a plan may take of it, and who takes turns. One thread. */
#ifndef INFERD_TESTS_SIM_PACE_H
#define INFERD_TESTS_SIM_PACE_H

#include "tests/sim/sim.h"

void pace_step(const scheduler_t *s); /* a step is launched, all else of it is checked */
/* Whether the plan has no time left for a prompt of this group: of the step, or of its client. */
bool pace_is_out(const scheduler_t *s, const group_t *g);
/* Whether a group of several sequences, one of which has a row, was asked while time was kept for
 * the first prompt; that took less in the end, and less than a block's time is left. */
bool pace_was_kept(const scheduler_t *s, const group_t *g);
/* Whether a waiting group would find no room among those that decode, and with it its client would
 * have more than this part of the time of a step. */
bool pace_has_no_seat(const scheduler_t *s, const group_t *g, double part);
/* Whether the step has no time left, and prompts have more of it than two blocks take. */
bool pace_is_filled(const scheduler_t *s);
/* Whether the client had no time for a group that waits while a block of its first prefill was set
 * aside. In the end that chunk may take less: one token alone is taken for a decode. */
bool pace_was_out(const scheduler_t *s, const group_t *g);
/* Whether the client of a group that decodes has more decodes than time, so that it may sit out. */
bool pace_may_sit_out(const scheduler_t *s, const group_t *g);

#endif
