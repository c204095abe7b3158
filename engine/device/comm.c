/* comm.c: what all implementations of comm.h share: the first error stays, sums in fixed order.
 *
 * One thread at a time. Knows nothing of how bytes travel.
 */
#include "engine/device/comm.h"

#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum { SUM_VALUES = 65536 }; /* of each rank at a time */

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
  size_t cuts[RANKS_MAX + 1];
  if (comm->sums == NULL) comm->sums = calloc((size_t)comm->size, SUM_VALUES * sizeof(float));
  if (comm->sums == NULL) {
    comm_abandon(comm, "no memory for sums of all ranks");
    return comm->error.code;
  }
  for (size_t first = 0; first < count; first += SUM_VALUES) {
    const size_t some = MIN(count - first, (size_t)SUM_VALUES);
    for (int32_t r = 0; r <= comm->size; r++) cuts[r] = (size_t)r * some * sizeof(float);
    memcpy(comm->sums + (size_t)comm->rank * some, values + first, some * sizeof(float));
    int code = comm_gather(comm, comm->sums, cuts, -1);
    if (code != 0) return code;
    memcpy(values + first, comm->sums, some * sizeof(float));
    for (int32_t r = 1; r < comm->size; r++) {
      const float *of_rank = comm->sums + (size_t)r * some;
      for (size_t i = 0; i < some; i++) values[first + i] += of_rank[i];
    }
  }
  return 0;
}

void comm_abandon(comm_t *comm, const char *why) {
  if (comm->error.code != 0) return;
  error_set(&comm->error, ERR_DEVICE_FAILED, NULL, "rank %d of %d: %s", comm->rank, comm->size,
            why);
  comm->ops->abandon(comm);
}

void comm_close(comm_t *comm) {
  if (comm == NULL) return;
  free(comm->sums);
  comm->ops->close(comm);
}
