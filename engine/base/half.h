/* half.h: scalar conversions between fp32, bf16 and f16, which round to nearest even.
 *
 * Defined for every bit pattern; a NaN stays a (quiet) NaN. For code that converts single elements:
 * loading, packing, embedding rows, K/V stores. Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_BASE_HALF_H
#define INFERD_ENGINE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value) {
  uint32_t u;
  memcpy(&u, &value, sizeof u);
  return u;
}

static inline float float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float float_from_bf16(uint16_t half) {
  return float_from_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_from_float(float value) {
  uint32_t u = float_bits(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Shifts the 15 magnitude bits to their place in a float; the multiplication by 2^112 corrects the
 * exponent bias, and turns f16 subnormals into normal floats. */
static inline float float_from_f16(uint16_t half) {
  uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
  uint32_t u = float_bits(float_from_bits(magnitude) * 0x1p112f);
  if (magnitude >= 0x0f800000u) u = magnitude | 0x7f800000u; /* infinity, NaN */
  return float_from_bits(u | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t f16_from_float(float value) {
  uint32_t u = float_bits(value);
  uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
  if (u < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in place */
    uint32_t sum = float_bits(float_from_bits(u) + 0.5f);
    return (uint16_t)(sign | (sum - 0x3f000000u));
  }
  uint32_t rounded = u + 0xfffu + (u >> 13 & 1u) - 0x38000000u;
  return (uint16_t)(sign | rounded >> 13);
}

/* e4m3 of OCP OFP8: a sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity, 0x7f and 0xff
 * are NaN. Shifted to its place in a float, the magnitude is 2^-120 times too small. */
static inline float float_from_e4m3(uint8_t bits) {
  uint32_t magnitude = (uint32_t)(bits & 0x7f) << 20;
  uint32_t u = float_bits(float_from_bits(magnitude) * 0x1p120f);
  if (magnitude == 0x07f00000u) u = 0x7fc00000u;
  return float_from_bits(u | (uint32_t)(bits & 0x80) << 24);
}

#endif
