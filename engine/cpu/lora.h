/* lora.h: low-rank adapters on the CPU; the contract of each function is in engine/device/ops.h.
 *
 * Engine thread. Adapters are made and set between steps; only cpu_lora_add belongs to a step.
 */
#ifndef INFERD_ENGINE_CPU_LORA_H
#define INFERD_ENGINE_CPU_LORA_H

#include "engine/device/ops.h"

int cpu_lora(device_t *device, int64_t rows, int64_t cols, int32_t slots, int32_t rank_max,
             lora_t **out, inferd_error_t *error);
void cpu_lora_set(device_t *device, lora_t *lora, int32_t slot, int32_t rank, const float *lora_a,
                  const float *lora_b);
void cpu_lora_add(device_t *device, act_t *out, const act_t *in, const lora_t *lora, int32_t column,
                  int32_t width);

#endif
