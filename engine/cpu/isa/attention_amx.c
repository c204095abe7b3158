/* attention_amx.c: attention over bf16 K/V on AMX tiles, for prefills and decodes alike.
 *
 * Owns the entry `attend` of the amx table; run by pool workers. A call takes one strip of 256
 * keys: K and V are copied into tile layout (pairs of dimensions, pairs of keys), then each block
 * of up to 32 rows has its scores, its softmax and its weighted values computed. Both products
 * round their left operand to bf16 and sum in fp32, 32 products a step at fixed places: the
 * dimensions of the head, and the keys at multiples of 32. A row's bits thus depend on the keys
 * that it sees and on nothing else. Keys that a row does not see have weight zero, which changes
 * no sum; values that are infinite or NaN are kept away from such rows.
 *
 * The weights are exp within 9e-5 of their size, 1/20 of what bf16 then rounds off. Subnormals are
 * flushed to zero, as the tiles do it. For a head of 64, per 16 scores the tiles work 4 cycles and
 * the vector units 5; a decode is bound by the reading of K and V.
 */
#include "engine/base/util.h"
#include "engine/cpu/isa/attend.h"

#if defined(__x86_64__)
#include "engine/cpu/isa/tiles_amx.h"

#include <math.h>
#include <string.h>

enum {
  VW = 16,
  TILE_KEYS = 16,                     /* keys in the columns of a tile of K */
  TILE_SIZE = TILE_ROWS * TILE_DEPTH, /* bf16 elements of a tile */
  MXCSR_FLUSH = 0x8040                /* subnormal results and operands become zero */
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define LOG2_E 1.44269504f

typedef struct space {
  uint16_t *keys;    /* [STRIP_KEYS / 16][depth / 32] tiles */
  uint16_t *values;  /* [STRIP_KEYS / 32][head_dim / 16] tiles */
  uint16_t *weights; /* [ATTEND_BLOCK][STRIP_KEYS] */
  float *scores;     /* [ATTEND_BLOCK][SCORE_STRIDE] */
} space_t;

static space_t cut_space(const attend_t *attend) {
  space_t space;
  space.scores = attend->space;
  space.weights = (uint16_t *)(void *)(space.scores + ATTEND_BLOCK * SCORE_STRIDE);
  space.keys = space.weights + ATTEND_BLOCK * STRIP_KEYS;
  space.values = space.keys + STRIP_KEYS * attend->depth;
  return space;
}

/* The compiler does not know that tile loads read memory. */
static inline void memory_barrier(void) {
  __asm__ volatile("" ::: "memory");
}

/* ---- K and V in tile layout ---- */

/* Returns the pairs (low[i], high[i]) of 16 elements each. */
static inline __m512i pairs_of(const uint16_t *low, const uint16_t *high) {
  static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i both = _mm512_inserti64x4(
      _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)low)),
      _mm256_loadu_si256((const __m256i *)(const void *)high), 1);
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}

/* Copies dimension `dim` of 16 keys that lie in several segments; zeros for a segment outside
 * [from, to). */
static void gather_keys(uint16_t out[TILE_KEYS], const strip_t *strip, int32_t key, int32_t dim,
                        int32_t from, int32_t to) {
  int32_t keys = strip->segment_keys;
  for (int32_t i = 0; i < TILE_KEYS; i += keys) {
    int32_t segment = (key + i) / keys;
    if (segment < from || segment >= to) {
      memset(out + i, 0, (size_t)keys * sizeof *out);
    } else {
      const uint16_t *k = (const uint16_t *)strip->k[segment] + (int64_t)dim * strip->k_stride;
      memcpy(out + i, k, (size_t)keys * sizeof *out);
    }
  }
}

/* Packs a segment of 16 keys. */
static void pack_segment(uint16_t *out, const strip_t *strip, int64_t depth, const uint16_t *keys) {
  static const uint16_t zeros[TILE_KEYS];
  const int64_t stride = strip->k_stride, dims = strip->head_dim;
  int64_t d = 0;
  for (; d + 2 <= dims; d += 2)
    _mm512_storeu_si512(out + d * TILE_KEYS, pairs_of(keys + d * stride, keys + (d + 1) * stride));
  if (d < dims) _mm512_storeu_si512(out + d * TILE_KEYS, pairs_of(keys + d * stride, zeros));
  for (d = ROUND_UP(dims, 2); d < depth; d += 2)
    _mm512_storeu_si512(out + d * TILE_KEYS, _mm512_setzero_si512());
}

