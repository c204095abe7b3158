/* kernels_neondot.c: quantised weights by the dot product of signed bytes (Armv8.2 dotprod);
 * the rest is the neon tier.
 *
 * Owns the table kernels_neondot (NULL on other architectures). Run by pool workers; see kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__aarch64__)
#include "engine/cpu/isa/quant_neon.inc"

static bool supported(void) {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static kernels_t table;
const kernels_t *const kernels_neondot = &table;

/* Runs before main: the table is the neon one with the quantised products replaced. */
__attribute__((constructor(1000))) static void fill(void) {
  table = *kernels_neon;
  table.name = "neondot";
  table.supported = supported;
  table.quant_stage = quant_stage_row;
  table.quant_eighths = Q_X_EIGHTHS;
  table.gemm_quant = gemm_quant;
}
#else
const kernels_t *const kernels_neondot = NULL;
#endif
