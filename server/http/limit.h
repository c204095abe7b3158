/* limit.h: how many connections a peer has open, and how slow one may be.
 * Loop thread only. */
#ifndef INFERD_SERVER_HTTP_LIMIT_H
#define INFERD_SERVER_HTTP_LIMIT_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A peer address; IPv4 is written as ::ffff:a.b.c.d. All addresses of an IPv6 /64 are one peer,
 * because one host may use any address in its /64. */
typedef struct peer {
  uint8_t bytes[16];
  bool counted; /* false: loopback and UNIX sockets, which have no limit */
} peer_t;

void peer_from(const struct sockaddr *address, peer_t *out);

/* Most open connections by the options: if not told, for all that can run and wait. */
int32_t limit_connections(const config_t *config);

typedef struct limit limit_t;

/* Room for `peers_max` different peers at once. NULL when memory is short. */
limit_t *limit_new(int32_t peers_max, int32_t connections_per_peer);
void limit_set(limit_t *limit, int32_t connections_per_peer);
void limit_free(limit_t *limit); /* NULL is allowed */

bool limit_peer_full(const limit_t *limit, const peer_t *peer);
void limit_peer_add(limit_t *limit, const peer_t *peer);
void limit_peer_remove(limit_t *limit, const peer_t *peer);

/* Bytes that arrive, or are taken, over windows of 10 seconds. `(pace_t){0}` has not begun. */
typedef struct pace {
  uint64_t window_ms, window_bytes; /* where the present window began; 0: it begins at next look */
} pace_t;
/* A look at `bytes`, a count that only grows, at a time > 0. Returns true if a window ends and had
 * less than 1 KiB a second. */
bool pace_is_slow(pace_t *pace, uint64_t now_ms, uint64_t bytes);
/* Bytes that the other end of a TCP connection has acknowledged so far; 0 if that is not known. */
uint64_t pace_acknowledged(int fd);

#endif
