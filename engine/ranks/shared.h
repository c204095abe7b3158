/* shared.h: collectives between ranks of one host, over memory that they share.
 *
 * Ranks are processes, or the threads of a test. The memory is a file without a name, whose
 * descriptor the processes inherit.
 */
#ifndef INFERD_ENGINE_RANKS_SHARED_H
#define INFERD_ENGINE_RANKS_SHARED_H

#include "engine/device/comm.h"

/* *out = the descriptor of memory for `size` ranks, closed on exec. */
int shared_make(int32_t size, int *out, inferd_error_t *error);
/* Joins as `rank`, without waiting for the others; the descriptor stays the caller's. */
int shared_join(int fd, int32_t rank, comm_t **out, inferd_error_t *error);
/* Says which process will join as `rank`, so that the others see when it ends before it does. */
void shared_expect(comm_t *comm, int32_t rank, int32_t pid);

#endif
