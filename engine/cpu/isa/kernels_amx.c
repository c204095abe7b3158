/* kernels_amx.c: AMX tiles for bf16 weights; attention is in attention_amx.c, the rest is the
 * avx512bf16 tier. Quantised weights are in quant_amx.c.
 *
 * Owns the table kernels_amx (NULL on other architectures). Run by pool workers; see kernels.h. One
 * tdpbf16ps takes 32 products per element, always in the same order; a row's bits do not depend on
 * which tile row it is, nor on how many rows the tile has. Subnormals are flushed to zero.
 *
 * A packed panel is already in tile layout: 16 pairs of k are 16 tile rows of 64 bytes, 256 bytes
 * apart. Up to 16 rows go once over the panel with four accumulator tiles; more go in blocks of 32
 * rows with 2 x 2 tiles, twice over half the panel. About 2,900 GFLOP/s a core on Sapphire Rapids,
 * where vdpbf16ps reaches 105 and FMA 210. Attention to an encoder's rows stays that of avx512bf16:
 * a decode reads them where they are, and their packing for the tiles took twice as long.
 */
#include "engine/base/util.h"
#include "engine/cpu/isa/quant_amx.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include "engine/cpu/isa/tiles_amx.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
  BLOCK_ROWS = 2 * TILE_ROWS,
  ROW_BYTES = PANEL_COLS * 4, /* between tile rows of a panel */
  STEP_BYTES = ROW_BYTES * TILE_DEPTH / 2,
  STEP_LINES = STEP_BYTES / 64,
  AHEAD_BYTES = 4 * STEP_BYTES,   /* how far a single pass prefetches in its panel */
  STREAM_DEPTH = 16 * TILE_DEPTH, /* k that 17 to 32 rows take at a time */
  STREAM_BYTES = 16 * STEP_BYTES,
  ARCH_REQ_XCOMP_PERM = 0x1023,
  XFEATURE_XTILEDATA = 18
};

/* Cache lines of the next panel that one pass prefetches in each of its steps. */
typedef struct ahead {
  const char *at;
  int32_t lines;
} ahead_t;

/* The accumulators of a block, as the tiles store them. */
typedef struct amx_block {
  _Alignas(64) float sum[BLOCK_ROWS][PANEL_COLS];
} amx_block_t;

static inline void fetch(ahead_t *ahead) {
  for (int32_t i = 0; i < ahead->lines; i++) __builtin_prefetch(ahead->at + i * 64, 0, 2);
  ahead->at += STEP_BYTES;
}

/* Computes up to 16 rows and all 64 columns. */
static void narrow(const gemm_t *gemm, const uint16_t *in, ahead_t ahead, amx_block_t *block) {
  const uint8_t *p = gemm->panel;
  size_t x_bytes = (size_t)gemm->ldx * sizeof *in;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < gemm->depth; k += TILE_DEPTH, p += STEP_BYTES) {
    fetch(&ahead);
    _tile_loadd(4, in + k, x_bytes);
    _tile_loadd(6, p, ROW_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, p + TILE_BYTES, ROW_BYTES);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, p + 2 * TILE_BYTES, ROW_BYTES);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, p + 3 * TILE_BYTES, ROW_BYTES);
    _tile_dpbf16ps(3, 4, 7);
  }
  _tile_stored(0, &block->sum[0][0], sizeof block->sum[0]);
  _tile_stored(1, &block->sum[0][16], sizeof block->sum[0]);
  _tile_stored(2, &block->sum[0][32], sizeof block->sum[0]);
  _tile_stored(3, &block->sum[0][48], sizeof block->sum[0]);
}

/* Computes 17 to 32 rows, columns [col, col + 32), k in [from, to). Sums continue from `block`
 * unless `from` is 0. */
static void wide(const gemm_t *gemm, const uint16_t *in, int32_t col, int64_t from, int64_t to,
                 ahead_t ahead, amx_block_t *block) {
  const uint8_t *p = (const uint8_t *)gemm->panel + col * 4 + from / TILE_DEPTH * STEP_BYTES;
  size_t x_bytes = (size_t)gemm->ldx * sizeof *in, row_bytes = sizeof block->sum[0];
  const uint16_t *lower = in + TILE_ROWS * gemm->ldx;
  float *upper_sums = &block->sum[0][col], *lower_sums = &block->sum[TILE_ROWS][col];
  if (from == 0) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, upper_sums, row_bytes);
    _tile_loadd(1, upper_sums + 16, row_bytes);
    _tile_loadd(2, lower_sums, row_bytes);
    _tile_loadd(3, lower_sums + 16, row_bytes);
  }
  for (int64_t k = from; k < to; k += TILE_DEPTH, p += STEP_BYTES) {
    fetch(&ahead);
    _tile_loadd(4, in + k, x_bytes);
    _tile_loadd(6, p, ROW_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, p + TILE_BYTES, ROW_BYTES);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower + k, x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, upper_sums, row_bytes);
  _tile_stored(1, upper_sums + 16, row_bytes);
  _tile_stored(2, lower_sums, row_bytes);
  _tile_stored(3, lower_sums + 16, row_bytes);
}

