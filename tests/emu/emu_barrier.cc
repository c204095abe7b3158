/* emu_barrier.cc: __syncthreads and its kin, named barriers, and the barriers of clusters and
 * grids.
 *
 * Stricter than the device: every thread of the block must reach the same __syncthreads of the
 * source, and none may have exited before. Both are legal since Volta and in practice mistakes.
 */
#include "emu_check.h"

namespace emu {

static int barrier_result(const Barrier &r, BarrierKind kind, unsigned threads) {
  if (kind == BARRIER_COUNT) return r.count;
  return kind == BARRIER_AND ? r.count == (int)threads : r.count > 0;
}

static void barrier_release(Block *b, Barrier &r) {
  const unsigned threads = r.arrived;
  for (unsigned w = 0; w < b->warps; w++)
    for (uint32_t set = r.waiting[w]; set; set &= set - 1) {
      Fiber *f = b->warp[w].lane[__builtin_ctz(set)];
      f->barrier_result = barrier_result(r, f->barrier_kind, threads);
      make_ready(f);
    }
  r = Barrier();
  engine.polls = 0;
  check_block_sync(b);
}

static void barrier_check(const Barrier &r, unsigned id, unsigned threads, Site site) {
  const Block *b = self()->owner;
  if (id >= BARRIERS)
    fail("barrier %u of %d at %s:%d", id, BARRIERS, file_name(site.file), site.line);
  if (threads % 32)
    fail("named barrier of %u threads, not whole warps, at %s:%d", threads, file_name(site.file),
         site.line);
  if (threads > b->threads)
    fail("named barrier of %u threads in a block of %u at %s:%d", threads, b->threads,
         file_name(site.file), site.line);
  if (r.arrived && r.expected != threads)
    fail("barrier %u for %u threads at %s:%d, for %u at %s:%d", id, threads, file_name(site.file),
         site.line, r.expected, file_name(r.site.file), r.site.line);
  if (threads) return;
  if (b->alive != b->threads)
    fail("__syncthreads at %s:%d, but %u of %u threads have exited", file_name(site.file),
         site.line, b->threads - b->alive, b->threads);
  if (r.arrived && !is_same_site(r.site, site))
    fail("divergent __syncthreads: this thread is at %s:%d, %u others are at %s:%d",
         file_name(site.file), site.line, r.arrived, file_name(r.site.file), r.site.line);
}

static int barrier_reach(unsigned id, unsigned threads, BarrierKind kind, int predicate, bool waits,
                         Site site) {
  Fiber *f = self();
  Block *b = f->owner;
  Barrier &r = b->barrier[id % BARRIERS];
  barrier_check(r, id, threads, site);
  if (!r.arrived) r.site = site;
  r.expected = threads;
  r.arrived++;
  r.count += predicate != 0;
  if (r.arrived == (threads ? threads : b->threads)) {
    const int result = barrier_result(r, kind, r.arrived);
    barrier_release(b, r);
    return result;
  }
  if (!waits) return 0;
  r.waiting[f->warp] |= f->bit;
  f->barrier_kind = kind;
  suspend(threads ? "a named barrier" : "__syncthreads", site);
  return f->barrier_result;
}

int barrier_sync(unsigned id, unsigned threads, BarrierKind kind, int predicate, Site site) {
  return barrier_reach(id, threads, kind, predicate, true, site);
}
void barrier_arrive(unsigned id, unsigned threads, Site site) {
  barrier_reach(id, threads, BARRIER_PLAIN, 0, false, site);
  may_yield();
}

void barrier_thread_exits(Fiber *f) {
  const Barrier &r = f->owner->barrier[0];
  if (r.arrived && !r.expected)
    fail("exits while %u threads wait at __syncthreads %s:%d", r.arrived, file_name(r.site.file),
         r.site.line);
}

static void group_sync(const char *what, Site site) {
  Group &g = engine.group;
  if (++g.sync_arrived < g.threads) {
    g.sync_waiting.push_back(self());
    suspend(what, site);
    return;
  }
  for (Fiber *f : g.sync_waiting) make_ready(f);
  for (Block *b : g.blocks) check_block_sync(b);
  g.sync_waiting.clear();
  g.sync_arrived = 0;
  engine.polls = 0;
}

void cluster_sync(Site site) {
  group_sync("a cluster's barrier", site);
}

void grid_sync(Site site) {
  if (!engine.launch->shape.cooperative)
    fail("grid barrier in an ordinary launch at %s:%d", file_name(site.file), site.line);
  group_sync("a grid's barrier", site);
}

} // namespace emu
