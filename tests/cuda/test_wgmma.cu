/* test_wgmma.cu: the products that cuda/device_code/gpu_wgmma.h wraps, against its description.
 *
 * As test_wrappers.cu: on the emulator this tests the emulator, on a Hopper GPU the PTX. Elsewhere
 * the instructions are not there, and only the launch is checked.
 */
#include "cuda/device_code/gpu_wgmma.h"
#include "tests/cuda/check.h"

enum { DEPTH = 64, WIDTH = 128, ROW_BYTES = 128, PARTS_MAX = 2 };

struct wgmma_area {
  uint8_t a[WGMMA_ROWS * ROW_BYTES], b[WIDTH * ROW_BYTES];
};

#if GPU_HAS_WGMMA
/* Rows of 64 values to shared memory, in the 128-byte swizzle. */
template <class T> GPU_FN void place_rows(uint8_t *to, const T *from, int rows, int width) {
  for (int i = threadIdx.x; i < rows * width / 8; i += WARPGROUP) {
    const int row = i / (width / 8), chunk = i % (width / 8), part = chunk / 8;
    store_16(to + (part * rows + row) * ROW_BYTES + (chunk % 8 ^ (row & 7)) * 16,
             load_16(from + row * width + chunk * 8));
  }
}

template <int N>
GPU_FN void read_sums(float (&acc)[N][4], const float *from, bool writes, float *to) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (int j = 0; j < N; j++)
    for (int i = 0; i < 4; i++) {
      const int at = (row + i / 2 * 8) * N * 8 + j * 8 + lane % 4 * 2 + i % 2;
      if (writes)
        to[at] = acc[j][i];
      else
        acc[j][i] = from[at];
    }
}
#endif

/* c (64, 128) = a (64, 64) . b (128, 64)^T, on top of what it holds when `add`. */
template <class T> __global__ void shared_kernel(const T *a, const T *b, float *c, int add) {
#if GPU_HAS_WGMMA
  DYN_SMEM(wgmma_area, s);
  place_rows(s->a, a, WGMMA_ROWS, DEPTH);
  place_rows(s->b, b, WIDTH, DEPTH);
  fence_proxy_async();
  __syncthreads();
  float acc[WIDTH / 8][4];
  read_sums(acc, c, false, nullptr);
  wgmma_pin(acc);
  wgmma_fence();
  const uint64_t rows = wgmma_operand(s->a, 0, SWIZZLE_ROWS_BYTES);
  const uint64_t columns = wgmma_operand(s->b, 0, SWIZZLE_ROWS_BYTES);
#pragma unroll
  for (int k = 0; k < DEPTH / WGMMA_DEPTH; k++)
    wgmma_shared<T>(acc, wgmma_advance(rows, k * 32), wgmma_advance(columns, k * 32), add || k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(acc);
  read_sums(acc, nullptr, true, c);
#else
  (void)a, (void)b, (void)c, (void)add;
#endif
}

/* c (64, N) += a (64, 32) . b (32, N), in two groups of which the second is awaited later. */
template <class T, int N>
__global__ void registers_kernel(const T *a, const T *b, float *c, float *half) {
#if GPU_HAS_WGMMA
  DYN_SMEM(wgmma_area, s);
  place_rows(s->b, b, 32, N);
  fence_proxy_async();
  __syncthreads();
  float acc[N / 8][4], other[N / 8][4];
  uint32_t fragment[2][4];
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 4; i++)
      fragment[k][i] =
          *(const uint32_t *)(a + (row + i % 2 * 8) * 32 + k * 16 + lane % 4 * 2 + i / 2 * 8);
  read_sums(acc, c, false, nullptr);
  wgmma_pin(acc);
  wgmma_pin(fragment);
  wgmma_fence();
  const uint64_t columns = wgmma_operand(s->b, 32 * ROW_BYTES, SWIZZLE_ROWS_BYTES);
  wgmma_registers<T>(other, fragment[0], columns, 0);
  wgmma_commit();
  wgmma_registers<T>(acc, fragment[0], columns, 1);
  wgmma_registers<T>(acc, fragment[1], wgmma_advance(columns, 16 * ROW_BYTES), 1);
  wgmma_commit();
  wgmma_wait<1>();
  wgmma_pin(other);
  read_sums(other, nullptr, true, half);
  wgmma_wait<0>();
  wgmma_pin(acc);
  read_sums(acc, nullptr, true, c);
#else
  (void)a, (void)b, (void)c, (void)half;
#endif
}

