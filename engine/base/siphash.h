/* siphash.h: SipHash (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012), the keyed hash
 * of everything that clients can choose: JSON keys, cache salts, prefixes of prompts.
 *
 * The key is random per process, so no client can construct collisions. `rounds` is 1 (SipHash-1-3)
 * for hash tables, which only need protection against flooding, and 2 (SipHash-2-4) where the value
 * is used as an identity. Use: begin, any number of words, bytes once, end. Pure functions, any
 * thread.
 */
#ifndef INFERD_ENGINE_BASE_SIPHASH_H
#define INFERD_ENGINE_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct siphash {
  uint64_t v[4];
  uint64_t num_bytes; /* hashed so far */
} siphash_t;

static inline uint64_t siphash_rotate(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

static inline void siphash_rounds(siphash_t *siphash, int count) {
  uint64_t *v = siphash->v;
  for (int i = 0; i < count; i++) {
    v[0] += v[1], v[2] += v[3];
    v[1] = siphash_rotate(v[1], 13) ^ v[0], v[3] = siphash_rotate(v[3], 16) ^ v[2];
    v[0] = siphash_rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = siphash_rotate(v[1], 17) ^ v[2], v[3] = siphash_rotate(v[3], 21) ^ v[0];
    v[2] = siphash_rotate(v[2], 32);
  }
}

static inline siphash_t siphash_begin(const uint64_t key[2]) {
  return (siphash_t){{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                      key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u},
                     0};
}

static inline void siphash_word(siphash_t *siphash, uint64_t word, int rounds) {
  siphash->v[3] ^= word;
  siphash_rounds(siphash, rounds);
  siphash->v[0] ^= word;
  siphash->num_bytes += sizeof word;
}

/* Hashes the last bytes, and the final word, which has the number of all bytes. */
static inline void siphash_bytes(siphash_t *siphash, const char *bytes, size_t length, int rounds) {
  uint64_t word, tail = (siphash->num_bytes + length) << 56;
  size_t i = 0;
  for (; i + 8 <= length; i += 8) {
    memcpy(&word, bytes + i, 8);
    siphash_word(siphash, word, rounds);
  }
  for (int shift = 0; i < length; i++, shift += 8) {
    tail |= (uint64_t)(unsigned char)bytes[i] << shift;
  }
  siphash_word(siphash, tail, rounds);
}

static inline uint64_t siphash_fold(siphash_t *siphash, int rounds) {
  siphash_rounds(siphash, rounds);
  return siphash->v[0] ^ siphash->v[1] ^ siphash->v[2] ^ siphash->v[3];
}

/* Returns the 64-bit hash, after 3 final rounds (`rounds` 1) or 4 (`rounds` 2). */
static inline uint64_t siphash_end(siphash_t *siphash, int rounds) {
  siphash->v[2] ^= 0xff;
  return siphash_fold(siphash, rounds + 2);
}

/* SipHash-2-4 with 128 bits: siphash_begin_128, words and bytes with `rounds` 2, siphash_end_128.
 */
static inline siphash_t siphash_begin_128(const uint64_t key[2]) {
  siphash_t siphash = siphash_begin(key);
  siphash.v[1] ^= 0xee;
  return siphash;
}

static inline void siphash_end_128(siphash_t *siphash, uint64_t out[2]) {
  siphash->v[2] ^= 0xee;
  out[0] = siphash_fold(siphash, 4);
  siphash->v[1] ^= 0xdd;
  out[1] = siphash_fold(siphash, 4);
}

#endif
