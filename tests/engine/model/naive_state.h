/* naive_state.h: layers with a state in plain loops, for naive_ops.c. */
#ifndef INFERD_TESTS_ENGINE_MODEL_NAIVE_STATE_H
#define INFERD_TESTS_ENGINE_MODEL_NAIVE_STATE_H

#include "engine/device/ops.h"

extern const state_ops_t naive_state_ops;

/* naive_ops.c: memory that the device frees, the batch of the step, the numbers of a vector. */
void *naive_take(device_t *device, size_t bytes);
const batch_t *naive_batch(const device_t *device);
const float *naive_values(const vector_t *vector);

#endif
