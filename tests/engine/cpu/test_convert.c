/* test_convert.c: fp32, bf16 and f16 conversions over every 16-bit pattern and the ties between. */
#include "engine/cpu/convert.h"
#include "tests/engine/cpu/helper.h"

#include <math.h>

Test(convert, every_16_bit_pattern_survives) {
  for (uint32_t u = 0; u < 65536; u++) {
    uint16_t h = (uint16_t)u;
    float b = float_from_bf16(h);
    if (isnan(b))
      cr_assert(isnan(float_from_bf16(bf16_from_float(b))));
    else
      cr_assert_eq(bf16_from_float(b), h, "bf16 %04x", u);
    float f = float_from_f16(h);
    bool special = (h >> 10 & 31) == 31;
    if (special && (h & 1023)) {
      cr_assert(isnan(f) && isnan(float_from_f16(f16_from_float(f))));
    } else {
      cr_assert_eq(f16_from_float(f), h, "f16 %04x", u);
      if (special)
        cr_assert(isinf(f));
      else
        cr_assert_eq(f, float_of_half(h), "f16 %04x is %g", u, f);
    }
  }
}

Test(convert, rounds_to_nearest_even) {
  random_state_t random = random_start(30);
  for (int i = 0; i < 2000000; i++) {
    float x = float_from_bits((uint32_t)random_next(&random));
    if (i % 4 == 0) x = ldexpf(random_float(&random), random_below(&random, 45) - 28);
    if (i % 8 == 1) x = float_from_bits((float_bits(x) & 0xffffe000u) | 0x1000u); /* ties of f16 */
    if (!isfinite(x)) continue;
    float b = float_from_bf16(bf16_from_float(x)), f = float_from_f16(f16_from_float(x));
    if (fabsf(x) < 3.3e38f)
      cr_assert_eq(b, round_to(x, DTYPE_BF16), "bf16 of %.9g is %.9g, seed %llu", x, b, SEED);
    if (fabsf(x) < 65520)
      cr_assert_eq(f, round_to(x, DTYPE_F16), "f16 of %.9g is %.9g, seed %llu", x, f, SEED);
    else
      cr_assert(isinf(f), "f16 of %.9g is %.9g", x, f);
  }
}
