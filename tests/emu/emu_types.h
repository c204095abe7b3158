/* emu_types.h: CUDA's keywords, vector types, bf16 and half, for a host C++ compiler.
 *
 * Only the explicit conversions exist, so that what compiles here also compiles with the toolkit's
 * laxer types. Conversions round to nearest even, as the device's do.
 */
#ifndef EMU_TYPES_H
#define EMU_TYPES_H

#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __constant__ static
/* Legacy static shared memory would be neither poisoned nor checked: SHARED() is the way. */
#define __shared__ static_assert(false, "use SHARED() or DYN_SMEM()");

#define EMU_VECTOR_2(T, N, A)                                                                      \
  struct alignas(A) N##2 {                                                                         \
    T x, y;                                                                                        \
  };                                                                                               \
  inline N##2 make_##N##2(T x, T y) {                                                              \
    return {x, y};                                                                                 \
  }
#define EMU_VECTOR_3(T, N)                                                                         \
  struct N##3 {                                                                                    \
    T x, y, z;                                                                                     \
  };                                                                                               \
  inline N##3 make_##N##3(T x, T y, T z) {                                                         \
    return {x, y, z};                                                                              \
  }
#define EMU_VECTOR_4(T, N, A)                                                                      \
  struct alignas(A) N##4 {                                                                         \
    T x, y, z, w;                                                                                  \
  };                                                                                               \
  inline N##4 make_##N##4(T x, T y, T z, T w) {                                                    \
    return {x, y, z, w};                                                                           \
  }
#define EMU_VECTORS(T, N, A2, A4) EMU_VECTOR_2(T, N, A2) EMU_VECTOR_3(T, N) EMU_VECTOR_4(T, N, A4)
EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTOR_2(double, double, 16)
EMU_VECTOR_2(long long, longlong, 16)
EMU_VECTOR_2(unsigned long long, ulonglong, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emu {
template <class To, class From> inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline uint16_t float_to_bf16_bits(float x) {
  const uint32_t u = bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

inline uint16_t float_to_half_bits(float x) {
  uint32_t u = bit_cast<uint32_t>(x);
  const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 0x7fff;
  if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (u < 0x38800000u) { /* subnormal: a whole number of 2^-24, rounded by the addition */
    const float magnitude = bit_cast<float>(u) + 0.5f;
    return (uint16_t)(sign | (uint16_t)(bit_cast<uint32_t>(magnitude) - 0x3f000000u));
  }
  u -= 0x38000000u;
  return (uint16_t)(sign | ((u + 0xfffu + (u >> 13 & 1)) >> 13));
}

inline float half_bits_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return bit_cast<float>(sign | bit_cast<uint32_t>((float)mantissa * 0x1p-24f));
}

inline float bf16_bits_to_float(uint16_t b) {
  return bit_cast<float>((uint32_t)b << 16);
}
} // namespace emu

struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};
typedef __half half;

inline float __bfloat162float(__nv_bfloat16 a) {
  return emu::bf16_bits_to_float(a.bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {emu::float_to_bf16_bits(x)};
}
inline __nv_bfloat16 __float2bfloat16(float x) {
  return __float2bfloat16_rn(x);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) {
  return a.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) {
  return {a};
}
inline float __half2float(__half a) {
  return emu::half_bits_to_float(a.bits);
}
inline __half __float2half_rn(float x) {
  return {emu::float_to_half_bits(x)};
}
inline __half __float2half(float x) {
  return __float2half_rn(x);
}
inline unsigned short __half_as_ushort(__half a) {
  return a.bits;
}
inline __half __ushort_as_half(unsigned short a) {
  return {a};
}

#endif
