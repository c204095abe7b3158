/* kernels_neon.c: the NEON tier (aarch64 Advanced SIMD, 32 registers of 4 floats).
 *
 * Owns the table kernels_neon, which is NULL on other architectures. It defines the tile sizes and
 * the few vector operations that differ between tiers; the kernels come from the .inc files that
 * all tiers share. Pool workers run them; kernels.h is the contract.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

/* vector.inc says what these sizes are. */
#define TILE_ROWS_6 1
enum { VW = 4, TILE_ROWS = 6, VALUE_VECS = 4, SCORE_SEGMENTS = 1 };
#define TILE_VECS(rows) ((rows) == 1 ? 16 : (rows) <= 3 ? 8 : 4)

#include "engine/cpu/isa/vector.inc"

/* Returns left * right + addend with one rounding. */
static inline vf vf_fma(vf left, vf right, vf addend) {
  return (vf)vfmaq_f32((float32x4_t)addend, (float32x4_t)left, (float32x4_t)right);
}
/* In each lane where an operand is NaN, vf_max and vf_min return NaN. */
static inline vf vf_max(vf left, vf right) {
  return (vf)vmaxq_f32((float32x4_t)left, (float32x4_t)right);
}
static inline vf vf_min(vf left, vf right) {
  return (vf)vminq_f32((float32x4_t)left, (float32x4_t)right);
}
/* Widens VW half floats to fp32. */
static inline vf vf_load_f16(const uint16_t *from) {
  return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

#include "engine/cpu/isa/math.inc"

#include "engine/cpu/isa/gemm.inc"

#include "engine/cpu/isa/quant_plain.inc"

#include "engine/cpu/isa/attention.inc"

#include "engine/cpu/isa/state.inc"

/* Every aarch64 CPU that inferd runs on has Advanced SIMD. */
static bool supported(void) {
  return true;
}

static const kernels_t table = {KERNELS_COMMON("neon")};
const kernels_t *const kernels_neon = &table;
#else
const kernels_t *const kernels_neon = NULL;
#endif
