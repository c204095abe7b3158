/* naive_numbers.h: element types and activations by definition, apart from the engine's own code.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_NAIVE_NUMBERS_H
#define INFERD_TESTS_ENGINE_MODEL_NAIVE_NUMBERS_H

#include "engine/device/ops.h"

#include <math.h>
#include <string.h>

/* Element `i` of a row of `dtype`; halves by their definition: sign, exponent, fraction. */
static inline float naive_load(const void *row, dtype_t dtype, int64_t i) {
  if (dtype == DTYPE_F32) {
    float value;
    memcpy(&value, (const char *)row + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  memcpy(&bits, (const char *)row + 2 * i, 2);
  double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (dtype == DTYPE_BF16) {
    int exponent = bits >> 7 & 0xff, fraction = bits & 0x7f;
    if (exponent == 0) return (float)(sign * ldexp(fraction, -126 - 7));
    return (float)(sign * ldexp(128 + fraction, exponent - 127 - 7));
  }
  int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) return (float)(sign * ldexp(fraction, -14 - 10));
  return (float)(sign * ldexp(1024 + fraction, exponent - 15 - 10));
}

static inline double naive_activate(activation_t kind, double x) {
  switch (kind) {
  case ACTIVATION_RELU: return x > 0 ? x : 0;
  case ACTIVATION_RELU2: return x > 0 ? x * x : 0;
  case ACTIVATION_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
  case ACTIVATION_SILU_MUL: return x / (1 + exp(-x));
  case ACTIVATION_CLAMPED_SWIGLU: x = fmin(x, 7); return x / (1 + exp(-1.702 * x));
  default: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  }
}

/* Of the gated activations. */
static inline double naive_gate(activation_t kind, double gate, double up) {
  if (kind == ACTIVATION_CLAMPED_SWIGLU) up = fmax(fmin(up, 7), -7) + 1;
  return naive_activate(kind, gate) * up;
}

#endif
