/* salt.c: the prefix-cache domain of a request: a keyed hash of tenant and cache_salt.
 *
 * Pure function, any thread. The key is drawn once per process, so nobody can compute a salt that
 * falls into another one's domain.
 */
#include "server/salt.h"

static uint64_t rotate(uint64_t x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

static void sip_round(uint64_t v[4]) {
  v[0] += v[1], v[2] += v[3];
  v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
  v[0] = rotate(v[0], 32);
  v[2] += v[1], v[0] += v[3];
  v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
  v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word) {
  v[3] ^= word;
  sip_round(v);
  sip_round(v);
  v[0] ^= word;
}

/* SipHash-2-4 (Aumasson, Bernstein 2012) over the tenant, then the salt: nobody can choose a salt
 * that falls into another one's domain. */
uint64_t salt_hash(const uint64_t key[2], uint64_t tenant, const char *salt, size_t length) {
  uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                   key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
  sip_word(v, tenant);
  uint64_t word = 0;
  for (size_t i = 0; i < length; i++) {
    word |= (uint64_t)(uint8_t)salt[i] << (8 * (i % 8));
    if (i % 8 == 7) {
      sip_word(v, word);
      word = 0;
    }
  }
  sip_word(v, word | (uint64_t)(length + 8) << 56);
  v[2] ^= 0xff;
  for (int i = 0; i < 4; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}
