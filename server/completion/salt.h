/* salt.h: the prefix-cache domain of a request, from its tenant and its `cache_salt`.
 *
 * Two requests share cached KV blocks only if their domains are equal. Pure function, any thread.
 */
#ifndef INFERD_SERVER_COMPLETION_SALT_H
#define INFERD_SERVER_COMPLETION_SALT_H

#include <stddef.h>
#include <stdint.h>

/* Returns the domain: SipHash-2-4 of the tenant and of `length` bytes of salt (which need no NUL),
 * under `key`. The key is random and drawn once per process, so a domain means nothing in another
 * process, and a client cannot find a salt that hits the domain of another tenant. Cannot fail. */
uint64_t salt_hash(const uint64_t key[2], uint64_t tenant, const char *salt, size_t length);

#endif
