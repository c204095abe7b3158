/* wrappers.cu: a kernel for each wrapper of gpu.h and gpu_wgmma.h and nothing else, so that its PTX
 * shows which operand of the instruction is which argument (ptx_wrappers). Never launched.
 *
 * A kernel has the name of its wrapper, with what distinguishes it from another of the same after
 * two underscores. Pointers into shared memory are arguments, too. ORDERED reads a word before and
 * after a call. nvcc 13.0 reads it twice around every volatile statement, so a lost clobber of
 * memory does not show.
 */
#include "cuda/device_code/gpu_wgmma.h"

#define KERNEL extern "C" __global__ void
#define SEEN const uint32_t *seen, uint32_t *sum
#define ORDERED(call)                                                                              \
  const uint32_t before = *seen;                                                                   \
  call;                                                                                            \
  *sum = before + *seen

/* ---- Copies and barriers ---- */

KERNEL shared_address__(const void *shared, uint32_t *out) {
  *out = shared_address(shared);
}
KERNEL bar_sync__(int id, int threads, SEEN) {
  ORDERED(bar_sync(id, threads));
}
KERNEL bar_arrive__(int id, int threads, SEEN) {
  ORDERED(bar_arrive(id, threads));
}
KERNEL cp_async_16__part(void *dst, const void *src, int bytes, SEEN) {
  ORDERED(cp_async_16(dst, src, bytes));
}
KERNEL cp_async_16__whole(void *dst, const void *src, SEEN) {
  ORDERED(cp_async_16(dst, src));
}
KERNEL cp_async_commit__(SEEN) {
  ORDERED(cp_async_commit());
}
KERNEL cp_async_wait__0(SEEN) {
  ORDERED(cp_async_wait<0>());
}
KERNEL cp_async_wait__2(SEEN) {
  ORDERED(cp_async_wait<2>());
}

/* ---- Tensor cores ---- */

template <int N> GPU_FN void leave(uint32_t *out, const uint32_t (&words)[N]) {
  for (int i = 0; i < N; i++) out[i] = words[i];
}
KERNEL ldmatrix_x4__(const void *row, uint32_t *out, SEEN) {
  uint32_t words[4];
  ORDERED(ldmatrix_x4(words, row));
  leave(out, words);
}
KERNEL ldmatrix_x4_trans__(const void *row, uint32_t *out, SEEN) {
  uint32_t words[4];
  ORDERED(ldmatrix_x4_trans(words, row));
  leave(out, words);
}
KERNEL ldmatrix_x2__(const void *row, uint32_t *out, SEEN) {
  uint32_t words[2];
  ORDERED(ldmatrix_x2(words, row));
  leave(out, words);
}
KERNEL ldmatrix_x2_trans__(const void *row, uint32_t *out, SEEN) {
  uint32_t words[2];
  ORDERED(ldmatrix_x2_trans(words, row));
  leave(out, words);
}

template <int N, class T> GPU_FN void take(T (&to)[N], const T *from) {
  for (int i = 0; i < N; i++) to[i] = from[i];
}
KERNEL mma_bf16_m16n8k16__(float *acc, const uint32_t *fragment, uint32_t b0, uint32_t b1) {
  float sums[4];
  uint32_t words[4];
  take(sums, acc), take(words, fragment);
  mma_bf16_m16n8k16(sums, words, b0, b1);
  for (int i = 0; i < 4; i++) acc[i] = sums[i];
}
KERNEL mma_f16_m16n8k16__(float *acc, const uint32_t *fragment, uint32_t b0, uint32_t b1) {
  float sums[4];
  uint32_t words[4];
  take(sums, acc), take(words, fragment);
  mma_f16_m16n8k16(sums, words, b0, b1);
  for (int i = 0; i < 4; i++) acc[i] = sums[i];
}

/* ---- Arithmetic ---- */

KERNEL exp2_approx__(float value, float *out) {
  *out = exp2_approx(value);
}
KERNEL reciprocal_approx__(float value, float *out) {
  *out = reciprocal_approx(value);
}
KERNEL mul_rn__(float left, float right, float *out) {
  *out = mul_rn(left, right);
}
KERNEL add_rn__(float left, float right, float *out) {
  *out = add_rn(left, right);
}
KERNEL fma_rn__(float left, float right, float addend, float *out) {
  *out = fma_rn(left, right, addend);
}
KERNEL e4m3_scaled__bf16(uint32_t bits, uint32_t *out) {
  *out = e4m3_scaled<bf16_t>(bits);
}
KERNEL e4m3_scaled__f16(uint32_t bits, uint32_t *out) {
  *out = e4m3_scaled<f16_t>(bits);
}
KERNEL e4m3_pairs__bf16(uint32_t word, uint32_t *even, uint32_t *odd) {
  e4m3_pairs<bf16_t>(word, *even, *odd);
}
KERNEL e4m3_pairs__f16(uint32_t word, uint32_t *even, uint32_t *odd) {
  e4m3_pairs<f16_t>(word, *even, *odd);
}
KERNEL multiply_bf16x2__(uint32_t left, uint32_t right, uint32_t *out) {
  *out = multiply_bf16x2(left, right);
}
KERNEL e4m3_halves__0(uint32_t word, uint32_t *out) {
  *out = e4m3_halves<0>(word);
}
KERNEL e4m3_halves__1(uint32_t left, uint32_t right, uint32_t *out) {
  *out = e4m3_halves<1>(left ^ right);
}
KERNEL byte_perm__(uint32_t low, uint32_t high, uint32_t selector, uint32_t *out) {
  *out = byte_perm(low, high, selector);
}

