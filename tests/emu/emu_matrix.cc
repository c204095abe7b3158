/* emu_matrix.cc: ldmatrix and mma.m16n8k16, with the fragment layouts of the PTX manual.
 *
 * Lane l has group g = l / 4 and pair t = 2 (l % 4). Register 0 of A holds row g, columns t and
 * t + 1; 1 row g + 8; 2 and 3 the same at columns t + 8. B holds rows t, t + 1 (then t + 8) of
 * column g; the accumulator rows g and g + 8 of columns t, t + 1. Sums run over k in order, in
 * fp32; a GPU adds in another order, so tests compare with a tolerance.
 */
#include "emu_core.h"

namespace emu {

enum { LANES = 32, MMA_M = 16, MMA_N = 8, MMA_K = 16, MATRIX_SIDE = 8, ROW_BYTES = 16 };

/* A row of B and of the accumulators. The host's widest instructions add it in one; sums of each
 * element keep their order, and nothing is contracted, so every processor has the same bits. */
typedef float Row __attribute__((vector_size(MMA_N * sizeof(float))));
/* AddressSanitizer is not up yet when the loader chooses between clones. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define EMU_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define EMU_WIDE
#endif
/* Written before they are read: the pattern for what is not would cost as much as the product. */
#define EMU_FILLED __attribute__((uninitialized))

struct MmaFactors {
  float a[MMA_M][MMA_K];
  Row b[MMA_K], sum[MMA_M];
};

struct MmaArgument {
  uint32_t a[4], b[2];
  float *acc;
};

template <bool BF16> static float element(uint32_t pair, int high) {
  const uint16_t bits = (uint16_t)(pair >> 16 * high);
  return BF16 ? bf16_bits_to_float(bits) : half_bits_to_float(bits);
}

/* Four rows at a time, or each sum would wait for the one before. */
EMU_WIDE static void mma_multiply(MmaFactors *m) {
  for (int i = 0; i < MMA_M; i += 4) {
    Row s0 = m->sum[i], s1 = m->sum[i + 1], s2 = m->sum[i + 2], s3 = m->sum[i + 3];
    for (int k = 0; k < MMA_K; k++) {
      const Row row = m->b[k];
      s0 += m->a[i][k] * row;
      s1 += m->a[i + 1][k] * row;
      s2 += m->a[i + 2][k] * row;
      s3 += m->a[i + 3][k] * row;
    }
    m->sum[i] = s0, m->sum[i + 1] = s1, m->sum[i + 2] = s2, m->sum[i + 3] = s3;
  }
}

template <bool BF16> static void mma_work(void **arguments, uint32_t) {
  MmaFactors m EMU_FILLED;
  for (int lane = 0; lane < LANES; lane++) {
    const MmaArgument &x = *static_cast<MmaArgument *>(arguments[lane]);
    const int g = lane / 4, t = lane % 4 * 2;
#pragma GCC unroll 2
    for (int high = 0; high < 2; high++) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; r++)
        m.a[g + r % 2 * 8][t + r / 2 * 8 + high] = element<BF16>(x.a[r], high);
      for (int r = 0; r < 2; r++) m.b[t + r * 8 + high][g] = element<BF16>(x.b[r], high);
      for (int r = 0; r < 2; r++) m.sum[g + r * 8][t + high] = x.acc[r * 2 + high];
    }
  }
  mma_multiply(&m);
  for (int lane = 0; lane < LANES; lane++) {
    float *acc = static_cast<MmaArgument *>(arguments[lane])->acc;
    const int g = lane / 4, t = lane % 4 * 2;
    for (int r = 0; r < 4; r++) acc[r] = m.sum[g + r / 2 * 8][t + r % 2];
  }
}

void mma_m16n8k16(float *acc, const uint32_t *a, uint32_t b0, uint32_t b1, bool bf16, Site site) {
  MmaArgument x = {{a[0], a[1], a[2], a[3]}, {b0, b1}, acc};
  warp_collective(~0u, bf16 ? "mma.m16n8k16.bf16" : "mma.m16n8k16.f16", true, &x,
                  bf16 ? mma_work<true> : mma_work<false>, site);
}

struct LdmatrixArgument {
  const void *row;
  uint32_t *out;
  int matrices;
  bool transposed;
};

static void ldmatrix_work(void **arguments, uint32_t) {
  const LdmatrixArgument first = *static_cast<LdmatrixArgument *>(arguments[0]);
  uint16_t matrix[4][MATRIX_SIDE][MATRIX_SIDE];
  for (int i = 0; i < first.matrices * MATRIX_SIDE; i++)
    memcpy(matrix[i / MATRIX_SIDE][i % MATRIX_SIDE],
           static_cast<LdmatrixArgument *>(arguments[i])->row, ROW_BYTES);
  for (int lane = 0; lane < LANES; lane++) {
    uint32_t *out = static_cast<LdmatrixArgument *>(arguments[lane])->out;
    const int g = lane / 4, t = lane % 4 * 2;
    for (int m = 0; m < first.matrices; m++) {
      const uint16_t low = first.transposed ? matrix[m][t][g] : matrix[m][g][t];
      const uint16_t high = first.transposed ? matrix[m][t + 1][g] : matrix[m][g][t + 1];
      out[m] = (uint32_t)high << 16 | low;
    }
  }
}

void ldmatrix(uint32_t *out, int matrices, bool transposed, const void *row, Site site) {
  if ((int)self()->lane < matrices * MATRIX_SIDE) {
    if (reinterpret_cast<uintptr_t>(row) % ROW_BYTES)
      fail("ldmatrix at %s:%d: row %p is not 16-byte aligned", file_name(site.file), site.line,
           row);
    if (!is_shared(row, ROW_BYTES))
      fail("ldmatrix at %s:%d: row %p is not in shared memory", file_name(site.file), site.line,
           row);
    check_access(row, ROW_BYTES, false, "ldmatrix");
  }
  LdmatrixArgument x = {row, out, matrices, transposed};
  warp_collective(~0u, transposed ? "ldmatrix.trans" : "ldmatrix", true, &x, ldmatrix_work, site);
}

} // namespace emu
