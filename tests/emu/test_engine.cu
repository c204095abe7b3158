/* test_engine.cu: the emulator itself, on kernels that are right: indices, barriers, collectives,
 * copies, tensor cores, memory. Expected values come from the description in cuda/device_code/gpu.h
 * and the CUDA manuals, never from the emulator.
 */
#include "tests/emu/rig.h"

#include <math.h>

/* ---- Indices and barriers ---- */

__global__ void index_kernel(int *out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = (int)(block * 1000 + thread);
}

TEST(every_thread_runs_once_with_its_indices) {
  const int blocks = 3 * 2 * 2, threads = 8 * 4 * 3;
  device_array<int> out(blocks * threads);
  MUST(LAUNCH(index_kernel, (3, 2, 2), (8, 4, 3), 0, nullptr, out.p));
  const std::vector<int> got = out.get();
  bool right = true;
  for (int b = 0; b < blocks; b++)
    for (int t = 0; t < threads; t++) right = right && got[b * threads + t] == b * 1000 + t;
  check_that(right, "indices");
}

__global__ void mark_kernel(int *out) {
  out[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)] = 1;
}

/* Blocks of the marked grid, in the order x, y, z. */
static std::vector<int> marked(dim3 grid) {
  device_array<int> out(std::vector<int>(grid.x * grid.y * grid.z));
  MUST(LAUNCH(mark_kernel, (grid), (1), 0, nullptr, out.p));
  return out.get();
}

TEST(only_the_last_blocks_run_when_asked) {
  setenv("EMU_BLOCKS", "last", 1);
  check_that(marked(dim3(3, 2, 1)) == std::vector<int>({0, 0, 1, 0, 0, 1}), "of x");
  check_that(marked(dim3(2, 3, 1)) == std::vector<int>({0, 0, 0, 0, 1, 1}), "of y");
  check_that(marked(dim3(1, 2, 3)) == std::vector<int>({0, 0, 0, 0, 1, 1}), "of z");
  unsetenv("EMU_BLOCKS");
  check_that(marked(dim3(3, 1, 1)) == std::vector<int>({1, 1, 1}), "all");
}

/* Each round reads what the neighbour wrote in the last: any missing round shows. */
__global__ void barrier_kernel(int *out, int rounds) {
  SHARED(cell, int[2][96]);
  const int i = threadIdx.x, next = (i + 1) % 96;
  cell[0][i] = i;
  __syncthreads();
  for (int r = 0; r < rounds; r++) {
    cell[(r + 1) & 1][i] = cell[r & 1][next] + 1;
    __syncthreads();
  }
  out[i] = cell[rounds & 1][i];
}

TEST(a_barrier_separates_writes_from_reads) {
  device_array<int> out(96);
  MUST(LAUNCH(barrier_kernel, (1), (96), 0, nullptr, out.p, 7));
  const std::vector<int> got = out.get();
  bool right = true;
  for (int i = 0; i < 96; i++) right = right && got[i] == (i + 7) % 96 + 7;
  check_that(right, "barrier rounds");
}

__global__ void barrier_votes_kernel(int *out) {
  const int odd = threadIdx.x & 1, all = 1, first = threadIdx.x == 0;
  const int count = __syncthreads_count(odd);
  const int every = __syncthreads_and(all) * 10 + __syncthreads_and(first);
  const int some = __syncthreads_or(first) * 10 + __syncthreads_or(0);
  if (threadIdx.x == 63) out[0] = count, out[1] = every, out[2] = some;
}

TEST(barriers_count_and_vote) {
  device_array<int> out(3);
  MUST(LAUNCH(barrier_votes_kernel, (1), (64), 0, nullptr, out.p));
  const std::vector<int> got = out.get();
  check_that(got[0] == 32, "__syncthreads_count");
  check_that(got[1] == 10, "__syncthreads_and");
  check_that(got[2] == 10, "__syncthreads_or");
}

