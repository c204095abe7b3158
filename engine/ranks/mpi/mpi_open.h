/* mpi_open.h: ranks that mpirun, srun or another launcher of MPI has started. */
#ifndef INFERD_ENGINE_RANKS_MPI_MPI_OPEN_H
#define INFERD_ENGINE_RANKS_MPI_MPI_OPEN_H

#include "engine/device/comm.h"

/* How many ranks a launcher of MPI has started, from the environment; 0 = none has. */
int32_t mpi_world_size(void);
/* Opens inferd-mpi.so, beside the program or in ../lib/inferd, and takes part. Before any thread.
 */
int mpi_join(comm_t **out, inferd_error_t *error);

/* What inferd-mpi.so exports: 0, or -1 with the reason in `why`. */
int inferd_mpi_open(comm_t **out, char *why, size_t capacity);

#endif
