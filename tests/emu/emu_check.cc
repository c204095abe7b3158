/* emu_check.cc: the checker of the `check` flavour: races, unwritten memory, early and foreign
 * accesses.
 *
 * Kernels are compiled with -fsanitize=thread and linked with the hooks below instead of libtsan,
 * so every load and store of every CUDA thread comes here, and so do those that the emulator makes
 * for a thread (cp.async, ldmatrix). Time is a counter that every barrier advances: two accesses of
 * one byte of shared memory, one of them a write, must have a barrier of the block between them, or
 * of the warp when it is one warp. Named barriers and mbarriers count as the whole block's: a race
 * between them may be missed, none is invented. A wgmma reads its operands from its issue until it
 * was awaited, and holds its accumulators so long; what it reads must have come by a bulk copy, or
 * its writer must have fenced the proxies. Atomic operations may meet each other, not other
 * accesses; one in device memory hands what its thread did, and what its warp did before its last
 * barrier, to those that come to the same word later: as far as a __threadfence stood behind it,
 * and between blocks to those who fence in their turn. In device memory a word that one block wrote
 * is no other block's in the same launch, and one that it read no other block's to write, unless it
 * was handed over so.
 */
#include "emu_check.h"
#include "emu_runtime.h"
#include "emu_wgmma.h"
#include <algorithm>
#include <array>
#include <memory>
#include <unistd.h>
#include <unordered_map>

#if defined(EMU_CHECK)

extern "C" char __executable_start, _end;

namespace emu {

/* Accesses of one kind since the last barrier, or the last one before it. */
struct Accesses {
  uint32_t time;
  uint16_t thread;
  bool lanes, warps; /* of several lanes of a warp, of several warps */
};

/* What is known of a byte of shared memory, or a word of device memory. */
struct Cell {
  Accesses written, read, updated; /* updated: by atomic operations */
  uint32_t filled;                 /* last write of a value */
  bool generic;                    /* written by a thread itself, not by a bulk copy */
};

typedef std::array<uint32_t, WARPS_MAX> Times; /* one of each warp of a block */
static void take_later(Times &times, const Times &others) {
  for (size_t i = 0; i < times.size(); i++) times[i] = std::max(times[i], others[i]);
}

/* The fences of a block: of each thread the time of its last __threadfence, of each warp until when
 * what it did has the fence of another behind it. */
typedef std::vector<uint32_t> Fences;
struct Covered {
  std::shared_ptr<const Fences> threads;
  Times warps = {};
};

/* What a block did before its atomic operations on a word: by warps, and by those that made them.
 * Of the warps that which is covered. */
struct Release {
  Times warps = {};
  std::unordered_map<unsigned, uint32_t> threads;
  Covered covered;
};
/* By the address of the word and the block, of the running launch. */
static std::unordered_map<uintptr_t, std::unordered_map<uint64_t, Release>> &releases() {
  static auto *all = new std::unordered_map<uintptr_t, std::unordered_map<uint64_t, Release>>;
  return *all;
}

/* An atomic operation of a block; `acquires`: a fence in itself for what comes behind it. */
struct Meeting {
  uintptr_t address;
  uint32_t time;
  uint16_t thread;
  bool acquires;
};

/* What is known of a block's shared memory. */
enum { OPERAND_BYTES = 16 };
struct Shadow {
  std::vector<Cell> cell;            /* [SHARED_BYTES] */
  std::vector<uint16_t> products;    /* [SHARED_BYTES / OPERAND_BYTES] that read it now */
  std::vector<uint32_t> proxy_fence; /* [threads] time of the last one */
  Fences fence;
  Covered covered; /* threads: a copy of `fence`, NULL when that has changed */
  /* Until when a warp knows what the others did: from now on, and from its next barrier on. */
  std::array<Times, WARPS_MAX> known, coming;
  std::unordered_map<uintptr_t, Times> handed; /* by the atomic operations on a word */
  std::vector<Meeting> meetings;               /* of the block with others */
};

static uint32_t now = 1;
static Shadow &shadow_of(const Block *b) {
  static auto *all = new std::unordered_map<const Block *, Shadow>;
  return (*all)[b];
}

/* An access of a word by a block: launch number << 32 | block + 1; 0 = none. */
struct Visit {
  uint64_t block;
  uint32_t time;
  uint16_t thread;
};

/* Words of device memory: who wrote last, the last two blocks that read, and what the threads of
 * block `owner` did, if it is the running one. */
enum { PAGE_WORDS = 1024, PAGE_BYTES = PAGE_WORDS * 4, NEAR_BYTES = 4096 };
struct Page {
  Visit written[PAGE_WORDS] = {}, read[PAGE_WORDS][2] = {};
  uint64_t owner[PAGE_WORDS] = {};
  Cell cell[PAGE_WORDS] = {};
};
static std::unordered_map<uintptr_t, std::unique_ptr<Page>> &pages() {
  static auto *all = new std::unordered_map<uintptr_t, std::unique_ptr<Page>>;
  return *all;
}
static uint64_t launch_number;

void check_launch() {
  launch_number++;
  releases().clear();
}
void check_block(Block *b) {
  Shadow &mine = shadow_of(b);
  mine.cell.resize(SHARED_BYTES);
  mine.products.assign(SHARED_BYTES / OPERAND_BYTES, 0);
  mine.proxy_fence.assign(b->threads, 0);
  mine.fence.assign(b->threads, 0);
  mine.covered = {};
  b->begun = b->synced = ++now;
  mine.known = mine.coming = {};
  mine.handed.clear();
  mine.meetings.clear();
  for (Warp &w : b->warp) w.synced = now;
}
void check_block_sync(Block *b) {
  b->synced = ++now;
}
void check_warp_sync(Warp *w) {
  Shadow &mine = shadow_of(self()->owner);
  w->synced = ++now;
  mine.known[self()->warp] = mine.coming[self()->warp];
}
/* Memory that was handed out again has no writers. */
void check_memory(const void *p, size_t size) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) / PAGE_BYTES;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(p) + size) / PAGE_BYTES;
  if (last - first > pages().size()) {
    for (auto it = pages().begin(); it != pages().end();)
      it = it->first >= first && it->first <= last ? pages().erase(it) : std::next(it);
    return;
  }
  for (uintptr_t page = first; page <= last; page++) pages().erase(page);
}

