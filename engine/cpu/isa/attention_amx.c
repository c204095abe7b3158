/* attention_amx.c: attention over bf16 K/V on AMX tiles, for prefills and decodes alike.
 *
 * Owns the entry `attend` of the amx table; run by pool workers. attend.inc has all but the two
 * products, which take 32 dimensions or keys a step. For a head of 64, per 16 scores the tiles work
 * 4 cycles and the vector units 5; a decode is bound by the reading of K and V.
 */
#include "engine/cpu/isa/attend.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include "engine/cpu/isa/tiles_amx.h"

enum { VW = 16 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

#include "engine/cpu/isa/attend.inc"

/* scores[rows][from, to) = q . keys, for two tiles of rows. */
static void score_two(const attend_t *attend, const space_t *space, int32_t row, int32_t from,
                      int32_t to) {
  const size_t q_bytes = (size_t)attend->depth * sizeof(uint16_t);
  const size_t score_bytes = SCORE_STRIDE * sizeof(float);
  const uint16_t *upper = attend->q + row * attend->depth;
  const uint16_t *lower = upper + TILE_ROWS * attend->depth;
  for (int32_t key = from; key < to; key += 2 * KEY_TILE) {
    const uint16_t *left = space->keys + key * attend->depth;
    const uint16_t *right = left + KEY_TILE * attend->depth;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < attend->depth; d += TILE_DEPTH) {
      _tile_loadd(4, upper + d, q_bytes);
      _tile_loadd(6, left + d * KEY_TILE, TILE_BYTES);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, right + d * KEY_TILE, TILE_BYTES);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, lower + d, q_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float *out = space->scores + key;
    _tile_stored(0, out, score_bytes);
    _tile_stored(1, out + KEY_TILE, score_bytes);
    _tile_stored(2, out + TILE_ROWS * SCORE_STRIDE, score_bytes);
    _tile_stored(3, out + TILE_ROWS * SCORE_STRIDE + KEY_TILE, score_bytes);
  }
}

/* The same for one tile of rows. */
static void score_one(const attend_t *attend, const space_t *space, int32_t row, int32_t from,
                      int32_t to) {
  const size_t q_bytes = (size_t)attend->depth * sizeof(uint16_t);
  const size_t score_bytes = SCORE_STRIDE * sizeof(float);
  const uint16_t *q = attend->q + row * attend->depth;
  for (int32_t key = from; key < to; key += 2 * KEY_TILE) {
    const uint16_t *left = space->keys + key * attend->depth;
    const uint16_t *right = left + KEY_TILE * attend->depth;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t d = 0; d < attend->depth; d += TILE_DEPTH) {
      _tile_loadd(4, q + d, q_bytes);
      _tile_loadd(6, left + d * KEY_TILE, TILE_BYTES);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, right + d * KEY_TILE, TILE_BYTES);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, space->scores + key, score_bytes);
    _tile_stored(1, space->scores + key + KEY_TILE, score_bytes);
  }
}

/* acc[rows] += weights . values of keys [from, to), for two tiles of rows and dimensions
 * [dim, dim + 32), or + 16 when `narrow`. */
static void add_values(const attend_t *attend, const space_t *space, int32_t row, int64_t dim,
                       bool narrow, int32_t from, int32_t to) {
  const size_t acc_bytes = (size_t)attend->ldo * sizeof(float);
  const size_t weight_bytes = STRIP_KEYS * sizeof(uint16_t);
  float *upper = attend->acc + row * attend->ldo + dim, *lower = upper + TILE_ROWS * attend->ldo;
  const uint16_t *weights = space->weights, *below = weights + TILE_ROWS * STRIP_KEYS;
  _tile_loadd(0, upper, acc_bytes);
  _tile_loadd(2, lower, acc_bytes);
  if (!narrow) _tile_loadd(1, upper + TILE_ROWS, acc_bytes);
  if (!narrow) _tile_loadd(3, lower + TILE_ROWS, acc_bytes);
  for (int32_t key = from; key < to; key += TILE_DEPTH) {
    const uint16_t *values = space->values + key * attend->ldo + dim * TILE_DEPTH;
    _tile_loadd(4, weights + key, weight_bytes);
    _tile_loadd(6, values, TILE_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, below + key, weight_bytes);
    _tile_dpbf16ps(2, 5, 6);
    if (narrow) continue;
    _tile_loadd(7, values + VALUE_TILE, TILE_BYTES);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, upper, acc_bytes);
  _tile_stored(2, lower, acc_bytes);
  if (narrow) return;
  _tile_stored(1, upper + TILE_ROWS, acc_bytes);
  _tile_stored(3, lower + TILE_ROWS, acc_bytes);
}

/* The same for one tile of rows. */
static void add_values_one(const attend_t *attend, const space_t *space, int32_t row, int64_t dim,
                           bool narrow, int32_t from, int32_t to) {
  const size_t acc_bytes = (size_t)attend->ldo * sizeof(float);
  float *out = attend->acc + row * attend->ldo + dim;
  _tile_loadd(0, out, acc_bytes);
  if (!narrow) _tile_loadd(1, out + TILE_ROWS, acc_bytes);
  for (int32_t key = from; key < to; key += TILE_DEPTH) {
    const uint16_t *values = space->values + key * attend->ldo + dim * TILE_DEPTH;
    _tile_loadd(4, space->weights + key, STRIP_KEYS * sizeof(uint16_t));
    _tile_loadd(6, values, TILE_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    if (narrow) continue;
    _tile_loadd(7, values + VALUE_TILE, TILE_BYTES);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, out, acc_bytes);
  if (!narrow) _tile_stored(1, out + TILE_ROWS, acc_bytes);
}

static void attend_scores(const attend_t *attend, const space_t *space, int32_t row, int32_t end,
                          int32_t from, int32_t to) {
  bool two = end - row > TILE_ROWS;
  tiles_configure(MIN(end - row, TILE_ROWS), two ? end - row - TILE_ROWS : 0);
  if (two)
    score_two(attend, space, row, from, to);
  else
    score_one(attend, space, row, from, to);
}

static void attend_values(const attend_t *attend, const space_t *space, int32_t row, int32_t end,
                          int32_t from, int32_t to) {
  __asm__ volatile("" ::: "memory"); /* the compiler does not know that tile loads read memory */
  for (int64_t dim = 0; dim < attend->ldo; dim += 2 * TILE_ROWS) {
    bool narrow = dim + TILE_ROWS == attend->ldo;
    if (end - row > TILE_ROWS)
      add_values(attend, space, row, dim, narrow, from, to);
    else
      add_values_one(attend, space, row, dim, narrow, from, to);
  }
}

static void attend_release(void) {
  _tile_release();
}

void attend_amx(const attend_t *attend) {
  attend_strip(attend);
}
#endif