/* Warp 0 produces for warp 1 over two named barriers; warp 2 never meets them. */
__global__ void named_barrier_kernel(int *out) {
  SHARED(box, int[32]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < 3; r++) {
    if (warp == 0) {
      if (r > 0) bar_sync(2, 64);
      box[lane] = r * 100 + lane;
      bar_arrive(1, 64);
    } else if (warp == 1) {
      bar_sync(1, 64);
      out[r * 32 + lane] = box[31 - lane];
      if (r < 2) bar_arrive(2, 64);
    }
  }
}

TEST(named_barriers_hand_over) {
  device_array<int> out(96);
  MUST(LAUNCH(named_barrier_kernel, (1), (96), 0, nullptr, out.p));
  const std::vector<int> got = out.get();
  bool right = true;
  for (int i = 0; i < 96; i++) right = right && got[i] == i / 32 * 100 + 31 - i % 32;
  check_that(right, "named barriers");
}

/* ---- Collectives of a warp ---- */

__global__ void shuffle_kernel(int *out) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_sync(~0u, lane * 3, 5);
  out[32 + lane] = __shfl_up_sync(~0u, lane * 3, 2u, 8);
  out[64 + lane] = __shfl_down_sync(~0u, lane * 3, 3u, 16);
  out[96 + lane] = __shfl_xor_sync(~0u, lane * 3, 9);
  const double wide = __shfl_xor_sync(~0u, lane + 0.5, 1);
  out[128 + lane] = (int)(wide * 2);
}

TEST(shuffles_read_the_lane_they_name) {
  device_array<int> out(160);
  MUST(LAUNCH(shuffle_kernel, (1), (32), 0, nullptr, out.p));
  const std::vector<int> got = out.get();
  bool right[5] = {true, true, true, true, true};
  for (int i = 0; i < 32; i++) {
    right[0] = right[0] && got[i] == 15;
    right[1] = right[1] && got[32 + i] == 3 * (i % 8 < 2 ? i : i - 2);
    right[2] = right[2] && got[64 + i] == 3 * (i % 16 > 12 ? i : i + 3);
    right[3] = right[3] && got[96 + i] == 3 * (i ^ 9);
    right[4] = right[4] && got[128 + i] == 2 * (i ^ 1) + 1;
  }
  check_that(right[0], "__shfl_sync");
  check_that(right[1], "__shfl_up_sync, width 8");
  check_that(right[2], "__shfl_down_sync, width 16");
  check_that(right[3], "__shfl_xor_sync");
  check_that(right[4], "a shuffle of a double");
}

__global__ void vote_kernel(unsigned *out) {
  const int lane = threadIdx.x;
  unsigned r[10];
  r[0] = __ballot_sync(~0u, lane % 3 == 0);
  r[1] = __any_sync(~0u, lane == 31) * 10 + __any_sync(~0u, 0);
  r[2] = __all_sync(~0u, lane < 32) * 10 + __all_sync(~0u, lane != 4);
  r[3] = __match_any_sync(~0u, (unsigned)(lane / 16));
  r[4] = __reduce_add_sync(~0u, (unsigned)lane);
  r[5] = (unsigned)__reduce_min_sync(~0u, lane - 16);
  r[6] = __reduce_max_sync(~0u, (unsigned)(lane * 7 % 32));
  /* Two halves meet apart, each under its own mask. */
  r[7] = lane < 16 ? __ballot_sync(0xffffu, lane == 2) : __ballot_sync(0xffff0000u, lane == 20);
  r[8] = __reduce_or_sync(~0u, 1u << lane % 4);
  r[9] = (unsigned)__reduce_max_sync(~0u, -1 - lane);
  if (lane == 3)
    for (int i = 0; i < 10; i++) out[i] = r[i];
}

TEST(votes_and_reductions) {
  device_array<unsigned> out(10);
  MUST(LAUNCH(vote_kernel, (1), (32), 0, nullptr, out.p));
  const std::vector<unsigned> expected = {0x49249249u, 10,  10,   0xffffu, 496,
                                          0xfffffff0u, 31u, 0x4u, 0xfu,    0xffffffffu};
  const std::vector<unsigned> got = out.get();
  for (size_t i = 0; i < expected.size(); i++)
    check_that(got[i] == expected[i], "vote " + std::to_string(i));
}

