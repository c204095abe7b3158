/* emu_scheduler.cc: runs a grid: blocks one after another, their fibers in an unkind order.
 *
 * Also the reports: a fault names the kernel and the CUDA thread, a deadlock what every thread
 * waits for. Nothing here knows what a barrier or a collective is.
 */
#include "emu_check.h"
#include "emu_wgmma.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <stdarg.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

__thread Thread *current;
Engine &engine = *new Engine;
bool (*launch_runner)(const Launch &launch) = run_grid;

enum { POLLS_MAX = 3000000, THREADS_MAX = 1024 };

static Settings settings_read() {
  auto value = [](const char *name) {
    const char *text = getenv(name);
    return std::string(text ? text : "");
  };
  Settings s = {ORDER_FORWARD, value("EMU_ASYNC") != "eager", value("EMU_ABORT") != "0", 1};
  if (value("EMU_ORDER") == "rev") s.order = ORDER_REVERSE;
  if (value("EMU_ORDER") == "random") s.order = ORDER_RANDOM;
  const std::string seed = value("EMU_SEED");
  s.random_state = (seed.empty() ? 1 : strtoull(seed.c_str(), nullptr, 0)) * 0x9e3779b97f4a7c15u;
  return s;
}
Settings settings = settings_read();

uint32_t random_below(uint32_t bound) {
  uint64_t x = settings.random_state | 1;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  settings.random_state = x;
  return (uint32_t)((x >> 32) * bound >> 32);
}

const char *file_name(const char *path) {
  const char *slash = path ? strrchr(path, '/') : nullptr;
  return slash ? slash + 1 : path ? path : "?";
}

/* Most often both names are the very same text of the compiler's. */
bool is_same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

/* ---- Faults ---- */

void report(const std::string &text) {
  engine.fault = text;
  engine.faults++;
  engine.failed = true;
  fprintf(stderr, "emu: %s\n", text.c_str());
  if (!settings.abort_on_fault) return;
  fflush(nullptr);
  abort();
}

void fail(const char *format, ...) {
  char message[700], text[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  const Thread *t = current;
  const char *kernel = engine.launch ? engine.launch->shape.name : "?";
  if (t)
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s", kernel,
             t->block.x, t->block.y, t->block.z, t->index.x, t->index.y, t->index.z, message);
  else
    snprintf(text, sizeof text, "kernel %s: %s", kernel, message);
  report(text);
  if (t) fiber_switch(nullptr);
  abort(); /* a fault outside a kernel, or a fiber that ran on after its own */
}

unsigned fault_count() {
  return engine.faults;
}
const char *fault_text() {
  return engine.fault.c_str();
}

static std::string fiber_state(const Fiber *f) {
  if (f->done) return "exited";
  char text[200];
  snprintf(text, sizeof text, "waiting in %s at %s:%d", f->waits_in ? f->waits_in : "?",
           file_name(f->waits_at.file), f->waits_at.line);
  return text;
}

static void report_deadlock() {
  std::map<std::string, std::string> states;
  for (const Block *b : engine.group.blocks)
    for (unsigned i = 0; i < b->threads; i++) {
      std::string &threads = states[fiber_state(b->warp[i / 32].lane[i % 32])];
      if (threads.size() < 60)
        threads += " " + std::to_string(i);
      else if (threads.back() != '.')
        threads += " ...";
    }
  const uint3 at = engine.group.blocks[0]->index;
  std::string text = "kernel " + std::string(engine.launch->shape.name) + ", block (" +
                     std::to_string(at.x) + "," + std::to_string(at.y) + "," +
                     std::to_string(at.z) + "): deadlock";
  for (const auto &state : states) text += "\n  threads" + state.second + ": " + state.first;
  report(text);
}

/* ---- Who runs next ---- */

/* The first one from a random place on, round the end: any may be it, in one step. */
static int random_bit(uint32_t set) {
  const uint32_t from = random_below(32);
  const uint32_t above = set >> from;
  return above ? (int)from + __builtin_ctz(above) : __builtin_ctz(set);
}
static int first_bit(uint32_t set) {
  if (settings.order == ORDER_RANDOM) return random_bit(set);
  return settings.order == ORDER_REVERSE ? 31 - __builtin_clz(set) : __builtin_ctz(set);
}
/* The one after `from` in the order of the run, round the end. */
static int next_bit(uint32_t set, unsigned from) {
  if (settings.order == ORDER_RANDOM) return random_bit(set);
  const uint32_t below = set & ((1u << from) - 1);
  const uint32_t above = set & ~((2u << from) - 1);
  if (settings.order == ORDER_REVERSE) return first_bit(below ? below : set);
  return first_bit(above ? above : set);
}

/* Mostly the warp of the fiber that stopped goes on. */
static bool stays_in_warp(const Fiber *after) {
  return after->home->ready && (settings.order != ORDER_RANDOM || random_below(8));
}