/* Computes the only block of a panel: both halves of a range of k, then the next range. So the
 * panel is read once from front to back, and little has to be prefetched. */
static void wide_streaming(const gemm_t *gemm, const uint16_t *in, amx_block_t *block) {
  const ahead_t none = {gemm->panel, 0};
  for (int64_t from = 0; from < gemm->depth; from += STREAM_DEPTH) {
    int64_t to = MIN(from + STREAM_DEPTH, gemm->depth);
    const char *next = (const char *)gemm->panel + from / TILE_DEPTH * STEP_BYTES + STREAM_BYTES;
    ahead_t ahead = {next, gemm->next != NULL || to < gemm->depth ? STEP_LINES : 0};
    wide(gemm, in, 0, from, to, ahead, block);
    wide(gemm, in, PANEL_COLS / 2, from, to, none, block);
  }
}

static void write_block(const gemm_t *gemm, int32_t row, int32_t rows, const amx_block_t *block) {
  for (int32_t r = 0; r < rows; r++) {
    int64_t at = (row + r) * gemm->ldo;
    for (int32_t c = 0; c < gemm->cols; c += 16) {
      int32_t left = gemm->cols - c;
      __mmask16 mask = (__mmask16)(left >= 16 ? 0xffff : (1 << left) - 1);
      __m512 y = _mm512_load_ps(&block->sum[r][c]);
      if (gemm->bias != NULL) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, gemm->bias + c));
      if (gemm->residual != NULL)
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, gemm->residual + at + c));
      _mm512_mask_storeu_ps(gemm->out + at + c, mask, y);
    }
  }
}

/* Returns what pass `pass` of `passes` prefetches: its share of every step of the next panel. A
 * single pass prefetches in its own panel and then in the next one, which follows it in memory. */
static ahead_t share(const gemm_t *gemm, int32_t pass, int32_t passes) {
  if (gemm->next == NULL) return (ahead_t){gemm->panel, 0};
  if (passes == 1) return (ahead_t){(const char *)gemm->panel + AHEAD_BYTES, STEP_LINES};
  int32_t each = DIV_UP(STEP_LINES, passes), first = pass * each;
  if (first >= STEP_LINES) return (ahead_t){gemm->panel, 0};
  int32_t lines = first + each > STEP_LINES ? STEP_LINES - first : each;
  return (ahead_t){(const char *)gemm->next + first * 64, lines};
}

static void gemm_tiles(const gemm_t *gemm) {
  const uint16_t *x = gemm->x;
  amx_block_t block;
  int32_t tail = gemm->rows % BLOCK_ROWS, configured = 0;
  int32_t passes = gemm->rows / BLOCK_ROWS * 2 + (tail > TILE_ROWS ? 2
                                                  : tail > 0       ? 1
                                                                   : 0),
          pass = 0;
  for (int32_t row = 0; row < gemm->rows; row += BLOCK_ROWS) {
    int32_t rows = MIN(gemm->rows - row, BLOCK_ROWS);
    if (rows != configured)
      tiles_configure(MIN(rows, TILE_ROWS), rows > TILE_ROWS ? rows - TILE_ROWS : 0);
    configured = rows;
    if (rows > TILE_ROWS && rows == gemm->rows) {
      wide_streaming(gemm, x, &block);
    } else if (rows > TILE_ROWS) {
      wide(gemm, x + row * gemm->ldx, 0, 0, gemm->depth, share(gemm, pass, passes), &block);
      wide(gemm, x + row * gemm->ldx, PANEL_COLS / 2, 0, gemm->depth, share(gemm, pass + 1, passes),
           &block);
      pass += 2;
    } else {
      narrow(gemm, x + row * gemm->ldx, share(gemm, pass, passes), &block);
      pass += 1;
    }
    write_block(gemm, row, rows, &block);
  }
  _tile_release();
}

/* Linux allows AMX only to processes that request it; a second request is harmless. */
static bool supported(void) {
  return (*kernels_avx512bf16).supported() && __builtin_cpu_supports("amx-tile") &&
         __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8") &&
         syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static kernels_t table;
const kernels_t *const kernels_amx = &table;

/* Copies the avx512bf16 table and replaces the linear layers and attention. Runs before main, on
 * every processor, so without AVX; its priority makes it run after the constructor that fills that
 * table. */
__attribute__((constructor(1002), target("no-avx"))) static void fill(void) {
  table = *kernels_avx512bf16;
  table.name = "amx";
  table.supported = supported;
  table.gemm[DTYPE_BF16] = gemm_tiles;
  table.gemm_quant = gemm_quant_amx;
  table.attend = attend_amx;
}
#else
const kernels_t *const kernels_amx = NULL;
#endif
