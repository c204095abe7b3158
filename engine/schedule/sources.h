/* sources.h: groups of a decoder behind an encoder in a plan: none computes a token before K and V
 * of its source are there, and whose source the encoder reads next.
 *
 * A group is admitted as any other, and holds its blocks while the encoder works for it. Engine
 * thread only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SOURCES_H
#define INFERD_ENGINE_SCHEDULE_SOURCES_H

#include "engine/schedule/pictures.h"

/* Whether K and V of the group's source are still to be made. */
bool sources_lack(const scheduler_t *scheduler, const group_t *group);
/* The running group whose source begins next, in the order of pictures_turn; NULL = none does. It
 * is no longer than `longest`, and its tenant has none in the encoder, but less urgent ones. */
group_t *sources_next(scheduler_t *scheduler, const pictures_begun_t *begun, int32_t longest);
/* Marks the entries of groups that run, and of those that have begun and wait. */
void sources_mark(const scheduler_t *scheduler);

#endif
