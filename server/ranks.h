/* ranks.h: the processes that run one model together: how they start, and how they end.
 *
 * A launcher of MPI has started them, or the first one starts the others on its host. Main thread,
 * before any other.
 */
#ifndef INFERD_SERVER_RANKS_H
#define INFERD_SERVER_RANKS_H

#include "config/config.h"
#include "engine/device/comm.h"

/* *out = the other ranks of this process, or NULL: the model runs here alone. `argv` is that of the
 * process, which the others get, too. 0, ERR_USAGE or ERR_CONFIGURATION. */
int ranks_start(const config_t *config, char *const *argv, comm_t **out, inferd_error_t *error);
/* The life of a rank that is not 0. Returns the exit status of its process. */
int ranks_follow(config_t *config, comm_t *comm);
/* Rank 0, at its end: waits for the processes that it started, and ends those that do not. */
void ranks_end(comm_t *comm);

#endif
