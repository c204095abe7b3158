/* exchange.h: what the devices of several ranks exchange, in the order of the device's stream.
 *
 * One way of it is chosen when the device is prepared; all ranks choose the same. Engine thread. A
 * call launches, or waits and leaves the copies behind it to the stream. When a rank fails, the
 * comm_t has the reason, and `end` reports it.
 */
#ifndef INFERD_CUDA_RANKS_EXCHANGE_H
#define INFERD_CUDA_RANKS_EXCHANGE_H

#include "engine/device/comm.h"
#include "engine/device/step_limits.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct device;

/* A way for the bytes. NULL = nothing to do. */
typedef struct rank_way {
  bool in_graphs; /* the calls only launch, and may stand in a graph */
  /* As comm_gather of `data` in device memory, but this rank's bytes come from `own`, which may be
   * their place in `data`. */
  void (*gather)(struct device *device, uint8_t *data, const void *own, const size_t *cuts,
                 int32_t root);
  /* Rank r gets bytes [cuts[r], cuts[r + 1]) of `own` of every rank, one rank's behind another's in
   * `data`; only with in_graphs. */
  void (*scatter)(struct device *device, uint8_t *data, const uint8_t *own, const size_t *cuts);
  /* As comm_broadcast, of device memory; only with in_graphs. */
  void (*broadcast)(struct device *device, void *data, size_t bytes, int32_t root);
  void (*check)(struct device *device); /* makes the comm_t fail if launches have failed since */
  void (*abort)(struct device *device); /* ends soon what is launched and waits for other ranks */
  void (*close)(struct device *device); /* after the graphs are destroyed; waits for some seconds */
  void (*describe)(const struct device *device, char *out, size_t size);
} rank_way_t;

enum { EXCHANGE_GRAPHS_MAX = 128, EXCHANGE_WHY_BYTES = 160 };

/* Collectives, and the bytes that this rank gets by them. */
typedef struct rank_counts {
  uint64_t calls, bytes;
} rank_counts_t;

/* Of a device that has other ranks. */
typedef struct exchange {
  comm_t *comm;
  const rank_way_t *way;
  uint8_t *parts; /* device, [bytes]: rows are exchanged as many at a time as fit */
  size_t bytes;
  uint8_t *host;                /* pinned, the same; NULL with NCCL */
  struct nccl *nccl;            /* nccl.h */
  char why[EXCHANGE_WHY_BYTES]; /* not NCCL */
  rank_counts_t captured, of_graph[EXCHANGE_GRAPHS_MAX];
} rank_exchange_t;

extern const rank_way_t exchange_staged; /* through pinned host memory and the comm_t */

size_t exchange_bytes(const step_limits_t *limits); /* of the workspace */
/* Takes the comm_t; 0 or ERR_NO_MEMORY. */
int exchange_new(struct device *device, comm_t *comm, inferd_error_t *error);
/* After device->limits is set; waits for the other ranks. 0, or why not. */
int exchange_open(struct device *device, inferd_error_t *error); /* nothing without ranks */
void exchange_close(struct device *device);
/* A line for the log. */
void exchange_describe(const struct device *device, char *out, size_t size);
/* Waits for an event of the stream, or until a rank fails: 0, a cudaError_t, or -1 with the reason
 * in the comm_t. Only with ranks that exchange on the stream; others wait for the event alone. */
int exchange_wait(struct device *device, cudaEvent_t done);
/* The same for all that the stream has, in a step. */
int exchange_sync(struct device *device);
/* Before a close: what waits for ranks that have failed ends. */
void exchange_abort(struct device *device);
/* What a graph exchanges: noted when it is captured, counted at each replay. */
void exchange_captured(struct device *device, int32_t graph);
void exchange_replayed(struct device *device, int32_t graph);
/* device->exchange->parts becomes the parts of all ranks, or of rank `root` alone. Step function.
 */
void exchange_gather(struct device *device, const void *own, const size_t *cuts, int32_t root);

/* `data` of all becomes that of rank `root`; only where calls launch. Step function. */
void exchange_broadcast(struct device *device, void *data, size_t bytes, int32_t root);

/* `data` becomes what each rank has in `own` for this one; only where calls launch. */
void exchange_scatter(struct device *device, uint8_t *data, const uint8_t *own, const size_t *cuts);

#endif
