/* test_wrappers.cu: every instruction that cuda/device_code/gpu.h wraps, one by one, against its
 * description.
 *
 * On the emulator this tests the emulator; on a GPU it is the first thing to run: a wrong operand
 * or fragment in gpu_ptx.inc, or a wrong idea of one, shows here by name.
 */
#include "tests/cuda/check.h"

/* ---- Tensor cores ---- */

/* Fragments straight from memory, by the layout that gpu.h describes. */
template <class T, bool BF16> __global__ void mma_kernel(const T *a, const T *b, float *c) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4 * 2;
  uint32_t fragment[4], low, high;
  for (int i = 0; i < 4; i++)
    fragment[i] = *(const uint32_t *)(a + (g + i % 2 * 8) * 16 + t + i / 2 * 8);
  T pair[2] = {b[t * 8 + g], b[(t + 1) * 8 + g]};
  memcpy(&low, pair, 4);
  pair[0] = b[(t + 8) * 8 + g], pair[1] = b[(t + 9) * 8 + g];
  memcpy(&high, pair, 4);
  float acc[4];
  for (int i = 0; i < 4; i++) acc[i] = c[(g + i / 2 * 8) * 8 + t + i % 2];
  if (BF16)
    mma_bf16_m16n8k16(acc, fragment, low, high);
  else
    mma_f16_m16n8k16(acc, fragment, low, high);
  for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + t + i % 2] = acc[i];
}

template <class T, bool BF16> static void mma_case() {
  const auto a = random_values<T>(16 * 16, 2), b = random_values<T>(16 * 8, 2);
  const auto c = random_values<float>(16 * 8, 5);
  std::vector<double> expected(c.begin(), c.end());
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++)
      for (int k = 0; k < 16; k++)
        expected[i * 8 + j] += (double)to_float(a[i * 16 + k]) * (double)to_float(b[k * 8 + j]);
  device_array<T> d_a(a), d_b(b);
  device_array<float> d_c(c);
  MUST(LAUNCH((mma_kernel<T, BF16>), (1), (32), 0, nullptr, d_a.p, d_b.p, d_c.p));
  check_close(std::string("mma of ") + name_of<T>(), expected, as_double(d_c.get()), 1e-5, 4);
}

TEST(wrapper_mma) {
  mma_case<bf16_t, true>();
  mma_case<f16_t, false>();
}

/* KIND: matrices, negative when transposed. */
template <int KIND> __global__ void ldmatrix_kernel(const uint16_t *in, uint32_t *out) {
  struct area {
    uint16_t rows[32][8];
  };
  DYN_SMEM(area, s);
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; i++) s->rows[lane][i] = in[lane * 8 + i];
  __syncwarp();
  uint32_t four[4] = {}, two[2] = {};
  if (KIND == 4) ldmatrix_x4(four, s->rows[lane]);
  if (KIND == -4) ldmatrix_x4_trans(four, s->rows[lane]);
  if (KIND == 2) ldmatrix_x2(two, s->rows[lane % 16]);
  if (KIND == -2) ldmatrix_x2_trans(two, s->rows[lane % 16]);
  for (int i = 0; i < 4; i++) out[lane * 4 + i] = KIND == 4 || KIND == -4 ? four[i] : two[i % 2];
}

template <int KIND> static void ldmatrix_case() {
  std::vector<uint16_t> in(32 * 8);
  for (auto &x : in) x = (uint16_t)random_bits();
  device_array<uint16_t> d_in(in);
  device_array<uint32_t> out((size_t)32 * 4);
  MUST(LAUNCH(ldmatrix_kernel<KIND>, (1), (32), 512, nullptr, d_in.p, out.p));
  const auto got = out.get();
  const int matrices = KIND < 0 ? -KIND : KIND;
  bool right = true;
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < matrices; m++)
      for (int high = 0; high < 2; high++) {
        const int row = lane / 4, column = lane % 4 * 2 + high;
        const int at = KIND < 0 ? (m * 8 + column) * 8 + row : (m * 8 + row) * 8 + column;
        right = right && (uint16_t)(got[lane * 4 + m] >> 16 * high) == in[at];
      }
  check_that(right, "ldmatrix " + std::to_string(KIND));
}

TEST(wrapper_ldmatrix) {
  ldmatrix_case<4>();
  ldmatrix_case<-4>();
  ldmatrix_case<2>();
  ldmatrix_case<-2>();
}

/* ---- Copies, barriers, memory ---- */

