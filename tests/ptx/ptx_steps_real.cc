/* ptx_steps_real.cc: the instructions on floating-point numbers.
 *
 * Rounded as their names say. The approximate ones (ex2, rcp) are the exact functions here, rounded
 * once, as in the emulator; where a name has .ftz, numbers below the normal ones become 0.
 */
#include "ptx_steps.h"
#include <fenv.h>
#include <limits>
#include <math.h>

namespace ptx {

static float flushed(float a) {
  return fabsf(a) < 0x1p-126f ? copysignf(0.0f, a) : a;
}
static float clamped(float a) {
  return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; /* NaN becomes 0 */
}

/* -0 is less than +0; a NaN gives way to a number. */
template <class T> static T least(T a, T b) {
  if (std::isnan(a)) return b;
  if (a == b) return std::signbit(a) ? a : b;
  return b < a ? b : a;
}
template <class T> static T most(T a, T b) {
  if (std::isnan(a)) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return b > a ? b : a;
}

static float add_to_zero(float a, float b) {
  volatile float x = a, y = b;
  fesetround(FE_TOWARDZERO);
  volatile float sum = x + y;
  fesetround(FE_TONEAREST);
  return sum;
}

static float fma_down(float a, float b, float c) {
  volatile float x = a, y = b, z = c;
  fesetround(FE_DOWNWARD);
  volatile float sum = fmaf(x, y, z);
  fesetround(FE_TONEAREST);
  return sum;
}

/* To the nearest whole number in range; a NaN is 0. */
template <class To, class From> static To whole(From rounded) {
  const From low = (From)std::numeric_limits<To>::min();
  const From end = (From)std::numeric_limits<To>::max(); /* rounded up where it does not fit */
  if (std::isnan(rounded)) return 0;
  if (rounded <= low) return std::numeric_limits<To>::min();
  if (rounded >= end) return std::numeric_limits<To>::max();
  return (To)rounded;
}

/* The upper word of the reciprocal, as nvcc's divisions begin. */
static double reciprocal_start(double a) {
  uint64_t bits = emu::bit_cast<uint64_t>(1.0 / a);
  return emu::bit_cast<double>(bits & 0xffffffff00000000u);
}

template <class Half> static uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out = 0;
  for (int at = 0; at < 32; at += 16) {
    const float x = Half::value(a >> at), y = Half::value(b >> at), z = Half::value(c >> at);
    const double exact = (double)x * y + z; /* 22 bits, and a 16-bit number: rounded by to_odd */
    out |= (uint32_t)Half::bits(exact) << at;
  }
  return out;
}

/* A double as a float whose last bit says that something was lost, for a second rounding. */
static float to_odd(double exact) {
  float near = (float)exact;
  if ((double)near == exact || !std::isfinite(near)) return near;
  uint32_t bits = emu::bit_cast<uint32_t>(near);
  if (fabs((double)near) > fabs(exact)) bits--;
  return emu::bit_cast<float>(bits | 1);
}
struct BrainHalf {
  static float value(uint32_t bits) { return emu::bf16_bits_to_float((uint16_t)bits); }
  static uint16_t bits(double exact) { return emu::float_to_bf16_bits(to_odd(exact)); }
};
struct Half {
  static float value(uint32_t bits) { return emu::half_bits_to_float((uint16_t)bits); }
  static uint16_t bits(double exact) { return emu::float_to_half_bits(to_odd(exact)); }
};

/* Two e4m3 numbers, each a sign, four bits of exponent and three of mantissa, as halves. */
static uint32_t halves_of_e4m3(uint32_t two) {
  uint32_t out = 0;
  for (int at = 0; at < 2; at++) {
    const int b = two >> 8 * at & 0xff, exponent = b >> 3 & 15, mantissa = b & 7;
    const double size = exponent > 0 ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    const uint16_t half = (b & 0x7f) == 0x7f ? 0x7fff : emu::float_to_half_bits((float)size);
    out |= (uint32_t)(half | (b & 0x80) << 8) << 16 * at;
  }
  return out;
}

#define PTX_REAL(type, letters, T)                                                                 \
  PTX_2("add." type, letters, T, T, a + b), PTX_2("add.rn." type, letters, T, T, a + b),           \
      PTX_2("sub." type, letters, T, T, a - b), PTX_2("sub.rn." type, letters, T, T, a - b),       \
      PTX_2("mul." type, letters, T, T, a *b), PTX_2("mul.rn." type, letters, T, T, a *b),         \
      PTX_2("div.rn." type, letters, T, T, a / b), PTX_2("min." type, letters, T, T, least(a, b)), \
      PTX_2("max." type, letters, T, T, most(a, b)),                                               \
      PTX_2("copysign." type, letters, T, T, std::copysign(b, a))
#define PTX_REAL_1(type, letters, T)                                                               \
  PTX_1("abs." type, letters, T, T, std::fabs(a)), PTX_1("neg." type, letters, T, T, -a),          \
      PTX_1("sqrt.rn." type, letters, T, T, std::sqrt(a)),                                         \
      PTX_1("rcp.rn." type, letters, T, T, (T)1 / a),                                              \
      PTX_1("cvt.rni." type "." type, letters, T, T, std::nearbyint(a)),                           \
      PTX_1("cvt.rpi." type "." type, letters, T, T, std::ceil(a)),                                \
      PTX_1("cvt.rmi." type "." type, letters, T, T, std::floor(a)),                               \
      PTX_1("cvt.rzi." type "." type, letters, T, T, std::trunc(a))
