/* emu_warp.cc: collectives of a warp: the rendezvous, shuffles and votes.
 *
 * Lanes meet by their mask; the last one computes for all. Masks and operations must agree, and
 * `.aligned` instructions must stand on the same line. A shuffle from a lane that takes no part is
 * an undefined value on the device and a fault here.
 */
#include "emu_check.h"

namespace emu {

static void collective_finish(Warp *w, Collective &c) {
  const uint32_t mask = c.arrived;
  c.mask = c.arrived = 0;
  w->open_count--;
  c.work(c.argument, mask);
  for (uint32_t set = mask; set; set &= set - 1) make_ready(w->lane[__builtin_ctz(set)]);
}

static void collective_check_mask(uint32_t mask, const char *what, Site site) {
  const Fiber *f = self();
  if (!(mask & f->bit))
    fail("%s at %s:%d: lane %u is not in its own mask %08x", what, file_name(site.file), site.line,
         f->lane, mask);
  const uint32_t missing = mask & ~f->home->born, gone = mask & ~f->home->alive;
  if (missing)
    fail("%s at %s:%d: mask %08x names lanes %08x that the block does not have", what,
         file_name(site.file), site.line, mask, missing);
  if (gone)
    fail("%s at %s:%d: mask %08x names lanes %08x that have exited", what, file_name(site.file),
         site.line, mask, gone);
}

static void collective_check_match(const Collective &c, uint32_t mask, const char *what,
                                   bool aligned, Site site) {
  if (c.mask != mask || (c.what != what && strcmp(c.what, what)))
    fail("divergent warp: this lane is in %s (mask %08x) at %s:%d, lanes %08x in %s (mask %08x) at "
         "%s:%d",
         what, mask, file_name(site.file), site.line, c.arrived, c.what, c.mask,
         file_name(c.site.file), c.site.line);
  if (aligned && !is_same_site(c.site, site))
    fail("divergent warp: %s at %s:%d, lanes %08x execute another at %s:%d", what,
         file_name(site.file), site.line, c.arrived, file_name(c.site.file), c.site.line);
}

/* The open collective that this lane joins or, with another mask, must not pass by: those who
 * arrived there wait for this lane while it would wait for them. Otherwise an empty one. */
static Collective *collective_find(Warp *w, uint32_t mask, uint32_t bit) {
  Collective *empty = nullptr;
  for (Collective &c : w->open) {
    if (c.mask == mask) return &c;
    if (c.mask & bit && c.arrived & mask) return &c;
    if (!c.mask && !empty) empty = &c;
    if (!w->open_count) break;
  }
  return empty;
}

void warp_collective(uint32_t mask, const char *what, bool aligned, void *argument, WarpWork work,
                     Site site) {
  Fiber *f = self();
  Warp *w = f->home;
  collective_check_mask(mask, what, site);
  Collective *c = collective_find(w, mask, f->bit);
  if (!c) fail("%s at %s:%d: too many collectives at once", what, file_name(site.file), site.line);
  if (c->mask) {
    collective_check_match(*c, mask, what, aligned, site);
  } else {
    w->open_count++;
    c->mask = mask;
    c->what = what;
    c->aligned = aligned;
    c->site = site;
    c->work = work;
  }
  c->argument[f->lane] = argument;
  c->arrived |= f->bit;
  if (c->arrived == mask)
    collective_finish(w, *c);
  else
    suspend(what, site);
}

void warp_thread_exits(Fiber *f) {
  for (const Collective &c : f->home->open)
    if (c.mask & f->bit)
      fail("exits while lanes %08x of its warp wait for it in %s at %s:%d", c.arrived, c.what,
           file_name(c.site.file), c.site.line);
}

/* ---- Shuffles ---- */

struct ShuffleArgument {
  uint64_t value, result;
  ShuffleKind kind;
  int operand, width;
  Site site;
};

/* The lane that `lane` reads; outside its segment of `width` lanes it reads itself. */
static int shuffle_source(const ShuffleArgument &a, int lane) {
  const int segment = lane & ~(a.width - 1);
  int source = lane;
  if (a.kind == SHUFFLE_INDEX) return segment | (a.operand & (a.width - 1));
  if (a.kind == SHUFFLE_UP) source = lane - a.operand;
  if (a.kind == SHUFFLE_DOWN) source = lane + a.operand;
  if (a.kind == SHUFFLE_XOR) source = lane ^ a.operand;
  if (a.kind == SHUFFLE_UP && source < segment) return lane;
  return source >= segment + a.width ? lane : source;
}

static void shuffle_work(void **arguments, uint32_t mask) {
  for (uint32_t set = mask; set; set &= set - 1) {
    const int lane = __builtin_ctz(set);
    ShuffleArgument *a = static_cast<ShuffleArgument *>(arguments[lane]);
    const int source = shuffle_source(*a, lane);
    if (source < 0 || source > 31 || !(mask >> source & 1))
      fail("shuffle at %s:%d: lane %d reads lane %d, which takes no part (mask %08x)",
           file_name(a->site.file), a->site.line, lane, source, mask);
    a->result = static_cast<ShuffleArgument *>(arguments[source])->value;
  }
}

uint64_t shuffle(uint32_t mask, ShuffleKind kind, uint64_t value, int operand, int width,
                 Site site) {
  static const char *const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                      "__shfl_xor_sync"};
  if (width < 1 || width > 32 || width & (width - 1))
    fail("shuffle of width %d at %s:%d", width, file_name(site.file), site.line);
  ShuffleArgument a = {value, 0, kind, operand, width, site};
  warp_collective(mask, names[kind], false, &a, shuffle_work, site);
  return a.result;
}