void check_filled(const void *p, size_t size, bool filled) {
  for (const Block *b : engine.group.blocks) {
    const size_t offset = (size_t)(static_cast<const char *>(p) - b->shared);
    if (offset >= SHARED_BYTES) continue;
    Cell *cell = &shadow_of(b).cell[offset];
    for (size_t i = 0; i < size; i++) {
      cell[i].filled = filled ? now : 0;
      cell[i].generic = false;
    }
  }
}

void check_proxy_fence() {
  shadow_of(self()->owner).proxy_fence[self()->linear] = ++now;
}

/* A fence covers what its thread did, and what others did before a barrier that the thread passed.
 */
static void check_fence() {
  const Fiber *f = self();
  Shadow &mine = shadow_of(f->owner);
  mine.fence[f->linear] = ++now;
  mine.covered.threads.reset();
  for (uint32_t &time : mine.covered.warps) time = std::max(time, f->owner->synced - 1);
  uint32_t &own = mine.covered.warps[f->warp];
  own = std::max(own, f->home->synced - 1);
}

/* "file:line" of a program counter. */
static std::string place(const void *pc) {
  char command[200], line[300] = "";
  const unsigned long offset = (unsigned long)(static_cast<const char *>(pc) - &__executable_start);
  snprintf(command, sizeof command, "addr2line -se /proc/%d/exe 0x%lx", (int)getpid(), offset - 1);
  if (FILE *f = popen(command, "r")) {
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    pclose(f);
    line[strcspn(line, " \n")] = 0;
  }
  return line[0] ? line : "?";
}

/* Whether no barrier parts the accesses from the running thread. */
static bool is_before_barrier(const Block *b, const Accesses &a) {
  const Fiber *f = self();
  return a.time >= b->synced && (a.warps || a.thread / 32u != f->warp || a.time >= f->home->synced);
}
/* Whether atomic operations ordered the access before what the running thread does. */
static bool was_handed(const Block *b, const Accesses &a) {
  return !a.warps && a.time <= shadow_of(b).known[self()->warp][a.thread / 32];
}
/* Whether some of them are another thread's and meet the running one. */
static bool meets(const Block *b, const Accesses &a) {
  return is_before_barrier(b, a) && (a.lanes || a.warps || a.thread != self()->linear);
}
static void note(const Block *b, Accesses &a) {
  const Fiber *f = self();
  const bool with_others = meets(b, a), same_warp = a.thread / 32u == f->warp;
  if (!is_before_barrier(b, a)) a.lanes = a.warps = false;
  if (with_others && a.thread != f->linear) (same_warp ? a.lanes : a.warps) = true;
  a.time = now;
  a.thread = (uint16_t)f->linear;
}

