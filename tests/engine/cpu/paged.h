/* paged.h: sequences over a paged K/V pool, for the tests of rope_store and attention.
 *
 * A world is a device, its pool and some sequences with random q, k, v rows and scattered blocks.
 * world_run submits one batch of pieces and keeps the rows of output that it gave.
 */
#ifndef INFERD_TESTS_ENGINE_CPU_PAGED_H
#define INFERD_TESTS_ENGINE_CPU_PAGED_H

#include "tests/engine/cpu/helper.h"

enum { SEQUENCES_MAX = 4 };

typedef struct setting {
  int32_t heads, kv_heads, dim, block_size, window, rope_dims;
  float softcap;
  bool sinks, qk_norm;
  dtype_t kv_dtype;
  int32_t lengths[SEQUENCES_MAX]; /* 0 = no sequence */
  bool bidirectional;             /* then a step has whole sequences */
  bool int8;                      /* the pool has codes of 8 bits; kv_dtype is not used */
} setting_t;

typedef struct sequence_rows {
  int32_t length, num_blocks;
  int32_t *blocks; /* [groups, blocks_stride] */
  float *qkv;      /* [length, (Hq + 2 Hk) D] before norm and rope */
  float *out;      /* [length, Hq D] as the device gave it */
} sequence_rows_t;

typedef struct piece {
  int32_t sequence, first, count;
  bool replay; /* store nothing: its K/V are there already */
} piece_t;

typedef struct world {
  setting_t s;
  device_t *device;
  attention_t attention;
  rope_t rope;
  float *inv_freq, *sinks, *q_norm, *k_norm;
  int64_t width;
  bool by_heads;
  int32_t span;     /* tables of distances have 2 span entries; 0 = none */
  float *tables[2]; /* [Hq, E / 16, D, 16] of keys, of queries */
  int32_t *entries;
  int32_t picture; /* tokens of a picture, of which a sequence has many; 0 = none */
  int32_t groups, blocks_stride;
  sequence_rows_t seq[SEQUENCES_MAX];
  float *qkv, *out; /* of a step */
  int32_t tokens_max;
} world_t;

/* The same inputs for the same setting and seed, whatever tier, threads or block order. */
void world_open(world_t *w, const setting_t *setting, const char *isa, int threads,
                uint64_t block_order);
/* The same with blocks of two heads, in groups beside one of other sizes (window_heads). */
void world_open_by_heads(world_t *w, const setting_t *setting, const char *isa, int threads,
                         uint64_t block_order);
/* The same with pictures of so many tokens, whose tokens see all of theirs. */
void world_open_pictures(world_t *w, const setting_t *setting, const char *isa, int threads,
                         uint64_t block_order, int32_t picture);
/* The same with keys and queries of distances (disentangled attention), of which `parts` has 1
 * and 2.
 */
void world_open_distances(world_t *w, const setting_t *setting, const char *isa, int threads,
                          uint64_t block_order, int32_t span, int parts);
/* The end of the picture that a position is in, or 0. */
int32_t world_seen_until(const world_t *w, int sequence, int32_t position);
void world_close(world_t *w);
void world_run(world_t *w, const piece_t *pieces, int32_t count);
void world_prefill(world_t *w, int32_t chunk); /* all sequences together, `chunk` tokens each */

/* Row `position` of sequence `sequence` in double precision: out[Hq D]. */
void world_reference(const world_t *w, int32_t sequence, int32_t position, double *out);

#endif
