/* act.h: activations of a back end whose activations are fp32 in host memory: the one place where
 * act_t, which is opaque, and float meet.
 */
#ifndef INFERD_ENGINE_CPU_ACT_H
#define INFERD_ENGINE_CPU_ACT_H

#include "engine/device/ops.h"

static inline float *act_floats(act_t *act) {
  return (float *)(void *)act;
}
static inline const float *act_floats_const(const act_t *act) {
  return (const float *)(const void *)act;
}
static inline act_t *act_of_floats(float *values) {
  return (act_t *)(void *)values;
}
static inline const act_t *act_of_floats_const(const float *values) {
  return (const act_t *)(const void *)values;
}

/* The values behind an activation, and the activation that values are; const stays const. */
#define FLOATS(act) _Generic((act), act_t * : act_floats, const act_t * : act_floats_const)(act)
#define ACT(values)                                                                                \
  _Generic((values), float * : act_of_floats, const float * : act_of_floats_const)(values)

#endif
