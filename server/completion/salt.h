/* salt.h: which requests may share cached KV blocks. Pure, any thread. */
#ifndef INFERD_SERVER_COMPLETION_SALT_H
#define INFERD_SERVER_COMPLETION_SALT_H

#include <stddef.h>
#include <stdint.h>

/* The 64-bit prefix-cache domain of a tenant and a salt: SipHash-2-4 of both under `key`. */
uint64_t salt_hash(const uint64_t key[2], uint64_t tenant, const char *salt, size_t length);

#endif
