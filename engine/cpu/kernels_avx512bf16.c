/* kernels_avx512bf16.c: AVX-512 with the bf16 dot product; only bf16 weights differ from avx512.
 *
 * Owns the table kernels_avx512bf16 (NULL on other architectures). Run by pool workers; see
 * kernels.h. An accumulator lane takes two products per step, in the order of k; a tile is up to 6
 * rows x 4 vectors, all 64 columns of a panel. vdpbf16ps flushes subnormals to zero.
 */
#include "engine/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { VW = 16, TILE_ROWS = 6, PAIR_VECS = PANEL_COLS / VW };

#include "engine/cpu/vector.inc"

enum { LINE_BYTES = 64, STEP_BYTES = PANEL_COLS * 4 };

static void stage_bf16(void *out, const float *x, int64_t count, int64_t padded) {
  uint16_t *to = out;
  int64_t i = 0;
  for (; i + VW <= count; i += VW) {
    __m256bh half = _mm512_cvtneps_pbh(vf_load(x + i));
    memcpy(to + i, &half, sizeof half);
  }
  if (i < count) {
    float tail[VW] = {0};
    memcpy(tail, x + i, (size_t)(count - i) * sizeof(float));
    __m256bh half = _mm512_cvtneps_pbh(vf_load(tail));
    memcpy(to + i, &half, (size_t)(count - i) * sizeof(uint16_t));
  }
  if (padded > count) memset(to + count, 0, (size_t)(padded - count) * sizeof(uint16_t));
}

INLINE vf dot_pairs(vf acc, vu a, vu b) {
  return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
}

INLINE uint32_t load_pair(const uint16_t *p) {
  uint32_t pair;
  memcpy(&pair, p, sizeof pair);
  return pair;
}

/* Sums of a tile on their way out. */
typedef struct tile_sums {
  _Alignas(64) float at[TILE_ROWS][PANEL_COLS];
} tile_sums_t;

static __attribute__((noinline)) void write_tile(const gemm_t *g, int32_t row, int32_t rows,
                                                 const tile_sums_t *sums) {
  for (int32_t r = 0; r < rows; r++) {
    int64_t at = (row + r) * g->ldo;
    for (int32_t c = 0; c < g->cols; c += VW) {
      int32_t left = g->cols - c;
      __mmask16 mask = (__mmask16)(left >= VW ? 0xffff : (1 << left) - 1);
      __m512 y = _mm512_load_ps(&sums->at[r][c]);
      if (g->bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, g->bias + c));
      if (g->residual) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, g->residual + at + c));
      _mm512_mask_storeu_ps(g->out + at + c, mask, y);
    }
  }
}

/* One pass over the panel; fetches `lines` lines per step of the next panel from `ahead` on. */
INLINE void tile(const gemm_t *g, int32_t row, const char *ahead, int32_t lines, const int rows) {
  vf acc[TILE_ROWS][PAIR_VECS];
  vu w[PAIR_VECS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] =
      vf_set(0);
  const uint16_t *x = (const uint16_t *)g->x + row * g->ldx;
  const char *p = g->panel;
  const int64_t ldx = g->ldx;
  for (int64_t k = 0; k < g->depth; k += 2, p += STEP_BYTES) {
    for (int32_t i = 0; i < lines; i++) __builtin_prefetch(ahead + i * LINE_BYTES, 0, 2);
    ahead += STEP_BYTES;
    UNROLL for (int v = 0; v < PAIR_VECS; v++) w[v] =
        (vu) * (const vu_memory *)(p + v * LINE_BYTES);
    UNROLL for (int r = 0; r < rows; r++) {
      vu a = (vu){0} + load_pair(x + r * ldx + k);
      UNROLL for (int v = 0; v < PAIR_VECS; v++) acc[r][v] = dot_pairs(acc[r][v], a, w[v]);
    }
  }
  tile_sums_t sums;
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PAIR_VECS; v++)
      vf_store(&sums.at[r][v * VW], acc[r][v]);
  write_tile(g, row, rows, &sums);
}

static void gemm_pairs(const gemm_t *g) {
  int32_t passes = (g->rows + TILE_ROWS - 1) / TILE_ROWS, row = 0;
  int32_t each = (4 + passes - 1) / passes; /* a step of a panel is 4 lines */
  for (int32_t pass = 0; pass < passes; pass++) {
    int32_t left = passes - pass, rows = (g->rows - row + left - 1) / left;
    int32_t lines = g->next && passes > 1 && pass * each < 4 ? each : 0;
    if (pass * each + lines > 4) lines = 4 - pass * each;
    const char *ahead = lines > 0 ? (const char *)g->next + pass * each * LINE_BYTES : g->panel;
    switch (rows) {
    case 1: tile(g, row, ahead, lines, 1); break;
    case 2: tile(g, row, ahead, lines, 2); break;
    case 3: tile(g, row, ahead, lines, 3); break;
    case 4: tile(g, row, ahead, lines, 4); break;
    case 5: tile(g, row, ahead, lines, 5); break;
    default: tile(g, row, ahead, lines, 6); break;
    }
    row += rows;
  }
}

static bool supported(void) {
  return (*kernels_avx512).supported() && __builtin_cpu_supports("avx512bf16");
}

static kernels_t table;
const kernels_t *const kernels_avx512bf16 = &table;

/* Runs before main: the table is the avx512 one with two entries replaced. */
__attribute__((constructor(1000))) static void fill(void) {
  table = *kernels_avx512;
  table.name = "avx512bf16";
  table.supported = supported;
  table.staged_size = sizeof(uint16_t);
  table.stage = stage_bf16;
  table.gemm[DTYPE_BF16] = gemm_pairs;
}
#else
const kernels_t *const kernels_avx512bf16 = NULL;
#endif
