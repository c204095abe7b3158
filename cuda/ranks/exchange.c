/* exchange.c: chooses how ranks exchange, waits for what they have launched, and has the way
 * through host memory.
 *
 * Engine thread. The staged way waits for the stream, so it runs in no graph, and a rank does not
 * compute meanwhile: it is for machines without NCCL.
 */
#include "cuda/ranks/exchange.h"
#include "cuda/operations.h"
#include "cuda/ranks/nccl.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"

#include <sched.h>
#include <stdio.h>

static const size_t PARTS_BYTES = 64 << 20; /* that are exchanged at once, unless a row has more */

static const uint64_t LOOK_NS = 10000000; /* between looks at the other ranks */
_Static_assert((int)EXCHANGE_GRAPHS_MAX == (int)GRAPHS_MAX, "counts of each graph");

/* Bytes of all ranks' parts of the longest row. */
static size_t row_bytes(const step_limits_t *limits) {
  const size_t ranks = (size_t)limits->ranks, hidden = (size_t)limits->hidden_max;
  const size_t pairs = (size_t)MAX(limits->experts_top_max, 1);
  return MAX(device_product(ranks * pairs, hidden, sizeof(uint16_t)),
             (size_t)limits->vocab_size * sizeof(float));
}

size_t exchange_bytes(const step_limits_t *limits) {
  if (limits->ranks <= 1) return 0;
  const size_t row = row_bytes(limits);
  const size_t all = device_product(row, (size_t)limits->tokens_max, 1);
  return MAX(MIN(all, PARTS_BYTES), row);
}

int exchange_new(device_t *device, comm_t *comm, inferd_error_t *error) {
  const size_t bytes = sizeof *device->exchange;
  if (comm == NULL) return 0;
  int code = device_take_heap(device, (void **)&device->exchange, bytes, "ranks", error);
  if (!code) device->exchange->comm = comm;
  return code;
}

int exchange_open(device_t *device, inferd_error_t *error) {
  rank_exchange_t *exchange = device->exchange;
  if (exchange == NULL) return 0;
  CHECK_EQ(device->limits.ranks, exchange->comm->size);
  const char *what = "what ranks exchange";
  exchange->bytes = exchange_bytes(&device->limits);
  int code = device_take(device, (void **)&exchange->parts, exchange->bytes, what, error);
  if (!code)
    code = device_take_heap(device, (void **)&exchange->nccl, sizeof *exchange->nccl, what, error);
  if (code) return code;
  if (nccl_open(device, exchange->why, sizeof exchange->why, &code, error)) {
    exchange->way = &exchange_nccl;
    return code;
  }
  exchange->way = &exchange_staged;
  return device_take_pinned(device, (void **)&exchange->host, exchange->bytes, what, error);
}

void exchange_close(device_t *device) {
  rank_exchange_t *exchange = device->exchange;
  if (exchange == NULL || exchange->way == NULL) return;
  if (exchange->way->close != NULL) exchange->way->close(device);
  exchange->way = NULL;
}

void exchange_describe(const device_t *device, char *out, size_t size) {
  const rank_exchange_t *exchange = device->exchange;
  char library[64];
  if (exchange->way->describe != NULL) {
    exchange->way->describe(device, library, sizeof library);
    snprintf(out, size, "exchange  from GPU to GPU by %s", library);
  } else {
    snprintf(out, size, "exchange  through host memory, slower and without graphs: %s",
             exchange->why);
  }
}

/* ---- steps ---- */

/* Of one collective, the bytes that this rank gets. */
static void count(device_t *device, size_t bytes) {
  rank_exchange_t *exchange = device->exchange;
  comm_t *comm = exchange->comm;
  if (device->mode == STEP_CAPTURE) {
    exchange->captured.calls++;
    exchange->captured.bytes += bytes;
  } else if (exchange->way->in_graphs) { /* else comm_gather counts */
    comm->num_calls++;
    comm->num_bytes += bytes;
  }
}

void exchange_gather(device_t *device, const void *own, const size_t *cuts, int32_t root) {
  rank_exchange_t *exchange = device->exchange;
  const comm_t *comm = exchange->comm;
  const size_t mine = cuts[comm->rank + 1] - cuts[comm->rank];
  CHECK_LE(cuts[comm->size], exchange->bytes);
  if (!device_is_live(device)) return;
  count(device, root < 0 || root == comm->rank ? cuts[comm->size] - mine : 0);
  exchange->way->gather(device, exchange->parts, own, cuts, root);
}

