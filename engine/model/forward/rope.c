/* rope.c: rotary frequencies of every supported scaling type. Pure functions, any thread. */
#include "engine/model/forward/rope.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586476925286766559;

/* NTK-aware scaling: a larger base instead of smaller positions. */
static double dynamic_theta(const rope_config_t *rope, int32_t max_model_len) {
  double trained = rope->original_max, runtime = fmax(max_model_len, trained);
  double stretch = rope->factor * runtime / trained - (rope->factor - 1.0);
  return rope->theta * pow(stretch, (double)rope->dims / (rope->dims - 2));
}

/* Llama 3.1: long waves are slowed down by `factor`, short ones kept, those between blended. */
static double llama3_frequency(const rope_config_t *rope, double frequency) {
  double wavelength = TWO_PI / frequency, original = rope->original_max;
  double low = rope->low_freq_factor, high = rope->high_freq_factor;
  if (wavelength < original / high) return frequency;
  if (wavelength > original / low) return frequency / rope->factor;
  double blend = high > low ? (original / wavelength - low) / (high - low) : 0.0;
  return (1.0 - blend) * frequency / rope->factor + blend * frequency;
}

/* The dimension that turns `rotations` times over the trained context. */
static double yarn_dimension(const rope_config_t *rope, double rotations) {
  return rope->dims * log(rope->original_max / (rotations * TWO_PI)) / (2.0 * log(rope->theta));
}

/* YaRN (Peng et al. 2023, section 3.2): interpolate slow dimensions, keep fast ones. */
static void yarn_frequencies(const rope_config_t *rope, double *inv_freq) {
  double low = yarn_dimension(rope, rope->beta_fast), high = yarn_dimension(rope, rope->beta_slow);
  if (rope->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = fmax(low, 0.0);
  high = fmin(high, rope->dims - 1);
  if (low == high) high += 0.001;
  for (int32_t i = 0; i < rope->dims / 2; i++) {
    double ramp = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
    inv_freq[i] = inv_freq[i] / rope->factor * ramp + inv_freq[i] * (1.0 - ramp);
  }
}

void rope_frequencies(const rope_config_t *rope, int32_t max_model_len, double *inv_freq,
                      double *scale) {
  int32_t half = rope->dims / 2;
  double theta = rope->type == ROPE_DYNAMIC ? dynamic_theta(rope, max_model_len) : rope->theta;
  *scale = 1.0;
  for (int32_t i = 0; i < half; i++) inv_freq[i] = pow(theta, -2.0 * i / rope->dims);
  if (rope->type == ROPE_PROPORTIONAL) {
    for (int32_t i = 0; i < half; i++)
      inv_freq[i] = i < rope->moving / 2 ? inv_freq[i] / rope->factor : 0.0;
  } else if (rope->type == ROPE_LINEAR) {
    for (int32_t i = 0; i < half; i++) inv_freq[i] /= rope->factor;
  } else if (rope->type == ROPE_LLAMA3) {
    for (int32_t i = 0; i < half; i++) inv_freq[i] = llama3_frequency(rope, inv_freq[i]);
  } else if (rope->type == ROPE_LONGROPE) {
    bool longer = max_model_len > rope->original_max;
    const float *factors = longer ? rope->long_factor : rope->short_factor;
    for (int32_t i = 0; i < half; i++) inv_freq[i] /= factors[i];
    *scale = longer ? rope->long_scale : rope->short_scale;
  } else if (rope->type == ROPE_YARN) {
    yarn_frequencies(rope, inv_freq);
    bool derive = rope->attention_factor == 0.0 && rope->factor > 1.0;
    *scale = derive ? 0.1 * log(rope->factor) + 1.0
                    : (rope->attention_factor != 0.0 ? rope->attention_factor : 1.0);
  }
  for (int32_t i = 0; i < half && rope->reversed; i++) inv_freq[i] = -inv_freq[i];
}

void rope_axes(const rope_config_t *rope, uint8_t *axes) {
  const int32_t *sections = rope->sections;
  for (int32_t i = 0; i < rope->dims / 2; i++) {
    if (rope->mrope == MROPE_INTERLEAVED)
      axes[i] = (uint8_t)(i < 3 * sections[i % 3] ? i % 3 : 0);
    else
      axes[i] = (uint8_t)((i >= sections[0]) + (i >= sections[0] + sections[1]));
  }
}
