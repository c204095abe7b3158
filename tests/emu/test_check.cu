/* test_check.cu: what the checker must find, and what it must not; only in the `check` flavour.
 *
 * Each kernel has one mistake that a lucky order hides. The last tests are right kernels with every
 * way of meeting that the checker knows.
 */
#include "tests/emu/rig.h"

#if !defined(EMU_CHECK)
#error "for the check flavour"
#endif

#define EXPECT_REPORT(launch, ...)                                                                 \
  do {                                                                                             \
    fault_watch watch;                                                                             \
    (void)(launch);                                                                                \
    cudaDeviceSynchronize();                                                                       \
    check_that(watch.saw({__VA_ARGS__}), std::string(#launch ": ") + emu::fault_text());           \
  } while (0)

/* Warp 1 overwrites what warp 0 read: no value shows it. */
__global__ void overwrites_unread(int *out) {
  SHARED(cell, int[64]);
  cell[threadIdx.x] = (int)threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = cell[63 - threadIdx.x];
  cell[threadIdx.x] = 7;
}
__global__ void two_writers() {
  SHARED(cell, int[64]);
  cell[threadIdx.x / 2] = 1;
}
__global__ void neighbours_in_a_warp(int *out) {
  SHARED(cell, int[32]);
  cell[threadIdx.x] = 1;
  __syncwarp();
  out[threadIdx.x] = cell[threadIdx.x ^ 1];
  cell[threadIdx.x] = 2;
}
/* A warp's barrier does not order other warps. */
__global__ void warp_barrier_only(int *out) {
  SHARED(cell, int[64]);
  cell[threadIdx.x] = 1;
  __syncwarp();
  out[threadIdx.x] = cell[63 - threadIdx.x];
}
__global__ void copies_into_what_is_read(const float *in, float *out) {
  SHARED(row, float4[64]);
  row[threadIdx.x] = make_float4(0, 0, 0, 0);
  __syncthreads();
  out[threadIdx.x] = row[63 - threadIdx.x].x;
  cp_async_16(&row[threadIdx.x], in + threadIdx.x * 4);
  cp_async_commit();
  cp_async_wait<0>();
}

TEST(races_in_shared_memory) {
  device_array<int> out(64);
  device_array<float> in(std::vector<float>(256, 1.0f)), sums(64);
  EXPECT_REPORT(LAUNCH(overwrites_unread, (1), (64), 0, nullptr, out.p), "race",
                "kernel overwrites_unread", "test_check.cu:");
  EXPECT_REPORT(LAUNCH(two_writers, (1), (64), 0, nullptr), "race", "test_check.cu:");
  EXPECT_REPORT(LAUNCH(neighbours_in_a_warp, (1), (32), 0, nullptr, out.p), "race");
  EXPECT_REPORT(LAUNCH(warp_barrier_only, (1), (64), 0, nullptr, out.p), "shared memory");
  EXPECT_REPORT(LAUNCH(copies_into_what_is_read, (1), (64), 0, nullptr, in.p, sums.p), "race");
}

__global__ void reads_neighbour_block(int *out) {
  if (threadIdx.x > 0) return;
  out[blockIdx.x] = 1;
  if (blockIdx.x == 1) out[0] = out[1] + 1;
}
__global__ void hands_over_without_barrier(int *out) {
  out[threadIdx.x] = 1;
  out[64 + threadIdx.x] = out[63 - threadIdx.x];
}
__global__ void reads_pointer(const int *p, int *out) {
  out[threadIdx.x] = *p;
}

/* An atomic operation orders the word itself, nothing else and no plain access. */
__global__ void adds_without_barrier(int *out) {
  out[threadIdx.x] = 0;
  atomicAdd(&out[63 - threadIdx.x], 1);
}
__global__ void reads_sum_without_barrier(int *out) {
  atomicAdd(&out[threadIdx.x / 2], 1);
  out[64 + threadIdx.x] = out[threadIdx.x / 4];
}
__global__ void reads_shared_sum_without_barrier(int *out) {
  SHARED(sum, int);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1);
  out[threadIdx.x] = sum;
}
__global__ void hands_over_behind_an_atomic(int *out) {
  atomicAdd(&out[0], 1);
  out[64 + threadIdx.x] = 1;
  __syncthreads();
  out[64 + threadIdx.x] = out[127 - threadIdx.x];
}

/* The warp that comes last reads what the others wrote before their tickets. */
__global__ void hands_over_by_tickets(unsigned *out, bool has_barrier) {
  const unsigned me = threadIdx.x;
  unsigned before = 0;
  out[64 + me] = me;
  if (has_barrier) __syncwarp();
  if (me % 32 == 0) before = atomicInc(out, 1);
  if (__shfl_sync(~0u, before, 0) != 1) return;
  __syncwarp();
  out[128 + me] = out[64 + (me + 32) % 64];
}
__global__ void reads_before_its_ticket(unsigned *out) {
  out[64 + threadIdx.x] = threadIdx.x;
  __syncwarp();
  if (threadIdx.x >= 32) out[128 + threadIdx.x] = out[64 + threadIdx.x - 32];
  if (threadIdx.x % 32 == 0) atomicInc(out, 1);
}

TEST(atomic_operations_hand_over) {
  device_array<unsigned> out(std::vector<unsigned>(192));
  MUST(LAUNCH(hands_over_by_tickets, (1), (64), 0, nullptr, out.p, true));
  check_that(out.get()[0] == 0, "the ticket is 0 again");
  EXPECT_REPORT(LAUNCH(hands_over_by_tickets, (1), (64), 0, nullptr, out.p, false), "race",
                "device memory");
  EXPECT_REPORT(LAUNCH(reads_before_its_ticket, (1), (64), 0, nullptr, out.p), "race",
                "device memory");
}

TEST(atomic_operations) {
  device_array<int> out(std::vector<int>(128));
  EXPECT_REPORT(LAUNCH(adds_without_barrier, (1), (64), 0, nullptr, out.p), "race",
                "atomic operation", "device memory");
  EXPECT_REPORT(LAUNCH(reads_sum_without_barrier, (1), (64), 0, nullptr, out.p), "race",
                "atomic operation", "device memory");
  EXPECT_REPORT(LAUNCH(reads_shared_sum_without_barrier, (1), (64), 0, nullptr, out.p), "race",
                "atomic operation", "shared memory");
  EXPECT_REPORT(LAUNCH(hands_over_behind_an_atomic, (1), (64), 0, nullptr, out.p), "race",
                "device memory", "test_check.cu:");
}

TEST(device_memory) {
  device_array<int> out(64);
  static int *host = new int(3);
  EXPECT_REPORT(LAUNCH(reads_neighbour_block, (2), (32), 0, nullptr, out.p), "race",
                "of this launch");
  device_array<int> pairs(128);
  EXPECT_REPORT(LAUNCH(hands_over_without_barrier, (1), (64), 0, nullptr, pairs.p), "race",
                "device memory", "test_check.cu:");
  EXPECT_REPORT(LAUNCH(reads_pointer, (1), (32), 0, nullptr, host, out.p), "not in device memory",
                "test_check.cu:");
}

__global__ void writes_row(int *p) {
  p[threadIdx.x] = 1;
}
__global__ void reads_early(const int *p, int *out) {
  const int early = p[threadIdx.x];
  grid_dependency_wait();
  out[threadIdx.x] = early;
}
__global__ void writes_early(int *out) {
  out[threadIdx.x] = 1;
  grid_dependency_wait();
}
__global__ void never_waits_for_it(int *) {}
/* The next launch may then run before the one before this has ended. */
__global__ void lets_come_early(int *out) {
  grid_launch_dependents();
  grid_dependency_wait();
  out[threadIdx.x] = 1;
}

TEST(launches_that_overlap) {
  device_array<int> row(32), other(32), out(32);
  launch_options_t overlap = {};
  overlap.may_overlap = true;
  MUST(LAUNCH(writes_row, (1), (32), 0, nullptr, row.p));
  EXPECT_REPORT(LAUNCH_WITH(overlap, reads_early, (1), (32), 0, nullptr, row.p, out.p),
                "before grid_dependency_wait", "test_check.cu:");
  EXPECT_REPORT(LAUNCH_WITH(overlap, writes_early, (1), (32), 0, nullptr, out.p),
                "before grid_dependency_wait");
  EXPECT_REPORT(LAUNCH_WITH(overlap, never_waits_for_it, (1), (32), 0, nullptr, out.p),
                "without grid_dependency_wait");
  EXPECT_REPORT(LAUNCH_WITH(overlap, lets_come_early, (1), (32), 0, nullptr, out.p),
                "grid_launch_dependents before grid_dependency_wait");
  MUST(LAUNCH(lets_come_early, (1), (32), 0, nullptr, out.p)); /* nothing runs beside it */
  MUST(LAUNCH(writes_row, (1), (32), 0, nullptr, other.p));
  MUST(LAUNCH(writes_row, (1), (32), 0, nullptr, row.p)); /* weights of long ago may be read */
  MUST(LAUNCH_WITH(overlap, reads_early, (1), (32), 0, nullptr, other.p, out.p));
  check_that(out.get()[5] == 1, "an early read of what another launch wrote");
}

/* A warp counts, one lane clears the count; then the block counts. */
__global__ void counts(int *out) {
  SHARED(sum, int);
  if (threadIdx.x < 32) {
    atomicAdd(&out[64], 1);
    __syncwarp();
    if (threadIdx.x == 5) out[65] = out[64], out[64] = 0;
  }
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1);
  atomicAdd(&out[64], 1);
  __syncthreads();
  out[threadIdx.x] = sum + out[64] + out[65];
}

