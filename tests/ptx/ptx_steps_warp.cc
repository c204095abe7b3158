/* ptx_steps_warp.cc: branches, and what threads do together: shuffles, votes, barriers, matrices,
 * asynchronous copies, products of warpgroups.
 *
 * The emulator has the models (tests/emu); here their operands are taken from the places and the
 * order that PTX gives them. A form that no model has, such as another transposition of a product,
 * is a fault with its line.
 */
#include "ptx_banks.h"
#include "ptx_steps.h"

namespace ptx {

static void demand(bool holds, const Instruction &i, const char *otherwise) {
  if (!holds) fail_at(i, otherwise);
}

static void branch(Lane &lane, const Instruction &i) {
  lane.next = i.target;
}
static void nothing(Lane &, const Instruction &) {}

/* ---- Warps ---- */

/* The third operand of shfl: the last lane of a segment, and which bits of a lane name a segment.
 * The second result says whether the lane that is read is in the segment. */
template <emu::ShuffleKind KIND> static void shuffle(Lane &lane, const Instruction &i) {
  const uint32_t value = get<uint32_t>(lane, i.at[2]), by = get<uint32_t>(lane, i.at[3]) & 31;
  const uint32_t limits = get<uint32_t>(lane, i.at[4]), mask = get<uint32_t>(lane, i.at[5]);
  const uint32_t segment = limits >> 8 & 31, clamp = limits & 31;
  demand(clamp == (KIND == emu::SHUFFLE_UP ? 0u : 31u), i, "a shuffle with an unknown clamp");
  const uint64_t got = emu::shuffle(mask, KIND, value, (int)by, 32 - (int)segment, site_of(i));
  const uint32_t self = emu::current->lane, first = self & segment;
  const uint32_t last = first | (clamp & ~segment);
  uint32_t from = first | (by & ~segment);
  if (KIND == emu::SHUFFLE_DOWN) from = self + by;
  if (KIND == emu::SHUFFLE_XOR) from = self ^ by;
  const bool is_inside = KIND == emu::SHUFFLE_UP ? self >= first + by : from <= last;
  put<uint32_t>(lane, i.at[0], (uint32_t)got);
  put<uint32_t>(lane, i.at[1], is_inside);
}

template <emu::VoteKind KIND> static void vote(Lane &lane, const Instruction &i) {
  const uint32_t mask = get<uint32_t>(lane, i.at[2]);
  put<uint32_t>(lane, i.at[0], emu::vote(mask, KIND, get<uint32_t>(lane, i.at[1]), site_of(i)));
}

static void warp_sync(Lane &lane, const Instruction &i) {
  emu::vote(get<uint32_t>(lane, i.at[0]), emu::VOTE_SYNC, 0, site_of(i));
}

template <bool BF16> static void multiply(Lane &lane, const Instruction &i) {
  float sum[4];
  uint32_t a[4];
  for (int n = 0; n < 4; n++) {
    a[n] = get<uint32_t>(lane, i.list[4 + n]);
    sum[n] = get<float>(lane, i.list[10 + n]);
  }
  const uint32_t b[2] = {get<uint32_t>(lane, i.list[8]), get<uint32_t>(lane, i.list[9])};
  emu::mma_m16n8k16(sum, a, b[0], b[1], BF16, site_of(i));
  for (int n = 0; n < 4; n++) put<float>(lane, i.list[n], sum[n]);
}

static const char *shared_at(const Lane &lane, const Instruction &i, uint32_t place) {
  const uint32_t address = get<uint32_t>(lane, place) + (uint32_t)i.offset;
  demand(address < lane.shared_bytes, i, "an address beyond shared memory");
  return lane.shared + address;
}

/* The same, for 16 bytes of a lane that are counted. */
static const char *row_at(const Lane &lane, const Instruction &i, uint32_t place) {
  const char *p = shared_at(lane, i, place);
  if (lane.is_counted) banks_note(i, lane.thread, (uint32_t)(p - lane.shared), 16);
  return p;
}

template <int N, bool TRANSPOSED> static void load_matrix(Lane &lane, const Instruction &i) {
  uint32_t words[N];
  const bool names_a_row = lane.thread % 32 < 8 * N;
  const char *row = names_a_row ? row_at(lane, i, i.at[0]) : shared_at(lane, i, i.at[0]);
  emu::ldmatrix(words, N, TRANSPOSED, row, site_of(i));
  for (int n = 0; n < N; n++) put<uint32_t>(lane, i.list[n], words[n]);
}

/* ---- Blocks ---- */

static void block_sync(Lane &lane, const Instruction &i) {
  emu::barrier_sync(get<uint32_t>(lane, i.at[0]), 0, emu::BARRIER_PLAIN, 0, site_of(i));
}
static void named_sync(Lane &lane, const Instruction &i) {
  emu::barrier_sync(get<uint32_t>(lane, i.at[0]), get<uint32_t>(lane, i.at[1]), emu::BARRIER_PLAIN,
                    0, site_of(i));
}
static void named_arrive(Lane &lane, const Instruction &i) {
  emu::barrier_arrive(get<uint32_t>(lane, i.at[0]), get<uint32_t>(lane, i.at[1]), site_of(i));
}

/* ---- Copies ---- */

static void copy_16(Lane &lane, const Instruction &i) {
  demand(i.at[2] == 16, i, "cp.async of another size");
  emu::cp_async(const_cast<char *>(row_at(lane, i, i.at[0])),
                reinterpret_cast<const void *>(get<uint64_t>(lane, i.at[1])),
                get<int32_t>(lane, i.at[3]), site_of(i));
}

static uint64_t *mbarrier_at(const Lane &lane, const Instruction &i, uint32_t place) {
  return reinterpret_cast<uint64_t *>(const_cast<char *>(shared_at(lane, i, place)));
}

/* A try may end before the phase does, and then says so: every other one does at once. */
static void try_wait(Lane &lane, const Instruction &i) {
  lane.has_tried = !lane.has_tried;
  put<uint32_t>(lane, i.at[0], !lane.has_tried);
  if (lane.has_tried) return;
  emu::mbarrier_wait(mbarrier_at(lane, i, i.at[1]), get<uint32_t>(lane, i.at[2]), site_of(i));
}

static void bulk_copy(Lane &lane, const Instruction &i) {
  emu::bulk_copy(const_cast<char *>(shared_at(lane, i, i.at[0])),
                 reinterpret_cast<const void *>(get<uint64_t>(lane, i.at[1])),
                 get<uint32_t>(lane, i.at[2]), mbarrier_at(lane, i, i.at[3]), site_of(i));
}

/* ---- Warpgroups ---- */

/* What the models have: nothing negated; a's rows along m, b's along n, or, with a in registers,
 * b's along k. */
static void check_product(const Instruction &i, bool of_registers) {
  const uint32_t *numbers = i.at + (of_registers ? 2 : 3);
  demand(numbers[0] == 1 && numbers[1] == 1, i, "a product with a factor of -1");
  if (of_registers)
    demand(numbers[2] == 1, i, "a product whose right rows do not run along k");
  else
    demand(!numbers[2] && !numbers[3], i, "a product of transposed operands");
}

template <int COLUMNS, bool BF16> static void product(Lane &lane, const Instruction &i) {
  check_product(i, false);
  emu::wgmma({reinterpret_cast<float *>(lane.words + i.list[0]), COLUMNS,
              get<uint64_t>(lane, i.at[0]), nullptr, get<uint64_t>(lane, i.at[1]),
              get<uint32_t>(lane, i.at[2]) != 0, BF16},
             site_of(i));
}

template <int COLUMNS, bool BF16>
static void product_of_registers(Lane &lane, const Instruction &i) {
  check_product(i, true);
  uint32_t a[4];
  for (int n = 0; n < 4; n++) a[n] = get<uint32_t>(lane, i.list[COLUMNS / 2 + n]);
  emu::wgmma({reinterpret_cast<float *>(lane.words + i.list[0]), COLUMNS, 0, a,
              get<uint64_t>(lane, i.at[0]), get<uint32_t>(lane, i.at[1]) != 0, BF16},
             site_of(i));
}

#define PTX_PRODUCTS(name, type, bf16)                                                             \
  {name "m64n128k16.f32." type, "{64w}DDpiiii", product<128, bf16>},                               \
      {name "m64n128k16.f32." type " registers", "{64w}{4w}Dpiii",                                 \
       product_of_registers<128, bf16>},                                                           \
  {                                                                                                \
    name "m64n64k16.f32." type " registers", "{32w}{4w}Dpiii", product_of_registers<64, bf16>      \
  }
#define PTX_MATRICES(count, letters)                                                               \
  {"ldmatrix.sync.aligned.m8n8.x" #count ".shared.b16", letters "s", load_matrix<count, false>}, { \
    "ldmatrix.sync.aligned.m8n8.x" #count ".trans.shared.b16", letters "s",                        \
        load_matrix<count, true>                                                                   \
  }

static const Rule rules[] = {
    {"bra", "L", branch},
    {"bra.uni", "L", branch},
    {"ret", "", [](Lane &lane, const Instruction &) { lane.next = nullptr; }},
    {"trap", "", [](Lane &, const Instruction &i) { fail_at(i, "trap"); }},
    {"membar.gl", "", nothing},
    {"membar.cta", "", nothing},
    {"fence.mbarrier_init.release.cluster", "",
     [](Lane &, const Instruction &) { emu::mbarrier_fence(); }},
    {"nanosleep.u32", "W", [](Lane &, const Instruction &) { emu::spin(); }},

    {"shfl.sync.idx.b32", "w|pWWWW", shuffle<emu::SHUFFLE_INDEX>},
    {"shfl.sync.up.b32", "w|pWWWW", shuffle<emu::SHUFFLE_UP>},
    {"shfl.sync.down.b32", "w|pWWWW", shuffle<emu::SHUFFLE_DOWN>},
    {"shfl.sync.bfly.b32", "w|pWWWW", shuffle<emu::SHUFFLE_XOR>},
    {"vote.sync.any.pred", "pPW", vote<emu::VOTE_ANY>},
    {"vote.sync.all.pred", "pPW", vote<emu::VOTE_ALL>},
    {"vote.sync.ballot.b32", "wPW", vote<emu::VOTE_BALLOT>},
    {"bar.warp.sync", "W", warp_sync},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "{4w}{4w}{2w}{4w}", multiply<true>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "{4w}{4w}{2w}{4w}", multiply<false>},
    PTX_MATRICES(2, "{2w}"),
    PTX_MATRICES(4, "{4w}"),

