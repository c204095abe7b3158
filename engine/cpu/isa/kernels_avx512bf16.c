/* kernels_avx512bf16.c: AVX-512 with the bf16 dot product: bf16 weights, and attention over bf16
 * K/V.
 *
 * Owns the table kernels_avx512bf16 (NULL on other architectures); its other entries are those of
 * avx512. Run
 * by pool workers; see kernels.h. An accumulator lane takes two products per step, in the order of
 * k; a tile is up to 6 rows x 4 vectors, in a linear layer all 64 columns of a panel. vdpbf16ps
 * flushes subnormals to zero. Attention rounds queries and weights to bf16, sums stay fp32; a step
 * takes two dimensions of the head or two keys, the pairs lie at even positions (attend.inc).
 */
#include "engine/cpu/isa/kernels.h"

#include "engine/base/util.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include <immintrin.h>

/* vector.inc says what these sizes are. */
enum { VW = 16, TILE_ROWS = 6, PAIR_VECS = PANEL_COLS / VW };

#include "engine/cpu/isa/vector.inc"

enum {
  LINE_BYTES = 64,
  STEP_BYTES = PANEL_COLS * 4,
  STEP_LINES = STEP_BYTES / LINE_BYTES,
  AHEAD_BYTES = 4096, /* how far a single pass prefetches */
  REST_SHIFT = 5      /* fractions of a cache line are in units of 1/32 */
};

static void stage_bf16(void *out, const float *in, int64_t count, int64_t padded) {
  uint16_t *to = out;
  int64_t i = 0;
  for (; i + VW <= count; i += VW) {
    __m256bh half = _mm512_cvtneps_pbh(vf_load(in + i));
    memcpy(to + i, &half, sizeof half);
  }
  if (i < count) {
    float tail[VW] = {0};
    memcpy(tail, in + i, (size_t)(count - i) * sizeof(float));
    __m256bh half = _mm512_cvtneps_pbh(vf_load(tail));
    memcpy(to + i, &half, (size_t)(count - i) * sizeof(uint16_t));
  }
  if (padded > count) memset(to + count, 0, (size_t)(padded - count) * sizeof(uint16_t));
}

INLINE vf dot_pairs(vf acc, vu left, vu right) {
  return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)left, (__m512bh)right);
}

INLINE uint32_t load_pair(const uint16_t *from) {
  uint32_t pair;
  memcpy(&pair, from, sizeof pair);
  return pair;
}

/* The sums of a tile, before they are written. */
typedef struct bf16_sums {
  _Alignas(64) float at[TILE_ROWS][PANEL_COLS];
} bf16_sums_t;

static __attribute__((noinline)) void write_tile(const gemm_t *gemm, int32_t row, int32_t rows,
                                                 const bf16_sums_t *sums) {
  for (int32_t r = 0; r < rows; r++) {
    int64_t at = (row + r) * gemm->ldo;
    for (int32_t c = 0; c < gemm->cols; c += VW) {
      int32_t left = gemm->cols - c;
      __mmask16 mask = (__mmask16)(left >= VW ? 0xffff : (1 << left) - 1);
      __m512 y = _mm512_load_ps(&sums->at[r][c]);
      if (gemm->bias != NULL) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, gemm->bias + c));
      if (gemm->residual != NULL)
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, gemm->residual + at + c));
      _mm512_mask_storeu_ps(gemm->out + at + c, mask, y);
    }
  }
}

/* What one pass prefetches into the second-level cache while it computes. */
typedef struct pass_prefetch {
  const char *at;
  int32_t lines, rest; /* lines per step, and additional lines per 32 steps */
  int32_t step_bytes;  /* distance between steps, without the additional lines */
} pass_prefetch_t;

