/* kv_publisher.h: batches of events of the KV cache over ZeroMQ, as vLLM publishes them.
 *
 * A PUB socket sends [topic, number, payload]; a ROUTER socket answers [id, "", number] with
 * [id, "", topic, number, payload] for each batch that is kept from that number on, and at the end
 * [id, "", "", -1, ""]. Numbers have 8 bytes, the highest first. The publisher has a thread of its
 * own, and never makes the engine wait: a subscriber that does not read loses batches.
 */
#ifndef INFERD_SERVER_KV_EVENTS_KV_PUBLISHER_H
#define INFERD_SERVER_KV_EVENTS_KV_PUBLISHER_H

#include "server/kv_events/kv_stream.h"

typedef struct kv_publisher kv_publisher_t;

typedef struct kv_publisher_options {
  const char *endpoint; /* tcp://HOST:PORT or ipc://PATH */
  const char *replay;   /* the same, of the ROUTER socket; "" = none */
  const char *topic;
  kv_stream_options_t stream;
} kv_publisher_options_t;

typedef struct kv_publisher_stats {
  uint64_t batches, dropped; /* sent; events that the engine dropped */
} kv_publisher_stats_t;

/* Whether the socket of an address is bound here; else it is connected to a subscriber that is:
 * as vLLM decides, by a `*` or `::` in it, or ipc. */
bool kv_endpoint_binds(const char *endpoint);

/* Opens the sockets and starts the thread, which reads `events` from now on. The texts of the
 * options are copied. Returns 0, ERR_CONFIGURATION, ERR_ADDRESS_IN_USE, ERR_PERMISSION, ERR_IO or
 * ERR_NO_MEMORY. */
int kv_publisher_new(const kv_publisher_options_t *options, kv_events_t *events,
                     kv_publisher_t **out, inferd_error_t *error);
/* Sends what is left and ends the thread. NULL is allowed. */
void kv_publisher_free(kv_publisher_t *publisher);
kv_publisher_stats_t kv_publisher_stats(const kv_publisher_t *publisher); /* any thread */

#endif