/* Blocks add to a counter, and the last one reads what all of them wrote. */
enum mistake {
  NONE,
  BARRIER_OF_WARP,
  NO_BARRIER,
  NO_FENCE_BEFORE,
  FENCE_OF_BLOCK,
  NO_FENCE_BEHIND
};
__global__ void last_block_sums(int *parts, int *ticket, int *out, mistake mistake) {
  SHARED(last, int);
  SHARED(cell, int[2][64]);
  parts[blockIdx.x * 64 + threadIdx.x] = (int)threadIdx.x;
  if (mistake == FENCE_OF_BLOCK) __threadfence_block();
  if (mistake != FENCE_OF_BLOCK && mistake != NO_FENCE_BEFORE) __threadfence();
  if (mistake == BARRIER_OF_WARP) __syncwarp();
  if (mistake != BARRIER_OF_WARP && mistake != NO_BARRIER) __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1) == (int)gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  if (mistake != NO_FENCE_BEHIND) __threadfence();
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i * 64 + threadIdx.x];
  cell[0][threadIdx.x] = sum;
  __syncwarp();
  cell[1][threadIdx.x] = cell[0][threadIdx.x ^ 1];
  __syncthreads();
  out[threadIdx.x] = cell[1][63 - threadIdx.x];
  __syncthreads();
  cell[0][63 - threadIdx.x] = 1;
}

