/* address.h: which addresses are of hosts on the public internet. Pure function; any thread. */
#ifndef INFERD_SERVER_MEDIA_ADDRESS_H
#define INFERD_SERVER_MEDIA_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* False for what the registries of special addresses (IANA) call not globally reachable: loopback,
 * private, link-local, shared by carriers, documentation, benchmarks, multicast, reserved; for IPv4
 * within IPv6 (mapped, 6to4, Teredo), but for that of NAT64 where the address inside is public; and
 * for other families. */
bool media_address_is_public(const struct sockaddr *address);

#endif
