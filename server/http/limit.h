/* limit.h: how many connections a peer has open. Loop thread only. */
#ifndef INFERD_SERVER_HTTP_LIMIT_H
#define INFERD_SERVER_HTTP_LIMIT_H

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

typedef struct limit limit_t;

/* Room for `peers_max` different peers at once. NULL when memory is short. */
limit_t *limit_new(int32_t peers_max, int32_t connections_per_peer);
void limit_free(limit_t *limit); /* NULL is allowed */

bool limit_peer_full(const limit_t *limit, const peer_t *peer);
void limit_peer_add(limit_t *limit, const peer_t *peer);
void limit_peer_remove(limit_t *limit, const peer_t *peer);

#endif
