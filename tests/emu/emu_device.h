/* emu_device.h: the built-in variables and functions of CUDA that kernels may use.
 *
 * A function that is missing here is one that no kernel uses yet: add it with its test. Fibers do
 * not preempt each other, yet atomics stay atomic, for a later engine with several host threads.
 */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <type_traits>

#define threadIdx (emu::current->index)
#define blockIdx (emu::current->block)
#define blockDim (emu::current->block_size)
#define gridDim (emu::current->grid_size)
static constexpr int warpSize = 32;

namespace emu {
template <class T> inline uint64_t to_word(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "shuffle of a large type");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}
template <class T> inline T from_word(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}
template <class T, class F> inline T atomic_update(T *p, F next) {
  T old, fresh;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do {
    fresh = next(old);
  } while (!__atomic_compare_exchange(p, &old, &fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
} // namespace emu

inline void __syncthreads(EMU_SITE) {
  emu::barrier_sync(0, 0, emu::BARRIER_PLAIN, 0, EMU_HERE);
}
inline int __syncthreads_count(int p, EMU_SITE) {
  return emu::barrier_sync(0, 0, emu::BARRIER_COUNT, p, EMU_HERE);
}
inline int __syncthreads_and(int p, EMU_SITE) {
  return emu::barrier_sync(0, 0, emu::BARRIER_AND, p, EMU_HERE);
}
inline int __syncthreads_or(int p, EMU_SITE) {
  return emu::barrier_sync(0, 0, emu::BARRIER_OR, p, EMU_HERE);
}

#define EMU_VOTE(R, name, T, kind, value)                                                          \
  inline R name(unsigned mask, T v, EMU_SITE) {                                                    \
    return (R)emu::vote(mask, emu::kind, (uint32_t)(value), EMU_HERE);                             \
  }
EMU_VOTE(unsigned, __ballot_sync, int, VOTE_BALLOT, v != 0)
EMU_VOTE(int, __any_sync, int, VOTE_ANY, v != 0)
EMU_VOTE(int, __all_sync, int, VOTE_ALL, v != 0)
EMU_VOTE(unsigned, __match_any_sync, unsigned, VOTE_MATCH, v)
EMU_VOTE(unsigned, __reduce_add_sync, unsigned, VOTE_ADD, v)
EMU_VOTE(int, __reduce_min_sync, int, VOTE_MIN_SIGNED, v)
EMU_VOTE(int, __reduce_max_sync, int, VOTE_MAX_SIGNED, v)
EMU_VOTE(unsigned, __reduce_min_sync, unsigned, VOTE_MIN, v)
EMU_VOTE(unsigned, __reduce_max_sync, unsigned, VOTE_MAX, v)
EMU_VOTE(unsigned, __reduce_or_sync, unsigned, VOTE_OR, v)
EMU_VOTE(unsigned, __reduce_and_sync, unsigned, VOTE_AND, v)
inline void __syncwarp(unsigned mask = ~0u, EMU_SITE) {
  emu::vote(mask, emu::VOTE_SYNC, 0, EMU_HERE);
}

#define EMU_SHUFFLE(name, kind, Operand)                                                           \
  template <class T> inline T name(unsigned mask, T v, Operand n, int width = 32, EMU_SITE) {      \
    return emu::from_word<T>(                                                                      \
        emu::shuffle(mask, emu::kind, emu::to_word(v), (int)n, width, EMU_HERE));                  \
  }
EMU_SHUFFLE(__shfl_sync, SHUFFLE_INDEX, int)
EMU_SHUFFLE(__shfl_up_sync, SHUFFLE_UP, unsigned)
EMU_SHUFFLE(__shfl_down_sync, SHUFFLE_DOWN, unsigned)
EMU_SHUFFLE(__shfl_xor_sync, SHUFFLE_XOR, int)

inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __nanosleep(unsigned) {
  emu::spin();
}
inline void __trap() {
  emu::fail("__trap()");
}
template <class T> inline T __ldg(const T *p) {
  return *p;
}
template <class T> inline T __ldcg(const T *p) {
  return *p;
}
template <class T> inline void __stcs(T *p, T v) {
  *p = v;
}

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
