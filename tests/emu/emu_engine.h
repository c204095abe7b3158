/* emu_engine.h: what emulated kernels and the fake runtime call of the emulator.
 *
 * A kernel runs on the thread that drains the stream, one fiber per CUDA thread, one block after
 * another (a cluster's or cooperative grid's blocks together). A fiber runs until it meets a
 * barrier, a collective of its warp, an mbarrier or a poll; the order of fibers, blocks and late
 * copies is chosen to be unkind (EMU_ORDER=fwd|rev|random, EMU_SEED=n, EMU_ASYNC=late|eager). In
 * random order it may also have to stop behind whatever others can see: a signal, a copy, a fence.
 * EMU_BLOCKS=last runs only the blocks that stand last in the longest dimension of their grid: what
 * lies beyond 2^31 elements is tested without all that comes before; `none` runs none: launches are
 * checked, and no more. It is read at each launch.
 * A fault of a kernel is reported with kernel, block, thread, file and line; then the process
 * aborts, or with EMU_ABORT=0 the launch fails. Functions without a note run inside a kernel only.
 */
#ifndef EMU_ENGINE_H
#define EMU_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define EMU_SITE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_HERE                                                                                   \
  emu::Site {                                                                                      \
    emu_file, emu_line                                                                             \
  }

namespace emu {

struct Site {
  const char *file;
  int line;
};

/* What a CUDA thread may see of itself. */
struct Thread {
  uint3 index, block;
  dim3 block_size, grid_size;
  unsigned linear, lane, warp; /* in the block */
  unsigned rank;               /* of the block in its cluster */
};
extern __thread Thread *current; /* null outside kernels */

struct LaunchShape {
  const char *name;
  dim3 grid, block;
  size_t shared_bytes;
  unsigned cluster;
  bool cooperative, may_overlap;
};

struct Argument {
  const void *value;
  size_t size;
};
enum { ARGUMENTS_MAX = 16 };

/* A whole launch: `run(argument)` is called once on every CUDA thread. */
struct Launch {
  LaunchShape shape;
  void (*run)(void *argument);
  void *argument;
  size_t argument_bytes;
  const void *kernel; /* what cudaFuncSetAttribute was told */
  /* The arguments one by one, at most ARGUMENTS_MAX; returns their number. */
  unsigned (*list)(void *argument, Argument *places);
};

/* Runs a grid to its end, on the host; false after a fault, whose text is on stderr. */
bool run_grid(const Launch &launch);
/* What a stream does with a launch: run_grid, unless a test puts something else there. */
extern bool (*launch_runner)(const Launch &launch);
/* On the host: faults so far, and the text of the last one ("" without one). */
unsigned fault_count();
const char *fault_text();

/* griddepcontrol.wait; a launch that may overlap must come here on every thread. */
void dependency_wait();
/* griddepcontrol.launch_dependents; a launch that may overlap has waited first: or the next one may
 * run before the one before this has ended, and its wait does not wait for that. */
void dependents_launch();
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void spin();
/* Behind a signal, a copy or a fence: in random order another thread may be first. */
void may_yield();

enum BarrierKind { BARRIER_PLAIN, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };
/* threads 0 means all of the block; id is 0..15. */
int barrier_sync(unsigned id, unsigned threads, BarrierKind kind, int predicate, Site site);
void barrier_arrive(unsigned id, unsigned threads, Site site);
void cluster_sync(Site site);
void grid_sync(Site site);

/* The last lane of `mask` to arrive calls `work` with every lane's argument, for all of them. */
typedef void (*WarpWork)(void **arguments, uint32_t mask);
void warp_collective(uint32_t mask, const char *what, bool aligned, void *argument, WarpWork work,
                     Site site);
enum ShuffleKind { SHUFFLE_INDEX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR };
uint64_t shuffle(uint32_t mask, ShuffleKind kind, uint64_t value, int operand, int width,
                 Site site);
enum VoteKind {
  VOTE_BALLOT,
  VOTE_ANY,
  VOTE_ALL,
  VOTE_SYNC,
  VOTE_MATCH,
  VOTE_ADD,
  VOTE_MIN_SIGNED,
  VOTE_MAX_SIGNED,
  VOTE_MIN,
  VOTE_MAX,
  VOTE_OR,
  VOTE_AND
};
uint32_t vote(uint32_t mask, VoteKind kind, uint32_t value, Site site);
void mma_m16n8k16(float *acc, const uint32_t *a, uint32_t b0, uint32_t b1, bool bf16, Site site);
void ldmatrix(uint32_t *out, int matrices, bool transposed, const void *row, Site site);

void *dynamic_shared();
void *static_shared(const void *key, size_t size, size_t alignment);
bool is_shared(const void *p, size_t size);

void cp_async(void *dst, const void *src, int bytes, Site site);
void cp_async_commit();
void cp_async_wait(int groups_left);
void mbarrier_init(uint64_t *bar, unsigned arrivals, Site site);
/* An mbarrier is used when the thread that made it has fenced it. */
void mbarrier_fence();
void mbarrier_arrive(uint64_t *bar, unsigned expected_bytes, Site site);
void mbarrier_wait(uint64_t *bar, unsigned parity, Site site);
void bulk_copy(void *dst, const void *src, unsigned bytes, uint64_t *bar, Site site);
void proxy_fence();

/* A thread's share of a product of its warpgroup: acc (64, columns) += a (64, 16) . b (16,
 * columns), operands as matrix descriptors, or a's fragment. */
struct WgmmaShare {
  float *acc; /* [columns / 2] */
  int columns;
  uint64_t a;
  const uint32_t *a_registers; /* [4] or null */
  uint64_t b;
  bool add, bf16;
};
uint32_t shared_offset(const void *p);
void wgmma(const WgmmaShare &share, Site site);
void wgmma_fence();
void wgmma_commit(Site site);
void wgmma_wait(int groups_left, Site site);
void registers_set(int count, bool raise, Site site);

} // namespace emu
#endif
