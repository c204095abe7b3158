/* quant_amx.h: products with quantised weights on AMX tiles, for kernels_amx.c.
 *
 * Any pool worker; see gemm_quant in kernels.h.
 */
#ifndef INFERD_ENGINE_CPU_ISA_QUANT_AMX_H
#define INFERD_ENGINE_CPU_ISA_QUANT_AMX_H

#include "engine/cpu/isa/kernels.h"

void gemm_quant_amx(const gemm_t *gemm);

#endif
