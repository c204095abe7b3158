/* kernels_avx512.c: AVX-512 F, BW, VL and DQ; 32 registers of 16 floats.
 *
 * Owns the table kernels_avx512 (NULL on other architectures). Run by pool workers; see kernels.h.
 */
#include "engine/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TILE_ROWS_6 1
enum { VW = 16, TILE_ROWS = 6, VALUE_VECS = 4, SCORE_SEGMENTS = 4 };
#define TILE_VECS(rows) 4

#define WIDEN_U16(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#include "engine/cpu/vector.inc"

static inline vf vf_fma(vf a, vf b, vf c) {
  return (vf)_mm512_fmadd_ps(a, b, c);
}
/* When either is NaN both return the second operand. */
static inline vf vf_max(vf a, vf b) {
  return (vf)_mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
  return (vf)_mm512_min_ps(a, b);
}
static inline vf vf_load_f16(const uint16_t *p) {
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

#include "engine/cpu/math.inc"

#include "engine/cpu/gemm.inc"

#include "engine/cpu/attention.inc"

static bool supported(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

static const kernels_t table = {KERNELS_COMMON("avx512")};
const kernels_t *const kernels_avx512 = &table;
#else
const kernels_t *const kernels_avx512 = NULL;
#endif
