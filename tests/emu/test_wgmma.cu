/* test_wgmma.cu: kernels with one mistake each around Hopper's products, which the emulator must
 * report or show; tests/cuda/test_wgmma.cu has the right ones.
 */
#include "cuda/device_code/gpu_wgmma.h"
#include "tests/emu/rig.h"

#define EXPECT_FAULT(launch, ...)                                                                  \
  do {                                                                                             \
    fault_watch watch;                                                                             \
    (void)(launch);                                                                                \
    cudaDeviceSynchronize();                                                                       \
    check_that(watch.saw({__VA_ARGS__}), std::string("reported: ") + emu::fault_text());           \
  } while (0)

struct wgmma_area {
  uint8_t a[64 * 128], b[2][128 * 128];
  uint64_t full;
};

enum mistake {
  RIGHT,
  NO_FENCE,
  NO_COMMIT,
  NO_WAIT,
  NEVER_AWAITED,
  EARLY_READ,
  EARLY_WRITE,
  NO_FENCE_AGAIN,
  OTHER_OPERAND,
  OTHER_LINE,
  HALF_A_GROUP,
  NO_SWIZZLE,
  BEYOND_SHARED,
  NO_PROXY_FENCE,
  WRITES_OPERAND,
  COPIES_OVER_OPERAND,
  READS_UNWRITTEN,
  WRITES_AFTER
};

static const unsigned COPIED = 256;        /* bytes */
static const unsigned BLOCK_THREADS = 160; /* a warpgroup, and a warp that copies */

/* Ones times ones, 16 deep: sums of 16. `copied` is what a copy over an operand brings: zeros, so
 * that it shows whether it has landed or its place is still poisoned. */
template <int WRONG>
__global__ void product_kernel(const uint8_t *ones, const uint8_t *copied, float *out) {
  DYN_SMEM(wgmma_area, s);
  const int thread = threadIdx.x;
  if (thread == 0) {
    mbarrier_init(&s->full, 1);
    mbarrier_fence_init();
  }
  for (int i = thread; i < (int)sizeof s->a; i += BLOCK_THREADS) s->a[i] = ones[i % 2];
  if (WRONG != READS_UNWRITTEN)
    for (int i = thread; i < (int)sizeof s->b[0]; i += BLOCK_THREADS) s->b[0][i] = ones[i % 2];
  if (WRONG != NO_PROXY_FENCE) fence_proxy_async();
  __syncthreads();
  if (thread >= WARPGROUP) {
    if (WRONG == WRITES_OPERAND) {
      bar_sync(1, BLOCK_THREADS);
      s->b[0][thread - WARPGROUP] = 0;
    }
    if (WRONG == COPIES_OVER_OPERAND) {
      bar_sync(1, BLOCK_THREADS);
      if (thread == WARPGROUP) {
        mbarrier_arrive_expect(&s->full, COPIED);
        bulk_copy_to_shared(s->b[0], copied, COPIED, &s->full);
      }
    }
    if (WRONG == WRITES_OPERAND || WRONG == COPIES_OVER_OPERAND) bar_arrive(2, BLOCK_THREADS);
    return;
  }
  float acc[16][4] = {};
  uint64_t a = wgmma_operand(s->a, 0, SWIZZLE_ROWS_BYTES);
  uint64_t b = wgmma_operand(s->b[0], 0, SWIZZLE_ROWS_BYTES);
  if (WRONG == NO_SWIZZLE) a &= ~(3ull << 62);
  if (WRONG == BEYOND_SHARED) b = wgmma_operand(s->b[0], 0, 0x3fff0);
  if (WRONG == OTHER_OPERAND && thread == 77) b = wgmma_advance(b, 32);
  if (WRONG != NO_FENCE) wgmma_fence();
  if (WRONG == HALF_A_GROUP && thread >= 64) return;
  if (WRONG == OTHER_LINE && thread >= 64)
    wgmma_shared<bf16_t>(acc, a, b, 1);
  else
    wgmma_shared<bf16_t>(acc, a, b, 1);
  if (WRONG == EARLY_READ) out[thread] = acc[0][0];
  if (WRONG == EARLY_WRITE) acc[0][0] = 5;
  if (WRONG != NO_COMMIT) wgmma_commit();
  if (WRONG == WRITES_OPERAND || WRONG == COPIES_OVER_OPERAND) {
    bar_arrive(1, BLOCK_THREADS);
    bar_sync(2, BLOCK_THREADS);
  }
  if (WRONG == NEVER_AWAITED) return;
  if (WRONG == NO_WAIT)
    wgmma_wait<1>();
  else
    wgmma_wait<0>();
  if (WRONG == WRITES_AFTER) s->b[0][thread] = 0;
  if (WRONG == NO_FENCE_AGAIN) {
    wgmma_shared<bf16_t>(acc, a, b, 1);
    wgmma_commit();
    wgmma_wait<0>();
  }
  if (WRONG != EARLY_READ) out[thread] = acc[0][0];
  if (WRONG == NO_WAIT || WRONG == NO_COMMIT) {
    wgmma_commit();
    wgmma_wait<0>();
  }
}