__global__ void copy_kernel(const uint32_t *in, uint32_t *out) {
  struct area {
    uint32_t word[2][32][4];
  };
  DYN_SMEM(area, s);
  const int lane = threadIdx.x;
  cp_async_16(s->word[0][lane], in + lane * 4, lane % 2 ? 16 : lane % 4 * 4);
  cp_async_commit();
  cp_async_16(s->word[1][lane], in + 128 + lane * 4);
  cp_async_commit();
  cp_async_wait<1>();
  __syncwarp();
  for (int i = 0; i < 4; i++) out[lane * 4 + i] = s->word[0][31 - lane][i];
  cp_async_wait<0>();
  __syncwarp();
  for (int i = 0; i < 4; i++) out[128 + lane * 4 + i] = s->word[1][31 - lane][i];
}

TEST(wrapper_cp_async) {
  std::vector<uint32_t> in(256), expected(256);
  for (auto &x : in) x = (uint32_t)random_bits() | 1;
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      const int from = 31 - lane, bytes = from % 2 ? 16 : from % 4 * 4;
      expected[lane * 4 + i] = i * 4 < bytes ? in[from * 4 + i] : 0;
      expected[128 + lane * 4 + i] = in[128 + from * 4 + i];
    }
  device_array<uint32_t> d_in(in), out((size_t)256);
  MUST(LAUNCH(copy_kernel, (1), (32), 1024, nullptr, d_in.p, out.p));
  check_that(out.get() == expected, "copies, and zeros where less was asked for");
}

/* Warp 0 fills and arrives, warp 1 waits and reads; warp 2 has no part in it. */
__global__ void memory_kernel(const uint4 *in, uint4 *out, int *flag) {
  SHARED(cell, uint4[32]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    prefetch_l2(in + lane);
    cell[lane] = load_16_stream(in + lane);
    bar_arrive(3, 64);
  } else if (warp == 1) {
    bar_sync(3, 64);
    store_16(out + lane, cell[31 - lane]);
  } else if (lane == 0) {
    st_release(flag, ld_acquire(flag) + 41);
  }
}

TEST(wrapper_memory_and_named_barriers) {
  std::vector<uint32_t> in(128), expected(128);
  for (auto &x : in) x = (uint32_t)random_bits();
  for (int i = 0; i < 128; i++) expected[i] = in[(31 - i / 4) * 4 + i % 4];
  device_array<uint32_t> d_in(in), out((size_t)128);
  device_array<int> flag(std::vector<int>{1});
  MUST(LAUNCH(memory_kernel, (1), (96), 0, nullptr, (const uint4 *)d_in.p, (uint4 *)out.p, flag.p));
  check_that(out.get() == expected, "16 bytes at a time, over a named barrier");
  check_that(flag.get()[0] == 42, "acquire and release");
}

/* Lanes of warp 0 copy 16 or 48 bytes each, the others of it only arrive: all at once, as they do
 * in attention_prefill_sm90.cu. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
GPU_FN void bulk_body(const float *in, float *out) {
  struct area {
    float row[64];
    uint64_t full;
  };
  DYN_SMEM(area, s);
  if (threadIdx.x == 0) {
    mbarrier_init(&s->full, 32);
    mbarrier_fence_init();
  }
  __syncthreads();
  const int lane = threadIdx.x, first = lane < 4 ? lane * 4 : 16 + (lane - 4) * 12;
  const unsigned bytes = lane < 4 ? 16 : 48;
  for (int round = 0; round < 3; round++) {
    if (lane < 8) {
      mbarrier_arrive_expect(&s->full, bytes);
      bulk_copy_to_shared(s->row + first, in + round * 64 + first, bytes, &s->full);
    } else if (lane < 32) {
      mbarrier_arrive(&s->full);
    }
    mbarrier_wait(&s->full, round & 1);
    out[round * 64 + threadIdx.x] = s->row[63 - threadIdx.x];
    __syncthreads();
  }
}
#else
GPU_FN void bulk_body(const float *, float *) {}
#endif
__global__ void bulk_kernel(const float *in, float *out) {
  bulk_body(in, out);
}

TEST(wrapper_bulk_copy) {
  int major = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major < 9) { /* the instruction is not there: only the launch is checked, of an empty body */
#if defined(__CUDACC__)
    MUST(LAUNCH(bulk_kernel, (1), (64), 512, nullptr, (const float *)nullptr, (float *)nullptr));
    MUST(cudaDeviceSynchronize());
#endif
    return;
  }
  const auto in = random_values<float>(192, 1);
  std::vector<float> expected(192);
  for (int i = 0; i < 192; i++) expected[i] = in[i / 64 * 64 + 63 - i % 64];
  device_array<float> d_in(in), out((size_t)192);
  MUST(LAUNCH(bulk_kernel, (1), (64), 512, nullptr, d_in.p, out.p));
  check_that(out.get() == expected, "bulk copies and the phases of an mbarrier");
}