/* Does one pass over the panel. */
INLINE void tile(const gemm_t *gemm, int32_t row, pass_prefetch_t fetch, const int rows) {
  vf acc[TILE_ROWS][PAIR_VECS];
  vu w[PAIR_VECS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] =
      vf_set(0);
  const uint16_t *x = (const uint16_t *)gemm->x + row * gemm->ldx;
  const char *p = gemm->panel;
  const int64_t ldx = gemm->ldx;
  int32_t due = 0;
  for (int64_t k = 0; k < gemm->depth; k += 2, p += STEP_BYTES) {
    for (int32_t i = 0; i < fetch.lines; i++) __builtin_prefetch(fetch.at + i * LINE_BYTES, 0, 2);
    fetch.at += fetch.step_bytes;
    due += fetch.rest;
    if (due >= 1 << REST_SHIFT) {
      due -= 1 << REST_SHIFT;
      __builtin_prefetch(fetch.at, 0, 2);
      fetch.at += LINE_BYTES;
    }
    UNROLL for (int v = 0; v < PAIR_VECS; v++) w[v] =
        (vu) * (const vu_memory *)(p + v * LINE_BYTES);
    UNROLL for (int r = 0; r < rows; r++) {
      vu a = (vu){0} + load_pair(x + r * ldx + k);
      UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] = dot_pairs(acc[r][v], a, w[v]);
    }
  }
  bf16_sums_t sums;
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++)
      vf_store(&sums.at[r][v * VW], acc[r][v]);
  write_tile(gemm, row, rows, &sums);
}

/* Returns what a pass prefetches. To keep memory busy all the time, every pass prefetches the same
 * amount of the next panel: of two passes each takes half of every step, of more passes each takes
 * a range. A single pass prefetches in its own panel and then in the next one, which follows in
 * memory, if that is faster here (gemm_t.ahead): else the processor follows the stream by itself.
 */
static pass_prefetch_t share(const gemm_t *gemm, int32_t pass, int32_t passes) {
  pass_prefetch_t fetch = {gemm->panel, STEP_LINES / passes, 0, STEP_BYTES};
  if (gemm->next == NULL || (passes == 1 && !gemm->ahead))
    return (pass_prefetch_t){gemm->panel, 0, 0, 0};
  if (passes == 1) {
    fetch.at += AHEAD_BYTES;
  } else if (passes == 2) {
    fetch.at = (const char *)gemm->next + pass * STEP_BYTES / 2;
  } else {
    int32_t rate = ((STEP_LINES << REST_SHIFT) + passes - 1) / passes;
    int64_t before = pass * rate * (gemm->depth / 2) >> REST_SHIFT;
    fetch.at = (const char *)gemm->next + before * LINE_BYTES;
    fetch.rest = rate - (fetch.lines << REST_SHIFT);
    fetch.step_bytes = fetch.lines * LINE_BYTES;
  }
  return fetch;
}

static void gemm_pairs(const gemm_t *gemm) {
  int32_t passes = DIV_UP(gemm->rows, TILE_ROWS), row = 0;
  for (int32_t pass = 0; pass < passes; pass++) {
    int32_t left = passes - pass, rows = DIV_UP(gemm->rows - row, left);
    pass_prefetch_t fetch = share(gemm, pass, passes);
    switch (rows) {
    case 1: tile(gemm, row, fetch, 1); break;
    case 2: tile(gemm, row, fetch, 2); break;
    case 3: tile(gemm, row, fetch, 3); break;
    case 4: tile(gemm, row, fetch, 4); break;
    case 5: tile(gemm, row, fetch, 5); break;
    default: tile(gemm, row, fetch, 6); break;
    }
    row += rows;
  }
}

/* ---- scores of latent rows ---- */

enum { HEAD_DIM_MAX = 1024, VALUE_VECS = 4, SCORE_SEGMENTS = 4 };

/* Rows of a tile of queries in bf16. */
typedef struct staged_rows {
  _Alignas(64) uint16_t at[TILE_ROWS][HEAD_DIM_MAX];
} staged_rows_t;