/* ---- Memory ---- */

KERNEL load_16__(const void *from, uint4 *out) {
  *out = load_16(from);
}
KERNEL store_16__(void *to, const uint4 *from) {
  store_16(to, *from);
}
KERNEL load_16_stream__(const void *from, uint4 *out) {
  *out = load_16_stream(from);
}
KERNEL prefetch_l2__(const void *from) {
  prefetch_l2(from);
}
KERNEL ld_acquire__(const int *from, int *out, SEEN) {
  ORDERED(*out = ld_acquire(from));
}
KERNEL st_release__(int *to, int value, SEEN) {
  ORDERED(st_release(to, value));
}
KERNEL grid_dependency_wait__(SEEN) {
  ORDERED(grid_dependency_wait());
}
KERNEL grid_launch_dependents__(SEEN) {
  ORDERED(grid_launch_dependents());
}

/* ---- From sm_90 ---- */

KERNEL mbarrier_init__(uint64_t *bar, unsigned arrivals, SEEN) {
  ORDERED(mbarrier_init(bar, arrivals));
}
KERNEL mbarrier_fence_init__(SEEN) {
  ORDERED(mbarrier_fence_init());
}
KERNEL mbarrier_arrive__(uint64_t *bar, SEEN) {
  ORDERED(mbarrier_arrive(bar));
}
KERNEL mbarrier_arrive_expect__(uint64_t *bar, unsigned bytes, SEEN) {
  ORDERED(mbarrier_arrive_expect(bar, bytes));
}
KERNEL mbarrier_wait__(uint64_t *bar, unsigned parity, SEEN) {
  ORDERED(mbarrier_wait(bar, parity));
}
KERNEL bulk_copy_to_shared__(void *dst, const void *src, unsigned bytes, uint64_t *bar, SEEN) {
  ORDERED(bulk_copy_to_shared(dst, src, bytes, bar));
}
KERNEL fence_proxy_async__(SEEN) {
  ORDERED(fence_proxy_async());
}

/* ---- Products of a warpgroup ---- */

template <int N> GPU_FN void take_sums(float (&to)[N][4], const float *from) {
  for (int i = 0; i < 4 * N; i++) to[i / 4][i % 4] = from[i];
}
template <int N> GPU_FN void leave_sums(float *to, const float (&from)[N][4]) {
  for (int i = 0; i < 4 * N; i++) to[i] = from[i / 4][i % 4];
}
template <class T>
GPU_FN void product_of_shared(float *acc, uint64_t left, uint64_t right, int add) {
  float sums[16][4];
  take_sums(sums, acc);
  wgmma_shared<T>(sums, left, right, add);
  leave_sums(acc, sums);
}
template <class T, int N>
GPU_FN void product_of_registers(float *acc, const uint32_t *fragment, uint64_t right, int add) {
  float sums[N][4];
  uint32_t words[4];
  take_sums(sums, acc), take(words, fragment);
  wgmma_registers<T>(sums, words, right, add);
  leave_sums(acc, sums);
}
KERNEL wgmma_shared__bf16(float *acc, uint64_t left, uint64_t right, int add) {
  product_of_shared<bf16_t>(acc, left, right, add);
}
KERNEL wgmma_shared__f16(float *acc, uint64_t left, uint64_t right, int add) {
  product_of_shared<f16_t>(acc, left, right, add);
}
KERNEL wgmma_registers__bf16_64(float *acc, const uint32_t *fragment, uint64_t right, int add) {
  product_of_registers<bf16_t, 8>(acc, fragment, right, add);
}
KERNEL wgmma_registers__bf16_128(float *acc, const uint32_t *fragment, uint64_t right, int add) {
  product_of_registers<bf16_t, 16>(acc, fragment, right, add);
}
KERNEL wgmma_registers__f16_64(float *acc, const uint32_t *fragment, uint64_t right, int add) {
  product_of_registers<f16_t, 8>(acc, fragment, right, add);
}
KERNEL wgmma_registers__f16_128(float *acc, const uint32_t *fragment, uint64_t right, int add) {
  product_of_registers<f16_t, 16>(acc, fragment, right, add);
}
KERNEL wgmma_fence__(SEEN) {
  ORDERED(wgmma_fence());
}
KERNEL wgmma_commit__(SEEN) {
  ORDERED(wgmma_commit());
}
KERNEL wgmma_wait__0(SEEN) {
  ORDERED(wgmma_wait<0>());
}
KERNEL wgmma_wait__1(SEEN) {
  ORDERED(wgmma_wait<1>());
}
KERNEL wgmma_pin__sums(float *acc, SEEN) {
  float sums[1][4];
  take_sums(sums, acc);
  ORDERED(wgmma_pin(sums));
  leave_sums(acc, sums);
}
KERNEL wgmma_pin__words(uint32_t *out, SEEN) {
  uint32_t words[1][4];
  take(words[0], out);
  ORDERED(wgmma_pin(words));
  leave(out, words[0]);
}
KERNEL wgmma_operand__(const void *shared, uint64_t *out) {
  *out = wgmma_operand(shared, 4096, 1024);
}
KERNEL wgmma_advance__(uint64_t operand, uint64_t *out) {
  *out = wgmma_advance(operand, 32);
}
KERNEL registers_lower__24() {
  registers_lower<24>();
}
KERNEL registers_raise__240() {
  registers_raise<240>();
}