/* The threads of warp 0 arrive one by one, those of warp 1 wait for all. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
GPU_FN void arrive_body(const int *in, int *out) {
  struct area {
    int cell[2][32];
    uint64_t full;
  };
  DYN_SMEM(area, s);
  if (threadIdx.x == 0) {
    mbarrier_init(&s->full, 32);
    mbarrier_fence_init();
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int round = 0; round < 2; round++) {
    if (threadIdx.x < 32) {
      s->cell[round][lane] = in[round * 32 + lane];
      mbarrier_arrive(&s->full);
    }
    mbarrier_wait(&s->full, round);
    if (threadIdx.x >= 32) out[round * 32 + lane] = s->cell[round][31 - lane];
    __syncthreads(); /* nobody is a phase behind */
  }
}
#else
GPU_FN void arrive_body(const int *, int *) {}
#endif
__global__ void arrive_kernel(const int *in, int *out) {
  arrive_body(in, out);
}

TEST(wrapper_mbarrier_arrivals) {
  int major = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
#if !defined(__CUDACC__)
  if (major < 9) return;
#endif
  std::vector<int> in(64), expected(64);
  for (int &x : in) x = random_below(1000);
  for (int i = 0; i < 64; i++) expected[i] = in[i / 32 * 32 + 31 - i % 32];
  device_array<int> d_in(in), out((size_t)64);
  MUST(LAUNCH(arrive_kernel, (1), (64), 512, nullptr, d_in.p, out.p));
  const auto got = out.get();
  check_that(major < 9 || got == expected, "arrivals of 32 threads, twice");
}

/* A kernel that may begin before the one before it has ended. */
__global__ void first_kernel(int *value) {
  grid_launch_dependents();
  value[threadIdx.x] += 3;
}
__global__ void dependent_kernel(int *value) {
  grid_dependency_wait();
  value[threadIdx.x] *= 5;
}

TEST(wrapper_dependent_launch) {
  device_array<int> value(std::vector<int>(32, 1));
  launch_options_t overlap = {};
  overlap.may_overlap = true;
  MUST(LAUNCH(first_kernel, (1), (32), 0, nullptr, value.p));
  MUST(LAUNCH_WITH(overlap, dependent_kernel, (1), (32), 0, nullptr, value.p));
  check_that(value.get() == std::vector<int>(32, 20),
             "the second kernel sees the first one's sums");
}

/* ---- Arithmetic ---- */

__global__ void permute_kernel(const uint32_t *in, uint32_t *out) {
  const int i = threadIdx.x;
  out[i] = byte_perm(in[i], in[32 + i], in[64 + i]);
}

TEST(wrapper_byte_perm) {
  std::vector<uint32_t> in(96), expected(32);
  for (auto &x : in) x = (uint32_t)random_bits();
  for (int i = 0; i < 32; i++) {
    in[64 + i] &= 0x7777; /* beyond 7 the manual has other uses */
    const uint64_t bytes = (uint64_t)in[32 + i] << 32 | in[i];
    for (int j = 0; j < 4; j++)
      expected[i] |= (uint32_t)(bytes >> (in[64 + i] >> 4 * j & 7) * 8 & 255) << 8 * j;
  }
  device_array<uint32_t> d_in(in), out((size_t)32);
  MUST(LAUNCH(permute_kernel, (1), (32), 0, nullptr, d_in.p, out.p));
  check_that(out.get() == expected, "bytes by the nibbles of a selector");
}

__global__ void arithmetic_kernel(const float *in, float *out) {
  const int i = threadIdx.x;
  out[i] = exp2_approx(in[i]);
  out[64 + i] = mul_rn(in[i], in[i + 64]);
  out[128 + i] = add_rn(in[i], in[i + 64]);
  out[192 + i] = fma_rn(in[i], in[i + 64], in[i + 128]);
  out[256 + i] = reciprocal_approx(in[i + 64] + 40.0f);
}

TEST(wrapper_arithmetic) {
  auto in = random_values<float>(192, 20);
  in[0] = 0, in[1] = -INFINITY, in[2] = -0.0f, in[3] = -200, in[64] = INFINITY;
  device_array<float> d_in(in), out((size_t)320);
  MUST(LAUNCH(arithmetic_kernel, (1), (64), 0, nullptr, d_in.p, out.p));
  const auto got = out.get();
  check_that(got[0] == 1 && got[2] == 1, "2^0 is exactly 1: a factor that changes nothing");
  check_that(got[1] == 0 && got[3] < 1e-37f, "2^-infinity is 0");
  check_that(got[256] == 0, "1 / infinity is 0");
  bool close = true, exact = true;
  for (int i = 4; i < 64; i++) {
    const double e = std::exp2((double)in[i]);
    close = close && std::fabs((double)got[i] - e) <= e * 4e-7;
    const double inverse = 1.0 / (double)(in[i + 64] + 40.0f);
    close = close && std::fabs((double)got[256 + i] - inverse) <= std::fabs(inverse) * 4e-7;
    volatile float product = in[i] * in[i + 64], sum = in[i] + in[i + 64];
    exact = exact && got[64 + i] == product && got[128 + i] == sum &&
            got[192 + i] == std::fmaf(in[i], in[i + 64], in[i + 128]);
  }
  check_that(close, "2^x and 1 / x");
  check_that(exact, "one rounding each");
}