/* Pairs (low[i], high[i]) of 16 elements each; NULL stands for zeros. */
INLINE vu interleave(const uint16_t *low, const uint16_t *high) {
  static const uint16_t order[2 * VW] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                         37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                         11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m256i zero = _mm256_setzero_si256();
  __m256i left = low != NULL ? _mm256_loadu_si256((const __m256i *)(const void *)low) : zero;
  __m256i right = high != NULL ? _mm256_loadu_si256((const __m256i *)(const void *)high) : zero;
  return (vu)_mm512_permutex2var_epi16(_mm512_castsi256_si512(left), _mm512_loadu_si512(order),
                                       _mm512_castsi256_si512(right));
}

/* Returns how many of `left` rows the next tile takes. Few different heights keep the code small.
 */
INLINE int32_t tile_height(int32_t left) {
  return left >= TILE_ROWS ? TILE_ROWS : left >= 3 ? 3 : 1;
}

INLINE void score_tile(float *scores, const staged_rows_t *staged, const strip_t *strip,
                       int32_t segment, const int rows) {
  vf acc[TILE_ROWS][SCORE_SEGMENTS];
  vu k[SCORE_SEGMENTS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < SCORE_SEGMENTS; v++) acc[r][v] =
      vf_set(0);
  const uint16_t *keys[SCORE_SEGMENTS];
  for (int v = 0; v < SCORE_SEGMENTS; v++) keys[v] = strip->k[segment + v];
  const int64_t stride = strip->k_stride;
  for (int32_t d = 0; d < strip->head_dim; d += 2) {
    bool both = d + 1 < strip->head_dim;
    UNROLL for (int v = 0; v < SCORE_SEGMENTS; v++) {
      const uint16_t *low = keys[v] + d * stride;
      k[v] = interleave(low, both ? low + stride : NULL);
    }
    UNROLL for (int r = 0; r < rows; r++) {
      vu a = (vu){0} + load_pair(&staged->at[r][d]);
      UNROLL for (int v = 0; v < SCORE_SEGMENTS; v++) acc[r][v] = dot_pairs(acc[r][v], a, k[v]);
    }
  }
  /* Lanes past a short segment are overwritten by the next one. */
  UNROLL for (int v = 0; v < SCORE_SEGMENTS; v++) UNROLL for (int r = 0; r < rows; r++)
      vf_store(scores + (segment + v) * strip->segment_keys + r * SCORE_STRIDE, acc[r][v]);
}

static void scores_pairs(float *scores, const float *q, int64_t ldq, int32_t rows,
                         const strip_t *strip, int32_t first, int32_t last) {
  staged_rows_t staged;
  int32_t padded = (strip->head_dim + 1) / 2 * 2;
  for (int32_t row = 0; row < rows;) {
    int32_t n = tile_height(rows - row);
    float *out = scores + (int64_t)row * SCORE_STRIDE;
    for (int32_t r = 0; r < n; r++)
      stage_bf16(staged.at[r], q + (row + r) * ldq, strip->head_dim, padded);
    for (int32_t s = first; s < last; s += SCORE_SEGMENTS) {
      switch (n) {
      case 1: score_tile(out, &staged, strip, s, 1); break;
      case 3: score_tile(out, &staged, strip, s, 3); break;
      default: score_tile(out, &staged, strip, s, TILE_ROWS); break;
      }
    }
    row += n;
  }
}

/* ---- attention of a strip in one call ---- */

#include "engine/cpu/isa/attend.inc"

