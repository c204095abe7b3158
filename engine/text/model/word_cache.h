/* word_cache.h: remembers the ids of short pieces, one cache per tokenizing thread.
 *
 * Two tables: pieces up to 15 bytes with up to 3 ids (two ways, one cache line per set), and pieces
 * up to 64 bytes with up to 15 ids (direct mapped). A full compare decides, so a hash collision
 * costs a miss, never a wrong id. Not shared between threads.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_WORD_CACHE_H
#define INFERD_ENGINE_TEXT_MODEL_WORD_CACHE_H

#include "engine/text/bytes.h"

#include <stdlib.h>

enum {
  WORD_CACHE_BYTES_MAX = 64,
  WORD_CACHE_IDS_MAX = 15,
  WORD_SHORT_BYTES_MAX = 15,
  WORD_SHORT_IDS_MAX = 3,
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
  word_short_t *shorts; /* [2 * WORD_SHORT_SETS] */
  word_long_t *longs;   /* [WORD_LONG_SLOTS] */
} word_cache_t;

typedef struct word_key {
  const uint8_t *piece;
  size_t length;
  uint64_t low, high, hash; /* low, high: only for short pieces */
} word_key_t;

/* Aligned, so that a set or a slot touches as few cache lines as it can. */
static inline bool word_cache_init(word_cache_t *c) {
  enum {
    SHORT_BYTES = 2 * WORD_SHORT_SETS * sizeof(word_short_t),
    LONG_BYTES = WORD_LONG_SLOTS * sizeof(word_long_t)
  };
  c->shorts = aligned_alloc(64, SHORT_BYTES);
  c->longs = aligned_alloc(64, LONG_BYTES);
  if (c->shorts != NULL && c->longs != NULL) {
    memset(c->shorts, 0, SHORT_BYTES);
    memset(c->longs, 0, LONG_BYTES);
    return true;
  }
  free(c->shorts);
  free(c->longs);
  return false;
}

static inline void word_cache_free(word_cache_t *c) {
  free(c->shorts);
  free(c->longs);
}

/* 1 <= length <= WORD_CACHE_BYTES_MAX; bytes up to `limit` may be read. */
static inline void word_key(word_key_t *k, const uint8_t *piece, size_t length,
                            const uint8_t *limit) {
  k->piece = piece, k->length = length, k->low = k->high = 0;
  if (length > WORD_SHORT_BYTES_MAX) {
    k->hash = hash_bytes(piece, length);
    return;
  }
  if (limit - piece >= 16) { /* two loads and a mask instead of a copy of unknown length */
    memcpy(&k->low, piece, 8);
    memcpy(&k->high, piece + 8, 8);
    if (length < 8) {
      k->low &= (1ULL << 8 * length) - 1, k->high = 0;
    } else {
      k->high &= (1ULL << 8 * (length - 8)) - 1;
    }
  } else {
    uint8_t copy[16] = {0};
    memcpy(copy, piece, length);
    memcpy(&k->low, copy, 8);
    memcpy(&k->high, copy + 8, 8);
  }
  k->high |= (uint64_t)length << 56;
  k->hash = mix64(k->low * 0xD6E8FEB86659FD93ULL + mix64(k->high));
}

/* Writes the remembered ids, at most WORD_CACHE_IDS_MAX, and returns how many; 0 = not known. */
static inline unsigned word_cache_get(const word_cache_t *c, const word_key_t *k, int32_t *ids) {
  if (k->length <= WORD_SHORT_BYTES_MAX) {
    const word_short_t *e = &c->shorts[2 * (k->hash % WORD_SHORT_SETS)];
    if (e->low != k->low || e->high != k->high) e++;
    if (e->low == k->low && e->high == k->high && e->count > 0) {
      memcpy(ids, e->ids, sizeof e->ids);
      return e->count;
    }
  }
  const word_long_t *e = &c->longs[(k->hash >> 20) % WORD_LONG_SLOTS];
  if (e->length != k->length || memcmp(e->bytes, k->piece, k->length) != 0) return 0;
  memcpy(ids, e->ids, sizeof e->ids);
  return e->count;
}

static inline void word_cache_put(word_cache_t *c, const word_key_t *k, const int32_t *ids,
                                  size_t count) {
  if (count == 0 || count > WORD_CACHE_IDS_MAX) return;
  if (k->length <= WORD_SHORT_BYTES_MAX && count <= WORD_SHORT_IDS_MAX) {
    word_short_t *e = &c->shorts[2 * (k->hash % WORD_SHORT_SETS)];
    e[1] = e[0];
    e->low = k->low, e->high = k->high, e->count = (uint32_t)count;
    memcpy(e->ids, ids, count * sizeof *ids);
    return;
  }
  word_long_t *e = &c->longs[(k->hash >> 20) % WORD_LONG_SLOTS];
  memcpy(e->bytes, k->piece, k->length);
  e->length = (uint16_t)k->length, e->count = (uint16_t)count;
  memcpy(e->ids, ids, count * sizeof *ids);
}

#endif
