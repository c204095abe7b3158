/* kernels_avx512.c: AVX-512 F, BW, VL and DQ; 32 registers of 16 floats.
 *
 * Owns the table kernels_avx512 (NULL on other architectures). Run by pool workers; see kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include <immintrin.h>

/* vector.inc says what these sizes are. */
#define TILE_ROWS_6 1
enum { VW = 16, TILE_ROWS = 6, VALUE_VECS = 4, SCORE_SEGMENTS = 4 };
#define TILE_VECS(rows) 4

#define WIDEN_U16(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#include "engine/cpu/isa/vector.inc"

static inline vf vf_fma(vf left, vf right, vf addend) {
  return (vf)_mm512_fmadd_ps(left, right, addend);
}
/* When either is NaN both return the second operand. */
static inline vf vf_max(vf left, vf right) {
  return (vf)_mm512_max_ps(left, right);
}
static inline vf vf_min(vf left, vf right) {
  return (vf)_mm512_min_ps(left, right);
}
static inline vf vf_load_f16(const uint16_t *from) {
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

/* A byte holds two values of a column. 16 bytes become 32 lanes of 16 bits, each an index into the
 * table of the 16 codes. The exponent is added to values other than zero. */
static inline void mxfp4_pairs(uint16_t *out, const mxfp4_group_t *groups, int64_t count) {
  const __m512i table = _mm512_castsi256_si512(_mm256_setr_epi16(
      0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, (short)0x8000, (short)0xbf00,
      (short)0xbf80, (short)0xbfc0, (short)0xc000, (short)0xc040, (short)0xc080, (short)0xc0c0));
  const __m512i nibble = _mm512_set1_epi32(0x000f000f), magnitude = _mm512_set1_epi16(0x7fff);
  for (int64_t g = 0; g < count; g++) {
    __m512i shift[PANEL_COLS / VW];
    for (int v = 0; v < PANEL_COLS / VW; v++) {
      __m512i e = _mm512_cvtepu8_epi32(
          _mm_loadu_si128((const __m128i *)(const void *)(groups[g].exponent + v * VW)));
      e = _mm512_slli_epi16(_mm512_sub_epi16(e, _mm512_set1_epi32(127)), 7);
      shift[v] =
          _mm512_or_si512(_mm512_and_si512(e, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(e, 16));
    }
    for (int k = 0; k < MXFP4_COLS / 2; k++, out += 2 * PANEL_COLS) {
      for (int v = 0; v < PANEL_COLS / VW; v++) {
        __m512i b = _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)(groups[g].nibbles[k] + v * VW)));
        b = _mm512_and_si512(_mm512_or_si512(b, _mm512_slli_epi32(b, 12)), nibble);
        __m512i x = _mm512_permutexvar_epi16(b, table);
        x = _mm512_mask_add_epi16(x, _mm512_test_epi16_mask(x, magnitude), x, shift[v]);
        _mm512_storeu_si512(out + 2 * v * VW, x);
      }
    }
  }
}
#define MXFP4_PAIRS mxfp4_pairs

#include "engine/cpu/isa/math.inc"

#include "engine/cpu/isa/gemm.inc"

/* Even and odd codes as 16-bit numbers, two of which make a product: nothing can saturate. */
#define Q_X_WIDE 1
typedef struct q_pairs {
  vi even, odd;
} q_x_t;
typedef __m512i q_table_t;
INLINE q_x_t q_broadcast(const uint8_t *row, int64_t depth, int64_t at) {
  int32_t words[2];
  memcpy(words, quant_x_pairs(row, depth) + at, sizeof words);
  return (q_x_t){(vi)_mm512_set1_epi32(words[0]), (vi)_mm512_set1_epi32(words[1])};
}
INLINE vi q_dot(vi sum, vu codes, q_x_t left) {
  __m512i even = (__m512i)(codes & 0x00ff00ff), odd = _mm512_srli_epi16((__m512i)codes, 8);
  sum += (vi)_mm512_madd_epi16(even, (__m512i)left.even);
  return sum + (vi)_mm512_madd_epi16(odd, (__m512i)left.odd);
}
INLINE q_table_t q_table(const uint8_t *table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
}
INLINE vu q_lookup(vu nibbles, q_table_t table) {
  return (vu)_mm512_shuffle_epi8(table, (__m512i)nibbles);
}

#define Q_SUM(value) _mm512_reduce_add_epi32((__m512i)(value))
#define Q_HIGHEST(value) _mm512_reduce_max_epi32((__m512i)(value))
#define Q_WIDEN_S8(p) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define Q_WIDEN_U8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define Q_NARROW(p, value)                                                                         \
  _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(value)))

#include "engine/cpu/isa/quant.inc"

#include "engine/cpu/isa/attention.inc"

#include "engine/cpu/isa/state.inc"

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