/* Scores of `vecs` tiles of keys, from the dimensions in pairs. */
INLINE void strip_score_tile(const attend_t *attend, const space_t *space, int32_t row, float *out,
                             int32_t key, const int rows, const int vecs) {
  vf acc[TILE_ROWS][PAIR_VECS];
  vu k[PAIR_VECS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = vf_set(0);
  const uint16_t *q = attend->q + row * attend->depth;
  const uint16_t *keys = space->keys + key * attend->depth;
  for (int64_t d = 0; d < attend->strip->head_dim; d += 2) {
    UNROLL for (int v = 0; v < vecs; v++) k[v] =
        (vu) * (const vu_memory *)(keys + v * KEY_TILE * attend->depth + d * KEY_TILE);
    UNROLL for (int r = 0; r < rows; r++) {
      vu a = (vu){0} + load_pair(q + r * attend->depth + d);
      UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = dot_pairs(acc[r][v], a, k[v]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++)
      vf_store(out + r * SCORE_STRIDE + v * KEY_TILE, acc[r][v]);
}

INLINE void strip_score_rows(const attend_t *attend, const space_t *space, int32_t row, float *out,
                             int32_t from, int32_t to, const int rows) {
  int32_t key = from;
  for (; key + 2 * STEP_KEYS <= to; key += 2 * STEP_KEYS)
    strip_score_tile(attend, space, row, out + key, key, rows, PAIR_VECS);
  if (key < to) strip_score_tile(attend, space, row, out + key, key, rows, PAIR_VECS / 2);
}

/* acc += weights . values, from the keys in pairs; `vecs` tiles of dimensions. */
INLINE void strip_value_tile(const attend_t *attend, const space_t *space, int32_t row,
                             const uint16_t *weights, int64_t dim, int32_t from, int32_t to,
                             const int rows, const int vecs) {
  vf acc[TILE_ROWS][VALUE_VECS];
  vu v[VALUE_VECS];
  float *out = attend->acc + row * attend->ldo + dim;
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < vecs; i++) acc[r][i] =
      vf_load(out + r * attend->ldo + i * VW);
  for (int32_t step = from; step < to; step += STEP_KEYS) {
    const uint16_t *values = space->values + step * attend->ldo + dim * STEP_KEYS;
    for (int32_t key = step; key < step + STEP_KEYS; key += 2, values += 2 * KEY_TILE) {
      UNROLL for (int i = 0; i < vecs; i++) v[i] =
          (vu) * (const vu_memory *)(values + i * VALUE_TILE);
      UNROLL for (int r = 0; r < rows; r++) {
        vu w = (vu){0} + load_pair(weights + r * STRIP_KEYS + key);
        UNROLL for (int i = 0; i < vecs; i++) acc[r][i] = dot_pairs(acc[r][i], w, v[i]);
      }
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < vecs; i++)
      vf_store(out + r * attend->ldo + i * VW, acc[r][i]);
}

INLINE void strip_value_rows(const attend_t *attend, const space_t *space, int32_t row,
                             const uint16_t *weights, int32_t from, int32_t to, const int rows) {
  int64_t dim = 0;
  for (; dim + VALUE_VECS * VW <= attend->ldo; dim += VALUE_VECS * VW)
    strip_value_tile(attend, space, row, weights, dim, from, to, rows, VALUE_VECS);
  for (; dim < attend->ldo; dim += VW)
    strip_value_tile(attend, space, row, weights, dim, from, to, rows, 1);
}

/* Calls `function(attend, space, row, memory, from, to, rows)` with the number of rows as a
 * constant. */
#define FOR_ROWS(function, memory, rows)                                                           \
  switch (rows) {                                                                                  \
  case 1: function(attend, space, row, memory, from, to, 1); break;                                \
  case 2: function(attend, space, row, memory, from, to, 2); break;                                \
  case 3: function(attend, space, row, memory, from, to, 3); break;                                \
  case 4: function(attend, space, row, memory, from, to, 4); break;                                \
  case 5: function(attend, space, row, memory, from, to, 5); break;                                \
  default: function(attend, space, row, memory, from, to, 6); break;                               \
  }

static void attend_scores(const attend_t *attend, const space_t *space, int32_t row, int32_t end,
                          int32_t from, int32_t to) {
  float *out = space->scores;
  for (int32_t passes = DIV_UP(end - row, TILE_ROWS); passes > 0; passes--) {
    int32_t rows = DIV_UP(end - row, passes);
    FOR_ROWS(strip_score_rows, out, rows)
    row += rows;
    out += rows * SCORE_STRIDE;
  }
}

static void attend_values(const attend_t *attend, const space_t *space, int32_t row, int32_t end,
                          int32_t from, int32_t to) {
  const uint16_t *weights = space->weights;
  for (int32_t passes = DIV_UP(end - row, TILE_ROWS); passes > 0; passes--) {
    int32_t rows = DIV_UP(end - row, passes);
    FOR_ROWS(strip_value_rows, weights, rows)
    row += rows;
    weights += rows * STRIP_KEYS;
  }
}

static void attend_release(void) {}

/* ---- a decode: few rows, which all see the same keys, read K and V where they are ---- */

/* The products are those of attend_strip in the same order, so the bits are, too: pairs of keys
 * that no row sees, which are left out here, add zeros there. */
enum { DIRECT_ROWS = 2 * TILE_ROWS };

/* K and V come from memory, as the weights of a layer push them out of the caches: the first rows
 * prefetch V during the scores, and K of the next strip during the values. A segment of 16 keys is
 * one range of 16 * head_dim elements in both. */
INLINE void prefetch_segment(const void *segment, int64_t line) {
  __builtin_prefetch((const char *)segment + line * LINE_BYTES, 0, 2);
}

INLINE void direct_score_rows(const attend_t *attend, const space_t *space, int32_t row, float *out,
                              int32_t from, int32_t to, const int rows) {
  const strip_t *strip = attend->strip;
  const int32_t first = attend->seen[0].first / KEY_TILE;
  const int32_t last = DIV_UP(attend->seen[0].last, KEY_TILE);
  const int64_t stride = strip->k_stride;
  const uint16_t *q = attend->q + row * attend->depth;
  (void)space;
  for (int32_t s = from / KEY_TILE / PAIR_VECS * PAIR_VECS; s * KEY_TILE < to; s += PAIR_VECS) {
    vf acc[TILE_ROWS][PAIR_VECS];
    vu k[PAIR_VECS];
    const uint16_t *keys[PAIR_VECS];
    for (int v = 0; v < PAIR_VECS; v++) keys[v] = strip->k[MAX(s + v, first)];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] =
        vf_set(0);
    for (int32_t d = 0; d < strip->head_dim; d += 2) {
      const bool both = d + 1 < strip->head_dim;
      UNROLL for (int v = 0; v < PAIR_VECS; v++) {
        const uint16_t *low = keys[v] + d * stride;
        k[v] = interleave(low, both ? low + stride : NULL);
        if (row == 0 && s + v < last) prefetch_segment(strip->v[MAX(s + v, first)], d / 2);
      }
      UNROLL for (int r = 0; r < rows; r++) {
        vu a = (vu){0} + load_pair(q + r * attend->depth + d);
        UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] = dot_pairs(acc[r][v], a, k[v]);
      }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++)
        vf_store(out + r * SCORE_STRIDE + (s + v) * KEY_TILE, acc[r][v]);
  }
}

INLINE void direct_value_tile(const attend_t *attend, int32_t row, const uint16_t *weights,
                              int64_t dim, const int rows, const int vecs) {
  const key_range_t seen = attend->seen[0];
  vf acc[TILE_ROWS][VALUE_VECS];
  vu v[VALUE_VECS];
  float *out = attend->acc + row * attend->ldo + dim;
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < vecs; i++) acc[r][i] =
      vf_load(out + r * attend->ldo + i * VW);
  for (int32_t j = seen.first / 2 * 2; j < seen.last; j += 2) {
    const uint16_t *at = (const uint16_t *)attend->strip->v[j / KEY_TILE];
    const uint16_t *low = at + j % KEY_TILE * attend->ldo + dim, *high = low + attend->ldo;
    if (row == 0 && attend->next != NULL)
      UNROLL for (int i = 0; i < vecs; i++) prefetch_segment(
          attend->next[j / KEY_TILE], (dim / VW + i) * (KEY_TILE / 2) + j % KEY_TILE / 2);
    if (j >= seen.first && j + 1 < seen.last) {
      UNROLL for (int i = 0; i < vecs; i++) v[i] = interleave(low + i * VW, high + i * VW);
    } else { /* a key outside the range is not multiplied: its memory may hold NaN */
      UNROLL for (int i = 0; i < vecs; i++) v[i] = interleave(
          j >= seen.first ? low + i * VW : NULL, j + 1 < seen.last ? high + i * VW : NULL);
    }
    UNROLL for (int r = 0; r < rows; r++) {
      vu w = (vu){0} + load_pair(weights + r * STRIP_KEYS + j);
      UNROLL for (int i = 0; i < vecs; i++) acc[r][i] = dot_pairs(acc[r][i], w, v[i]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < vecs; i++)
      vf_store(out + r * attend->ldo + i * VW, acc[r][i]);
}

INLINE void direct_value_rows(const attend_t *attend, const space_t *space, int32_t row,
                              const uint16_t *weights, int32_t from, int32_t to, const int rows) {
  int64_t dim = 0;
  (void)space, (void)from, (void)to;
  for (; dim + VALUE_VECS * VW <= attend->ldo; dim += VALUE_VECS * VW)
    direct_value_tile(attend, row, weights, dim, rows, VALUE_VECS);
  for (; dim < attend->ldo; dim += VW) direct_value_tile(attend, row, weights, dim, rows, 1);
}

static void attend_direct(const attend_t *attend) {
  const space_t own = cut_space(attend), *space = &own;
  const key_range_t seen = attend->seen[0];
  const int32_t from = seen.first / STEP_KEYS * STEP_KEYS, to = ROUND_UP(seen.last, STEP_KEYS);
  const unsigned int control = _mm_getcsr();
  if (seen.first >= seen.last) return;
  _mm_setcsr(control | MXCSR_FLUSH);
  for (int32_t row = 0, rows; row < attend->group; row += rows) {
    rows = DIV_UP(attend->group - row, DIV_UP(attend->group - row, TILE_ROWS));
    FOR_ROWS(direct_score_rows, space->scores + row * SCORE_STRIDE, rows)
  }
  for (int32_t row = 0; row < attend->group; row++)
    softmax_row(attend, space->scores + row * SCORE_STRIDE, space->weights + row * STRIP_KEYS, row,
                from, to);
  for (int32_t row = 0, rows; row < attend->group; row += rows) {
    rows = DIV_UP(attend->group - row, DIV_UP(attend->group - row, TILE_ROWS));
    FOR_ROWS(direct_value_rows, space->weights + row * STRIP_KEYS, rows)
  }
  _mm_setcsr(control);
}

static void attend_pairs(const attend_t *attend) {
  if (attend->positions == 1 && attend->group <= DIRECT_ROWS &&
      attend->strip->segment_keys == KEY_TILE && !attend->keys_are_rows)
    attend_direct(attend);
  else
    attend_strip(attend);
}

/* ---- keys and values in 8 bits ---- */

INLINE void store_bf16(uint16_t *to, vf value) {
  __m256bh half = _mm512_cvtneps_pbh((__m512)value);
  memcpy(to, &half, sizeof half);
}
#define KV8_NUMBER uint16_t
#define KV8_TYPE DTYPE_BF16
#define KV8_STORE store_bf16
#include "engine/cpu/isa/kv8.inc"

static bool supported(void) {
  return (*kernels_avx512vnni).supported() && __builtin_cpu_supports("avx512bf16");
}

static kernels_t table;
const kernels_t *const kernels_avx512bf16 = &table;

/* Runs before main, on every processor, so without AVX, and after the constructor of avx512vnni:
 * the table is the one of that tier with a few entries replaced. */
__attribute__((constructor(1001), target("no-avx"))) static void fill(void) {
  table = *kernels_avx512vnni;
  table.name = "avx512bf16";
  table.supported = supported;
  table.staged_size = sizeof(uint16_t);
  table.stage = stage_bf16;
  table.gemm[DTYPE_BF16] = gemm_pairs;
  table.scores[DTYPE_BF16] = scores_pairs;
  table.attend = attend_pairs;
  table.attend_across = attend_pairs;
  table.kv8_type = KV8_TYPE;
  table.kv8_narrow = kv8_narrow;
  table.kv8_widen_keys = kv8_widen_keys;
  table.kv8_widen_values = kv8_widen_values;
}
#else
const kernels_t *const kernels_avx512bf16 = NULL;
#endif