/* Packs the 16 keys from `key` on. Segments outside [from, to) are not read. */
static void pack_key_tile(uint16_t *out, const strip_t *strip, int64_t depth, int32_t key,
                          int32_t from, int32_t to) {
  if (strip->segment_keys == TILE_KEYS && key / TILE_KEYS >= from && key / TILE_KEYS < to) {
    pack_segment(out, strip, depth, strip->k[key / TILE_KEYS]);
    return;
  }
  memset(out, 0, (size_t)(TILE_KEYS * depth) * sizeof *out);
  for (int32_t d = 0; d < strip->head_dim && strip->segment_keys < TILE_KEYS; d += 2) {
    uint16_t row[2][TILE_KEYS] = {{0}};
    gather_keys(row[0], strip, key, d, from, to);
    if (d + 1 < strip->head_dim) gather_keys(row[1], strip, key, d + 1, from, to);
    _mm512_storeu_si512(out + d * TILE_KEYS, pairs_of(row[0], row[1]));
  }
}

/* Packs the keys of [first, last) and those up to whole steps around them. */
static void pack_keys(const attend_t *attend, const space_t *space, int32_t first, int32_t last) {
  const strip_t *strip = attend->strip;
  int32_t from = first / strip->segment_keys, to = DIV_UP(last, strip->segment_keys);
  int32_t end = ROUND_UP(last, ATTEND_BLOCK);
  for (int32_t key = first / ATTEND_BLOCK * ATTEND_BLOCK; key < end; key += TILE_KEYS)
    pack_key_tile(space->keys + key * attend->depth, strip, attend->depth, key, from, to);
}

/* Packs the values of keys [first, last), with zeros up to whole steps around them. Returns true if
 * one of them is infinite or NaN. */
static bool pack_values(const attend_t *attend, const space_t *space, int32_t first, int32_t last) {
  static const uint16_t zeros[HEAD_ALIGN];
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  const strip_t *strip = attend->strip;
  const int32_t shift = __builtin_ctz((unsigned)strip->segment_keys);
  const int64_t width = attend->ldo;
  __mmask32 odd = 0;
  for (int32_t key = first / TILE_DEPTH * TILE_DEPTH; key < ROUND_UP(last, TILE_DEPTH); key += 2) {
    const uint16_t *row[2];
    int64_t step[2];
    for (int32_t i = 0; i < 2; i++) {
      bool seen = key + i >= first && key + i < last;
      int32_t segment = (key + i) >> shift, offset = key + i - (segment << shift);
      row[i] = seen ? (const uint16_t *)strip->v[segment] + offset * width : zeros;
      step[i] = seen ? HEAD_ALIGN : 0;
    }
    uint16_t *out = space->values + key / TILE_DEPTH * (TILE_DEPTH * width) + key % TILE_DEPTH * 16;
    for (int64_t dim = 0; dim < width; dim += HEAD_ALIGN, out += TILE_SIZE) {
      __m512i pairs = pairs_of(row[0], row[1]);
      odd |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponent), exponent);
      _mm512_storeu_si512(out, pairs);
      row[0] += step[0];
      row[1] += step[1];
    }
  }
  return odd != 0;
}

/* ---- the products ---- */

/* scores[rows][from, to) = q . keys, for two tiles of rows. */
static void score_two(const attend_t *attend, const space_t *space, int32_t row, int32_t from,
                      int32_t to) {
  const size_t q_bytes = (size_t)attend->depth * sizeof(uint16_t);
  const size_t score_bytes = SCORE_STRIDE * sizeof(float);
  const uint16_t *upper = attend->q + row * attend->depth;
  const uint16_t *lower = upper + TILE_ROWS * attend->depth;
  for (int32_t key = from; key < to; key += 2 * TILE_KEYS) {
    const uint16_t *left = space->keys + key * attend->depth;
    const uint16_t *right = left + TILE_KEYS * attend->depth;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < attend->depth; d += TILE_DEPTH) {
      _tile_loadd(4, upper + d, q_bytes);
      _tile_loadd(6, left + d * TILE_KEYS, TILE_BYTES);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, right + d * TILE_KEYS, TILE_BYTES);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, lower + d, q_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float *out = space->scores + key;
    _tile_stored(0, out, score_bytes);
    _tile_stored(1, out + TILE_KEYS, score_bytes);
    _tile_stored(2, out + TILE_ROWS * SCORE_STRIDE, score_bytes);
    _tile_stored(3, out + TILE_ROWS * SCORE_STRIDE + TILE_KEYS, score_bytes);
  }
}

