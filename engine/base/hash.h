/* hash.h: hashes without a key. Where a client could choose colliding input, use siphash.h.
 *
 * FNV-1a (Fowler, Noll, Vo) reads a byte at a time and gives the same value on every machine and in
 * every release, so its values may name files and seeds. hash_bytes reads eight bytes at a time;
 * its values depend on the byte order, so they may only be used within a process. Pure functions,
 * any thread.
 */
#ifndef INFERD_ENGINE_BASE_HASH_H
#define INFERD_ENGINE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FNV_32_BASIS UINT32_C(2166136261)
#define FNV_64_BASIS UINT64_C(0xcbf29ce484222325)

/* One step of FNV-1a. To hash words larger than a byte, take one step per word. */
static inline uint32_t fnv_32_step(uint32_t hash, uint32_t word) {
  return (hash ^ word) * UINT32_C(16777619);
}

/* Continues the hash `hash`, which is FNV_32_BASIS at the start; fnv_64 likewise. */
static inline uint32_t fnv_32(uint32_t hash, const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  for (size_t i = 0; i < length; i++) hash = fnv_32_step(hash, at[i]);
  return hash;
}

static inline uint64_t fnv_64(uint64_t hash, const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  for (size_t i = 0; i < length; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
  return hash;
}

/* Spreads a difference in a few bits over all bits. */
static inline uint64_t hash_mix(uint64_t word) {
  word ^= word >> 32;
  word *= UINT64_C(0x9E3779B97F4A7C15);
  return word ^ word >> 29;
}

static inline uint64_t hash_bytes(const uint8_t *bytes, size_t length) {
  uint64_t hash = length * UINT64_C(0xD6E8FEB86659FD93), word;
  for (; length >= 8; bytes += 8, length -= 8) {
    memcpy(&word, bytes, 8);
    hash = hash_mix(hash ^ word);
  }
  word = 0;
  if (length > 0) memcpy(&word, bytes, length);
  return hash_mix(hash_mix(hash ^ word) + UINT64_C(0x632BE59BD9B4E019));
}

#endif
