/* test_faults.cu: kernels with one mistake each, which the emulator must report where it stands.
 *
 * A message must name the kernel and this file. Mistakes that only AddressSanitizer sees in its
 * build end that process: the child of a fork runs them there.
 */
#include "tests/emu/rig.h"

#include <sys/wait.h>
#include <unistd.h>

#define EXPECT_FAULT(launch, ...)                                                                  \
  do {                                                                                             \
    fault_watch watch;                                                                             \
    (void)(launch); /* a stream that runs at once fails here, and stays failed */                  \
    const cudaError_t after = cudaDeviceSynchronize();                                             \
    check_that(after == cudaErrorLaunchFailure, "the fault is a launch failure: " #launch);        \
    check_that(watch.saw({__VA_ARGS__}), std::string("reported: ") + emu::fault_text());           \
  } while (0)

/* ---- Barriers and warps ---- */

__global__ void divergent_barrier() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void exit_before_barrier() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}
__global__ void wrong_mask() {
  if (threadIdx.x < 16) __syncwarp();
}
__global__ void foreign_lane(int *out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}
__global__ void not_in_mask() {
  __syncwarp(0xfffffffeu);
}
__global__ void two_collectives(int *out) {
  const int v = threadIdx.x & 1 ? __shfl_xor_sync(~0u, 1, 1) : (int)__ballot_sync(~0u, 1);
  out[threadIdx.x] = v;
}
__global__ void half_a_barrier() {
  if (threadIdx.x < 32) bar_sync(3, 64);
}
__global__ void uneven_barrier() {
  bar_sync(3, threadIdx.x < 32 ? 64 : 32);
}

TEST(barriers_must_be_met_by_all_at_one_place) {
  EXPECT_FAULT(LAUNCH(divergent_barrier, (1), (64), 0, nullptr), "divergent __syncthreads",
               "kernel divergent_barrier", "test_faults.cu:");
  EXPECT_FAULT(LAUNCH(exit_before_barrier, (1), (64), 0, nullptr), "exit", "__syncthreads",
               "test_faults.cu:");
  EXPECT_FAULT(LAUNCH(half_a_barrier, (2), (64), 0, nullptr), "deadlock", "a named barrier",
               "test_faults.cu:");
  EXPECT_FAULT(LAUNCH(uneven_barrier, (1), (64), 0, nullptr), "uneven_barrier", "test_faults.cu:");
}

TEST(collectives_must_agree) {
  device_array<int> out(32);
  EXPECT_FAULT(LAUNCH(wrong_mask, (1), (32), 0, nullptr), "__syncwarp");
  EXPECT_FAULT(LAUNCH(foreign_lane, (1), (32), 0, nullptr, out.p), "reads lane 20");
  EXPECT_FAULT(LAUNCH(not_in_mask, (1), (32), 0, nullptr), "not in its own mask");
  EXPECT_FAULT(LAUNCH(two_collectives, (1), (32), 0, nullptr, out.p), "divergent warp",
               "__ballot_sync", "__shfl_xor_sync");
  EXPECT_FAULT(LAUNCH(not_in_mask, (1), (16), 0, nullptr), "mask");
}

/* ---- Races that an order or the poison shows ---- */

__global__ void no_barrier(int *out) {
  SHARED(cell, int[64]);
  cell[threadIdx.x] = (int)threadIdx.x;
  out[threadIdx.x] = cell[63 - threadIdx.x];
}
__global__ void no_syncwarp(int *out) {
  SHARED(cell, int[32]);
  cell[threadIdx.x] = (int)threadIdx.x;
  out[threadIdx.x] = cell[(threadIdx.x + 1) % 32];
}

