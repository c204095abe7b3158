/* lora.h: adapters on the CPU; the contract of each function is in engine/device/lora_ops.h.
 *
 * Engine thread. Adapters are made and set between steps.
 */
#ifndef INFERD_ENGINE_CPU_LORA_H
#define INFERD_ENGINE_CPU_LORA_H

#include "engine/device/ops.h"

extern const lora_ops_t cpu_lora_ops;
int lora_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */

#endif
