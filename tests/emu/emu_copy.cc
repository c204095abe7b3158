/* emu_copy.cc: asynchronous copies: cp.async with its groups, mbarriers and bulk copies.
 *
 * Unkind: the destination is poisoned when a copy is issued and the bytes arrive at the last legal
 * moment, so that a missing wait reads NaN. A thread may not end before its copies have landed:
 * they would fall into the shared memory of the next block.
 */
#include "emu_check.h"
#include "emu_runtime.h"
#include <algorithm>

namespace emu {

enum { CP_ASYNC_BYTES = 16, BULK_ALIGNMENT = 16 };

static void land(const PendingCopy &c) {
  check_access(c.dst, CP_ASYNC_BYTES, true, "cp.async");
  if (c.bytes) {
    check_access(c.src, (size_t)c.bytes, false, "cp.async");
    memcpy(c.dst, c.src, (size_t)c.bytes);
  }
  memset(c.dst + c.bytes, 0, (size_t)(CP_ASYNC_BYTES - c.bytes));
}

void cp_async(void *dst, const void *src, int bytes, Site site) {
  if (bytes < 0 || bytes > CP_ASYNC_BYTES)
    fail("cp.async of %d bytes at %s:%d", bytes, file_name(site.file), site.line);
  if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) % CP_ASYNC_BYTES)
    fail("cp.async at %s:%d: misaligned (to %p, from %p)", file_name(site.file), site.line, dst,
         src);
  if (!is_shared(dst, CP_ASYNC_BYTES))
    fail("cp.async at %s:%d: %p is not in shared memory", file_name(site.file), site.line, dst);
  const PendingCopy copy = {static_cast<char *>(dst), static_cast<const char *>(src), bytes};
  if (!settings.late_copies) {
    land(copy);
    return;
  }
  check_access(dst, CP_ASYNC_BYTES, true, "cp.async");
  check_filled(dst, CP_ASYNC_BYTES, false);
  memset(dst, 0xff, CP_ASYNC_BYTES);
  self()->copies.push_back(copy);
  may_yield();
}

void cp_async_commit() {
  Fiber *f = self();
  f->groups.push_back(f->copies.size());
  may_yield();
}

void cp_async_wait(int groups_left) {
  Fiber *f = self();
  size_t end = f->copies_landed;
  while (f->groups_landed + (size_t)groups_left < f->groups.size())
    end = f->groups[f->groups_landed++];
  for (; f->copies_landed < end; f->copies_landed++) land(f->copies[f->copies_landed]);
  if (f->copies_landed == f->copies.size() && f->groups_landed == f->groups.size()) {
    f->copies.clear();
    f->groups.clear();
    f->copies_landed = f->groups_landed = 0;
  }
  may_yield();
}

void copy_thread_exits(Fiber *f) {
  const size_t pending = f->copies.size() - f->copies_landed;
  if (pending) fail("exits with %zu cp.async copies that it never waited for", pending);
}

/* ---- mbarriers ---- */

/* An mbarrier's 64 bits. A phase ends when nobody and no byte is awaited any more. */
struct Mbarrier {
  uint64_t pending : 20, expected : 20, phase : 1, broken : 1, bytes : 22;
};
enum { ARRIVALS_MAX = (1 << 20) - 1, BYTES_MASK = (1 << 22) - 1 };
static_assert(sizeof(Mbarrier) == sizeof(uint64_t), "an mbarrier is a 64-bit word");

static void needs_hopper(const char *what, Site site) {
  if (runtime().capability < 90)
    fail("%s at %s:%d: compute capability %d has none", what, file_name(site.file), site.line,
         runtime().capability);
}

static Mbarrier *mbarrier_at(uint64_t *bar, const char *what, Site site) {
  Mbarrier *m = reinterpret_cast<Mbarrier *>(bar);
  if (!is_shared(bar, sizeof *bar) || reinterpret_cast<uintptr_t>(bar) % sizeof *bar)
    fail("%s at %s:%d: %p is no place for an mbarrier", what, file_name(site.file), site.line,
         (void *)bar);
  if (m->broken || !m->expected)
    fail("%s at %s:%d: not initialised", what, file_name(site.file), site.line);
  for (const auto &made : engine.group.unfenced)
    if (made.first == bar)
      fail("%s at %s:%d: no fence.mbarrier_init since the mbarrier was made", what,
           file_name(site.file), site.line);
  return m;
}

