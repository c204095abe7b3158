/* promised.h: the free blocks that are kept for a prompt which is still being admitted (slices.h).
 *
 * Below the tables and the swap, which must leave these blocks alone. Engine thread only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_PROMISED_H
#define INFERD_ENGINE_SCHEDULE_PROMISED_H

#include "engine/schedule/scheduler.h"

/* Free blocks that are promised to no sequence. */
int32_t promised_num_free(const scheduler_t *scheduler);
/* Keeps `count` free blocks for the sequence, in place of those that are kept for it now. */
void promised_set(scheduler_t *scheduler, sequence_t *seq, int32_t count);
/* The sequence leaves `running`, ends, or has all its blocks: its admission is no longer open, and
 * what was promised to it is given back. */
void promised_end(scheduler_t *scheduler, sequence_t *seq);

#endif