enum Access { READ, WRITE, UPDATE };

static void check_cell(const Block *b, Cell &c, const char *where, size_t offset, Access access,
                       const void *pc) {
  static const char *const names[] = {"read of", "write to", "atomic operation on"};
  const struct {
    const Accesses &accesses;
    const char *name;
    bool harmless;
  } others[] = {
      /* Two threads may write one value to a word of device memory, as marking a set does. */
      {c.written, "written", access == WRITE && where[0] == 'd'},
      {c.updated, "atomic operation", access == UPDATE},
      {c.read, "read", access == READ},
  };
  for (const auto &other : others)
    if (!other.harmless && meets(b, other.accesses) &&
        !(where[0] == 'd' && was_handed(b, other.accesses)))
      fail("race: %s %s memory at offset %zu, %s by thread %u since the last barrier, %s",
           names[access], where, offset, other.name, other.accesses.thread, place(pc).c_str());
  if (access == READ && c.filled < b->begun)
    fail("read of shared memory at offset %zu that nobody wrote, %s", offset, place(pc).c_str());
  if (access == READ) return note(b, c.read);
  c.filled = now;
  if (access == UPDATE) return note(b, c.updated);
  c.written = {now, (uint16_t)self()->linear, false, false};
  c.generic = true;
}

/* Whether the access is to what belongs to the thread or the program itself. */
static bool is_private(const Fiber *f, uintptr_t p) {
  auto within = [p](const void *base, size_t size) {
    return p - reinterpret_cast<uintptr_t>(base) < size;
  };
  if (within(f->stack, STACK_BYTES) || within(f, sizeof(Fiber))) return true;
  if (p - (reinterpret_cast<uintptr_t>(&current) - NEAR_BYTES) < 2 * NEAR_BYTES) return true;
  if (within(engine.launch->argument, engine.launch->argument_bytes)) return true;
  return within(&__executable_start, (size_t)(&_end - &__executable_start));
}

/* Whether the running thread knows of an atomic operation of its block. */
static bool knows_of(const Meeting &m) {
  const Fiber *f = self();
  if (m.thread == f->linear || m.time < f->owner->synced) return true;
  return m.thread / 32u == f->warp && m.time < f->home->synced;
}
/* Whether a fence of the running thread, or of the one that made it, stands behind it. */
static bool is_fenced(const Meeting &m) {
  const Fences &fence = shadow_of(self()->owner).fence;
  return m.acquires || fence[self()->linear] > m.time || fence[m.thread] > m.time;
}
/* Whether another block's access came before those of the running thread by an atomic operation of
 * each. */
static bool was_handed_over(const Visit &other) {
  for (const Meeting &m : shadow_of(self()->owner).meetings) {
    const auto &of_word = releases()[m.address];
    const auto found = of_word.find(other.block);
    if (found == of_word.end() || !knows_of(m) || !is_fenced(m)) continue;
    const Release &r = found->second;
    const size_t warp = other.thread / 32;
    const uint32_t fence = std::max(r.covered.warps[warp], (*r.covered.threads)[other.thread]);
    if (other.time <= std::min(r.warps[warp], fence)) return true;
    const auto own = r.threads.find(other.thread);
    if (own != r.threads.end() && other.time <= own->second) return true;
  }
  return false;
}

/* Whether the access is another block's of this launch, and nothing orders the two. */
static bool races(const Visit &other, uint64_t mine) {
  return other.block >> 32 == launch_number && other.block != mine && !was_handed_over(other);
}

static void check_word(const Fiber *f, Page &page, size_t at, uint64_t mine, const void *p,
                       bool writes, const void *pc) {
  Visit &written = page.written[at], *read = page.read[at];
  const Visit own = {mine, now, (uint16_t)f->linear};
  const char *what = writes ? "write to" : "read of";
  const bool early = engine.launch->shape.may_overlap && !f->waited;
  if (early && (writes || (written.block != 0 && written.block >> 32 == launch_number - 1)))
    fail("%s %p before grid_dependency_wait, %s", what, p, place(pc).c_str());
  if (races(written, mine))
    fail("race: %s %p, written by block %u of this launch, %s", what, p,
         (unsigned)(written.block & 0xffffffff) - 1, place(pc).c_str());
  if (!writes) {
    if (read[0].block != mine) read[1] = read[0];
    read[0] = own;
    return;
  }
  for (int i = 0; i < 2; i++)
    if (races(read[i], mine))
      fail("race: write to %p, read by block %u of this launch, %s", p,
           (unsigned)(read[i].block & 0xffffffff) - 1, place(pc).c_str());
  written = own;
}