void mbarrier_fence() {
  auto &made = engine.group.unfenced;
  made.erase(std::remove_if(made.begin(), made.end(),
                            [](const auto &one) { return one.second == self(); }),
             made.end());
  may_yield();
}

static void mbarrier_advance(uint64_t *bar) {
  Mbarrier *m = reinterpret_cast<Mbarrier *>(bar);
  if (m->pending || m->bytes) return;
  for (Block *b : engine.group.blocks) check_block_sync(b);
  m->phase = !m->phase;
  m->pending = m->expected;
  for (Block *b : engine.group.blocks)
    for (unsigned i = 0; i < b->threads; i++) {
      Fiber *f = b->warp[i / 32].lane[i % 32];
      if (f->done || f->waits_for != bar) continue;
      f->waits_for = nullptr;
      make_ready(f);
    }
  engine.polls = 0;
}

void mbarrier_init(uint64_t *bar, unsigned arrivals, Site site) {
  needs_hopper("mbarrier init", site);
  if (!is_shared(bar, sizeof *bar) || reinterpret_cast<uintptr_t>(bar) % sizeof *bar)
    fail("mbarrier init at %s:%d: %p is no place for it", file_name(site.file), site.line,
         (void *)bar);
  if (!arrivals || arrivals > ARRIVALS_MAX)
    fail("mbarrier init at %s:%d: %u arrivals", file_name(site.file), site.line, arrivals);
  Mbarrier m = {};
  m.pending = m.expected = arrivals & ARRIVALS_MAX;
  memcpy(bar, &m, sizeof m);
  engine.group.unfenced.push_back({bar, self()});
}

void mbarrier_arrive(uint64_t *bar, unsigned expected_bytes, Site site) {
  Mbarrier *m = mbarrier_at(bar, "mbarrier arrive", site);
  if (!m->pending)
    fail("mbarrier arrive at %s:%d: more arrivals than this phase awaits", file_name(site.file),
         site.line);
  m->bytes = (m->bytes + expected_bytes) & BYTES_MASK;
  m->pending = m->pending - 1;
  mbarrier_advance(bar);
  may_yield();
}

void mbarrier_wait(uint64_t *bar, unsigned parity, Site site) {
  while (mbarrier_at(bar, "mbarrier wait", site)->phase == (parity & 1)) {
    self()->waits_for = bar;
    suspend("an mbarrier", site);
  }
}

void bulk_copy(void *dst, const void *src, unsigned bytes, uint64_t *bar, Site site) {
  const uintptr_t all = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | bytes;
  needs_hopper("bulk copy", site);
  if (all % BULK_ALIGNMENT || !bytes)
    fail("bulk copy at %s:%d: addresses and size must be multiples of %d", file_name(site.file),
         site.line, BULK_ALIGNMENT);
  if (!is_shared(dst, bytes))
    fail("bulk copy at %s:%d: %p is not in shared memory", file_name(site.file), site.line, dst);
  mbarrier_at(bar, "bulk copy", site);
  check_access(src, bytes, false, "bulk copy");
  check_access(dst, bytes, true, "bulk copy");
  auto arrive = [=] {
    check_filled(dst, bytes, true);
    memcpy(dst, src, bytes);
    Mbarrier *m = reinterpret_cast<Mbarrier *>(bar);
    m->bytes = (m->bytes - bytes) & BYTES_MASK;
    mbarrier_advance(bar);
  };
  if (!settings.late_copies) {
    arrive();
    return;
  }
  check_filled(dst, bytes, false);
  memset(dst, 0xff, bytes);
  engine.group.late.push_back(arrive);
  may_yield();
}

void proxy_fence() {
  check_proxy_fence();
  may_yield();
}

} // namespace emu
