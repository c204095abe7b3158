/* value_ops.h: the part of the back end interface that bounds values, or changes them by positions.
 *
 * A back end has all functions or none (ops_t.values is NULL). One that has them also takes
 * attention_t.slopes, distances and num_entries, and ROUTING_MIXER. The promises are those of
 * ops.h.
 */
#ifndef INFERD_ENGINE_DEVICE_VALUE_OPS_H
#define INFERD_ENGINE_DEVICE_VALUE_OPS_H

#include "engine/device/op_types.h"

struct device;

/* Queries of Ministral 3: times 1 + beta ln(1 + floor(position / from)). */
typedef struct growth {
  float beta;
  int32_t from;          /* positions below it do not grow */
  int32_t width, stride; /* the first `width` columns of rows of `stride` */
} growth_t;

/* xIELU (Huang and Schlag 2024), with numbers of one layer, each a vector of 1:
 *   x > 0: softplus(above) x^2 + beta x
 *   else:  (beta + softplus(below)) (exp(min(x, eps)) - 1 - x) + beta x */
typedef struct xielu {
  const vector_t *above, *below, *beta, *eps;
} xielu_t;

typedef struct value_ops {
  /* x[rows, width]: values below -limit become -limit, those above limit become limit. */
  void (*clamp)(struct device *device, act_t *x, float limit, int32_t width, int32_t rows);
  /* x[rows, width] */
  void (*xielu)(struct device *device, act_t *x, const xielu_t *xielu, int32_t width, int32_t rows);
  /* x[T, stride] */
  void (*grow)(struct device *device, act_t *x, const growth_t *growth);
} value_ops_t;

#endif