/* The running block as a writer. */
static uint64_t running_block() {
  const Fiber *f = self();
  const dim3 &grid = f->grid_size;
  const uint64_t block = f->block.x + (uint64_t)grid.x * (f->block.y + grid.y * f->block.z);
  return launch_number << 32 | (block + 1);
}

static Page &page_of(uintptr_t word) {
  std::unique_ptr<Page> &page = pages()[word / PAGE_WORDS];
  if (!page) page.reset(new Page);
  return *page;
}

/* Among the threads of the running block. */
static void check_threads(uintptr_t word, Access access, const void *pc) {
  Page &page = page_of(word);
  const uint64_t mine = running_block();
  Cell &cell = page.cell[word % PAGE_WORDS];
  if (page.owner[word % PAGE_WORDS] != mine) cell = Cell();
  page.owner[word % PAGE_WORDS] = mine;
  cell.filled = now;
  check_cell(self()->owner, cell, "device", word * 4, access, pc);
}

static void check_device(uintptr_t p, size_t size, bool writes, const void *pc) {
  const Fiber *f = self();
  const void *address = reinterpret_cast<const void *>(p);
  if (is_private(f, p)) return;
  if (!is_inside(runtime().device, address, size)) {
    if (is_inside(runtime().pinned, address, size)) return;
    fail("%s of %zu bytes at %p, which is not in device memory, %s", writes ? "write" : "read",
         size, address, place(pc).c_str());
  }
  const uint64_t mine = running_block();
  for (uintptr_t word = p / 4; word <= (p + size - 1) / 4; word++) {
    /* Parts of a word may be several blocks': only whole words are told apart. */
    Page &page = page_of(word);
    if (size >= 4 || page.written[word % PAGE_WORDS].block >> 32 != launch_number)
      check_word(f, page, word % PAGE_WORDS, mine, address, writes, pc);
    if (size >= 4) check_threads(word, writes ? WRITE : READ, pc);
  }
}

void check_operand(const void *p, size_t size, bool begins) {
  const Block *b = self()->owner;
  Shadow &mine = shadow_of(b);
  const size_t offset = (size_t)(static_cast<const char *>(p) - b->shared);
  for (size_t i = offset; i < offset + size; i++) {
    if (i % OPERAND_BYTES == 0)
      mine.products[i / OPERAND_BYTES] =
          (uint16_t)(mine.products[i / OPERAND_BYTES] + (begins ? 1 : -1));
    Cell &c = mine.cell[i];
    if (begins && c.generic && c.written.time >= mine.proxy_fence[c.written.thread])
      fail("wgmma reads shared memory at offset %zu, written by thread %u without "
           "fence_proxy_async since",
           i, c.written.thread);
    if (begins) continue;
    /* Only a barrier of the block is enough. */
    c.read = {now, (uint16_t)self()->linear, c.read.lanes, true};
  }
}

void check_memory_access(const void *p, size_t size, bool writes, const void *pc) {
  if (!current || !size) return;
  Block *b = self()->owner;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(b->shared);
  if (offset < SHARED_BYTES) {
    Shadow &mine = shadow_of(b);
    for (size_t i = offset; i < offset + size; i++) {
      if (writes && mine.products[i / OPERAND_BYTES])
        fail("race: write to shared memory at offset %zu, which a wgmma in flight reads, %s", i,
             place(pc).c_str());
      check_cell(b, mine.cell[i], "shared", i, writes ? WRITE : READ, pc);
    }
    return;
  }
  if (wgmma_holds(p, size))
    fail("%s an accumulator of a wgmma that was not awaited, %s", writes ? "write to" : "read of",
         place(pc).c_str());
  for (const Block *other : engine.group.blocks) /* a cluster's other blocks are not checked */
    if (reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(other->shared) < SHARED_BYTES)
      return;
  check_device(reinterpret_cast<uintptr_t>(p), size, writes, pc);
}

