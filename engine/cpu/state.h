/* state.h: the states of sequences on the CPU: slots, and operations of the layers that have them.
 *
 * Engine thread only.
 */
#ifndef INFERD_ENGINE_CPU_STATE_H
#define INFERD_ENGINE_CPU_STATE_H

#include "engine/cpu/cpu.h"

extern const state_ops_t cpu_state_ops;

/* Runs the copies of the batch, in their order. */
void state_copy_slots(device_t *device, const batch_t *batch);

#endif
