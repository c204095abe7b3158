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

/* What one instruction of the host adds, on every 64-bit processor. */
enum { FOUR = 4 };
typedef float Four __attribute__((vector_size(FOUR * sizeof(float))));

struct MmaArgument {
  uint32_t a[4], b[2];
  float *acc;
};

template <bool BF16> static float element(uint32_t pair, int high) {
  const uint16_t bits = (uint16_t)(pair >> 16 * high);
  return BF16 ? bf16_bits_to_float(bits) : half_bits_to_float(bits);
}

template <bool BF16> static void mma_work(void **arguments, uint32_t) {
  float a[MMA_M][MMA_K], b[MMA_K][MMA_N], sum[MMA_M][MMA_N];
  for (int lane = 0; lane < LANES; lane++) {
    const MmaArgument &x = *static_cast<MmaArgument *>(arguments[lane]);
    const int g = lane / 4, t = lane % 4 * 2;
#pragma GCC unroll 2
    for (int high = 0; high < 2; high++) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; r++)
        a[g + r % 2 * 8][t + r / 2 * 8 + high] = element<BF16>(x.a[r], high);
      for (int r = 0; r < 2; r++) b[t + r * 8 + high][g] = element<BF16>(x.b[r], high);
      for (int r = 0; r < 2; r++) sum[g + r * 8][t + high] = x.acc[r * 2 + high];
    }
  }
  for (int i = 0; i < MMA_M; i++)
    for (int j = 0; j < MMA_N; j += FOUR) {
      Four four;
      memcpy(&four, &sum[i][j], sizeof four);
      for (int k = 0; k < MMA_K; k++) {
        Four column;
        memcpy(&column, &b[k][j], sizeof column);
        four += a[i][k] * column;
      }
      memcpy(&sum[i][j], &four, sizeof four);
    }
  for (int lane = 0; lane < LANES; lane++) {
    float *acc = static_cast<MmaArgument *>(arguments[lane])->acc;
    const int g = lane / 4, t = lane % 4 * 2;
    for (int r = 0; r < 4; r++) acc[r] = sum[g + r / 2 * 8][t + r % 2];
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
