/* gpu.h: everything that kernels use and that is not plain CUDA C++, written twice.
 *
 * With nvcc the wrappers are PTX (gpu_ptx.inc); with a host compiler the same names run on the
 * emulator of the tests (gpu_emulated.inc). These files are the only ones that may contain asm,
 * <<<>>> or `extern __shared__`. All pointers are generic ones; an address in shared memory is
 * recognised by what it points to. Called by kernels, and LAUNCH by the engine thread.
 *
 * Launching        LAUNCH(kernel, (grid), (block), shared_bytes, stream, arguments...)
 *                  Parentheses around grid, block and a kernel whose template list has commas.
 *                  LAUNCH_WITH(options, ...) takes a launch_options_t first.
 * Shared memory    DYN_SMEM(type, name): the block's dynamic memory as a `type *`, 1024-aligned.
 *                  SHARED(name, float[32]): a static shared variable. One statement each.
 * Barriers         __syncthreads, __syncwarp, bar_sync(id, threads), bar_arrive(id, threads)
 * Copies           cp_async_16(dst, src, bytes): 16 bytes to shared memory, those from `bytes` on
 *                  are zeroed; cp_async_commit(); cp_async_wait<N>(): all but the newest N groups.
 *                  Every committed group is waited for before its buffer is reused or the kernel
 *                  ends.
 * Tensor cores     ldmatrix_x4 / _x4_trans / _x2 / _x2_trans(words, row): lane i points to row
 *                  i % 8 of matrix i / 8; word j of lane l holds matrix j, row l / 4, columns
 *                  2 (l % 4) and the next (transposed: row and column swapped).
 *                  mma_bf16_m16n8k16, mma_f16_m16n8k16(acc, fragment, b0, b1): acc += a b in fp32,
 *                  with the fragments of the PTX manual: `fragment` of a has rows l / 4, + 8, same,
 *                  + 8 and columns 2 (l % 4) of the first two, + 8 of the others; b0, b1 are rows
 *                  2 (l % 4), + 8 of column l / 4; acc is rows l / 4, + 8, columns 2 (l % 4), + 1.
 * Arithmetic       exp2_approx(value), reciprocal_approx(value); mul_rn, add_rn, fma_rn: rounded
 *                  once each, never contracted, for sums that two kernels must agree on bit for bit
 * Conversions      to_float(value), from_float<T>(value), pack<T>(low, high) -> two in 32 bits,
 *                  unpack<T>(bits) -> float2, for T = bf16_t and f16_t, all to nearest even;
 *                  e4m3_to_float, float_to_e4m3 (saturating, NaN stays NaN);
 *                  e4m3_pairs<T>(word, even, odd): bytes 0, 2 and 1, 3 of four values, NaN as 480;
 *                  e4m3_halves<PAIR>(word): bytes 0, 1 or 2, 3 as f16, none of them NaN;
 *                  multiply_bf16x2(left, right): two products, rounded once
 *                  byte_perm(low, high, selector): byte i of the result is byte (nibble i of
 *                  selector, 0..7) of the eight
 * Memory           load_16(from), load_16_stream(from) (read once: kept out of L1),
 *                  store_16(to, value); ld_acquire, st_release on int; SPIN_PAUSE() in polls
 *                  prefetch_l2(from): the 128 bytes round a global address come to L2, where
 *                  launches overlap; else nothing, as nothing else could be done meanwhile
 * Dependent launch grid_dependency_wait(), grid_launch_dependents(): nothing before sm_90;
 *                  LAUNCH_OVERLAPPED(kernel, ...): may start before its predecessor ended. All
 *                  its threads wait, before they read what a kernel wrote, write, let the next
 *                  launch come, or return. So two launches run together at most, and to wait for
 *                  the one before is to wait for all. What a kernel reads of others is not
 *                  __restrict__: such loads may be moved before the wait
 * From sm_90       mbarrier_init / _fence_init / _arrive / _arrive_expect / _wait(bar, parity),
 *                  bulk_copy_to_shared(dst, src, bytes, bar), fence_proxy_async(); products of
 *                  warpgroups: gpu_wgmma.h
 */
