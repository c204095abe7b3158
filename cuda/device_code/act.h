/* act.h: the activation functions of the feed-forward layers, one element at a time.
 *
 * Device functions. GELU: Hendrycks and Gimpel 2016, erf and tanh forms; SiLU gate: Shazeer 2020.
 * All numbers are fp32. Every kernel calls its activation function from here, so that fused and
 * separate kernels give the same bits.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_ACT_H
#define INFERD_CUDA_DEVICE_CODE_ACT_H

#include "cuda/device_code/gpu.h"
#include "cuda/device_code/kernel_types.h"

template <gpu_activation_t KIND> GPU_FN float act(float value) {
  if (KIND == GPU_RELU) return value < 0.0f ? 0.0f : value;
  if (KIND == GPU_RELU2) return value < 0.0f ? 0.0f : mul_rn(value, value);
  if (KIND == GPU_GELU) return 0.5f * value * (1.0f + erff(value * 0.707106781f));
  if (KIND == GPU_SILU_MUL) return value / (1.0f + expf(-value));
  return 0.5f * value * (1.0f + tanhf(0.797884561f * (value + 0.044715f * value * value * value)));
}

/* Returns true if a row of inputs is the gate columns and then the up columns. */
GPU_BOTH_FN bool activation_gated(gpu_activation_t kind) {
  return kind == GPU_SILU_MUL || kind == GPU_GELU_TANH_MUL || kind == GPU_CLAMPED_SWIGLU;
}

/* gpt-oss: (u + 1) g sigmoid(1.702 g) with g <= 7 and u in -7..7; NaN passes. */
GPU_FN float clamped_swiglu(float gate, float up) {
  gate = gate > 7.0f ? 7.0f : gate;
  up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return mul_rn(up + 1.0f, gate / (1.0f + expf(mul_rn(gate, -1.702f))));
}

/* Returns act(value), multiplied by `up` for the MUL kinds. */
GPU_FN float activate_one(gpu_activation_t kind, float value, float up) {
  switch (kind) {
  case GPU_RELU: return act<GPU_RELU>(value);
  case GPU_RELU2: return act<GPU_RELU2>(value);
  case GPU_GELU: return act<GPU_GELU>(value);
  case GPU_GELU_TANH: return act<GPU_GELU_TANH>(value);
  case GPU_SILU_MUL: return mul_rn(act<GPU_SILU_MUL>(value), up);
  case GPU_GELU_TANH_MUL: return mul_rn(act<GPU_GELU_TANH_MUL>(value), up);
  case GPU_CLAMPED_SWIGLU: return clamped_swiglu(value, up);
  }
  return value;
}

#endif