/* What the running thread's warp knows and did goes to those who come later, and theirs to it. */
static void hand_over(Shadow &mine, uintptr_t address, int order) {
  const Fiber *f = self();
  Times own = mine.known[f->warp], &handed = mine.handed[address];
  own[f->warp] = f->home->synced - 1;
  take_later(mine.coming[f->warp], handed);
  take_later(handed, own);
  if (engine.launch->shape.grid.x * engine.launch->shape.grid.y * engine.launch->shape.grid.z == 1)
    return;
  for (uint32_t &time : own) time = std::max(time, f->owner->synced - 1);
  if (order == __ATOMIC_RELEASE) check_fence();
  if (!mine.covered.threads) mine.covered.threads = std::make_shared<Fences>(mine.fence);
  Release &release = releases()[address][running_block()];
  take_later(release.warps, own);
  release.threads[f->linear] = mine.fence[f->linear];
  release.covered = mine.covered;
  mine.meetings.push_back({address, now, (uint16_t)f->linear, order == __ATOMIC_ACQUIRE});
}

static void check_atomic(const volatile void *p, size_t size, int order, const void *pc) {
  if (!current) return;
  Block *b = self()->owner;
  const uintptr_t address = reinterpret_cast<uintptr_t>(p);
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(b->shared);
  if (offset >= SHARED_BYTES) {
    hand_over(shadow_of(b), address, order);
    for (uintptr_t word = address / 4; word < (address + size) / 4; word++)
      check_threads(word, UPDATE, pc);
    return;
  }
  Shadow &mine = shadow_of(b);
  for (size_t i = offset; i < offset + size; i++)
    check_cell(b, mine.cell[i], "shared", i, UPDATE, pc);
}

} // namespace emu

/* ---- What -fsanitize=thread calls ---- */

#define HOOK_ACCESS(N)                                                                             \
  void __tsan_read##N(void *p) {                                                                   \
    emu::check_memory_access(p, N, false, __builtin_return_address(0));                            \
  }                                                                                                \
  void __tsan_write##N(void *p) {                                                                  \
    emu::check_memory_access(p, N, true, __builtin_return_address(0));                             \
  }                                                                                                \
  void __tsan_unaligned_read##N(void *p) {                                                         \
    emu::check_memory_access(p, N, false, __builtin_return_address(0));                            \
  }                                                                                                \
  void __tsan_unaligned_write##N(void *p) {                                                        \
    emu::check_memory_access(p, N, true, __builtin_return_address(0));                             \
  }
#define HOOK_ATOMIC(N, T)                                                                          \
  T __tsan_atomic##N##_load(const volatile T *p, int order) {                                      \
    emu::check_atomic(p, sizeof(T), order, __builtin_return_address(0));                           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##N##_store(volatile T *p, T v, int order) {                                   \
    emu::check_atomic(p, sizeof(T), order, __builtin_return_address(0));                           \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  T __tsan_atomic##N##_exchange(volatile T *p, T v, int order) {                                   \
    emu::check_atomic(p, sizeof(T), order, __builtin_return_address(0));                           \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  T __tsan_atomic##N##_fetch_add(volatile T *p, T v, int order) {                                  \
    emu::check_atomic(p, sizeof(T), order, __builtin_return_address(0));                           \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  int __tsan_atomic##N##_compare_exchange_strong(volatile T *p, T *expected, T v, int order,       \
                                                 int) {                                            \
    emu::check_atomic(p, sizeof(T), order, __builtin_return_address(0));                           \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##N##_compare_exchange_weak(volatile T *p, T *expected, T v, int a, int b) {    \
    return __tsan_atomic##N##_compare_exchange_strong(p, expected, v, a, b);                       \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
HOOK_ACCESS(1)
HOOK_ACCESS(2)
HOOK_ACCESS(4)
HOOK_ACCESS(8)
HOOK_ACCESS(16)
void __tsan_read_range(void *p, unsigned long size) {
  emu::check_memory_access(p, size, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, unsigned long size) {
  emu::check_memory_access(p, size, true, __builtin_return_address(0));
}
HOOK_ATOMIC(8, unsigned char)
HOOK_ATOMIC(16, unsigned short)
HOOK_ATOMIC(32, unsigned)
HOOK_ATOMIC(64, unsigned long)
void __tsan_atomic_thread_fence(int order) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (emu::current && order == __ATOMIC_SEQ_CST) emu::check_fence();
}
}

#endif