/* ---- Votes and reductions ---- */

struct VoteArgument {
  uint32_t value, result;
  VoteKind kind;
};

static uint32_t vote_merge(VoteKind kind, uint32_t a, uint32_t b) {
  switch (kind) {
  case VOTE_ADD: return a + b;
  case VOTE_MIN_SIGNED: return (uint32_t)((int)a < (int)b ? (int)a : (int)b);
  case VOTE_MAX_SIGNED: return (uint32_t)((int)a > (int)b ? (int)a : (int)b);
  case VOTE_MIN: return a < b ? a : b;
  case VOTE_MAX: return a > b ? a : b;
  case VOTE_AND: return a & b;
  default: return a | b;
  }
}

static void vote_work(void **arguments, uint32_t mask) {
  const VoteArgument *first = static_cast<VoteArgument *>(arguments[__builtin_ctz(mask)]);
  const VoteKind kind = first->kind;
  if (kind == VOTE_SYNC) check_warp_sync(self()->home); /* no other collective orders memory */
  uint32_t ballot = 0, merged = first->value;
  for (uint32_t set = mask; set; set &= set - 1) {
    const int lane = __builtin_ctz(set);
    const uint32_t value = static_cast<VoteArgument *>(arguments[lane])->value;
    if (value) ballot |= 1u << lane;
    if (lane != __builtin_ctz(mask)) merged = vote_merge(kind, merged, value);
  }
  for (uint32_t set = mask; set; set &= set - 1) {
    VoteArgument *a = static_cast<VoteArgument *>(arguments[__builtin_ctz(set)]);
    a->result = kind == VOTE_BALLOT ? ballot
                : kind == VOTE_ANY  ? ballot != 0
                : kind == VOTE_ALL  ? ballot == mask
                                    : merged;
    if (kind != VOTE_MATCH) continue;
    a->result = 0;
    for (uint32_t other = mask; other; other &= other - 1) {
      const int lane = __builtin_ctz(other);
      if (static_cast<VoteArgument *>(arguments[lane])->value == a->value) a->result |= 1u << lane;
    }
  }
}

uint32_t vote(uint32_t mask, VoteKind kind, uint32_t value, Site site) {
  static const char *const names[] = {
      "__ballot_sync",     "__any_sync",        "__all_sync",        "__syncwarp",
      "__match_any_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_min_sync", "__reduce_max_sync", "__reduce_or_sync",  "__reduce_and_sync"};
  VoteArgument a = {value, 0, kind};
  warp_collective(mask, names[kind], false, &a, vote_work, site);
  return a.result;
}

} // namespace emu