/* The same for one tile of rows. */
static void score_one(const attend_t *attend, const space_t *space, int32_t row, int32_t from,
                      int32_t to) {
  const size_t q_bytes = (size_t)attend->depth * sizeof(uint16_t);
  const size_t score_bytes = SCORE_STRIDE * sizeof(float);
  const uint16_t *q = attend->q + row * attend->depth;
  for (int32_t key = from; key < to; key += 2 * TILE_KEYS) {
    const uint16_t *left = space->keys + key * attend->depth;
    const uint16_t *right = left + TILE_KEYS * attend->depth;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t d = 0; d < attend->depth; d += TILE_DEPTH) {
      _tile_loadd(4, q + d, q_bytes);
      _tile_loadd(6, left + d * TILE_KEYS, TILE_BYTES);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, right + d * TILE_KEYS, TILE_BYTES);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, space->scores + key, score_bytes);
    _tile_stored(1, space->scores + key + TILE_KEYS, score_bytes);
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
    _tile_loadd(7, values + TILE_SIZE, TILE_BYTES);
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
    _tile_loadd(7, values + TILE_SIZE, TILE_BYTES);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, out, acc_bytes);
  if (!narrow) _tile_stored(1, out + TILE_ROWS, acc_bytes);
}

/* ---- softmax ---- */

/* 2^x for x <= 0 with a relative error of 9e-5; 2^0 is 1. r is x - floor(x). */
static inline __m512 power_of_two(__m512 power) {
  __m512 r = _mm512_reduce_ps(power, 1);
  __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.077067042f), _mm512_set1_ps(0.2276449912f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6951167864f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, power);
}

/* The same with an error of 1e-7, for the factor of what was summed before. */
static __m512 power_of_two_closely(float value) {
  __m512 power = _mm512_set1_ps(value), r = _mm512_reduce_ps(power, 1);
  __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.00186713007f), _mm512_set1_ps(0.009017030322f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0557999131f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.2401644502f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931513118f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, power);
}

/* Lanes of the vector at `key` that lie in [first, last). */
static inline __mmask16 lanes_seen(int32_t key, key_range_t seen) {
  int32_t low = MIN(MAX(seen.first - key, 0), VW), high = MIN(MAX(seen.last - key, 0), VW);
  return (__mmask16)((1U << high) - (1U << low));
}

static inline float highest_of_all(const float *scores) {
  __m512 highest[4];
  UNROLL for (int i = 0; i < 4; i++) {
    const float *from = scores + i * 4 * VW;
    __m512 left = _mm512_max_ps(_mm512_loadu_ps(from), _mm512_loadu_ps(from + VW));
    __m512 right = _mm512_max_ps(_mm512_loadu_ps(from + 2 * VW), _mm512_loadu_ps(from + 3 * VW));
    highest[i] = _mm512_max_ps(left, right);
  }
  __m512 left = _mm512_max_ps(highest[0], highest[1]);
  return _mm512_reduce_max_ps(_mm512_max_ps(left, _mm512_max_ps(highest[2], highest[3])));
}

static float highest_of(const float *scores, key_range_t seen) {
  __m512 highest = _mm512_set1_ps(-INFINITY);
  for (int32_t key = seen.first / VW * VW; key < seen.last; key += VW) {
    __mmask16 lanes = lanes_seen(key, seen);
    highest = _mm512_mask_max_ps(highest, lanes, highest, _mm512_loadu_ps(scores + key));
  }
  return _mm512_reduce_max_ps(highest);
}

/* Writes weights of keys [from, to): exp(score - max), or 0 where the row sees no key. Returns
 * their sum before they are rounded. `all`: the row sees [from, to). */
