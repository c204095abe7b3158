/* limit.c: connection counts per peer in a fixed hash table, and the least speed of a connection.
 *
 * Loop thread. Everything is allocated at start; a peer that finds no place in the table (more
 * peers than connections are allowed, so never) is not counted rather than refused.
 */
#include "server/http/limit.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"

#include <linux/tcp.h> /* its tcp_info knows the acknowledged bytes */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* Sequences where max_num_seqs is auto, of any back end; connections that run and wait nothing. */
enum { SEQS_AUTO = 256, CONNECTIONS_BESIDE = 256, CONNECTIONS_LEAST = 4096 };

int32_t limit_connections(const config_t *config) {
  const int64_t seqs = config->max_num_seqs > 0 ? config->max_num_seqs : SEQS_AUTO;
  const int64_t all =
      seqs * config->data_parallel_size + config->max_queue_requests + CONNECTIONS_BESIDE;
  if (config->max_connections > 0) return (int32_t)config->max_connections;
  return (int32_t)(all > CONNECTIONS_LEAST ? all : CONNECTIONS_LEAST);
}

typedef struct limit_slot {
  uint8_t bytes[16];
  int32_t count; /* 0 = free */
} limit_slot_t;

struct limit {
  limit_slot_t *slots; /* open addressing, linear probing */
  uint32_t mask;
  int32_t per_peer; /* 0 = no bound */
};

void peer_from(const struct sockaddr *address, peer_t *out) {
  memset(out, 0, sizeof *out);
  if (address == NULL) return;
  if (address->sa_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    out->bytes[10] = out->bytes[11] = 0xff;
    memcpy(out->bytes + 12, &v4->sin_addr, 4);
    out->counted = out->bytes[12] != 127;
  } else if (address->sa_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    memcpy(out->bytes, &v6->sin6_addr, mapped ? 16 : 8);
    out->counted = mapped ? out->bytes[12] != 127 : !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
}

limit_t *limit_new(int32_t peers_max, int32_t connections_per_peer) {
  limit_t *limit = calloc(1, sizeof *limit);
  if (limit == NULL) return NULL;
  uint32_t size = 64;
  while (size < (uint32_t)peers_max * 2) size *= 2;
  limit->slots = calloc(size, sizeof *limit->slots);
  if (limit->slots == NULL) {
    free(limit);
    return NULL;
  }
  limit->mask = size - 1;
  limit->per_peer = connections_per_peer;
  return limit;
}

void limit_set(limit_t *limit, int32_t connections_per_peer) {
  limit->per_peer = connections_per_peer;
}

void limit_free(limit_t *limit) {
  if (limit == NULL) return;
  free(limit->slots);
  free(limit);
}

static uint32_t hash_of(const uint8_t bytes[16]) {
  uint64_t hash = fnv_64(FNV_64_BASIS, bytes, 16);
  return (uint32_t)(hash ^ hash >> 32);
}

/* The peer's slot, else the free one where it would go, else NULL (table full). */
static limit_slot_t *find(const limit_t *limit, const peer_t *peer) {
  uint32_t at = hash_of(peer->bytes) & limit->mask;
  for (uint32_t n = 0; n <= limit->mask; n++, at = (at + 1) & limit->mask) {
    limit_slot_t *slot = &limit->slots[at];
    if (slot->count == 0 || memcmp(slot->bytes, peer->bytes, 16) == 0) return slot;
  }
  return NULL;
}

bool limit_peer_full(const limit_t *limit, const peer_t *peer) {
  if (limit->per_peer == 0 || !peer->counted) return false;
  const limit_slot_t *slot = find(limit, peer);
  return slot != NULL && slot->count >= limit->per_peer;
}

void limit_peer_add(limit_t *limit, const peer_t *peer) {
  if (!peer->counted) return;
  limit_slot_t *slot = find(limit, peer);
  if (slot == NULL) return;
  if (slot->count == 0) memcpy(slot->bytes, peer->bytes, 16);
  slot->count++;
}

void limit_peer_remove(limit_t *limit, const peer_t *peer) {
  if (!peer->counted) return;
  limit_slot_t *slot = find(limit, peer);
  if (slot == NULL || slot->count == 0 || --slot->count > 0) return;
  /* A hole would hide peers that were pushed past it: move them back (Knuth, Algorithm 6.4R). */
  uint32_t hole = (uint32_t)(slot - limit->slots);
  for (uint32_t at = (hole + 1) & limit->mask; limit->slots[at].count > 0;
       at = (at + 1) & limit->mask) {
    uint32_t home = hash_of(limit->slots[at].bytes) & limit->mask;
    if (((at - home) & limit->mask) < ((at - hole) & limit->mask)) continue;
    limit->slots[hole] = limit->slots[at];
    limit->slots[at].count = 0;
    hole = at;
  }
}

bool pace_is_slow(pace_t *pace, uint64_t now_ms, uint64_t bytes) {
  enum { WINDOW_MS = 10000, WINDOW_BYTES = 10 * 1024 };
  bool begun = pace->window_ms != 0;
  if (begun && now_ms - pace->window_ms < WINDOW_MS) return false;
  bool slow = begun && bytes - pace->window_bytes < WINDOW_BYTES;
  *pace = (pace_t){now_ms, bytes};
  return slow;
}

uint64_t pace_acknowledged(int fd) {
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_acked : 0;
}