template <class T> __global__ void e4m3_kernel(uint32_t *out) {
  uint32_t even, odd;
  const uint32_t b = threadIdx.x;
  e4m3_pairs<T>(b | (b ^ 1) << 8 | (b ^ 2) << 16 | (b ^ 3) << 24, even, odd);
  out[2 * b] = even;
  out[2 * b + 1] = odd;
}

template <class T> static void e4m3_case() {
  device_array<uint32_t> out((size_t)512);
  MUST(LAUNCH(e4m3_kernel<T>, (1), (256), 0, nullptr, out.p));
  const auto got = out.get();
  auto value = [](int b) {
    const double size = (b & 0x78) ? std::ldexp(8 + (b & 7), (b >> 3 & 15) - 10)
                                   : std::ldexp(b & 7, -9); /* 0x7f: 480, as gpu.h says */
    return b & 0x80 ? -size : size;
  };
  bool right = true;
  for (int b = 0; b < 256; b++) {
    const float2 even = unpack<T>(got[2 * b]), odd = unpack<T>(got[2 * b + 1]);
    right = right && (double)even.x == value(b) && (double)even.y == value(b ^ 2) &&
            (double)odd.x == value(b ^ 1) && (double)odd.y == value(b ^ 3);
  }
  check_that(right, std::string("e4m3 to pairs of ") + name_of<T>());
}

GPU_FN uint32_t no_nan(uint32_t b) {
  return (b & 0x7f) == 0x7f ? 0 : b;
}

/* Every number but NaN, as any of the four bytes. */
__global__ void e4m3_halves_kernel(uint32_t *out) {
  const uint32_t b = threadIdx.x;
  const uint32_t word = no_nan(b) | no_nan(b ^ 1) << 8 | no_nan(b ^ 2) << 16 | no_nan(b ^ 3) << 24;
  out[2 * b] = e4m3_halves<0>(word);
  out[2 * b + 1] = e4m3_halves<1>(word);
}

TEST(wrapper_e4m3_halves) {
  device_array<uint32_t> out((size_t)512);
  MUST(LAUNCH(e4m3_halves_kernel, (1), (256), 0, nullptr, out.p));
  const auto got = out.get();
  for (int b = 0; b < 256; b++) {
    for (int i = 0; i < 4; i++) {
      const int of = b ^ i, mantissa = of & 7, exponent = of >> 3 & 15;
      if ((of & 0x7f) == 0x7f) continue;
      const double size =
          exponent > 0 ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
      const float2 pair = unpack<f16_t>(got[2 * b + i / 2]);
      const double found = i % 2 == 0 ? pair.x : pair.y;
      check_that(found == (of & 0x80 ? -size : size) && std::signbit(found) == ((of & 0x80) != 0),
                 "e4m3 " + std::to_string(of) + " as a half");
    }
  }
}

/* Products of bf16 numbers of every size, subnormal ones as well. */
__global__ void multiply_kernel(const uint32_t *in, uint32_t *out) {
  out[threadIdx.x] = multiply_bf16x2(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
}

TEST(wrapper_multiply_bf16x2) {
  std::vector<uint32_t> words(512);
  for (uint32_t &word : words) { /* no infinity, no NaN */
    word = (uint32_t)random_below(1 << 16) | (uint32_t)random_below(1 << 16) << 16;
    if ((word & 0x7f80) == 0x7f80) word ^= 0x4000;
    if ((word >> 16 & 0x7f80) == 0x7f80) word ^= 0x40000000;
  }
  words[0] = 0x00c08040, words[1] = 0x7e807e80; /* 2^-126 * 1.5 and -2^-127, times 2^126 */
  device_array<uint32_t> in(words), out((size_t)256);
  MUST(LAUNCH(multiply_kernel, (1), (256), 0, nullptr, in.p, out.p));
  const auto got = out.get();
  for (int i = 0; i < 256; i++) {
    const float2 a = unpack<bf16_t>(words[2 * i]), b = unpack<bf16_t>(words[2 * i + 1]);
    const uint32_t wanted = pack<bf16_t>((float)((double)a.x * b.x), (float)((double)a.y * b.y));
    check_that(got[i] == wanted, "product " + std::to_string(i));
  }
}

TEST(wrapper_e4m3) {
  e4m3_case<bf16_t>();
  e4m3_case<f16_t>();
}
