/* probe.h: what is measured at start because processors differ in it.
 *
 * Engine thread, while a model loads and a device is prepared.
 */
#ifndef INFERD_ENGINE_CPU_PROBE_H
#define INFERD_ENGINE_CPU_PROBE_H

#include "engine/cpu/cpu.h"

/* Remembers the largest weight of a kind: products with it are measured. */
void probe_note(device_t *device, const weight_t *weight);
/* Sets device->ahead; without a weight of a kind it stays as it is. The workspaces are there. */
void probe_products(device_t *device);

#endif
