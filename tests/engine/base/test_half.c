/* test_half.c: fp32, bf16 and f16 over every 16-bit pattern, and rounding between each two. */
#include "engine/base/half.h"
#include "tests/expect.h"

#include <math.h>

/* The value of a finite pattern by the definition of its format. */
static float defined(uint16_t bits, int mantissa_bits, int bias) {
  int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent != 0) mantissa += 1 << mantissa_bits;
  float magnitude = ldexpf((float)mantissa, (exponent ? exponent : 1) - bias - mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

Test(half, every_pattern_of_f16) {
  for (uint32_t i = 0; i < 65536; i++) {
    uint16_t half = (uint16_t)i, magnitude = half & 0x7fff;
    float value = float_from_f16(half);
    if (magnitude > 0x7c00) {
      cr_assert(isnan(value) && isnan(float_from_f16(f16_from_float(value))), "%04x", i);
      continue;
    }
    float expected =
        magnitude == 0x7c00 ? (half & 0x8000 ? -INFINITY : INFINITY) : defined(half, 10, 15);
    ASSERT_EQ_FOR(float_bits(value), float_bits(expected), "%04x is %g", i, (double)value);
    ASSERT_EQ_FOR(f16_from_float(value), half, "%04x", i);
  }
}

Test(half, every_pattern_of_bf16) {
  for (uint32_t i = 0; i < 65536; i++) {
    uint16_t half = (uint16_t)i, magnitude = half & 0x7fff;
    float value = float_from_bf16(half);
    if (magnitude > 0x7f80) {
      cr_assert(isnan(value) && isnan(float_from_bf16(bf16_from_float(value))), "%04x", i);
      continue;
    }
    float expected =
        magnitude == 0x7f80 ? (half & 0x8000 ? -INFINITY : INFINITY) : defined(half, 7, 127);
    ASSERT_EQ_FOR(float_bits(value), float_bits(expected), "%04x is %g", i, (double)value);
    ASSERT_EQ_FOR(bf16_from_float(value), half, "%04x", i);
  }
}

/* Between two neighbours the nearer one wins, and the even one in the middle. `top` is the pattern
 * of infinity: above the middle between the largest finite one and the next there would be, it
 * wins. */
static void check_rounding(uint16_t (*narrow)(float), float (*widen)(uint16_t), uint16_t top) {
  for (uint32_t i = 0; i < top; i++) {
    double low = (double)widen((uint16_t)i), high = (double)widen((uint16_t)(i + 1));
    if (i + 1U == top) high = 2 * low - (double)widen((uint16_t)(i - 1));
    float middle = (float)((low + high) / 2);
    uint16_t even = (uint16_t)(i & 1 ? i + 1 : i);
    ASSERT_EQ_FOR(narrow(middle), even, "%04x", i);
    ASSERT_EQ_FOR(narrow(nextafterf(middle, 0)), i, "%04x", i);
    ASSERT_EQ_FOR(narrow(nextafterf(middle, INFINITY)), i + 1, "%04x", i);
    ASSERT_EQ_FOR(narrow(-middle), even | 0x8000, "%04x", i);
  }
}

Test(half, rounds_to_nearest_even) {
  check_rounding(f16_from_float, float_from_f16, 0x7c00);
  check_rounding(bf16_from_float, float_from_bf16, 0x7f80);
  ASSERT_EQ(f16_from_float(65519.0F), 0x7bff);
  ASSERT_EQ(f16_from_float(65520.0F), 0x7c00);
  ASSERT_EQ(bf16_from_float(1.00390625F), 0x3f80); /* tie, down to even */
  ASSERT_EQ(bf16_from_float(1.01171875F), 0x3f82); /* tie, up to even */
}