template <int WRONG> static std::vector<float> run() {
  const uint8_t one[] = {0x80, 0x3f}; /* bf16 */
  std::vector<float> got(WARPGROUP);
  uint8_t *ones, *zeros;
  float *out;
  MUST(cudaMalloc(&ones, sizeof one));
  MUST(cudaMalloc(&zeros, COPIED));
  MUST(cudaMalloc(&out, WARPGROUP * sizeof(float)));
  MUST(cudaMemcpy(ones, one, sizeof one, cudaMemcpyHostToDevice));
  MUST(cudaMemset(zeros, 0, COPIED));
  (void)LAUNCH(product_kernel<WRONG>, (1), (BLOCK_THREADS), sizeof(wgmma_area), nullptr, ones,
               zeros, out);
  cudaMemcpy(got.data(), out, WARPGROUP * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(ones);
  cudaFree(zeros);
  cudaFree(out);
  return got;
}

TEST(wgmma_without_a_mistake) {
  const std::vector<float> got = run<RIGHT>();
  check_that(std::count(got.begin(), got.end(), 16.0f) == WARPGROUP, "sums of 16 ones");
}

TEST(wgmma_needs_fence_commit_and_wait) {
  EXPECT_FAULT(run<NO_FENCE>(), "without wgmma_fence", "test_wgmma.cu:");
  EXPECT_FAULT(run<NO_FENCE_AGAIN>(), "without wgmma_fence", "test_wgmma.cu:");
  EXPECT_FAULT(run<NEVER_AWAITED>(), "never waited for");
  for (int wrong : {(int)NO_WAIT, (int)NO_COMMIT, (int)EARLY_READ})
    expect_check("read of an accumulator", "a read of sums in flight", [wrong] {
      const auto got = wrong == NO_WAIT     ? run<NO_WAIT>()
                       : wrong == NO_COMMIT ? run<NO_COMMIT>()
                                            : run<EARLY_READ>();
      return std::count(got.begin(), got.end(), 16.0f) == 0;
    });
#if defined(EMU_CHECK)
  EXPECT_FAULT(run<EARLY_WRITE>(), "write to an accumulator", "test_wgmma.cu:");
#endif
}

TEST(wgmma_wants_the_same_of_all_its_threads) {
  EXPECT_FAULT(run<OTHER_OPERAND>(), "operands differ", "test_wgmma.cu:");
  EXPECT_FAULT(run<OTHER_LINE>(), "divergent warpgroup", "test_wgmma.cu:");
  EXPECT_FAULT(run<HALF_A_GROUP>(), "deadlock", "wgmma_wait");
}

TEST(wgmma_operands_are_checked) {
  EXPECT_FAULT(run<NO_SWIZZLE>(), "128-byte swizzle", "test_wgmma.cu:");
  EXPECT_FAULT(run<BEYOND_SHARED>(), "beyond shared memory");
  expect_check("nobody wrote", "an operand that is not there", [] {
    const auto got = run<READS_UNWRITTEN>();
    return std::count(got.begin(), got.end(), 16.0f) == 0;
  });
  expect_check("which a wgmma in flight reads", "a copy over an operand", [] {
    const auto got = run<COPIES_OVER_OPERAND>();
    return std::count(got.begin(), got.end(), 16.0f) < WARPGROUP;
  });
  expect_check("which a wgmma in flight reads", "a write to an operand", [] {
    const auto got = run<WRITES_OPERAND>();
    return std::count(got.begin(), got.end(), 16.0f) < WARPGROUP;
  });
#if defined(EMU_CHECK)
  EXPECT_FAULT(run<NO_PROXY_FENCE>(), "without fence_proxy_async");
  EXPECT_FAULT(run<WRITES_AFTER>(), "race: write to shared memory", "read by thread");
#endif
}

template <int LOWER, int RAISE> __global__ void registers_kernel() {
  if (threadIdx.x < WARPGROUP)
    registers_lower<LOWER>();
  else
    registers_raise<RAISE>();
}
__global__ void uneven_registers() {
  if (threadIdx.x < 64)
    registers_lower<40>();
  else
    registers_lower<48>();
}

TEST(registers_must_be_there) { /* 384 threads begin with 168 */
  MUST(LAUNCH((registers_kernel<24, 240>), (1), (384), 0, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT_FAULT(LAUNCH((registers_kernel<40, 240>), (1), (384), 0, nullptr), "ask for 66560");
  EXPECT_FAULT(LAUNCH((registers_kernel<24, 160>), (1), (384), 0, nullptr), "the other way");
  EXPECT_FAULT(LAUNCH((registers_kernel<176, 240>), (1), (384), 0, nullptr), "the other way");
  EXPECT_FAULT(LAUNCH((registers_kernel<28, 240>), (1), (384), 0, nullptr), "28 registers");
  EXPECT_FAULT(LAUNCH(uneven_registers, (1), (128), 0, nullptr), "elsewhere in the warpgroup");
}