static Fiber *pick_in_block(Block *b, const Fiber *after) {
  if (!b->ready_warps) return nullptr;
  unsigned w;
  if (after && after->owner == b)
    w = stays_in_warp(after) ? after->warp : (unsigned)next_bit(b->ready_warps, after->warp);
  else
    w = (unsigned)first_bit(b->ready_warps);
  const uint32_t ready = b->warp[w].ready;
  const bool same = after && after->home == &b->warp[w];
  return b->warp[w].lane[same ? next_bit(ready, after->lane) : first_bit(ready)];
}

/* The turn after a poller's, in a fixed rotation over lanes, warps and blocks: everybody's comes.
 */
static Fiber *pick_next_turn(const Fiber *poller) {
  const Group &g = engine.group;
  Warp *home = poller->home;
  const uint32_t lanes = home->ready & ~((2u << poller->lane) - 1);
  if (lanes) return home->lane[__builtin_ctz(lanes)];
  const uint32_t warps = poller->owner->ready_warps & ~((2u << poller->warp) - 1);
  if (warps) {
    Warp &w = poller->owner->warp[__builtin_ctz(warps)];
    return w.lane[__builtin_ctz(w.ready)];
  }
  for (size_t i = 1;; i++) {
    Block *b = g.blocks[(poller->owner->rank + i) % g.blocks.size()];
    if (!b->ready_warps) continue;
    Warp &w = b->warp[__builtin_ctz(b->ready_warps)];
    return w.lane[__builtin_ctz(w.ready)];
  }
}

/* Bulk copies have no order among themselves. */
static void land_one() {
  auto &late = engine.group.late;
  size_t i = settings.order == ORDER_REVERSE ? late.size() - 1 : 0;
  if (settings.order == ORDER_RANDOM) i = random_below((uint32_t)late.size());
  std::function<void()> land = std::move(late[i]);
  late.erase(late.begin() + (std::ptrdiff_t)i);
  land();
}

/* The fiber that runs after `after` stopped (null at the start); null when none can. Late copies
 * land when nothing else can happen. */
static Fiber *pick(const Fiber *after) {
  Group &g = engine.group;
  const unsigned n = (unsigned)g.blocks.size();
  for (;;) {
    unsigned start = after ? after->owner->rank : 0;
    if (settings.order == ORDER_RANDOM && n > 1) start = random_below(n);
    for (unsigned i = 0; i < n; i++) {
      Block *b = g.blocks[start + i < n ? start + i : start + i - n];
      if (Fiber *f = pick_in_block(b, after)) return f;
    }
    if (g.late.empty()) return nullptr;
    land_one();
  }
}

void suspend(const char *what, Site site) {
  Fiber *f = self();
  f->waits_in = what;
  f->waits_at = site;
  f->home->ready &= ~f->bit;
  if (!f->home->ready) f->owner->ready_warps &= ~(1u << f->warp);
  /* Now and then a copy is quick. */
  if (settings.order == ORDER_RANDOM && !engine.group.late.empty() && !random_below(64)) land_one();
  Fiber *next = pick(f);
  if (next != f) fiber_switch(next);
}

void spin() {
  if (!current) return;
  if (++engine.polls > POLLS_MAX)
    fail("livelock: three million polls and nobody passes a barrier or ends");
  /* What is polled for may be a copy that lands only when nothing else can happen. */
  if (!engine.group.late.empty() && engine.polls % 4096 == 0) land_one();
  const bool shuffled = settings.order == ORDER_RANDOM && random_below(2);
  Fiber *next = shuffled ? pick(nullptr) : pick_next_turn(self());
  if (next != current) fiber_switch(next);
}

void may_yield() {
  if (!current || settings.order != ORDER_RANDOM || random_below(2)) return;
  if (!engine.group.late.empty() && !random_below(4)) land_one();
  Fiber *next = pick(nullptr);
  if (next != current) fiber_switch(next);
}

/* ---- The life of a block ---- */

void dependency_wait() {
  self()->waited = true;
}

void dependents_launch() {
  if (engine.launch->shape.may_overlap && !self()->waited)
    fail("grid_launch_dependents before grid_dependency_wait");
}

static void thread_exits(Fiber *f) {
  copy_thread_exits(f);
  wgmma_thread_exits(f);
  if (engine.launch->shape.may_overlap && !f->waited)
    fail("exits without grid_dependency_wait, but the launch may overlap the one before");
  engine.polls = 0;
  f->done = true;
  f->home->alive &= ~f->bit;
  f->home->ready &= ~f->bit;
  if (!f->home->ready) f->owner->ready_warps &= ~(1u << f->warp);
  f->owner->alive--;
  warp_thread_exits(f);
  barrier_thread_exits(f);
}

static void fiber_entry() {
#if defined(__SANITIZE_ADDRESS__)
  const void *left_stack;
  size_t left_bytes;
  __sanitizer_finish_switch_fiber(nullptr, &left_stack, &left_bytes);
  if (engine.left_host) engine.host_stack = left_stack, engine.host_stack_bytes = left_bytes;
#endif
  for (;;) {
    engine.launch->run(engine.launch->argument);
    Fiber *f = self();
    thread_exits(f);
    fiber_switch(pick(f));
  }
}

