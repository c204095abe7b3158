/* kernels_avxvnni.c: integer dot products of AVX-VNNI for quantised weights; the rest is the
 * avx2 tier. For processors that have AVX-VNNI but not AVX-512.
 *
 * Owns the table kernels_avxvnni (NULL on other architectures). Run by pool workers; see kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include <immintrin.h>

/* vector.inc says what these sizes are. */
#define TILE_ROWS_6 1
enum { VW = 8, TILE_ROWS = 6 };
#define TILE_VECS(rows) ((rows) == 1 ? 8 : (rows) <= 3 ? 4 : 2)

#define WIDEN_U16(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#include "engine/cpu/isa/vector.inc"

static inline vf vf_fma(vf left, vf right, vf addend) {
  return (vf)_mm256_fmadd_ps(left, right, addend);
}
static inline vf vf_load_f16(const uint16_t *from) {
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

typedef __m256i q_x_t;
typedef __m256i q_table_t;
INLINE q_x_t q_broadcast(const uint8_t *row, int64_t depth, int64_t at) {
  int32_t word;
  (void)depth;
  memcpy(&word, row + at, sizeof word);
  return _mm256_set1_epi32(word);
}
INLINE vi q_dot(vi sum, vu codes, q_x_t left) {
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)codes, left);
}
INLINE q_table_t q_table(const uint8_t *table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}
INLINE vu q_lookup(vu nibbles, q_table_t table) {
  return (vu)_mm256_shuffle_epi8(table, (__m256i)nibbles);
}

#define Q_WIDEN_S8(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define Q_WIDEN_U8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define Q_NARROW(p, value) q_narrow(p, (__m256i)(value))
INLINE void q_narrow(void *to, __m256i value) {
  __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  _mm_storel_epi64((__m128i *)to, _mm_packs_epi16(half, half));
}

#include "engine/cpu/isa/quant.inc"

static bool supported(void) {
  return (*kernels_avx2).supported() && __builtin_cpu_supports("avxvnni");
}

static kernels_t table;
const kernels_t *const kernels_avxvnni = &table;

/* Runs before main, on every processor, so without AVX: the table is the avx2 one with the
 * quantised products replaced. */
__attribute__((constructor(1000), target("no-avx"))) static void fill(void) {
  table = *kernels_avx2;
  table.name = "avxvnni";
  table.supported = supported;
  table.quant_stage = quant_stage_row;
  table.quant_eighths = Q_X_EIGHTHS;
  table.gemm_quant = gemm_quant;
}
#else
const kernels_t *const kernels_avxvnni = NULL;
#endif
