/* comm.h: collectives between ranks: the processes that run one model together.
 *
 * Each rank makes the same calls in the same order, with the same sizes. A call moves host memory
 * and returns when its data may be used. No call waits for ever: it fails when a rank has ended,
 * or after `limit_ns`. After the first failure every call fails at once with the same error, and
 * the other ranks' calls fail too. One thread at a time; no call allocates.
 * NULL stands for a process that runs alone.
 */
#ifndef INFERD_ENGINE_DEVICE_COMM_H
#define INFERD_ENGINE_DEVICE_COMM_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS_MAX = 64 };

typedef struct comm comm_t;

/* An implementation. 0, or ERR_DEVICE_FAILED with the reason in comm->error. */
typedef struct comm_ops {
  const char *name; /* "shared memory", "MPI" */
  /* Rank r has bytes [cuts[r], cuts[r + 1]) of `data`; afterwards rank `root` has all, -1: each. */
  int (*gather)(comm_t *comm, void *data, const size_t *cuts, int32_t root);
  int (*broadcast)(comm_t *comm, void *data, size_t bytes, int32_t root);
  /* As comm_reduce; adds to comm->num_bytes what this rank gets of others. */
  int (*reduce)(comm_t *comm, float *values, size_t count);
  int (*barrier)(comm_t *comm);
  /* Whether a rank has failed or ended, without waiting; NULL = the calls alone find out. */
  int (*check)(comm_t *comm);
  /* The other ranks hear that this one fails. */
  void (*abandon)(comm_t *comm);
  void (*close)(comm_t *comm);
} comm_ops_t;

/* First member of an implementation's own struct, which `close` frees. */
struct comm {
  const comm_ops_t *ops;
  int32_t rank, size; /* size >= 2 */
  int32_t local_size; /* ranks on this host */
  uint64_t limit_ns;  /* of one call; 0 = as long as every rank lives */
  /* Collectives so far, and bytes that this rank got of others by them; any thread may read. */
  atomic_ullong num_calls, num_bytes;
  inferd_error_t error; /* code 0 = none has failed */
};

int comm_gather(comm_t *comm, void *data, const size_t *cuts, int32_t root);
int comm_broadcast(comm_t *comm, void *data, size_t bytes, int32_t root);
int comm_barrier(comm_t *comm);
/* values[i] = the sum over the ranks, added in their order: the same bits on each rank, in each run
 * and over each implementation. */
int comm_reduce(comm_t *comm, float *values, size_t count);
/* 0 as long as no rank is known to have failed. Does not wait, and is no collective. */
int comm_check(comm_t *comm);
/* Makes every later call of any rank fail, with this reason on this one. */
void comm_abandon(comm_t *comm, const char *why);
void comm_close(comm_t *comm);

#endif
