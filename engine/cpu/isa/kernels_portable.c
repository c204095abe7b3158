/* kernels_portable.c: the tier that every machine has, on 16-byte vectors of the compiler.
 *
 * Owns the table kernels_portable (NULL in a first build that has a better one). Products and sums
 * are rounded separately (no FMA is assumed), so its bits differ from the other tiers'. Run by pool
 * workers; see kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if !defined(TIER_LEFT_OUT)
/* vector.inc says what these sizes are. */
enum { VW = 4, TILE_ROWS = 4, VALUE_VECS = 2, SCORE_SEGMENTS = 1 };
#define TILE_VECS(rows) ((rows) == 1 ? 8 : (rows) <= 2 ? 4 : 2)

#include "engine/cpu/isa/vector.inc"

static inline vf vf_fma(vf left, vf right, vf addend) {
  return left * right + addend;
}
static inline vf vf_max(vf left, vf right) {
  return vf_select(left > right, left, right);
}
static inline vf vf_min(vf left, vf right) {
  return vf_select(left < right, left, right);
}

/* Bias of the exponent corrected by a product, as in convert.h. */
static inline vf vf_load_f16(const uint16_t *from) {
  vu h = vu_load_u16(from);
  vu magnitude = (h & 0x7fff) << 13;
  vu u = (vu)((vf)magnitude * 0x1p112f);
  vu special = (vu)(magnitude >= 0x0f800000);
  u = (special & (magnitude | 0x7f800000)) | (~special & u);
  return (vf)(u | (h & 0x8000) << 16);
}

#include "engine/cpu/isa/math.inc"

#include "engine/cpu/isa/gemm.inc"

#include "engine/cpu/isa/quant_plain.inc"

#include "engine/cpu/isa/attention.inc"

#include "engine/cpu/isa/state.inc"

static bool supported(void) {
  return true;
}

static const kernels_t table = {KERNELS_COMMON("portable")};
const kernels_t *const kernels_portable = &table;
#else
const kernels_t *const kernels_portable = NULL;
#endif
