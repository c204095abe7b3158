/* gpu_wgmma.h: the part of gpu.h for sm_90a only: the products of a warpgroup, and registers that
 * one warpgroup gives to another. The PTX is in gpu_wgmma_ptx.inc, the emulated half in
 * gpu_wgmma_emulated.inc.
 *
 * A warpgroup is four warps, the first a multiple of four. All of its threads call all of these.
 *
 * Operands     wgmma_operand(shared, leading, stride): a matrix of 16-bit values in shared memory,
 *              in the 128-byte swizzle: rows of 128 bytes whose chunk c stands at c ^ (row & 7),
 *              `shared` a multiple of 1024 bytes. `stride` is the distance of groups of eight rows,
 *              `leading` that of columns 64 and more (bytes, multiples of 16; `leading` counts only
 *              where rows run along k). wgmma_advance(operand, bytes): the same further on.
 * Products     wgmma_shared<T>(acc, left, right, add): 64 x 128 += 64 x 16 . 16 x 128, operands
 *              whose rows run along m and n, 16 columns of k. wgmma_registers<T>(acc, fragment,
 *              right, add): 64 x 64 or 64 x 128, `fragment` in registers as mma's, `right` an
 *              operand whose rows run along k.
 *              add 0: the old content of acc is not added. acc[j] holds columns 8 j + 2 (l % 4)
 *              and one more, of rows 16 w + l / 4 and eight more, of lane l of warp w.
 * Order        wgmma_fence() before the first product and whenever its registers were touched;
 *              products; wgmma_commit(); wgmma_wait<N>(): all but the newest N groups are done.
 *              Until then no thread may use acc or the operands. wgmma_pin(registers): the compiler
 *              moves no use of them across this place: between their use and wgmma_fence, and after
 *              wgmma_wait.
 * Registers    registers_lower<N>(), registers_raise<N>(): of a thread, once in its life.
 *
 * GPU_HAS_WGMMA is 0 in a pass of nvcc for anything but sm_90a: bodies that use these names stand
 * under #if. They are there in its host pass.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_GPU_WGMMA_H
#define INFERD_CUDA_DEVICE_CODE_GPU_WGMMA_H

#include "cuda/device_code/gpu.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GPU_HAS_WGMMA 1
#else
#define GPU_HAS_WGMMA 0
#endif

enum { WARPGROUP = 128, WGMMA_ROWS = 64, WGMMA_DEPTH = 16, SWIZZLE_ROWS_BYTES = 1024 };

template <class T> struct wgmma_type { static constexpr bool BF16 = false; };
template <> struct wgmma_type<bf16_t> { static constexpr bool BF16 = true; };

#if GPU_HAS_WGMMA
#ifdef __CUDACC__
#include "cuda/device_code/gpu_wgmma_ptx.inc"
#else
#include "cuda/device_code/gpu_wgmma_emulated.inc"
#endif

/* Matrix descriptor of the PTX manual: addresses and distances in units of 16 bytes, swizzle 1. */
GPU_FN uint64_t wgmma_operand(const void *shared, unsigned leading, unsigned stride) {
  const uint64_t address = (shared_address(shared) & 0x3ffffu) >> 4;
  return address | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}
GPU_FN uint64_t wgmma_advance(uint64_t operand, unsigned bytes) {
  return operand + (bytes >> 4);
}
#endif

#endif