    {"bar.sync", "W", block_sync},
    {"barrier.sync", "WW", named_sync},
    {"barrier.arrive", "WW", named_arrive},

    {"cp.async.cg.shared.global", "smiW", copy_16},
    {"cp.async.commit_group", "", [](Lane &, const Instruction &) { emu::cp_async_commit(); }},
    {"cp.async.wait_group", "i",
     [](Lane &, const Instruction &i) { emu::cp_async_wait((int)i.at[0]); }},
    {"mbarrier.init.shared::cta.b64", "sW",
     [](Lane &lane, const Instruction &i) {
       emu::mbarrier_init(mbarrier_at(lane, i, i.at[0]), get<uint32_t>(lane, i.at[1]), site_of(i));
     }},
    {"mbarrier.arrive.shared::cta.b64", "_s",
     [](Lane &lane, const Instruction &i) {
       emu::mbarrier_arrive(mbarrier_at(lane, i, i.at[1]), 0, site_of(i));
     }},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", "_sW",
     [](Lane &lane, const Instruction &i) {
       const uint32_t bytes = get<uint32_t>(lane, i.at[2]);
       emu::mbarrier_arrive(mbarrier_at(lane, i, i.at[1]), bytes, site_of(i));
     }},
    {"mbarrier.try_wait.parity.shared::cta.b64", "psW", try_wait},
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "smWs", bulk_copy},
    {"fence.proxy.async.shared::cta", "", [](Lane &, const Instruction &) { emu::proxy_fence(); }},
    {"griddepcontrol.wait", "", [](Lane &, const Instruction &) { emu::dependency_wait(); }},
    {"griddepcontrol.launch_dependents", "",
     [](Lane &, const Instruction &) { emu::dependents_launch(); }},

    PTX_PRODUCTS("wgmma.mma_async.sync.aligned.", "bf16.bf16", true),
    PTX_PRODUCTS("wgmma.mma_async.sync.aligned.", "f16.f16", false),
    {"wgmma.fence.sync.aligned", "", [](Lane &, const Instruction &) { emu::wgmma_fence(); }},
    {"wgmma.commit_group.sync.aligned", "",
     [](Lane &, const Instruction &i) { emu::wgmma_commit(site_of(i)); }},
    {"wgmma.wait_group.sync.aligned", "i",
     [](Lane &, const Instruction &i) { emu::wgmma_wait((int)i.at[0], site_of(i)); }},
    {"setmaxnreg.dec.sync.aligned.u32", "i",
     [](Lane &, const Instruction &i) { emu::registers_set((int)i.at[0], false, site_of(i)); }},
    {"setmaxnreg.inc.sync.aligned.u32", "i",
     [](Lane &, const Instruction &i) { emu::registers_set((int)i.at[0], true, site_of(i)); }},
};

Rules warp_rules() {
  return {rules, sizeof rules / sizeof rules[0]};
}

} // namespace ptx