void exchange_scatter(device_t *device, uint8_t *data, const uint8_t *own, const size_t *cuts) {
  const comm_t *comm = device->exchange->comm;
  const size_t mine = cuts[comm->rank + 1] - cuts[comm->rank];
  if (!device_is_live(device)) return;
  count(device, (size_t)(comm->size - 1) * mine);
  device->exchange->way->scatter(device, data, own, cuts);
}

void exchange_broadcast(device_t *device, void *data, size_t bytes, int32_t root) {
  if (!device_is_live(device) || bytes == 0) return;
  count(device, root == device->exchange->comm->rank ? 0 : bytes);
  device->exchange->way->broadcast(device, data, bytes, root);
}

void exchange_captured(device_t *device, int32_t graph) {
  if (device->exchange == NULL) return;
  device->exchange->of_graph[graph] = device->exchange->captured;
  device->exchange->captured = (rank_counts_t){0};
}

void exchange_replayed(device_t *device, int32_t graph) {
  if (device->exchange == NULL) return;
  device->exchange->comm->num_calls += device->exchange->of_graph[graph].calls;
  device->exchange->comm->num_bytes += device->exchange->of_graph[graph].bytes;
}

/* False when a rank has failed, or none answers for too long. */
static bool all_live(device_t *device, uint64_t began_ns) {
  comm_t *comm = device->exchange->comm;
  if (device->exchange->way->check != NULL) device->exchange->way->check(device);
  if (comm_check(comm) != 0) return false;
  if (comm->limit_ns == 0 || clock_now_ns() - began_ns < comm->limit_ns) return true;
  comm_abandon(comm, "a rank does not answer on the device");
  return false;
}

int exchange_wait(device_t *device, cudaEvent_t done) {
  if (device->exchange == NULL || !device->exchange->way->in_graphs)
    return (int)cudaEventSynchronize(done);
  const uint64_t began_ns = clock_now_ns();
  uint64_t looked_ns = began_ns;
  int status;
  while ((status = (int)cudaEventQuery(done)) == cudaErrorNotReady) {
    sched_yield();
    if (clock_now_ns() - looked_ns < LOOK_NS) continue;
    looked_ns = clock_now_ns();
    if (all_live(device, began_ns)) continue;
    device->exchange->way->abort(device);
    return -1;
  }
  return status;
}

int exchange_sync(device_t *device) {
  if (device->exchange == NULL || !device->exchange->way->in_graphs)
    return (int)cudaStreamSynchronize(device->stream);
  const int status = (int)cudaEventRecord(device->step->done, device->stream);
  return status ? status : exchange_wait(device, device->step->done);
}

void exchange_abort(device_t *device) {
  const rank_exchange_t *exchange = device->exchange;
  if (exchange == NULL || exchange->way == NULL || exchange->way->abort == NULL) return;
  if (exchange->comm->error.code != 0) exchange->way->abort(device);
}

/* ---- through host memory ---- */

static void copy(device_t *device, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind) {
  if (bytes == 0 || device->fault != 0) return;
  device_note(device, (int)cudaMemcpyAsync(to, from, bytes, kind, device->stream),
              "an exchange of ranks");
}

static void staged_gather(device_t *device, uint8_t *data, const void *own, const size_t *cuts,
                          int32_t root) {
  rank_exchange_t *exchange = device->exchange;
  comm_t *comm = exchange->comm;
  uint8_t *host = exchange->host;
  const size_t first = cuts[comm->rank], bytes = cuts[comm->rank + 1] - first;
  copy(device, host + first, own, bytes, cudaMemcpyDeviceToHost);
  device_note(device, (int)cudaStreamSynchronize(device->stream), "an exchange of ranks");
  if (device->fault != 0) return;
  if (comm_gather(comm, host, cuts, root) != 0) {
    device_note(device, cudaErrorLaunchFailure, "an exchange of ranks");
    return;
  }
  if (root < 0 || root == comm->rank)
    copy(device, data, host, cuts[comm->size], cudaMemcpyHostToDevice);
}

const rank_way_t exchange_staged = {.gather = staged_gather};