__global__ void atomic_kernel(int *sum, float *fsum, int *top, unsigned *ring, int *first) {
  atomicAdd(sum, (int)threadIdx.x);
  atomicAdd(fsum, 0.5f);
  atomicMax(top, (int)(threadIdx.x * 37 % 256));
  atomicInc(ring, 9u);
  atomicCAS(first, -1, 7);
}

TEST(atomics_add_up) {
  device_array<int> sum(std::vector<int>{0, -5, -1});
  device_array<float> fsum(std::vector<float>{0});
  device_array<unsigned> ring(std::vector<unsigned>{0});
  MUST(LAUNCH(atomic_kernel, (4), (256), 0, nullptr, sum.p, fsum.p, sum.p + 1, ring.p, sum.p + 2));
  const std::vector<int> got = sum.get();
  check_that(got[0] == 4 * 255 * 128, "atomicAdd");
  check_that(fsum.get()[0] == 512.0f, "atomicAdd of floats");
  check_that(got[1] == 255, "atomicMax");
  check_that(ring.get()[0] == 1024 % 10, "atomicInc");
  check_that(got[2] == 7, "atomicCAS");
}

/* ---- Memory and copies ---- */

__global__ void poison_kernel(unsigned *out) {
  struct area {
    unsigned word[8];
  };
  DYN_SMEM(area, dynamic);
  SHARED(fixed, unsigned[4]);
  if (threadIdx.x) return;
  out[0] = dynamic->word[7];
  out[1] = fixed[3];
  dynamic->word[7] = fixed[3] = 0;
}

TEST(shared_memory_begins_poisoned_in_every_block) {
  expect_check("that nobody wrote", "poison", [] {
    std::vector<unsigned> got(2);
    unsigned *out;
    MUST(cudaMalloc(&out, 8));
    (void)LAUNCH(poison_kernel, (5), (32), 32, nullptr, out);
    cudaMemcpy(got.data(), out, 8, cudaMemcpyDeviceToHost);
    cudaFree(out);
    return got == std::vector<unsigned>({~0u, ~0u});
  });
}

/* Three groups in flight over three stages. */
__global__ void ring_kernel(const uint32_t *in, uint32_t *out, int chunks) {
  struct area {
    uint32_t stage[3][32][4];
  };
  DYN_SMEM(area, s);
  const int lane = threadIdx.x;
  for (int c = 0; c < 2; c++) {
    cp_async_16(s->stage[c][lane], in + (c * 32 + lane) * 4);
    cp_async_commit();
  }
  for (int c = 0; c < chunks; c++) {
    if (c + 2 < chunks)
      cp_async_16(s->stage[(c + 2) % 3][lane], in + ((c + 2) * 32 + lane) * 4, 12);
    cp_async_commit();
    cp_async_wait<2>();
    __syncwarp();
    for (int i = 0; i < 4; i++) out[(c * 32 + lane) * 4 + i] = s->stage[c % 3][31 - lane][i];
    __syncwarp();
  }
  cp_async_wait<0>();
}

TEST(cp_async_delivers_in_order_and_fills_with_zero) {
  const int chunks = 7, n = chunks * 128;
  std::vector<uint32_t> in(n);
  for (int i = 0; i < n; i++) in[i] = (uint32_t)i + 1;
  device_array<uint32_t> from(in), to(n);
  MUST(LAUNCH(ring_kernel, (1), (32), 3 * 512, nullptr, from.p, to.p, chunks));
  const std::vector<uint32_t> got = to.get();
  bool right = true;
  for (int c = 0; c < chunks; c++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        const uint32_t sent = c >= 2 && i == 3 ? 0 : in[(c * 32 + 31 - lane) * 4 + i];
        right = right && got[(c * 32 + lane) * 4 + i] == sent;
      }
  check_that(right, "cp.async ring");
}

