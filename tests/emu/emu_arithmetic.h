/* emu_arithmetic.h: CUDA's atomics, bit operations and fast mathematics for emulated kernels.
 *
 * Fibers do not preempt each other, yet atomics stay atomic, for a later engine with several host
 * threads. Fast functions are the exact ones here: tests compare with a tolerance.
 */
#ifndef EMU_ARITHMETIC_H
#define EMU_ARITHMETIC_H

#include <math.h>
#include <type_traits>

namespace emu {
template <class T, class F> inline T atomic_update(T *p, F next) {
  T old, fresh;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do {
    fresh = next(old);
  } while (!__atomic_compare_exchange(p, &old, &fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
} // namespace emu

#define EMU_ATOMIC(name, expression)                                                               \
  template <class T> inline T name(T *p, std::common_type_t<T> v) {                                \
    return emu::atomic_update(p, [v](T old) -> T { return expression; });                          \
  }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicMax, old > v ? old : v)
EMU_ATOMIC(atomicMin, old < v ? old : v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicAnd, old &v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicExch, ((void)old, v))
EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
template <class T>
inline T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> v) {
  return emu::atomic_update(p, [=](T old) -> T { return old == expected ? v : old; });
}

inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v) {
  return __builtin_popcountll(v);
}
inline int __clz(int v) {
  return v ? __builtin_clz((unsigned)v) : 32;
}
inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned __float_as_uint(float x) {
  return emu::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return emu::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned u) {
  return emu::bit_cast<float>(u);
}
inline float __int_as_float(int u) {
  return emu::bit_cast<float>(u);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}

#define EMU_MIN_MAX(T)                                                                             \
  inline T min(T a, T b) {                                                                         \
    return b < a ? b : a;                                                                          \
  }                                                                                                \
  inline T max(T a, T b) {                                                                         \
    return a < b ? b : a;                                                                          \
  }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}

#endif