INLINE float write_weights(uint16_t *weights, const float *scores, float max, key_range_t seen,
                           int32_t from, int32_t to, const bool all) {
  __m512 scale = _mm512_set1_ps(LOG2_E), shift = _mm512_set1_ps(-max * LOG2_E);
  __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  UNROLL for (int32_t key = from; key < to; key += 2 * VW) {
    __m512 low = power_of_two(_mm512_fmadd_ps(_mm512_loadu_ps(scores + key), scale, shift));
    __m512 high = power_of_two(_mm512_fmadd_ps(_mm512_loadu_ps(scores + key + VW), scale, shift));
    if (!all) {
      low = _mm512_maskz_mov_ps(lanes_seen(key, seen), low);
      high = _mm512_maskz_mov_ps(lanes_seen(key + VW, seen), high);
    }
    even = _mm512_add_ps(even, low);
    odd = _mm512_add_ps(odd, high);
    _mm512_storeu_si512(weights + key, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

static float weights_of_all(uint16_t *weights, const float *scores, float max) {
  return write_weights(weights, scores, max, (key_range_t){0}, 0, STRIP_KEYS, true);
}

static float weights_of(uint16_t *weights, const float *scores, float max, key_range_t seen,
                        int32_t from, int32_t to) {
  return write_weights(weights, scores, max, seen, from, to, false);
}

/* One row of scores becomes weights; acc, max and sum of the row are brought up to date. A row that
 * sees the whole strip takes the fast path, where all loops have fixed lengths. */
static void softmax_row(const attend_t *attend, float *scores, uint16_t *weights, int32_t row,
                        int32_t from, int32_t to) {
  key_range_t seen = attend->seen[row / attend->group];
  if (seen.first >= seen.last) {
    memset(weights + from, 0, (size_t)(to - from) * sizeof *weights);
    return;
  }
  if (attend->softcap != 0)
    kernels_avx512->softcap(scores + seen.first, seen.last - seen.first, attend->softcap);
  bool all = seen.first == 0 && seen.last == STRIP_KEYS;
  float before = attend->max[row], max = all ? highest_of_all(scores) : highest_of(scores, seen);
  if (max < before) max = before;
  float sum =
      all ? weights_of_all(weights, scores, max) : weights_of(weights, scores, max, seen, from, to);
  if (max != before) { /* else the factor is 1 */
    __m512 factor = power_of_two_closely((before - max) * LOG2_E);
    float *acc = attend->acc + row * attend->ldo;
    for (int64_t i = 0; i < attend->ldo; i += VW)
      _mm512_storeu_ps(acc + i, _mm512_mul_ps(_mm512_loadu_ps(acc + i), factor));
    attend->sum[row] *= _mm512_cvtss_f32(factor);
    attend->max[row] = max;
  }
  attend->sum[row] += sum;
}

/* ---- a strip ---- */

/* Takes rows [row, end), at most a block, over the packed keys that one of them sees. */
static void attend_block(const attend_t *attend, const space_t *space, int32_t row, int32_t end) {
  int32_t first = attend->seen[row / attend->group].first;
  int32_t last = attend->seen[(end - 1) / attend->group].last;
  int32_t from = first / ATTEND_BLOCK * ATTEND_BLOCK, to = ROUND_UP(last, ATTEND_BLOCK);
  bool two = end - row > TILE_ROWS;
  if (first >= last) return;
  tiles_configure(MIN(end - row, TILE_ROWS), two ? end - row - TILE_ROWS : 0);
  if (two)
    score_two(attend, space, row, from, to);
  else
    score_one(attend, space, row, from, to);
  for (int32_t r = 0; r < end - row; r++)
    softmax_row(attend, space->scores + r * SCORE_STRIDE, space->weights + r * STRIP_KEYS, row + r,
                from, to);
  memory_barrier();
  for (int64_t dim = 0; dim < attend->ldo; dim += 2 * TILE_ROWS) {
    bool narrow = dim + TILE_ROWS == attend->ldo;
    if (two)
      add_values(attend, space, row, dim, narrow, from, to);
    else
      add_values_one(attend, space, row, dim, narrow, from, to);
  }
}

/* Takes positions one by one, with the values that each of them sees: 0 * NaN is not 0. */
static void attend_positions(const attend_t *attend, const space_t *space) {
  for (int32_t i = 0; i < attend->positions; i++) {
    key_range_t seen = attend->seen[i];
    if (seen.first >= seen.last) continue;
    pack_values(attend, space, seen.first, seen.last);
    int32_t end = (i + 1) * attend->group;
    for (int32_t row = i * attend->group; row < end; row += ATTEND_BLOCK)
      attend_block(attend, space, row, MIN(row + ATTEND_BLOCK, end));
  }
}

void attend_amx(const attend_t *attend) {
  space_t space = cut_space(attend);
  int32_t rows = attend->positions * attend->group;
  key_range_t seen = {attend->seen[0].first, attend->seen[attend->positions - 1].last};
  bool alike =
      attend->seen[0].last == seen.last && attend->seen[attend->positions - 1].first == seen.first;
  unsigned int control = _mm_getcsr();
  _mm_setcsr(control | MXCSR_FLUSH);
  pack_keys(attend, &space, seen.first, seen.last);
  if (pack_values(attend, &space, seen.first, seen.last) && !alike) {
    attend_positions(attend, &space);
  } else {
    for (int32_t row = 0; row < rows; row += ATTEND_BLOCK)
      attend_block(attend, &space, row, MIN(row + ATTEND_BLOCK, rows));
  }
  _tile_release();
  _mm_setcsr(control);
}
#endif
