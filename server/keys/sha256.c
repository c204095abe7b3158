/* sha256.c: SHA-256 after FIPS 180-4, for API keys, which live in memory only as digests.
 *
 * Pure functions, any thread. Not a general crypto library: no streaming, no HMAC.
 */
#include "server/keys/sha256.h"

#include <string.h>

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS
 * 180-4, 4.2.2). */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t value, int bits) {
  return (value >> bits) | (value << (32 - bits));
}

static uint32_t load_be32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void store_be32(uint8_t *to, uint32_t value) {
  to[0] = (uint8_t)(value >> 24);
  to[1] = (uint8_t)(value >> 16);
  to[2] = (uint8_t)(value >> 8);
  to[3] = (uint8_t)value;
}

/* Round t of eight: the working variable i (a to h are 0 to 7) lies at (i - t) mod 8, so that none
 * is moved, and all stay in registers. */
#define AT(i, t) v[((i) + 8 - (t)) % 8]
#define ROUND(t)                                                                                   \
  do {                                                                                             \
    const uint32_t e = AT(4, t), a = AT(0, t), b = AT(1, t), c = AT(2, t);                         \
    const uint32_t temp1 = AT(7, t) + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +             \
                           ((e & AT(5, t)) ^ (~e & AT(6, t))) + round_constants[first + (t)] +     \
                           w[first + (t)];                                                         \
    AT(3, t) += temp1;                                                                             \
    AT(7, t) =                                                                                     \
        temp1 + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));    \
  } while (0)

/* One 64-byte block (FIPS 180-4, 6.2.2). */
static void compress(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64], v[8];
  for (int t = 0; t < 16; t++) w[t] = load_be32(block + 4 * t);
  for (int t = 16; t < 64; t++) {
    uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ (w[t - 15] >> 3);
    uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  memcpy(v, state, sizeof v);
  for (int first = 0; first < 64; first += 8) {
    ROUND(0);
    ROUND(1);
    ROUND(2);
    ROUND(3);
    ROUND(4);
    ROUND(5);
    ROUND(6);
    ROUND(7);
  }
  for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sha256(const void *data, size_t length, uint8_t digest[SHA256_BYTES]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *bytes = data;
  size_t rest = length;
  for (; rest >= 64; rest -= 64, bytes += 64) compress(state, bytes);

  /* Padding: a one bit, zeros, the length in bits; one block or two. */
  uint8_t tail[128] = {0};
  if (rest > 0) memcpy(tail, bytes, rest);
  tail[rest] = 0x80;
  size_t tail_length = rest < 56 ? 64 : 128;
  uint64_t bits = (uint64_t)length * 8;
  store_be32(tail + tail_length - 8, (uint32_t)(bits >> 32));
  store_be32(tail + tail_length - 4, (uint32_t)bits);
  compress(state, tail);
  if (tail_length == 128) compress(state, tail + 64);
  for (int i = 0; i < 8; i++) store_be32(digest + 4 * i, state[i]);
}
