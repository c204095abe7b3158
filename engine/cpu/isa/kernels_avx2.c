/* kernels_avx2.c: AVX2, FMA and F16C; 16 registers of 8 floats.
 *
 * Owns the table kernels_avx2 (NULL on other architectures). Run by pool workers; see kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include <immintrin.h>

/* vector.inc says what these sizes are. */
#define TILE_ROWS_6 1
enum { VW = 8, TILE_ROWS = 6, VALUE_VECS = 2, SCORE_SEGMENTS = 1 };
#define TILE_VECS(rows) ((rows) == 1 ? 8 : (rows) <= 3 ? 4 : 2)

#define WIDEN_U16(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#include "engine/cpu/isa/vector.inc"

static inline vf vf_fma(vf left, vf right, vf addend) {
  return (vf)_mm256_fmadd_ps(left, right, addend);
}
/* When either is NaN both return the second operand. */
static inline vf vf_max(vf left, vf right) {
  return (vf)_mm256_max_ps(left, right);
}
static inline vf vf_min(vf left, vf right) {
  return (vf)_mm256_min_ps(left, right);
}
static inline vf vf_load_f16(const uint16_t *from) {
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

#include "engine/cpu/isa/math.inc"

#include "engine/cpu/isa/gemm.inc"

/* Even and odd codes as 16-bit numbers, two of which make a product: nothing can saturate. */
#define Q_X_WIDE 1
typedef struct q_pairs {
  vi even, odd;
} q_x_t;
typedef __m256i q_table_t;
INLINE q_x_t q_broadcast(const uint8_t *row, int64_t depth, int64_t at) {
  int32_t words[2];
  memcpy(words, quant_x_pairs(row, depth) + at, sizeof words);
  return (q_x_t){(vi)_mm256_set1_epi32(words[0]), (vi)_mm256_set1_epi32(words[1])};
}
INLINE vi q_dot(vi sum, vu codes, q_x_t left) {
  __m256i even = (__m256i)(codes & 0x00ff00ff), odd = _mm256_srli_epi16((__m256i)codes, 8);
  sum += (vi)_mm256_madd_epi16(even, (__m256i)left.even);
  return sum + (vi)_mm256_madd_epi16(odd, (__m256i)left.odd);
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

#include "engine/cpu/isa/attention.inc"

#include "engine/cpu/isa/state.inc"

static bool supported(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

static const kernels_t table = {KERNELS_COMMON("avx2")};
const kernels_t *const kernels_avx2 = &table;
#else
const kernels_t *const kernels_avx2 = NULL;
#endif