/* Ordered comparisons, and those that hold with a NaN. */
#define PTX_REAL_ORDER(type, letters, T)                                                           \
  PTX_2("setp.eq." type, letters, uint32_t, T, a == b),                                            \
      PTX_2("setp.ne." type, letters, uint32_t, T, a<b || a> b),                                   \
      PTX_2("setp.lt." type, letters, uint32_t, T, a < b),                                         \
      PTX_2("setp.le." type, letters, uint32_t, T, a <= b),                                        \
      PTX_2("setp.gt." type, letters, uint32_t, T, a > b),                                         \
      PTX_2("setp.ge." type, letters, uint32_t, T, a >= b),                                        \
      PTX_2("setp.equ." type, letters, uint32_t, T, !(a < b || a > b)),                            \
      PTX_2("setp.neu." type, letters, uint32_t, T, a != b),                                       \
      PTX_2("setp.ltu." type, letters, uint32_t, T, !(a >= b)),                                    \
      PTX_2("setp.leu." type, letters, uint32_t, T, !(a > b)),                                     \
      PTX_2("setp.gtu." type, letters, uint32_t, T, !(a <= b)),                                    \
      PTX_2("setp.geu." type, letters, uint32_t, T, !(a < b)),                                     \
      PTX_2("setp.num." type, letters, uint32_t, T, !std::isnan(a) && !std::isnan(b)),             \
      PTX_2("setp.nan." type, letters, uint32_t, T, std::isnan(a) || std::isnan(b))

static const Rule rules[] = {
    PTX_REAL("f32", "wWW", float),
    PTX_REAL("f64", "dDD", double),
    PTX_REAL_1("f32", "wW", float),
    PTX_REAL_1("f64", "dD", double),
    PTX_REAL_ORDER("f32", "pWW", float),
    PTX_REAL_ORDER("f64", "pDD", double),
    PTX_2("add.rz.f32", "wWW", float, float, add_to_zero(a, b)),
    PTX_3("fma.rn.f32", "wWWW", float, float, fmaf(a, b, c)),
    PTX_3("fma.rn.f64", "dDDD", double, double, fma(a, b, c)),
    PTX_3("fma.rm.f32", "wWWW", float, float, fma_down(a, b, c)),
    PTX_3("fma.rn.bf16x2", "wWWW", uint32_t, uint32_t, fma_pair<BrainHalf>(a, b, c)),
    PTX_3("fma.rn.f16x2", "wWWW", uint32_t, uint32_t, fma_pair<Half>(a, b, c)),
    PTX_1("ex2.approx.ftz.f32", "wW", float, float, flushed(exp2f(flushed(a)))),
    PTX_1("rcp.approx.ftz.f32", "wW", float, float, flushed(1.0f / flushed(a))),
    PTX_1("rcp.approx.ftz.f64", "dD", double, double, reciprocal_start(a)),

    PTX_1("cvt.rn.f16x2.e4m3x2", "wH", uint32_t, uint16_t, halves_of_e4m3(a)),
    PTX_1("cvt.sat.f32.f32", "wW", float, float, clamped(a)),
    PTX_1("cvt.rn.bf16.f32", "hW", uint16_t, float, emu::float_to_bf16_bits(a)),
    PTX_1("cvt.rn.f16.f32", "hW", uint16_t, float, emu::float_to_half_bits(a)),
    PTX_1("cvt.f32.bf16", "wH", float, uint16_t, emu::bf16_bits_to_float(a)),
    PTX_1("cvt.f32.f16", "wH", float, uint16_t, emu::half_bits_to_float(a)),
    PTX_1("cvt.f64.f32", "dW", double, float, a),
    PTX_1("cvt.rn.f32.f64", "wD", float, double, a),
    PTX_1("cvt.rn.f32.s16", "wH", float, int16_t, a),
    PTX_1("cvt.rn.f32.u16", "wH", float, uint16_t, a),
    PTX_1("cvt.rn.f32.s32", "wW", float, int32_t, a),
    PTX_1("cvt.rn.f32.u32", "wW", float, uint32_t, a),
    PTX_1("cvt.rn.f32.s64", "wD", float, int64_t, a),
    PTX_1("cvt.rn.f32.u64", "wD", float, uint64_t, a),
    PTX_1("cvt.rn.f64.s32", "dW", double, int32_t, a),
    PTX_1("cvt.rn.f64.u32", "dW", double, uint32_t, a),
    PTX_1("cvt.rn.f64.s64", "dD", double, int64_t, a),
    PTX_1("cvt.rn.f64.u64", "dD", double, uint64_t, a),
    PTX_1("cvt.rni.s32.f32", "wW", int32_t, float, whole<int32_t>(nearbyintf(a))),
    PTX_1("cvt.rzi.s32.f32", "wW", int32_t, float, whole<int32_t>(truncf(a))),
    PTX_1("cvt.rzi.u32.f32", "wW", uint32_t, float, whole<uint32_t>(truncf(a))),
    PTX_1("cvt.rzi.u64.f32", "dW", uint64_t, float, whole<uint64_t>(truncf(a))),
    PTX_1("cvt.rzi.s32.f64", "wD", int32_t, double, whole<int32_t>(trunc(a))),
};

Rules real_rules() {
  return {rules, sizeof rules / sizeof rules[0]};
}

} // namespace ptx