/* Whether the device has the instructions; launches a kernel where not. On the emulator a kernel
 * has its body whatever the device. */
static bool has_wgmma() {
  int major = 0, minor = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  if (major == 9 && minor == 0) return true;
#if defined(__CUDACC__)
  const float *nothing = nullptr;
  MUST(LAUNCH(shared_kernel<bf16_t>, (1), (128), 0, nullptr, (const bf16_t *)nothing,
              (const bf16_t *)nothing, (float *)nullptr, 0));
  MUST(cudaDeviceSynchronize());
#endif
  return false;
}

template <class T> static void shared_case(int add) {
  const auto a = random_values<T>((size_t)WGMMA_ROWS * DEPTH, 2);
  const auto b = random_values<T>((size_t)WIDTH * DEPTH, 2);
  const auto c = random_values<float>((size_t)WGMMA_ROWS * WIDTH, 5);
  std::vector<double> expected(c.size());
  for (int i = 0; i < WGMMA_ROWS; i++)
    for (int j = 0; j < WIDTH; j++) {
      double &sum = expected[i * WIDTH + j];
      sum = add ? (double)c[i * WIDTH + j] : 0;
      for (int k = 0; k < DEPTH; k++)
        sum += (double)to_float(a[i * DEPTH + k]) * (double)to_float(b[j * DEPTH + k]);
    }
  device_array<T> d_a(a), d_b(b);
  device_array<float> d_c(c);
  MUST(LAUNCH(shared_kernel<T>, (1), (WARPGROUP), sizeof(wgmma_area), nullptr, d_a.p, d_b.p, d_c.p,
              add));
  check_close(std::string("wgmma of ") + name_of<T>() + (add ? ", added" : ""), expected,
              as_double(d_c.get()), 1e-5, 16);
}

template <class T, int N> static void registers_case() {
  const auto a = random_values<T>((size_t)WGMMA_ROWS * 32, 2);
  const auto b = random_values<T>((size_t)32 * N, 2);
  const auto c = random_values<float>((size_t)WGMMA_ROWS * N, 5);
  std::vector<double> expected(c.begin(), c.end()), half(c.size());
  for (int i = 0; i < WGMMA_ROWS; i++)
    for (int j = 0; j < N; j++)
      for (int k = 0; k < 32; k++) {
        const double product = (double)to_float(a[i * 32 + k]) * (double)to_float(b[k * N + j]);
        expected[i * N + j] += product;
        if (k < 16) half[i * N + j] += product;
      }
  device_array<T> d_a(a), d_b(b);
  device_array<float> d_c(c), d_half(c.size());
  MUST(LAUNCH((registers_kernel<T, N>), (1), (WARPGROUP), sizeof(wgmma_area), nullptr, d_a.p, d_b.p,
              d_c.p, d_half.p));
  const std::string what = std::string("wgmma of ") + name_of<T>() + " x " + std::to_string(N);
  check_close(what, expected, as_double(d_c.get()), 1e-5, 16);
  check_close(what + ", the group before", half, as_double(d_half.get()), 1e-5, 16);
}

TEST(wrapper_wgmma) {
  if (!has_wgmma()) return;
  for (int add : {0, 1}) {
    shared_case<bf16_t>(add);
    shared_case<f16_t>(add);
  }
  registers_case<bf16_t, 64>();
  registers_case<bf16_t, 128>();
  registers_case<f16_t, 64>();
  registers_case<f16_t, 128>();
}

/* A warpgroup gives registers to another, which goes on with what it had. */
__global__ void __launch_bounds__(256, 1) registers_move_kernel(int *out) {
#if GPU_HAS_WGMMA
  if (threadIdx.x < WARPGROUP) {
    registers_lower<64>();
    out[threadIdx.x] = (int)threadIdx.x * 3;
  } else {
    registers_raise<256>();
    out[threadIdx.x] = (int)threadIdx.x * 3;
  }
#else
  (void)out;
#endif
}

TEST(wrapper_registers) {
  if (!has_wgmma()) return;
  device_array<int> out((size_t)256);
  MUST(LAUNCH(registers_move_kernel, (1), (256), 0, nullptr, out.p));
  const auto got = out.get();
  bool right = true;
  for (int i = 0; i < 256; i++) right = right && got[i] == i * 3;
  check_that(right, "registers change hands");
}
