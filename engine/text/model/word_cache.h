/* word_cache.h: remembers the ids of short pieces, one cache per tokenizing thread.
 *
 * Two tables: pieces up to 15 bytes with up to 3 ids (two ways, one cache line per set), and pieces
 * up to 64 bytes with up to 15 ids (direct mapped). A full compare decides, so a hash collision
 * costs a miss, never a wrong id. Not shared between threads.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_WORD_CACHE_H
#define INFERD_ENGINE_TEXT_MODEL_WORD_CACHE_H

#include "engine/base/hash.h"

#include <stdlib.h>
#include <string.h>

enum {
  WORD_CACHE_BYTES_MAX = 64,
  WORD_CACHE_IDS_MAX = 15,
  WORD_SHORT_BYTES_MAX = 15,
  WORD_SHORT_IDS_MAX = 3,
  WORD_CACHE_ALIGN = 64,
  WORD_SHORT_SETS = 1 << 14, /* 1 MiB */
  WORD_LONG_SLOTS = 1 << 13  /* 1 MiB */
};

typedef struct word_short {
  uint64_t low, high; /* the bytes; the top byte of `high` is their number */
  int32_t ids[WORD_SHORT_IDS_MAX];
  uint32_t count; /* 0 = empty */
} word_short_t;

typedef struct word_long {
  uint8_t bytes[WORD_CACHE_BYTES_MAX];
  uint16_t length, count;
  int32_t ids[WORD_CACHE_IDS_MAX];
} word_long_t;

typedef struct word_cache {
  void *memory;         /* of both tables */
  word_short_t *shorts; /* [2 * WORD_SHORT_SETS] */
  word_long_t *longs;   /* [WORD_LONG_SLOTS] */
} word_cache_t;

typedef struct word_key {
  const uint8_t *piece;
  size_t length;
  uint64_t low, high, hash; /* low, high: only for short pieces */
} word_key_t;

/* Aligned, so that a set or a slot touches as few cache lines as it can. The pages of so large a
 * calloc come zeroed from the system, each when it is touched first: most scratches use few. */
static inline bool word_cache_init(word_cache_t *cache) {
  enum {
    SHORT_BYTES = 2 * WORD_SHORT_SETS * sizeof(word_short_t),
    LONG_BYTES = WORD_LONG_SLOTS * sizeof(word_long_t)
  };
  cache->memory = calloc(1, WORD_CACHE_ALIGN - 1 + SHORT_BYTES + LONG_BYTES);
  if (cache->memory == NULL) return false;
  uintptr_t begin = (uintptr_t)cache->memory + WORD_CACHE_ALIGN - 1;
  cache->shorts = (void *)(begin - begin % WORD_CACHE_ALIGN);
  cache->longs = (void *)((uint8_t *)cache->shorts + SHORT_BYTES);
  return true;
}

static inline void word_cache_free(word_cache_t *cache) {
  free(cache->memory);
}

/* 1 <= length <= WORD_CACHE_BYTES_MAX; bytes up to `limit` may be read. */
static inline void word_key(word_key_t *key, const uint8_t *piece, size_t length,
                            const uint8_t *limit) {
  key->piece = piece, key->length = length, key->low = key->high = 0;
  if (length > WORD_SHORT_BYTES_MAX) {
    key->hash = hash_bytes(piece, length);
    return;
  }
  if (limit - piece >= 16) { /* two loads and a mask instead of a copy of unknown length */
    memcpy(&key->low, piece, 8);
    memcpy(&key->high, piece + 8, 8);
    if (length < 8) {
      key->low &= (1ULL << 8 * length) - 1, key->high = 0;
    } else {
      key->high &= (1ULL << 8 * (length - 8)) - 1;
    }
  } else {
    uint8_t copy[16] = {0};
    memcpy(copy, piece, length);
    memcpy(&key->low, copy, 8);
    memcpy(&key->high, copy + 8, 8);
  }
  key->high |= (uint64_t)length << 56;
  key->hash = hash_mix(key->low * 0xD6E8FEB86659FD93ULL + hash_mix(key->high));
}

/* Writes the remembered ids, at most WORD_CACHE_IDS_MAX, and returns how many; 0 = not known. */
static inline unsigned word_cache_get(const word_cache_t *cache, const word_key_t *key,
                                      int32_t *ids) {
  if (key->length <= WORD_SHORT_BYTES_MAX) {
    const word_short_t *entry = &cache->shorts[2 * (key->hash % WORD_SHORT_SETS)];
    if (entry->low != key->low || entry->high != key->high) entry++;
    if (entry->low == key->low && entry->high == key->high && entry->count > 0) {
      memcpy(ids, entry->ids, sizeof entry->ids);
      return entry->count;
    }
  }
  const word_long_t *entry = &cache->longs[(key->hash >> 20) % WORD_LONG_SLOTS];
  if (entry->length != key->length || memcmp(entry->bytes, key->piece, key->length) != 0) return 0;
  memcpy(ids, entry->ids, sizeof entry->ids);
  return entry->count;
}

static inline void word_cache_put(word_cache_t *cache, const word_key_t *key, const int32_t *ids,
                                  size_t count) {
  if (count == 0 || count > WORD_CACHE_IDS_MAX) return;
  if (key->length <= WORD_SHORT_BYTES_MAX && count <= WORD_SHORT_IDS_MAX) {
    word_short_t *entry = &cache->shorts[2 * (key->hash % WORD_SHORT_SETS)];
    entry[1] = entry[0];
    entry->low = key->low, entry->high = key->high, entry->count = (uint32_t)count;
    memcpy(entry->ids, ids, count * sizeof *ids);
    return;
  }
  word_long_t *entry = &cache->longs[(key->hash >> 20) % WORD_LONG_SLOTS];
  memcpy(entry->bytes, key->piece, key->length);
  entry->length = (uint16_t)key->length, entry->count = (uint16_t)count;
  memcpy(entry->ids, ids, count * sizeof *ids);
}

#endif
