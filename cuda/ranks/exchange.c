/* exchange.c: chooses how ranks exchange, and the way through host memory.
 *
 * Engine thread. The staged way waits for the stream, so it runs in no graph, and a rank does not
 * compute meanwhile: it is for devices without NCCL.
 */
#include "cuda/ranks/exchange.h"
#include "cuda/operations.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdio.h>

static const size_t PARTS_BYTES = 64 << 20; /* that are exchanged at once, unless a row has more */

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
    code = device_take_pinned(device, (void **)&exchange->host, exchange->bytes, what, error);
  if (!code) exchange->way = &exchange_staged;
  return code;
}

void exchange_close(device_t *device) {
  rank_exchange_t *exchange = device->exchange;
  if (exchange == NULL || exchange->way == NULL) return;
  if (exchange->way->close != NULL) exchange->way->close(device);
  exchange->way = NULL;
}

void exchange_describe(const device_t *device, char *out, size_t size) {
  snprintf(out, size, "exchange  through host memory and %s: without graphs",
           device->exchange->comm->ops->name);
}

void exchange_gather(device_t *device, const void *own, const size_t *cuts, int32_t root) {
  rank_exchange_t *exchange = device->exchange;
  CHECK_LE(cuts[exchange->comm->size], exchange->bytes);
  if (!device_is_live(device)) return;
  exchange->way->gather(device, exchange->parts, own, cuts, root);
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
