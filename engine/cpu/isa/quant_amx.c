/* quant_amx.c: AMX tiles for quantised weights; part of the amx tier.
 *
 * Run by pool workers; see kernels_amx.c. A tile product takes the 16 or 32 rows of depth of one
 * group, so its integers are those of the AVX512-VNNI kernel, and the floats are added in the same
 * order: both kernels give the same bits. Up to 23 rows of activations are left to the AVX512-VNNI
 * kernel, which is faster for them because it does not unpack the panel.
 *
 * For 16 rows and 16 columns the tiles multiply all groups of a chunk, then the vector units scale
 * and add them, with the sums in registers. Bound by these vector operations.
 */
#include "engine/cpu/isa/quant_amx.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include "engine/cpu/isa/quant_vnni.inc"

enum {
  TILE_SIDE = 16,    /* rows, and columns of 32 bits, of a tile */
  AMX_ROWS_MIN = 24, /* fewer rows are faster without tiles */
  LINE_BYTES = 64
};

/* Operand of ldtilecfg: Intel SDM, volume 1, "Intel AMX", TILECFG. */
typedef struct quant_tiles {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} quant_tiles_t;

/* The integer products of all groups of a chunk, for 16 rows and 16 columns. */
typedef struct amx_dots {
  _Alignas(64) int32_t at[QUANT_GROUPS][TILE_SIDE][TILE_SIDE];
} amx_dots_t;

/* The block of up to 16 rows that is being multiplied with a chunk. */
typedef struct amx_work {
  const quant_work_t *chunk;
  const uint8_t *x[TILE_SIDE]; /* staged rows; the last one is repeated if there are fewer */
  int64_t ldx;
  int32_t row;       /* the first of them */
  int32_t group;     /* depth of one product: that of the weights' groups, 32 at most */
  bool is_signed;    /* the weights are signed levels, not unsigned codes */
  const char *ahead; /* next panel, of which each step prefetches `lines` lines */
  int32_t lines;
} amx_work_t;

/* Tiles 0 and 1 accumulate, 2 and 3 hold activations, 4 and 5 weights. */
static void configure(int32_t rows, int32_t group) {
  quant_tiles_t config;
  memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < 6; i++) {
    config.row_bytes[i] = (uint16_t)(i == 2 || i == 3 ? group : LINE_BYTES);
    config.rows[i] = (uint8_t)(i >= 4 ? group / 4 : rows);
  }
  __asm__ volatile("" ::: "memory"); /* the intrinsic does not say that it reads all 64 bytes */
  _tile_loadconfig(&config);
}

/* Multiplies one group with an even or odd set of tiles. */
#define TILE_PRODUCT(sum, left, right)                                                             \
  do {                                                                                             \
    _tile_zero(sum);                                                                               \
    _tile_loadd(left, x, (size_t)work->ldx);                                                       \
    _tile_loadd(right, codes, PANEL_COLS * 4);                                                     \
    if (work->is_signed)                                                                           \
      _tile_dpbssd(sum, left, right);                                                              \
    else                                                                                           \
      _tile_dpbsud(sum, left, right);                                                              \
    _tile_stored(sum, dots->at[group], sizeof dots->at[group][0]);                                 \
  } while (0)

INLINE void amx_multiply(const amx_work_t *work, int32_t col, int32_t group, amx_dots_t *dots) {
  const quant_work_t *chunk = work->chunk;
  int32_t k = group * work->group;
  const uint8_t *x = work->x[0] + chunk->first + k;
  const uint8_t *codes = quant_codes(chunk, k / QUANT_DEPTH_ALIGN * QUANT_DEPTH_ALIGN, 8) +
                         k % QUANT_DEPTH_ALIGN * PANEL_COLS + col * 4;
  if (group % 2 == 0)
    TILE_PRODUCT(0, 2, 4);
  else
    TILE_PRODUCT(1, 3, 5);
}

/* Adds the products of a group to the sums of 16 columns. */
INLINE void amx_add(const amx_work_t *work, int32_t col, int32_t group, const amx_dots_t *dots,
                    vf *sums, const int rows) {
  const quant_work_t *chunk = work->chunk;
  const quant_layout_t *layout = chunk->layout;
  const int64_t depth = chunk->gemm->depth, k = chunk->first + group * work->group;
  const int32_t at = group * work->group / layout->group;
  const vf scale = vf_load(&chunk->scratch->scale[at][col]);
  UNROLL for (int r = 0; r < rows; r++) {
    vi dot = (vi)_mm512_load_si512(dots->at[group][r]);
    vf factor = scale * quant_x_scales(work->x[r], depth)[k / QUANT_DEPTH_ALIGN];
    sums[r] = vf_fma(__builtin_convertvector(dot, vf), factor, sums[r]);
  }
  if (!layout->has_min) return;
  const vf min = vf_load(&chunk->scratch->min[at][col]);
  UNROLL for (int r = 0; r < rows; r++) {
    const int32_t *x_sums = quant_x_sums(work->x[r], depth) + k / QUANT_GROUP_MIN;
    int32_t sum = work->group == QUANT_GROUP_MIN ? x_sums[0] : x_sums[0] + x_sums[1];
    float x_scale = quant_x_scales(work->x[r], depth)[k / QUANT_DEPTH_ALIGN];
    sums[r] = vf_fma(min, vf_set(-(x_scale * (float)sum)), sums[r]);
  }
}

