/* emu_wgmma.cc: the products of Hopper's warpgroups, and the registers that these hand each other.
 *
 * Unkind: accumulators are poisoned when a product is issued, and it runs, with what its operands
 * then hold, when its group is awaited. A matrix descriptor is read as the PTX manual says it, in
 * the 128-byte swizzle, the only one here: row r of a matrix whose rows run along m or n is at
 * r / 8 strides + r % 8 * 128 bytes; of one whose rows run along k, row k is at
 * k / 8 strides + k % 8 * 128, and column n at n / 64 leading distances + n % 64 * 2; then the
 * address's bits 4 to 6 are mixed with its bits 7 to 9. Stricter than the device: all four warps
 * meet in wgmma_wait, and every wait that ends a product asks for a new fence.
 */
#include "emu_wgmma.h"
#include "emu_check.h"
#include "emu_runtime.h"
#include <algorithm>
#include <map>

namespace emu {

enum { GROUP = 128, GROUPS_MAX = 8, M = 64, K = 16, N_MAX = 128, ROW_BYTES = 128, CHUNK = 16 };
enum { REGISTERS = 65536, REGISTERS_MIN = 24, REGISTERS_MAX = 256, REGISTERS_STEP = 8 };

/* Accumulators of products that follow each other, away from their threads. */
struct Chain {
  float *acc[GROUP] = {};
  int columns = 0;
  size_t products = 0;      /* in flight */
  std::vector<float> value; /* [GROUP][columns / 2] */
};

struct Product {
  WgmmaShare share; /* of the thread that came first */
  Site site;
  int chain;
  uint32_t fragment[GROUP][4];
};

struct Warpgroup {
  std::deque<Product> products; /* in flight, in order */
  std::vector<size_t> groups;   /* products issued before the end of each */
  size_t retired = 0, groups_retired = 0;
  size_t issued[GROUP] = {}, committed[GROUP] = {};
  bool fenced[GROUP] = {};
  std::map<int, Chain> chains;
  int next_chain = 0;
  std::vector<Fiber *> waiting;
  int groups_left = 0;
  int registers = 0; /* 0: those of the launch */
};

static std::map<const Block *, std::vector<Warpgroup>> &warpgroups() {
  static auto *all = new std::map<const Block *, std::vector<Warpgroup>>;
  return *all;
}
static bool is_used; /* since the last block began: other kernels pay nothing */

void wgmma_begin(const Block *b) {
  std::vector<Warpgroup> &mine = warpgroups()[b];
  if (is_used) mine.clear();
  is_used = false;
  mine.resize(GROUPS_MAX);
}

static Warpgroup &own_group(const char *what, Site site) {
  const Fiber *f = self();
  const unsigned number = f->linear / GROUP;
  if (f->owner->threads < (number + 1) * GROUP)
    fail("%s at %s:%d: thread %u is in no whole warpgroup", what, file_name(site.file), site.line,
         f->linear);
  is_used = true;
  return warpgroups()[f->owner][number];
}

uint32_t shared_offset(const void *p) {
  if (!is_shared(p, 1)) fail("%p is not in shared memory", p);
  return (uint32_t)(static_cast<const char *>(p) - self()->owner->shared);
}

/* ---- Operands ---- */

/* Bytes from the start of shared memory to 16 bytes of a matrix: those of `chunk` in `row`. */
static uint32_t chunk_at(uint64_t matrix, bool rows_along_k, int row, int chunk) {
  const uint32_t start = (uint32_t)(matrix & 0x3fff) << 4;
  const uint32_t leading = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
  const uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
  uint32_t at = start + (uint32_t)row / 8 * stride + (uint32_t)row % 8 * ROW_BYTES;
  if (rows_along_k) at += (uint32_t)chunk / 8 * leading;
  at += (uint32_t)chunk % 8 * CHUNK;
  return at ^ (at >> 7 & 7) << 4;
}

static void check_matrix(uint64_t matrix, Site site) {
  if (matrix >> 62 != 1 || matrix >> 49 & 7)
    fail("wgmma at %s:%d: only the 128-byte swizzle without an offset is emulated",
         file_name(site.file), site.line);
}

/* Calls visit(row, chunk, address) for all chunks of a matrix of `count` rows or columns by K. */
template <class F> static void each_chunk(uint64_t matrix, bool rows_along_k, int count, F visit) {
  const Block *b = self()->owner;
  const int rows = rows_along_k ? K : count, chunks = (rows_along_k ? count : K) / 8;
  for (int row = 0; row < rows; row++)
    for (int chunk = 0; chunk < chunks; chunk++) {
      const uint32_t at = chunk_at(matrix, rows_along_k, row, chunk);
      if (at + CHUNK > SHARED_BYTES) fail("wgmma: a matrix ends beyond shared memory");
      visit(row, chunk, b->shared + at);
    }
}

/* values[k][i] of a matrix in shared memory. */
static void read_matrix(uint64_t matrix, bool rows_along_k, int count, bool bf16,
                        float (*values)[N_MAX]) {
  each_chunk(matrix, rows_along_k, count, [&](int row, int chunk, const char *p) {
    uint16_t bits[8];
    memcpy(bits, p, sizeof bits);
    for (int i = 0; i < 8; i++) {
      const float x = bf16 ? bf16_bits_to_float(bits[i]) : half_bits_to_float(bits[i]);
      (rows_along_k ? values[row][chunk * 8 + i] : values[chunk * 8 + i][row]) = x;
    }
  });
}

/* The operands are read from now on (true), or have been. */
static void mark_operands(const WgmmaShare &s, bool begins) {
  auto mark = [begins](int, int, const char *p) {
    if (begins) check_access(p, CHUNK, false, "wgmma");
    check_operand(p, CHUNK, begins);
  };
  if (!s.a_registers) each_chunk(s.a, false, M, mark);
  each_chunk(s.b, s.a_registers != nullptr, s.columns, mark);
}

/* ---- Products ---- */

/* Row and column of element i of a thread's share of 64 x columns. */
static int share_row(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
}
static int share_column(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* In the order of mma.sync's emulation: k by k. */
template <int N>
static void multiply(float (*sum)[N_MAX], const float (*a)[N_MAX], const float (*b)[N_MAX]) {
  for (int m = 0; m < M; m++)
    for (int k = 0; k < K; k++)
      for (int n = 0; n < N; n++) sum[m][n] += a[k][m] * b[k][n];
}

static void run_product(Warpgroup &g, const Product &p) {
  static float a[K][N_MAX], b[K][N_MAX], sum[M][N_MAX];
  const WgmmaShare &s = p.share;
  Chain &chain = g.chains[p.chain];
  const int share = s.columns / 2;
  read_matrix(s.b, s.a_registers != nullptr, s.columns, s.bf16, b);
  if (!s.a_registers) read_matrix(s.a, false, M, s.bf16, a);
  for (int t = 0; t < GROUP; t++) {
    for (int i = 0; s.a_registers && i < 8; i++) { /* register i / 2: columns + 8 of the last two */
      const uint16_t bits = (uint16_t)(p.fragment[t][i / 2] >> i % 2 * 16);
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
      a[t % 4 * 2 + i % 2 + i / 4 * 8][row] =
          s.bf16 ? bf16_bits_to_float(bits) : half_bits_to_float(bits);
    }
    for (int i = 0; i < share; i++)
      sum[share_row(t, i)][share_column(t, i)] = s.add ? chain.value[(size_t)(t * share + i)] : 0;
  }
  s.columns == N_MAX ? multiply<N_MAX>(sum, a, b) : multiply<N_MAX / 2>(sum, a, b);
  for (int t = 0; t < GROUP; t++)
    for (int i = 0; i < share; i++)
      chain.value[(size_t)(t * share + i)] = sum[share_row(t, i)][share_column(t, i)];
}

/* The running thread's accumulators go with a chain, and are off limits from now on. */
static void join_chain(Warpgroup &g, Product &p, float *acc, unsigned thread, Site site) {
  const size_t share = (size_t)p.share.columns / 2;
  int held = -1;
  for (const auto &c : g.chains)
    if (c.second.acc[thread] == acc) held = c.first;
  if (p.chain < 0) p.chain = held >= 0 ? held : g.next_chain++;
  Chain &chain = g.chains[p.chain];
  chain.columns = p.share.columns;
  chain.value.resize(GROUP * share);
  if (held == p.chain) return;
  if (held >= 0 || chain.acc[thread])
    fail("wgmma at %s:%d: these accumulators are not those of the other threads",
         file_name(site.file), site.line);
  chain.acc[thread] = acc;
  memcpy(&chain.value[thread * share], acc, share * sizeof(float));
  memset(acc, 0xff, share * sizeof(float));
}

void wgmma(const WgmmaShare &share, Site site) {
  Warpgroup &g = own_group("wgmma", site);
  const unsigned thread = self()->linear % GROUP;
  if (runtime().capability != 90)
    fail("wgmma at %s:%d: sm_90a alone has it", file_name(site.file), site.line);
  if (!g.fenced[thread])
    fail("wgmma at %s:%d without wgmma_fence since its registers were touched",
         file_name(site.file), site.line);
  const size_t number = g.issued[thread]++ - g.retired;
  if (number == g.products.size()) {
    if (!share.a_registers) check_matrix(share.a, site);
    check_matrix(share.b, site);
    mark_operands(share, true);
    g.products.push_back({share, site, -1, {}});
  }
  Product &p = g.products[number];
  if (p.site.line != site.line || strcmp(p.site.file, site.file))
    fail("divergent warpgroup: wgmma at %s:%d, others at %s:%d", file_name(site.file), site.line,
         file_name(p.site.file), p.site.line);
  if (p.share.a != share.a || p.share.b != share.b || p.share.add != share.add)
    fail("wgmma at %s:%d: operands differ within the warpgroup", file_name(site.file), site.line);
  if (share.a_registers) memcpy(p.fragment[thread], share.a_registers, sizeof p.fragment[thread]);
  const bool first = p.chain < 0;
  join_chain(g, p, share.acc, thread, site);
  if (first) g.chains[p.chain].products++;
}

void wgmma_fence() {
  const Site nowhere = {nullptr, 0};
  own_group("wgmma_fence", nowhere).fenced[self()->linear % GROUP] = true;
}

void wgmma_commit(Site site) {
  Warpgroup &g = own_group("wgmma_commit", site);
  const unsigned thread = self()->linear % GROUP;
  const size_t number = g.committed[thread]++;
  if (number == g.groups.size()) g.groups.push_back(g.issued[thread]);
  if (g.groups[number] != g.issued[thread])
    fail("divergent warpgroup: a group of %zu products at %s:%d, of %zu elsewhere",
         g.issued[thread], file_name(site.file), site.line, g.groups[number]);
}

static void retire_first(Warpgroup &g) {
  const Product &p = g.products.front();
  run_product(g, p);
  mark_operands(p.share, false);
  Chain &chain = g.chains[p.chain];
  if (--chain.products == 0) {
    const size_t share = (size_t)chain.columns / 2;
    for (size_t t = 0; t < GROUP; t++)
      memcpy(chain.acc[t], &chain.value[t * share], share * sizeof(float));
    g.chains.erase(p.chain);
  }
  g.products.pop_front();
  g.retired++;
  std::fill(g.fenced, g.fenced + GROUP, false);
}

/* All 128 threads are here: what was awaited is done. */
static void wait_ends(Warpgroup &g, Site site) {
  for (int t = 1; t < GROUP; t++)
    if (g.issued[t] != g.issued[0] || g.committed[t] != g.committed[0])
      fail("divergent warpgroup: wgmma_wait at %s:%d after %zu and %zu products",
           file_name(site.file), site.line, g.issued[0], g.issued[t]);
  size_t end = g.retired;
  while (g.groups_retired + (size_t)g.groups_left < g.groups.size())
    end = g.groups[g.groups_retired++];
  while (g.retired < end) retire_first(g);
  for (Fiber *f : g.waiting) make_ready(f);
  g.waiting.clear();
}

void wgmma_wait(int groups_left, Site site) {
  Warpgroup &g = own_group("wgmma_wait", site);
  if (!g.waiting.empty() && g.groups_left != groups_left)
    fail("divergent warpgroup: wgmma_wait<%d> at %s:%d, others wait for <%d>", groups_left,
         file_name(site.file), site.line, g.groups_left);
  g.groups_left = groups_left;
  if (g.waiting.size() + 1 == GROUP) return wait_ends(g, site);
  g.waiting.push_back(self());
  suspend("wgmma_wait", site);
}

bool wgmma_holds(const void *p, size_t size) {
  if (!is_used || self()->linear / GROUP >= GROUPS_MAX) return false;
  const char *at = static_cast<const char *>(p);
  const Warpgroup &g = warpgroups()[self()->owner][self()->linear / GROUP];
  for (const auto &c : g.chains) {
    const char *acc = reinterpret_cast<const char *>(c.second.acc[self()->linear % GROUP]);
    if (acc && at + size > acc && at < acc + (size_t)c.second.columns / 2 * sizeof(float))
      return true;
  }
  return false;
}

/* ---- Registers ---- */

void registers_set(int count, bool raise, Site site) {
  Warpgroup &g = own_group("setmaxnreg", site);
  const int launched =
      std::min(REGISTERS / (int)self()->owner->threads, REGISTERS_MAX - 1) & -REGISTERS_STEP;
  if (count < REGISTERS_MIN || count > REGISTERS_MAX || count % REGISTERS_STEP)
    fail("setmaxnreg of %d registers at %s:%d", count, file_name(site.file), site.line);
  if (raise ? count < launched : count > launched)
    fail("setmaxnreg at %s:%d: from %d registers to %d is the other way", file_name(site.file),
         site.line, launched, count);
  if (g.registers && g.registers != count)
    fail("setmaxnreg at %s:%d: %d registers, %d elsewhere in the warpgroup", file_name(site.file),
         site.line, count, g.registers);
  g.registers = count;
}

/* On the device a warpgroup would wait for registers for ever. */
static void check_registers(const Block *b, const std::vector<Warpgroup> &groups) {
  const int launched = std::min(REGISTERS / (int)b->threads, REGISTERS_MAX - 1) & -REGISTERS_STEP;
  int sum = 0;
  for (unsigned i = 0; i * GROUP < b->threads; i++)
    sum += GROUP * (groups[i].registers ? groups[i].registers : launched);
  if (sum > REGISTERS) fail("the block's warpgroups ask for %d registers of %d", sum, REGISTERS);
}

void wgmma_thread_exits(const Fiber *f) {
  if (!is_used || f->linear / GROUP >= GROUPS_MAX) return;
  const std::vector<Warpgroup> &groups = warpgroups()[f->owner];
  const Warpgroup &g = groups[f->linear / GROUP];
  if (g.issued[f->linear % GROUP] > g.retired) fail("exits with a wgmma that it never waited for");
  if (f->owner->alive == 1 && f->owner->threads % GROUP == 0) check_registers(f->owner, groups);
}

} // namespace emu
