/* kernels_neoni8mm.c: quantised weights by the dot product of unsigned and signed bytes (Armv8.6
 * i8mm); the rest is the neon tier.
 *
 * Owns the table kernels_neoni8mm (NULL on other architectures). Run by pool workers; see
 * kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__aarch64__)
#define Q_MIXED_SIGNS 1
#include "engine/cpu/isa/quant_neon.inc"

static bool supported(void) {
  return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

static kernels_t table;
const kernels_t *const kernels_neoni8mm = &table;

/* Runs before main: the table is the neon one with the quantised products replaced. */
__attribute__((constructor(1000))) static void fill(void) {
  table = *kernels_neon;
  table.name = "neoni8mm";
  table.supported = supported;
  table.quant_stage = quant_stage_row;
  table.quant_eighths = Q_X_EIGHTHS;
  table.gemm_quant = gemm_quant;
}
#else
const kernels_t *const kernels_neoni8mm = NULL;
#endif
