/* sha256.h: SHA-256 (FIPS 180-4) of a whole buffer, for API keys. */
#ifndef INFERD_SERVER_HTTP_SHA256_H
#define INFERD_SERVER_HTTP_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

/* digest[32] = SHA-256 of data[length]. Any thread; cannot fail. */
void sha256(const void *data, size_t length, uint8_t digest[SHA256_BYTES]);

#endif
