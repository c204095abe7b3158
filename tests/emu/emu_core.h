/* emu_core.h: the emulator's own structures, shared by its files and seen by no kernel.
 *
 * One grid runs at a time, on whichever host thread holds the lock of run_grid; everything here
 * belongs to it. A fiber is a CUDA thread; warps and blocks keep sets of the fibers that can run.
 */
#ifndef EMU_CORE_H
#define EMU_CORE_H

#include "cuda_runtime.h"
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace emu {

struct Block;
struct Warp;
enum Order { ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM };
/* Read once from the environment; tests of the emulator change them between launches. */
struct Settings {
  Order order;
  bool late_copies; /* asynchronous copies land at the last legal moment, not at once */
  bool abort_on_fault;
  uint64_t random_state;
};
extern Settings settings;
uint32_t random_below(uint32_t bound);

struct PendingCopy {
  char *dst;
  const char *src;
  int bytes;
};

struct Fiber : Thread {
  void *stack_pointer = nullptr;
  char *stack = nullptr;
  void *fake_stack = nullptr; /* AddressSanitizer's */
  Block *owner = nullptr;
  Warp *home = nullptr;
  uint32_t bit = 0; /* of the lane */
  bool done = true;
  const char *waits_in = nullptr; /* null while it can run */
  Site waits_at = {nullptr, 0};
  const void *waits_for = nullptr; /* an mbarrier */
  BarrierKind barrier_kind = BARRIER_PLAIN;
  int barrier_result = 0;
  std::vector<PendingCopy> copies; /* issued cp.async */
  std::vector<size_t> groups;      /* end of each committed group in `copies` */
  size_t copies_landed = 0, groups_landed = 0;
  bool waited = false; /* for the launch before */
};

/* A collective of some lanes of a warp that not all of them have reached. */
struct Collective {
  uint32_t mask = 0, arrived = 0; /* mask 0: free */
  const char *what = nullptr;
  bool aligned = false;
  Site site = {nullptr, 0};
  WarpWork work = nullptr;
  void *argument[32];
};

enum { COLLECTIVES_MAX = 8, BARRIERS = 16, WARPS_MAX = 32, SHARED_BYTES = 256 * 1024 };
enum { RED_ZONE_BYTES = 64, RED_ZONE_FILL = 0xa5, STACK_BYTES = 256 * 1024 };

struct Warp {
  uint32_t ready = 0, alive = 0, born = 0;
  Fiber *lane[32];
  Collective open[COLLECTIVES_MAX];
  unsigned open_count = 0;
  uint32_t synced = 0; /* emu_check.cc: time of the last barrier */
};

struct Barrier {
  unsigned arrived = 0, expected = 0; /* expected 0: the whole block */
  uint32_t waiting[WARPS_MAX] = {};
  Site site = {nullptr, 0};
  int count = 0;
};
struct SharedVariable {
  const void *key;
  char *p;
  size_t size;
};

struct Block {
  uint3 index = {0, 0, 0};
  unsigned threads = 0, alive = 0, warps = 0, rank = 0;
  uint32_t ready_warps = 0;
  Warp warp[WARPS_MAX];
  Barrier barrier[BARRIERS];
  char *shared = nullptr;
  size_t dynamic_bytes = 0, shared_used = 0;
  std::vector<SharedVariable> variables;
  uint32_t begun = 0, synced = 0; /* emu_check.cc */
};

/* Blocks that run together: one, a cluster, or a cooperative grid. */
struct Group {
  std::vector<Block *> blocks;
  std::deque<std::function<void()>> late; /* bulk copies that have not landed */
  std::vector<std::pair<const void *, const Fiber *>> unfenced; /* mbarriers, and who made them */
  unsigned threads = 0, sync_arrived = 0;
  std::vector<Fiber *> sync_waiting;
};

struct Engine {
  const Launch *launch = nullptr;
  Group group;
  std::vector<Fiber *> fibers;
  std::vector<Block *> blocks;
  void *host_stack_pointer = nullptr;
  void *host_fake_stack = nullptr;
  const void *host_stack = nullptr;
  size_t host_stack_bytes = 0;
  bool left_host = false; /* the last switch left the host's stack */
  bool failed = false;
  unsigned faults = 0, polls = 0;
  std::string fault;
};
extern Engine &engine; /* never destroyed: its fibers outlive static objects */
inline Fiber *self() {
  return static_cast<Fiber *>(current);
}
inline void make_ready(Fiber *f) {
  f->home->ready |= f->bit;
  f->owner->ready_warps |= 1u << f->warp;
  f->waits_in = nullptr;
}
const char *file_name(const char *path);
bool is_same_site(Site a, Site b);

/* emu_context.cc: stacks. `to` null is the host. */
Fiber *fiber_make(void (*entry)());
void fiber_reset(Fiber *f, void (*entry)());
void fiber_switch(Fiber *to);
/* emu_scheduler.cc (`report`: a fault of no CUDA thread), emu_shared.cc */
void report(const std::string &text);
void suspend(const char *what, Site site);
void shared_begin(Block *b, size_t dynamic_bytes);
void shared_end(Block *b);
void check_access(const void *p, size_t size, bool writes, const char *what);
/* emu_barrier.cc, emu_warp.cc, emu_copy.cc: what the end of a thread means to them. */
void barrier_thread_exits(Fiber *f);
void warp_thread_exits(Fiber *f);
void copy_thread_exits(Fiber *f);

} // namespace emu
#endif