/* The last block reads before all of its threads know that it is the last. */
__global__ void last_block_hurries(int *parts, int *ticket) {
  if (threadIdx.x == 0) parts[blockIdx.x] = 1, atomicAdd(ticket, 1);
  if (blockIdx.x == gridDim.x - 1) parts[gridDim.x + threadIdx.x] = parts[0];
}
/* Each thread tells of its own writes alone. */
__global__ void threads_tell_blocks(int *parts, int *ticket) {
  parts[blockIdx.x * 64 + threadIdx.x] = 1;
  __threadfence();
  const int before = atomicAdd(&ticket[threadIdx.x], 1);
  __threadfence();
  if (before == (int)gridDim.x - 1) parts[threadIdx.x] = 2;
}
/* The last block writes what all have read; one thread fences for its block. */
__global__ void last_block_passes_turn(int *turn, bool fences) {
  const int mine = turn[0];
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();
  if (atomicAdd(&turn[1], 1) < (int)gridDim.x - 1) return;
  if (fences) __threadfence();
  turn[0] = mine + 1;
}

TEST(blocks_that_meet_by_tickets) {
  device_array<int> parts(4 * 64), ticket(std::vector<int>(64)), out(64);
  for (mistake mistake :
       {BARRIER_OF_WARP, NO_BARRIER, NO_FENCE_BEFORE, FENCE_OF_BLOCK, NO_FENCE_BEHIND}) {
    MUST(cudaMemset(ticket.p, 0, sizeof(int)));
    EXPECT_REPORT(LAUNCH(last_block_sums, (4), (64), 0, nullptr, parts.p, ticket.p, out.p, mistake),
                  "race", "of this launch", "test_check.cu:");
  }
  EXPECT_REPORT(LAUNCH(last_block_hurries, (3), (32), 0, nullptr, parts.p, ticket.p), "race",
                "of this launch");
  MUST(cudaMemset(ticket.p, 0, 64 * sizeof(int)));
  MUST(LAUNCH(threads_tell_blocks, (3), (64), 0, nullptr, parts.p, ticket.p));
  check_that(parts.get()[9] == 2, "the last of each");
}

TEST(a_block_writes_what_others_have_read) {
  device_array<int> turn(std::vector<int>{4, 0});
  MUST(LAUNCH(last_block_passes_turn, (3), (64), 0, nullptr, turn.p, true));
  check_that(turn.get()[0] == 5, "the turn");
  MUST(cudaMemset(turn.p, 0, 2 * sizeof(int)));
  EXPECT_REPORT(LAUNCH(last_block_passes_turn, (3), (64), 0, nullptr, turn.p, false), "race",
                "read by block");
}

TEST(right_kernels_are_not_reported) {
  device_array<int> parts(4 * 64), ticket(std::vector<int>{0}), out(64);
  MUST(LAUNCH(last_block_sums, (4), (64), 0, nullptr, parts.p, ticket.p, out.p, NONE));
  const std::vector<int> got = out.get();
  bool right = true;
  for (int i = 0; i < 64; i++) right = right && got[i] == 4 * ((63 - i) ^ 1);
  check_that(right, "sums of all blocks");
  device_array<int> counted(std::vector<int>(66));
  MUST(LAUNCH(counts, (1), (64), 0, nullptr, counted.p));
  check_that(counted.get()[9] == 64 + 64 + 32, "counts");
}