static void thread_begin(Fiber *f, Block *b, unsigned i) {
  const LaunchShape &s = engine.launch->shape;
  f->index = {i % s.block.x, i / s.block.x % s.block.y, i / (s.block.x * s.block.y)};
  f->block = b->index;
  f->block_size = s.block;
  f->grid_size = s.grid;
  f->linear = i;
  f->lane = i % 32;
  f->warp = i / 32;
  f->rank = b->rank;
  f->bit = 1u << f->lane;
  f->owner = b;
  f->home = &b->warp[f->warp];
  f->done = false;
  f->waits_in = nullptr;
  f->waits_for = nullptr;
  f->copies.clear();
  f->groups.clear();
  f->copies_landed = f->groups_landed = 0;
  f->waited = false;
  f->home->lane[f->lane] = f;
  f->home->ready |= f->bit;
  f->home->alive |= f->bit;
  f->home->born |= f->bit;
  b->ready_warps |= 1u << f->warp;
}

static void block_begin(Block *b, unsigned number, unsigned rank) {
  const LaunchShape &s = engine.launch->shape;
  b->index = {number % s.grid.x, number / s.grid.x % s.grid.y, number / (s.grid.x * s.grid.y)};
  b->threads = b->alive = s.block.x * s.block.y * s.block.z;
  b->warps = (b->threads + 31) / 32;
  b->rank = rank;
  b->ready_warps = 0;
  for (Barrier &barrier : b->barrier) barrier = Barrier();
  for (unsigned w = 0; w < b->warps; w++) {
    b->warp[w].ready = b->warp[w].alive = b->warp[w].born = 0;
    b->warp[w].open_count = 0;
    for (Collective &c : b->warp[w].open) c.mask = c.arrived = 0;
  }
  shared_begin(b, s.shared_bytes);
  check_block(b);
  wgmma_begin(b);
  for (unsigned i = 0; i < b->threads; i++) {
    const size_t number_in_group = (size_t)rank * b->threads + i;
    while (engine.fibers.size() <= number_in_group)
      engine.fibers.push_back(fiber_make(fiber_entry));
    thread_begin(engine.fibers[number_in_group], b, i);
  }
}

static void group_run(unsigned first, unsigned count) {
  Group &g = engine.group;
  g.blocks.clear();
  g.late.clear();
  g.unfenced.clear();
  g.sync_waiting.clear();
  g.sync_arrived = g.threads = 0;
  engine.polls = 0;
  while (engine.blocks.size() < count) engine.blocks.push_back(new Block);
  for (unsigned i = 0; i < count; i++) {
    block_begin(engine.blocks[i], first + i, i);
    g.blocks.push_back(engine.blocks[i]);
    g.threads += engine.blocks[i]->threads;
  }
  while (!engine.failed) {
    Fiber *f = pick(nullptr);
    if (!f) break;
    fiber_switch(f);
  }
  unsigned alive = 0;
  for (Block *b : g.blocks) alive += b->alive;
  if (alive && !engine.failed) report_deadlock();
  if (!engine.failed)
    for (Block *b : g.blocks) shared_end(b);
  if (engine.failed)
    for (Fiber *f : engine.fibers) fiber_reset(f, fiber_entry);
}

/* EMU_BLOCKS=last: whether a block stands last in the longest dimension of its grid. */
static bool is_last(unsigned number, const dim3 &grid) {
  const unsigned longest = std::max(grid.x, std::max(grid.y, grid.z));
  if (grid.x == longest) return number % grid.x == longest - 1;
  if (grid.y == longest) return number / grid.x % grid.y == longest - 1;
  return number / (grid.x * grid.y) == longest - 1;
}

bool run_grid(const Launch &launch) {
  static std::recursive_mutex lock;
  std::lock_guard<std::recursive_mutex> hold(lock);
  const LaunchShape &s = launch.shape;
  const unsigned blocks = s.grid.x * s.grid.y * s.grid.z;
  const unsigned together = s.cooperative ? blocks : s.cluster ? s.cluster : 1;
  std::vector<unsigned> first(blocks / together);
  for (unsigned i = 0; i < first.size(); i++) first[i] = i * together;
  const char *chosen = getenv("EMU_BLOCKS");
  if (chosen && !strcmp(chosen, "none")) first.clear();
  if (chosen && !strcmp(chosen, "last"))
    first.erase(std::remove_if(first.begin(), first.end(),
                               [&s](unsigned block) { return !is_last(block, s.grid); }),
                first.end());
  for (unsigned i = (unsigned)first.size(); i > 1; i--) {
    if (settings.order == ORDER_RANDOM) std::swap(first[i - 1], first[random_below(i)]);
    if (settings.order == ORDER_REVERSE && i * 2 > first.size())
      std::swap(first[i - 1], first[first.size() - i]);
  }
  engine.launch = &launch;
  engine.failed = false;
  check_launch();
  for (unsigned block : first)
    if (!engine.failed) group_run(block, together);
  engine.launch = nullptr;
  return !engine.failed;
}

} // namespace emu
