/* kernels_avx512vnni.c: integer dot products of AVX-512 for quantised weights; the rest is the
 * avx512 tier.
 *
 * Owns the table kernels_avx512vnni (NULL on other architectures). Run by pool workers; see
 * kernels.h.
 */
#include "engine/cpu/isa/kernels.h"

#if defined(__x86_64__) && !defined(TIER_LEFT_OUT)
#include "engine/cpu/isa/quant_vnni.inc"

static bool supported(void) {
  return (*kernels_avx512).supported() && __builtin_cpu_supports("avx512vnni");
}

static kernels_t table;
const kernels_t *const kernels_avx512vnni = &table;

/* Runs before main, on every processor, so without AVX: the table is the avx512 one with the
 * quantised products replaced. */
__attribute__((constructor(1000), target("no-avx"))) static void fill(void) {
  table = *kernels_avx512;
  table.name = "avx512vnni";
  table.supported = supported;
  table.quant_stage = quant_stage_row;
  table.quant_eighths = Q_X_EIGHTHS;
  table.gemm_quant = gemm_quant;
}
#else
const kernels_t *const kernels_avx512vnni = NULL;
#endif