/* The results of a launch on `n` threads; all zero after a fault. */
template <class F> static std::vector<int> results_of(int n, F launch) {
  std::vector<int> got(n);
  int *out;
  MUST(cudaMalloc(&out, n * sizeof(int)));
  launch(out);
  cudaMemcpy(got.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(out);
  return got;
}

TEST(a_missing_barrier_reads_poison) {
  expect_check("nobody wrote", "a missing __syncthreads", [] {
    const auto got =
        results_of(64, [](int *out) { (void)LAUNCH(no_barrier, (1), (64), 0, 0, out); });
    return std::count(got.begin(), got.end(), -1) > 0;
  });
  expect_check("nobody wrote", "a missing __syncwarp", [] {
    const auto got =
        results_of(32, [](int *out) { (void)LAUNCH(no_syncwarp, (1), (32), 0, 0, out); });
    return std::count(got.begin(), got.end(), -1) > 0;
  });
}

/* ---- Copies ---- */

template <int WAIT> __global__ void early_read(const float *in, float *out) {
  SHARED(row, float4[32]);
  cp_async_16(&row[threadIdx.x], in + threadIdx.x * 4);
  if (WAIT != 2) cp_async_commit();
  cp_async_wait<WAIT == 1>(); /* 1: one group too many may be in flight; 2: never committed */
  out[threadIdx.x] = row[threadIdx.x].x;
  if (WAIT == 2) cp_async_commit();
  cp_async_wait<0>();
}
__global__ void never_waits(const float *in) {
  SHARED(row, float4[32]);
  cp_async_16(&row[threadIdx.x], in + threadIdx.x * 4);
  cp_async_commit();
}
__global__ void misaligned_copy(const float *in) {
  SHARED(row, float4[33]);
  cp_async_16(&row[threadIdx.x], in + threadIdx.x * 4 + 1);
}
__global__ void copy_to_global(const float *in, float *out) {
  cp_async_16(out, in);
}
__global__ void uninitialised_mbarrier(const float *in) {
  SHARED(row, float4[32]);
  SHARED(bar, uint64_t);
  bulk_copy_to_shared(row, in, 512, &bar);
}
__global__ void bytes_never_come() {
  SHARED(bar, uint64_t);
  if (threadIdx.x == 0) {
    mbarrier_init(&bar, 1);
    mbarrier_fence_init();
    mbarrier_arrive_expect(&bar, 16);
  }
  __syncthreads();
  mbarrier_wait(&bar, 0);
}
/* Nobody fences, or another thread than the one that made it. */
__global__ void unfenced_mbarrier(bool fences) {
  SHARED(bar, uint64_t);
  if (threadIdx.x == 0) mbarrier_init(&bar, 1);
  if (threadIdx.x == 1 && fences) mbarrier_fence_init();
  __syncthreads();
  if (threadIdx.x == 0) mbarrier_arrive(&bar);
  mbarrier_wait(&bar, 0);
}

TEST(copies_that_are_not_awaited_show) {
  const std::vector<float> ones(160, 1.0f);
  device_array<float> in(ones), out(32);
  MUST(LAUNCH(early_read<0>, (1), (32), 0, nullptr, in.p, out.p));
  check_that(out.get()[7] == 1.0f, "a copy that was awaited");
  for (int wrong : {1, 2})
    expect_check(
        "nobody wrote", wrong == 1 ? "a wait for one group too few" : "no commit", [&in, wrong] {
          const auto got = results_of(32, [&in, wrong](int *out) {
            (void)(wrong == 1 ? LAUNCH(early_read<1>, (1), (32), 0, nullptr, in.p, (float *)out)
                              : LAUNCH(early_read<2>, (1), (32), 0, nullptr, in.p, (float *)out));
          });
          return got[7] == -1;
        });
  EXPECT_FAULT(LAUNCH(never_waits, (1), (32), 0, nullptr, in.p), "never waited for");
}

TEST(copies_check_their_addresses) {
  device_array<float> in(160), out(160);
  EXPECT_FAULT(LAUNCH(misaligned_copy, (1), (32), 0, nullptr, in.p), "misaligned",
               "test_faults.cu:");
  EXPECT_FAULT(LAUNCH(copy_to_global, (1), (32), 0, nullptr, in.p, out.p), "not in shared memory");
  EXPECT_FAULT(LAUNCH(uninitialised_mbarrier, (1), (32), 0, nullptr, in.p), "not initialised");
  EXPECT_FAULT(LAUNCH(bytes_never_come, (1), (32), 0, nullptr), "deadlock", "an mbarrier");
  EXPECT_FAULT(LAUNCH(unfenced_mbarrier, (1), (32), 0, nullptr, false), "no fence.mbarrier_init",
               "mbarrier", "at test_faults.cu");
  EXPECT_FAULT(LAUNCH(unfenced_mbarrier, (1), (32), 0, nullptr, true), "no fence.mbarrier_init");
}

__global__ void misaligned_ldmatrix() {
  SHARED(row, uint16_t[32][9]);
  uint32_t r[4];
  for (int i = 0; i < 9; i++) row[threadIdx.x][i] = 0;
  __syncwarp();
  ldmatrix_x4(r, row[threadIdx.x]);
}
__global__ void split_mma(float *out) {
  float acc[4] = {};
  const uint32_t a[4] = {};
  if (threadIdx.x & 1)
    mma_bf16_m16n8k16(acc, a, 0, 0);
  else
    mma_bf16_m16n8k16(acc, a, 0, 0);
  out[threadIdx.x] = acc[0];
}

TEST(tensor_core_operands_are_checked) {
  device_array<float> out(32);
  EXPECT_FAULT(LAUNCH(misaligned_ldmatrix, (1), (32), 0, nullptr), "not 16-byte aligned");
  EXPECT_FAULT(LAUNCH(split_mma, (1), (32), 0, nullptr, out.p), "divergent warp", "mma");
}

/* ---- Out of bounds and endless ---- */

__global__ void past_dynamic() {
  struct area {
    int word[32];
  };
  DYN_SMEM(area, s);
  s->word[threadIdx.x + 1] = 3;
}
__global__ void past_static() {
  SHARED(word, int[32]);
  int *p = word;
  p[threadIdx.x + 1] = 3;
}
__global__ void past_global(int *out) {
  out[threadIdx.x + 1] = 3;
}
__global__ void never_set(const int *flag) {
  while (ld_acquire(flag) != 1) SPIN_PAUSE();
}

/* A fault of the plain build; in the sanitized one the process must die of it. */
template <class F> static bool is_found(const char *text, F launch) {
#if defined(__SANITIZE_ADDRESS__)
  (void)text;
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    launch();
    cudaDeviceSynchronize();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
#else
  fault_watch watch;
  launch();
  cudaDeviceSynchronize();
  return watch.saw({text});
#endif
}

TEST(writes_out_of_bounds_are_found) {
  device_array<int> out(32);
  check_that(is_found("dynamic shared", [] { LAUNCH(past_dynamic, (1), (32), 128, nullptr); }),
             "past dynamic shared memory");
  check_that(is_found("SHARED variable", [] { LAUNCH(past_static, (1), (32), 0, nullptr); }),
             "past a SHARED variable");
  check_that(is_found("past_global", [&out] { LAUNCH(past_global, (1), (32), 0, nullptr, out.p); }),
             "past an allocation");
}

TEST(endless_polls_end) {
  device_array<int> flag(std::vector<int>{0});
  EXPECT_FAULT(LAUNCH(never_set, (1), (64), 0, nullptr, flag.p), "livelock");
}

TEST(a_fault_leaves_the_emulator_usable) {
  device_array<int> out(32);
  EXPECT_FAULT(LAUNCH(half_a_barrier, (1), (64), 0, nullptr), "deadlock");
  MUST(LAUNCH(past_global, (1), (16), 0, nullptr, out.p));
  check_that(out.get()[16] == 3, "the next kernel runs");
}
