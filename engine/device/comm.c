/* comm.c: what all implementations of comm.h share: the first error stays, calls are counted.
 *
 * One thread at a time. Knows nothing of how bytes travel.
 */
#include "engine/device/comm.h"

static int finish(comm_t *comm, int code, size_t bytes) {
  comm->num_calls++;
  comm->num_bytes += bytes;
  if (code == 0) return 0;
  comm->error.code = ERR_DEVICE_FAILED;
  comm->ops->abandon(comm);
  return ERR_DEVICE_FAILED;
}

int comm_gather(comm_t *comm, void *data, const size_t *cuts, int32_t root) {
  if (comm->error.code != 0) return comm->error.code;
  const size_t own = cuts[comm->rank + 1] - cuts[comm->rank];
  const bool gets = root < 0 || root == comm->rank;
  return finish(comm, comm->ops->gather(comm, data, cuts, root),
                gets ? cuts[comm->size] - cuts[0] - own : 0);
}

int comm_broadcast(comm_t *comm, void *data, size_t bytes, int32_t root) {
  if (comm->error.code != 0) return comm->error.code;
  return finish(comm, comm->ops->broadcast(comm, data, bytes, root),
                root == comm->rank ? 0 : bytes);
}

int comm_barrier(comm_t *comm) {
  if (comm->error.code != 0) return comm->error.code;
  return finish(comm, comm->ops->barrier(comm), 0);
}

int comm_reduce(comm_t *comm, float *values, size_t count) {
  if (comm->error.code != 0) return comm->error.code;
  return finish(comm, comm->ops->reduce(comm, values, count), 0); /* which counts its bytes */
}

int comm_check(comm_t *comm) {
  if (comm->error.code != 0 || comm->ops->check == NULL) return comm->error.code;
  if (comm->ops->check(comm) == 0) return 0;
  comm->error.code = ERR_DEVICE_FAILED;
  comm->ops->abandon(comm);
  return ERR_DEVICE_FAILED;
}

void comm_abandon(comm_t *comm, const char *why) {
  if (comm->error.code != 0) return;
  error_set(&comm->error, ERR_DEVICE_FAILED, NULL, "rank %d of %d: %s", comm->rank, comm->size,
            why);
  comm->ops->abandon(comm);
}

void comm_close(comm_t *comm) {
  if (comm == NULL) return;
  comm->ops->close(comm);
}