__global__ void bulk_kernel(const float *in, float *out, int rounds) {
  struct area {
    float row[2][64];
    uint64_t full[2];
  };
  DYN_SMEM(area, s);
  if (threadIdx.x == 0) {
    mbarrier_init(&s->full[0], 1);
    mbarrier_init(&s->full[1], 1);
    mbarrier_fence_init();
  }
  __syncthreads();
  for (int r = 0; r < rounds; r++) {
    const int stage = r & 1;
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(&s->full[stage], sizeof s->row[0]);
      bulk_copy_to_shared(s->row[stage], in + r * 64, sizeof s->row[0], &s->full[stage]);
    }
    mbarrier_wait(&s->full[stage], r / 2 & 1);
    out[r * 64 + threadIdx.x] = s->row[stage][63 - threadIdx.x];
    __syncthreads();
  }
}

TEST(bulk_copies_end_a_phase_of_their_mbarrier) {
  const int rounds = 5;
  std::vector<float> in(rounds * 64);
  for (size_t i = 0; i < in.size(); i++) in[i] = (float)i;
  device_array<float> from(in), to(in.size());
  MUST(LAUNCH(bulk_kernel, (1), (64), 2 * 256 + 16, nullptr, from.p, to.p, rounds));
  const std::vector<float> got = to.get();
  bool right = true;
  for (int i = 0; i < rounds * 64; i++)
    right = right && got[i] == (float)(i / 64 * 64 + 63 - i % 64);
  check_that(right, "bulk copies");
}

/* The lanes of warp 1 write behind their signal what thread 0 reads behind its wait. */
__global__ void signals_early(int *out, bool is_named) {
  struct area {
    uint64_t full;
    int cell[32];
  };
  DYN_SMEM(area, s);
  if (threadIdx.x == 0) {
    mbarrier_init(&s->full, 32);
    mbarrier_fence_init();
  }
  if (threadIdx.x < 32) s->cell[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (is_named)
      bar_arrive(1, 64);
    else
      mbarrier_arrive(&s->full);
    s->cell[threadIdx.x - 32] = 1;
    return;
  }
  if (is_named) bar_sync(1, 64);
  if (threadIdx.x > 0) return;
  if (!is_named) mbarrier_wait(&s->full, 0);
  *out = 0;
  for (int cell : s->cell) *out += cell;
}

/* In random order others may go on behind whatever they can see. */
TEST(who_signals_early_is_seen) {
  const emu::Order before = emu::settings.order;
  emu::settings.order = emu::ORDER_RANDOM;
  for (bool is_named : {false, true}) {
    expect_check("race", "a write behind the signal", [&] {
      device_array<int> out(1);
      bool seen = false;
      for (int i = 0; i < 64 && !seen; i++) {
        if (LAUNCH(signals_early, (1), (64), 8 + 128, nullptr, out.p, is_named) != cudaSuccess)
          break;
        if (cudaDeviceSynchronize() != cudaSuccess) break;
        seen = out.get()[0] < 32;
      }
      return seen;
    });
  }
  emu::settings.order = before;
}

/* ---- Tensor cores ---- */

/* One 16 x 16 by 16 x 8 product; B in shared memory as (k, n) and loaded transposed. */
template <class T> __global__ void product_kernel(const T *a, const T *b, float *c) {
  struct area {
    T a[16][16], b[16][8];
  };
  DYN_SMEM(area, s);
  const int lane = threadIdx.x;
  cp_async_16(&s->a[lane / 2][lane % 2 * 8], a + lane * 8);
  if (lane < 16) cp_async_16(s->b[lane], b + lane * 8);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  uint32_t fa[4], fb[2];
  ldmatrix_x4(fa, &s->a[lane % 16][lane / 16 * 8]);
  ldmatrix_x2_trans(fb, s->b[lane % 16]);
  float acc[4];
  for (int i = 0; i < 4; i++) acc[i] = (float)i;
  if (sizeof(T) == 2 && is_bf16<T>())
    mma_bf16_m16n8k16(acc, fa, fb[0], fb[1]);
  else
    mma_f16_m16n8k16(acc, fa, fb[0], fb[1]);
  for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

template <class T> static void check_product(const char *what) {
  const std::vector<T> a = random_values<T>(256, 2), b = random_values<T>(128, 2);
  device_array<T> da(a), db(b);
  device_array<float> dc(128);
  MUST(LAUNCH(product_kernel<T>, (1), (32), 768, nullptr, da.p, db.p, dc.p));
  std::vector<double> expected(128);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) {
      double sum = i / 8 * 2 + j % 2; /* what the accumulator began with */
      for (int k = 0; k < 16; k++) sum += (double)to_float(a[i * 16 + k]) * to_float(b[k * 8 + j]);
      expected[i * 8 + j] = sum;
    }
  const std::vector<float> got = dc.get();
  check_close(what, expected, std::vector<double>(got.begin(), got.end()), 1e-5, 1);
}