#ifndef INFERD_CUDA_DEVICE_CODE_GPU_H
#define INFERD_CUDA_DEVICE_CODE_GPU_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef __nv_bfloat16 bf16_t;
typedef __half f16_t;

/* How a kernel is launched beyond grid and block; zeroes are an ordinary launch. */
typedef struct launch_options {
  unsigned cluster; /* blocks of x in one cluster, 0 for none */
  bool cooperative; /* all blocks are resident together */
  bool may_overlap; /* starts before its predecessor ended; see grid_dependency_wait */
} launch_options_t;

template <class T> struct gpu_identity { typedef T type; };

#ifdef __CUDACC__
#define GPU_FN __device__ __forceinline__
#define GPU_BOTH_FN __host__ __device__ __forceinline__
#else
#define GPU_FN inline
#define GPU_BOTH_FN inline
#endif

GPU_BOTH_FN float to_float(float value) {
  return value;
}
GPU_BOTH_FN float to_float(bf16_t value) {
  return __bfloat162float(value);
}
GPU_BOTH_FN float to_float(f16_t value) {
  return __half2float(value);
}

template <class T> GPU_BOTH_FN T from_float(float value);
template <> GPU_BOTH_FN float from_float<float>(float value) {
  return value;
}
template <> GPU_BOTH_FN bf16_t from_float<bf16_t>(float value) {
  return __float2bfloat16_rn(value);
}
template <> GPU_BOTH_FN f16_t from_float<f16_t>(float value) {
  return __float2half_rn(value);
}

/* Two values as one register: `low` in the lower half. */
template <class T> GPU_BOTH_FN uint32_t pack(float low, float high) {
  const T pair[2] = {from_float<T>(low), from_float<T>(high)};
  static_assert(sizeof pair == sizeof(uint32_t), "pack takes 16-bit types");
  uint32_t bits;
  memcpy(&bits, pair, sizeof bits);
  return bits;
}

template <class T> GPU_BOTH_FN float2 unpack(uint32_t bits) {
  T pair[2];
  static_assert(sizeof pair == sizeof bits, "unpack takes 16-bit types");
  memcpy(pair, &bits, sizeof bits);
  return make_float2(to_float(pair[0]), to_float(pair[1]));
}

/* An e4m3 value's bits, moved up by seven, are the half whose value is 256 times smaller. */
GPU_BOTH_FN float e4m3_to_float(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return NAN;
  const uint16_t moved = (uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7);
  f16_t scaled;
  memcpy(&scaled, &moved, sizeof scaled);
  return __half2float(scaled) * 256.0f;
}

/* Rounds to nearest even at three mantissa bits (the smallest step is 2^-9); 448 is the limit. */
GPU_BOTH_FN uint8_t float_to_e4m3(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  const uint8_t sign = (uint8_t)(word >> 24 & 0x80);
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7f);
  if (magnitude >= 0x43e00000u) return (uint8_t)(sign | 0x7e);
  if (magnitude < 0x3c800000u) /* below 2^-6: a whole number of 2^-9 */
    return (uint8_t)(sign | (uint8_t)rintf(fabsf(value) * 512.0f));
  const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1);
  return (uint8_t)(sign | ((rounded - (120u << 23)) >> 20));
}

#ifdef __CUDACC__
#include "cuda/device_code/gpu_ptx.inc"
#else
#include "cuda/device_code/gpu_emulated.inc"
#endif

#define LAUNCH_WITH(options, kernel, grid, block, shared_bytes, ...)                               \
  launch_kernel(#kernel, kernel, dim3 grid, dim3 block, shared_bytes, options, __VA_ARGS__)
#define LAUNCH_OVERLAPPED(kernel, grid, block, shared_bytes, ...)                                  \
  LAUNCH_WITH((launch_options_t{0, false, true}), kernel, grid, block, shared_bytes, __VA_ARGS__)
#define LAUNCH(kernel, grid, block, shared_bytes, ...)                                             \
  LAUNCH_WITH(launch_options_t(), kernel, grid, block, shared_bytes, __VA_ARGS__)

#endif