INLINE void amx_columns(amx_work_t *work, int32_t col, amx_dots_t *dots, const int rows) {
  const quant_work_t *chunk = work->chunk;
  const int32_t groups = chunk->cols / work->group;
  vf sums[TILE_SIDE];
  UNROLL for (int r = 0; r < rows; r++) sums[r] =
      vf_load(&chunk->scratch->sums[work->row + r][col]);
  for (int32_t group = 0; group < groups; group++) amx_multiply(work, col, group, dots);
  for (int32_t group = 0; group < groups; group++) {
    for (int32_t i = 0; i < work->lines; i++)
      __builtin_prefetch(work->ahead + i * LINE_BYTES, 0, 2);
    work->ahead += work->lines * LINE_BYTES;
    amx_add(work, col, group, dots, sums, rows);
  }
  UNROLL for (int r = 0; r < rows; r++)
      vf_store(&chunk->scratch->sums[work->row + r][col], sums[r]);
}

/* Makes the codes of a chunk what the tiles take: bytes, and signed levels if there is an offset.
 */
static void amx_codes(quant_work_t *work) {
  const quant_layout_t *layout = work->layout;
  uint8_t *out = work->scratch->codes, levels[sizeof layout->table];
  const __m512i offset = _mm512_set1_epi8((char)layout->offset);
  if (layout->bits == 8 && layout->offset == 0) return;
  if (layout->bits < 8) {
    for (size_t i = 0; i < sizeof levels; i++)
      levels[i] = (uint8_t)(layout->table[i] - layout->offset);
    quant_unpack(out, work, levels);
    work->codes = out;
    work->gap = 0;
  }
  if (layout->bits != 4 && layout->offset != 0) /* with 4 bits the table gave signed levels */
    for (int32_t k = 0; k < work->cols; k += QUANT_DEPTH_ALIGN) {
      const uint8_t *from = quant_codes(work, k, 8);
      for (int32_t i = 0; i < QUANT_DEPTH_ALIGN * PANEL_COLS; i += LINE_BYTES)
        _mm512_store_si512(out + k * PANEL_COLS + i,
                           _mm512_sub_epi8(_mm512_loadu_si512(from + i), offset));
    }
  work->codes = out;
  work->gap = 0;
}

static void amx_chunk(const quant_work_t *chunk, const char *next, size_t bytes) {
  const gemm_t *gemm = chunk->gemm;
  amx_dots_t dots;
  amx_work_t work = {.chunk = chunk, .ldx = gemm->ldx, .ahead = next};
  int32_t blocks = DIV_UP(gemm->rows, TILE_SIDE), configured = 0;
  int32_t tiles = DIV_UP(gemm->cols, TILE_SIDE);
  work.group = MIN(chunk->layout->group, QUANT_DEPTH_ALIGN);
  work.is_signed = chunk->layout->offset != 0;
  work.lines = (int32_t)(bytes / LINE_BYTES) / (blocks * tiles * (chunk->cols / work.group)) + 1;
  if (next == NULL) work.lines = 0;
  for (int32_t row = 0; row < gemm->rows; row += TILE_SIDE) {
    int32_t rows = MIN(gemm->rows - row, TILE_SIDE);
    work.row = row;
    for (int32_t r = 0; r < TILE_SIDE; r++)
      work.x[r] = (const uint8_t *)gemm->x + (row + MIN(r, rows - 1)) * gemm->ldx;
    if (rows != configured) configure(rows, work.group);
    configured = rows;
    for (int32_t col = 0; col < gemm->cols; col += TILE_SIDE) {
      if (rows <= TILE_SIDE / 2)
        amx_columns(&work, col, &dots, TILE_SIDE / 2);
      else
        amx_columns(&work, col, &dots, TILE_SIDE);
    }
  }
}

void gemm_quant_amx(const gemm_t *gemm) {
  if (gemm->rows < AMX_ROWS_MIN) {
    kernels_avx512vnni->gemm_quant(gemm);
    return;
  }
  quant_scratch_t scratch;
  const quant_layout_t *layout = gemm->layout;
  const uint8_t *panel = gemm->panel;
  memset(scratch.sums, 0, sizeof scratch.sums);
  for (int64_t first = 0; first < gemm->depth; first += QUANT_CHUNK) {
    quant_work_t work = {.gemm = gemm, .layout = layout, .first = first, .scratch = &scratch};
    work.cols = (int32_t)MIN(gemm->depth - first, QUANT_CHUNK);
    size_t bytes = quant_chunk_bytes(layout, work.cols);
    bool more = first + QUANT_CHUNK < gemm->depth || gemm->next != NULL;
    work.codes = quant_scales(&work, panel);
    amx_codes(&work);
    amx_chunk(&work, more ? (const char *)panel + bytes : NULL, bytes);
    panel += bytes;
  }
  _tile_release();
  quant_write(gemm, &scratch);
}
#endif