TEST(a_product_of_fragments_is_the_product_of_matrices) {
  check_product<bf16_t>("mma bf16");
  check_product<f16_t>("mma f16");
}

/* ---- Conversions ---- */

TEST(half_and_bf16_round_to_nearest_even) {
  check_that(__float2bfloat16_rn(1.00390625f).bits == 0x3f80, "a tie goes to even");
  check_that(__float2bfloat16_rn(1.01171875f).bits == 0x3f82, "a tie goes to even, upwards");
  check_that(__float2bfloat16_rn(NAN).bits == 0x7fff, "NaN to bf16");
  check_that(__float2half_rn(65519.0f).bits == 0x7bff, "the largest half");
  check_that(__float2half_rn(65520.0f).bits == 0x7c00, "overflow to infinity");
  check_that(__float2half_rn(0x1p-24f).bits == 1, "the smallest half");
  check_that(__float2half_rn(0x1p-25f).bits == 0, "half of the smallest, a tie");
  check_that(__float2half_rn(-0x1.8p-24f).bits == 0x8002, "a subnormal tie");
  bool exact = true;
  for (int bits = 0; bits < 0x7c00; bits++)
    exact = exact && __float2half_rn(__half2float(f16_t{(uint16_t)bits})).bits == bits;
  check_that(exact, "halves survive a round trip");
}

TEST(e4m3_is_the_nearest_of_its_values) {
  std::vector<float> values;
  for (int bits = 0; bits < 0x7f; bits++) {
    const float v = e4m3_to_float((uint8_t)bits);
    const int exponent = bits >> 3, mantissa = bits & 7;
    const float formula =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    check_that(v == formula, "e4m3 value " + std::to_string(bits));
    check_that(float_to_e4m3(v) == bits && float_to_e4m3(-v) == (bits | 0x80), "e4m3 round trip");
    values.push_back(v);
  }
  for (int i = 0; i < 20000; i++) {
    const float x = ldexpf(random_float(1), random_below(22) - 12);
    const float got = e4m3_to_float(float_to_e4m3(x));
    float best = 0;
    for (float v : values)
      if (fabsf(v - fabsf(x)) < fabsf(best - fabsf(x))) best = v;
    check_that(fabsf(fabsf(got) - fabsf(x)) == fabsf(best - fabsf(x)), "nearest e4m3");
  }
  check_that(float_to_e4m3(1e9f) == 0x7e && float_to_e4m3(-INFINITY) == 0xfe, "saturation");
  check_that(isnan(e4m3_to_float(float_to_e4m3(NAN))), "NaN");
}

/* ---- Blocks that wait for each other ---- */

__global__ void relay_kernel(int *token) {
  if (threadIdx.x == 0) {
    while (ld_acquire(token) != (int)blockIdx.x) SPIN_PAUSE();
    st_release(token, (int)blockIdx.x + 1);
  }
}

TEST(blocks_that_are_resident_together_may_poll) {
  device_array<int> token(std::vector<int>{0});
  launch_options_t together = {};
  together.cooperative = true;
  MUST(LAUNCH_WITH(together, relay_kernel, (6), (64), 0, nullptr, token.p));
  check_that(token.get()[0] == 6, "relay");
}
