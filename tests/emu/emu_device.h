/* emu_device.h: the built-in variables and functions of CUDA that kernels may use.
 *
 * A function that is missing here is one that no kernel uses yet: add it with its test.
 * Arithmetic and atomics are in emu_arithmetic.h.
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
  emu::may_yield();
}
inline void __threadfence_block() {
  __atomic_thread_fence(
      __ATOMIC_ACQ_REL); /* which the checker does not take for one of all blocks */
  emu::may_yield();
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

#endif
