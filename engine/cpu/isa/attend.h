/* attend.h: attention of a query tile over one strip of keys, in one call.
 *
 * The entry `attend` of kernels_t: products of queries and keys, softmax, and products of weights
 * and values over a bf16 K/V pool. If a tier has this entry, its `scores`, `softmax`, `values` and
 * `scale` are not called for a bf16 pool. Called by pool workers.
 */
#ifndef INFERD_ENGINE_CPU_ISA_ATTEND_H
#define INFERD_ENGINE_CPU_ISA_ATTEND_H

#include "engine/cpu/isa/kernels.h"

enum {
  ATTEND_BLOCK = 32,   /* rows and keys of a step; q and acc have whole blocks of rows */
  ATTEND_ROWS = 512,   /* query rows of a tile at most; more when the group is larger */
  ATTENTION_ROWS = 48, /* the same for a tier without `attend` */
  TILES_PER_THREAD = 8 /* as long as a thread has fewer tiles, they are smaller than ATTEND_ROWS */
};

/* The keys of a strip that one position sees; none when first >= last. */
typedef struct key_range {
  int32_t first, last; /* relative to the first key of the strip */
} key_range_t;

/* A query tile is `positions` x `group` rows. q, acc, max and sum also have the rows that complete
 * the last block; the contents of these rows are scratch. */
typedef struct attend {
  const uint16_t *q; /* [rows][depth] bf16, times the scale of attention */
  int64_t depth;     /* head_dim padded to DEPTH_ALIGN with zeros */
  int32_t positions, group;
  const key_range_t *seen; /* [positions], each bound at least that of the position before */
  float softcap;           /* 0 = none */
  const strip_t *strip;    /* k and v set for every segment that some position sees */
  bool keys_are_rows;      /* a segment of `strip` has 16 keys, and its k is [16][depth] */
  const void *const *next; /* k of the strip that comes next, to prefetch, or NULL */
  float *acc;              /* [rows][ldo] read and written, like max and sum */
  int64_t ldo;             /* head_dim padded to HEAD_ALIGN */
  float *max, *sum;        /* [rows] */
  void *space;             /* attend_bytes(head_dim), aligned to 64 bytes */
} attend_t;

/* Bytes of scratch that a worker needs for heads of up to `head_dim`. */
static inline size_t attend_bytes(size_t head_dim) {
  size_t keys = STRIP_KEYS * (head_dim + DEPTH_ALIGN) * sizeof(uint16_t);
  size_t scores = ATTEND_BLOCK * SCORE_STRIDE * sizeof(float);
  return 2 * keys + scores + ATTEND_BLOCK * STRIP_KEYS * sizeof(uint16_t);
}

#endif
